/* Phase C, repair with a shrinking capacity. Take the best plan and a capacity somewhat below its peak:
 *
 *      peak ---------   ##                      what sticks out is taken out,
 *  capacity - - - - - - ##- - - - - -           each goes back into the tightest room that holds it,
 *             ####  ##  ##   ###                or, if none does, to the place where the least is in its way,
 *             ##########   #######              and what was in its way is taken out in turn.
 *
 * The capacity is a part of the way from the peak to the goal: aiming at the goal at once stalls, halving the
 * excess works. What keeps being in the way becomes dearer to move (its penalty grows), so that the search
 * does not circle: guided ejection search, after Nagata and Braysy's for vehicle routing (2009). When it
 * fails, the best plan is put back and a gentler capacity is tried. Only what moves is touched, so a round
 * costs as much as the excess is large, not as the problem is. */
#include "planner/improve/repair.h"

#include <string.h>

#include "base/random.h"
#include "base/sort.h"
#include "planner/problem/overlap.h"

enum { CHEAP_LOOK = 32, EJECT_AT_FIRST = 256, EJECT_AT_MOST = 4096, SORTED_IN_PLACE = 256 };

typedef struct repair {
    berth__search *search;
    const berth__prepared *prepared;
    berth__overlap overlap;
    uint64_t *offsets; /* the plan being worked on; BERTH_NO_OFFSET: taken out */
    /* Zeroed pages that nobody touches cost nothing, and most items are never looked at. */
    uint32_t *penalty;      /* how often it found no room */
    uint16_t *root_of_life; /* 0: not known yet */
    uint32_t *pool;         /* what is out, the next to go in last */
    uint32_t pool_count;
    uint32_t *touched; /* what may differ from the search's best plan, to which a failure returns */
    uint32_t touched_count;
    uint8_t *is_touched;
    uint64_t *ends; /* scratch of cheapest_place: the `to` of what was found, packed with its number */
    uint64_t *ends_scratch;
    uint32_t ends_room;
    bool by_area;               /* what a place costs: penalty x size x life, or the root of life */
    uint64_t looks, look_steps; /* how many, and what they cost */
    uint64_t random;
    uint64_t step_limit;
    uint64_t share;  /* how many steps it was given */
    uint64_t excess; /* above the goal when the share began */
} repair;

static bool is_pinned(const repair *r, uint32_t item)
{
    return berth__item_fixed(r->prepared, item) != BERTH_NO_OFFSET;
}

static uint16_t root_of(uint32_t n)
{
    uint32_t root = 0;
    for (uint32_t bit = (uint32_t)1 << 15; bit; bit >>= 1)
        if ((uint64_t)(root + bit) * (root + bit) <= n)
            root += bit;
    return (uint16_t)root;
}

static uint16_t root_of_life(const repair *r, uint32_t item, uint32_t life)
{
    if (!r->root_of_life[item])
        r->root_of_life[item] = root_of(life);
    return r->root_of_life[item];
}

static double bulk(const repair *r, uint32_t item)
{
    const uint32_t life = r->prepared->upper[item] - r->prepared->lower[item];
    return (double)r->prepared->size[item] * (double)(r->by_area ? life : root_of_life(r, item, life));
}

static double cost_of(const repair *r, uint32_t item)
{
    return is_pinned(r, item) ? 1e300 : (double)(1 + r->penalty[item]) * bulk(r, item);
}

static void repair_touch(repair *r, uint32_t item)
{
    BERTH_DCHECK(r->touched_count < r->prepared->item_count || r->is_touched[item],
                 "[L19] what may differ from the best plan is listed once");
    if (!r->is_touched[item]) {
        r->is_touched[item] = 1;
        r->touched[r->touched_count++] = item;
    }
}

static void take_out(repair *r, uint32_t item)
{
    repair_touch(r, item);
    BERTH_DCHECK(r->offsets[item] != BERTH_NO_OFFSET && !is_pinned(r, item),
                 "[L19] only what is in is taken out, and no pin");
    BERTH_DCHECK(r->pool_count < r->prepared->item_count, "[L19] the pool has an item once");
    r->offsets[item] = BERTH_NO_OFFSET;
    r->pool[r->pool_count++] = item;
}

static int smaller_bulk_first(const void *context, uint32_t a, uint32_t b)
{
    const double first = bulk(context, a), second = bulk(context, b);
    return (first > second) - (first < second);
}

/* The largest of what lies in pool[from..] comes last, so that it goes in first. A few are the rule; but one huge item
 * has all in its way that live with it, and to sort a million must not take their square. */
static berth_status sort_pool(repair *r, uint32_t from)
{
    uint32_t scratch[SORTED_IN_PLACE];
    const size_t count = r->pool_count - from;
    uint32_t *room = count > SORTED_IN_PLACE ? berth__heap_alloc(count * sizeof *room) : scratch;
    if (!room)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to sort %zu items", count);
    berth__sort_indices(r->pool + from, room, count, smaller_bulk_first, r);
    if (room != scratch)
        berth__heap_free(room);
    BERTH_DCHECK(r->pool_count <= from + 1 || bulk(r, r->pool[from]) <= bulk(r, r->pool[r->pool_count - 1]),
                 "[L19] the largest goes in first");
    return BERTH_OK;
}

static berth_status sort_ends(repair *r)
{
    const uint32_t count = r->overlap.found_count;
    if (count > r->ends_room) {
        uint64_t *ends = berth__heap_realloc(r->ends, (size_t)count * 2 * sizeof *ends);
        if (ends)
            r->ends = ends;
        uint64_t *scratch = berth__heap_realloc(r->ends_scratch, (size_t)count * 2 * sizeof *scratch);
        if (scratch)
            r->ends_scratch = scratch;
        if (!ends || !scratch)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to repair a plan");
        r->ends_room = count * 2;
    }
    uint64_t highest = 0;
    for (uint32_t k = 0; k < count; k++)
        highest = r->overlap.found[k].to > highest ? r->overlap.found[k].to : highest;
    /* Where end and number do not fit into one word, ends lose their last bits: costs are estimates anyway.
     */
    const unsigned number_bits = berth__bits_of(count), bits = berth__bits_of(highest);
    const unsigned drop = bits + number_bits > 64 ? bits + number_bits - 64 : 0;
    for (uint32_t k = 0; k < count; k++)
        r->ends[k] = r->overlap.found[k].to >> drop << number_bits | k;
    BERTH_DCHECK(count <= r->ends_room && bits - drop + number_bits <= 64,
                 "[L19] there is room for all ends, each in a word");
    berth__sort_keys(r->ends, r->ends_scratch, count, number_bits, number_bits + bits - drop);
    return BERTH_OK;
}

/* Walks upward over the offsets at which what is in the way changes: just above one that is found, just below
 * one, the floor, and just below the capacity. */
typedef struct walk {
    uint32_t next_end, next_start; /* candidates */
    uint32_t gone_in, gone_out;    /* what the running cost contains */
    double cost_in, cost_out;
    bool at_top;
} walk;

static uint64_t end_of(const repair *r, uint32_t k)
{
    const uint32_t count = r->overlap.found_count;
    return r->overlap.found[r->ends[k] & (((uint64_t)1 << berth__bits_of(count)) - 1)].to;
}

static uint32_t end_item(const repair *r, uint32_t k)
{
    const uint32_t count = r->overlap.found_count;
    return r->overlap.found[r->ends[k] & (((uint64_t)1 << berth__bits_of(count)) - 1)].item;
}

static uint64_t next_candidate(const repair *r, walk *w, uint64_t top)
{
    const uint32_t count = r->overlap.found_count;
    BERTH_DCHECK(!w->at_top && w->next_end <= count && w->next_start <= count,
                 "[L19] a walk ends at the top");
    uint64_t above = w->next_end < count ? end_of(r, w->next_end) : UINT64_MAX;
    while (w->next_start < count && r->overlap.found[w->next_start].from == 0)
        w->next_start++;
    uint64_t below = w->next_start < count ? r->overlap.found[w->next_start].from - 1 : UINT64_MAX;
    uint64_t next = above <= below ? above : below;
    if (above <= below)
        w->next_end++;
    else
        w->next_start++;
    w->at_top = next >= top;
    return w->at_top ? top : next;
}

static double cost_at(const repair *r, walk *w, uint64_t offset)
{
    const uint32_t count = r->overlap.found_count;
    while (w->gone_in < count && r->overlap.found[w->gone_in].from <= offset)
        w->cost_in += cost_of(r, r->overlap.found[w->gone_in++].item);
    while (w->gone_out < count && end_of(r, w->gone_out) <= offset)
        w->cost_out += cost_of(r, end_item(r, w->gone_out++));
    BERTH_DCHECK(w->gone_out <= w->gone_in, "[L19] what is left behind was in the way");
    return w->cost_in - w->cost_out;
}

/* After a look that found no room: where the least is in the way. Among equals one by lot. BERTH_NO_OFFSET if
 * pins are everywhere. */
static berth_status cheapest_place(repair *r, uint32_t item, uint64_t capacity, uint64_t *place)
{
    *place = BERTH_NO_OFFSET;
    BERTH_DCHECK(capacity >= r->prepared->size[item], "[L19] a capacity holds every item");
    const uint64_t top = capacity - r->prepared->size[item];
    berth_status status = sort_ends(r);
    if (status)
        return status;
    walk w = {0};
    double least = 1e299;
    uint64_t offset = 0, ties = 1;
    for (;;) {
        double cost = cost_at(r, &w, offset);
        uint64_t aligned = berth__item_align(r->prepared, item, offset);
        if (aligned == offset) {
            if (cost < least * (1.0 - 1e-9)) {
                least = cost;
                *place = offset;
                ties = 1;
            } else if (cost <= least * (1.0 + 1e-9) && cost < 1e299 &&
                       berth__random(&r->random) % ++ties == 0) {
                *place = offset;
            }
        }
        if (w.at_top)
            return BERTH_OK;
        offset = next_candidate(r, &w, top);
        if (r->prepared->alignment && offset % r->prepared->alignment[item]) { /* up, or down at the top */
            uint64_t up = berth__item_align(r->prepared, item, offset);
            offset = up <= top ? up : top - top % r->prepared->alignment[item];
            if (w.gone_in && offset < r->overlap.found[w.gone_in - 1].from)
                return BERTH_OK;
        }
    }
}

/* Finds what is in the way of an item, and counts the work. */
static berth_status repair_look(repair *r, uint32_t item)
{
    r->overlap.looked_at = 0;
    berth_status status = berth__overlap_look(&r->overlap, r->offsets, item);
    const uint64_t steps = (r->overlap.looked_at + 4 * (uint64_t)r->overlap.found_count) / 16;
    r->looks++;
    r->look_steps += steps;
    berth__search_step(r->search, steps);
    return status;
}

/* Puts one item back, if need be in the place of others. */
static berth_status put_in(repair *r, uint32_t item, uint64_t capacity)
{
    BERTH_DCHECK(r->offsets[item] == BERTH_NO_OFFSET, "[L19] what goes in was out");
    berth_status status = repair_look(r, item);
    if (status)
        return status;
    repair_touch(r, item);
    uint64_t offset = berth__overlap_fit(&r->overlap, item, capacity, true);
    if (offset == BERTH_NO_OFFSET) {
        r->penalty[item]++;
        status = cheapest_place(r, item, capacity, &offset);
        if (status || offset == BERTH_NO_OFFSET) {
            r->pool[r->pool_count++] = item;
            return status;
        }
        const uint32_t before = r->pool_count;
        for (uint32_t k = 0; k < r->overlap.found_count; k++) {
            const berth__forbidden *other = &r->overlap.found[k];
            if (other->from <= offset && offset < other->to && r->offsets[other->item] != BERTH_NO_OFFSET)
                take_out(r, other->item);
        }
        status = sort_pool(r, before);
    }
    BERTH_DCHECK(offset + r->prepared->size[item] <= capacity, "[L14] nothing is placed above the capacity");
    BERTH_DCHECK(offset == berth__item_align(r->prepared, item, offset),
                 "[L2] an offset keeps its alignment");
    r->offsets[item] = offset;
    return status;
}

/* How long a round goes on, and when so much is out that it leads nowhere. */
typedef struct round_limits {
    uint64_t moves;
    uint32_t out;
} round_limits;

/* Most rounds that succeed do so within a few moves, so most are short, by Luby's lengths. Where hundreds are
 * in the way of each, a move costs a thousand steps and a round is cut early; where a few
 * are, long rounds are worth their while. */
static round_limits limits_of(const repair *r, uint32_t failures)
{
    const bool is_cheap = r->looks && r->look_steps <= CHEAP_LOOK * r->looks;
    const uint64_t out = r->pool_count, stretch = berth__luby(failures + 1) * (1 + failures / 8);
    return (round_limits){.moves = is_cheap ? 200 * stretch + 20 * out : 50 * stretch + 8 * out,
                          .out = is_cheap ? UINT32_MAX : (uint32_t)(48 + 4 * out)};
}

/* Works at `capacity` until all is in (the pool is empty) or a limit is met. */
static berth_status press(repair *r, uint64_t capacity, const round_limits *limits)
{
    berth_status status = BERTH_OK;
    uint64_t moves = limits->moves;
    while (r->pool_count && r->pool_count <= limits->out && moves-- > 0 && !status &&
           berth__search_goes_on(r->search, r->step_limit))
        status = put_in(r, r->pool[--r->pool_count], capacity);
    return status;
}

/* Puts in what is left, as low as it goes. A little beyond the limit, since most of a plan is there; but
 * where very much is in the way of each, or the clock strikes, some stay out. */
static berth_status complete(repair *r)
{
    const uint64_t extra = 20000 + r->prepared->item_count / 4;
    const uint64_t limit = r->step_limit < UINT64_MAX - extra ? r->step_limit + extra : UINT64_MAX;
    berth_status status = sort_pool(r, 0);
    while (r->pool_count && !status && r->search->steps < limit &&
           (!r->search->stopped || r->search->stop == BERTH_STOP_STEPS)) {
        uint32_t item = r->pool[--r->pool_count];
        status = repair_look(r, item);
        if (!status)
            r->offsets[item] = berth__overlap_fit(&r->overlap, item, INT64_MAX, false);
    }
    return status;
}

#ifndef NDEBUG
static bool is_the_best(const repair *r)
{
    for (uint32_t i = 0; i < r->prepared->item_count && i < 256; i++)
        if (r->offsets[i] != r->search->best[i])
            return false;
    return true;
}
#endif

static void put_back_best(repair *r)
{
    for (uint32_t k = 0; k < r->touched_count; k++)
        r->offsets[r->touched[k]] = r->search->best[r->touched[k]];
    BERTH_DCHECK(is_the_best(r), "[L19] what is not touched is as in the best plan");
}

static void forget_touched(repair *r)
{
    for (uint32_t k = 0; k < r->touched_count; k++)
        r->is_touched[r->touched[k]] = 0;
    r->touched_count = 0;
    r->pool_count = 0;
}

static bool ends_above(const repair *r, uint32_t item, uint64_t capacity)
{
    return r->offsets[item] + r->prepared->size[item] > capacity;
}

/* Lists those that end above `capacity` in the pool, which is empty, without taking them out yet. The only look at
 * every item that a round takes. */
static uint32_t list_above(repair *r, uint64_t capacity)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < r->prepared->item_count; i++)
        if (ends_above(r, i, capacity))
            r->pool[count++] = i;
    return count;
}

/* A capacity from `capacity` upward above which at most `most` of the listed items end. */
static uint64_t gentle_capacity(const repair *r, uint32_t listed, uint64_t capacity, uint32_t most)
{
    const uint64_t highest = r->search->best_peak - 1;
    BERTH_DCHECK(listed <= r->prepared->item_count, "[L19] an item is listed once");
    for (int attempt = 0; attempt < 20 && capacity < highest; attempt++) {
        uint32_t out = 0;
        for (uint32_t k = 0; k < listed && out <= most; k++)
            out += ends_above(r, r->pool[k], capacity);
        if (out <= most)
            break;
        capacity += (highest - capacity) / 4 + 1;
    }
    return capacity < highest ? capacity : highest;
}

/* Of the listed ones, which the pool is made of in place. */
static berth_status take_out_above(repair *r, uint32_t listed, uint64_t capacity)
{
    BERTH_DCHECK(r->pool_count == 0, "[L19] a round begins with all in");
    for (uint32_t k = 0; k < listed; k++)
        if (ends_above(r, r->pool[k], capacity) && !is_pinned(r, r->pool[k]))
            take_out(r, r->pool[k]);
    return r->pool_count < 5000 ? sort_pool(r, 0) : BERTH_OK;
}

/* Whether all is in and ends below the best plan's peak; what was not touched ends below the capacity anyway. */
static bool is_better(const repair *r)
{
    for (uint32_t k = 0; k < r->touched_count; k++)
        if (r->offsets[r->touched[k]] == BERTH_NO_OFFSET ||
            ends_above(r, r->touched[k], r->search->best_peak - 1))
            return false;
    return r->touched_count > 0;
}

/* While it gains, it goes on: another share if the last one took away a tenth of what was left above the goal. */
static bool goes_on(repair *r)
{
    if (berth__search_goes_on(r->search, r->step_limit))
        return true;
    const uint64_t excess = r->search->best_peak - berth__search_goal(r->search);
    if (r->search->stopped || excess >= r->excess || excess > r->excess - r->excess / 10)
        return false;
    r->excess = excess;
    r->step_limit = berth__search_limit(r->search, r->share);
    return berth__search_goes_on(r->search, r->step_limit);
}

/* The rounds. `part` is how much of the excess is left standing; see the top. */
static berth_status repair_run(repair *r)
{
    double part = 0.5;
    uint32_t most = EJECT_AT_FIRST, failures = 0;
    berth_status status = BERTH_OK;
    while (!status && goes_on(r)) {
        const uint64_t goal = berth__search_goal(r->search);
        if (r->search->best_peak <= goal)
            break;
        const uint64_t excess = r->search->best_peak - goal;
        double standing = failures % 3 == 2 ? 0.97 : part;
        uint64_t capacity = goal + (uint64_t)((double)excess * standing);
        if (excess < goal / 5000)
            capacity = goal;
        if (capacity >= r->search->best_peak)
            capacity = r->search->best_peak - 1;
        const uint32_t listed = list_above(r, capacity);
        BERTH_DCHECK(capacity >= goal && listed > 0, "[L19] something ends above what is aimed at");
        capacity = gentle_capacity(r, listed, capacity, most);
        status = take_out_above(r, listed, capacity);
        berth__search_step(r->search, 1 + r->prepared->item_count / 16);
        r->by_area = failures % 2 == 0;
        BERTH_DCHECK(capacity < r->search->best_peak, "[L19] a round aims below the best plan");
        const round_limits limits = limits_of(r, failures);
        if (!status)
            status = press(r, capacity, &limits);
        bool pressed = r->pool_count == 0;
        if (r->search->stopped && !pressed)
            break;
        if (!status && r->pool_count <= limits.out)
            status = complete(r);
        if (status)
            break;
        if (r->pool_count == 0 && is_better(r)) {
            BERTH_DCHECK(berth__prepared_peak(r->prepared, r->offsets) < r->search->best_peak,
                         "[L19] what is not touched ends below the best plan's peak");
            berth__search_offer(r->search, r->offsets, "repair");
            failures = 0;
            part = pressed && part * 0.8 > 0.25 ? part * 0.8 : part;
            most = pressed && most < EJECT_AT_MOST ? most * 3 / 2 + 1 : most;
        } else {
            put_back_best(r);
            failures++;
            part = part + 0.15 < 0.95 ? part + 0.15 : 0.95;
            most = most > 8 ? most / 2 : 4;
        }
        forget_touched(r);
    }
    return status;
}

berth_status berth__repair(berth__search *search, uint64_t steps)
{
    const berth__prepared *p = search->prepared;
    repair r = {.search = search,
                .prepared = p,
                .random = search->seed ^ 0x2545F4914F6CDD1DU,
                .step_limit = berth__search_limit(search, steps),
                .share = steps,
                .excess = search->best_peak - berth__search_goal(search)};
    if (search->best_peak == UINT64_MAX || p->item_count == 0)
        return BERTH_OK;
    const size_t count = p->item_count;
    r.offsets = berth__heap_alloc(count * sizeof *r.offsets);
    r.penalty = berth__heap_zalloc(count, sizeof *r.penalty);
    r.root_of_life = berth__heap_zalloc(count, sizeof *r.root_of_life);
    r.pool = berth__heap_alloc(count * sizeof *r.pool);
    r.touched = berth__heap_alloc(count * sizeof *r.touched);
    r.is_touched = berth__heap_zalloc(count, sizeof *r.is_touched);
    berth_status status = berth__overlap_init(&r.overlap, p);
    if (!status && (!r.offsets || !r.penalty || !r.root_of_life || !r.pool || !r.touched || !r.is_touched))
        status = berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to repair a plan of %zu items", count);
    if (!status) {
        memcpy(r.offsets, search->best, count * sizeof *r.offsets);
        status = repair_run(&r);
    }
    berth__overlap_finish(&r.overlap);
    void *all[] = {r.offsets, r.penalty,    r.root_of_life, r.pool,
                   r.touched, r.is_touched, r.ends,         r.ends_scratch};
    for (size_t k = 0; k < BERTH_COUNT_OF(all); k++)
        berth__heap_free(all[k]);
    return status;
}
