/* Graphs of steps, and what an order of them takes. */
#include "format/order.h"

#include <stdlib.h>
#include <string.h>

bool order_graph_init(order_graph *g, uint32_t step_count, uint32_t thing_count)
{
    *g = (order_graph){.step_count = step_count, .thing_count = thing_count};
    g->size = calloc((size_t)thing_count + 1, sizeof *g->size);
    g->initial = calloc((size_t)thing_count + 1, sizeof *g->initial);
    g->kept = calloc((size_t)thing_count + 1, sizeof *g->kept);
    g->work = calloc((size_t)step_count + 1, sizeof *g->work);
    g->over = malloc(((size_t)step_count + 1) * sizeof *g->over);
    if (!g->size || !g->initial || !g->kept || !g->work || !g->over) {
        order_graph_finish(g);
        return false;
    }
    for (uint32_t i = 0; i <= step_count; i++)
        g->over[i] = ORDER_NONE;
    return true;
}

static void lists_finish(order_lists *lists)
{
    free(lists->first);
    free(lists->items);
}

void order_graph_finish(order_graph *g)
{
    free(g->size);
    free(g->initial);
    free(g->kept);
    free(g->work);
    free(g->over);
    lists_finish(&g->touch);
    lists_finish(&g->touched);
    lists_finish(&g->made);
    lists_finish(&g->before);
    lists_finish(&g->following);
    *g = (order_graph){0};
}

static int compare_pairs(const void *a, const void *b)
{
    const order_pair *x = a, *y = b;
    if (x->list != y->list)
        return x->list < y->list ? -1 : 1;
    return x->item < y->item ? -1 : x->item > y->item;
}

bool order_lists_make(order_lists *lists, uint32_t list_count, order_pair *pairs, size_t pair_count)
{
    lists->first = calloc((size_t)list_count + 2, sizeof *lists->first);
    lists->items = malloc((pair_count + 1) * sizeof *lists->items);
    if (!lists->first || !lists->items)
        return false;
    uint32_t kept = 0;
    if (pair_count)
        qsort(pairs, pair_count, sizeof *pairs, compare_pairs);
    for (size_t i = 0; i < pair_count; i++) {
        if (i && compare_pairs(&pairs[i - 1], &pairs[i]) == 0)
            continue;
        lists->items[kept++] = pairs[i].item;
        lists->first[pairs[i].list + 1] = kept;
    }
    for (uint32_t i = 1; i <= list_count; i++)
        if (lists->first[i] < lists->first[i - 1])
            lists->first[i] = lists->first[i - 1];
    return true;
}

/* ---- Sets of steps ------------------------------------------------------------------------------------ */

static bool all_done_but(const order_graph *g, const uint64_t *done, uint32_t thing, uint32_t step)
{
    for (uint32_t k = g->touched.first[thing]; k < g->touched.first[thing + 1]; k++)
        if (g->touched.items[k] != step && !order_bit(done, g->touched.items[k]))
            return false;
    return true;
}

static bool is_there(const order_graph *g, const uint64_t *done, uint32_t thing)
{
    if (g->initial[thing])
        return true;
    for (uint32_t k = g->made.first[thing]; k < g->made.first[thing + 1]; k++)
        if (order_bit(done, g->made.items[k]))
            return true;
    return false;
}

void order_effect(const order_graph *g, const uint64_t *done, uint64_t live, uint32_t step, uint64_t *during,
                  uint64_t *after)
{
    const uint32_t over = g->over[step];
    uint64_t added = 0, ended = 0, saved = 0;
    for (uint32_t k = g->touch.first[step]; k < g->touch.first[step + 1]; k++) {
        const uint32_t thing = g->touch.items[k];
        const bool there = is_there(g, done, thing);
        if (!there)
            added += g->size[thing];
        if (g->kept[thing] || !all_done_but(g, done, thing, step))
            continue;
        ended += g->size[thing];
        if (there && over != ORDER_NONE && g->size[thing] == g->size[over] && !is_there(g, done, over))
            saved = g->size[thing];
    }
    *during = live + added + g->work[step] - saved;
    *after = live + added - ended;
}

void order_take(const order_graph *g, order_set *set, uint32_t step)
{
    uint64_t during, after;
    order_effect(g, set->done, set->live, step, &during, &after);
    set->done[step / 64] |= (uint64_t)1 << step % 64;
    set->ready[step / 64] &= ~((uint64_t)1 << step % 64);
    set->live = after;
    set->peak = during > set->peak ? during : set->peak;
    set->count++;
    for (uint32_t k = g->following.first[step]; k < g->following.first[step + 1]; k++) {
        const uint32_t next = g->following.items[k];
        bool free_now = true;
        for (uint32_t i = g->before.first[next]; i < g->before.first[next + 1] && free_now; i++)
            free_now = order_bit(set->done, g->before.items[i]);
        if (free_now)
            set->ready[next / 64] |= (uint64_t)1 << next % 64;
    }
}

void order_begin(const order_graph *g, order_set *set)
{
    set->live = set->peak = g->base;
    set->count = 0;
    for (uint32_t i = 0; i < g->thing_count; i++)
        if (g->initial[i])
            set->peak += g->size[i];
    for (uint32_t i = 0; i < g->thing_count; i++)
        if (g->initial[i] && (g->kept[i] || g->touched.first[i] < g->touched.first[i + 1]))
            set->live += g->size[i];
    for (uint32_t i = 0; i < g->step_count; i++)
        if (g->before.first[i] == g->before.first[i + 1])
            set->ready[i / 64] |= (uint64_t)1 << i % 64;
}

/* A step that takes no more than was taken before and leaves no more than there is can go first in every order: those that follow
 * then have at most as much beside them. */
uint32_t order_free_step(const order_graph *g, const order_set *set, uint64_t *effects)
{
    for (uint32_t w = 0; w < (g->step_count + 63) / 64; w++)
        for (uint64_t left = set->ready[w]; left; left &= left - 1) {
            const uint32_t step = w * 64 + (uint32_t)__builtin_ctzll(left);
            uint64_t during, after;
            ++*effects;
            order_effect(g, set->done, set->live, step, &during, &after);
            if (during <= set->peak && after <= set->live)
                return step;
        }
    return ORDER_NONE;
}

uint64_t order_hash(uint32_t step)
{
    uint64_t z = (step + 1) * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* ---- Orders ------------------------------------------------------------------------------------------- */

uint64_t order_peak(const order_graph *g, const uint32_t *order, uint64_t *during)
{
    const size_t words = ((size_t)g->step_count + 63) / 64 + 1;
    uint64_t *bits = calloc(2 * words, sizeof *bits);
    if (!bits)
        return UINT64_MAX;
    order_set set = {.done = bits, .ready = bits + words};
    order_begin(g, &set);
    for (uint32_t i = 0; i < g->step_count; i++) {
        uint64_t now, after;
        order_effect(g, set.done, set.live, order[i], &now, &after);
        set.done[order[i] / 64] |= (uint64_t)1 << order[i] % 64;
        set.live = after;
        set.peak = now > set.peak ? now : set.peak;
        if (during)
            during[i] = now;
    }
    free(bits);
    return set.peak;
}

uint64_t order_bound(const order_graph *g)
{
    uint64_t most = 0, always = g->base, going = 0;
    for (uint32_t i = 0; i < g->thing_count; i++) {
        always += g->initial[i] && g->kept[i] ? g->size[i] : 0;
        going += g->initial[i] && !g->kept[i] ? g->size[i] : 0;
    }
    const uint64_t start = always + going;
    for (uint32_t step = 0; step < g->step_count; step++) {
        uint64_t here = always + g->work[step], largest = 0;
        for (uint32_t k = g->touch.first[step]; k < g->touch.first[step + 1]; k++) {
            const uint32_t thing = g->touch.items[k];
            here += g->initial[thing] && g->kept[thing] ? 0 : g->size[thing];
            largest = g->size[thing] > largest ? g->size[thing] : largest;
        }
        here -= g->over[step] != ORDER_NONE ? largest : 0; /* it may have written over the largest */
        most = here > most ? here : most;
    }
    return most > start ? most : start;
}
