/* Phase B, first-fit passes with a pool. The skyline of phase A loses what it builds over: where lives of
 * very different lengths meet, something long comes to lie high and the place below it is gone. A pass fixes
 * the capacity instead, and the order:
 *
 *     capacity  - - - - - - - - - - -         1. The long-lived first, each on the skyline as it is then,
 *                  ####                          if it ends below the capacity there. Else into the pool.
 *               #########   ###
 *               ####..#########.###           2. The pool, long-lived first, into the gaps (..) that were
 *               ####################             built over: each into the smallest that holds it.
 *     weights   ####################
 *                                             3. The few that are left, as low as they go above all.
 *
 * Lives are compared by their length in powers of two only, and in order of time within one: then neighbours
 * are placed one after the other, on the same skyline and in memory that is still in the cache. Another order
 * puts those first that live through a moment nearly as full as the bound, in grades of how full: nothing
 * may be wasted there, while all others have room to spare.
 *
 * Gaps are looked for in windows of time, some times as long as the lives that are looked for in them; see
 * gaps.h. Everything is counted: 100,000 random long lives have gaps without end, and the pass gives up. */
#include "planner/place/passes.h"

#include <string.h>

#include "base/sort.h"
#include "planner/place/gaps.h"
#include "planner/place/heights.h"
#include "planner/place/stack.h"
#include "planner/problem/bound.h"

enum {
    WINDOW_LEVELS = 10,       /* windows of 16, 128, 1024, ... columns */
    LIFE_CLASSES = 64,        /* half powers of two in 32 bits */
    CLASSES = 64 * 64,        /* contention and life together */
    LEFT_AT_MOST = 1000,      /* more than this after all gaps: the order does not suit the problem */
    POOL_STEPS = 8,           /* what one takes at least that finds no place on the skyline, about */
    PIECES_AT_MOST = 1 << 17, /* in one window: each costs 80 bytes, and a look for every item */
    LOOKS_A_STEP = 16,
    COLUMNS_AT_MOST = 1 << 30 /* so that the number of a window has 28 bits */
};

/* Grades of contention: none up to `from` of the capacity, then `each` to the whole. */
typedef struct grading {
    double from, each;
    bool fine_lives;
} grading;

static const grading gradings[BERTH__PASS_ORDERS] = {
    [BERTH__PASS_LIFE] = {2.0, 0.0, false},
    [BERTH__PASS_LIFE_FINE] = {2.0, 0.0, true},
    [BERTH__PASS_CONTENTION] = {0.97, 400.0, false},
    [BERTH__PASS_CONTENTION_COARSE] = {0.6, 50.0, false},
};

typedef struct pass {
    berth__search *search;
    const berth__prepared *p;
    uint64_t capacity;
    uint64_t step_limit;
    uint64_t *offsets;
    uint32_t *list; /* the items in order */
    uint32_t *pool; /* those without a place */
    uint32_t pool_count;
    uint16_t *class_of; /* by item: the lowest goes first */
    berth__heights heights;
    berth__overlap overlap;
    berth__gaps gaps;
} pass;

/* ---- The order ----------------------------------------------------------------------------------- */

/* The length of a life on a scale of half powers of two: 2 log2, rounded down. */
static unsigned life_class(uint32_t life, bool fine)
{
    BERTH_DCHECK(life > 0, "[L7] every item has a life");
    const unsigned whole = life > 1 ? 31U - (unsigned)__builtin_clz(life) : 0;
    const bool upper_half = fine && (uint64_t)life * life >= (uint64_t)2 << (2 * whole);
    return 2 * whole + upper_half;
}

static void raise_to_loads(pass *s, const uint64_t *load)
{
    for (uint32_t c = 0; c < s->p->column_count; c++)
        berth__heights_raise(&s->heights, c, c + 1, load[c]);
}

static unsigned grade_of(const pass *s, uint32_t item, const grading *g)
{
    const uint64_t contention = berth__heights_most(&s->heights, s->p->lower[item], s->p->upper[item]);
    const double over = (double)contention / (double)s->capacity - g->from;
    const double grade = over <= 0 ? 0 : 1 + over * g->each;
    return grade < 63 ? (unsigned)grade : 63;
}

static berth_status classify(pass *s, const grading *g)
{
    const bool graded = g->from < 1.0;
    if (graded) {
        uint64_t *load = berth__heap_alloc((size_t)s->p->column_count * sizeof *load);
        if (!load)
            return BERTH_OUT_OF_HOST_MEMORY;
        berth__bound_loads(s->p, load);
        raise_to_loads(s, load);
        berth__heap_free(load);
    }
    for (uint32_t i = 0; i < s->p->item_count; i++) {
        const unsigned grade = graded ? grade_of(s, i, g) : 0;
        const unsigned life = life_class(s->p->upper[i] - s->p->lower[i], g->fine_lives);
        BERTH_DCHECK(grade * LIFE_CLASSES + life < CLASSES,
                     "[L10] there is a class for every grade and life");
        s->class_of[i] = (uint16_t)(CLASSES - 1 - (grade * LIFE_CLASSES + life));
    }
    if (graded)
        berth__heights_clear(&s->heights);
    return BERTH_OK;
}

/* By class, in canonical order within one, which is that of time. */
static berth_status make_list(pass *s)
{
    uint32_t *first = berth__heap_zalloc(CLASSES + 1, sizeof *first);
    if (!first)
        return BERTH_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < s->p->item_count; i++)
        first[s->class_of[i] + 1]++;
    for (uint32_t c = 0; c < CLASSES; c++)
        first[c + 1] += first[c];
    for (uint32_t i = 0; i < s->p->item_count; i++)
        s->list[first[s->class_of[i]]++] = i;
    BERTH_DCHECK(first[CLASSES - 1] == s->p->item_count, "[L10] the list has every item");
    berth__heap_free(first);
    return BERTH_OK;
}

/* ---- On the skyline ------------------------------------------------------------------------------ */

static void raise_over(pass *s, uint32_t item)
{
    const berth__prepared *p = s->p;
    BERTH_DCHECK(s->offsets[item] <= INT64_MAX, "[L14] what is built over has a place");
    for (uint32_t k = berth__piece_begin(p, item); k < berth__piece_end(p, item); k++)
        berth__heights_raise(&s->heights, p->piece_lower[k], p->piece_upper[k],
                             s->offsets[item] + p->piece_size[k]);
}

static uint64_t height_under(const pass *s, uint32_t item)
{
    const berth__prepared *p = s->p;
    uint64_t height = 0;
    for (uint32_t k = berth__piece_begin(p, item); k < berth__piece_end(p, item); k++) {
        const uint64_t here = berth__heights_most(&s->heights, p->piece_lower[k], p->piece_upper[k]);
        height = here > height ? here : height;
    }
    return berth__item_align(p, item, height);
}

static bool is_over(pass *s, uint64_t looks)
{
    return berth__search_step(s->search, looks / LOOKS_A_STEP) || s->search->steps > s->step_limit;
}

/* Pins first, since they cannot give way; then the list. False: time to stop, or soon. */
static bool place_on_skyline(pass *s)
{
    const berth__prepared *p = s->p;
    for (uint32_t i = 0; i < p->item_count; i++) {
        s->offsets[i] = berth__item_fixed(p, i);
        if (s->offsets[i] != BERTH_NO_OFFSET)
            raise_over(s, i);
    }
    for (uint32_t k = 0; k < p->item_count; k++) {
        const uint32_t item = s->list[k];
        if (s->offsets[item] != BERTH_NO_OFFSET)
            continue;
        if (k % 2 == 0 && is_over(s, LOOKS_A_STEP))
            return false;
        const uint64_t offset = height_under(s, item);
        if (offset > s->capacity || s->capacity - offset < p->size[item]) {
            BERTH_DCHECK(s->pool_count <= k, "[L10] what has no place is in the pool once");
            s->pool[s->pool_count++] = item;
            if (s->pool_count > (s->step_limit - s->search->steps) / POOL_STEPS) /* not to be finished */
                return false;
            continue;
        }
        BERTH_DCHECK(offset == berth__item_align(p, item, offset) && offset + p->size[item] <= s->capacity,
                     "[L14] nothing is placed above the lid");
        s->offsets[item] = offset;
        raise_over(s, item);
    }
    return true;
}

/* ---- In the gaps --------------------------------------------------------------------------------- */

/* Windows of a level are twice as long as its longest life and begin at every multiple of it, so that each
 * item lies whole in the window in which it begins. */
static unsigned level_of(uint32_t life)
{
    const unsigned bits = berth__bits_of(life - 1);
    return bits <= 3 ? 0 : (bits - 3 + 2) / 3;
}

static uint64_t hop_of(unsigned level)
{
    return (uint64_t)8 << (3 * level);
}

/* Larger ones first; then, which keeps that order within, by window: those of long lives first, and in order
 * of time. The window is the upper half of the key, the item the lower. */
static berth_status sort_pool(pass *s, uint64_t **sorted)
{
    const uint32_t count = s->pool_count;
    uint64_t *keys = berth__heap_alloc((size_t)count * 2 * sizeof *keys);
    *sorted = keys;
    if (!keys)
        return BERTH_OUT_OF_HOST_MEMORY;
    for (uint32_t k = 0; k < count; k++) {
        const uint64_t size = s->p->size[s->pool[k]];
        keys[k] = (size < UINT32_MAX ? UINT32_MAX - size : 0) << 32 | s->pool[k];
    }
    berth__sort_keys(keys, keys + count, count, 32, 64);
    for (uint32_t k = 0; k < count; k++) {
        const uint32_t item = (uint32_t)keys[k], lower = s->p->lower[item];
        const unsigned level = level_of(s->p->upper[item] - lower);
        BERTH_DCHECK(level <= WINDOW_LEVELS && lower / hop_of(level) < (uint64_t)1 << 28,
                     "[L10] the number of a window has 28 bits");
        keys[k] = (uint64_t)(WINDOW_LEVELS + 1 - level) << 60 | lower / hop_of(level) << 32 | item;
    }
    berth__sort_keys(keys, keys + count, count, 32, 64);
    return BERTH_OK;
}

/* One window: sorted[from..] of the same upper half. Returns where the next begins. */
static berth_status fill_window(pass *s, const uint64_t *sorted, uint32_t from, uint32_t count,
                                uint32_t *next)
{
    const uint64_t window = sorted[from] >> 32, hop = hop_of(WINDOW_LEVELS + 1 - (unsigned)(window >> 28));
    const uint64_t lower = (window & 0xfffffff) * hop, upper = lower + 2 * hop;
    const uint32_t end = upper < s->p->column_count ? (uint32_t)upper : s->p->column_count;
    BERTH_DCHECK(lower < end, "[L7] a window has columns");
    uint32_t k = from;
    if (berth__overlap_count(&s->overlap, (uint32_t)lower, end) > PIECES_AT_MOST) {
        for (; k < count && sorted[k] >> 32 == window; k++)
            s->pool[s->pool_count++] = (uint32_t)sorted[k];
        *next = k;
        return BERTH_OK;
    }
    berth_status status = berth__gaps_open(&s->gaps, s->offsets, (uint32_t)lower, end);
    for (; k < count && sorted[k] >> 32 == window && !status; k++) {
        const uint32_t item = (uint32_t)sorted[k];
        BERTH_DCHECK(s->p->lower[item] >= lower && s->p->upper[item] <= end,
                     "[L10] an item lies whole in its window");
        const uint64_t offset = berth__gaps_find(&s->gaps, item, s->capacity);
        if (offset == BERTH_NO_OFFSET) {
            s->pool[s->pool_count++] = item;
        } else {
            BERTH_DCHECK(s->offsets[item] == BERTH_NO_OFFSET, "[L2] an item is placed once");
            s->offsets[item] = offset;
            status = berth__gaps_take(&s->gaps, item, offset);
        }
        const bool over = is_over(s, LOOKS_A_STEP + s->gaps.looked_at);
        s->gaps.looked_at = 0;
        if (over || s->pool_count > LEFT_AT_MOST)
            break;
    }
    *next = k;
    return status;
}

/* Fills the pool into gaps; what found none is in the pool afterwards. */
static berth_status place_in_gaps(pass *s)
{
    const uint32_t count = s->pool_count;
    uint64_t *sorted;
    berth_status status = sort_pool(s, &sorted);
    s->pool_count = 0;
    for (uint32_t k = 0; k < count && !status;) {
        status = fill_window(s, sorted, k, count, &k);
        if (s->search->stopped || s->search->steps > s->step_limit || s->pool_count > LEFT_AT_MOST)
            break;
    }
    BERTH_DCHECK(s->pool_count <= count, "[L10] no more find no gap than look for one");
    berth__heap_free(sorted);
    return status;
}

/* Largest first, since they came so from each window. */
static berth_status place_rest(pass *s)
{
    for (uint32_t k = 0; k < s->pool_count; k++) {
        const uint32_t item = s->pool[k];
        BERTH_DCHECK(s->offsets[item] == BERTH_NO_OFFSET, "[L2] an item is placed once");
        s->overlap.looked_at = 0;
        berth_status status = berth__overlap_look(&s->overlap, s->offsets, item);
        if (status || is_over(s, s->overlap.looked_at + 4 * (uint64_t)s->overlap.found_count))
            return status;
        s->offsets[item] = berth__overlap_fit(&s->overlap, item, INT64_MAX, false);
    }
    s->pool_count = 0;
    return BERTH_OK;
}

/* ---- A pass -------------------------------------------------------------------------------------- */

static berth_status pass_init(pass *s)
{
    const size_t count = s->p->item_count;
    s->list = berth__heap_alloc(count * sizeof *s->list);
    s->pool = berth__heap_alloc(count * sizeof *s->pool);
    s->class_of = berth__heap_alloc(count * sizeof *s->class_of);
    if (!s->list || !s->pool || !s->class_of || !berth__heights_init(&s->heights, s->p->column_count))
        return BERTH_OUT_OF_HOST_MEMORY;
    return BERTH_OK;
}

static void pass_finish(pass *s)
{
    berth__heap_free(s->list);
    berth__heap_free(s->pool);
    berth__heap_free(s->class_of);
    berth__heights_finish(&s->heights);
    berth__gaps_finish(&s->gaps);
    berth__overlap_finish(&s->overlap);
}

static berth_status passes_run(pass *s, berth__pass_order order, uint64_t *peak)
{
    berth_status status = pass_init(s);
    status = status ? status : classify(s, &gradings[order]);
    status = status ? status : make_list(s);
    if (status || !place_on_skyline(s))
        return status;
    if (s->pool_count) {
        status = berth__overlap_init(&s->overlap, s->p);
        if (status)
            return status;
        berth__gaps_init(&s->gaps, &s->overlap);
        status = place_in_gaps(s);
        if (status || s->search->stopped || s->search->steps > s->step_limit || s->pool_count > LEFT_AT_MOST)
            return status;
        status = place_rest(s);
    }
    if (!status && s->pool_count == 0)
        *peak = berth__prepared_peak(s->p, s->offsets);
    return status;
}

berth_status berth__pass_run(berth__search *search, berth__pass_order order, uint64_t capacity,
                             uint64_t steps, uint64_t *offsets, uint64_t *peak)
{
    pass s = {.search = search,
              .p = search->prepared,
              .capacity = capacity,
              .step_limit = berth__search_limit(search, steps),
              .offsets = offsets};
    *peak = s.p->item_count ? UINT64_MAX : 0;
    if (s.p->item_count == 0 || s.p->column_count > COLUMNS_AT_MOST)
        return BERTH_OK;
    memset(offsets, 0xff, (size_t)s.p->item_count * sizeof *offsets); /* BERTH_NO_OFFSET */
    berth_status status = passes_run(&s, order, peak);
    /* Time is up before there was any plan: half a pass is better than nothing. */
    if (!status && *peak == UINT64_MAX && search->best_peak == UINT64_MAX && search->stopped &&
        search->stop == BERTH_STOP_CLOCK)
        *peak = berth__stack_above(s.p, offsets);
    if (status == BERTH_OUT_OF_HOST_MEMORY)
        status = berth__fail(status, "no memory for a first-fit pass over %u items", s.p->item_count);
    pass_finish(&s);
    return status;
}
