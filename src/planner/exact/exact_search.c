/* The exact search itself: place or defer, explain dead ends, jump back.
 *
 * Among all plans that fit there is one, call it S*, that is smallest first in the sum of area x offset and
 * then in the offsets read by item. Nothing in S* can be moved down, so every item in it rests on the floor
 * or on a neighbour (an item that lives at a common time). The search looks for S* only:
 *
 *  - Every unplaced item has a `low`: S* has it at or above that, given the placements in its `why`.
 *  - Take an unplaced item i of the lowest low. Place it there: then every unplaced neighbour j is at or
 *    above i's offset, so above i's top, and j's low rises to it because of i (and of j's own why, unless j is
 *    too large to lie below i at all).
 *  - If that fails, defer it: i is above its low, so it rests on a neighbour that is not placed yet (all
 *    placed ones end at or below its low), and its low rises to the lowest top any of them can have.
 *  - A section whose unplaced items need more than there is above them is a dead end (exact_bound.c).
 *
 * Every dead end comes with a set of placements from which it follows. If the last placement is not among
 * them, trying that item elsewhere changes nothing: the search returns to one that is (conflict-directed
 * backjumping, Prosser 1993). What follows from S* being the smallest prunes too; each rule below says why it
 * spares S*: equal items are in order, an item never lies above a place where it fits, and of two items one
 * on the other the longer-lived is below.
 *
 * "Infeasible" is thus a proof: the whole tree has been cut by rules that spare S*, and S* was not in it.
 *
 * The order of ties decides how soon a plan is found: items of sections that often did not fit come first
 * (weights as in dom/wdeg, Boussemart and others 2004), and exact.c restarts with varied priorities. */
#include <string.h>

#include "planner/exact/exact_state.h"

/* ---- Dead ends. ---- */

static void add_weight(berth__exact *x, uint32_t section, double amount)
{
    BERTH_DCHECK(section < x->sections && amount > 0.0, "[L16] weights are of sections, and only grow");
    x->weight[section] += amount * x->weight_step;
}

/* Later dead ends count a little more, so that old ones fade. */
static void age_weights(berth__exact *x)
{
    x->weight_step *= 1.002;
    if (x->weight_step < 1e60)
        return;
    for (uint32_t s = 0; s < x->sections; s++)
        x->weight[s] *= 1e-60;
    x->weight_step *= 1e-60;
}

static bool is_over(const berth__exact *x, uint32_t section)
{
    return x->narrow ? ((const int16_t *)x->over)[section] != 0 : ((const int32_t *)x->over)[section] != 0;
}

static uint32_t size_in(const berth__exact *x, uint32_t item, uint32_t section)
{
    BERTH_DCHECK(section >= x->first[item] && section < x->last[item],
                 "[L7] a size is asked for where the item lives");
    size_t at = span_lane(&x->spans[item], section);
    return x->narrow ? (uint32_t)((const int16_t *)x->rows)[at] : (uint32_t)((const int32_t *)x->rows)[at];
}

/* An item that is pushed past the capacity. */
static void explain_item(berth__exact *x, uint32_t i)
{
    BERTH_DCHECK(x->low[i] + x->size[i] > x->capacity, "[L17] what is explained is past the capacity");
    double share = 1.0 / (double)(x->last[i] - x->first[i]);
    for (uint32_t s = x->first[i]; s < x->last[i]; s++)
        add_weight(x, s, share);
    memcpy(x->conflict, set_of(x->why, x, i), x->words * sizeof(uint64_t));
}

/* Sections that do not fit: all get heavier, and one of them is the reason. */
static void explain_sections(berth__exact *x, const exact_entry *list, uint32_t count)
{
    uint32_t chosen = EXACT_NONE;
    for (uint32_t s = x->dirty_first; s < x->dirty_last; s++)
        if (is_over(x, s)) {
            add_weight(x, s, 1.0);
            if (chosen == EXACT_NONE || (exact_random(x) & 1))
                chosen = s;
        }
    BERTH_DCHECK(chosen != EXACT_NONE, "[L17] a bound that failed failed somewhere it was computed");
    memset(x->conflict, 0, x->words * sizeof *x->conflict);
    uint32_t sum = 0;
    for (uint32_t at = count; at-- > 0;) {
        uint32_t i = entry_item(list[at]);
        if (x->first[i] > chosen || x->last[i] <= chosen)
            continue;
        uint32_t size = size_in(x, i, chosen);
        if (size == 0)
            continue;
        sum += size;
        set_join(x->conflict, set_of(x->why, x, i), x->words);
        if (sum + x->low[i] > x->capacity)
            return;
    }
    BERTH_DCHECK(false, "[L17] the items of a section that does not fit explain why");
}

#ifndef NDEBUG
static bool list_is_sorted(const berth__exact *x, const exact_entry *list, uint32_t count)
{
    for (uint32_t at = 0; at < count; at++)
        if (entry_low(list[at]) != x->low[entry_item(list[at])] ||
            (at > 0 && entry_low(list[at - 1]) > entry_low(list[at])))
            return false;
    return true;
}
#endif

/* Brings the list in order after lows have risen: what rose is taken out, sorted by insertion (most of it
 * rose to the same height and is in order already) and merged back. Returns an item that is past the
 * capacity, or EXACT_NONE. */
static uint32_t sort_list(berth__exact *x, exact_entry *list, uint32_t count)
{
    exact_entry *risen = x->lists + x->list_top;
    uint32_t rises = 0, kept = 0, past = EXACT_NONE;
    for (uint32_t at = 0; at < count; at++) {
        uint32_t i = entry_item(list[at]), low = x->low[i];
        BERTH_DCHECK(set_has(x->unplaced, i) && low >= entry_low(list[at]),
                     "[L16] lists are of unplaced items, whose lows only rise");
        if (low == entry_low(list[at])) {
            list[kept++] = list[at];
            continue;
        }
        if (low + x->size[i] > x->capacity)
            past = i;
        exact_entry entry = (exact_entry)low << 32 | i;
        uint32_t to = rises++;
        for (; to > 0 && entry_low(risen[to - 1]) > low; to--)
            risen[to] = risen[to - 1];
        risen[to] = entry;
    }
    for (uint32_t at = count; rises > 0;)
        list[--at] = kept > 0 && entry_low(list[kept - 1]) > entry_low(risen[rises - 1]) ? list[--kept]
                                                                                         : risen[--rises];
    BERTH_DCHECK(list_is_sorted(x, list, count), "[L16] lists are in order of lows");
    return past;
}

/* False: dead end, with `conflict` set. */
static bool still_fits(berth__exact *x, exact_entry *list, uint32_t count)
{
    if (x->dirty_first >= x->dirty_last)
        return true;
    BERTH_DCHECK(x->dirty_last <= x->sections, "[L7] what has risen lives in sections");
    uint32_t past = sort_list(x, list, count);
    bool fits = past == EXACT_NONE;
    if (!fits) {
        explain_item(x, past);
    } else {
        exact_pass pass = {.list = list,
                           .count = count,
                           .first_section = x->dirty_first,
                           .last_section = x->dirty_last,
                           .spans = x->spans,
                           .rows = x->rows,
                           .sums = x->sums,
                           .over = x->over,
                           .capacity = x->capacity};
        fits = x->pass(&pass);
        if (!fits)
            explain_sections(x, list, count);
    }
    x->dirty_first = UINT32_MAX;
    x->dirty_last = 0;
    if (!fits) {
        x->fails++;
        age_weights(x);
    }
    return fits;
}

/* ---- The tree. ---- */

static double heaviest_section(const berth__exact *x, uint32_t i)
{
    double heaviest = 0.0;
    for (uint32_t s = x->first[i]; s < x->last[i]; s++)
        heaviest = x->weight[s] > heaviest ? x->weight[s] : heaviest;
    return heaviest;
}

/* Counts by section how many of the items of lowest low live there, or clears the counts. */
static void count_rivals(berth__exact *x, const exact_entry *list, uint32_t ties, bool clear)
{
    for (uint32_t at = 0; at < ties; at++) {
        uint32_t i = entry_item(list[at]);
        for (uint32_t s = x->first[i]; s < x->last[i]; s++)
            x->rivals[s] = clear ? 0 : x->rivals[s] + 1;
    }
}

/* A section in which nothing may be wasted at this height: one of the items of lowest low that live there
 * must be placed now. Returns the one with the fewest such items for its weight, one with a single item
 * first, or EXACT_NONE if there is no such section. */
static uint32_t tightest_section(const berth__exact *x, const exact_entry *list, uint32_t ties)
{
    const uint32_t room = x->capacity - entry_low(list[0]);
    uint32_t tightest = EXACT_NONE;
    double fewest = 1e300;
    for (uint32_t at = 0; at < ties; at++) {
        uint32_t i = entry_item(list[at]);
        for (uint32_t s = x->first[i]; s < x->last[i]; s++)
            if (x->load[s] == room) {
                if (x->rivals[s] == 1)
                    return s;
                if ((double)x->rivals[s] < fewest * x->weight[s]) {
                    fewest = (double)x->rivals[s] / x->weight[s];
                    tightest = s;
                }
            }
    }
    return tightest;
}

/* How many ends of an item's life are at a wall: no other item of lowest low lives beyond. */
static uint32_t walls_touched(const berth__exact *x, uint32_t i)
{
    bool left = x->first[i] == 0 || x->rivals[x->first[i] - 1] == 0;
    bool right = x->last[i] == x->sections || x->rivals[x->last[i]] == 0;
    return (uint32_t)left + (uint32_t)right;
}

/* Of the items with the lowest low, the one with the heaviest section times its priority; if there is a
 * section in which nothing may be wasted, of those that live in it, and rather one that fits between walls:
 * on the first run only, since the weights that are learned serve later ones better. */
static uint32_t pick(berth__exact *x, const exact_entry *list, uint32_t count)
{
    static const double wall_factor[] = {1.0, 8.0, 64.0};
    BERTH_DCHECK(count > 0, "[L16] a frame without items has ended");
    const uint32_t lowest = entry_low(list[0]);
    uint32_t best = entry_item(list[0]), ties = 0;
    for (; ties < count && entry_low(list[ties]) == lowest; ties++)
        if (exact_is_pinned(x, entry_item(list[ties])))
            return entry_item(list[ties]); /* no choice to make */
    if (ties == 1)
        return best;
    count_rivals(x, list, ties, false);
    const uint32_t tight = x->run_number == 1 ? tightest_section(x, list, ties) : EXACT_NONE;
    double best_value = -1.0;
    for (uint32_t at = 0; at < ties; at++) {
        uint32_t i = entry_item(list[at]);
        double value = heaviest_section(x, i) * x->priority[i];
        if (tight != EXACT_NONE) {
            if (x->first[i] > tight || x->last[i] <= tight)
                continue;
            value *= wall_factor[walls_touched(x, i)];
        }
        if (value > best_value) {
            best_value = value;
            best = i;
        }
    }
    BERTH_DCHECK(tight == EXACT_NONE || (x->first[best] <= tight && tight < x->last[best]),
                 "[L16] in a section without waste one of its items is placed");
    count_rivals(x, list, ties, true);
    return best;
}

/* A node costs a look at every item left in every section of its life, a lane of them at once. */
static bool limit_met(berth__exact *x, uint32_t count)
{
    const uint64_t lanes = (uint64_t)x->mean_life * count / EXACT_LANES / 16, items = 4 + count / 8;
    if (berth__search_step(x->search, lanes > items ? lanes : items) || x->search->steps >= x->step_limit ||
        x->fails >= x->fail_limit)
        x->aborted = true;
    return x->aborted;
}

/* ---- The walk. ----
 *
 * The tree is as deep as there are items, and is walked on threads whose stacks are small: what a recursive
 * function would keep in its frames is kept in x->frames. A frame is a problem [from, to); `answer` is what
 * the one below it came to. */

static exact_entry *frame_list(const berth__exact *x, const exact_frame *frame)
{
    return x->lists + frame->list_mark;
}

/* Begins with the unplaced items of sections [from, to), which are those of `parent` that lie inside. */
static void frame_begin(berth__exact *x, uint32_t from, uint32_t to, const exact_entry *parent,
                        uint32_t parent_count)
{
    BERTH_DCHECK(x->depth < 2 * x->count + 2 && from <= to && to <= x->sections,
                 "[L16] there is a frame for every item, and it has sections");
    exact_frame *frame = &x->frames[x->depth++];
    *frame = (exact_frame){
        .list_mark = x->list_top, .trail_mark = x->trail_count, .from = from, .to = to, .state = FRAME_NEW};
    exact_entry *list = frame_list(x, frame);
    for (uint32_t at = 0; at < parent_count; at++) {
        uint32_t i = entry_item(parent[at]);
        if (set_has(x->unplaced, i) && x->first[i] >= from && x->last[i] <= to)
            list[frame->count++] = parent[at];
    }
    x->list_top += frame->count;
    BERTH_DCHECK(x->list_top <= x->list_room, "[L16] there is room for the lists of all levels");
}

/* On false all is as before, and unless aborted `conflict` explains. */
static bool frame_end(berth__exact *x, const exact_frame *frame, bool solved)
{
    BERTH_DCHECK(frame == &x->frames[x->depth - 1], "[L16] the last frame ends first");
    if (!solved) {
        berth__exact_undo(x, frame->trail_mark);
        x->dirty_first = UINT32_MAX;
        x->dirty_last = 0;
    }
    BERTH_DCHECK(solved || x->aborted || set_is_within(x->conflict, x->decided, x->words),
                 "[L17] a dead end follows from choices that stand");
    x->list_top = frame->list_mark;
    x->depth--;
    return solved;
}

/* Where no unplaced item crosses from one section to the next, the sides are problems of their own. */
static bool falls_apart(const berth__exact *x, const exact_frame *frame)
{
    uint32_t s = frame->from;
    while (s + 1 < frame->to && x->crossing[s] > 0)
        s++;
    return s + 1 < frame->to;
}

/* Begins with the next side. */
static void begin_side(berth__exact *x, exact_frame *frame)
{
    const uint32_t begin = frame->next;
    BERTH_DCHECK(frame->from <= begin && begin < frame->to, "[L16] sides are sections of their frame");
    uint32_t s = begin;
    while (s + 1 < frame->to && x->crossing[s] > 0)
        s++;
    frame->next = s + 1;
    frame_begin(x, begin, s + 1, frame_list(x, frame), frame->count);
}

static uint64_t *failed_of(berth__exact *x, const exact_frame *frame)
{
    return x->kept_sets + (size_t)(frame - x->frames) * x->words;
}

/* Picks an item and places it, which begins a frame, or defers it, and the next. False: dead end. */
static bool pick_and_place(berth__exact *x, exact_frame *frame)
{
    for (;;) {
        const uint32_t i = frame->item = pick(x, frame_list(x, frame), frame->count);
        BERTH_DCHECK(set_has(x->unplaced, i) && x->base[i] <= x->low[i],
                     "[L16] what is picked is not placed, and above what it could rest on");
        memset(failed_of(x, frame), 0, x->words * sizeof(uint64_t));
        if (exact_is_pinned(x, i) || (x->base[i] == x->low[i] && !berth__exact_is_dominated(x, i))) {
            frame->place_mark = x->trail_count;
            frame->state = FRAME_PLACED;
            berth__exact_place(x, i);
            if (x->aborted)
                return false;
            frame_begin(x, frame->from, frame->to, frame_list(x, frame), frame->count);
            return true;
        }
        if (!berth__exact_defer(x, i, failed_of(x, frame)) || limit_met(x, frame->count) ||
            !still_fits(x, frame_list(x, frame), frame->count))
            return false;
    }
}

/* The item that was placed leads to a dead end: defers it. False: so does that. */
static bool defer_placed(berth__exact *x, exact_frame *frame)
{
    uint64_t *failed = failed_of(x, frame);
    berth__exact_undo(x, frame->place_mark);
    BERTH_DCHECK(set_has(x->unplaced, frame->item), "[L16] what is tried elsewhere is where it was before");
    if (x->aborted || !set_has(x->conflict, frame->item))
        return false; /* with the item anywhere else it would fail for the same reasons */
    memcpy(failed, x->conflict, x->words * sizeof *failed);
    set_drop(failed, frame->item);
    return berth__exact_defer(x, frame->item, failed) && !limit_met(x, frame->count) &&
           still_fits(x, frame_list(x, frame), frame->count);
}

/* Goes on with the last frame until it begins another one or has its own answer: then it ends and `answer`
 * is that. */
static void frame_go_on(berth__exact *x, bool *answer)
{
    exact_frame *frame = &x->frames[x->depth - 1];
    bool goes_on = true;
    if (frame->state == FRAME_NEW) {
        if (frame->count == 0) {
            *answer = frame_end(x, frame, true);
            return;
        }
        goes_on = !limit_met(x, frame->count) && still_fits(x, frame_list(x, frame), frame->count);
        frame->next = frame->from;
        frame->state = goes_on && falls_apart(x, frame) ? FRAME_APART : FRAME_NEW;
        *answer = true; /* of no side so far */
    } else if (*answer && (frame->state == FRAME_PLACED || frame->next == frame->to)) {
        *answer = frame_end(x, frame, true);
        return;
    } else if (frame->state == FRAME_PLACED) {
        goes_on = defer_placed(x, frame);
    } else {
        goes_on = *answer;
    }
    if (goes_on && frame->state == FRAME_APART)
        begin_side(x, frame);
    else if (!goes_on || !pick_and_place(x, frame))
        *answer = frame_end(x, frame, false);
}

#ifndef NDEBUG
static bool is_all_placed(const berth__exact *x)
{
    for (uint32_t w = 0; w < x->words; w++)
        if (x->unplaced[w])
            return false;
    return true;
}
#endif

bool berth__exact_dive(berth__exact *x)
{
    exact_entry *root = x->lists;
    for (uint32_t i = 0; i < x->count; i++)
        root[i] = i; /* with low 0, and put right by the first sort */
    BERTH_DCHECK(x->trail_count == 0 && berth__exact_is_valid(x), "[L16] a dive begins with nothing placed");
    x->list_top = x->count;
    x->dirty_first = 0;
    x->dirty_last = x->sections;
    x->depth = 0;
    frame_begin(x, 0, x->sections, root, x->count);
    bool solved = false;
    while (x->depth > 0)
        frame_go_on(x, &solved);
    BERTH_DCHECK(solved || x->trail_count == 0, "[L16] a dead end takes everything back");
    BERTH_DCHECK(x->list_top == x->count && (x->aborted || berth__exact_is_valid(x)),
                 "[L16] [L17] a dive leaves sets, loads and reasons in order");
    BERTH_DCHECK(!solved || is_all_placed(x), "[L16] a plan has a place for every item");
    x->list_top = 0;
    return solved;
}
