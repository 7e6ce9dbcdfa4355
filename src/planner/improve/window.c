/* Phase D on windows. The exact search takes some two thousand items. Of a larger problem it can take a
 * stretch of time:
 *
 *          . . . . .|#########|. . . .
 *       ------------+---------+-------
 *          . . ###########    |. . . .
 *          . . . . .|   ###########. .
 *                   |         |
 *                 lower     upper
 *
 *     bound  Everything alive in the window, cut off at its borders, is a problem of its own. A plan of the whole
 *            is one of the window too, so if the window has none, neither has the whole.
 *     plan   What crosses a border stays where it is, as if pinned; the rest may move anywhere below the
 *            capacity. If a plan is found, nothing in the window sticks out of the arena any more.
 *
 * Windows for the bound are around the fullest moments: that is where a problem is hard. Windows for the plan
 * are around whatever ends highest, and as long as the number of items permits. */
#include "planner/improve/window.h"

#include <string.h>

#include "base/sort.h"
#include "planner/exact/exact.h"
#include "planner/problem/bound.h"

enum {
    BOUND_WINDOWS = 6,    /* at different moments */
    STICKING_AT_MOST = 8, /* items that one round places anew */
    FAILURES_AT_MOST = 4
};

/* ---- Cutting ------------------------------------------------------------------------------------- */

static int window_compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* As prepared.h has it: first column, last column, size, alignment, pin. */
static int window_canonical(const void *context, uint32_t a, uint32_t b)
{
    const berth__prepared *w = context;
    int order = window_compare(w->lower[a], w->lower[b]);
    order = order ? order : window_compare(w->upper[a], w->upper[b]);
    order = order ? order : window_compare(w->size[a], w->size[b]);
    order = order ? order : window_compare(w->alignment[a], w->alignment[b]);
    return order ? order : window_compare(w->fixed[a], w->fixed[b]);
}

static bool window_allocate(berth__prepared *w, size_t count)
{
    w->lower = berth__heap_alloc((count + 1) * sizeof *w->lower);
    w->upper = berth__heap_alloc((count + 1) * sizeof *w->upper);
    w->size = berth__heap_alloc((count + 1) * sizeof *w->size);
    w->alignment = berth__heap_alloc((count + 1) * sizeof *w->alignment);
    w->fixed = berth__heap_alloc((count + 1) * sizeof *w->fixed);
    w->piece_lower = w->lower;
    w->piece_upper = w->upper;
    w->piece_size = w->size;
    return w->lower && w->upper && w->size && w->alignment && w->fixed;
}

/* Lists the items alive in [lower, upper); `list` has a place for each. */
static uint32_t list_alive(const berth__overlap *overlap, uint32_t lower, uint32_t upper, uint32_t *list)
{
    const berth__prepared *p = overlap->prepared;
    uint32_t count = 0;
    for (unsigned level = 0; level < BERTH__OVERLAP_LEVELS; level++) {
        const uint32_t end = overlap->level_first[level + 1];
        for (uint32_t at = berth__overlap_first(overlap, level, lower); at < end; at++) {
            const uint32_t item = overlap->pieces[at];
            if (p->lower[item] >= upper)
                break;
            if (p->upper[item] > lower)
                list[count++] = item;
        }
    }
    return count;
}

static void window_put(berth__prepared *w, uint32_t k, const berth__prepared *p, uint32_t item,
                       uint32_t lower, uint32_t upper, const uint64_t *offsets)
{
    const bool crosses = p->lower[item] < lower || p->upper[item] > upper;
    w->lower[k] = (p->lower[item] > lower ? p->lower[item] : lower) - lower;
    w->upper[k] = (p->upper[item] < upper ? p->upper[item] : upper) - lower;
    w->size[k] = p->size[item];
    w->fixed[k] = offsets && crosses ? offsets[item] : berth__item_fixed(p, item);
    BERTH_DCHECK(w->lower[k] < w->upper[k], "[L7] what is in a window lives in it");
    w->alignment[k] = w->fixed[k] == BERTH_NO_OFFSET ? berth__item_alignment(p, item) : 1;
}

static void find_max_live(berth__prepared *w, uint64_t *load)
{
    berth__bound_loads(w, load);
    for (uint32_t c = 0; c < w->column_count; c++)
        if (load[c] > w->max_live) {
            w->max_live = load[c];
            w->max_live_column = c;
        }
}

/* What is the same for all is left out, as prepared.h has it. */
static void drop_trivial(berth__prepared *w)
{
    bool has_alignment = false, has_pins = false;
    for (uint32_t k = 0; k < w->item_count; k++) {
        has_alignment = has_alignment || w->alignment[k] != 1;
        has_pins = has_pins || w->fixed[k] != BERTH_NO_OFFSET;
    }
    if (!has_alignment) {
        berth__heap_free(w->alignment);
        w->alignment = NULL;
    }
    if (!has_pins) {
        berth__heap_free(w->fixed);
        w->fixed = NULL;
    }
    w->is_plain = !has_alignment && !has_pins;
}

/* First as they come, then once more in canonical order. */
static berth_status window_fill(berth__window *window, const berth__prepared *p, uint32_t *list,
                                uint32_t lower, uint32_t upper, const uint64_t *offsets)
{
    berth__prepared *w = &window->prepared;
    const uint32_t count = w->item_count;
    uint32_t *order = berth__heap_alloc(((size_t)count * 2 + 1) * sizeof *order);
    uint64_t *load = berth__heap_alloc(((size_t)w->column_count + 1) * sizeof *load);
    if (order && load) {
        for (uint32_t k = 0; k < count; k++) {
            window_put(w, k, p, list[k], lower, upper, offsets);
            order[k] = k;
        }
        berth__sort_indices(order, order + count, count, window_canonical, w);
        for (uint32_t k = 0; k < count; k++)
            window->item[k] = list[order[k]];
        for (uint32_t k = 0; k < count; k++)
            window_put(w, k, p, window->item[k], lower, upper, offsets);
        find_max_live(w, load);
        drop_trivial(w);
    }
    berth__heap_free(order);
    berth__heap_free(load);
    return order && load ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
}

berth_status berth__window_cut(berth__window *window, const berth__overlap *overlap, uint32_t lower,
                               uint32_t upper, const uint64_t *offsets)
{
    const berth__prepared *p = overlap->prepared;
    BERTH_DCHECK(!p->piece_first, "[L20] windows are cut from items of one piece");
    *window = (berth__window){0};
    const size_t most = berth__overlap_count(overlap, lower, upper);
    BERTH_DCHECK(most <= p->piece_count, "[L10] no piece is in two levels");
    uint32_t *list = berth__heap_alloc((most + 1) * sizeof *list);
    window->item = berth__heap_alloc((most + 1) * sizeof *window->item);
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    if (list && window->item && window_allocate(&window->prepared, most)) {
        berth__prepared *w = &window->prepared;
        w->item_count = w->piece_count = list_alive(overlap, lower, upper, list);
        BERTH_DCHECK(w->item_count <= most, "[L20] there is room for all that live in a window");
        w->column_count = upper - lower;
        w->unit_bytes = p->unit_bytes;
        w->capacity = BERTH__NO_CAPACITY;
        w->horizon = p->horizon;
        status = window_fill(window, p, list, lower, upper, offsets);
    }
    berth__heap_free(list);
    if (status) {
        berth__window_finish(window);
        return berth__fail(status, "no memory for a window of %zu items", most);
    }
    BERTH_DCHECK(berth__prepared_is_valid(&window->prepared), "[L7] [L8] [L9] a window is a problem");
    return BERTH_OK;
}

void berth__window_finish(berth__window *window)
{
    berth__prepared_finish(&window->prepared);
    berth__heap_free(window->item);
    *window = (berth__window){0};
}

/* The longest stretch around [lower, upper), twice as long at every attempt, in which at most `most` items
 * are alive. False: even that one has more. */
static bool widen(const berth__overlap *overlap, uint32_t most, uint32_t *lower, uint32_t *upper)
{
    const uint32_t columns = overlap->prepared->column_count;
    if (berth__overlap_count(overlap, *lower, *upper) > most)
        return false;
    while (*lower > 0 || *upper < columns) {
        const uint32_t half = (*upper - *lower + 1) / 2;
        const uint32_t left = *lower > half ? *lower - half : 0,
                       right = columns - *upper > half ? *upper + half : columns;
        if (berth__overlap_count(overlap, left, right) > most)
            break;
        BERTH_DCHECK(left <= *lower && *upper <= right && right <= columns,
                     "[L20] a window widens within the columns");
        *lower = left;
        *upper = right;
    }
    return true;
}

/* ---- The bound ----------------------------------------------------------------------------------- */

/* Asks for the bound, and as long as it is refuted for more, in growing strides. */
static berth_status raise_bound(berth__search *search, const berth__window *window, uint64_t step_limit)
{
    berth__exact *exact;
    uint64_t *offsets = berth__heap_alloc(((size_t)window->prepared.item_count + 1) * sizeof *offsets);
    if (!offsets)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a window's offsets");
    berth_status status = berth__exact_create(&window->prepared, search->seed, BERTH__EXACT_BEST, &exact);
    for (uint64_t stride = 1; !status && berth__search_goes_on(search, step_limit);) {
        berth__exact_answer answer = BERTH__EXACT_UNKNOWN;
        uint64_t target = search->lower_bound + (stride - 1);
        target = target < search->best_peak ? target : search->best_peak - 1;
        BERTH_DCHECK(target >= search->lower_bound, "[L20] what is asked is not refuted yet");
        status =
            berth__exact_run(exact, search, target, (step_limit - search->steps) / 2 + 1, offsets, &answer);
        if (!status && answer == BERTH__EXACT_INFEASIBLE) {
            berth__search_prove(search, target + 1);
            stride *= 2;
        } else if (stride > 1) {
            stride = 1;
        } else {
            break;
        }
    }
    berth__exact_destroy(exact);
    berth__heap_free(offsets);
    return status;
}

/* One window around the fullest moment that has not been in one yet; its columns are then as good as empty.
 */
static berth_status bound_around(berth__search *search, berth__overlap *overlap, uint64_t *load,
                                 uint32_t most, uint64_t step_limit)
{
    uint32_t lower = 0;
    for (uint32_t c = 1; c < search->prepared->column_count; c++)
        lower = load[c] > load[lower] ? c : lower;
    uint32_t upper = lower + 1;
    berth__search_step(search, 1 + search->prepared->column_count / 16);
    if (!widen(overlap, most, &lower, &upper)) {
        load[lower] = 0;
        return BERTH_OK;
    }
    BERTH_DCHECK(lower < upper && berth__overlap_count(overlap, lower, upper) <= most,
                 "[L20] a window is as small as was asked");
    berth__window window;
    berth_status status = berth__window_cut(&window, overlap, lower, upper, NULL);
    if (status)
        return status;
    if (berth__exact_can(&window.prepared))
        status = raise_bound(search, &window, step_limit);
    memset(load + lower, 0, (upper - lower) * sizeof *load);
    berth__window_finish(&window);
    return status;
}

berth_status berth__window_bound(berth__search *search, uint32_t most, uint64_t steps)
{
    const berth__prepared *p = search->prepared;
    if (p->piece_first || search->best_peak == UINT64_MAX)
        return BERTH_OK;
    const uint64_t start = search->steps;
    berth__overlap overlap;
    berth_status status = berth__overlap_init(&overlap, p);
    if (status)
        return status;
    uint64_t *load = berth__heap_alloc(((size_t)p->column_count + 1) * sizeof *load);
    if (load)
        berth__bound_loads(p, load);
    else
        status = berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %u loads", p->column_count);
    for (unsigned k = 1; k <= BOUND_WINDOWS && !status && !search->stopped; k++)
        status = bound_around(search, &overlap, load, most, start + steps / BOUND_WINDOWS * k);
    berth__heap_free(load);
    berth__overlap_finish(&overlap);
    return status;
}

/* ---- The plan ------------------------------------------------------------------------------------ */

typedef struct improvement {
    berth__search *search;
    berth__overlap overlap;
    uint64_t *offsets; /* the plan being worked on */
    uint64_t *found;   /* a window's offsets */
    uint32_t most;
    uint64_t target;
} improvement;

/* Places `item` and what lies around it anew, below the target. */
static berth_status press_window(improvement *m, uint32_t item, uint64_t steps, bool *is_done)
{
    const berth__prepared *p = m->search->prepared;
    uint32_t lower = p->lower[item], upper = p->upper[item];
    *is_done = false;
    if (!widen(&m->overlap, m->most, &lower, &upper))
        return BERTH_OK;
    berth__window window;
    berth__exact *exact = NULL;
    berth__exact_answer answer = BERTH__EXACT_UNKNOWN;
    berth_status status = berth__window_cut(&window, &m->overlap, lower, upper, m->offsets);
    if (status)
        return status;
    const berth__prepared *w = &window.prepared;
    bool can = berth__exact_can(w);
    for (uint32_t k = 0; k < w->item_count; k++) /* a pin that sticks out cannot be helped here */
        can = can && (berth__item_fixed(w, k) == BERTH_NO_OFFSET || w->fixed[k] + w->size[k] <= m->target);
    if (can)
        status = berth__exact_create(w, m->search->seed, BERTH__EXACT_BEST, &exact);
    if (can && !status)
        status = berth__exact_run(exact, m->search, m->target, steps, m->found, &answer);
    for (uint32_t k = 0; answer == BERTH__EXACT_FOUND && k < w->item_count; k++)
        if (berth__item_fixed(w, k) == BERTH_NO_OFFSET) {
            BERTH_DCHECK(m->found[k] + w->size[k] <= m->target, "[L14] nothing is placed above the target");
            m->offsets[window.item[k]] = m->found[k];
        }
    *is_done = answer == BERTH__EXACT_FOUND;
    berth__exact_destroy(exact);
    berth__window_finish(&window);
    return status;
}

/* The items that end above `target`, if they are few; else one more than that. */
static uint32_t list_sticking(const improvement *m, uint64_t target, uint32_t *list)
{
    const berth__prepared *p = m->search->prepared;
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->item_count && count <= STICKING_AT_MOST; i++)
        if (m->offsets[i] + p->size[i] > target)
            list[count++] = i;
    return count;
}

/* A round: all that sticks out of a target that few stick out of. Windows may bring down several at once. */
static berth_status press_round(improvement *m, unsigned failures, uint64_t steps, bool *is_done)
{
    berth__search *search = m->search;
    const uint64_t goal = berth__search_goal(search);
    uint32_t list[STICKING_AT_MOST + 1], count;
    berth_status status = BERTH_OK;
    m->target = search->best_peak - 1 - (search->best_peak - 1 - goal) / (1U << failures);
    while ((count = list_sticking(m, m->target, list)) > STICKING_AT_MOST &&
           m->target + 1 < search->best_peak)
        m->target += (search->best_peak - m->target) / 2;
    BERTH_DCHECK(m->target >= goal && m->target < search->best_peak,
                 "[L20] a round aims below the best plan");
    berth__search_step(search, 1 + search->prepared->item_count / 4);
    *is_done = count <= STICKING_AT_MOST;
    for (uint32_t k = 0; k < count && *is_done && !status && !search->stopped; k++)
        if (m->offsets[list[k]] + search->prepared->size[list[k]] > m->target)
            status = press_window(m, list[k], steps, is_done);
    *is_done = *is_done && !search->stopped;
    return status;
}

static berth_status improve(improvement *m, uint64_t step_limit)
{
    berth__search *search = m->search;
    const size_t bytes = (size_t)search->prepared->item_count * sizeof *m->offsets;
    berth_status status = BERTH_OK;
    memcpy(m->offsets, search->best, bytes);
    for (unsigned failures = 0; failures < FAILURES_AT_MOST && !status &&
                                search->best_peak > berth__search_goal(search) &&
                                berth__search_goes_on(search, step_limit);) {
        bool is_done;
        status = press_round(m, failures, (step_limit - search->steps) / 8 + 1, &is_done);
        if (!status && is_done) {
            berth__search_offer(search, m->offsets, "window");
        } else if (!status) {
            failures++;
            memcpy(m->offsets, search->best, bytes);
        }
    }
    return status;
}

berth_status berth__window_improve(berth__search *search, uint32_t most, uint64_t steps)
{
    const berth__prepared *p = search->prepared;
    if (p->piece_first || search->best_peak == UINT64_MAX)
        return BERTH_OK;
    improvement m = {.search = search, .most = most};
    berth_status status = berth__overlap_init(&m.overlap, p);
    if (status)
        return status;
    m.offsets = berth__heap_alloc((size_t)p->item_count * sizeof *m.offsets);
    m.found = berth__heap_alloc(((size_t)most + 1) * sizeof *m.found);
    if (m.offsets && m.found)
        status = improve(&m, search->steps + steps);
    else
        status = berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for windows of %u items", p->item_count);
    berth__heap_free(m.offsets);
    berth__heap_free(m.found);
    berth__overlap_finish(&m.overlap);
    return status;
}
