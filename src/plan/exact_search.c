/* The exact search itself: place or defer, explain dead ends, jump back.
 *
 * Among all plans that fit there is one, call it S*, that is smallest first in the sum of area x offset and
 * then in the offsets read by item. Nothing in S* can be moved down, so every item in it rests on the floor
 * or on a neighbour (an item that lives at a common time). The search looks for S* only:
 *
 *  - Every unplaced item has a `low`: S* has it at or above that, given the placements in its `why`.
 *  - Take an unplaced item i of the lowest low. Place it there: then every unplaced neighbour j is at or
 * above i's offset, so above i's top, and j's low rises to it because of i (and of j's own why, unless j is
 * too large to lie below i at all).
 *  - If that fails, defer it: i is above its low, so it rests on a neighbour that is not placed yet (all
 * placed ones end at or below its low), and its low rises to the lowest top any of them can have.
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

#include "plan/exact_state.h"

static uint32_t separation(const berth__exact *x, uint32_t below, uint32_t above)
{
    return x->separation ? x->separation[(size_t)below * x->count + above] : x->size[below];
}

static bool is_pinned(const berth__exact *x, uint32_t item)
{
    return x->pin_count && x->prepared->fixed[item] != BERTH_NO_OFFSET;
}

uint32_t berth__exact_normalise(const berth__exact *x, uint32_t item, uint32_t height)
{
    if (!x->has_alignment && !x->pin_count)
        return height;
    bool moved = true;
    while (moved) {
        moved = false;
        height = (uint32_t)berth__item_align(x->prepared, item, height);
        for (uint32_t k = 0; k < x->pin_count; k++) {
            uint32_t pin = x->pins[k], bottom = (uint32_t)x->prepared->fixed[pin];
            if (pin == item || !set_has(set_of(x->adjacent, x, item), pin))
                continue;
            if (height + separation(x, item, pin) > bottom && height < bottom + separation(x, pin, item)) {
                height = bottom + separation(x, pin, item);
                moved = true;
            }
        }
    }
    return height;
}

/* ---- The trail: what to put back. ---- */

static bool trail_grow(berth__exact *x)
{
    size_t room = x->trail_room * 2;
    exact_undo *grown = berth__heap_realloc(x->trail, room * sizeof *grown);
    if (!grown)
        return false;
    x->trail = grown;
    x->trail_room = room;
    return true;
}

static bool why_grow(berth__exact *x)
{
    size_t room = x->why_room * 2;
    uint64_t *grown = berth__heap_realloc(x->why_trail, room * x->words * sizeof *grown);
    if (!grown)
        return false;
    x->why_trail = grown;
    x->why_room = room;
    return true;
}

static bool trail_room(berth__exact *x)
{
    if (x->trail_count < x->trail_room || trail_grow(x))
        return true;
    x->out_of_memory = x->aborted = true;
    return false;
}

/* Out of memory makes the whole dive stop, so that what is not remembered is never put back wrongly. */
static void remember(berth__exact *x, uint32_t item, bool with_why)
{
    if (!trail_room(x))
        return;
    if (with_why && x->why_count == x->why_room && !why_grow(x)) {
        x->out_of_memory = x->aborted = true;
        return;
    }
    x->trail[x->trail_count++] =
        (exact_undo){item, x->low[item], x->base[item], x->deferred_at[item], with_why, false};
    if (with_why)
        memcpy(x->why_trail + x->why_count++ * x->words, set_of(x->why, x, item),
               x->words * sizeof(uint64_t));
}

/* `sign` is 1 or -1. */
static void change_load(berth__exact *x, uint32_t i, uint32_t sign)
{
    const berth__prepared *p = x->prepared;
    for (uint32_t k = berth__piece_begin(p, i); k < berth__piece_end(p, i); k++) {
        const uint32_t size = sign * (uint32_t)p->piece_size[k];
        for (uint32_t s = p->piece_lower[k]; s < p->piece_upper[k]; s++)
            x->load[s] += size;
    }
}

static void unplace(berth__exact *x, uint32_t i)
{
    change_load(x, i, 1);
    set_add(x->unplaced, i);
    set_drop(x->placed, i);
    set_drop(x->decided, i);
    for (uint32_t s = x->first[i]; s + 1 < x->last[i]; s++)
        x->crossing[s]++;
}

static void undo_to(berth__exact *x, size_t mark)
{
    while (x->trail_count > mark) {
        const exact_undo *was = &x->trail[--x->trail_count];
        if (was->was_placed) {
            unplace(x, was->item);
            continue;
        }
        x->low[was->item] = was->low;
        x->base[was->item] = was->base;
        x->deferred_at[was->item] = was->deferred_at;
        if (was->has_why)
            memcpy(set_of(x->why, x, was->item), x->why_trail + --x->why_count * x->words,
                   x->words * sizeof(uint64_t));
    }
}

/* ---- Moving lows upward. ---- */

static void touch(berth__exact *x, uint32_t item)
{
    x->dirty_first = x->first[item] < x->dirty_first ? x->first[item] : x->dirty_first;
    x->dirty_last = x->last[item] > x->dirty_last ? x->last[item] : x->dirty_last;
}

/* Equal items are in order in S* (exchanging two changes nothing but the order), so each is above the one
 * before it, for the reasons that one is where it is. */
static void push_equals(berth__exact *x, uint32_t item)
{
    for (uint32_t next; (next = x->next_equal[item]) != EXACT_NONE; item = next) {
        uint32_t above = berth__exact_normalise(x, next, x->low[item] + x->size[item]);
        if (!set_has(x->unplaced, next) || x->low[next] >= above)
            return;
        remember(x, next, true);
        if (x->aborted)
            return;
        x->low[next] = above;
        memcpy(set_of(x->why, x, next), set_of(x->why, x, item), x->words * sizeof(uint64_t));
        touch(x, next);
        if (above > x->capacity)
            return; /* a dead end already, and further sums might leave their bits */
    }
}

/* i has been placed: j, a neighbour at or above it, goes above its top. */
static void push_above(berth__exact *x, uint32_t i, uint32_t j, bool choice)
{
    uint32_t top = x->low[i] + separation(x, i, j);
    if (x->has_alignment)
        top = (uint32_t)berth__item_align(x->prepared, j, top);
    if (x->base[j] >= top)
        return;
    bool rises = x->low[j] < top;
    remember(x, j, rises);
    if (x->aborted)
        return;
    x->base[j] = top;
    if (!rises)
        return;
    x->low[j] = berth__exact_normalise(x, j, top);
    /* Whatever else, there is no room for j below i, or it is i's equal and comes after it. */
    if (separation(x, j, i) > x->low[i] || x->next_equal[i] == j)
        memset(set_of(x->why, x, j), 0, x->words * sizeof(uint64_t));
    if (choice)
        set_add(set_of(x->why, x, j), i);
    touch(x, j);
    push_equals(x, j);
}

#define FOR_EACH_IN(word_expression, item)                 \
    for (uint32_t w_ = 0; w_ < x->words; w_++)             \
        for (uint64_t bits_ = (word_expression), item = 0; \
             bits_ && ((item = w_ * 64U + (unsigned)__builtin_ctzll(bits_)), true); bits_ &= bits_ - 1)

static void place(berth__exact *x, uint32_t i)
{
    bool choice = !is_pinned(x, i);
    if (!trail_room(x))
        return;
    x->trail[x->trail_count++] = (exact_undo){.item = i, .was_placed = true};
    BERTH_DCHECK(choice || x->low[i] == x->prepared->fixed[i], "a pin is where it is pinned");
    x->offset[i] = x->low[i];
    change_load(x, i, UINT32_MAX);
    set_drop(x->unplaced, i);
    set_add(x->placed, i);
    if (choice)
        set_add(x->decided, i);
    for (uint32_t s = x->first[i]; s + 1 < x->last[i]; s++)
        x->crossing[s]--;
    const uint64_t *adjacent = set_of(x->adjacent, x, i);
    FOR_EACH_IN(adjacent[w_] & x->unplaced[w_], j)
    push_above(x, i, (uint32_t)j, choice);
}

/* ---- Deferring, and why. ---- */

/* The lowest top that an unplaced neighbour of i can have, and whether any of them could reach below i's own
 * top if i were placed now. */
static uint32_t lowest_support(const berth__exact *x, uint32_t i, bool *contested)
{
    uint32_t lowest = EXACT_NONE;
    *contested = false;
    const uint64_t *adjacent = set_of(x->adjacent, x, i);
    FOR_EACH_IN(adjacent[w_] & x->unplaced[w_], j)
    {
        uint32_t top = x->low[j] + separation(x, (uint32_t)j, i);
        lowest = top < lowest ? top : lowest;
        *contested |= x->low[j] < x->low[i] + separation(x, i, (uint32_t)j);
    }
    return lowest;
}

/* Adds to `set` why S* cannot have i between its low and `height`: placed neighbours end at or below its low,
 * unplaced ones end at or above `height`. Those at least that large do so wherever they are. */
static void explain_support(const berth__exact *x, uint32_t i, uint32_t height, uint64_t *set)
{
    const uint64_t *adjacent = set_of(x->adjacent, x, i);
    for (uint32_t w = 0; w < x->words; w++)
        set[w] |= adjacent[w] & x->decided[w];
    set_join(set, set_of(x->why, x, i), x->words);
    FOR_EACH_IN(adjacent[w_] & x->unplaced[w_], j)
    {
        if (separation(x, (uint32_t)j, i) < height)
            set_join(set, set_of(x->why, x, (uint32_t)j), x->words);
    }
}

/* True if S* cannot have i at its low, where it rests on a placed neighbour; what follows from the placed
 * neighbours, and from the unplaced ones being above i, so explain_support is reason enough.
 *  - It was deferred before at a place that is free: i would move down.
 *  - It rests on one item alone, whose whole life is within its own, and everything else is below that one:
 *    exchanging the two lowers the sum of area x offset by size x size x (difference of lives), or, if they
 *    live equally long, puts the first of them first. */
static bool is_dominated(const berth__exact *x, uint32_t i)
{
    const uint32_t low = x->low[i], before = x->deferred_at[i];
    const uint64_t *adjacent = set_of(x->adjacent, x, i);
    bool hole = before != EXACT_NONE && before < low;
    uint32_t support = EXACT_NONE, supports = 0, second = 0;
    FOR_EACH_IN(adjacent[w_] & x->placed[w_], j)
    {
        uint32_t top = x->offset[j] + separation(x, (uint32_t)j, i);
        if (hole && top > before && x->offset[j] < before + separation(x, i, (uint32_t)j))
            hole = false;
        if (top == low) {
            support = (uint32_t)j;
            supports++;
        } else if (top > second) {
            second = top;
        }
    }
    if (hole)
        return true;
    if (supports != 1 || x->separation || is_pinned(x, support) || before == EXACT_NONE)
        return false;
    const uint32_t floor = x->offset[support];
    if (second > floor || x->first[support] < x->first[i] || x->last[support] > x->last[i])
        return false;
    bool same_life = x->first[support] == x->first[i] && x->last[support] == x->last[i];
    if (same_life && support < i)
        return false;
    return berth__exact_normalise(x, i, floor) == floor &&
           berth__exact_normalise(x, support, floor + x->size[i]) == floor + x->size[i];
}

/* i is not at its low, because of `failed`. False: then it is nowhere, and `conflict` says why. */
static bool defer(berth__exact *x, uint32_t i, const uint64_t *failed)
{
    bool contested;
    uint32_t height = lowest_support(x, i, &contested);
    /* If no neighbour can reach below i's top, i could move back down to its low. */
    if (height != EXACT_NONE)
        height = berth__exact_normalise(x, i, height);
    bool past = contested && height + x->size[i] > x->capacity;
    if (!contested || past) {
        memcpy(x->conflict, failed, x->words * sizeof *failed);
        explain_support(x, i, past ? x->capacity - x->size[i] + 1 : EXACT_NONE, x->conflict);
        return false;
    }
    BERTH_DCHECK(height > x->low[i], "a deferred item rises");
    remember(x, i, true);
    if (x->aborted)
        return false;
    uint64_t *why = set_of(x->why, x, i);
    explain_support(x, i, height, why);
    set_join(why, failed, x->words);
    if (x->base[i] == x->low[i])
        x->deferred_at[i] = x->low[i];
    x->low[i] = height;
    touch(x, i);
    push_equals(x, i);
    return true;
}

/* ---- Dead ends. ---- */

static void add_weight(berth__exact *x, uint32_t section, double amount)
{
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
    size_t at = span_lane(&x->spans[item], section);
    return x->narrow ? (uint32_t)((const int16_t *)x->rows)[at] : (uint32_t)((const int32_t *)x->rows)[at];
}

/* An item that is pushed past the capacity. */
static void explain_item(berth__exact *x, uint32_t i)
{
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
    BERTH_DCHECK(chosen != EXACT_NONE, "a bound that failed failed somewhere it was computed");
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
}

/* Brings the list in order after lows have risen: what rose is taken out, sorted by insertion (most of it
 * rose to the same height and is in order already) and merged back. Returns an item that is past the
 * capacity, or EXACT_NONE. */
static uint32_t sort_list(berth__exact *x, exact_entry *list, uint32_t count)
{
    exact_entry *risen = x->lists + x->list_top;
    uint32_t rises = 0, kept = 0, past = EXACT_NONE;
    for (uint32_t at = 0; at < count; at++) {
        uint32_t i = entry_item(list[at]), low = x->low[i];
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
    return past;
}

/* False: dead end, with `conflict` set. */
static bool still_fits(berth__exact *x, exact_entry *list, uint32_t count)
{
    if (x->dirty_first >= x->dirty_last)
        return true;
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
 * section in which nothing may be wasted, of those that live in it, and rather one that fits between walls.
 */
static uint32_t pick(berth__exact *x, const exact_entry *list, uint32_t count)
{
    static const double wall_factor[] = {1.0, 8.0, 64.0};
    const uint32_t lowest = entry_low(list[0]);
    uint32_t best = entry_item(list[0]), ties = 0;
    for (; ties < count && entry_low(list[ties]) == lowest; ties++)
        if (is_pinned(x, entry_item(list[ties])))
            return entry_item(list[ties]); /* no choice to make */
    if (ties == 1)
        return best;
    count_rivals(x, list, ties, false);
    const uint32_t tight = tightest_section(x, list, ties);
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
    count_rivals(x, list, ties, true);
    return best;
}

static bool limit_met(berth__exact *x, uint32_t count)
{
    if (berth__search_step(x->search, 4 + count / 8) || x->search->steps >= x->step_limit ||
        x->fails >= x->fail_limit)
        x->aborted = true;
    return x->aborted;
}

static bool solve(berth__exact *x, uint32_t from, uint32_t to, const exact_entry *parent,
                  uint32_t parent_count, uint32_t level);

/* Where no unplaced item crosses from one section to the next, the sides are problems of their own. Returns
 * whether there was such a place; `solved` then tells how it went. */
static bool solve_apart(berth__exact *x, uint32_t from, uint32_t to, const exact_entry *list, uint32_t count,
                        uint32_t level, bool *solved)
{
    uint32_t s = from;
    while (s + 1 < to && x->crossing[s] > 0)
        s++;
    if (s + 1 >= to)
        return false;
    *solved = true;
    uint32_t begin = from;
    for (s = from; s < to && *solved; s++)
        if (s + 1 == to || x->crossing[s] == 0) {
            *solved = solve(x, begin, s + 1, list, count, level + 1);
            begin = s + 1;
        }
    return true;
}

/* Places all unplaced items of sections [from, to), which are those of `parent` that lie inside. On false all
 * is as before, and unless aborted `conflict` explains. */
static bool solve(berth__exact *x, uint32_t from, uint32_t to, const exact_entry *parent,
                  uint32_t parent_count, uint32_t level)
{
    const size_t list_mark = x->list_top, trail_mark = x->trail_count;
    exact_entry *list = x->lists + list_mark;
    uint32_t count = 0;
    for (uint32_t at = 0; at < parent_count; at++) {
        uint32_t i = entry_item(parent[at]);
        if (set_has(x->unplaced, i) && x->first[i] >= from && x->last[i] <= to)
            list[count++] = parent[at];
    }
    x->list_top += count;
    bool solved = count == 0;
    if (solved)
        goto done;
    if (limit_met(x, count) || !still_fits(x, list, count) ||
        solve_apart(x, from, to, list, count, level, &solved))
        goto done;
    uint64_t *failed = x->kept_sets + (size_t)level * x->words;
    do {
        uint32_t i = pick(x, list, count);
        memset(failed, 0, x->words * sizeof *failed);
        if (is_pinned(x, i) || (x->base[i] == x->low[i] && !is_dominated(x, i))) {
            const size_t mark = x->trail_count;
            place(x, i);
            solved = !x->aborted && solve(x, from, to, list, count, level + 1);
            if (solved)
                goto done;
            undo_to(x, mark);
            if (x->aborted || !set_has(x->conflict, i))
                break; /* with i anywhere else it would fail for the same reasons */
            memcpy(failed, x->conflict, x->words * sizeof *failed);
            set_drop(failed, i);
        }
        if (!defer(x, i, failed))
            break;
    } while (!limit_met(x, count) && still_fits(x, list, count));
done:
    if (!solved) {
        undo_to(x, trail_mark);
        x->dirty_first = UINT32_MAX;
        x->dirty_last = 0;
    }
    x->list_top = list_mark;
    return solved;
}

bool berth__exact_dive(berth__exact *x)
{
    exact_entry *root = x->lists;
    for (uint32_t i = 0; i < x->count; i++)
        root[i] = i; /* with low 0, and put right by the first sort */
    x->list_top = x->count;
    x->dirty_first = 0;
    x->dirty_last = x->sections;
    bool solved = solve(x, 0, x->sections, root, x->count, 0);
    x->list_top = 0;
    return solved;
}
