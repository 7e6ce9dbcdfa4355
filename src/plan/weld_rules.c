/* The rules of welding: successors, stacks that make one, and what starts and ends together. weld.c says why,
 * and calls them until they find nothing. */
#include <string.h>

#include "plan/sort.h"
#include "plan/weld_state.h"

enum { LARGEST_GROUP = 16, LARGEST_MEETING = 12 };
#define FIRST_MEMBER ((uint32_t)1 << 31) /* set in the number of the first of several */

/* ---- Lists. ---- */

static int by_size(const void *context, uint32_t a, uint32_t b)
{
    const weld_part *parts = context;
    return (parts[a].size > parts[b].size) - (parts[a].size < parts[b].size);
}

static int by_end_and_size(const void *context, uint32_t a, uint32_t b)
{
    const weld_part *parts = context;
    const int order = (parts[a].upper > parts[b].upper) - (parts[a].upper < parts[b].upper);
    return order ? order : by_size(context, a, b);
}

/* All parts by where they end, or start, and by `order` among those of one time. */
static void make_lists(welding *w, weld_lists *lists, bool by_end, berth__sort_order order)
{
    uint32_t *first = lists->first, *list = lists->list;
    memset(first, 0, ((size_t)w->columns + 2) * sizeof *first);
    for (uint32_t k = 0; k < w->count; k++)
        first[(by_end ? w->parts[k].upper : w->parts[k].lower) + 1]++;
    for (uint32_t t = 0; t <= w->columns; t++)
        first[t + 1] += first[t];
    for (uint32_t k = 0; k < w->count; k++)
        list[first[by_end ? w->parts[k].upper : w->parts[k].lower]++] = k;
    for (uint32_t t = w->columns + 1; t > 0; t--) /* every first has moved to where the next began */
        first[t] = first[t - 1];
    first[0] = 0;
    for (uint32_t t = 0; t <= w->columns; t++)
        berth__sort_indices(list + first[t], w->scratch, first[t + 1] - first[t], order, w->parts);
}

static uint32_t list_length(const weld_lists *lists, uint32_t time)
{
    return lists->first[time + 1] - lists->first[time];
}

static uint64_t list_size(const welding *w, const weld_lists *lists, uint32_t at)
{
    return w->parts[lists->list[at]].size;
}

static bool has_size(const welding *w, const weld_lists *lists, uint32_t time, uint64_t size)
{
    uint32_t low = lists->first[time], high = lists->first[time + 1];
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const uint64_t here = list_size(w, lists, middle);
        if (here == size)
            return true;
        if (here < size)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* ---- Successors. ---- */

static uint32_t run_length(const welding *w, const weld_lists *lists, uint32_t at, uint32_t end)
{
    uint32_t length = 1;
    while (at + length < end && list_size(w, lists, at + length) == list_size(w, lists, at))
        length++;
    return length;
}

/* Writes to `next` who follows whom at one time: the only one of its size that ends, the only that starts. */
static void pair_at(const welding *w, uint32_t time, uint32_t *next)
{
    uint32_t e = w->ending.first[time], s = w->starting.first[time];
    const uint32_t ends = w->ending.first[time + 1], starts = w->starting.first[time + 1];
    while (e < ends && s < starts) {
        const uint32_t a = w->ending.list[e], b = w->starting.list[s];
        const uint64_t size_a = w->parts[a].size, size_b = w->parts[b].size;
        const uint32_t same_a = run_length(w, &w->ending, e, ends),
                       same_b = run_length(w, &w->starting, s, starts);
        if (size_a == size_b && same_a == 1 && same_b == 1 && !w->parts[a].is_fixed && !w->parts[b].is_fixed)
            next[a] = b;
        e += size_a <= size_b ? same_a : 0;
        s += size_b <= size_a ? same_b : 0;
    }
}

/* An alignment that satisfies both, or 0. */
static uint64_t common_alignment(uint64_t one, uint64_t other)
{
    return one % other == 0 ? one : other % one == 0 ? other : 0;
}

static void weld_to(welding *w, weld_part *part, const weld_part *other, uint64_t shift)
{
    part->is_welded = true;
    w->into[part->piece] = other->piece;
    w->shift[part->piece] = shift;
}

/* Who follows whom is known for all before anything is done, so that chains are welded at once. */
static uint32_t weld_successors(welding *w)
{
    uint32_t welds = 0, *next = w->scratch;
    make_lists(w, &w->ending, true, by_size);
    make_lists(w, &w->starting, false, by_size);
    for (uint32_t k = 0; k < w->count; k++)
        next[k] = WELD_NONE;
    for (uint32_t t = 1; t < w->columns; t++)
        pair_at(w, t, next);
    for (uint32_t k = 0; k < w->count; k++) { /* in order of start: a chain is met at its head first */
        weld_part *a = &w->parts[k];
        if (a->is_welded)
            continue;
        for (uint32_t follower = next[k]; follower != WELD_NONE; follower = next[follower]) {
            weld_part *b = &w->parts[follower];
            const uint64_t alignment = common_alignment(w->alignment[a->piece], w->alignment[b->piece]);
            if (alignment == 0)
                break;
            w->alignment[a->piece] = alignment;
            a->upper = b->upper;
            weld_to(w, b, a, 0);
            welds++;
        }
    }
    return welds;
}

/* ---- Stacks. ---- */

/* Puts the members on top of each other. False: alignments forbid it, and nothing is done. */
static bool stack(welding *w, const uint32_t *members, uint32_t count)
{
    weld_part *bottom = &w->parts[members[0]];
    uint64_t height = bottom->size, alignment = w->alignment[bottom->piece];
    for (uint32_t k = 1; k < count; k++) {
        const weld_part *part = &w->parts[members[k]];
        alignment = common_alignment(alignment, w->alignment[part->piece]);
        if (alignment == 0 || height % w->alignment[part->piece] != 0)
            return false;
        height += part->size;
    }
    for (uint32_t k = 1; k < count; k++) {
        weld_part *part = &w->parts[members[k]];
        weld_to(w, part, bottom, bottom->size);
        bottom->size += part->size;
    }
    w->alignment[bottom->piece] = alignment;
    return true;
}

/* Whether two or three of those that end (or start) at a time add up to `size`. */
static bool several_add_up(const welding *w, const weld_lists *lists, uint32_t time, uint64_t size)
{
    const uint32_t end = lists->first[time + 1];
    if (list_length(lists, time) > LARGEST_MEETING)
        return false;
    for (uint32_t a = lists->first[time]; a < end; a++)
        for (uint32_t b = a + 1; b < end; b++) {
            const uint64_t two = list_size(w, lists, a) + list_size(w, lists, b);
            if (two == size)
                return true;
            for (uint32_t c = b + 1; c < end && two < size; c++)
                if (two + list_size(w, lists, c) == size)
                    return true;
        }
    return false;
}

/* Whether what ends where the part starts, or starts where it ends, makes this size. */
static bool has_partner(const welding *w, uint32_t part, uint64_t size, weld_rule rule)
{
    const uint32_t start = w->parts[part].lower, end = w->parts[part].upper;
    return rule == WELD_PARTNERED
               ? has_size(w, &w->ending, start, size) || has_size(w, &w->starting, end, size)
               : several_add_up(w, &w->ending, start, size) || several_add_up(w, &w->starting, end, size);
}

/* The first two or three, or else all, that together have a partner. */
static uint32_t choose_partnered(const welding *w, const uint32_t *group, uint32_t count, weld_rule rule,
                                 uint32_t *members)
{
    for (uint32_t a = 0; a < count; a++)
        for (uint32_t b = a + 1; b < count; b++) {
            const uint64_t two = w->parts[group[a]].size + w->parts[group[b]].size;
            members[0] = group[a];
            members[1] = group[b];
            if (has_partner(w, group[a], two, rule))
                return 2;
            for (uint32_t c = b + 1; c < count && rule == WELD_PARTNERED; c++)
                if (has_partner(w, group[a], two + w->parts[group[c]].size, rule)) {
                    members[2] = group[c];
                    return 3;
                }
        }
    uint64_t all = 0;
    for (uint32_t k = 0; k < count; k++)
        all += w->parts[members[k] = group[k]].size;
    return has_partner(w, group[0], all, rule) ? count : 0;
}

/* Of a group that lives equally long: how many are to be stacked; they are written to `members`. */
static uint32_t choose_members(const welding *w, const uint32_t *group, uint32_t count, weld_rule rule,
                               uint32_t *members)
{
    for (uint32_t k = 0; k < count; k++)
        if (w->parts[group[k]].is_fixed)
            return 0;
    if (rule == WELD_TOGETHER) {
        memcpy(members, group, count * sizeof *members);
        return list_length(&w->starting, w->parts[group[0]].lower) == count ||
                       list_length(&w->ending, w->parts[group[0]].upper) == count
                   ? count
                   : 0;
    }
    return count > LARGEST_GROUP ? 0 : choose_partnered(w, group, count, rule, members);
}

static bool live_equally_long(const weld_part *a, const weld_part *b)
{
    return a->lower == b->lower && a->upper == b->upper;
}

/* All are chosen before the first is stacked, so that what is chosen does not depend on the order. */
static uint32_t weld_stacks(welding *w, weld_rule rule)
{
    uint32_t chosen = 0, welds = 0;
    make_lists(w, &w->ending, true, by_size);
    make_lists(w, &w->starting, false, by_size);
    make_lists(w, &w->lives, false, by_end_and_size);
    for (uint32_t at = 0, after; at < w->count; at = after) {
        const uint32_t *group = w->lives.list + at;
        for (after = at + 1; after < w->count; after++)
            if (!live_equally_long(&w->parts[*group], &w->parts[w->lives.list[after]]))
                break;
        const uint32_t count =
            after - at > 1 ? choose_members(w, group, after - at, rule, w->scratch + chosen) : 0;
        if (count)
            w->scratch[chosen] |= FIRST_MEMBER;
        chosen += count;
    }
    for (uint32_t at = 0, after; at < chosen; at = after) {
        w->scratch[at] &= ~FIRST_MEMBER;
        for (after = at + 1; after < chosen && !(w->scratch[after] & FIRST_MEMBER);)
            after++;
        welds += stack(w, w->scratch + at, after - at);
    }
    return welds;
}

uint32_t berth__weld_apply(welding *w, weld_rule rule)
{
    return rule == WELD_SUCCESSORS ? weld_successors(w) : weld_stacks(w, rule);
}
