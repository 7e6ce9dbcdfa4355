/* The inside of the host cache: what its files share.
 *
 *                      +---------------------- allocate ----------------------+
 *                      v                                                      |
 *     device --> [ live ] -- free, no stream used it ----------------> [ idle: thread cache, bin ] --> device
 *                      \                                                ^
 *                       -- free, streams used it --> [ parked ] --> [ waiting: queues ]
 *
 * A block is in one place: with its user, in the queues of the streams that used it, parked or idle in a
 * thread's cache, or in the bin of its class. Every move between places happens inside the thread's slot
 * (`enter` and `leave`), so that stopping the slots stands for stopping the world: trim, fork and destruction
 * then find every block in its place. No driver is called inside.
 *
 *     segment: one piece of device memory, whole pages, cut into blocks of one class: 1, or a run of 2^n
 *     block:   the bookkeeping of one piece of memory, never in the memory itself
 *
 * The page map leads to a segment. Bookkeeping is not freed before the cache is, and a segment keeps its class
 * and its blocks for ever; only where its memory lies changes. So a reader without a lock, whose pointer or
 * handle has grown stale, still looks at a block of the class, and that block's state and address say that it
 * is stale. [H9] */
#ifndef BERTH_HOST_HOST_H
#define BERTH_HOST_HOST_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/annotate.h"
#include "berth/host_cache.h"
#include "core/allocator.h"
#include "core/upstream.h"
#include "count/quota.h"
#include "host/page_map.h"
#include "host/size_class.h"
#include "wait/stream_queue.h"

typedef enum host_state {
    HOST_NONE = 0,     /* bookkeeping without memory */
    HOST_IDLE,         /* in a thread cache or a bin */
    HOST_LIVE,         /* with its user */
    HOST_LIVE_BUSY,    /* the same, while a use is being recorded: a lock of a few instructions */
    HOST_LEAVING,      /* freed, on its way to the next place */
    HOST_WAITING,      /* in the queues of streams */
    HOST_WAITING_BUSY, /* the same, while somebody reads its uses */
    HOST_PARKED, /* freed, kept by the thread that freed it until the one stream that used it has passed */
} host_state;

typedef struct host_block host_block;
typedef struct host_segment host_segment;

struct host_block {
    /* one cache line: all that a pair of calls without streams touches */
    _Atomic uint32_t state;      /* host_state */
    _Atomic uint32_t generation; /* how often it was handed out; the upper half of its handle */
    host_block *next;            /* in its thread cache or bin */
    _Atomic(char *) address;     /* NULL without memory: a guess that has grown old then fits nothing */
    size_t size;                 /* of its class; like the class and the segment, never changed [H9] */
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
    /* fixed when it is made, and read without a lock [H9] */
    size_t bytes, stride; /* bytes: whole pages; what its blocks leave over at the end is nobody's */
    uint64_t inverse;     /* ceil(2^48 / stride): a division that is exact here; 0 where there is one block */
    uint32_t blocks;      /* a power of two */
    uint32_t bin;
    host_block *first;
    /* the rest */
    _Atomic(char *) base; /* written before the page map leads here */
    _Atomic uint32_t
        idle;        /* blocks in thread caches and bins; kept while there is a soft limit, else trim's */
    uint64_t number; /* guard: lock */
    host_segment *next, *prev; /* all with memory, or the spare ones of the class; guard: lock */
};

static inline char *berth__host_base(const host_segment *s)
{
    return atomic_load_explicit(&s->base, memory_order_relaxed);
}

static inline char *berth__host_address(const host_block *b)
{
    return atomic_load_explicit(&b->address, memory_order_relaxed);
}

/* The idle blocks of one class. Newest first. */
typedef struct host_bin {
    berth__spin lock;
    _Atomic uint32_t count;
    host_block *newest, *oldest; /* guard: lock */
    host_segment *spares;        /* segments of the class without memory; guard: the cache's lock */
    uint64_t fill_a_cache_line[4];
} host_bin;

/* Sizes find their class in tables: of granules up to 64 KiB; of 128 granules up to 8 MiB, and of 128 times that up to
 * 1 GiB, if the classes there are no finer. Working it out takes 2 ns, since it begins where a free's locked
 * instruction ends. */
enum { HOST_TABLE = 1024, HOST_TABLES = 3, HOST_TABLE_STEP_LOG2 = 7 };

enum { HOST_GUESSES = 64, HOST_MEMOS = 8, HOST_BLOCK_PIECES = 20, HOST_RUN_SIZES = 16 };

/* Segments on their way back to the device: off the books, but their bytes are reserved until the driver has
 * them [H10]. Lies on the stack of the thread that calls the driver. */
typedef struct host_release {
    host_segment *segments;
    uint64_t bytes;
    uint64_t keep_bytes;                /* of these, what its thread claims for a segment of its own */
    uint64_t claim_bytes;               /* and all that it claims */
    uint64_t refused_bytes;             /* what the device did not take; then nothing is claimed */
    uint64_t number;                    /* guard, as for what follows: lock */
    struct host_release *newer, *older; /* all under way */
} host_release;

/* A thread's cache is bounded in bytes: of each class up to HOST_SMALL_BYTES it keeps at most that much, and of
 * all larger blocks together HOST_LARGE_BYTES, or a single one. */
#define HOST_SMALL_BYTES ((size_t)1 << 20)
#define HOST_LARGE_BYTES ((size_t)64 << 20)

/* A thread's own idle blocks, beside its slot; its memos of streams it has met are its alone. */
typedef struct host_thread_cache {
    uint64_t large_bytes;        /* in blocks above HOST_SMALL_BYTES, idle or parked */
    berth__stream_queue *recent; /* the queue it added to last */
    host_block *asked; /* parked; its event is being asked, outside the slot. Others leave it alone. */
    uint32_t parked_count;
    uint64_t parked_marks; /* events recorded for blocks that were parked and not put into a queue */
    /* Blocks that the thread took lately, by address: a guess, in which the block is found by one load that
     * depends on the pointer instead of five. */
    host_block *guesses[HOST_GUESSES];
    struct {
        uint64_t stream_id;
        berth__stream_queue *queue;
    } memos[HOST_MEMOS];
    struct {
        _Alignas(32) host_block *newest; /* all of a class in one cache line */
        uint32_t count, most;
        uint64_t allocations; /* counted here because the size then need not be */
        host_block *parked;   /* at most one: waits for one stream, and is asked before any queue is [H11] */
    } bins[];
} host_thread_cache;

typedef struct host_cache {
    berth_allocator base;
    berth__size_classes classes;
    berth__page_map *pages;
    berth__quota quota; /* what is in use, with its true peak */
    uint64_t number;    /* of all caches there ever were */
    berth__upstream upstream;
    berth_device device; /* the upstream's */
    uint64_t (*clock_ns)(void *context);
    void *clock_context;
    const char *name;
    size_t page_bytes; /* the system's */
    uint32_t run_log2; /* the largest run that a segment may need, as a power of two */
    host_bin *bins;
    bool large_tables;                             /* the tables after the first are in use */
    uint16_t class_table[HOST_TABLES][HOST_TABLE]; /* by granules, or units of more, less 1 */
    berth__streams streams;
    _Atomic bool has_parked; /* some thread cache may have parked a block; cleared while stopped */

    _Atomic uint64_t reserved, max_reserved; /* guard: lock to write */
    _Atomic uint64_t hard_limit, soft_limit; /* 0: none */
    /* Bytes; kept only while there is a soft limit: idle ones, and of these the ones in segments whose blocks
     * are all idle, which could go back. */
    _Atomic uint64_t idle, releasable;
    _Atomic uint64_t device_allocations, device_releases;

    pthread_mutex_t lock;     /* segments and blocks, stopping, closing */
    host_segment *segments;   /* guard: lock */
    host_segment *unreleased; /* the device did not take them: reserved, and given back again; guard: lock */
    uint64_t next_segment_number;                    /* guard: lock */
    _Atomic(host_block *) pieces[HOST_BLOCK_PIECES]; /* piece k holds 1 << (run_log2 + k) blocks */
    _Atomic uint32_t block_count;                    /* guard: lock to write */
    host_block *spare_runs[HOST_RUN_SIZES];          /* runs of 1 << i blocks; guard: lock */
    bool outstanding_known;                          /* guard: lock */
    uint64_t outstanding;                            /* live blocks once closed; guard: lock */
    _Atomic uint32_t pins;                           /* frees that still tidy up */
    host_release *newest_release, *oldest_release;   /* under way; guard: lock */
    uint64_t releases;                               /* so far; guard: lock */
    uint64_t live_in_child;                          /* scratch of the fork handler */
    pthread_cond_t release_ended;

    pthread_t background;
    bool background_runs; /* guard: lock */
    bool background_stop; /* guard: lock */
    uint32_t background_us;
    pthread_cond_t background_wake;

    struct host_cache *next, *prev; /* all caches; guard: the list's lock */
    struct host_cache *next_orphan; /* guard: the same */
} host_cache;

enum { HOST_NO_CLASS = UINT32_MAX };

/* For assertions: the calling thread has the lock, or the world is stopped (the handlers of a fork have all locks at
 * once, and hide that from the check of ranks). */
static inline bool berth__host_is_held(const host_cache *c)
{
    return berth__rank_is_held(BERTH__RANK_CACHE) || berth__slots_are_stopped(&c->quota.slots);
}

/* The class of a size from 1 on at the default alignment; HOST_NO_CLASS if it is too large for any. */
static inline __attribute__((always_inline)) size_t berth__host_class(const host_cache *c, size_t size_bytes)
{
    BERTH_DCHECK(size_bytes != 0, "[I2] an empty block is not asked for here");
    size_t granule = (size_bytes - 1) >> berth__class_granule_log2;
    if (granule < HOST_TABLE)
        return c->class_table[0][granule];
    granule >>= HOST_TABLE_STEP_LOG2;
    if (granule < HOST_TABLE && c->large_tables)
        return c->class_table[1][granule];
    granule >>= HOST_TABLE_STEP_LOG2;
    if (granule < HOST_TABLE && c->large_tables)
        return c->class_table[2][granule];
    return size_bytes <= BERTH__CLASS_BYTES_MAX ? berth__class_of(&c->classes, size_bytes) : HOST_NO_CLASS;
}

/* What a thread asks for on the slow path. */
typedef struct host_wish {
    size_t size_bytes, alignment;
    const berth_request *request;
    uint32_t bin;
    bool counted; /* the figures have the allocation */
} host_wish;

/* ---- Inside (host_move.c) ------------------------------------------------------------------------- */

typedef struct host_inside {
    berth__slot *slot;         /* NULL: the cache's lock is held instead */
    host_thread_cache *tcache; /* NULL: there is none */
} host_inside;

host_inside berth__host_enter_slow(host_cache *c);

/* From here to leave, blocks may be moved. */
static inline __attribute__((always_inline)) host_inside berth__host_enter(host_cache *c)
{
    if (BERTH_LIKELY(berth__thread_memos.host_cache.key == c->number)) {
        host_inside in = {berth__thread_memos.host_cache.slot, berth__thread_memos.host_cache.value};
        if (BERTH_LIKELY(berth__slot_enter(&c->quota.slots, in.slot)))
            return in;
    }
    return berth__host_enter_slow(c);
}

static inline bool berth__host_is(host_cache *c, uint32_t special)
{
    return berth__slots_has(&c->quota.slots, special);
}

static inline void berth__host_leave(host_cache *c, host_inside in)
{
    if (BERTH_LIKELY(in.slot != NULL))
        berth__slot_leave(in.slot);
    else
        berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
}

/* Takes an idle block of a class out of the bin (and more for the thread cache); NULL if there is none. Inside. */
host_block *berth__host_take_from_bin(host_cache *c, host_inside in, uint32_t bin);
/* The same, for an alignment that not every block of the class has. */
host_block *berth__host_take_aligned(host_cache *c, uint32_t bin, size_t alignment);
/* Moves the older half of a full thread cache's class into the bin. Inside. */
void berth__host_spill(host_cache *c, host_thread_cache *tcache, uint32_t bin);
/* Moves all large blocks but those of one class into their bins. Inside. */
void berth__host_spill_large(host_cache *c, host_thread_cache *tcache, uint32_t but_of_bin);
/* Puts it into the bin. Inside, or with the lock held. */
void berth__host_put_in_bin(host_cache *c, host_block *b);
/* Takes blocks of one class out of the caches of all threads into its bin, and parked ones into their queues:
 * whether there were any of those. No lock held. */
bool berth__host_gather(host_cache *c, uint32_t bin);
/* While stopped, with the thread caches flushed: takes idle segments, large classes first and the oldest of each,
 * until only `keep_bytes` are idle or `enough_bytes` are taken; fills segments and bytes in. */
void berth__host_take_idle_segments(host_cache *c, uint64_t keep_bytes, uint64_t enough_bytes,
                                    host_release *out);
/* Stops the world, with the lock held on return; and lets it go on. */
void berth__host_stop(host_cache *c);
void berth__host_resume(host_cache *c);
/* While stopped: empties every thread cache into the bins and queues. */
void berth__host_flush_thread_caches(host_cache *c);
/* Puts the parked blocks of one thread cache into their queues. By its thread inside, or while stopped. */
void berth__host_queue_parked(host_cache *c, host_thread_cache *tcache);
/* Puts all parked blocks into their queues; false: a thread is asking the event of one just now. No lock held. */
bool berth__host_unpark_all(host_cache *c);
/* In the child of a fork, while stopped: nobody asks any more. */
void berth__host_forget_asked(host_cache *c);

/* Idle bytes are counted only while a soft limit needs them. Inside, or with the lock held. */
void berth__host_count_idle_always(host_cache *c, const host_block *b, bool idle);
static inline void berth__host_count_idle(host_cache *c, const host_block *b, bool idle)
{
    if (berth__host_is(c, BERTH__MARK_SOFT_LIMIT))
        berth__host_count_idle_always(c, b, idle);
}

/* While stopped, with the thread caches flushed: counts all of it anew; answers the bytes. */
uint64_t berth__host_count_all_idle(host_cache *c);

/* Puts a block into a thread cache, and takes the newest of a class out; the state and the counting are the caller's.
 * Inside. */
static inline void berth__host_thread_cache_push(host_thread_cache *tcache, host_block *b)
{
    BERTH_DCHECK(b->uses == 0, "[H2] no stream uses what becomes idle");
    BERTH_DCHECK((tcache->bins[b->bin].newest == NULL) == (tcache->bins[b->bin].count == 0),
                 "[H1] as many blocks are kept as are counted");
    b->next = tcache->bins[b->bin].newest;
    tcache->bins[b->bin].newest = b;
    tcache->bins[b->bin].count++;
    if (b->size > HOST_SMALL_BYTES)
        tcache->large_bytes += b->size;
}
static inline void berth__host_thread_cache_pop(host_thread_cache *tcache, host_block *b)
{
    BERTH_DCHECK(tcache->bins[b->bin].newest == b && tcache->bins[b->bin].count > 0,
                 "[H1] what is taken is the newest of its class");
    BERTH_DCHECK(b->size <= HOST_SMALL_BYTES || tcache->large_bytes >= b->size,
                 "[H1] large blocks are counted in bytes, too");
    tcache->bins[b->bin].newest = b->next;
    tcache->bins[b->bin].count--;
    if (b->size > HOST_SMALL_BYTES)
        tcache->large_bytes -= b->size;
}
/* Parks a block that is LEAVING and marked, if its class has no parked one yet; and takes it out again. The counting
 * and the next state are the caller's. Inside. */
static inline void berth__host_park(host_cache *c, host_thread_cache *tcache, host_block *b)
{
    BERTH_DCHECK(!tcache->bins[b->bin].parked && b->uses == 1,
                 "[H11] one block a class, which waits for one stream");
    BERTH_DCHECK(atomic_load(&b->state) == HOST_LEAVING, "[H1] what is parked is on its way");
    tcache->bins[b->bin].parked = b;
    tcache->parked_marks++;
    tcache->parked_count++;
    if (b->size > HOST_SMALL_BYTES)
        tcache->large_bytes += b->size;
    /* First, so that who sees the state finds the block. */
    if (BERTH_UNLIKELY(!atomic_load_explicit(&c->has_parked, memory_order_relaxed)))
        atomic_store_explicit(&c->has_parked, true, memory_order_relaxed);
    atomic_store_explicit(&b->state, HOST_PARKED, memory_order_release);
}
static inline void berth__host_unpark(host_thread_cache *tcache, host_block *b)
{
    BERTH_DCHECK(tcache->bins[b->bin].parked == b && tcache->parked_count > 0, "[H11] it was parked");
    BERTH_DCHECK(b->size <= HOST_SMALL_BYTES || tcache->large_bytes >= b->size,
                 "[H1] large blocks are counted in bytes, too");
    tcache->bins[b->bin].parked = NULL;
    tcache->parked_count--;
    if (b->size > HOST_SMALL_BYTES)
        tcache->large_bytes -= b->size;
}
/* Whether a thread cache with a block of `size` bytes more would keep too much in large ones. */
static inline bool berth__host_thread_cache_is_heavy(const host_thread_cache *tcache, size_t size)
{
    return size > HOST_SMALL_BYTES && tcache->large_bytes != 0 &&
           tcache->large_bytes + size > HOST_LARGE_BYTES;
}

/* With one of these marks freed blocks go to the queues at once: idle bytes are limited, the time of each is asked
 * for, or the cache is closing. */
enum { HOST_PARKS_NOTHING = BERTH__MARK_SOFT_LIMIT | BERTH__MARK_CLOCK | BERTH__MARK_CLOSING };

/* An idle block of a class out of the thread cache, or the bin; NULL if there is none. Inside. */
static inline host_block *berth__host_take_idle(host_cache *c, host_inside in, uint32_t bin)
{
    host_block *b = BERTH_LIKELY(in.tcache != NULL) ? in.tcache->bins[bin].newest : NULL;
    if (BERTH_UNLIKELY(!b))
        return berth__host_take_from_bin(c, in, bin);
    BERTH_DCHECK(b->bin == bin && b->uses == 0, "[H2] what is idle is used by no stream");
    berth__host_thread_cache_pop(in.tcache, b);
    berth__host_count_idle(c, b, false);
    return b;
}

/* Puts a block that nobody uses into the thread cache, or the bin. Inside. */
static inline void berth__host_put_idle(host_cache *c, host_inside in, host_block *b)
{
    if (BERTH_UNLIKELY(!in.tcache)) {
        berth__host_put_in_bin(c, b);
        return;
    }
    berth__annotate_noaccess(berth__host_address(b), b->size);
    atomic_store_explicit(&b->state, HOST_IDLE, memory_order_release);
    bool heavy = berth__host_thread_cache_is_heavy(in.tcache, b->size);
    berth__host_thread_cache_push(in.tcache, b);
    berth__host_count_idle(c, b, true);
    if (BERTH_UNLIKELY(in.tcache->bins[b->bin].count > in.tcache->bins[b->bin].most))
        berth__host_spill(c, in.tcache, b->bin);
    if (BERTH_UNLIKELY(heavy))
        berth__host_spill_large(c, in.tcache, b->bin);
}

/* ---- Segments and blocks (host_block.c) ------------------------------------------------------------ */

/* Memory for one more segment of a class from the device, and one of its blocks, LEAVING; the others go to
 * the bin. Or an idle block, LEAVING too, that turned up while room was made. No lock held. As berth_allocate. */
berth_status berth__host_grow(host_cache *c, const host_wish *w, host_block **out);
/* How many blocks a segment of the class has where nothing is scarce, and the whole pages of one with fewer. */
uint32_t berth__host_run_blocks(const host_cache *c, uint32_t bin, size_t alignment);
size_t berth__host_run_bytes(const host_cache *c, uint32_t bin, uint32_t blocks);
/* With the lock held: takes a segment whose blocks are all out of their lists off the books. */
void berth__host_unlist(host_cache *c, host_segment *s);
/* While nobody has its blocks: they are without memory. */
void berth__host_forget_memory(host_segment *s);
/* With the lock held: an unlisted segment's bookkeeping is spare. */
void berth__host_give_segment(host_cache *c, host_segment *s);
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
    size_t offset =
        berth__page_map_address(c->pages, p) - berth__page_map_address(c->pages, berth__host_base(s));
    if (BERTH_UNLIKELY(offset >= s->stride * s->blocks))
        return NULL;
    BERTH_DCHECK(s->first->segment == s, "[H9] a segment keeps its blocks");
    BERTH_DCHECK((offset * s->inverse >> 48) < s->blocks, "[H9] a reader never leaves a segment's blocks");
    return s->first + (offset * s->inverse >> 48);
}

/* How far `p` lies inside the block; tags of pointers do not count. Huge for a block without memory. */
static inline size_t berth__host_offset(const host_cache *c, const host_block *b, const void *p)
{
    return berth__page_map_address(c->pages, p) - berth__page_map_address(c->pages, berth__host_address(b));
}

static inline host_block **berth__host_guess(host_thread_cache *tcache, const void *p)
{
    return &tcache->guesses[((uintptr_t)p >> 6) * 0x9E3779B97F4A7C15u >> 58];
}

/* By the thread's guess where that is a live block, else by the page map. */
static inline host_block *berth__host_find_again(host_cache *c, const void *p)
{
    const berth__memo *memo = &berth__thread_memos.host_cache;
    if (BERTH_LIKELY(memo->key == c->number)) {
        host_block *b = *berth__host_guess(memo->value, p);
        if (BERTH_LIKELY(berth__host_address(b) == p &&
                         atomic_load_explicit(&b->state, memory_order_relaxed) == HOST_LIVE))
            return b;
    }
    return berth__host_find(c, p);
}

/* A handle: the generation above, the block below as its piece (5 bits) and its place there, plus 1. */
static inline uint32_t berth__host_piece_of(const host_cache *c, uint32_t index)
{
    return 31u - (uint32_t)__builtin_clz((index >> c->run_log2) + 1);
}

static inline berth_host_handle berth__host_handle(const host_block *b)
{
    BERTH_DCHECK(b->name != 0, "[H9] a block keeps its name for ever");
    return (uint64_t)atomic_load_explicit(&b->generation, memory_order_relaxed) << 32 | b->name;
}

/* The block that a handle names; NULL if the handle is none, or the block was freed since. */
static inline host_block *berth__host_named(host_cache *c, berth_host_handle handle)
{
    uint32_t name = (uint32_t)handle, piece = name >> 27, place = (name & 0x7ffffffu) - 1;
    if (piece >= HOST_BLOCK_PIECES || place >> (piece + c->run_log2) != 0)
        return NULL;
    host_block *blocks = atomic_load_explicit(&c->pieces[piece], memory_order_acquire);
    host_block *b = blocks ? &blocks[place] : NULL;
    return b && atomic_load_explicit(&b->generation, memory_order_relaxed) == (uint32_t)(handle >> 32) ? b
                                                                                                       : NULL;
}

/* The block that a handle names if it is the one at `p`, else the block that `p` lies in. */
static inline host_block *berth__host_resolve(host_cache *c, const void *p, berth_host_handle handle)
{
    host_block *b = berth__host_named(c, handle);
    return BERTH_LIKELY(b && berth__host_address(b) == p) ? b : berth__host_find(c, p);
}

/* The live block that `p` lies in, NULL if there is none. */
static inline host_block *berth__host_live_block(host_cache *c, const void *p)
{
    host_block *b = p ? berth__host_find(c, p) : NULL;
    uint32_t state = b ? atomic_load_explicit(&b->state, memory_order_acquire) : HOST_NONE;
    return state == HOST_LIVE || state == HOST_LIVE_BUSY ? b : NULL;
}

/* Counts an allocation of a thread that is not inside. */
static inline void berth__host_count_in_use(host_cache *c, uint64_t size_bytes)
{
    berth__slots_count(&c->quota.slots, size_bytes);
    (void)berth__quota_take(&c->quota, size_bytes);
}

static inline uint64_t berth__host_now(const host_cache *c)
{
    return BERTH_UNLIKELY(c->clock_ns != NULL) ? c->clock_ns(c->clock_context) : 0;
}

/* ---- Room (host_room.c) ----------------------------------------------------------------------------- */

/* Bytes for one more segment, claimed from the hard limit: `blocks` gets how many blocks it may have, fewer
 * than asked for where the limit leaves no room for all. What is idle goes back first, and what is on its way
 * back is waited for. Or `found`: an idle block of the class, LEAVING. Calls the driver. BERTH_OK,
 * BERTH_OVER_BUDGET with words. */
berth_status berth__host_claim(host_cache *c, const host_wish *w, uint32_t most_blocks, uint32_t *blocks,
                               host_block **found);
void berth__host_unclaim(host_cache *c, uint64_t bytes);
/* With nobody else left: gives every segment back. */
void berth__host_release_all(host_cache *c);
/* Gives idle memory above `keep_bytes` back to the device; answers how much. Calls the driver. */
size_t berth__host_release_idle(host_cache *c, uint64_t keep_bytes);
/* Waits until the device has all memory that was on its way back; false if none was. No lock held. */
bool berth__host_await_releases(host_cache *c);
/* Whether more is idle than the soft limit keeps, and some of it could go back; gives that back. */
bool berth__host_exceeds_soft_limit(host_cache *c);
void berth__host_keep_soft_limit(host_cache *c);

/* ---- Words (host_words.c) ---------------------------------------------------------------------------- */

/* Says why a request is refused, who asked, and who holds the most: over the hard limit; or the device has no
 * more, which it has said itself just before. Both answer the status. */
berth_status berth__host_over_budget(host_cache *c, const host_wish *w);
berth_status berth__host_device_refused(host_cache *c, const host_wish *w, berth_status status);

/* ---- Waiting (host_wait.c) --------------------------------------------------------------------------- */

/* Notes the use of a live block. BERTH_OK, BERTH_NOT_FOUND, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__host_note_use(host_cache *c, host_block *b, berth_stream *stream);
/* A block that is LEAVING and has uses: marks the end of every stream. Calls the driver. */
void berth__host_mark_uses(host_cache *c, host_block *b);
/* And puts it into their queues. Inside. */
void berth__host_add_uses(host_inside in, host_block *b);
/* Asks for the thread cache's parked block of a class, if there is one: the block once its stream has passed, without
 * uses and in no place; else NULL. Goes outside for the driver and comes back inside. */
host_block *berth__host_take_parked(host_cache *c, host_inside *in, uint32_t bin);
/* Collects from all queues; answers how many blocks became idle. `thorough` as for the queues. No lock held. */
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

/* ---- The use of blocks (host_use.c) ------------------------------------------------------------------- */

/* The `record_use` of the table. */
berth_status berth__host_record_use(void *self, const void *p, berth_stream *stream);

/* ---- Life (host_life.c) ------------------------------------------------------------------------------ */

/* The `destroy` of the table. */
void berth__host_destroy(void *self);
/* Caches that were closed while streams used their memory: gives back what has completed since. */
void berth__host_tend_orphans(void);
extern const berth_allocator_ops berth__host_ops;
/* The cache behind an allocator, NULL if it is another kind; and the words that `function` needs one. */
static inline host_cache *berth__host_of(berth_allocator *a)
{
    return berth__allocator_is(a, berth__host_destroy) ? a->self : NULL;
}
berth_status berth__host_is_not(const char *function);
/* Keeps a cache from being finished while a free that has given its block up still works on it. Pinned inside,
 * where the cache cannot close. */
static inline void berth__host_pin(host_cache *c)
{
    atomic_fetch_add_explicit(&c->pins, 1, memory_order_relaxed);
}
void berth__host_unpin(host_cache *c);
/* A free that found the cache closed: the block is LEAVING and its uses are marked. */
void berth__host_late_free(host_cache *c, host_block *b);

#endif
