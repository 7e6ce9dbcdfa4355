/* The inside of the host cache: what its files share.
 *
 *                      +---------------------- allocate ----------------------+
 *                      v                                                      |
 *     device --> [ live ] -- free, no stream used it ----------------> [ idle: stock, bin ] --> device
 *                      \                                                ^
 *                       -- free, streams used it --> [ waiting: queues ]
 *
 * A block is in one place: with its user, in the queues of the streams that used it, in a thread's stock, or
 * in the bin of its class. Every move between places happens inside the thread's slot of the meter (`enter`
 * and `leave`), so that stopping the meter stands for stopping the world: trim, fork and destruction then
 * find every block in its place. No driver is called inside.
 *
 *     segment: one piece of device memory, 1 to 64 blocks of one class       the page map leads to it
 *     block:   the bookkeeping of one piece of memory, never in the memory itself
 *
 * Bookkeeping of segments and blocks is used again but not freed before the cache is: a stale pointer or
 * handle leads to something that can be looked at, and its state says that it is stale. */
#ifndef BERTH_HOST_HOST_H
#define BERTH_HOST_HOST_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/annotate.h"
#include "berth/host_cache.h"
#include "core/allocator.h"
#include "count/meter.h"
#include "host/page_map.h"
#include "host/size_class.h"
#include "wait/stream_queue.h"

/* Broken on purpose, one at a time, to see that the model checker sees it; 0 in every build that is used. */
#ifndef BERTH__HOST_MUTANT
#define BERTH__HOST_MUTANT 0
#endif

typedef enum host_state {
    HOST_NONE = 0,     /* bookkeeping without memory */
    HOST_IDLE,         /* in a stock or a bin */
    HOST_LIVE,         /* with its user */
    HOST_LIVE_BUSY,    /* the same, while a use is being recorded: a lock of a few instructions */
    HOST_LEAVING,      /* freed, on its way to the next place */
    HOST_WAITING,      /* in the queues of streams */
    HOST_WAITING_BUSY, /* the same, while somebody reads its uses */
} host_state;

/* What keeps a cache off the short way: marks in its meter's `stopped`. */
typedef enum host_special {
    HOST_CLOSED = 16, /* the last reference is gone */
    HOST_CLOCK = 32,
    HOST_SOFT_LIMIT = 64,
    HOST_SYMMETRIC = 128, /* the barrier costs both sides */
    HOST_ANNOTATED = 256, /* a checker of memory listens */
} host_special;

typedef struct host_block host_block;
typedef struct host_segment host_segment;

struct host_block {
    /* one cache line: all that a pair of calls without streams touches */
    _Atomic uint32_t state;      /* host_state */
    _Atomic uint32_t generation; /* how often it was handed out; the upper half of its handle */
    host_block *next;            /* in its stock or bin */
    _Atomic(char *) address;     /* NULL without memory: a guess that has grown old then fits nothing */
    size_t size;                 /* of its class */
    uint32_t bin;                /* its class */
    uint32_t uses;               /* streams recorded; guard: LIVE_BUSY, LEAVING */
    _Atomic size_t requested;
    _Atomic(const char *) label;
    /* the rest */
    host_block *prev; /* in its bin */
    host_segment *segment;
    uint32_t name;             /* the lower half of its handle */
    _Atomic uint32_t pending;  /* uses not collected yet, while waiting */
    berth__use *more_uses;     /* beyond the first; guard as `uses` */
    _Atomic uint64_t since_ns; /* when it got its state, where there is a clock */
    berth__use first_use;
};

struct host_segment {
    char *base; /* NULL: spare */
    size_t bytes, stride;
    uint64_t inverse; /* ceil(2^42 / stride): a division that is exact here; 0 where there is one block */
    uint32_t blocks;
    uint32_t idle; /* scratch of trim */
    host_block *first;
    uint64_t number;
    host_segment *next, *prev; /* all with memory, or all spare; guard: lock */
};

static inline char *berth__host_address(const host_block *b)
{
    return atomic_load_explicit(&b->address, memory_order_relaxed);
}

/* The idle blocks of one class. Newest first. */
typedef struct host_bin {
    berth__spin lock;
    _Atomic uint32_t count;
    host_block *newest, *oldest; /* guard: lock */
    uint64_t fill_a_cache_line[5];
} host_bin;

/* Sizes up to 64 KiB find their class in a table. */
enum { HOST_TABLE = 1024 };

enum { HOST_GUESSES = 64, HOST_MEMOS = 8, HOST_BLOCK_PIECES = 20, HOST_RUN = 64, HOST_RUN_SIZES = 7 };

/* A thread's own idle blocks, beside its meter slot; its memos of streams it has met are its alone. */
typedef struct host_stock {
    berth__stream_queue *recent; /* the queue it added to last */
    /* Blocks that the thread took lately, by address: a guess, in which the block is found by one load that
     * depends on the pointer instead of five. */
    host_block *guesses[HOST_GUESSES];
    struct {
        uint64_t stream_id;
        berth__stream_queue *queue;
    } memos[HOST_MEMOS];
    struct {
        host_block *newest;
        uint32_t count, most;
        uint64_t allocations; /* counted here because the size then need not be */
        uint64_t fill;
    } bins[];
} host_stock;

typedef struct host_cache {
    berth_allocator base;
    berth__size_classes classes;
    berth__page_map *pages;
    berth__meter meter;
    uint64_t number; /* of all caches there ever were */
    berth_device device;
    uint64_t (*clock_ns)(void *context);
    void *clock_context;
    const char *name;
    uint32_t first_single; /* the first class whose blocks are segments of their own */
    host_bin *bins;
    uint16_t class_table[HOST_TABLE]; /* by granules, less 1 */
    berth__streams streams;

    _Atomic uint64_t reserved, max_reserved;
    _Atomic uint64_t hard_limit, soft_limit; /* 0: none */
    _Atomic uint64_t idle;                   /* bytes; kept only while there is a soft limit */
    _Atomic uint64_t trim_above;             /* idle bytes that call for a trim */
    _Atomic uint64_t device_allocations, device_releases;

    pthread_mutex_t lock;                            /* segments and blocks, stopping, closing */
    host_segment *segments, *spare_segments;         /* guard: lock */
    uint64_t next_segment_number;                    /* guard: lock */
    _Atomic(host_block *) pieces[HOST_BLOCK_PIECES]; /* piece k holds 64 << k blocks */
    _Atomic uint32_t block_count;                    /* guard: lock to write */
    host_block *spare_runs[HOST_RUN_SIZES];          /* runs of 1 << i blocks; guard: lock */
    bool outstanding_known;                          /* guard: lock */
    uint64_t outstanding;                            /* live blocks once closed; guard: lock */
    uint32_t pins;                                   /* frees that still tidy up; guard: lock */

    pthread_t background;
    bool background_runs; /* guard: lock */
    bool background_stop; /* guard: lock */
    uint32_t background_us;
    pthread_cond_t background_wake;

    struct host_cache *next, *prev; /* all caches; guard: the list's lock */
    struct host_cache *next_orphan; /* guard: the same */
} host_cache;

/* ---- Inside (host_move.c) ------------------------------------------------------------------------- */

typedef struct host_inside {
    berth__meter_slot *slot; /* NULL: the cache's lock is held instead */
    host_stock *stock;       /* NULL: there is none */
} host_inside;

host_inside berth__host_enter_slow(host_cache *c);

/* From here to leave, blocks may be moved. */
static inline __attribute__((always_inline)) host_inside berth__host_enter(host_cache *c)
{
    if (BERTH_LIKELY(berth__thread_memos.host_cache.key == c->number)) {
        host_inside in = {berth__thread_memos.host_cache.slot, berth__thread_memos.host_cache.value};
        if (BERTH_LIKELY(berth__meter_enter(&c->meter, in.slot)))
            return in;
    }
    return berth__host_enter_slow(c);
}

static inline bool berth__host_is(host_cache *c, uint32_t special)
{
    return BERTH_UNLIKELY((atomic_load_explicit(&c->meter.stopped, memory_order_relaxed) & special) != 0);
}

static inline void berth__host_leave(host_cache *c, host_inside in)
{
    if (BERTH_LIKELY(in.slot != NULL))
        berth__meter_leave(in.slot);
    else
        berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
}

/* Takes an idle block of a class out of the bin (and more for the stock); NULL if there is none. Inside. */
host_block *berth__host_take_from_bin(host_cache *c, host_inside in, uint32_t bin);
/* The same, for an alignment that not every block of the class has. */
host_block *berth__host_take_aligned(host_cache *c, uint32_t bin, size_t alignment);
/* Moves the older half of a full stock into the bin. Inside. */
void berth__host_spill(host_cache *c, host_stock *stock, uint32_t bin);
/* Puts it into the bin. Inside, or with the lock held. */
void berth__host_put_in_bin(host_cache *c, host_block *b);
/* Takes blocks of one class out of the stocks of all threads into its bin. No lock held. */
void berth__host_gather(host_cache *c, uint32_t bin);
/* Gives idle memory above `keep_bytes` back to the device. No lock held. */
size_t berth__host_release_idle(host_cache *c, uint64_t keep_bytes);
/* Gives idle memory back if there is more than the soft limit keeps. */
void berth__host_keep_soft_limit(host_cache *c);
/* Stops the world, with the lock held on return; and lets it go on. */
void berth__host_stop(host_cache *c);
void berth__host_resume(host_cache *c);
/* While stopped: empties every stock into the bins. */
void berth__host_flush_stocks(host_cache *c);

/* Idle bytes are counted only while a soft limit needs them. Inside, or with the lock held. */
static inline void berth__host_count_idle(host_cache *c, int64_t bytes)
{
    if (berth__host_is(c, HOST_SOFT_LIMIT))
        atomic_fetch_add_explicit(&c->idle, (uint64_t)bytes, memory_order_relaxed);
}

/* An idle block of a class out of the stock, or the bin; NULL if there is none. Inside. */
static inline host_block *berth__host_take_idle(host_cache *c, host_inside in, uint32_t bin)
{
    host_block *b = BERTH_LIKELY(in.stock != NULL) ? in.stock->bins[bin].newest : NULL;
    if (BERTH_UNLIKELY(!b))
        return berth__host_take_from_bin(c, in, bin);
    in.stock->bins[bin].newest = b->next;
    in.stock->bins[bin].count--;
    berth__host_count_idle(c, -(int64_t)b->size);
    return b;
}

/* Puts a block that nobody uses into the stock, or the bin. Inside. */
static inline void berth__host_put_idle(host_cache *c, host_inside in, host_block *b)
{
    if (BERTH_UNLIKELY(!in.stock)) {
        berth__host_put_in_bin(c, b);
        return;
    }
    berth__annotate_noaccess(berth__host_address(b), b->size);
    atomic_store_explicit(&b->state, HOST_IDLE, memory_order_release);
    b->next = in.stock->bins[b->bin].newest;
    in.stock->bins[b->bin].newest = b;
    berth__host_count_idle(c, (int64_t)b->size);
    if (BERTH_UNLIKELY(++in.stock->bins[b->bin].count > in.stock->bins[b->bin].most))
        berth__host_spill(c, in.stock, b->bin);
}

/* ---- Segments and blocks (host_block.c) ------------------------------------------------------------ */

/* Memory for one more segment of a class from the device, and one of its blocks, LEAVING; the others go to
 * the bin. No lock held. As berth_allocate. */
berth_status berth__host_grow(host_cache *c, uint32_t bin, size_t alignment, host_block **out);
/* With the lock held: takes a segment whose blocks are all out of their lists off the books. */
void berth__host_unlist(host_cache *c, host_segment *s);
/* Gives an unlisted segment's memory back to the device, then its bookkeeping. No lock held. */
void berth__host_release_segment(host_cache *c, host_segment *s);
/* The block at index, NULL if there is none. */
host_block *berth__host_block_at(host_cache *c, uint32_t index);
/* Frees all bookkeeping of blocks, with their events. */
void berth__host_blocks_finish(host_cache *c);

/* The block that `p` lies in, whatever its state; NULL if `p` is in no memory of the cache. */
static inline host_block *berth__host_find(const host_cache *c, const void *p)
{
    host_segment *s = berth__page_map_find(c->pages, p);
    if (BERTH_UNLIKELY(!s))
        return NULL;
    size_t offset = (size_t)((const char *)p - s->base);
    if (BERTH_UNLIKELY(offset >= s->bytes))
        return NULL;
    return s->first + (offset * s->inverse >> 42);
}

static inline host_block **berth__host_guess(host_stock *stock, const void *p)
{
    return &stock->guesses[((uintptr_t)p >> 6) * 0x9E3779B97F4A7C15u >> 58];
}

/* A handle: the generation above, the block below as its piece (5 bits) and its place there, plus 1. */
static inline uint32_t berth__host_piece_of(uint32_t index)
{
    return 31u - (uint32_t)__builtin_clz(index / HOST_RUN + 1);
}

static inline berth_host_handle berth__host_handle(const host_block *b)
{
    return (uint64_t)atomic_load_explicit(&b->generation, memory_order_relaxed) << 32 | b->name;
}

/* The block that a handle names if it is the one at `p`, else the block that `p` lies in. */
static inline host_block *berth__host_resolve(host_cache *c, const void *p, berth_host_handle handle)
{
    uint32_t name = (uint32_t)handle, piece = name >> 27, place = (name & 0x7ffffffu) - 1;
    if (piece < HOST_BLOCK_PIECES && place < (uint32_t)HOST_RUN << piece) {
        host_block *blocks = atomic_load_explicit(&c->pieces[piece], memory_order_acquire);
        host_block *b = blocks ? &blocks[place] : NULL;
        if (BERTH_LIKELY(b && berth__host_address(b) == p &&
                         atomic_load_explicit(&b->generation, memory_order_relaxed) ==
                             (uint32_t)(handle >> 32)))
            return b;
    }
    return berth__host_find(c, p);
}

static inline uint64_t berth__host_now(const host_cache *c)
{
    return BERTH_UNLIKELY(c->clock_ns != NULL) ? c->clock_ns(c->clock_context) : 0;
}

/* ---- Waiting (host_wait.c) --------------------------------------------------------------------------- */

/* Notes the use of a live block. BERTH_OK, BERTH_NOT_FOUND, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__host_note_use(host_cache *c, host_block *b, berth_stream *stream);
/* A block that is LEAVING and has uses: marks the end of every stream. Calls the driver. */
void berth__host_mark_uses(host_cache *c, host_block *b);
/* And puts it into their queues. Inside. */
void berth__host_add_uses(host_inside in, host_block *b);
/* Collects from all queues; answers how many blocks became idle. `thorough` as for the queues. No lock held.
 */
size_t berth__host_collect(host_cache *c, bool thorough);
/* Collects from the queue that the thread added to last, and takes a block of the class; NULL if there is
 * none. The caller gets it still inside. */
host_block *berth__host_reclaim(host_cache *c, uint32_t bin, host_inside *in);
/* Forgets streams that their users have destroyed and no block needs. No lock held. */
void berth__host_forget_streams(host_cache *c);
/* Whether any use waits. */
bool berth__host_anything_waits(host_cache *c);

/* ---- Figures (host_figures.c) ------------------------------------------------------------------------ */

berth_status berth__host_stats(void *self, berth_stats *out);
berth_status berth__host_clear_stats(void *self);
berth_status berth__host_snapshot(void *self, berth_block_fn visit, void *context);

/* ---- Life (host_life.c) ------------------------------------------------------------------------------ */

/* The `destroy` of the table. */
void berth__host_destroy(void *self);
/* Caches that were closed while streams used their memory: gives back what has completed since. */
void berth__host_tend_orphans(void);
extern const berth_allocator_ops berth__host_ops;
/* Keeps a cache from being finished while a free that has given its block up still works on it. */
void berth__host_pin(host_cache *c);
void berth__host_unpin(host_cache *c);
/* A free that found the cache closed: the block is LEAVING and its uses are marked. */
void berth__host_late_free(host_cache *c, host_block *b);

#endif
