/* Whether a prepared problem is what prepared.h says. For tests and debug builds. */
#include "planner/problem/prepared.h"

/* The pieces of one item: in order of time, disjoint, and what its hull and size say. */
static bool pieces_are_valid(const berth__prepared *p, uint32_t item)
{
    const uint32_t begin = berth__piece_begin(p, item), end = berth__piece_end(p, item);
    uint64_t largest = 0;
    if (begin >= end || end > p->piece_count)
        return false;
    for (uint32_t k = begin; k < end; k++) {
        if (p->piece_lower[k] >= p->piece_upper[k] || p->piece_upper[k] > p->column_count ||
            p->piece_size[k] == 0 || (k > begin && p->piece_upper[k - 1] > p->piece_lower[k]))
            return false;
        largest = p->piece_size[k] > largest ? p->piece_size[k] : largest;
    }
    return p->lower[item] == p->piece_lower[begin] && p->upper[item] == p->piece_upper[end - 1] &&
           p->size[item] == largest;
}

/* Canonical order as far as every maker of problems keeps it: the rest decides among equals only. */
static bool are_in_order(const berth__prepared *p, uint32_t a, uint32_t b)
{
    if (p->lower[a] != p->lower[b])
        return p->lower[a] < p->lower[b];
    if (p->upper[a] != p->upper[b])
        return p->upper[a] < p->upper[b];
    return p->piece_first || p->size[a] <= p->size[b];
}

static bool most_is_live(const berth__prepared *p)
{
    uint64_t load[256] = {0}, live = 0, most = 0;
    if (p->column_count >= BERTH_COUNT_OF(load))
        return true;
    for (uint32_t k = 0; k < p->piece_count; k++) {
        load[p->piece_lower[k]] += p->piece_size[k];
        load[p->piece_upper[k]] -= p->piece_size[k];
    }
    for (uint32_t c = 0; c <= p->column_count; c++) {
        live += load[c];
        most = live > most ? live : most;
    }
    return most == p->max_live && live == 0;
}

bool berth__prepared_is_valid(const berth__prepared *p)
{
    if (p->piece_first ? p->piece_first[p->item_count] != p->piece_count
                       : p->piece_count != p->item_count || p->piece_lower != p->lower)
        return false;
    for (uint32_t i = 0; i < p->item_count; i++)
        if (!pieces_are_valid(p, i) || (i > 0 && !are_in_order(p, i - 1, i)) ||
            berth__item_alignment(p, i) == 0 ||
            (berth__item_fixed(p, i) != BERTH_NO_OFFSET && berth__item_alignment(p, i) != 1))
            return false;
    return p->unit_bytes > 0 && most_is_live(p) &&
           p->is_plain == (!p->piece_first && !p->alignment && !p->fixed);
}
