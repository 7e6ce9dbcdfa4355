/* First fit and best fit: buffers in an order that has nothing to do with time, each put into a gap between
 * the placed buffers that it meets, or on top of them.
 *
 * Whom a buffer meets is found in two ways. Those that begin during its life stand together, because pieces
 * are sorted by their beginning; a bit tells which are placed. Those already live at its beginning hang in a
 * dyadic tree over time: each piece at the smallest node that covers it, so that a walk from leaf to root
 * passes all of them. What it costs is the number of meetings, which can be quadratic; so it is counted, and
 * past a limit the rest is put on top in order of time (100,000 long lives are better planned that way than
 * waited for). */
#include "planner/place/fit.h"

#include <string.h>

#include "base/sort.h"

#define NO_PIECE UINT32_MAX

/* Offsets [low, high) that an item cannot have because of one placed piece. */
typedef struct span {
    uint64_t low, high;
} span;

typedef struct fitting {
    berth__search *search;
    const berth__prepared *p;
    berth__fit_rule rule;
    uint64_t *offsets;

    uint32_t *order;    /* pieces by their beginning; NULL: they are */
    uint32_t *position; /* the inverse of it */
    uint32_t *item_of;  /* by piece; NULL: item i is piece i */
    uint32_t *begins;   /* by column: how many pieces begin before it */
    uint64_t *placed;   /* a bit a position */
    uint32_t *head;     /* of the nodes' lists; node (level, n) is at (1 << (height - level)) + n */
    uint32_t *next;     /* by piece */
    unsigned height;

    span *spans; /* those of the item being placed */
    size_t span_count, span_room;
    uint64_t work, work_limit;
    bool is_given_up;
} fitting;

/* ---- Whom an item meets -------------------------------------------------------------------------- */

static uint32_t node_of(const fitting *f, uint32_t piece)
{
    uint32_t a = f->p->piece_lower[piece], b = f->p->piece_upper[piece] - 1;
    unsigned level = berth__bits_of(a ^ b);
    return ((uint32_t)1 << (f->height - level)) + (a >> level);
}

static bool add_span(fitting *f, uint32_t own, uint32_t other)
{
    if (f->span_count == f->span_room) {
        size_t room = f->span_room ? f->span_room * 2 : 256;
        span *spans = berth__heap_realloc(f->spans, 2 * room * sizeof *spans); /* half of it is for sorting */
        if (!spans)
            return false;
        f->spans = spans;
        f->span_room = room;
    }
    uint64_t size = f->p->piece_size[own];
    uint64_t start = f->offsets[f->item_of ? f->item_of[other] : other];
    f->spans[f->span_count++] = (span){start >= size ? start - size + 1 : 0, start + f->p->piece_size[other]};
    return true;
}

static bool meet_those_before(fitting *f, uint32_t own)
{
    uint32_t at = f->p->piece_lower[own];
    for (unsigned level = 0; level <= f->height; level++) {
        uint32_t k = f->head[((uint32_t)1 << (f->height - level)) + (at >> level)];
        for (; k != NO_PIECE; k = f->next[k]) {
            f->work++;
            if (f->p->piece_lower[k] <= at && at < f->p->piece_upper[k] && !add_span(f, own, k))
                return false;
        }
    }
    return true;
}

static bool meet_those_after(fitting *f, uint32_t own)
{
    uint32_t from = f->begins[f->p->piece_lower[own] + 1], to = f->begins[f->p->piece_upper[own]];
    for (uint32_t word = from / 64; from < to && word <= (to - 1) / 64; word++) {
        uint64_t bits = f->placed[word];
        if (word == from / 64)
            bits &= ~(uint64_t)0 << (from % 64);
        if (word == (to - 1) / 64)
            bits &= ~(uint64_t)0 >> (63 - (to - 1) % 64);
        f->work++;
        for (; bits; bits &= bits - 1) {
            uint32_t position = word * 64 + (uint32_t)__builtin_ctzll(bits);
            f->work++;
            if (!add_span(f, own, f->order ? f->order[position] : position))
                return false;
        }
    }
    return true;
}

static bool meet(fitting *f, uint32_t item)
{
    f->span_count = 0;
    for (uint32_t k = berth__piece_begin(f->p, item); k < berth__piece_end(f->p, item); k++)
        if (!meet_those_before(f, k) || !meet_those_after(f, k))
            return false;
    return true;
}

/* ---- Which gap ----------------------------------------------------------------------------------- */

/* Merges the sorted runs [0, middle) and [middle, count) of `from` into `to`. */
static void merge(const span *from, size_t middle, size_t count, span *to)
{
    size_t a = 0, b = middle;
    for (size_t k = 0; k < count; k++)
        to[k] = b == count || (a < middle && from[a].low <= from[b].low) ? from[a++] : from[b++];
}

static void sort_spans(fitting *f)
{
    enum { RUN = 16 };
    if (f->span_count < 2)
        return;
    span *from = f->spans, *to = f->spans + f->span_room;
    size_t count = f->span_count;
    for (size_t first = 0; first < count; first += RUN) {
        size_t end = first + RUN < count ? first + RUN : count;
        for (size_t i = first + 1; i < end; i++) {
            span held = from[i];
            size_t at = i;
            for (; at > first && from[at - 1].low > held.low; at--)
                from[at] = from[at - 1];
            from[at] = held;
        }
    }
    for (size_t run = RUN; run < count; run *= 2) {
        for (size_t first = 0; first < count; first += 2 * run) {
            size_t left = count - first;
            merge(from + first, left < run ? left : run, left < 2 * run ? left : 2 * run, to + first);
        }
        span *held = from;
        from = to;
        to = held;
    }
    if (from != f->spans)
        memcpy(f->spans, from, count * sizeof *from);
}

/* Walks over the forbidden spans upward; between them are the gaps. */
static uint64_t choose(const fitting *f, uint32_t item)
{
    uint64_t at = 0, best = 0, best_slack = UINT64_MAX;
    for (size_t k = 0; k < f->span_count; k++) {
        uint64_t start = berth__item_align(f->p, item, at);
        if (f->spans[k].low > start) {
            uint64_t slack = f->spans[k].low - start;
            if (f->rule == BERTH__FIT_FIRST)
                return start;
            if (slack < best_slack) {
                best_slack = slack;
                best = start;
            }
        }
        if (f->spans[k].high > at)
            at = f->spans[k].high;
    }
    return best_slack != UINT64_MAX ? best : berth__item_align(f->p, item, at);
}

static void put(fitting *f, uint32_t item, uint64_t offset)
{
    f->offsets[item] = offset;
    for (uint32_t k = berth__piece_begin(f->p, item); k < berth__piece_end(f->p, item); k++) {
        uint32_t node = node_of(f, k), position = f->position ? f->position[k] : k;
        f->next[k] = f->head[node];
        f->head[node] = k;
        f->placed[position / 64] |= (uint64_t)1 << (position % 64);
    }
}

/* ---- A pass -------------------------------------------------------------------------------------- */

static int by_begin(const void *context, uint32_t a, uint32_t b)
{
    const uint32_t *lower = context;
    return (lower[a] > lower[b]) - (lower[a] < lower[b]);
}

/* With several pieces an item, pieces are not in order of their beginning: they get an order of their own. */
static bool sort_pieces(fitting *f)
{
    const berth__prepared *p = f->p;
    size_t count = p->piece_count;
    f->order = berth__heap_alloc(count * sizeof *f->order);
    f->position = berth__heap_alloc(count * sizeof *f->position);
    f->item_of = berth__heap_alloc(count * sizeof *f->item_of);
    if (!f->order || !f->position || !f->item_of)
        return false;
    for (uint32_t i = 0; i < p->item_count; i++)
        for (uint32_t k = p->piece_first[i]; k < p->piece_first[i + 1]; k++) {
            f->item_of[k] = i;
            f->order[k] = k;
        }
    berth__sort_indices(f->order, f->position, count, by_begin, p->piece_lower);
    for (uint32_t k = 0; k < count; k++)
        f->position[f->order[k]] = k;
    return true;
}

static bool fitting_init(fitting *f)
{
    const berth__prepared *p = f->p;
    if (p->piece_first && !sort_pieces(f))
        return false;
    f->height = berth__bits_of(p->column_count - 1);
    size_t nodes = (size_t)2 << f->height;
    f->begins = berth__heap_zalloc((size_t)p->column_count + 2, sizeof *f->begins);
    f->placed = berth__heap_zalloc(p->piece_count / 64 + 1, sizeof *f->placed);
    f->head = berth__heap_alloc(nodes * sizeof *f->head);
    f->next = berth__heap_alloc(p->piece_count * sizeof *f->next);
    f->offsets = berth__heap_alloc(p->item_count * sizeof *f->offsets);
    if (!f->begins || !f->placed || !f->head || !f->next || !f->offsets)
        return false;
    memset(f->head, 0xff, nodes * sizeof *f->head);
    memset(f->offsets, 0xff, p->item_count * sizeof *f->offsets); /* BERTH_NO_OFFSET */
    for (uint32_t k = 0; k < p->piece_count; k++)
        f->begins[p->piece_lower[k] + 1]++;
    for (uint32_t c = 0; c <= p->column_count; c++)
        f->begins[c + 1] += f->begins[c];
    return true;
}

static void fitting_finish(fitting *f)
{
    berth__heap_free(f->spans);
    berth__heap_free(f->offsets);
    berth__heap_free(f->next);
    berth__heap_free(f->head);
    berth__heap_free(f->placed);
    berth__heap_free(f->begins);
    berth__heap_free(f->item_of);
    berth__heap_free(f->position);
    berth__heap_free(f->order);
}

static void put_pins(fitting *f)
{
    for (uint32_t i = 0; f->p->fixed && i < f->p->item_count; i++)
        if (f->p->fixed[i] != BERTH_NO_OFFSET)
            put(f, i, f->p->fixed[i]);
}

/* Everything that has no place yet goes above everything that has one. */
static berth_status put_rest_above(fitting *f)
{
    uint64_t floor = 0;
    for (uint32_t i = 0; i < f->p->item_count; i++)
        if (f->offsets[i] != BERTH_NO_OFFSET && f->offsets[i] + f->p->size[i] > floor)
            floor = f->offsets[i] + f->p->size[i];
    bool is_whole;
    return berth__greedy_above(f->search, floor, UINT64_MAX, f->offsets, &is_whole);
}

static berth_status pass(fitting *f, const uint32_t *list)
{
    put_pins(f);
    for (uint32_t k = 0; k < f->p->item_count; k++) {
        uint32_t item = list[k];
        if (f->offsets[item] != BERTH_NO_OFFSET)
            continue;
        uint64_t before = f->work;
        if (!meet(f, item))
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to fit a buffer among %zu others",
                               f->span_count);
        sort_spans(f);
        put(f, item, choose(f, item));
        const bool stop = berth__search_step(f->search, (f->work - before) / BERTH__FIT_LOOKS_A_STEP + 1);
        f->is_given_up = stop && f->search->best_peak != UINT64_MAX && k + 1 < f->p->item_count;
        if (f->is_given_up) /* nobody waits for this one any more */
            return BERTH_OK;
        if (stop || f->work > f->work_limit)
            return put_rest_above(f);
    }
    return BERTH_OK;
}

berth_status berth__fit(berth__search *search, berth__fit_order order, berth__fit_rule rule, const char *name)
{
    const berth__prepared *p = search->prepared;
    if (search->stopped && search->best_peak != UINT64_MAX)
        return BERTH_OK;
    fitting f = {.search = search, .p = p, .rule = rule};
    f.work_limit = (uint64_t)p->item_count * 64 + ((uint64_t)2 << 20);
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    uint32_t *list = berth__heap_alloc(p->item_count * sizeof *list);
    if (!list || !fitting_init(&f)) {
        status = berth__fail(status, "no memory to fit %u buffers", p->item_count);
        goto out;
    }
    status = berth__fit_list(p, order, list);
    if (!status)
        status = pass(&f, list);
    if (!status && !f.is_given_up && !(search->stopped && search->stop == BERTH_STOP_CANCELLED))
        berth__search_offer(search, f.offsets, name);
out:
    fitting_finish(&f);
    berth__heap_free(list);
    return status;
}

/* ---- The table's entries ------------------------------------------------------------------------- */

#define FIT_SOLVER(symbol, text, order, rule, words)                                   \
    static berth_status run_##symbol(berth__search *search)                            \
    {                                                                                  \
        if (berth__search_phase(search, text) && search->stop == BERTH_STOP_CANCELLED) \
            return BERTH_OK;                                                           \
        return berth__fit(search, order, rule, text);                                  \
    }                                                                                  \
    const berth__solver berth__solver_##symbol = {.name = text, .about = words, .run = run_##symbol}

FIT_SOLVER(first_fit_size, "first-fit-size", BERTH__FIT_BY_SIZE, BERTH__FIT_FIRST,
           "largest first, each in the lowest gap");
FIT_SOLVER(first_fit_area, "first-fit-area", BERTH__FIT_BY_AREA, BERTH__FIT_FIRST,
           "largest size times life first, each in the lowest gap");
FIT_SOLVER(first_fit_breadth, "first-fit-breadth", BERTH__FIT_BY_BREADTH, BERTH__FIT_FIRST,
           "the fullest moment first, each in the lowest gap");
FIT_SOLVER(best_fit_size, "best-fit-size", BERTH__FIT_BY_SIZE, BERTH__FIT_BEST,
           "largest first, each in the tightest gap");
FIT_SOLVER(best_fit_area, "best-fit-area", BERTH__FIT_BY_AREA, BERTH__FIT_BEST,
           "largest size times life first, each in the tightest gap");
FIT_SOLVER(best_fit_breadth, "best-fit-breadth", BERTH__FIT_BY_BREADTH, BERTH__FIT_BEST,
           "the fullest moment first, each in the tightest gap");
