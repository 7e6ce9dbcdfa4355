/* Phase A, the lowest valley. Time runs to the right, offsets upward; what is placed forms a skyline:
 *
 *       height     ____
 *         |  _____|    |        ___
 *         | |          |_______|   |__
 *         | |           valley     |
 *         +-------------------------------> columns
 *
 * A valley is a segment with no lower neighbour. Everything that has not been placed yet lies above the
 * skyline, so something must be put onto the valley's floor or that floor is lost. We choose an item whose
 * life fits between the valley's walls: one that spans it wall to wall if there is one, else the best that
 * touches a wall, else any inside. If nothing fits, the floor rises to its lower wall and the two become one
 * segment.
 *
 * Any valley will do: walking from the last place downhill gives plans as good as always taking the lowest
 * of all, and touches memory that is still in the cache. Best-fit skylines are Burke, Kendall and Whitwell's
 * idea (2004); here time gives each item its place along the floor, so only the choice is left.
 *
 * Every choice is a query of a maxtree over the items by start or by end: no list is ever scanned, so the
 * cost is n log n whatever the input.
 *
 * Pins become part of the skyline when it reaches them; until then they are ceilings. A free item of several
 * pieces is placed as its hull here: valid, though not always tight. A pinned one is a pin a piece, each of
 * its own size: the hulls of two pins that never meet may lie on one another, their pieces never do. */
#include "planner/place/valley.h"

#include <string.h>

#include "base/sort.h"
#include "planner/place/maxtree.h"
#include "planner/place/pins.h"
#include "planner/place/stack.h"

#define NONE UINT32_MAX

/* Below pins: how many of those that suit a valley are tried for height. */
enum { CANDIDATES = 8 };

/* One run. Positions number the items by (lower, upper) in the run's direction of time. */
typedef struct valley {
    berth__search *search;
    const berth__prepared *prepared;
    uint32_t count, columns;
    uint64_t *offsets;
    uint64_t limit;
    uint64_t peak;

    const uint32_t *lower, *upper; /* by position */
    const uint32_t *item;          /* by position; NULL: the position itself */
    uint32_t *mirrored;            /* where the three above live when time is mirrored */
    uint32_t *by_end;              /* positions by (upper, lower) */
    uint32_t *rank_by_end;         /* by position: where it is in by_end */
    uint32_t *start_first;         /* by column: its first position among starts; one more at the end */
    uint32_t *end_first;           /* by column: the same in by_end for those that end before it */

    berth__maxtree best_by_start; /* scores by position */
    berth__maxtree best_by_end;   /* scores by rank_by_end */
    berth__maxtree soonest;       /* columns - upper by position: who is inside? */

    /* The skyline: a segment is named by its first column. */
    uint32_t *next, *previous;
    uint64_t *height;

    berth__pin *pin; /* in order of height; one for every piece that is pinned */
    berth__pins pins;
    uint32_t pins_left; /* those that are not in the skyline yet */
    uint32_t free_left; /* items without a pin that have no place yet */
} valley;

static uint32_t item_at(const valley *v, uint32_t position)
{
    return v->item ? v->item[position] : position;
}

/* Scores are positive doubles, whose upper bits sort like integers. Roots are avoided by squaring, and only
 * products are left: the same bits on every machine. */
static uint32_t score_key(const valley *v, uint32_t position, berth__valley_score score)
{
    BERTH_DCHECK(v->lower[position] < v->upper[position] && v->upper[position] <= v->columns,
                 "[L7] every item has a life within the columns");
    double life = (double)(v->upper[position] - v->lower[position]);
    double size = (double)v->prepared->size[item_at(v, position)];
    double value = life;
    switch (score) {
    case BERTH__VALLEY_SIZE:
        value = size;
        break;
    case BERTH__VALLEY_LIFE_ROOT_SIZE:
        value = life * life * size;
        break;
    case BERTH__VALLEY_ROOT_LIFE_SIZE:
        value = life * size * size;
        break;
    case BERTH__VALLEY_AREA:
        value = life * size;
        break;
    default:
        break;
    }
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint32_t)(bits >> 31); /* the sign is 0 */
}

/* A pin is never chosen: it is placed when the skyline comes to it. */
static void fill_trees(valley *v, berth__valley_score score)
{
    for (uint32_t p = 0; p < v->count; p++) {
        if (berth__item_fixed(v->prepared, item_at(v, p)) != BERTH_NO_OFFSET)
            continue;
        uint32_t key = score_key(v, p, score);
        BERTH_DCHECK(key > 0, "[L12] what can be chosen has a key");
        v->best_by_start.level[0][p] = key;
        v->best_by_end.level[0][v->rank_by_end[p]] = key;
        v->soonest.level[0][p] = v->columns - v->upper[p] + 1;
    }
    berth__maxtree_rebuild(&v->best_by_start);
    berth__maxtree_rebuild(&v->best_by_end);
    berth__maxtree_rebuild(&v->soonest);
}

static void take_from_trees(valley *v, uint32_t position)
{
    BERTH_DCHECK(berth__maxtree_key(&v->best_by_start, position) > 0 &&
                     berth__maxtree_key(&v->soonest, position) > 0,
                 "[L2] an item is placed once");
    berth__maxtree_set(&v->best_by_start, position, 0);
    berth__maxtree_set(&v->best_by_end, v->rank_by_end[position], 0);
    berth__maxtree_set(&v->soonest, position, 0);
}

static void put_back_into_trees(valley *v, uint32_t position, uint32_t key)
{
    BERTH_DCHECK(key > 0 && berth__maxtree_key(&v->best_by_start, position) == 0,
                 "[L12] what is put back was taken");
    berth__maxtree_set(&v->best_by_start, position, key);
    berth__maxtree_set(&v->best_by_end, v->rank_by_end[position], key);
    berth__maxtree_set(&v->soonest, position, v->columns - v->upper[position] + 1);
}

static void count_into(uint32_t *first, uint32_t columns, const uint32_t *column_of, uint32_t count)
{
    memset(first, 0, ((size_t)columns + 2) * sizeof *first);
    for (uint32_t p = 0; p < count; p++)
        first[column_of[p] + 1]++;
    for (uint32_t c = 0; c <= columns; c++)
        first[c + 1] += first[c];
    BERTH_DCHECK(first[columns + 1] == count, "[L10] every item is in a column");
}

/* by_end from the order by start: stable counting by `upper` keeps `lower` ascending within. */
static void order_by_end(valley *v)
{
    count_into(v->end_first, v->columns, v->upper, v->count);
    for (uint32_t p = 0; p < v->count; p++) {
        uint32_t rank = v->end_first[v->upper[p]]++;
        BERTH_DCHECK(rank < v->count, "[L10] the order by end has every item");
        v->by_end[rank] = p;
        v->rank_by_end[p] = rank;
    }
    count_into(v->end_first, v->columns, v->upper, v->count);
}

/* Mirrored time: what ended last begins first. Read backwards, the order by end is the mirrored order by
 * start. */
static berth_status mirror(valley *v)
{
    const uint32_t count = v->count;
    v->mirrored = berth__heap_alloc((size_t)count * 3 * sizeof *v->mirrored);
    if (!v->mirrored)
        return BERTH_OUT_OF_HOST_MEMORY;
    uint32_t *lower = v->mirrored, *upper = lower + count, *item = upper + count;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t p = v->by_end[count - 1 - k];
        lower[k] = v->columns - v->upper[p];
        upper[k] = v->columns - v->lower[p];
        item[k] = p;
        BERTH_DCHECK(lower[k] < upper[k] && (k == 0 || lower[k - 1] <= lower[k]),
                     "[L8] mirrored items are in order too");
    }
    v->lower = lower;
    v->upper = upper;
    v->item = item;
    order_by_end(v);
    return BERTH_OK;
}

static int lower_pin_first(const void *context, uint32_t a, uint32_t b)
{
    const valley *v = context;
    uint64_t first = v->prepared->fixed[a], second = v->prepared->fixed[b];
    return (first > second) - (first < second);
}

/* The pieces of a pinned item, in the run's direction of time. */
static uint32_t add_pins(valley *v, uint32_t item, uint32_t count)
{
    const berth__prepared *p = v->prepared;
    for (uint32_t k = berth__piece_begin(p, item); k < berth__piece_end(p, item); k++) {
        const uint32_t lower = p->piece_lower[k], upper = p->piece_upper[k];
        v->pin[count++] = (berth__pin){.lower = v->mirrored ? v->columns - upper : lower,
                                       .upper = v->mirrored ? v->columns - lower : upper,
                                       .piece = k,
                                       .item = item};
    }
    return count;
}

static berth_status collect_pins(valley *v)
{
    v->free_left = v->count;
    if (!v->prepared->fixed)
        return BERTH_OK;
    const berth__prepared *p = v->prepared;
    uint32_t *order = berth__heap_alloc((size_t)v->count * 2 * sizeof *order), items = 0, pieces = 0;
    if (!order)
        return BERTH_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < v->count; i++)
        if (p->fixed[i] != BERTH_NO_OFFSET) {
            order[items++] = i;
            pieces += berth__piece_end(p, i) - berth__piece_begin(p, i);
            v->offsets[i] = p->fixed[i];
        }
    berth__sort_indices(order, order + v->count, items, lower_pin_first, v);
    v->pin = berth__heap_alloc(((size_t)pieces + 1) * sizeof *v->pin);
    for (uint32_t k = 0; v->pin && k < items; k++)
        v->pins_left = add_pins(v, order[k], v->pins_left);
    BERTH_DCHECK(!v->pin || v->pins_left == pieces, "[L10] every piece that is pinned is a pin");
    const bool ok = v->pin && berth__pins_init(&v->pins, v->pin, pieces, v->columns);
    v->free_left = v->count - items;
    berth__heap_free(order);
    return ok ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
}

static berth_status valley_init(valley *v, unsigned variant)
{
    const size_t count = v->count, columns = v->columns;
    v->by_end = berth__heap_alloc(count * sizeof *v->by_end);
    v->rank_by_end = berth__heap_alloc(count * sizeof *v->rank_by_end);
    v->start_first = berth__heap_alloc((columns + 2) * sizeof *v->start_first);
    v->end_first = berth__heap_alloc((columns + 2) * sizeof *v->end_first);
    v->next = berth__heap_alloc((columns + 1) * sizeof *v->next);
    v->previous = berth__heap_alloc((columns + 1) * sizeof *v->previous);
    v->height = berth__heap_alloc((columns + 1) * sizeof *v->height);
    if (!v->by_end || !v->rank_by_end || !v->start_first || !v->end_first || !v->next || !v->previous ||
        !v->height || !berth__maxtree_init(&v->best_by_start, v->count) ||
        !berth__maxtree_init(&v->best_by_end, v->count) || !berth__maxtree_init(&v->soonest, v->count))
        return BERTH_OUT_OF_HOST_MEMORY;
    order_by_end(v);
    if (variant >= BERTH__VALLEY_SCORES) {
        berth_status status = mirror(v);
        if (status)
            return status;
    }
    count_into(v->start_first, v->columns, v->lower, v->count);
    fill_trees(v, (berth__valley_score)(variant % BERTH__VALLEY_SCORES));
    v->next[0] = v->columns; /* one segment from wall to wall */
    v->previous[0] = NONE;
    v->height[0] = 0;
    return collect_pins(v);
}

static void valley_finish(valley *v)
{
    berth__heap_free(v->mirrored);
    berth__heap_free(v->by_end);
    berth__heap_free(v->rank_by_end);
    berth__heap_free(v->start_first);
    berth__heap_free(v->end_first);
    berth__heap_free(v->next);
    berth__heap_free(v->previous);
    berth__heap_free(v->height);
    berth__pins_finish(&v->pins);
    berth__heap_free(v->pin);
    berth__maxtree_finish(&v->best_by_start);
    berth__maxtree_finish(&v->best_by_end);
    berth__maxtree_finish(&v->soonest);
}

#ifndef NDEBUG
/* Whether a segment is linked both ways, and higher or lower than what borders it. */
static bool segment_is_valid(const valley *v, uint32_t segment)
{
    const uint32_t next = v->next[segment], previous = v->previous[segment];
    return segment < next && next <= v->columns &&
           (next == v->columns || (v->previous[next] == segment && v->height[next] != v->height[segment])) &&
           (previous == NONE ? segment == 0
                             : v->next[previous] == segment && v->height[previous] != v->height[segment]);
}
#endif

/* The height of what borders a segment; the ends of time are infinitely high. */
static uint64_t left_wall(const valley *v, uint32_t segment)
{
    return v->previous[segment] == NONE ? UINT64_MAX : v->height[v->previous[segment]];
}

static uint64_t right_wall(const valley *v, uint32_t segment)
{
    return v->next[segment] == v->columns ? UINT64_MAX : v->height[v->next[segment]];
}

static void set_previous(valley *v, uint32_t segment, uint32_t previous)
{
    if (segment != v->columns)
        v->previous[segment] = previous;
}

/* Neighbours of equal height become one segment; returns its name. */
static uint32_t merge(valley *v, uint32_t segment)
{
    if (right_wall(v, segment) == v->height[segment]) {
        v->next[segment] = v->next[v->next[segment]];
        set_previous(v, v->next[segment], segment);
    }
    if (left_wall(v, segment) == v->height[segment]) {
        uint32_t left = v->previous[segment];
        v->next[left] = v->next[segment];
        set_previous(v, v->next[left], left);
        segment = left;
    }
    BERTH_DCHECK(segment_is_valid(v, segment),
                 "[L13] segments are linked both ways, and differ from their neighbours");
    return segment;
}

/* Raises [from, to) of the segment to `top`, and returns the segment there. */
static uint32_t valley_cover(valley *v, uint32_t segment, uint32_t from, uint32_t to, uint64_t top)
{
    const uint64_t floor = v->height[segment];
    BERTH_DCHECK(from >= segment && to <= v->next[segment] && top > floor,
                 "[L13] a valley holds what it gets");
    v->peak = top > v->peak ? top : v->peak;
    if (to < v->next[segment]) {
        v->next[to] = v->next[segment];
        set_previous(v, v->next[to], to);
        v->previous[to] = segment;
        v->next[segment] = to;
        v->height[to] = floor;
    }
    if (from > segment) {
        v->next[from] = v->next[segment];
        set_previous(v, v->next[from], from);
        v->previous[from] = segment;
        v->next[segment] = from;
    }
    v->height[from] = top;
    return merge(v, from);
}

/* Puts an item on the segment that contains its life, and returns the segment above it. */
static uint32_t valley_place(valley *v, uint32_t segment, uint32_t position, uint64_t offset)
{
    const uint32_t item = item_at(v, position);
    take_from_trees(v, position);
    BERTH_DCHECK(v->free_left > 0 && v->offsets[item] == BERTH_NO_OFFSET, "[L2] an item is placed once");
    BERTH_DCHECK(offset >= v->height[segment] && offset == berth__item_align(v->prepared, item, offset),
                 "[L14] nothing is placed below the skyline");
    v->free_left--;
    v->offsets[item] = offset;
    return valley_cover(v, segment, v->lower[position], v->upper[position], offset + v->prepared->size[item]);
}

/* The first position in [from, to) of the order by start whose upper is at least `column`. */
static uint32_t first_ending_at(const valley *v, uint32_t from, uint32_t to, uint32_t column)
{
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (v->upper[middle] < column)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* The same by end: the first rank whose lower is at least `column`. */
static uint32_t first_starting_at(const valley *v, uint32_t from, uint32_t to, uint32_t column)
{
    while (from < to) {
        uint32_t middle = from + (to - from) / 2;
        if (v->lower[v->by_end[middle]] < column)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* The item for the valley [left, right), or NONE: wall to wall, else touching a wall, else inside. */
static uint32_t choose(const valley *v, uint32_t left, uint32_t right)
{
    BERTH_DCHECK(left < right && right <= v->columns, "[L13] a valley has columns");
    const uint32_t begin = v->start_first[left], end = v->start_first[left + 1];
    const uint32_t spans = first_ending_at(v, begin, end, right);
    const uint32_t longer = first_ending_at(v, spans, end, right + 1);
    uint32_t best = berth__maxtree_best(&v->best_by_start, spans, longer);
    if (best != NONE)
        return best;
    best = berth__maxtree_best(&v->best_by_start, begin, spans);
    const uint32_t end_from = v->end_first[right], end_to = v->end_first[right + 1];
    uint32_t rank =
        berth__maxtree_best(&v->best_by_end, first_starting_at(v, end_from, end_to, left + 1), end_to);
    if (rank != NONE && (best == NONE || berth__maxtree_key(&v->best_by_end, rank) >
                                             berth__maxtree_key(&v->best_by_start, best)))
        best = v->by_end[rank];
    if (best != NONE)
        return best;
    uint32_t inside = berth__maxtree_first(&v->soonest, end, v->columns - right + 1);
    if (inside == NONE || v->lower[inside] >= right)
        return NONE;
    const uint32_t column = v->lower[inside];
    return berth__maxtree_best(&v->best_by_start, v->start_first[column],
                               first_ending_at(v, inside, v->start_first[column + 1], right + 1));
}

static uint32_t raise(valley *v, uint32_t segment, uint64_t height)
{
    BERTH_DCHECK(height > v->height[segment] && height != UINT64_MAX, "[L13] a floor rises to a wall");
    v->height[segment] = height;
    return merge(v, segment);
}

/* The lowest pin above [from, to), and where it begins. */
static uint64_t ceiling_of(const valley *v, uint32_t from, uint32_t to, uint32_t *pin)
{
    *pin = berth__pins_lowest(&v->pins, from, to);
    return *pin == BERTH__NO_PIN ? UINT64_MAX : v->prepared->fixed[v->pin[*pin].item];
}

static bool fits_below_pins(const valley *v, uint32_t position, uint64_t floor)
{
    const uint32_t item = item_at(v, position);
    uint32_t pin;
    return berth__item_align(v->prepared, item, floor) + v->prepared->size[item] <=
           ceiling_of(v, v->lower[position], v->upper[position], &pin);
}

/* The first of a few candidates that fits below what is pinned above its own life; NONE if none does. To give the whole
 * valley up for one that is too high would lose most of the room around a frame. */
static uint32_t choose_below_pins(valley *v, uint32_t segment)
{
    uint32_t passed[CANDIDATES], key[CANDIDATES], count = 0, position = NONE;
    while (count < CANDIDATES) {
        position = choose(v, segment, v->next[segment]);
        if (position == NONE || fits_below_pins(v, position, v->height[segment]))
            break;
        key[count] = berth__maxtree_key(&v->best_by_start, position);
        take_from_trees(v, position);
        passed[count++] = position;
        position = NONE;
    }
    for (uint32_t k = 0; k < count; k++)
        put_back_into_trees(v, passed[k], key[k]);
    if (count)
        berth__search_step(v->search, count); /* whether to stop is asked at the next move */
    return position;
}

/* One move in a valley with pins above it: place below the ceiling, let the pin in, or rise to it. */
static uint32_t fill_below_pins(valley *v, uint32_t segment)
{
    const uint32_t right = v->next[segment];
    const uint64_t floor = v->height[segment];
    uint32_t pin;
    const uint64_t ceiling = ceiling_of(v, segment, right, &pin);
    BERTH_DCHECK(ceiling >= floor, "[L13] no pin is built over");
    const uint32_t position = ceiling == floor ? NONE : choose_below_pins(v, segment);
    if (position != NONE)
        return valley_place(v, segment, position,
                            berth__item_align(v->prepared, item_at(v, position), floor));
    if (ceiling == floor) { /* all its columns are this low: none may be higher, lower ones are walls away */
        const berth__pin *reached = &v->pin[pin];
        BERTH_DCHECK(v->pins_left > 0 && reached->lower >= segment && reached->upper <= right,
                     "[L13] a pin is reached when its columns are all as low");
        berth__pins_take(&v->pins, pin);
        v->pins_left--;
        return valley_cover(v, segment, reached->lower, reached->upper,
                            ceiling + v->prepared->piece_size[reached->piece]);
    }
    uint64_t wall =
        left_wall(v, segment) < right_wall(v, segment) ? left_wall(v, segment) : right_wall(v, segment);
    return raise(v, segment, ceiling < wall ? ceiling : wall);
}

static uint32_t valley_fill(valley *v, uint32_t segment)
{
    const uint32_t position = choose(v, segment, v->next[segment]);
    if (position == NONE) {
        uint64_t left = left_wall(v, segment), right = right_wall(v, segment);
        BERTH_DCHECK(left != UINT64_MAX || right != UINT64_MAX, "[L13] wall to wall everything fits");
        return raise(v, segment, left < right ? left : right);
    }
    return valley_place(v, segment, position,
                        berth__item_align(v->prepared, item_at(v, position), v->height[segment]));
}

/* Time to stop. The first plan is completed: with few steps left as it was meant to be, since any other would
 * take longer; against the clock by stacking what has no place yet. */
static bool give_up(valley *v)
{
    const berth_stop why = v->search->stop;
    if (v->limit == UINT64_MAX && why != BERTH_STOP_CLOCK && why != BERTH_STOP_CANCELLED)
        return false;
    v->peak = v->limit == UINT64_MAX && why == BERTH_STOP_CLOCK ? berth__stack_above(v->prepared, v->offsets)
                                                                : UINT64_MAX;
    return true;
}

static void fill_all(valley *v)
{
    uint32_t segment = 0;
    uint64_t walked = 0;
    while (v->free_left || v->pins_left) {
        BERTH_DCHECK(segment_is_valid(v, segment),
                     "[L13] segments are linked both ways, and differ from their neighbours");
        const uint64_t height = v->height[segment], left = left_wall(v, segment),
                       right = right_wall(v, segment);
        if (left < height && left <= right) {
            segment = v->previous[segment];
            walked++;
            continue;
        }
        if (right < height) {
            segment = v->next[segment];
            walked++;
            continue;
        }
        if (berth__search_step(v->search, 1 + walked / 16) && give_up(v))
            return;
        if (v->peak >= v->limit)
            break;
        walked = 0;
        segment = v->pins_left ? fill_below_pins(v, segment) : valley_fill(v, segment);
    }
    if (v->peak >= v->limit)
        v->peak = UINT64_MAX;
}

berth_status berth__valley_run(berth__search *search, unsigned variant, uint64_t limit, uint64_t *offsets,
                               uint64_t *peak)
{
    const berth__prepared *prepared = search->prepared;
    valley v = {.search = search,
                .prepared = prepared,
                .count = prepared->item_count,
                .columns = prepared->column_count,
                .lower = prepared->lower,
                .upper = prepared->upper,
                .offsets = offsets,
                .limit = limit};
    *peak = 0;
    if (v.count == 0)
        return BERTH_OK;
    memset(offsets, 0xff, (size_t)v.count * sizeof *offsets); /* BERTH_NO_OFFSET */
    berth_status status = valley_init(&v, variant);
    if (!status)
        fill_all(&v);
    else
        status = berth__fail(status, "no memory to place %u items", v.count);
    BERTH_DCHECK(status || v.peak >= limit || berth__prepared_peak(prepared, offsets) == v.peak,
                 "[L3] the peak is the largest end");
    *peak = v.peak;
    valley_finish(&v);
    return status;
}
