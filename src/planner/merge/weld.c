/* Welding. Where memory is tight, what follows on a buffer usually takes its very place: a tensor of 119
 * ends, one of 119 starts, and next to nothing else happens at that moment. A search has to find this out
 * again and again, in every branch. Here it is guessed beforehand: such items become one, and the search
 * places half as many. A plan of the welded problem is a plan of the first one; that it has none proves
 * nothing.
 *
 *     successor   one ends where one of the same size starts,   +------+------+      +-------------+
 *                 and no other of that size does either         |  a   |  b   |  ->  |      a      |
 *                                                               +------+------+      +-------------+
 *
 *     stack       two or three live equally long, and together  +------+------+      +------+------+
 *                 have the size of one that ends where they     |      |  c   |      |      |      |
 *                 start or starts where they end; then the      |  a   +------+  ->  |  a   | b, c |
 *                 first rule takes them all                     |      |  b   |      |      |      |
 *                                                               +------+------+      +------+------+
 *
 *     together    all that start at one time end together, or
 *                 all that end together started together
 *
 * A rectangle cut into pieces again and again is put together by these rules in the reverse order of the
 * cuts. Where one ends and one starts, and nothing is free before and after, the first rule is even certain:
 * both must cover the same heights. Else two sizes may be equal by chance, so the surest are welded first
 * (is_sure in weld_rules.c); what is in doubt has often become plain by the time that nothing sure is left.
 *
 * Each round looks at all items once and does all that one rule finds; rounds shrink quickly. Moments at
 * which nothing ends or nothing starts any more go away, which makes more items meet. The answer depends on
 * the canonical order of items and on the seed only. */
#include <string.h>

#include "base/sort.h"
#include "planner/merge/weld_state.h"

enum { MANY = 4096 };

/* ---- Rounds. ---- */

static void drop_welded(welding *w)
{
    uint32_t kept = 0;
    for (uint32_t k = 0; k < w->count; k++)
        if (!w->parts[k].is_welded) {
            BERTH_DCHECK(w->into[w->parts[k].piece] == w->parts[k].piece,
                         "[L15] what is left is part of itself");
            w->parts[kept++] = w->parts[k];
        }
    w->count = kept;
}

/* Names the columns anew: one begins only where a start follows an end. */
static void weld_renumber(welding *w)
{
    uint32_t *ends = w->ending.first, *starts = w->starting.first; /* made anew before they are needed */
    memset(ends, 0, ((size_t)w->columns + 1) * sizeof *ends);
    memset(starts, 0, ((size_t)w->columns + 1) * sizeof *starts);
    for (uint32_t k = 0; k < w->count; k++) {
        BERTH_DCHECK(w->parts[k].lower < w->parts[k].upper && w->parts[k].upper <= w->columns,
                     "[L7] every part lives within the columns");
        ends[w->parts[k].upper] = 1;
        starts[w->parts[k].lower] = 1;
    }
    uint32_t columns = 0;
    bool after_end = true;
    for (uint32_t t = 0; t <= w->columns; t++) {
        const bool is_end = ends[t], is_start = starts[t];
        ends[t] = columns;
        after_end |= is_end;
        columns += is_start && after_end;
        after_end &= !is_start;
        starts[t] = columns - 1;
    }
    for (uint32_t k = 0; k < w->count; k++) {
        w->parts[k].upper = ends[w->parts[k].upper];
        w->parts[k].lower = starts[w->parts[k].lower];
    }
    BERTH_DCHECK(columns <= w->columns, "[L15] with fewer items there are fewer columns");
    w->columns = columns;
}

/* From the surest again after every find, so that what is unsure is decided when most of what was in doubt
 * has become plain. Of very many, a round that welds under 2 % counts as none, which bounds the rounds. */
static void weld_all(welding *w, weld_rule last, berth__search *search)
{
    static const double darings[] = {0.0, 50.0, 200.0, 800.0, 1e300};
    bool found = false;
    unsigned dare = 0;
    for (int rule = WELD_SUCCESSORS; !berth__search_step(search, w->count / 8);) {
        const bool are_many = w->count > MANY;
        const uint32_t few = are_many ? w->count / 50 : 0;
        const unsigned dares = BERTH_COUNT_OF(darings) - are_many; /* guesses alone would lead nowhere */
        w->daring = darings[dare] * w->boldness;
        const uint32_t welds = berth__weld_apply(w, (weld_rule)rule);
        BERTH_DCHECK(welds < w->count, "[L15] what others are welded to stays");
        if (welds > 0) {
            drop_welded(w);
            weld_renumber(w);
            w->has_looked = false;
            found = true;
        }
        const bool all_tried = welds <= few && rule == (int)last && dare + 1 >= dares;
        if (all_tried && !found)
            return;
        if (welds > few || all_tried) {
            rule = WELD_SUCCESSORS;
            dare = 0;
            found = false;
        } else if (rule++ == (int)last) {
            rule = WELD_SUCCESSORS;
            dare++;
        }
    }
}

static berth_status welding_init(welding *w)
{
    const berth__prepared *p = w->from;
    const size_t count = w->count, columns = (size_t)w->columns + 2;
    bool ok = true;
#define ROOM(pointer, places) \
    ((pointer) = berth__heap_alloc((places) * sizeof *(pointer)), ok = ok && (pointer) != NULL)
    ROOM(w->parts, count);
    ROOM(w->alignment, count);
    ROOM(w->into, count);
    ROOM(w->shift, count);
    ROOM(w->ending.first, columns);
    ROOM(w->ending.list, count);
    ROOM(w->ending.size, count);
    ROOM(w->starting.first, columns);
    ROOM(w->starting.list, count);
    ROOM(w->starting.size, count);
    ROOM(w->lives, count);
    ROOM(w->scratch, count);
#undef ROOM
    if (!ok)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to weld %zu items", count);
    for (uint32_t i = 0; i < p->item_count; i++)
        for (uint32_t k = berth__piece_begin(p, i); k < berth__piece_end(p, i); k++) {
            w->parts[k] = (weld_part){.size = p->piece_size[k],
                                      .lower = p->piece_lower[k],
                                      .upper = p->piece_upper[k],
                                      .piece = k,
                                      .is_fixed = berth__item_fixed(p, i) != BERTH_NO_OFFSET ||
                                                  berth__piece_end(p, i) - berth__piece_begin(p, i) > 1};
            w->alignment[k] = berth__item_alignment(p, i);
            w->into[k] = k;
            w->shift[k] = 0;
        }
    return BERTH_OK;
}

static void welding_finish(welding *w)
{
    void *all[] = {w->parts,       w->alignment,      w->into,          w->shift,
                   w->scratch,     w->lives,          w->ending.first,  w->ending.list,
                   w->ending.size, w->starting.first, w->starting.list, w->starting.size};
    for (size_t k = 0; k < BERTH_COUNT_OF(all); k++)
        berth__heap_free(all[k]);
}

/* ---- The smaller problem. ---- */

/* The parts that are left, by piece of the first problem, and the items they belong to in canonical order. */
typedef struct survivors {
    const berth__prepared *from;
    const uint64_t *alignment; /* by piece */
    weld_part *part;           /* by piece */
    uint32_t *order;
    uint32_t count, pieces;
} survivors;

static int weld_compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* As in prepared.c; that equal items of several pieces are next to each other is not needed. */
static int canonical_order(const void *context, uint32_t a, uint32_t b)
{
    const survivors *left = context;
    const berth__prepared *p = left->from;
    const uint32_t first_a = berth__piece_begin(p, a), last_a = berth__piece_end(p, a) - 1;
    const uint32_t first_b = berth__piece_begin(p, b), last_b = berth__piece_end(p, b) - 1;
    int order = weld_compare(left->part[first_a].lower, left->part[first_b].lower);
    order = order ? order : weld_compare(left->part[last_a].upper, left->part[last_b].upper);
    order = order ? order : weld_compare(left->part[first_a].size, left->part[first_b].size);
    order = order ? order : weld_compare(left->alignment[first_a], left->alignment[first_b]);
    return order ? order : weld_compare(berth__item_fixed(p, a), berth__item_fixed(p, b));
}

static bool weld_allocate(berth__prepared *to, const survivors *left)
{
    const size_t items = left->count, pieces = left->pieces;
    to->lower = berth__heap_alloc(items * sizeof *to->lower);
    to->upper = berth__heap_alloc(items * sizeof *to->upper);
    to->size = berth__heap_alloc(items * sizeof *to->size);
    bool ok = to->lower && to->upper && to->size;
    if (left->from->alignment)
        ok = (to->alignment = berth__heap_alloc(items * sizeof *to->alignment)) != NULL && ok;
    if (left->from->fixed)
        ok = (to->fixed = berth__heap_alloc(items * sizeof *to->fixed)) != NULL && ok;
    if (!left->from->piece_first) {
        to->piece_lower = to->lower;
        to->piece_upper = to->upper;
        to->piece_size = to->size;
        return ok;
    }
    to->piece_first = berth__heap_alloc((items + 1) * sizeof *to->piece_first);
    to->piece_lower = berth__heap_alloc(pieces * sizeof *to->piece_lower);
    to->piece_upper = berth__heap_alloc(pieces * sizeof *to->piece_upper);
    to->piece_size = berth__heap_alloc(pieces * sizeof *to->piece_size);
    return ok && to->piece_first && to->piece_lower && to->piece_upper && to->piece_size;
}

static void weld_fill(berth__prepared *to, const survivors *left)
{
    const berth__prepared *p = left->from;
    uint32_t at = 0;
    for (uint32_t k = 0; k < left->count; k++) {
        const uint32_t i = left->order[k], begin = berth__piece_begin(p, i), end = berth__piece_end(p, i);
        to->lower[k] = left->part[begin].lower;
        to->upper[k] = left->part[end - 1].upper;
        to->size[k] = end - begin > 1 ? p->size[i] : left->part[begin].size;
        if (to->alignment)
            to->alignment[k] = left->alignment[begin];
        if (to->fixed)
            to->fixed[k] = p->fixed[i];
        if (to->piece_first)
            to->piece_first[k] = at;
        for (uint32_t piece = begin; piece < end; piece++, at++) {
            to->piece_lower[at] = left->part[piece].lower;
            to->piece_upper[at] = left->part[piece].upper;
            to->piece_size[at] = left->part[piece].size;
        }
    }
    BERTH_DCHECK(!to->piece_first || at == left->pieces, "[L8] every piece has one place");
    if (to->piece_first)
        to->piece_first[left->count] = at;
}

/* Where each item of the first problem has gone. */
static void trace(welding *w, const survivors *left, berth__welded *welded)
{
    uint32_t *place = w->scratch; /* by piece */
    for (uint32_t k = 0; k < left->count; k++)
        place[berth__piece_begin(w->from, left->order[k])] = k;
    for (uint32_t i = 0; i < w->from->item_count; i++) {
        uint32_t k = berth__piece_begin(w->from, i);
        uint64_t shift = 0;
        for (; w->into[k] != k; k = w->into[k])
            shift += w->shift[k];
        BERTH_DCHECK(k == berth__piece_begin(w->from, left->order[place[k]]),
                     "[L15] every item is part of one that is left");
        welded->item[i] = place[k];
        welded->shift[i] = shift;
    }
}

/* Spreads the parts by piece, in place: they are in order of piece but for those of items with several, and
 * none is behind its place. */
static berth_status finish(welding *w, berth__welded *welded)
{
    const berth__prepared *p = w->from;
    berth__prepared *to = &welded->prepared;
    survivors left = {.from = p, .alignment = w->alignment, .part = w->parts};
    left.order = berth__heap_alloc(p->item_count * sizeof *left.order);
    welded->item = berth__heap_alloc(p->item_count * sizeof *welded->item);
    welded->shift = berth__heap_alloc(p->item_count * sizeof *welded->shift);
    welded->item_count = p->item_count;
    if (!left.order || !welded->item || !welded->shift)
        goto fail;
    for (uint32_t k = w->count; k-- > 0;) {
        BERTH_DCHECK(w->parts[k].piece >= k, "[L15] no part is behind its place");
        w->parts[w->parts[k].piece] = w->parts[k];
    }
    for (uint32_t i = 0; i < p->item_count; i++) {
        const uint32_t begin = berth__piece_begin(p, i);
        if (w->into[begin] != begin)
            continue;
        left.order[left.count++] = i;
        left.pieces += berth__piece_end(p, i) - begin;
    }
    berth__sort_indices(left.order, w->scratch, left.count, canonical_order, &left);
    if (!weld_allocate(to, &left))
        goto fail;
    weld_fill(to, &left);
    trace(w, &left, welded);
    to->item_count = left.count;
    to->piece_count = left.pieces;
    to->column_count = w->columns;
    to->unit_bytes = p->unit_bytes;
    to->capacity = p->capacity;
    to->max_live = p->max_live;
    to->max_live_time = p->max_live_time;
    to->horizon = p->horizon;
    to->is_plain = p->is_plain;
    berth__heap_free(left.order);
    return BERTH_OK;
fail:
    berth__heap_free(left.order);
    berth__welded_finish(welded);
    return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %u welded items", p->item_count);
}

#ifndef NDEBUG
static bool welded_is_valid(const berth__prepared *from, const berth__welded *welded)
{
    const berth__prepared *to = &welded->prepared;
    for (uint32_t i = 0; i < from->item_count; i++) {
        const uint32_t into = welded->item[i];
        if (into >= to->item_count || welded->shift[i] + from->size[i] > to->size[into] ||
            welded->shift[i] % berth__item_alignment(from, i) != 0 ||
            berth__item_alignment(to, into) % berth__item_alignment(from, i) != 0 ||
            berth__item_fixed(from, i) != berth__item_fixed(to, into))
            return false;
    }
    return to->item_count <= from->item_count && to->column_count <= from->column_count;
}
#endif

berth_status berth__weld(const berth__prepared *from, berth__weld_level level, uint64_t seed,
                         berth__search *search, berth__welded *welded)
{
    static const double boldness[] = {0.125, 0.5, 1.0, 2.0};
    *welded = (berth__welded){0};
    welding w = {.from = from,
                 .count = from->piece_count,
                 .columns = from->column_count,
                 .random = seed,
                 .is_varied = seed != 0};
    w.boldness = seed ? boldness[seed % BERTH_COUNT_OF(boldness)] : 1.0;
    berth_status status = welding_init(&w);
    if (!status) {
        weld_all(&w, level == BERTH__WELD_SUCCESSORS ? WELD_PARTNERED : WELD_TOGETHER, search);
        status = finish(&w, welded);
    }
    BERTH_DCHECK(status || berth__prepared_is_valid(&welded->prepared),
                 "[L7] [L8] [L9] the welded problem is one");
    BERTH_DCHECK(status || welded_is_valid(from, welded),
                 "[L15] every item lies within the one that it is part of");
    welding_finish(&w);
    return status;
}

void berth__welded_finish(berth__welded *welded)
{
    berth__prepared_finish(&welded->prepared);
    berth__heap_free(welded->item);
    berth__heap_free(welded->shift);
    *welded = (berth__welded){0};
}

void berth__welded_expand(const berth__welded *welded, const uint64_t *offsets, uint64_t *expanded)
{
    for (uint32_t i = 0; i < welded->item_count; i++) {
        BERTH_DCHECK(offsets[welded->item[i]] != BERTH_NO_OFFSET, "[L3] a plan is expanded when it is whole");
        expanded[i] = offsets[welded->item[i]] + welded->shift[i];
    }
}
