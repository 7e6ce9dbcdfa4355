/* What the files of this binding share. Names begin with bucx_; none leaves the library. */
#ifndef BERTH_UCX_INSIDE_H
#define BERTH_UCX_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include "berth_ucx.h"

#pragma GCC visibility push(hidden) /* what is ours is reached without a table */

#define BUCX_LIKELY(x) __builtin_expect(!!(x), 1)
#define BUCX_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* ---- libucp: load.c --------------------------------------------------------------------------------- */

/* The calls that are used, found at run time. The last is libucs', which libucp brings along. */
#define BUCX_CALLS(X)           \
    X(ucp_get_version)          \
    X(ucp_config_read)          \
    X(ucp_config_modify)        \
    X(ucp_config_release)       \
    X(ucp_init_version)         \
    X(ucp_cleanup)              \
    X(ucp_context_query)        \
    X(ucp_mem_map)              \
    X(ucp_mem_unmap)            \
    X(ucp_mem_query)            \
    X(ucp_rkey_pack)            \
    X(ucp_rkey_buffer_release)  \
    X(ucp_ep_rkey_unpack)       \
    X(ucp_rkey_destroy)         \
    X(ucp_get_nbx)              \
    X(ucp_put_nbx)              \
    X(ucp_ep_flush_nbx)         \
    X(ucp_request_check_status) \
    X(ucp_request_free)         \
    X(ucp_worker_progress)      \
    X(ucs_status_string)

typedef struct bucx_calls {
#define BUCX_MEMBER(name) __typeof__(name) *name;
    BUCX_CALLS(BUCX_MEMBER)
#undef BUCX_MEMBER
} bucx_calls;

extern bucx_calls bucx_call; /* complete once bucx_load has answered BERTH_OK */
berth_status bucx_load(void);
/* `what` was asked of UCX and refused with `code`. */
berth_status bucx_fail(ucs_status_t code, const char *what);

/* ---- Forks: context.c -------------------------------------------------------------------------------- */

/* Counts forks, in children. What was made in another generation belongs to a process whose UCX is not here. */
extern _Atomic uint32_t bucx_generation;
void bucx_watch_forks(void);

/* ---- Registered memory: memory.c --------------------------------------------------------------------- */

/* One piece of memory known to UCX. */
typedef struct bucx_memory {
    char *base;
    size_t size_bytes;
    ucp_mem_h handle;
    void *key; /* packed */
    size_t key_bytes;
    void *block; /* of the allocator that the memory comes from; NULL: UCX allocated it */
    size_t block_bytes;
} bucx_memory;

/* Allocates and registers. `from` may be NULL: UCX allocates. */
berth_status bucx_memory_take(berth_ucx *ucx, berth_allocator *from, size_t size_bytes, bucx_memory *out);
/* From here on no key is good for it. Address space that UCX had allocated is kept back until the end: a peer without a NIC
 * that checks keys (tcp) would otherwise write where an old key says, into whatever lies there then. */
void bucx_memory_give(berth_ucx *ucx, berth_allocator *from, bucx_memory *memory);

/* ---- Slabs: slab.c ----------------------------------------------------------------------------------- */

typedef struct bucx_slab {
    bucx_memory memory;
    berth_ucx *ucx;
    char *start; /* the block: at or behind the memory's base, as aligned as was asked */
    size_t size_bytes;
    uint64_t number;
} bucx_slab;

extern const berth_allocator_ops bucx_source_ops;
/* Copies the live slab that `p` lies in. */
berth_status bucx_slab_find(const void *p, bucx_slab *out);
void bucx_slabs_forget(void); /* in the child of a fork */

/* ---- Tickets: ticket.c ------------------------------------------------------------------------------- */

enum { BUCX_FILTER = 4096, BUCX_TABLE_BYTES = 64 << 10 };

/* The blocks that have tickets. A number in registered memory stands for each; peers read it. */
typedef struct bucx_lease {
    struct bucx_lease *next;
    const void *block;
    _Atomic uint64_t *number; /* in a table; 0 there: nobody's */
    struct bucx_table *table;
} bucx_lease;

typedef struct bucx_table {
    struct bucx_table *next;
    bucx_memory memory;
    uint64_t id;
    size_t used; /* numbers handed out at least once */
} bucx_table;

typedef struct bucx_tickets {
    pthread_mutex_t lock;
    bucx_lease *chains[BUCX_FILTER]; /* guard: lock */
    bucx_lease *spare;               /* guard: lock; their numbers are 0 */
    bucx_table *tables;              /* guard: lock */
    uint64_t count;                  /* guard: lock */
    /* How many leases a chain has: most frees look here and nowhere else. Written under the lock. */
    _Atomic uint32_t filter[BUCX_FILTER];
} bucx_tickets;

static inline size_t bucx_chain_of(const void *block)
{
    /* Blocks begin at multiples of 64 at least; Fibonacci hashing spreads the rest. */
    return (size_t)(((uint64_t)(uintptr_t)block >> 6) * UINT64_C(0x9e3779b97f4a7c15) >> 52);
}

/* Voids a block's tickets and takes what stands for them, with its number; NULL: it has none. Before the block is freed or moved, since
 * from then on it may be another's; then either dropped, or put back where the block has stayed. */
bucx_lease *bucx_tickets_suspend(berth_ucx *ucx, const void *block, uint64_t *number);
void bucx_tickets_drop(berth_ucx *ucx, bucx_lease *lease);
void bucx_tickets_resume(berth_ucx *ucx, bucx_lease *lease, uint64_t number);
void bucx_tickets_finish(berth_ucx *ucx);

/* ---- The whole --------------------------------------------------------------------------------------- */

/* Lives until it is destroyed and nobody has its source any more. */
struct berth_ucx {
    ucp_context_h context;
    bool owns_context;
    bool serial; /* the program's context is for one thread at a time: our calls take turns */
    ucs_memory_type_t type;
    berth_allocator *memory; /* NULL: UCX allocates */
    berth_device device;
    berth_memory_kind kind;
    size_t slab_bytes, page_bytes;
    uint32_t generation;
    berth_allocator *source;
    _Atomic uint32_t holders; /* the program, the source, and each pool */
    _Atomic uint64_t next_number;
    pthread_mutex_t calls; /* held around calls of UCX if `serial` */
    pthread_mutex_t lock;
    bool closed;               /* guard: lock, like all below */
    uint64_t pools;            /* of berth_ucx_pool_create */
    berth_ucx_figures figures; /* slabs are counted from before they are registered */
    struct bucx_range *retired;
    bucx_tickets tickets;
};

typedef struct bucx_range {
    struct bucx_range *next;
    char *base;
    size_t size_bytes;
} bucx_range;

static inline bool bucx_is_lost(const berth_ucx *ucx)
{
    return BUCX_UNLIKELY(ucx->generation != atomic_load_explicit(&bucx_generation, memory_order_relaxed));
}
berth_status bucx_lost(void);
void bucx_calls_begin(berth_ucx *ucx);
void bucx_calls_end(berth_ucx *ucx);
void bucx_drop(berth_ucx *ucx); /* one holder less */

extern const char bucx_pool_name[]; /* by its address: a pool of ours */

/* The first 8 bytes of a ticket: "berthux" and the version of what follows. */
#define BUCX_MAGIC UINT64_C(0x0178756874726562)
typedef struct bucx_ticket_head {
    uint64_t magic;
    uint64_t address, size_bytes;
    uint64_t slab;
    uint64_t number, number_address;
    uint64_t table;
    uint32_t key_bytes, table_key_bytes; /* both follow, in this order */
} bucx_ticket_head;

#pragma GCC visibility pop

#endif
