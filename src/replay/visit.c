/* What is live in the planned allocator's blocks, for people who look for leaks. */
#include "replay/replay.h"

typedef struct shown {
    berth_block *blocks; /* NULL: they are only counted */
    size_t count, room;
} shown;

static void visit_show(shown *all, const berth__block *b, uint64_t offset, uint64_t size, uint64_t asked)
{
    if (all->blocks && all->count < all->room)
        all->blocks[all->count] = (berth_block){.struct_size = sizeof(berth_block),
                                                .address = b->base + offset,
                                                .size_bytes = size,
                                                .requested_bytes = asked,
                                                .segment = (uintptr_t)b->base,
                                                .state = BERTH_BLOCK_LIVE};
    all->count++;
}

/* With the lock. In step, what is live follows from the position: all that is freed after it and was allocated before. */
static void show_in_step(shown *all, const berth__block *b, uint32_t position)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] another thread's run is looked at with the lock");
    const berth__plan_content *c = b->plan;
    BERTH_DCHECK(position <= c->step_count, "[R7] a run is at a step of its plan");
    for (uint32_t s = position; s < c->step_count; s++) {
        const berth__plan_entry *e = &c->entries[c->step_ids[s]];
        if (e->step < position)
            visit_show(all, b, e->offset, e->size_bytes, e->size_bytes);
    }
}

/* By the runner, whose ledger is up to date. */
static void show_tracked(shown *all, const berth__block *b)
{
    const berth__ledger *ledger = &b->ledger;
    BERTH_DCHECK(b->replay.tracked && berth__ledger_is_valid(ledger), "[R3] the ledger knows what is live");
    for (uint32_t rank = ledger->live ? berth__ledger_next(ledger, 0) : BERTH__LEDGER_NONE;
         rank != BERTH__LEDGER_NONE; rank = berth__ledger_next(ledger, rank + 1)) {
        const berth__plan_entry *e = &b->plan->entries[ledger->ids[rank]];
        visit_show(all, b, e->offset, e->size_bytes, berth__replay_asked(&b->replay, ledger->ids[rank]));
    }
}

/* With the lock. */
static void show_block(shown *all, const berth__block *b)
{
    BERTH_DCHECK(berth__block_is_valid(b), "[R2] what outlives its scope is disjoint, and in the block");
    for (size_t i = 0; i < b->straggler_count; i++)
        visit_show(all, b, b->stragglers[i].offset, b->stragglers[i].size_bytes,
                   b->stragglers[i].asked_bytes);
    if (!b->plan)
        return;
    const berth_step *next = __atomic_load_n(&b->replay.head.next, __ATOMIC_ACQUIRE);
    if (next && next != &berth__nothing_expected)
        show_in_step(all, b, (uint32_t)(next - b->plan->steps));
    else if (berth_run_current() == &b->replay.head)
        show_tracked(all, b);
}

/* What fits into `all` is kept; the count is of all there is. */
static void show_all(berth__planned *p, shown *all)
{
    all->count = 0;
    berth__planned_lock(p);
    for (const berth__block *b = p->blocks; b; b = b->next)
        show_block(all, b);
    berth__planned_unlock(p);
}

berth_status berth_planned_visit(berth_allocator *planned, berth_block_fn visit, void *context)
{
    berth__planned *p = berth__planned_of(planned);
    if (!p)
        return BERTH_INVALID_ARGUMENT;
    if (!visit)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no function to show the live allocations to");
    shown all = {.blocks = NULL};
    show_all(p, &all);
    while (all.count > all.room) { /* others go on meanwhile */
        berth__heap_free(all.blocks);
        all.room = all.count + all.count / 4;
        all.blocks = berth__heap_zalloc(all.room, sizeof *all.blocks);
        if (!all.blocks)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a list of %zu allocations",
                               all.count);
        show_all(p, &all);
    }
    for (size_t i = 0; i < all.count && visit(context, &all.blocks[i]); i++)
        ;
    berth__heap_free(all.blocks);
    return BERTH_OK;
}
