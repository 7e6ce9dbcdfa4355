/* First fit and best fit: buffers in an order that has nothing to do with time, each put into a gap between
 * the placed buffers that it meets, or on top of them. Gaps are found in a tree of what is taken (gaptree.h).
 * What that costs is counted, and past a limit the rest is put on top in order of time: 100,000 random long
 * lives are better planned that way than waited for. */
#include "planner/place/fit.h"

#include <string.h>

#include "planner/place/gaptree.h"

typedef struct fitting {
    berth__search *search;
    const berth__prepared *p;
    uint64_t *offsets;
    uint32_t *list; /* the items in order */
    berth__gaptree tree;
    bool is_tight;
    bool is_given_up;
} fitting;

static bool fit_put(fitting *f, uint32_t item, uint64_t offset)
{
    BERTH_DCHECK(f->offsets[item] == BERTH_NO_OFFSET && offset != BERTH_NO_OFFSET,
                 "[L2] an item is placed once");
    f->offsets[item] = offset;
    return berth__gaptree_take(&f->tree, item, offset);
}

static bool put_pins(fitting *f)
{
    bool ok = true;
    for (uint32_t i = 0; f->p->fixed && ok && i < f->p->item_count; i++)
        if (f->p->fixed[i] != BERTH_NO_OFFSET)
            ok = fit_put(f, i, f->p->fixed[i]);
    return ok;
}

/* Everything that has no place yet goes above everything that has one. */
static berth_status put_rest_above(fitting *f)
{
    uint64_t floor = 0;
    for (uint32_t i = 0; i < f->p->item_count; i++)
        if (f->offsets[i] != BERTH_NO_OFFSET && f->offsets[i] + f->p->size[i] > floor)
            floor = f->offsets[i] + f->p->size[i];
    BERTH_DCHECK(floor > 0, "[L14] the rest goes above what has a place");
    bool is_whole;
    return berth__greedy_above(f->search, floor, UINT64_MAX, f->offsets, &is_whole);
}

static berth_status fit_all(fitting *f)
{
    const uint64_t most = berth__fit_looks(f->p->item_count);
    uint64_t looks = 0;
    if (!put_pins(f))
        return BERTH_OUT_OF_HOST_MEMORY;
    for (uint32_t k = 0; k < f->p->item_count; k++) {
        const uint32_t item = f->list[k];
        uint64_t offset;
        if (f->offsets[item] != BERTH_NO_OFFSET)
            continue;
        f->tree.looked_at = 0;
        BERTH_DCHECK(item < f->p->item_count, "[L10] the list has every item");
        if (!berth__gaptree_find(&f->tree, item, INT64_MAX, f->is_tight, &offset) ||
            !fit_put(f, item, offset))
            return BERTH_OUT_OF_HOST_MEMORY;
        looks += f->tree.looked_at;
        const bool stop = berth__search_step(f->search, f->tree.looked_at / BERTH__FIT_LOOKS_A_STEP);
        f->is_given_up = offset + f->p->size[item] >= f->search->best_peak || /* it will not be better */
                         (stop && f->search->best_peak != UINT64_MAX && k + 1 < f->p->item_count);
        if (f->is_given_up) /* nobody waits for this one any more */
            return BERTH_OK;
        if (stop || looks > most)
            return put_rest_above(f);
    }
    return BERTH_OK;
}

berth_status berth__fit(berth__search *search, berth__fit_order order, berth__fit_rule rule, const char *name)
{
    const berth__prepared *p = search->prepared;
    if (search->stopped && search->best_peak != UINT64_MAX)
        return BERTH_OK;
    fitting f = {.search = search, .p = p, .is_tight = rule == BERTH__FIT_BEST};
    f.list = berth__heap_alloc(p->item_count * sizeof *f.list);
    f.offsets = berth__heap_alloc(p->item_count * sizeof *f.offsets);
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    if (f.list && f.offsets && berth__gaptree_init(&f.tree, p)) {
        memset(f.offsets, 0xff, p->item_count * sizeof *f.offsets); /* BERTH_NO_OFFSET */
        status = berth__fit_list(p, order, f.list);
        status = status ? status : fit_all(&f);
    }
    if (!status && !f.is_given_up && !(search->stopped && search->stop == BERTH_STOP_CANCELLED))
        berth__search_offer(search, f.offsets, name);
    if (status == BERTH_OUT_OF_HOST_MEMORY)
        status = berth__fail(status, "no memory to fit %u buffers", p->item_count);
    berth__gaptree_finish(&f.tree);
    berth__heap_free(f.offsets);
    berth__heap_free(f.list);
    return status;
}

/* ---- The table's entries ------------------------------------------------------------------------- */

#define FIT_SOLVER(symbol, text, order, rule, words)                                   \
    static berth_status run_##symbol(berth__search *search)                            \
    {                                                                                  \
        if (berth__search_phase(search, text) && search->stop == BERTH_STOP_CANCELLED) \
            return BERTH_OK;                                                           \
        return berth__fit(search, order, rule, text);                                  \
    }                                                                                  \
    const berth__solver berth__solver_##symbol = {.name = text, .about = words, .run = run_##symbol}

FIT_SOLVER(first_fit_size, "first-fit-size", BERTH__FIT_BY_SIZE, BERTH__FIT_FIRST,
           "largest first, each in the lowest gap");
FIT_SOLVER(first_fit_area, "first-fit-area", BERTH__FIT_BY_AREA, BERTH__FIT_FIRST,
           "largest size times life first, each in the lowest gap");
FIT_SOLVER(first_fit_breadth, "first-fit-breadth", BERTH__FIT_BY_BREADTH, BERTH__FIT_FIRST,
           "the fullest moment first, each in the lowest gap");
FIT_SOLVER(best_fit_size, "best-fit-size", BERTH__FIT_BY_SIZE, BERTH__FIT_BEST,
           "largest first, each in the tightest gap");
FIT_SOLVER(best_fit_area, "best-fit-area", BERTH__FIT_BY_AREA, BERTH__FIT_BEST,
           "largest size times life first, each in the tightest gap");
FIT_SOLVER(best_fit_breadth, "best-fit-breadth", BERTH__FIT_BY_BREADTH, BERTH__FIT_BEST,
           "the fullest moment first, each in the tightest gap");
