/* The tracking allocator: what is live, how high it went, who forgot to free.
 *
 * Life: the handle's references belong to users. When the last is gone and blocks are still live, the tracker
 * stays: closing the meter tells how many there are, frees count that down from then on, and whoever takes it
 * to 0 destroys the tracker. Before that no allocation touches a common counter: each thread counts its own
 * blocks in the meter's slots, and a free leaves the meter as the last thing that it does here. */
#include "berth/tracking.h"

#include <inttypes.h>
#include <string.h>

#include "base/symbol.h"
#include "core/allocator.h"
#include "count/meter.h"
#include "count/scope.h"
#include "wrap/table.h"
#include "wrap/tracking.h"

#if defined(__GLIBC__)
#include <execinfo.h>
#endif

/* Ids a thread takes at once: with one thread they are 1, 2, 3 …, with several each has its own runs. */
enum { ids_at_once = 64 };

struct tracker {
    berth__wrapper base;
    bool measures;    /* the table is in use */
    bool inner_sizes; /* the inner allocator tells what it gave */
    bool tells_leaks; /* at the end; set before first use */
    uint32_t stack_depth;
    _Atomic bool hides_stats;   /* see berth__tracking_show_stats */
    _Atomic uint64_t remaining; /* what keeps it alive: its users as one, and blocks once closed */
    _Atomic uint64_t ids_taken;
    struct tracker *next, *previous; /* guard: list_lock */
    berth__meter meter;
    berth__table table;
};

/* ---- Forks --------------------------------------------------------------------------------------- */

/* A thread changes its own shard of the table without a lock. Before a fork all trackers' meters bear a mark
 * that keeps threads off that way: then they take locks, and these wait for the fork. */

static berth__spin list_lock;
static struct tracker *trackers; /* guard: list_lock */

static void mark_all(bool marked)
{
    for (struct tracker *t = trackers; t; t = t->next) {
        berth__slots_stop(&t->meter.slots);
        if (marked)
            berth__slots_mark(&t->meter.slots, BERTH__MARK_FORK);
        else
            berth__slots_unmark(&t->meter.slots, BERTH__MARK_FORK);
        berth__slots_resume(&t->meter.slots);
    }
}

static void before_fork(void)
{
    mark_all(true);
}

static void after_fork(void)
{
    mark_all(false);
}

static void list_tracker(struct tracker *t)
{
    static berth__fork_watch watch = {
        .rank = BERTH__RANK_WRAP, .prepare = before_fork, .parent = after_fork, .child = after_fork};
    berth__fork_watch_add(&watch);
    berth__spin_lock(&list_lock, BERTH__RANK_WRAP);
    t->next = trackers;
    t->previous = NULL;
    if (t->next)
        t->next->previous = t;
    trackers = t;
    berth__spin_unlock(&list_lock, BERTH__RANK_WRAP);
}

static void unlist_tracker(struct tracker *t)
{
    berth__spin_lock(&list_lock, BERTH__RANK_WRAP);
    if (t->next)
        t->next->previous = t->previous;
    *(t->previous ? &t->previous->next : &trackers) = t->next;
    berth__spin_unlock(&list_lock, BERTH__RANK_WRAP);
}

/* ---- Life ---------------------------------------------------------------------------------------- */

static void tracker_drop(struct tracker *t)
{
    if (atomic_fetch_sub_explicit(&t->remaining, 1, memory_order_acq_rel) != 1)
        return;
    unlist_tracker(t);
    berth__table_finish(&t->table);
    berth__meter_finish(&t->meter);
    berth__wrapper_finish(&t->base);
    berth__heap_free(t);
}

static void tell_leaks(struct tracker *t);

static void tracking_destroy(void *self)
{
    struct tracker *t = self;
    if (t->tells_leaks && berth__meter_in_use(&t->meter) > 0)
        tell_leaks(t);
    berth__meter_close(&t->meter, &t->remaining);
    tracker_drop(t);
}

static struct tracker *as_tracker(berth_allocator *a)
{
    if (berth__allocator_is(a, tracking_destroy))
        return a->self;
    berth__fail(BERTH_INVALID_ARGUMENT, "%s is not a tracking allocator",
                a ? berth_allocator_name(a) : "NULL");
    return NULL;
}

/* ---- Allocation ---------------------------------------------------------------------------------- */

/* The id that the calling thread gives next, in a word of its own; 0 there: a new run is due. */
static inline uint64_t next_id(struct tracker *t, uint64_t *word)
{
    if (BERTH_UNLIKELY(*word == 0))
        *word = atomic_fetch_add_explicit(&t->ids_taken, ids_at_once, memory_order_relaxed) + 1;
    return *word;
}

/* Only once the block is in the table, so that a failure uses none. [T2] */
static inline void use_id(uint64_t *word)
{
    *word = *word % ids_at_once == 0 ? 0 : *word + 1;
}

__attribute__((noinline)) static berth__entry_stack *capture(uint32_t depth)
{
#if defined(__GLIBC__)
    enum { own_frames = 2 };
    void *frames[BERTH__TABLE_STACK_MAX + own_frames];
    int found = backtrace(frames, (int)depth + own_frames) - own_frames;
    uint32_t kept = found > 0 ? (uint32_t)found : 0;
    berth__entry_stack *stack = berth__heap_alloc(sizeof *stack + kept * sizeof(void *));
    if (stack) {
        stack->depth = kept;
        memcpy(stack->frames, frames + own_frames, kept * sizeof(void *));
    }
    return stack;
#else
    /* Other libcs have no backtrace of their own, and the library needs nothing but libc. */
    (void)depth;
    return berth__heap_zalloc(1, sizeof(berth__entry_stack));
#endif
}

BERTH__COLD static berth_status no_memory(struct tracker *t, void *p, size_t size_bytes,
                                          const berth_request *request)
{
    (void)berth__deallocate(t->base.inner, p, size_bytes, request->stream);
    berth__slots_count_failure(&t->meter.slots);
    return berth__fail(BERTH_OUT_OF_HOST_MEMORY,
                       "no memory to keep track of a block of %zu bytes; the block was given back",
                       size_bytes);
}

/* The larger of what was asked and what the inner allocator says that it gave. */
static inline uint64_t counted_size(struct tracker *t, const void *p, size_t size_bytes)
{
    size_t given = 0;
    berth_allocator *inner = t->base.inner;
    if (inner->grain_bytes) /* asking a pool costs its lock */
        return berth__align_up(size_bytes, inner->grain_bytes);
    if (t->inner_sizes && inner->ops.allocated_size(inner->self, p, &given) == BERTH_OK && given > size_bytes)
        return given;
    return size_bytes;
}

/* The way with locks: another thread's shard, a shard that must grow, the first block, or a call stack. */
BERTH__COLD static berth_status track_slowly(struct tracker *t, berth__entry *entry, uint64_t *word,
                                             const berth_request *request)
{
    berth__entry old;
    void *p = (void *)(uintptr_t)entry->address;
    if (t->stack_depth && !(entry->stack = capture(t->stack_depth)))
        return no_memory(t, p, entry->requested_bytes, request);
    if (!berth__table_put(&t->table, entry, &old)) {
        berth__heap_free(entry->stack);
        return no_memory(t, p, entry->requested_bytes, request);
    }
    use_id(word);
    if (old.address) { /* its block was freed past us, and the place given out again */
        berth__heap_free(old.stack);
        (void)berth__meter_give(&t->meter, old.size_bytes);
    }
    berth__meter_take(&t->meter, entry->size_bytes);
    return BERTH_OK;
}

BERTH__COLD static berth_status not_allocated(struct tracker *t, berth_status status)
{
    if (status)
        berth__slots_count_failure(&t->meter.slots);
    return status;
}

/* The general way of a block that is allocated: into the table, and counted. */
BERTH__COLD static berth_status tracker_track(struct tracker *t, size_t size_bytes,
                                              const berth_request *request, void **out)
{
    berth__slot *slot = berth__slot_of(&t->meter.slots, berth__thread());
    uint64_t run = 0, *word = slot ? &slot->owner_word : &run; /* without a slot every id is a run */
    berth__entry entry = {.address = *out,
                          .requested_bytes = size_bytes,
                          .size_bytes = counted_size(t, *out, size_bytes),
                          .id = next_id(t, word),
                          .label = berth__label_text(request)};
    berth_status status = track_slowly(t, &entry, word, request);
    if (status)
        *out = NULL;
    return status;
}

/* Without a table: totals only, nothing is claimed. */
static berth_status totalling_allocate(void *self, size_t size_bytes, size_t alignment,
                                       const berth_request *request, void **out)
{
    struct tracker *t = self;
    berth_status status = berth__allocate(t->base.inner, size_bytes, alignment, request, out);
    if (BERTH_UNLIKELY(status || !*out))
        return not_allocated(t, status);
    berth__slots *slots = &t->meter.slots;
    berth__slot *slot = berth__slots_enter_any(slots, berth__slot_of(slots, berth__thread()));
    berth__slot_hold(slot, 1);
    berth__slot_count(slot, size_bytes);
    berth__slots_leave_any(slots, slot);
    return BERTH_OK;
}

BERTH_HOT static berth_status tracking_allocate(void *self, size_t size_bytes, size_t alignment,
                                                const berth_request *request, void **out)
{
    struct tracker *t = self;
    berth_status status = berth__allocate(t->base.inner, size_bytes, alignment, request, out);
    if (BERTH_UNLIKELY(status || !*out))
        return not_allocated(t, status);
    berth__slot *slot = berth__slot_fast(&t->meter.slots);
    if (BERTH_UNLIKELY(!slot || t->stack_depth))
        return tracker_track(t, size_bytes, request, out);
    uint64_t id = next_id(t, &slot->owner_word);
    if (BERTH_UNLIKELY(!berth__table_put_alone(&t->table, slot, *out, size_bytes,
                                               counted_size(t, *out, size_bytes), id,
                                               berth__label_text(request))))
        return tracker_track(t, size_bytes, request, out);
    use_id(&slot->owner_word);
    return BERTH_OK;
}

/* The block held the tracker until now. [T3] */
BERTH__COLD static berth_status count_free(struct tracker *t, uint64_t size_bytes)
{
    if (berth__meter_give(&t->meter, size_bytes))
        tracker_drop(t);
    return BERTH_OK;
}

/* What the inner allocator has refused to take is tracked on. */
BERTH__COLD static berth_status put_back(struct tracker *t, void *p, berth__entry *entry, berth_status status)
{
    berth__entry old;
    entry->address = p;
    if (berth__free_is_done(status)) {
        berth__heap_free(entry->stack);
        (void)count_free(t, entry->size_bytes);
    } else if (!berth__table_put(&t->table, entry, &old)) {
        berth__heap_free(entry->stack);
    }
    return status;
}

static berth_status totalling_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    struct tracker *t = self;
    berth_status status = berth__deallocate(t->base.inner, p, size_bytes, stream);
    if (berth__free_is_done(status))
        (void)count_free(t, 0);
    return status;
}

/* The general way: another thread's shard, or with a call stack. */
BERTH__COLD static berth_status deallocate_slowly(struct tracker *t, void *p, size_t size_bytes,
                                                  berth_stream *stream)
{
    berth__entry entry;
    if (!berth__table_take(&t->table, p, &entry))
        return berth__fail(BERTH_BAD_FREE,
                           "%p is not a live block of this tracker: freed twice, or not its own", p);
    berth_status status = berth__deallocate(t->base.inner, p, size_bytes, stream);
    if (status)
        return put_back(t, p, &entry, status);
    berth__heap_free(entry.stack);
    return count_free(t, entry.size_bytes);
}

BERTH_HOT static berth_status tracking_deallocate(void *self, void *p, size_t size_bytes,
                                                  berth_stream *stream)
{
    struct tracker *t = self;
    berth__slot *slot = berth__slot_fast(&t->meter.slots);
    berth__entry entry;
    /* Taken out first: once the inner allocator has it back, another thread may get the same address. */
    if (BERTH_UNLIKELY(!slot || t->stack_depth || !berth__table_take_alone(&t->table, slot, p, &entry)))
        return deallocate_slowly(t, p, size_bytes, stream);
    berth_status status = berth__deallocate(t->base.inner, p, size_bytes, stream);
    if (BERTH_UNLIKELY(status))
        return put_back(t, p, &entry, status);
    if (BERTH_UNLIKELY(!berth__slot_enter_fast(&t->meter.slots, slot)))
        return count_free(t, entry.size_bytes);
    bool fits = berth__meter_give_at(slot, entry.size_bytes);
    if (BERTH_LIKELY(fits))
        berth__slot_hold(slot, -1);
    berth__slot_leave(slot);
    return BERTH_LIKELY(fits) ? BERTH_OK : count_free(t, entry.size_bytes);
}

/* ---- Questions ----------------------------------------------------------------------------------- */

static bool tracking_tracks_sizes(void *self)
{
    return ((struct tracker *)self)->measures;
}

static berth_status tracking_owns(void *self, const void *p)
{
    struct tracker *t = self;
    if (!t->measures)
        return berth__forward_ops.owns(self, p);
    berth__entry entry;
    return berth__table_get(&t->table, p, &entry) || berth__table_holds(&t->table, p) ? BERTH_OK
                                                                                      : BERTH_NOT_FOUND;
}

static berth_status not_live(const void *p)
{
    return berth__fail(BERTH_NOT_FOUND, "%p is not a live block of this tracker", p);
}

static berth_status tracking_requested_size(void *self, const void *p, size_t *out)
{
    struct tracker *t = self;
    berth__entry entry;
    if (!t->measures)
        return berth__forward_ops.requested_size(self, p, out);
    if (!berth__table_get(&t->table, p, &entry))
        return not_live(p);
    *out = (size_t)entry.requested_bytes;
    return BERTH_OK;
}

static berth_status tracking_allocated_size(void *self, const void *p, size_t *out)
{
    struct tracker *t = self;
    berth__entry entry;
    if (!t->measures)
        return berth__forward_ops.allocated_size(self, p, out);
    if (!berth__table_get(&t->table, p, &entry))
        return not_live(p);
    *out = (size_t)entry.size_bytes;
    return BERTH_OK;
}

static berth_status tracking_size_slow(void *self, const void *p, size_t *out)
{
    struct tracker *t = self;
    return t->measures ? tracking_allocated_size(self, p, out)
                       : berth__forward_ops.allocated_size_slow(self, p, out);
}

/* Ids are the tracker's own; without a table it has none. */
static berth_status tracking_id(void *self, const void *p, uint64_t *out)
{
    struct tracker *t = self;
    berth__entry entry;
    *out = 0;
    if (!t->measures)
        return BERTH_OK;
    if (!berth__table_get(&t->table, p, &entry))
        return not_live(p);
    *out = entry.id;
    return BERTH_OK;
}

static berth_status stats_are_off(void)
{
    return berth__fail(BERTH_UNSUPPORTED,
                       "this allocator's figures are switched off; see berth_cpu_allocator_set_stats");
}

bool berth__tracking_show_stats(berth_allocator *a, bool show)
{
    if (!berth__allocator_is(a, tracking_destroy))
        return false;
    atomic_store(&((struct tracker *)a->self)->hides_stats, !show);
    return true;
}

/* The inner allocator's figures, with the tracker's own in place of those that it knows better. */
static berth_status tracking_stats(void *self, berth_stats *out)
{
    struct tracker *t = self;
    if (atomic_load(&t->hides_stats))
        return stats_are_off();
    berth_stats inner = {.struct_size = sizeof inner};
    bool known = berth_stats_get(t->base.inner, &inner) == BERTH_OK;
    if (known)
        *out = inner;
    if (known && !t->measures)
        return BERTH_OK;
    berth__meter_read(&t->meter, out);
    out->bytes_limit = inner.bytes_limit;
    return BERTH_OK;
}

static uint64_t tracking_in_use(void *self)
{
    return berth__meter_in_use(&((struct tracker *)self)->meter);
}

static berth_status tracking_clear_stats(void *self)
{
    struct tracker *t = self;
    if (atomic_load(&t->hides_stats))
        return stats_are_off();
    berth__meter_clear(&t->meter);
    berth_status status = berth_stats_clear(t->base.inner);
    return status == BERTH_UNSUPPORTED ? BERTH_OK : status;
}

static berth_status copy_failed(void)
{
    return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a list of the live blocks");
}

static berth_status tracking_snapshot(void *self, berth_block_fn visit, void *context)
{
    struct tracker *t = self;
    berth__entry *live = NULL;
    size_t count = 0;
    if (!t->measures)
        return berth__forward_ops.snapshot(self, visit, context);
    if (!berth__table_copy(&t->table, &live, &count))
        return copy_failed();
    for (size_t i = 0; i < count; i++) {
        berth_block block = {.struct_size = sizeof block,
                             .address = live[i].address,
                             .size_bytes = live[i].size_bytes,
                             .requested_bytes = live[i].requested_bytes,
                             .allocation_id = live[i].id,
                             .label = live[i].label,
                             .state = BERTH_BLOCK_LIVE};
        if (!visit(context, &block))
            break;
    }
    berth__table_free_copy(live, count);
    return BERTH_OK;
}

/* ---- The public side ----------------------------------------------------------------------------- */

static berth_status check_options(berth_allocator *inner, const berth_tracking_options *options)
{
    if (!inner)
        return berth__fail(BERTH_INVALID_ARGUMENT, "a tracker needs an inner allocator");
    if (options->struct_size < sizeof *options)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the options' struct_size is %zu: start from BERTH_TRACKING_OPTIONS_INIT",
                           options->struct_size);
    if (options->stack_depth > BERTH__TABLE_STACK_MAX)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "%u frames for each block are too many; at most %d are kept",
                           (unsigned)options->stack_depth, (int)BERTH__TABLE_STACK_MAX);
    return BERTH_OK;
}

/* A block's size is changed by moving it through allocate and deallocate, so that both sides are counted. */
static berth_allocator_ops tracking_ops(bool measures)
{
    berth_allocator_ops ops = berth__forward_ops;
    ops.allocate = measures ? tracking_allocate : totalling_allocate;
    ops.deallocate = measures ? tracking_deallocate : totalling_deallocate;
    ops.destroy = tracking_destroy;
    ops.reallocate = NULL;
    ops.owns = tracking_owns;
    ops.tracks_sizes = tracking_tracks_sizes;
    ops.requested_size = tracking_requested_size;
    ops.allocated_size = tracking_allocated_size;
    ops.allocated_size_slow = tracking_size_slow;
    ops.allocation_id = tracking_id;
    ops.stats = tracking_stats;
    ops.clear_stats = tracking_clear_stats;
    ops.snapshot = tracking_snapshot;
    return ops;
}

berth_status berth_tracking_create(berth_allocator *inner, const berth_tracking_options *options,
                                   berth_allocator **out)
{
    static const berth_tracking_options defaults = BERTH_TRACKING_OPTIONS_INIT;
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no place for the tracker: out is NULL");
    *out = NULL;
    if (!options)
        options = &defaults;
    berth_status status = check_options(inner, options);
    if (status)
        return status;
    struct tracker *t = berth__heap_zaligned(sizeof *t, 64);
    if (!t)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a tracker");
    t->inner_sizes = berth_allocator_tracks_sizes(inner);
    t->measures = t->inner_sizes || options->track_sizes;
    berth_allocator_ops ops = tracking_ops(t->measures);
    berth__wrapper_init(&t->base, &ops, inner);
    t->base.base.knows_blocks = t->measures || inner->knows_blocks;
    if (t->measures) {
        t->base.base.in_use = tracking_in_use;
        t->base.base.in_use_self = t;
    }
    t->stack_depth = t->measures ? options->stack_depth : 0;
    berth__meter_init(&t->meter, options->exact_peak);
    t->table.slots = &t->meter.slots;
    atomic_init(&t->remaining, 1);
    list_tracker(t);
    *out = &t->base.base;
    return BERTH_OK;
}

berth_status berth_tracking_get_sizes(berth_allocator *tracker, berth_tracking_sizes *out)
{
    struct tracker *t = as_tracker(tracker);
    if (!t)
        return BERTH_INVALID_ARGUMENT;
    if (!out || out->struct_size < sizeof *out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "set struct_size to sizeof(berth_tracking_sizes)");
    berth_stats stats = {.struct_size = sizeof stats};
    berth__meter_read(&t->meter, &stats);
    out->total_bytes = stats.total_bytes;
    out->high_watermark_bytes = stats.max_bytes_in_use;
    out->live_bytes = stats.bytes_in_use;
    return BERTH_OK;
}

berth_status berth_tracking_get_sizes_and_unref(berth_allocator *tracker, berth_tracking_sizes *out)
{
    berth_status status = berth_tracking_get_sizes(tracker, out);
    if (!status)
        berth_allocator_release(tracker);
    return status;
}

bool berth_tracking_measures(berth_allocator *tracker)
{
    struct tracker *t = as_tracker(tracker);
    return t && t->measures;
}

berth_status berth_tracking_visit_leaks(berth_allocator *tracker, berth_leak_fn visit, void *context)
{
    struct tracker *t = as_tracker(tracker);
    berth__entry *live = NULL;
    size_t count = 0;
    if (!t || !visit)
        return t ? berth__fail(BERTH_INVALID_ARGUMENT, "visit is NULL") : BERTH_INVALID_ARGUMENT;
    if (!t->measures)
        return berth__fail(BERTH_UNSUPPORTED,
                           "this tracker counts totals only and knows no blocks; create it with track_sizes");
    if (!berth__table_copy(&t->table, &live, &count))
        return copy_failed();
    for (size_t i = 0; i < count; i++) {
        berth_leak leak = {.struct_size = sizeof leak,
                           .address = live[i].address,
                           .size_bytes = live[i].size_bytes,
                           .allocation_id = live[i].id,
                           .label = live[i].label,
                           .stack = live[i].stack ? live[i].stack->frames : NULL,
                           .stack_depth = live[i].stack ? live[i].stack->depth : 0};
        if (!visit(context, &leak))
            break;
    }
    berth__table_free_copy(live, count);
    return BERTH_OK;
}

static void report_stack(const berth_leak *leak)
{
    for (uint32_t i = 0; i < leak->stack_depth; i++) {
        char words[192];
        berth__symbol_format(leak->stack[i], words, sizeof words);
        berth__log(BERTH_LOG_WARNING, "    #%" PRIu32 " %s", i, words);
    }
}

struct report {
    size_t blocks;
    uint64_t bytes;
};

static bool report_leak(void *context, const berth_leak *leak)
{
    struct report *report = context;
    report->blocks++;
    report->bytes += leak->size_bytes;
    berth__log(BERTH_LOG_WARNING, "live: %" PRIu64 " bytes at %p, allocation %" PRIu64 "%s%s",
               leak->size_bytes, leak->address, leak->allocation_id, leak->label ? ", " : "",
               leak->label ? leak->label : "");
    if (leak->stack_depth)
        report_stack(leak);
    return true;
}

berth_status berth_tracking_report_leaks(berth_allocator *tracker, size_t *count)
{
    struct report report = {0};
    berth_status status = berth_tracking_visit_leaks(tracker, report_leak, &report);
    if (count)
        *count = !status ? report.blocks : 0;
    if (!status)
        berth__log(report.blocks ? BERTH_LOG_WARNING : BERTH_LOG_INFO,
                   "%zu blocks with %" PRIu64 " bytes are live over %s", report.blocks, report.bytes,
                   berth_allocator_name(tracker));
    return status;
}

static void tell_leaks(struct tracker *t)
{
    berth__log(BERTH_LOG_WARNING,
               "an allocator with full figures is released, and not all of its blocks are back:");
    (void)berth_tracking_report_leaks(&t->base.base, NULL);
}

void berth__tracking_tell_leaks(berth_allocator *a)
{
    ((struct tracker *)a->self)->tells_leaks = true;
}

bool berth__tracking_is(const berth_allocator *a)
{
    return berth__allocator_is(a, tracking_destroy);
}

bool berth__tracking_keeps_stacks(const berth_allocator *a)
{
    return berth__tracking_is(a) && ((const struct tracker *)a->self)->stack_depth > 0;
}
