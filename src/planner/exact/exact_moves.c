/* The moves of the exact search: placing an item, deferring it, and taking both back. Every low that rises
 * takes along the set of placements from which it follows. See exact_search.c for why these moves lose
 * nothing. */
#include <string.h>

#include "planner/exact/exact_state.h"

static uint32_t separation(const berth__exact *x, uint32_t below, uint32_t above)
{
    BERTH_DCHECK(below != above, "[L16] an item is not its own neighbour");
    return x->separation ? x->separation[(size_t)below * x->count + above] : x->size[below];
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
    BERTH_DCHECK(x->trail_count == x->trail_room, "[L16] the trail grows when it is full");
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
    BERTH_DCHECK(x->why_count == x->why_room && x->why_count <= x->trail_count,
                 "[L16] a change has at most one reason");
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
    BERTH_DCHECK(set_has(x->unplaced, item), "[L16] only what is not placed moves");
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
        for (uint32_t s = p->piece_lower[k]; s < p->piece_upper[k]; s++) {
            BERTH_DCHECK(sign == 1 || x->load[s] >= p->piece_size[k], "[L16] what is placed was in the load");
            x->load[s] += size;
        }
    }
}

static void unplace(berth__exact *x, uint32_t i)
{
    BERTH_DCHECK(set_has(x->placed, i) && !set_has(x->unplaced, i), "[L16] what is taken back was placed");
    change_load(x, i, 1);
    set_add(x->unplaced, i);
    set_drop(x->placed, i);
    set_drop(x->decided, i);
    for (uint32_t s = x->first[i]; s + 1 < x->last[i]; s++)
        x->crossing[s]++;
}

void berth__exact_undo(berth__exact *x, size_t mark)
{
    BERTH_DCHECK(mark <= x->trail_count, "[L16] only what was done is taken back");
    while (x->trail_count > mark) {
        const exact_undo *was = &x->trail[--x->trail_count];
        if (was->was_placed) {
            unplace(x, was->item);
            continue;
        }
        BERTH_DCHECK(was->low <= x->low[was->item] && was->base <= x->base[was->item],
                     "[L16] lows only rise");
        BERTH_DCHECK(!was->has_why || x->why_count > 0, "[L17] the reasons are on the trail");
        x->low[was->item] = was->low;
        x->base[was->item] = was->base;
        x->deferred_at[was->item] = was->deferred_at;
        if (was->has_why)
            memcpy(set_of(x->why, x, was->item), x->why_trail + --x->why_count * x->words,
                   x->words * sizeof(uint64_t));
    }
    BERTH_DCHECK(mark > 0 || x->why_count == 0, "[L17] reasons are taken back with what they are of");
}

/* ---- Moving lows upward. ---- */

static void exact_moves_touch(berth__exact *x, uint32_t item)
{
    BERTH_DCHECK(x->first[item] < x->last[item], "[L7] every item has a life");
    x->dirty_first = x->first[item] < x->dirty_first ? x->first[item] : x->dirty_first;
    x->dirty_last = x->last[item] > x->dirty_last ? x->last[item] : x->dirty_last;
}

/* Equal items are in order in S* (exchanging two changes nothing but the order), so each is above the one
 * before it, for the reasons that one is where it is. */
static void push_equals(berth__exact *x, uint32_t item)
{
    for (uint32_t next; (next = x->next_equal[item]) != EXACT_NONE; item = next) {
        uint32_t above = berth__exact_normalise(x, next, x->low[item] + x->size[item]);
        BERTH_DCHECK(next > item && x->size[next] == x->size[item],
                     "[L8] equals follow each other in canonical order");
        if (!set_has(x->unplaced, next) || x->low[next] >= above)
            return;
        remember(x, next, true);
        if (x->aborted)
            return;
        x->low[next] = above;
        memcpy(set_of(x->why, x, next), set_of(x->why, x, item), x->words * sizeof(uint64_t));
        exact_moves_touch(x, next);
        if (above > x->capacity)
            return; /* a dead end already, and further sums might leave their bits */
    }
}

/* i has been placed: j, a neighbour at or above it, goes above its top. */
static void push_above(berth__exact *x, uint32_t i, uint32_t j, bool choice)
{
    BERTH_DCHECK(set_has(x->placed, i) && set_has(set_of(x->adjacent, x, i), j),
                 "[L16] only neighbours are in the way");
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
    /* Whatever else, there is no room for j below i, or it is i's equal and comes after it. To forget in every case would
     * give the same answers, so no test can tell: i is no pin, since lows stay clear of pins and do not rise when one is
     * placed. So i is among the reasons of whatever follows, and a dead end that names it goes back to i's frame, all
     * frames between being younger than what was forgotten. There i is deferred, j is unplaced with its old reasons, and
     * explain_support adds those, unless j is larger than i's new low: then it is larger than the old one too. */
    if (separation(x, j, i) > x->low[i] || x->next_equal[i] == j)
        memset(set_of(x->why, x, j), 0, x->words * sizeof(uint64_t));
    if (choice)
        set_add(set_of(x->why, x, j), i);
    exact_moves_touch(x, j);
    BERTH_DCHECK(x->low[j] >= x->base[j], "[L16] an item is above what it could rest on");
    BERTH_DCHECK(set_is_within(set_of(x->why, x, j), x->decided, x->words),
                 "[L17] a low follows from choices that stand");
    push_equals(x, j);
}

#define FOR_EACH_IN(word_expression, item)                 \
    for (uint32_t w_ = 0; w_ < x->words; w_++)             \
        for (uint64_t bits_ = (word_expression), item = 0; \
             bits_ && ((item = w_ * 64U + (unsigned)__builtin_ctzll(bits_)), true); bits_ &= bits_ - 1)

void berth__exact_place(berth__exact *x, uint32_t i)
{
    bool choice = !exact_is_pinned(x, i);
    if (!trail_room(x))
        return;
    BERTH_DCHECK(set_has(x->unplaced, i) && !set_has(x->placed, i), "[L16] an item is placed once");
    BERTH_DCHECK(x->low[i] + x->size[i] <= x->capacity, "[L14] nothing is placed above the capacity");
    x->trail[x->trail_count++] = (exact_undo){.item = i, .was_placed = true};
    BERTH_DCHECK(choice || x->low[i] == x->prepared->fixed[i], "[L2] a pin is where it is pinned");
    x->offset[i] = x->low[i];
    change_load(x, i, UINT32_MAX);
    set_drop(x->unplaced, i);
    set_add(x->placed, i);
    if (choice)
        set_add(x->decided, i);
    for (uint32_t s = x->first[i]; s + 1 < x->last[i]; s++) {
        BERTH_DCHECK(x->crossing[s] > 0, "[L16] what is placed was among those that cross");
        x->crossing[s]--;
    }
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
bool berth__exact_is_dominated(const berth__exact *x, uint32_t i)
{
    const uint32_t low = x->low[i], before = x->deferred_at[i];
    BERTH_DCHECK(before == EXACT_NONE || before <= low, "[L16] an item is tried upward");
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
    if (supports != 1 || x->separation || exact_is_pinned(x, support) || before == EXACT_NONE)
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
bool berth__exact_defer(berth__exact *x, uint32_t i, const uint64_t *failed)
{
    BERTH_DCHECK(set_has(x->unplaced, i), "[L16] only what is not placed moves");
    bool contested;
    uint32_t height = lowest_support(x, i, &contested);
    /* If no neighbour can reach below i's top, i could move back down to its low. */
    if (height != EXACT_NONE)
        height = berth__exact_normalise(x, i, height);
    bool past = contested && height + x->size[i] > x->capacity;
    if (!contested || past) {
        memcpy(x->conflict, failed, x->words * sizeof *failed);
        explain_support(x, i, past ? x->capacity - x->size[i] + 1 : EXACT_NONE, x->conflict);
        BERTH_DCHECK(set_is_within(x->conflict, x->decided, x->words),
                     "[L17] a dead end follows from choices that stand");
        return false;
    }
    BERTH_DCHECK(height > x->low[i], "[L16] a deferred item rises");
    remember(x, i, true);
    if (x->aborted)
        return false;
    uint64_t *why = set_of(x->why, x, i);
    explain_support(x, i, height, why);
    set_join(why, failed, x->words);
    BERTH_DCHECK(set_is_within(why, x->decided, x->words), "[L17] a low follows from choices that stand");
    if (x->base[i] == x->low[i])
        x->deferred_at[i] = x->low[i];
    x->low[i] = height;
    exact_moves_touch(x, i);
    push_equals(x, i);
    return true;
}

/* ---- Invariants ---------------------------------------------------------------------------------- */

/* Crossings and loads counted anew; for few sections. */
static bool sections_are_valid(const berth__exact *x)
{
    const berth__prepared *p = x->prepared;
    uint32_t load[128] = {0}, crossing[128] = {0};
    if (x->sections > BERTH_COUNT_OF(load))
        return true;
    for (uint32_t i = 0; i < x->count; i++) {
        if (!set_has(x->unplaced, i))
            continue;
        for (uint32_t k = berth__piece_begin(p, i); k < berth__piece_end(p, i); k++)
            for (uint32_t s = p->piece_lower[k]; s < p->piece_upper[k]; s++)
                load[s] += (uint32_t)p->piece_size[k];
        for (uint32_t s = x->first[i]; s + 1 < x->last[i]; s++)
            crossing[s]++;
    }
    for (uint32_t s = 0; s < x->sections; s++)
        if (load[s] != x->load[s] || crossing[s] != x->crossing[s] || x->rivals[s])
            return false;
    return true;
}

bool berth__exact_is_valid(const berth__exact *x)
{
    for (uint32_t w = 0; w < x->words; w++)
        if ((x->placed[w] & x->unplaced[w]) || (x->decided[w] & ~x->placed[w]))
            return false;
    for (uint32_t i = 0; i < x->count; i++) {
        const bool is_placed = set_has(x->placed, i);
        if (is_placed == set_has(x->unplaced, i) || x->low[i] < x->base[i] ||
            (is_placed && set_has(x->decided, i) == exact_is_pinned(x, i)) ||
            (!is_placed && !set_is_within(set_of(x->why, x, i), x->decided, x->words)))
            return false;
    }
    return sections_are_valid(x);
}
