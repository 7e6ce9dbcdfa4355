/* The rules of welding: successors, stacks that make one, and what starts and ends together. weld.c says why,
 * and calls them until they find nothing. */
#include <string.h>

#include "base/random.h"
#include "base/sort.h"
#include "planner/merge/weld_state.h"

enum { LARGEST_GROUP = 16, LARGEST_MEETING = 12, INSERTION_LIMIT = 16 };
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

/* Short lists, which most are, are sorted where they stand. */
static void sort_list(welding *w, uint32_t *list, uint64_t *size, uint32_t count)
{
    if (count > INSERTION_LIMIT) {
        berth__sort_indices(list, w->scratch, count, by_size, w->parts);
        for (uint32_t at = 0; at < count; at++)
            size[at] = w->parts[list[at]].size;
        return;
    }
    for (uint32_t at = 1; at < count; at++) {
        const uint64_t this_size = size[at];
        const uint32_t this_part = list[at];
        uint32_t to = at;
        for (; to > 0 && size[to - 1] > this_size; to--) {
            size[to] = size[to - 1];
            list[to] = list[to - 1];
        }
        size[to] = this_size;
        list[to] = this_part;
        BERTH_DCHECK(size[to] == w->parts[this_part].size && size[at - 1] <= size[at],
                     "[L10] lists are by size");
    }
}

/* All parts by where they end, or start, and by size among those of one time. */
static void make_lists(welding *w, weld_lists *lists, bool by_end)
{
    uint32_t *first = lists->first;
    memset(first, 0, ((size_t)w->columns + 2) * sizeof *first);
    for (uint32_t k = 0; k < w->count; k++)
        first[(by_end ? w->parts[k].upper : w->parts[k].lower) + 1]++;
    for (uint32_t t = 0; t <= w->columns; t++)
        first[t + 1] += first[t];
    for (uint32_t k = 0; k < w->count; k++) {
        const uint32_t at = first[by_end ? w->parts[k].upper : w->parts[k].lower]++;
        lists->list[at] = k;
        lists->size[at] = w->parts[k].size;
    }
    for (uint32_t t = w->columns + 1; t > 0; t--) /* every first has moved to where the next began */
        first[t] = first[t - 1];
    first[0] = 0;
    BERTH_DCHECK(first[w->columns + 1] == w->count, "[L10] the list has every part");
    for (uint32_t t = 0; t <= w->columns; t++)
        sort_list(w, lists->list + first[t], lists->size + first[t], first[t + 1] - first[t]);
}

static uint32_t list_length(const weld_lists *lists, uint32_t time)
{
    BERTH_DCHECK(lists->first[time] <= lists->first[time + 1], "[L10] lists are by time");
    return lists->first[time + 1] - lists->first[time];
}

static bool has_size(const weld_lists *lists, uint32_t time, uint64_t size)
{
    uint32_t low = lists->first[time], high = lists->first[time + 1];
    BERTH_DCHECK(low >= high || lists->size[low] <= lists->size[high - 1],
                 "[L10] those of one time are by size");
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const uint64_t here = lists->size[middle];
        if (here == size)
            return true;
        if (here < size)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

/* Whether so many looks at sizes would hardly have met `size` by chance. Sizes are of all magnitudes, so that
 * about one look in `size` meets it. A varied welding errs between half and twice. */
static bool is_sure(welding *w, uint64_t looks, uint64_t size)
{
    const uint64_t error =
        w->is_varied ? WELD_ONE / 2 + berth__random(&w->random) % (WELD_ONE * 3 / 2) : WELD_ONE;
    return looks < 2 || (double)((looks - 1) * error) <= w->daring * (double)size;
}

/* ---- Successors. ---- */

static uint32_t run_length(const weld_lists *lists, uint32_t at, uint32_t end)
{
    BERTH_DCHECK(at < end, "[L10] a run has a part");
    uint32_t length = 1;
    while (at + length < end && lists->size[at + length] == lists->size[at])
        length++;
    return length;
}

/* Writes to `next` who follows whom at one time: the only one of its size that ends, the only that starts. */
static void pair_at(welding *w, uint32_t time, uint32_t *next)
{
    uint32_t e = w->ending.first[time], s = w->starting.first[time];
    const uint32_t ends = w->ending.first[time + 1], starts = w->starting.first[time + 1];
    while (e < ends && s < starts) {
        const uint64_t size_a = w->ending.size[e], size_b = w->starting.size[s];
        const uint32_t same_a = run_length(&w->ending, e, ends), same_b = run_length(&w->starting, s, starts);
        if (size_a == size_b && same_a == 1 && same_b == 1 &&
            is_sure(w, list_length(&w->ending, time) * list_length(&w->starting, time), size_a)) {
            const uint32_t a = w->ending.list[e], b = w->starting.list[s];
            BERTH_DCHECK(w->parts[a].upper == time && w->parts[b].lower == time && next[a] == WELD_NONE,
                         "[L15] a follower begins where one ends");
            if (!w->parts[a].is_fixed && !w->parts[b].is_fixed)
                next[a] = b;
        }
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
    BERTH_DCHECK(!part->is_fixed && !other->is_fixed,
                 "[L15] pins and items of several pieces are not welded");
    BERTH_DCHECK(!part->is_welded && !other->is_welded && w->into[part->piece] == part->piece,
                 "[L15] a part is welded once");
    part->is_welded = true;
    w->into[part->piece] = other->piece;
    w->shift[part->piece] = shift;
}

/* Who follows whom is known for all before anything is done, so that chains are welded at once. */
static uint32_t weld_successors(welding *w)
{
    uint32_t welds = 0, *next = w->scratch;
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
            BERTH_DCHECK(a->upper == b->lower && a->size == b->size,
                         "[L15] a successor begins where one of its size ends");
            w->alignment[a->piece] = alignment;
            a->upper = b->upper;
            weld_to(w, b, a, 0);
            welds++;
        }
    }
    return welds;
}

/* ---- Stacks. ---- */

static bool live_equally_long(const weld_part *a, const weld_part *b)
{
    return a->lower == b->lower && a->upper == b->upper;
}

/* Puts the members on top of each other. False: alignments forbid it, and nothing is done. */
static bool weld_rules_stack(welding *w, const uint32_t *members, uint32_t count)
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
        BERTH_DCHECK(live_equally_long(part, bottom), "[L15] a stack lives as long as its layers");
        BERTH_DCHECK(bottom->size % w->alignment[part->piece] == 0, "[L2] a layer keeps its alignment");
        weld_to(w, part, bottom, bottom->size);
        bottom->size += part->size;
    }
    BERTH_DCHECK(bottom->size == height, "[L15] a stack is as high as its layers");
    w->alignment[bottom->piece] = alignment;
    return true;
}

/* Whether two or three of those that end (or start) at a time add up to `size`. */
static bool several_add_up(const weld_lists *lists, uint32_t time, uint64_t size)
{
    const uint32_t end = lists->first[time + 1];
    if (list_length(lists, time) > LARGEST_MEETING)
        return false;
    for (uint32_t a = lists->first[time]; a < end; a++)
        for (uint32_t b = a + 1; b < end; b++) {
            const uint64_t two = lists->size[a] + lists->size[b];
            if (two == size)
                return true;
            for (uint32_t c = b + 1; c < end && two < size; c++)
                if (two + lists->size[c] == size)
                    return true;
        }
    return false;
}

/* Whether what ends where the part starts, or starts where it ends, makes this size, which is one of
 * `choices`. */
static bool has_partner(welding *w, uint32_t part, uint64_t size, weld_rule rule, uint64_t choices)
{
    const uint32_t start = w->parts[part].lower, end = w->parts[part].upper;
    BERTH_DCHECK(start < end && end <= w->columns, "[L7] every part lives within the columns");
    const uint64_t ends = list_length(&w->ending, start), starts = list_length(&w->starting, end);
    const uint64_t looks = rule == WELD_PARTNERED ? ends + starts : ends * ends + starts * starts;
    if (!is_sure(w, choices * looks, size))
        return false;
    return rule == WELD_PARTNERED
               ? has_size(&w->ending, start, size) || has_size(&w->starting, end, size)
               : several_add_up(&w->ending, start, size) || several_add_up(&w->starting, end, size);
}

/* The first two or three, or else all, that together have a partner. */
static uint32_t choose_partnered(welding *w, const uint32_t *group, uint32_t count, weld_rule rule,
                                 uint32_t *members)
{
    const uint64_t twos = (uint64_t)count * (count - 1) / 2, threes = twos * count / 3;
    for (uint32_t a = 0; a < count; a++)
        for (uint32_t b = a + 1; b < count; b++) {
            const uint64_t two = w->parts[group[a]].size + w->parts[group[b]].size;
            members[0] = group[a];
            members[1] = group[b];
            if (has_partner(w, group[a], two, rule, twos))
                return 2;
            for (uint32_t c = b + 1; c < count && rule == WELD_PARTNERED; c++)
                if (has_partner(w, group[a], two + w->parts[group[c]].size, rule, threes)) {
                    members[2] = group[c];
                    return 3;
                }
        }
    uint64_t all = 0;
    for (uint32_t k = 0; k < count; k++)
        all += w->parts[members[k] = group[k]].size;
    return has_partner(w, group[0], all, rule, 1) ? count : 0;
}

/* Of a group that lives equally long: how many are to be stacked; they are written to `members`. */
static uint32_t choose_members(welding *w, const uint32_t *group, uint32_t count, weld_rule rule,
                               uint32_t *members)
{
    for (uint32_t k = 0; k < count; k++)
        if (w->parts[group[k]].is_fixed)
            return 0;
    if (rule == WELD_TOGETHER) {
        if (w->daring < WELD_DARE_TOGETHER)
            return 0;
        memcpy(members, group, count * sizeof *members);
        return list_length(&w->starting, w->parts[group[0]].lower) == count ||
                       list_length(&w->ending, w->parts[group[0]].upper) == count
                   ? count
                   : 0;
    }
    return count > LARGEST_GROUP ? 0 : choose_partnered(w, group, count, rule, members);
}

static void shuffle(welding *w, uint32_t *group, uint32_t count)
{
    for (uint32_t k = count; k > 1; k--) {
        const uint32_t other = (uint32_t)(berth__random(&w->random) % k), kept = group[k - 1];
        group[k - 1] = group[other];
        group[other] = kept;
    }
}

/* All are chosen before the first is stacked, so that what is chosen does not depend on the order. */
static uint32_t weld_stacks(welding *w, weld_rule rule)
{
    uint32_t chosen = 0, welds = 0;
    for (uint32_t at = 0, after; at < w->count; at = after) {
        uint32_t *group = w->lives + at;
        for (after = at + 1; after < w->count; after++)
            if (!live_equally_long(&w->parts[*group], &w->parts[w->lives[after]]))
                break;
        if (w->is_varied)
            shuffle(w, group, after - at);
        const uint32_t count =
            after - at > 1 ? choose_members(w, group, after - at, rule, w->scratch + chosen) : 0;
        if (count)
            w->scratch[chosen] |= FIRST_MEMBER;
        chosen += count;
        BERTH_DCHECK(chosen <= after, "[L15] each is chosen once");
    }
    for (uint32_t at = 0, after; at < chosen; at = after) {
        w->scratch[at] &= ~FIRST_MEMBER;
        for (after = at + 1; after < chosen && !(w->scratch[after] & FIRST_MEMBER);)
            after++;
        welds += weld_rules_stack(w, w->scratch + at, after - at);
    }
    return welds;
}

/* All lists, once for all rules that find nothing. */
static void look_around(welding *w)
{
    make_lists(w, &w->ending, true);
    make_lists(w, &w->starting, false);
    memcpy(w->lives, w->starting.list, w->count * sizeof *w->lives);
    for (uint32_t t = 0; t < w->columns; t++)
        berth__sort_indices(w->lives + w->starting.first[t], w->scratch, list_length(&w->starting, t),
                            by_end_and_size, w->parts);
    BERTH_DCHECK(w->count == w->starting.first[w->columns],
                 "[L10] every part starts before the last column ends");
    w->has_looked = true;
}

uint32_t berth__weld_apply(welding *w, weld_rule rule)
{
    if (!w->has_looked)
        look_around(w);
    return rule == WELD_SUCCESSORS ? weld_successors(w) : weld_stacks(w, rule);
}
