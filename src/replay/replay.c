/* Replay when a call is not what the plan expects: keeping track, the fallback, and coming back in step. */
#include "replay/replay.h"

#include <string.h>

/* How far around the expected allocation a run out of step is looked for. */
#define WINDOW 64

static bool freed_here(const berth__plan_content *c, uint32_t step)
{
    return c->entries[c->step_ids[step]].step != step;
}

/* The allocation that comes at or after `step`. */
static uint32_t allocation_at(const berth__plan_content *c, uint32_t step)
{
    if (step >= c->step_count)
        return c->count;
    uint32_t id = c->step_ids[step];
    return freed_here(c, step) ? c->entries[id].freed_at : id;
}

static uint32_t position(const berth__replay *r)
{
    return (uint32_t)(r->head.next - r->plan->steps);
}

/* ---- Figures ----------------------------------------------------------------------------------------- */

/* The most that was live in step, from where it was last measured to allocation `id`. */
static void measure(berth__replay *r, uint32_t id)
{
    uint64_t most = 0;
    for (uint32_t i = r->measured; i < id; i++)
        most = r->plan->live_bytes[i] > most ? r->plan->live_bytes[i] : most;
    r->measured = id;
    uint64_t both = most + r->fallback_live;
    if (both > r->report.peak_without_plan_bytes)
        r->report.peak_without_plan_bytes = both;
}

static uint64_t live_at(const berth__plan_content *c, uint32_t step)
{
    uint32_t id = allocation_at(c, step);
    if (id == 0)
        return 0;
    uint64_t live = c->live_bytes[id - 1];
    for (uint32_t s = c->entries[id - 1].step + 1; s < step; s++)
        live -= c->entries[c->step_ids[s]].size_bytes;
    return live;
}

static void measure_now(berth__replay *r)
{
    if (r->tracked) {
        uint64_t both = r->planned_live + r->fallback_live;
        if (both > r->report.peak_without_plan_bytes)
            r->report.peak_without_plan_bytes = both;
        return;
    }
    measure(r, allocation_at(r->plan, position(r)));
    uint64_t both = live_at(r->plan, position(r)) + r->fallback_live;
    if (both > r->report.peak_without_plan_bytes)
        r->report.peak_without_plan_bytes = both;
}

/* ---- In step and out of it --------------------------------------------------------------------------- */

void berth__replay_leave_step(berth__replay *r)
{
    if (r->tracked)
        return;
    const berth__plan_content *c = r->plan;
    berth__ledger *ledger = &r->block->ledger;
    uint32_t here = position(r);
    for (uint32_t s = r->synced; s < here; s++) {
        const berth__plan_entry *e = &c->entries[c->step_ids[s]];
        if (e->step != s)
            berth__ledger_remove(ledger, e->rank);
        else if (e->rank != BERTH__NO_RANK)
            berth__ledger_add(ledger, e->rank, c->step_ids[s]);
    }
    r->synced = here;
    r->expected = allocation_at(c, here);
    r->late = c->entries[r->expected].step - here; /* the frees between here and it */
    r->missing = 0;
    r->slip = 0;
    measure(r, r->expected);
    r->planned_live = live_at(c, here);
    r->report.from_plan += r->expected - r->entered - r->outside;
    r->tracked = true;
    r->head.next = &berth__nothing_expected;
}

/* What is live is what the plan has live before allocation `expected`. */
static void enter_step(berth__replay *r)
{
    r->synced = r->plan->entries[r->expected].step;
    r->head.next = r->plan->steps + r->synced;
    r->entered = r->measured = r->expected;
    r->outside = 0;
    r->tracked = false;
}

static bool may_enter_step(const berth__replay *r)
{
    return r->tracked && r->late == 0 && r->missing == 0 && r->slip == 0 && r->block->use_count == 0;
}

static bool is_live(const berth__replay *r, uint32_t id)
{
    uint32_t rank = r->plan->entries[id].rank;
    return berth__ledger_has(&r->block->ledger, rank) && r->block->ledger.ids[rank] == id;
}

/* The run is past allocation `expected`; `placed`: it took its place. */
static void advance(berth__replay *r, bool placed)
{
    const berth__plan_content *c = r->plan;
    const berth__plan_entry *e = &c->entries[r->expected];
    if (!placed && e->rank != BERTH__NO_RANK)
        r->missing++;
    r->expected++;
    for (uint32_t s = e->step + 1; s < c->entries[r->expected].step; s++) {
        if (is_live(r, c->step_ids[s]))
            r->late++;
        else
            r->missing--;
    }
}

static void remove_live(berth__replay *r, uint32_t rank)
{
    const berth__plan_entry *e = &r->plan->entries[r->block->ledger.ids[rank]];
    berth__ledger_remove(&r->block->ledger, rank);
    r->planned_live -= e->size_bytes;
    if (e->freed_at <= r->expected)
        r->late--;
    else
        r->missing++;
}

/* ---- Frees that other threads have left -------------------------------------------------------------- */

static void free_remote(berth__replay *r, uint32_t rank)
{
    const berth__plan_content *c = r->plan;
    const berth_step *step = r->head.next;
    if (step->size_bytes == 0 && step->offset == c->rank_offsets[rank]) {
        r->head.next = step + 1;
        return;
    }
    berth__replay_leave_step(r);
    if (berth__ledger_has(&r->block->ledger, rank)) {
        remove_live(r, rank);
        return;
    }
    r->report.bad_frees++;
    berth__report_note(&r->report, BERTH_DEVIATION_BAD_FREE, r->expected, 0, c->rank_offsets[rank], NULL);
}

static void take_remote(berth__replay *r)
{
    berth__block *b = r->block;
    if (BERTH_LIKELY(__atomic_load_n(&r->head.pending, __ATOMIC_RELAXED) == 0))
        return;
    berth__mutex_lock(&r->planned->lock, BERTH__RANK_REPLAY);
    for (size_t w = 0; w < b->remote_words; w++)
        for (; b->remote[w]; b->remote[w] &= b->remote[w] - 1)
            free_remote(r, (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(b->remote[w]));
    __atomic_store_n(&r->head.pending, 0, __ATOMIC_RELAXED);
    berth__mutex_unlock(&r->planned->lock, BERTH__RANK_REPLAY);
}

/* ---- Choosing the planned allocation that a request is ----------------------------------------------- */

typedef struct wanted {
    size_t size_bytes;
    size_t alignment;
    const berth_request *request;
    const char *label;
} wanted;

static bool alignment_fits(const berth__replay *r, const berth__plan_entry *e, size_t alignment)
{
    return e->rank == BERTH__NO_RANK || ((e->offset | r->head.alignment) & (alignment - 1)) == 0;
}

static bool fits(const berth__replay *r, uint32_t id, const wanted *w)
{
    const berth__plan_entry *e = &r->plan->entries[id];
    bool size_fits = r->strict ? w->size_bytes == e->size_bytes : w->size_bytes <= e->size_bytes;
    return size_fits && alignment_fits(r, e, w->alignment);
}

static bool labels_differ(const char *a, const char *b)
{
    return a && b && a != b && strcmp(a, b) != 0;
}

static bool is_same(const berth__replay *r, uint32_t id, const wanted *w)
{
    const berth__plan_entry *e = &r->plan->entries[id];
    return w->size_bytes == e->size_bytes && alignment_fits(r, e, w->alignment) &&
           !labels_differ(e->label, w->label);
}

/* A run that skipped some allocations, where labels tell: the next one of this label and size. */
static uint32_t find_named(const berth__replay *r, const wanted *w)
{
    if (!w->label || r->expected >= r->plan->count ||
        !labels_differ(r->plan->entries[r->expected].label, w->label))
        return UINT32_MAX;
    for (uint32_t id = r->expected + 1; id < r->plan->count && id <= r->expected + WINDOW; id++)
        if (r->plan->entries[id].label && is_same(r, id, w))
            return id;
    return UINT32_MAX;
}

/* Which planned allocation the request is, or UINT32_MAX. In order it is the expected one if that fits. After
 * a request that matched nothing the run may have replaced, inserted or left out allocations: the nearest
 * equal one around where a replacement would have brought it is taken, so that one stranger costs one
 * fallback. */
static uint32_t choose(const berth__replay *r, const wanted *w)
{
    uint32_t count = r->plan->count;
    if (r->slip == 0 || r->strict) {
        if (r->expected < count && fits(r, r->expected, w))
            return r->expected;
        return r->strict ? UINT32_MAX : find_named(r, w);
    }
    uint32_t middle = r->slip < count - r->expected ? r->expected + r->slip : count;
    for (uint32_t d = 0; d <= WINDOW; d++) {
        if (d <= middle - r->expected && middle - d < count && is_same(r, middle - d, w))
            return middle - d;
        if (d < count - middle && is_same(r, middle + d, w))
            return middle + d;
    }
    if (middle < count && fits(r, middle, w) && !labels_differ(r->plan->entries[middle].label, w->label))
        return middle;
    return UINT32_MAX;
}

/* The live allocation that holds a part of the place of `e`, or UINT32_MAX. */
static uint32_t holder(const berth__replay *r, const berth__plan_entry *e)
{
    const berth__ledger *ledger = &r->block->ledger;
    const berth__plan_content *c = r->plan;
    uint32_t before = berth__ledger_previous(ledger, e->rank);
    if (before != BERTH__LEDGER_NONE) {
        const berth__plan_entry *b = &c->entries[ledger->ids[before]];
        if (b->offset + b->size_bytes > e->offset)
            return ledger->ids[before];
    }
    uint32_t after = berth__ledger_next(ledger, e->rank + 1);
    if (after != BERTH__LEDGER_NONE && c->rank_offsets[after] < e->offset + e->size_bytes)
        return ledger->ids[after];
    return UINT32_MAX;
}

/* ---- Allocating -------------------------------------------------------------------------------------- */

static berth_status serve_by_inner(berth__replay *r, const wanted *w, void **out)
{
    berth_status status =
        berth__allocate(r->planned->base.inner, w->size_bytes, w->alignment, w->request, out);
    if (status != BERTH_OK || !*out)
        return status;
    measure_now(r);
    bool replaced = false;
    uint64_t old = 0;
    /* Without memory for the table the figures miss this block; the block itself is as good. */
    if (!berth__handed_put(&r->fallback, *out, w->size_bytes, &replaced, &old))
        return BERTH_OK;
    r->fallback_live += w->size_bytes - (replaced ? old : 0);
    if (r->fallback_live > r->report.fallback_bytes)
        r->report.fallback_bytes = r->fallback_live;
    measure_now(r);
    return BERTH_OK;
}

static const char *label_of(const berth__replay *r, uint32_t id)
{
    return id < r->plan->count ? r->plan->entries[id].label : NULL;
}

/* Strict: the words. `id` is the allocation that was due. */
static berth_status refuse(berth__replay *r, berth_deviation_reason reason, uint32_t id, uint64_t expected,
                           uint64_t got)
{
    r->report.refused++;
    const char *label = label_of(r, id);
    return berth__fail(BERTH_MISMATCH,
                       "strict replay, allocation %u%s%s%s: %s (expected %llu, got %llu); record again, or "
                       "replay elastically",
                       id, label ? " (" : "", label ? label : "", label ? ")" : "",
                       berth_deviation_words(reason), (unsigned long long)expected, (unsigned long long)got);
}

static berth_status deviate(berth__replay *r, const wanted *w, berth_deviation_reason reason, uint32_t id,
                            uint64_t expected, uint64_t got, void **out)
{
    const char *label = label_of(r, id);
    berth__report_note(&r->report, reason, id, expected, got, label ? label : w->label);
    if (r->strict)
        return refuse(r, reason, id, expected, got);
    berth_status status = serve_by_inner(r, w, out);
    if (status == BERTH_OK)
        r->report.by_fallback++;
    return status;
}

/* Nothing in the plan matches. */
static berth_status deviate_unmatched(berth__replay *r, const wanted *w, void **out)
{
    uint32_t count = r->plan->count;
    uint32_t id = r->slip < count - r->expected && !r->strict ? r->expected + r->slip : r->expected;
    if (id >= count || r->expected >= count)
        return deviate(r, w, BERTH_DEVIATION_PAST_END, count, count, w->size_bytes, out);
    const berth__plan_entry *e = &r->plan->entries[id];
    bool larger = r->strict ? w->size_bytes != e->size_bytes : w->size_bytes > e->size_bytes;
    berth_status status = larger || alignment_fits(r, e, w->alignment)
                              ? deviate(r, w, BERTH_DEVIATION_SIZE, id, e->size_bytes, w->size_bytes, out)
                              : deviate(r, w, BERTH_DEVIATION_ALIGNMENT, id, e->alignment, w->alignment, out);
    if (!r->strict)
        r->slip++;
    return status;
}

/* The place of `id` is free again; a stream may still work on it, though. */
static void hide(berth__replay *r, uint32_t id)
{
    const berth__plan_entry *e = &r->plan->entries[id];
    if (berth__replay_is_watched(r) && !r->head.stream && r->block->use_count == 0)
        berth__annotate_noaccess(r->head.base + e->offset, e->size_bytes);
}

static berth_status zero(berth__replay *r, const wanted *w, void *p)
{
    if (berth__replay_is_watched(r))
        berth__annotate_undefined(p, w->size_bytes);
    if (!(w->request->flags & BERTH_ZEROED))
        return BERTH_OK;
    return berth_zero(berth_allocator_device(r->planned->base.inner), p, w->size_bytes, r->head.stream,
                      r->head.stream == NULL);
}

/* The place of `id` is free: takes it. */
static berth_status take_place(berth__replay *r, const wanted *w, uint32_t id, void **out)
{
    const berth__plan_entry *e = &r->plan->entries[id];
    void *p = r->head.base + e->offset;
    berth_status status = zero(r, w, p);
    if (status != BERTH_OK)
        return status;
    berth__ledger_add(&r->block->ledger, e->rank, id);
    r->planned_live += e->size_bytes;
    r->report.from_plan++;
    measure_now(r);
    advance(r, true);
    *out = p;
    return BERTH_OK;
}

static berth_status allocate_tracked(berth__replay *r, const wanted *w, void **out)
{
    uint32_t id = choose(r, w);
    if (id == UINT32_MAX)
        return deviate_unmatched(r, w, out);
    r->slip = 0;
    while (r->expected < id)
        advance(r, false);
    const berth__plan_entry *e = &r->plan->entries[id];
    if (e->rank == BERTH__NO_RANK) {
        berth_status status = serve_by_inner(r, w, out);
        if (status == BERTH_OK) {
            r->report.outside_plan++;
            advance(r, false);
        }
        return status;
    }
    uint32_t held_by = holder(r, e);
    if (held_by == UINT32_MAX)
        return take_place(r, w, id, out);
    berth_status status = deviate(r, w, BERTH_DEVIATION_HELD, id, e->size_bytes, held_by, out);
    if (!r->strict)
        advance(r, false);
    return status;
}

/* In step. False: this is not what is due. */
static bool allocate_in_step(berth__replay *r, const wanted *w, void **out, berth_status *status)
{
    const berth_step *step = r->head.next;
    if (berth_run_expects(&r->head, w->size_bytes, w->alignment)) {
        void *p = r->head.base + step->offset;
        *status = zero(r, w, p);
        if (*status == BERTH_OK) {
            r->head.next = step + 1;
            *out = p;
        }
        return true;
    }
    uint32_t here = position(r);
    if (here >= r->plan->step_count || freed_here(r->plan, here) || step->size_bytes != 0 ||
        !fits(r, r->plan->step_ids[here], w))
        return false;
    *status = serve_by_inner(r, w, out); /* never freed inside, and so outside the plan */
    if (*status == BERTH_OK) {
        r->report.outside_plan++;
        r->outside++;
        r->head.next = step + 1;
    }
    return true;
}

static berth_status replay_allocate(berth__replay *r, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    if (size_bytes == 0) /* an inner allocator that gives out empty blocks; they are not planned */
        return berth__allocate(r->planned->base.inner, size_bytes, alignment, request, out);
    wanted w = {size_bytes, alignment, request, berth__request_label(request)};
    take_remote(r);
    berth_stream *stream = request->stream ? request->stream : r->default_stream;
    berth_status status = stream == r->head.stream ? BERTH_OK : berth__streams_switch(r, stream);
    if (status != BERTH_OK)
        return status;
    if (may_enter_step(r))
        enter_step(r);
    if (!r->tracked && allocate_in_step(r, &w, out, &status))
        return status;
    berth__replay_leave_step(r);
    return allocate_tracked(r, &w, out);
}

berth_status berth__replay_allocate(berth__replay *r, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    berth_status status = replay_allocate(r, size_bytes, alignment, request, out);
    berth__replay_keep_watching(r);
    return status;
}

/* ---- Freeing ----------------------------------------------------------------------------------------- */

const berth__plan_entry *berth__ledger_find(const berth__ledger *ledger, const berth__plan_content *c,
                                            uint64_t offset)
{
    if (ledger->live == 0)
        return NULL;
    uint32_t low = 0, high = c->rank_count; /* the last rank at or below the offset */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (c->rank_offsets[middle] <= offset)
            low = middle;
        else
            high = middle;
    }
    uint32_t rank = berth__ledger_previous(ledger, low);
    if (rank == BERTH__LEDGER_NONE)
        return NULL;
    const berth__plan_entry *e = &c->entries[ledger->ids[rank]];
    return offset >= e->offset && offset - e->offset < e->size_bytes ? e : NULL;
}

static bool in_block(const berth__replay *r, const void *p)
{
    return (uintptr_t)p - (uintptr_t)r->head.base < r->block->bytes;
}

const berth__plan_entry *berth__replay_find(berth__replay *r, const void *p)
{
    if (!in_block(r, p))
        return NULL;
    take_remote(r);
    berth__replay_leave_step(r);
    berth__replay_keep_watching(r);
    return berth__ledger_find(&r->block->ledger, r->plan, (uintptr_t)p - (uintptr_t)r->head.base);
}

static berth_status refuse_free(berth__replay *r, uint64_t offset)
{
    const berth__plan_entry *e = berth__ledger_find(&r->block->ledger, r->plan, offset);
    uint32_t id = e ? (uint32_t)(e - r->plan->entries) : r->expected;
    r->report.bad_frees++;
    berth__report_note(&r->report, BERTH_DEVIATION_BAD_FREE, id, e ? e->offset : 0, offset,
                       e ? e->label : NULL);
    if (e)
        return berth__fail(BERTH_BAD_FREE,
                           "the pointer lies %llu bytes inside planned allocation %u; free its beginning",
                           (unsigned long long)(offset - e->offset), id);
    return berth__fail(BERTH_BAD_FREE,
                       "nothing is live at offset %llu of the planned block: freed twice, or never allocated",
                       (unsigned long long)offset);
}

static berth_status free_planned(berth__replay *r, uint64_t offset, berth_stream *stream)
{
    const berth_step *step = r->head.next;
    if (stream && stream != r->head.stream) {
        berth_status status = berth__streams_join(r, stream);
        if (status != BERTH_OK)
            return status;
    }
    if (step->size_bytes == 0 && step->offset == offset) {
        if (berth__replay_is_watched(r))
            hide(r, r->plan->step_ids[position(r)]);
        r->head.next = step + 1;
        return BERTH_OK;
    }
    berth__replay_leave_step(r);
    uint32_t rank = berth__plan_rank(r->plan, offset);
    if (rank == BERTH__NO_RANK || !berth__ledger_has(&r->block->ledger, rank))
        return refuse_free(r, offset);
    berth_status status = r->block->use_count ? berth__uses_join(r, rank) : BERTH_OK;
    if (status == BERTH_OK) {
        hide(r, r->block->ledger.ids[rank]);
        remove_live(r, rank);
    }
    return status;
}

berth_status berth__replay_deallocate(berth__replay *r, void *p, size_t size_bytes, berth_stream *stream)
{
    take_remote(r);
    berth__replay_keep_watching(r);
    if (in_block(r, p))
        return free_planned(r, (uintptr_t)p - (uintptr_t)r->head.base, stream);
    uint64_t size = 0;
    if (r->fallback.count && berth__handed_take(&r->fallback, p, &size)) {
        measure_now(r);
        r->fallback_live -= size;
    }
    return berth__planned_free_foreign(r->planned, p, size_bytes, stream);
}

berth_status berth__replay_record_use(berth__replay *r, const void *p, berth_stream *stream)
{
    const berth__plan_entry *e = berth__replay_find(r, p);
    if (!e)
        return berth__fail(BERTH_NOT_FOUND,
                           "the pointer lies in the planned block, but nothing is live there");
    return berth__uses_add(r->block, e->rank, stream);
}

/* ---- The end ----------------------------------------------------------------------------------------- */

void berth__replay_settle(berth__replay *r)
{
    const berth__plan_content *c = r->plan;
    take_remote(r);
    bool complete = !r->tracked && position(r) == c->step_count;
    if (complete && r->measured == 0 && r->fallback_live == 0) {
        /* The common end: in step throughout. */
        uint64_t most = c->certificate.max_live_bytes;
        if (most > r->report.peak_without_plan_bytes)
            r->report.peak_without_plan_bytes = most;
        r->measured = c->count;
    }
    if (complete) {
        measure(r, c->count);
        r->report.from_plan += c->count - r->entered - r->outside;
        berth__ledger_clear(&r->block->ledger);
        return;
    }
    berth__replay_leave_step(r);
}
