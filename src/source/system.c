/* The system source: aligned host memory from the C heap, with figures and two warnings.
 *
 *      raw (from malloc)                 block (what the caller gets, aligned)
 *      |<------------ offset ----------->|<-------- size -------->|
 *      |            | size offset check  |
 *                   |<--- 16 bytes ----->|
 *
 * Why not aligned_alloc: it takes three to five times as long as malloc in glibc, it cannot hand out zeroed
 * pages as calloc can, and at the free one would have to ask malloc_usable_size, a second search in most
 * heaps. A block costs `alignment` bytes more instead. */
#include "source/system.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/header.h"
#include "base/words.h"
#include "core/allocator.h"
#include "core/environment.h"
#include "count/meter.h"
#include "count/warnings.h"

struct system {
    berth_allocator base;
    berth__meter meter;
    _Atomic bool reports_stats;
    berth__warnings warnings;
};

/* ---- Counting ------------------------------------------------------------------------------------ */

static inline bool is_large(struct system *s, size_t size_bytes)
{
    return berth__warnings_is_large(&s->warnings, size_bytes);
}

/* Counts what is allocated beyond the thread's credit. The slow paths are out of line, and the fast ones then
 * have next to nothing to save. */
BERTH__COLD static berth_status count_slow(struct system *s, size_t size_bytes)
{
    if (is_large(s, size_bytes))
        berth__warn_of_large(&s->warnings, size_bytes);
    /* Only when the meter has claimed more than ever, so that it costs nothing in the steady state. */
    if (berth__meter_take(&s->meter, size_bytes))
        berth__warn_of_total(&s->warnings, berth__meter_in_use(&s->meter));
    return BERTH_OK;
}

/* ---- Blocks -------------------------------------------------------------------------------------- */

/* What a block needs beyond its size, which is room for the header too: malloc aligns to 16 bytes itself. */
static inline size_t surplus(size_t size_bytes, size_t alignment)
{
    return berth__header_alignment(size_bytes, alignment);
}

/* Where the block starts in a raw one that has `room` beyond its size. */
static inline char *system_place(char *raw, size_t room)
{
    uintptr_t start = ((uintptr_t)raw + sizeof(berth__header) + room - 1) & ~(uintptr_t)(room - 1);
    return raw + (start - (uintptr_t)raw);
}

BERTH__COLD static berth_status no_memory(struct system *s, size_t size_bytes, size_t alignment)
{
    berth__slots_count_failure(&s->meter.slots);
    return berth__fail(BERTH_OUT_OF_HOST_MEMORY,
                       "the system has no %s at alignment %zu; ask for less or free something first",
                       BERTH__SIZE(size_bytes), alignment);
}

/* The ways of blocks that start at a page are out of line: the short ones then have nothing to save. */
BERTH__COLD static berth_status allocate_far(struct system *s, char *raw, char *block, size_t size_bytes,
                                             void **out)
{
    if (!berth__header_put(block, size_bytes, (uint32_t)(block - raw))) {
        free(raw);
        berth__slots_count_failure(&s->meter.slots);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to keep track of a block of %s",
                           BERTH__SIZE(size_bytes));
    }
    *out = block;
    return count_slow(s, size_bytes);
}

BERTH__COLD static berth_status bad_pointer(berth_status status, const void *p)
{
    return berth__fail(status, "%p is not a live block of the system allocator: freed twice, or not its own",
                       p);
}

BERTH_HOT static berth_status system_allocate(void *self, size_t size_bytes, size_t alignment,
                                              const berth_request *request, void **out)
{
    struct system *s = self;
    size_t room = surplus(size_bytes, alignment), raw_bytes = size_bytes + room;
    /* calloc knows which pages come fresh from the kernel and need no clearing. */
    char *raw = BERTH_UNLIKELY(request->flags & BERTH_ZEROED) ? calloc(1, raw_bytes) : malloc(raw_bytes);
    if (BERTH_UNLIKELY(!raw))
        return no_memory(s, size_bytes, alignment);
    char *block = system_place(raw, room);
    if (BERTH_UNLIKELY(berth__starts_page(block)))
        return allocate_far(s, raw, block, size_bytes, out);
    (void)berth__header_put(block, size_bytes, (uint32_t)(block - raw));
    *out = block;
    if (BERTH_UNLIKELY(is_large(s, size_bytes) || !berth__meter_take_fast(&s->meter, size_bytes)))
        return count_slow(s, size_bytes);
    return BERTH_OK;
}

BERTH__COLD static void uncount_slow(struct system *s, uint64_t size_bytes)
{
    (void)berth__meter_give(&s->meter, size_bytes);
}

BERTH__COLD static berth_status deallocate_far(struct system *s, void *p)
{
    berth__header header;
    if (!berth__header_take(p, &header))
        return bad_pointer(BERTH_BAD_FREE, p);
    uncount_slow(s, berth__size_of_word(header.size_and_tag));
    free((char *)p - header.offset);
    return BERTH_OK;
}

BERTH_HOT static berth_status system_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)size_bytes, (void)stream;
    struct system *s = self;
    if (BERTH_UNLIKELY(berth__starts_page(p)))
        return deallocate_far(s, p);
    if (BERTH_UNLIKELY(!berth__near_is_live(p)))
        return bad_pointer(BERTH_BAD_FREE, p);
    berth__header *header = berth__header_of(p);
    uint64_t size = berth__size_of_word(header->size_and_tag);
    if (BERTH_UNLIKELY(!berth__meter_give_fast(&s->meter, size)))
        uncount_slow(s, size);
    header->check = ~header->check;
    free((char *)p - header->offset);
    return BERTH_OK;
}

static berth_status system_reallocate(void *self, void *p, size_t old_bytes, size_t new_bytes,
                                      size_t alignment, const berth_request *request, void **out)
{
    (void)old_bytes;
    struct system *s = self;
    void *reserved = berth__far_reserve(); /* once the bytes have moved nothing may fail */
    if (!reserved)
        return no_memory(s, new_bytes, alignment);
    berth__header old;
    if (!berth__header_take(p, &old)) {
        berth__far_unreserve(reserved);
        return bad_pointer(BERTH_BAD_FREE, p);
    }
    const size_t old_size = (size_t)berth__size_of_word(old.size_and_tag);
    size_t room = surplus(new_bytes, alignment);
    /* The old block may start further in than the new one has room for. */
    char *raw = realloc((char *)p - old.offset, new_bytes + (room < old.offset ? old.offset : room));
    if (!raw) {
        berth__header_put_reserved(p, old.size_and_tag, old.offset, reserved);
        return no_memory(s, new_bytes, alignment);
    }
    /* The bytes moved with the raw block; the place may lie differently in it. */
    char *block = system_place(raw, room);
    size_t kept = old_size < new_bytes ? old_size : new_bytes;
    if (block != raw + old.offset)
        memmove(block, raw + old.offset, kept);
    berth__header_put_reserved(block, new_bytes, (uint32_t)(block - raw), reserved);
    *out = block;
    if ((request->flags & BERTH_ZEROED) && new_bytes > kept)
        memset(block + kept, 0, new_bytes - kept);
    (void)berth__meter_give(&s->meter, old_size);
    return count_slow(s, new_bytes);
}

/* ---- Questions ----------------------------------------------------------------------------------- */

static const char *system_name(void *self)
{
    (void)self;
    return "system";
}

static berth_device system_device(void *self)
{
    (void)self;
    return (berth_device){BERTH_DEVICE_CPU, 0};
}

static berth_memory_kind system_memory_kind(void *self)
{
    (void)self;
    return BERTH_MEMORY_DEVICE;
}

static bool system_no(void *self)
{
    (void)self;
    return false;
}

static berth_status system_owns(void *self, const void *p)
{
    (void)self, (void)p;
    return berth__fail(BERTH_UNSUPPORTED, "the system allocator cannot tell whether a pointer is its own");
}

static berth_status system_no_size(void *self, const void *p, size_t *out)
{
    (void)self, (void)p, (void)out;
    return berth__fail(BERTH_UNSUPPORTED, "the system allocator does not track sizes; ask for the slow one, "
                                          "or put a tracker around it");
}

/* What the heap gave, from the block's start to the end of the raw one. */
static berth_status system_size_slow(void *self, const void *p, size_t *out)
{
    (void)self;
    berth__header header;
    if (!berth__header_read(p, &header))
        return bad_pointer(BERTH_NOT_FOUND, p);
    size_t usable = malloc_usable_size((char *)(uintptr_t)p - header.offset) - header.offset;
    size_t asked = (size_t)berth__size_of_word(header.size_and_tag);
    *out = usable > asked ? usable : asked;
    return BERTH_OK;
}

static berth_status system_id(void *self, const void *p, uint64_t *out)
{
    (void)self, (void)p;
    *out = 0;
    return BERTH_OK;
}

static berth_status system_record_use(void *self, const void *p, berth_stream *stream)
{
    (void)self, (void)p, (void)stream;
    return berth__fail(BERTH_UNSUPPORTED, "the system allocator does not follow streams");
}

static berth_status stats_are_off(void)
{
    return berth__fail(BERTH_UNSUPPORTED,
                       "this allocator's figures are switched off; see berth_cpu_allocator_set_stats");
}

static berth_status system_stats(void *self, berth_stats *out)
{
    struct system *s = self;
    if (!atomic_load(&s->reports_stats))
        return stats_are_off();
    berth__meter_read(&s->meter, out);
    return BERTH_OK;
}

/* The meter runs on while figures are switched off. */
static uint64_t system_in_use(void *self)
{
    struct system *s = self;
    return berth__meter_in_use(&s->meter);
}

static berth_status system_clear_stats(void *self)
{
    struct system *s = self;
    if (!atomic_load(&s->reports_stats))
        return stats_are_off();
    berth__meter_clear(&s->meter);
    return BERTH_OK;
}

static berth_status system_trim(void *self, size_t keep_bytes, size_t *released)
{
    (void)self, (void)keep_bytes;
    *released = 0;
    return BERTH_OK;
}

static berth_status system_snapshot(void *self, berth_block_fn visit, void *context)
{
    (void)self, (void)visit, (void)context;
    return berth__fail(BERTH_UNSUPPORTED, "the system allocator keeps no list of its blocks");
}

static size_t system_granularity(void *self)
{
    (void)self;
    return 16; /* of every C heap on the systems that there are */
}

static void system_destroy(void *self)
{
    struct system *s = self;
    if (&s->base == berth__system_default())
        return;
    berth__meter_finish(&s->meter);
    berth__heap_free(s);
}

/* Complete, since the built-in source is never filled in by berth__allocator_init. */
#define SYSTEM_OPS                                                                                        \
    {                                                                                                     \
        .struct_size = sizeof(berth_allocator_ops), .allocate = system_allocate,                          \
        .deallocate = system_deallocate, .destroy = system_destroy, .reallocate = system_reallocate,      \
        .record_use = system_record_use, .name = system_name, .device = system_device,                    \
        .memory_kind = system_memory_kind, .owns = system_owns, .tracks_sizes = system_no,                \
        .allocates_empty = system_no, .requested_size = system_no_size, .allocated_size = system_no_size, \
        .allocated_size_slow = system_size_slow, .allocation_id = system_id, .stats = system_stats,       \
        .clear_stats = system_clear_stats, .trim = system_trim, .snapshot = system_snapshot,              \
        .granularity = system_granularity,                                                                \
    }

static const berth_allocator_ops system_ops = SYSTEM_OPS;

static struct system built_in = {
    .base = {.allocate = system_allocate,
             .allocate_self = &built_in,
             .deallocate = system_deallocate,
             .deallocate_self = &built_in,
             .self = &built_in,
             .straight_bytes = BERTH__BLOCK_MOST,
             .ops = SYSTEM_OPS,
             .references = 1,
             .embedded = true,
             .header = BERTH__HEADER_PLAIN,
             .knows_blocks = true,
             .in_use = system_in_use,
             .in_use_self = &built_in},
    .reports_stats = true,
    .warnings = {.large_fraction = 0.1, .total_fraction = 0.5},
};

berth_allocator *berth__system_default(void)
{
    return &built_in.base;
}

berth_status berth__system_create(const berth_cpu_options *options, berth_allocator **out)
{
    struct system *s = berth__heap_zaligned(sizeof *s, 64);
    if (!s)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a system allocator's handle");
    berth__allocator_init(&s->base, &system_ops, s);
    s->base.follows_streams = false; /* its operation says so */
    s->base.header = BERTH__HEADER_PLAIN;
    s->base.knows_blocks = true;
    s->base.in_use = system_in_use;
    s->base.in_use_self = s;
    berth__meter_init(&s->meter, options->exact_peak);
    atomic_init(&s->reports_stats, options->stats != BERTH_STATS_OFF);
    s->warnings.large_fraction = options->large_warning_fraction;
    s->warnings.total_fraction = options->total_warning_fraction;
    *out = &s->base;
    return BERTH_OK;
}

berth_status berth__system_set_stats(berth_allocator *a, berth_stats_mode mode)
{
    if (!berth__allocator_is(a, system_destroy))
        return berth__fail(BERTH_UNSUPPORTED, "only an allocator of berth_cpu_allocator_create has figures "
                                              "that can be switched");
    /* The meter runs on while they are off: a free must find what its allocation added. */
    atomic_store(&((struct system *)a->self)->reports_stats, mode != BERTH_STATS_OFF);
    return BERTH_OK;
}
