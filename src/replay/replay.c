/* Replay when a call is not what the plan expects: keeping track, the fallback, and coming back in step. */
#include "replay/replay.h"

/* ---- Frees that other threads have left -------------------------------------------------------------- */

/* Strict: words for a free that comes too early. It is done all the same: a caller that gives up must be able
 * to. */
static berth_status note_early(berth__replay *r, uint32_t id)
{
    BERTH_DCHECK(r->strict, "[R10] an elastic run may free when it likes");
    const berth__plan_entry *e = &r->plan->entries[id];
    r->report.early_frees++;
    berth__report_note(&r->report, BERTH_DEVIATION_EARLY_FREE, id, e->freed_at, r->expected, e->label);
    return berth__fail(BERTH_MISMATCH,
                       "strict replay, allocation %u%s%s%s is freed before allocation %u, planned before %u; "
                       "it is freed, but the run is not the plan's",
                       id, e->label ? " (" : "", e->label ? e->label : "", e->label ? ")" : "", r->expected,
                       e->freed_at);
}

static bool is_early(const berth__replay *r, uint32_t id)
{
    return r->strict && r->plan->entries[id].freed_at > r->expected;
}

/* False: a stream that uses the block cannot be waited for now. */
static bool free_remote(berth__replay *r, uint32_t rank)
{
    const berth__plan_content *c = r->plan;
    const berth_step *step = r->head.next;
    if (berth__uses_join(r, c->rank_offsets[rank]) != BERTH_OK)
        return false;
    if (step->size_bytes == BERTH_STEP_FREE && step->offset == c->rank_offsets[rank]) {
        __atomic_store_n(&r->head.next, step + 1, __ATOMIC_RELAXED);
        return true;
    }
    berth__replay_leave_step(r);
    if (berth__ledger_has(&r->block->ledger, rank)) {
        if (is_early(r, r->block->ledger.ids[rank]))
            note_early(r, r->block->ledger.ids[rank]);
        berth__replay_remove(r, rank);
        return true;
    }
    r->report.bad_frees++;
    berth__report_note(&r->report, BERTH_DEVIATION_BAD_FREE, r->expected, 0, c->rank_offsets[rank], NULL);
    return true;
}

/* Takes the next rank that another thread has freed; BERTH__NO_RANK: no more, and `pending` says so. */
static uint32_t next_remote(berth__replay *r, size_t *word)
{
    berth__block *b = r->block;
    uint32_t rank = BERTH__NO_RANK;
    berth__planned_lock(r->planned);
    while (*word < b->remote_words && !b->remote[*word])
        ++*word;
    if (*word < b->remote_words) {
        rank = (uint32_t)(*word * 64) + (uint32_t)__builtin_ctzll(b->remote[*word]);
        BERTH_DCHECK(rank < r->plan->rank_count, "[R7] others free places of the plan that runs");
        b->remote[*word] &= b->remote[*word] - 1;
    } else {
        bool any = false; /* in words that were passed already */
        for (size_t w = 0; w < b->remote_words; w++)
            any = any || b->remote[w];
        if (!any)
            __atomic_store_n(&r->head.pending, 0, __ATOMIC_RELAXED);
    }
    berth__planned_unlock(r->planned);
    return rank;
}

static void take_remote(berth__replay *r)
{
    if (BERTH_LIKELY(__atomic_load_n(&r->head.pending, __ATOMIC_RELAXED) == 0))
        return;
    size_t word = 0;
    for (uint32_t rank; (rank = next_remote(r, &word)) != BERTH__NO_RANK;) {
        if (free_remote(r, rank))
            continue;
        berth__planned_lock(r->planned); /* it stays live, and is tried again at the next call */
        r->block->remote[rank >> 6] |= (uint64_t)1 << (rank & 63);
        berth__planned_unlock(r->planned);
        return;
    }
}

/* ---- Allocating -------------------------------------------------------------------------------------- */

/* The live allocation that holds a part of the place of `e`, or UINT32_MAX. */
static uint32_t holder(const berth__replay *r, const berth__plan_entry *e)
{
    const berth__ledger *ledger = &r->block->ledger;
    const berth__plan_content *c = r->plan;
    BERTH_DCHECK(r->tracked && e->rank < c->rank_count,
                 "[R4] the ledger knows what is live, and there is a place");
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

/* What the inner allocator counts for a block of its own; `size_bytes` if it does not say. */
static int64_t beside_bytes(const berth__planned *p, const void *block, size_t size_bytes)
{
    const berth_allocator *inner = p->base.inner;
    size_t given = 0;
    if (inner->ops.tracks_sizes(inner->self) &&
        inner->ops.allocated_size(inner->self, block, &given) == BERTH_OK)
        return (int64_t)given;
    return (int64_t)size_bytes;
}

/* With the scope's stream where the request names none: that stream will use the block. */
static berth_status serve_by_inner(berth__replay *r, const berth__wanted *w, void **out)
{
    berth_request request = *w->request;
    request.stream = request.stream ? request.stream : r->default_stream;
    berth__count_run(r); /* a scope meter counts in the order of the calls */
    berth_status status = berth__inner_allocate(r->planned, w->size_bytes, w->alignment, &request, out);
    if (status)
        return status;
    berth__count_beside(r, beside_bytes(r->planned, *out, w->size_bytes));
    berth__count_largest(r->planned, w->size_bytes);
    berth__replay_measure_now(r);
    bool replaced = false;
    uint64_t old = 0;
    /* Without memory for the table the figures miss this block; the block itself is as good. */
    if (!berth__handed_put(&r->fallback, *out, w->size_bytes, &replaced, &old))
        return BERTH_OK;
    BERTH_DCHECK(!replaced || r->fallback_live >= old, "[R11] what another thread has freed was counted");
    r->fallback_live += w->size_bytes - (replaced ? old : 0);
    if (r->fallback_live > r->report.fallback_bytes)
        r->report.fallback_bytes = r->fallback_live;
    berth__replay_measure_now(r);
    return BERTH_OK;
}

/* Planned, and without a place of its own: never freed inside, or displaced by a straggler. */
static berth_status serve_outside(berth__replay *r, const berth__wanted *w, uint32_t id, void **out)
{
    BERTH_DCHECK(r->plan->entries[id].rank == BERTH__NO_RANK, "[R4] what has a place is served there");
    berth_status status = serve_by_inner(r, w, out);
    if (!status && berth__plan_is_displaced(&r->plan->entries[id]))
        r->report.displaced++;
    else if (!status)
        r->report.outside_plan++;
    return status;
}

static const char *label_of(const berth__replay *r, uint32_t id)
{
    return id < r->plan->count ? r->plan->entries[id].label : NULL;
}

/* Strict: the words. `id` is the allocation that was due. */
static berth_status replay_refuse(berth__replay *r, berth_deviation_reason reason, uint32_t id,
                                  uint64_t expected, uint64_t got)
{
    BERTH_DCHECK(r->strict, "[R10] an elastic run refuses nothing");
    r->report.refused++;
    const char *label = label_of(r, id);
    return berth__fail(BERTH_MISMATCH,
                       "strict replay, allocation %u%s%s%s: %s (expected %llu, got %llu); record again, or "
                       "replay elastically",
                       id, label ? " (" : "", label ? label : "", label ? ")" : "",
                       berth_deviation_words(reason), (unsigned long long)expected, (unsigned long long)got);
}

static berth_status replay_deviate(berth__replay *r, const berth__wanted *w, berth_deviation_reason reason,
                                   uint32_t id, uint64_t expected, uint64_t got, void **out)
{
    const char *label = label_of(r, id);
    if (reason == BERTH_DEVIATION_LABEL || !label)
        label = w->label;
    berth__report_note(&r->report, reason, id, expected, got, label);
    if (r->strict)
        return replay_refuse(r, reason, id, expected, got);
    berth_status status = serve_by_inner(r, w, out);
    if (!status)
        r->report.by_fallback++;
    return status;
}

/* Nothing in the plan matches. */
static berth_status deviate_unmatched(berth__replay *r, const berth__wanted *w, void **out)
{
    uint32_t count = r->plan->count;
    BERTH_DCHECK(r->tracked && r->expected <= count, "[R7] no allocation past the end is due");
    uint32_t id = r->slip < count - r->expected && !r->strict ? r->expected + r->slip : r->expected;
    if (id >= count || r->expected >= count)
        return replay_deviate(r, w, BERTH_DEVIATION_PAST_END, count, count, w->size_bytes, out);
    const berth__plan_entry *e = &r->plan->entries[id];
    uint32_t slip = r->strict ? 0 : r->slip + 1;
    berth_status status;
    if (w->size_bytes != e->size_bytes)
        status = replay_deviate(r, w, BERTH_DEVIATION_SIZE, id, e->size_bytes, w->size_bytes, out);
    else if (!berth__match_alignment(r, e, w->alignment))
        status = replay_deviate(r, w, BERTH_DEVIATION_ALIGNMENT, id, e->alignment, w->alignment, out);
    else
        status = replay_deviate(r, w, BERTH_DEVIATION_LABEL, id, e->size_bytes, w->size_bytes, out);
    if (!status)
        r->slip = slip;
    return status;
}

/* The place of `id` is free again; a stream may still work on it, though. */
static void replay_hide(berth__replay *r, uint32_t id)
{
    const berth__plan_entry *e = &r->plan->entries[id];
    if (berth__replay_is_watched(r) && !r->head.stream && r->own_uses == 0)
        berth__annotate_noaccess(r->head.base + e->offset, e->size_bytes);
}

static berth_status replay_zero(berth__replay *r, const berth__wanted *w, void *p)
{
    if (berth__replay_is_watched(r))
        berth__annotate_undefined(p, w->size_bytes);
    if (!(w->request->flags & BERTH_ZEROED))
        return BERTH_OK;
    berth_device device = berth_allocator_device(r->planned->base.inner);
    if (device.kind == BERTH_DEVICE_UNKNOWN) /* a dry run has no bytes to fill */
        return BERTH_OK;
    return berth_zero(device, p, w->size_bytes, r->head.stream, r->head.stream == NULL);
}

/* The place of `id` is free: takes it. */
static berth_status take_place(berth__replay *r, const berth__wanted *w, uint32_t id, void **out)
{
    char *p = r->head.base + r->plan->entries[id].offset;
    BERTH_DCHECK(holder(r, &r->plan->entries[id]) == UINT32_MAX,
                 "[R4] nothing live holds a part of the place");
    BERTH_DCHECK(berth__block_holds(r->block, p) && berth__block_holds(r->block, p + w->size_bytes - 1),
                 "[R2] the place lies in the block");
    berth_status status = replay_zero(r, w, p);
    if (status)
        return status;
    berth__replay_add(r, id, w->size_bytes);
    *out = p;
    return BERTH_OK;
}

static berth_status allocate_tracked(berth__replay *r, const berth__wanted *w, void **out)
{
    uint32_t id = berth__match(r, w);
    berth__match_learn(r, w, id);
    if (id == BERTH__NO_MATCH)
        return deviate_unmatched(r, w, out);
    while (r->expected < id)
        berth__replay_skip(r);
    BERTH_DCHECK(id <= r->expected, "[R3] what was found is due now, or was passed over");
    const berth__plan_entry *e = &r->plan->entries[id];
    if (e->rank == BERTH__NO_RANK) {
        berth_status status = serve_outside(r, w, id, out);
        if (!status && id == r->expected)
            berth__replay_advance(r, true);
        else if (!status)
            berth__replay_unskip(r, id);
        return status;
    }
    uint32_t held_by = holder(r, e);
    if (held_by == UINT32_MAX)
        return take_place(r, w, id, out);
    berth_status status = replay_deviate(r, w, BERTH_DEVIATION_HELD, id, e->size_bytes, held_by, out);
    if (!status && id == r->expected)
        berth__replay_advance(r, false);
    return status;
}

/* Remembers by address the label that a step was asked with, so that the fast path need not read it. */
static void learn_label(const berth__replay *r, uint32_t step, const char *label)
{
    const char **labels = r->head.labels;
    BERTH_DCHECK(step < r->plan->step_count, "[R7] there is a label for every step");
    if (labels && label && __atomic_load_n(&labels[step], __ATOMIC_RELAXED) != label)
        __atomic_store_n(&labels[step], label, __ATOMIC_RELAXED);
}

/* In step. False: this is not what is due. */
static bool allocate_in_step(berth__replay *r, const berth__wanted *w, void **out, berth_status *status)
{
    const berth_step *step = r->head.next;
    uint32_t here = berth__replay_position(r);
    if (here >= r->plan->step_count || berth__replay_frees_at(r->plan, here))
        return false;
    uint32_t id = r->plan->step_ids[here];
    BERTH_DCHECK(r->plan->entries[id].step == here,
                 "[R3] the allocation that is due is the one at the position");
    r->expected = id;
    r->slip = 0;
    if (!berth__match_same(r, id, w) && !(r->shrinks && berth__match(r, w) == id))
        return false;
    if (step->size_bytes == BERTH_STEP_FREE) {
        *status = serve_outside(r, w, id, out);
        r->outside += !*status;
    } else {
        BERTH_DCHECK(step->size_bytes == r->plan->entries[id].size_bytes &&
                         step->offset == r->plan->entries[id].offset,
                     "[R2] a step says what its allocation does");
        *status = replay_zero(r, w, r->head.base + step->offset);
        *out = !*status ? r->head.base + step->offset : NULL;
        if (!*status)
            berth__replay_note_short(r, id, w->size_bytes);
    }
    if (*status)
        return true;
    learn_label(r, here, w->label);
    __atomic_store_n(&r->head.next, step + 1, __ATOMIC_RELAXED);
    return true;
}

static bool may_enter_step(const berth__replay *r)
{
    return r->tracked && r->late == 0 && r->missing == 0 && r->slip == 0 && r->own_uses == 0;
}

static berth_status replay_allocate(berth__replay *r, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    if (size_bytes == 0) /* an inner allocator that gives out empty blocks; they are not planned */
        return berth__allocate(r->planned->base.inner, size_bytes, alignment, request, out);
    berth__wanted w = {size_bytes, alignment, request, berth__request_label(request)};
    take_remote(r);
    berth_stream *stream = request->stream ? request->stream : r->default_stream;
    berth_status status = stream == r->head.stream ? BERTH_OK : berth__streams_switch(r, stream);
    if (status)
        return status;
    if (may_enter_step(r))
        berth__replay_enter_step(r);
    if (!r->tracked && allocate_in_step(r, &w, out, &status))
        return status;
    berth__replay_leave_step(r);
    return allocate_tracked(r, &w, out);
}

berth_status berth__replay_allocate(berth__replay *r, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    BERTH_DCHECK(berth__run_is_mine(&r->head), "[R14] a scope is its thread's");
    BERTH_DCHECK(!berth__planned_is_locked(), "[B2] the inner allocator is not asked under a lock");
    berth_status status = replay_allocate(r, size_bytes, alignment, request, out);
    berth__replay_keep_watching(r);
    return status;
}

/* ---- Freeing ----------------------------------------------------------------------------------------- */

/* The live allocation of an up-to-date ledger that `offset` lies in. */
static const berth__plan_entry *ledger_find(const berth__ledger *ledger, const berth__plan_content *c,
                                            uint64_t offset)
{
    if (ledger->live == 0)
        return NULL;
    BERTH_DCHECK(c->rank_count > 0, "[R3] what is live has a place");
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
    return berth__block_holds(r->block, p);
}

const berth__plan_entry *berth__replay_find(berth__replay *r, const void *p)
{
    BERTH_DCHECK(berth__run_is_mine(&r->head), "[R14] a scope is its thread's");
    if (!in_block(r, p))
        return NULL;
    take_remote(r);
    berth__replay_leave_step(r);
    berth__replay_keep_watching(r);
    return ledger_find(&r->block->ledger, r->plan, (uintptr_t)p - (uintptr_t)r->head.base);
}

static berth_status refuse_free(berth__replay *r, uint64_t offset)
{
    BERTH_DCHECK(r->tracked, "[R3] the ledger knows what is live");
    const berth__plan_entry *e = ledger_find(&r->block->ledger, r->plan, offset);
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

/* BERTH_NOT_FOUND: no straggler of an earlier scope begins there. */
static berth_status free_straggler(berth__replay *r, uint64_t offset, berth_stream *stream)
{
    bool last = false; /* the block is running: it is put away when the scope ends */
    berth__planned_lock(r->planned);
    uint64_t asked = 0;
    berth_status status = berth__straggler_free(r->block, offset, stream, &last, &asked);
    berth__planned_unlock(r->planned);
    if (asked)
        berth__count_beside(r, -(int64_t)asked);
    if (status != BERTH_OUT_OF_HOST_MEMORY)
        return status;
    status = berth_stream_synchronize(stream);
    return !status ? free_straggler(r, offset, NULL) : status;
}

static berth_status free_tracked(berth__replay *r, uint64_t offset)
{
    uint32_t rank = berth__plan_rank(r->plan, offset);
    if (rank == BERTH__NO_RANK || !berth__ledger_has(&r->block->ledger, rank))
        return refuse_free(r, offset);
    berth_status status = r->own_uses ? berth__uses_join(r, offset) : BERTH_OK;
    if (status)
        return status;
    uint32_t id = r->block->ledger.ids[rank];
    bool early = is_early(r, id);
    BERTH_DCHECK(r->plan->entries[id].offset == offset, "[R3] a rank stands for one offset");
    replay_hide(r, id);
    berth__replay_remove(r, rank);
    return early ? note_early(r, id) : BERTH_OK;
}

static berth_status free_planned(berth__replay *r, uint64_t offset, berth_stream *stream)
{
    const berth_step *step = r->head.next;
    if (r->plan->range_count) {
        berth_status status = free_straggler(r, offset, stream ? stream : r->default_stream);
        if (status != BERTH_NOT_FOUND)
            return status;
    }
    if (stream && stream != r->head.stream) {
        berth_status status = berth__streams_join(r, stream);
        if (status)
            return status;
    }
    if (step->size_bytes == BERTH_STEP_FREE && step->offset == offset) {
        if (berth__replay_is_watched(r))
            replay_hide(r, r->plan->step_ids[berth__replay_position(r)]);
        __atomic_store_n(&r->head.next, step + 1, __ATOMIC_RELAXED);
        return BERTH_OK;
    }
    berth__replay_leave_step(r);
    return free_tracked(r, offset);
}

berth_status berth__replay_deallocate(berth__replay *r, void *p, size_t size_bytes, berth_stream *stream)
{
    BERTH_DCHECK(berth__run_is_mine(&r->head), "[R14] a scope is its thread's");
    take_remote(r);
    berth__replay_keep_watching(r);
    if (in_block(r, p))
        return free_planned(r, (uintptr_t)p - (uintptr_t)r->head.base, stream);
    uint64_t size = size_bytes;
    bool ours = berth__planned_owns_block(r->planned, p); /* another scope's straggler: it is counted there */
    if (r->fallback.count && berth__handed_take(&r->fallback, p, &size)) {
        BERTH_DCHECK(r->fallback_live >= size, "[R11] what is freed was counted");
        berth__replay_measure_now(r);
        r->fallback_live -= size;
    }
    int64_t less_bytes = ours ? 0 : beside_bytes(r->planned, p, (size_t)size);
    berth__count_run(r);
    /* Without a stream of its own it is the scope's stream that has used it. */
    berth_status status =
        berth__planned_free_foreign(r->planned, p, size_bytes, stream ? stream : r->default_stream);
    if (berth__free_is_done(status))
        berth__count_beside(r, -less_bytes);
    return status;
}

berth_status berth__replay_record_use(berth__replay *r, const void *p, berth_stream *stream)
{
    const berth__plan_entry *e = berth__replay_find(r, p);
    if (!e)
        return berth__fail(BERTH_NOT_FOUND,
                           "the pointer lies in the planned block, but nothing is live there");
    bool added = false;
    BERTH_DCHECK(r->tracked, "[R9] a run with uses of its own is tracked: every free of it is seen");
    berth__planned_lock(r->planned);
    berth_status status = berth__uses_add(r->block, e->offset, stream, &added);
    if (added) {
        r->block->uses[r->block->use_count - 1].counted = true;
        r->own_uses++;
    }
    berth__planned_unlock(r->planned);
    return status;
}

/* ---- The end ----------------------------------------------------------------------------------------- */

void berth__replay_settle(berth__replay *r)
{
    take_remote(r);
    if (r->tracked || berth__replay_position(r) != r->plan->step_count) {
        berth__replay_leave_step(r);
        return;
    }
    berth__count_run(r);
    berth__replay_measure_end(r);
    r->expected = r->plan->count;
    BERTH_DCHECK(atomic_load(&r->counted.live_bytes) == 0, "[R3] at the end of a plan nothing of it is live");
    berth__ledger_clear(&r->block->ledger);
}
