/* The planned allocator's own figures: what the program allocated, whether a block or the inner allocator served
 * it. A replay in step counts nothing; its position in the plan says all, and is read when somebody asks, when
 * something beside the block changes, and at the end. */
#include "count/scope.h"
#include "replay/replay.h"

#define LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define STORE(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

/* ---- Counting a run ---------------------------------------------------------------------------------- */

static bool is_metered(const berth__replay *r)
{
    return r->planned->base.inner->metered;
}

/* The account of what this thread allocates now: its scope cannot have changed since it was last counted. */
static uint64_t run_tag(const berth__replay *r)
{
    return is_metered(r) ? berth__account_find(&berth__plain_request) : 0;
}

static void raise_most(berth__run_count *n)
{
    int64_t together = (int64_t)LOAD(n->live_bytes) + n->beside_bytes;
    if (together > n->most_bytes)
        n->most_bytes = together;
    BERTH_DCHECK(LOAD(n->largest_bytes) <= LOAD(n->total_bytes), "[R11] the largest is one of those counted");
}

static void count_allocs(berth__run_count *n, uint64_t count, uint64_t bytes, uint64_t largest)
{
    BERTH_DCHECK(largest <= bytes && count <= bytes,
                 "[R11] the largest is one of those counted, and none is empty");
    STORE(n->num_allocs, LOAD(n->num_allocs) + count);
    STORE(n->total_bytes, LOAD(n->total_bytes) + bytes);
    if (largest > LOAD(n->largest_bytes))
        STORE(n->largest_bytes, largest);
}

static void add_one(berth__replay *r, uint32_t id, uint64_t tag)
{
    uint64_t size = berth__replay_asked(r, id);
    count_allocs(&r->counted, 1, size, size);
    STORE(r->counted.live_bytes, LOAD(r->counted.live_bytes) + size);
    raise_most(&r->counted);
    if (is_metered(r)) {
        BERTH_DCHECK(id < r->block->tag_room && tag == (uint16_t)tag,
                     "[M10] every planned allocation has room for its account");
        r->block->tags[id] = (uint16_t)tag;
        berth__account_add(tag, size);
    }
}

static void remove_one(berth__replay *r, uint32_t id)
{
    uint64_t size = berth__replay_asked(r, id);
    BERTH_DCHECK(LOAD(r->counted.live_bytes) >= size, "[R11] what is freed was counted");
    STORE(r->counted.live_bytes, LOAD(r->counted.live_bytes) - size);
    if (is_metered(r))
        berth__account_sub(r->block->tags[id], size);
}

void berth__count_add(berth__replay *r, uint32_t id)
{
    add_one(r, id, run_tag(r));
}

void berth__count_remove(berth__replay *r, uint32_t id)
{
    remove_one(r, id);
}

/* The common case: all of the plan at once, nothing beside it. */
static void count_whole(berth__replay *r)
{
    const berth__plan_content *c = r->plan;
    berth__run_count *n = &r->counted;
    BERTH_DCHECK(LOAD(n->live_bytes) == 0, "[R11] before the first step nothing is live");
    count_allocs(n, c->planned, c->sum_bytes, c->largest_bytes);
    if ((int64_t)c->most_bytes + n->beside_bytes > n->most_bytes)
        n->most_bytes = (int64_t)c->most_bytes + n->beside_bytes;
    if (is_metered(r)) {
        uint64_t tag = run_tag(r);
        berth__account_add(tag, c->most_bytes);
        berth__account_sub(tag, c->most_bytes);
    }
}

void berth__count_run(berth__replay *r)
{
    const berth__plan_content *c = r->plan;
    if (r->tracked)
        return;
    uint32_t from = LOAD(r->counted.step), to = berth__replay_position(r);
    BERTH_DCHECK(from <= to && to <= c->step_count, "[R6] each step is counted once");
    if (from == to)
        return;
    if (from == 0 && to == c->step_count && !r->block->is_short) {
        count_whole(r);
    } else {
        uint64_t tag = run_tag(r);
        for (uint32_t s = from; s < to; s++) {
            uint32_t id = c->step_ids[s];
            if (c->entries[id].step != s)
                remove_one(r, id);
            else if (c->entries[id].rank != BERTH__NO_RANK)
                add_one(r, id, tag);
        }
    }
    STORE(r->counted.step, to);
}

void berth__count_beside(berth__replay *r, int64_t bytes)
{
    BERTH_DCHECK(!berth__planned_is_locked(), "[B1] a run is counted by its thread, without the lock");
    berth__count_run(r);
    r->counted.beside_bytes += bytes;
    raise_most(&r->counted);
}

/* ---- The figures of the allocator --------------------------------------------------------------------- */

static void serve_more(berth__served *all, uint64_t count, uint64_t bytes, uint64_t largest)
{
    all->num_allocs += count;
    all->total_bytes += bytes;
    if (largest > all->largest_bytes)
        all->largest_bytes = largest;
}

void berth__count_keep(berth__planned *p, const berth__replay *r)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] figures of ended runs are kept with the lock");
    const berth__run_count *n = &r->counted;
    BERTH_DCHECK(LOAD(n->num_allocs) <= LOAD(n->total_bytes), "[R11] none of what was counted is empty");
    serve_more(&p->figures.served, LOAD(n->num_allocs), LOAD(n->total_bytes), LOAD(n->largest_bytes));
}

/* With the lock, of a run that may be another thread's: its figures at the position where it is now. */
static void add_running(const berth__block *b, berth__served *served, uint64_t *live)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] another thread's run is looked at with the lock");
    const berth__plan_content *c = b->plan;
    const berth__run_count *n = &b->replay.counted;
    const berth_step *next = __atomic_load_n(&b->replay.head.next, __ATOMIC_ACQUIRE);
    uint64_t now = LOAD(n->live_bytes);
    serve_more(served, LOAD(n->num_allocs), LOAD(n->total_bytes), LOAD(n->largest_bytes));
    if (next && next != &berth__nothing_expected && !LOAD(n->is_short)) {
        BERTH_DCHECK(next >= c->steps && next <= c->steps + c->step_count,
                     "[R7] a run is at a step of its plan");
        for (uint32_t s = LOAD(n->step); s < (uint32_t)(next - c->steps); s++) {
            const berth__plan_entry *e = &c->entries[c->step_ids[s]];
            if (e->step != s)
                now -= e->size_bytes;
            else if (e->rank != BERTH__NO_RANK) {
                now += e->size_bytes;
                serve_more(served, 1, e->size_bytes, e->size_bytes);
            }
        }
    }
    *live += now;
}

/* With the lock. */
static void sum_up(const berth__planned *p, berth__served *served, uint64_t *live)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] runs are summed up with the lock");
    *served = p->figures.served;
    *live = 0;
    for (const berth__block *b = p->blocks; b; b = b->next) {
        *live += b->straggler_asked_bytes;
        if (b->plan)
            add_running(b, served, live);
    }
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* With the lock: the peak of the inner allocator alone, as far as it can be told, is one of this one too. */
static void keep_peak(berth__figures *f, const berth_stats *inner)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] the peak is kept with the lock");
    uint64_t peak = less(inner->max_bytes_in_use, f->held_bytes);
    if (peak > f->most_bytes)
        f->most_bytes = peak;
    if (inner->max_alloc_size > f->largest_block)
        STORE(f->largest_seen,
              inner->max_alloc_size > LOAD(f->largest_seen) ? inner->max_alloc_size : LOAD(f->largest_seen));
}

void berth__count_block_changes(berth__planned *p)
{
    berth_stats inner = {.struct_size = sizeof inner};
    if (!p->has_figures || p->base.inner->ops.stats(p->base.inner->self, &inner) != BERTH_OK)
        return;
    berth__planned_lock(p);
    keep_peak(&p->figures, &inner);
    berth__planned_unlock(p);
}

void berth__count_block(berth__planned *p, size_t given_bytes)
{
    berth__planned_lock(p);
    p->figures.block_allocs++;
    p->figures.block_bytes += given_bytes;
    p->figures.held_bytes += given_bytes;
    if (given_bytes > p->figures.largest_block)
        p->figures.largest_block = given_bytes;
    berth__planned_unlock(p);
}

void berth__count_block_back(berth__planned *p, size_t given_bytes)
{
    berth__planned_lock(p);
    BERTH_DCHECK(p->figures.held_bytes >= given_bytes || berth__is_child(),
                 "[R11] what goes back was counted");
    p->figures.held_bytes -= given_bytes;
    berth__planned_unlock(p);
}

static bool inner_in_use(const berth__planned *p, uint64_t *out)
{
    const berth_allocator *inner = p->base.inner;
    berth_stats stats = {.struct_size = sizeof stats};
    if (inner->in_use) {
        *out = inner->in_use(inner->in_use_self);
        return true;
    }
    if (!p->has_figures || inner->ops.stats(inner->self, &stats) != BERTH_OK)
        return false;
    *out = stats.bytes_in_use;
    return true;
}

/* What the run and everything beside it were together at most. What is beside it now, less what changed in the
 * run, was there when it began. */
void berth__count_ended(berth__replay *r)
{
    berth__planned *p = r->planned;
    uint64_t in_use = 0;
    if (!inner_in_use(p, &in_use))
        return;
    berth__served served;
    uint64_t live = 0;
    berth__planned_lock(p);
    sum_up(p, &served, &live);
    int64_t others = (int64_t)live - (int64_t)LOAD(r->counted.live_bytes); /* of other runs, and stragglers */
    int64_t beside = (int64_t)in_use - (int64_t)p->figures.held_bytes - r->counted.beside_bytes + others;
    int64_t together = beside + r->counted.most_bytes;
    if (together > 0 && (uint64_t)together > p->figures.most_bytes)
        p->figures.most_bytes = (uint64_t)together;
    berth__planned_unlock(p);
}

/* The calling thread's run, if it is this allocator's, is counted up to now. */
static void count_own(const berth__planned *p)
{
    berth_run *run = berth_run_current();
    if (!run || run->kind != BERTH_RUN_REPLAY || run->allocator != &p->base.base)
        return;
    berth__replay *r = (berth__replay *)run;
    berth__count_run(r);
    berth__count_ended(r);
}

berth_status berth__planned_stats(void *self, berth_stats *out)
{
    berth__planned *p = self;
    berth_stats inner = {.struct_size = sizeof inner};
    count_own(p);
    berth_status status = p->base.inner->ops.stats(p->base.inner->self, &inner);
    if (status)
        return status;
    berth__served served;
    uint64_t live = 0;
    berth__planned_lock(p);
    const berth__figures *f = &p->figures;
    sum_up(p, &served, &live);
    keep_peak(&p->figures, &inner);
    uint64_t in_use = less(inner.bytes_in_use, f->held_bytes) + live;
    if (in_use > f->most_bytes)
        p->figures.most_bytes = in_use;
    *out = inner;
    out->num_allocs =
        less(inner.num_allocs, f->block_allocs) + less(served.num_allocs, f->cleared.num_allocs);
    out->total_bytes =
        less(inner.total_bytes, f->block_bytes) + less(served.total_bytes, f->cleared.total_bytes);
    out->bytes_in_use = in_use;
    out->max_bytes_in_use = f->most_bytes;
    out->max_alloc_size =
        served.largest_bytes > LOAD(f->largest_seen) ? served.largest_bytes : LOAD(f->largest_seen);
    berth__planned_unlock(p);
    return BERTH_OK;
}

/* With the lock: counts to 0, the peak to what is in use now. */
static void clear_own(berth__planned *p, const berth_stats *inner)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] figures are cleared with the lock");
    uint64_t live = 0;
    p->figures.served.largest_bytes = 0;
    sum_up(p, &p->figures.cleared, &live);
    p->figures.block_allocs = p->figures.block_bytes = 0;
    p->figures.largest_block = 0;
    p->figures.most_bytes = less(inner->bytes_in_use, p->figures.held_bytes) + live;
    STORE(p->figures.largest_seen, 0);
}

berth_status berth__planned_clear_stats(void *self)
{
    berth__planned *p = self;
    berth_stats inner = {.struct_size = sizeof inner};
    count_own(p);
    berth_status status = p->base.inner->ops.clear_stats(p->base.inner->self);
    if (status || p->base.inner->ops.stats(p->base.inner->self, &inner) != BERTH_OK)
        return status;
    berth__planned_lock(p);
    clear_own(p, &inner);
    berth__planned_unlock(p);
    berth_run *run = berth_run_current();
    if (run && run->kind == BERTH_RUN_REPLAY && run->allocator == &p->base.base) {
        berth__run_count *n = &((berth__replay *)run)->counted;
        n->most_bytes = (int64_t)LOAD(n->live_bytes) + n->beside_bytes;
        STORE(n->largest_bytes, 0);
    }
    return BERTH_OK;
}
