/* The exact search from outside: setting it up, restarting it, and varying the order of choices.
 *
 * A dive that has gone wrong early rarely recovers, so it is cut after a number of dead ends and begun anew,
 * with other priorities but with the section weights it has learned. The lengths follow Luby, Sinclair and
 * Zuckerman (1993): 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ... times a constant, which is within a logarithm of the
 * best possible schedule whatever the problem. Early on long runs are cut, since short ones find most plans;
 * the limit grows with every run, so that the search stays complete. */
#include "planner/exact/exact.h"

#include <string.h>

#include "planner/exact/exact_state.h"

enum {
    FAILS_A_RUN = 500,
    LONGEST_AT_FIRST = 1500,
    LONGER_EACH = 10,
    TRAIL_AT_FIRST = 1 << 12,
    NARROW_CAPACITY = 16383
};

bool berth__exact_can(const berth__prepared *prepared)
{
    if (prepared->item_count > BERTH__EXACT_ITEMS || prepared->max_live >= BERTH__EXACT_HEIGHT)
        return false;
    for (uint32_t i = 0; i < prepared->item_count; i++) {
        uint64_t fixed = berth__item_fixed(prepared, i);
        if (berth__item_alignment(prepared, i) >= BERTH__EXACT_HEIGHT ||
            (fixed != BERTH_NO_OFFSET && fixed + prepared->size[i] >= BERTH__EXACT_HEIGHT))
            return false;
    }
    return true;
}

uint64_t berth__exact_fails(const berth__exact *exact)
{
    return exact->fails;
}

/* How far above a's offset b must start if it is above: a's largest size while both live; 0: never together.
 */
static uint32_t pair_separation(const berth__prepared *p, uint32_t a, uint32_t b)
{
    uint64_t most = 0;
    uint32_t j = berth__piece_begin(p, b);
    const uint32_t end_a = berth__piece_end(p, a), end_b = berth__piece_end(p, b);
    BERTH_DCHECK(a != b, "[L16] an item is not its own neighbour");
    for (uint32_t i = berth__piece_begin(p, a); i < end_a; i++) {
        while (j < end_b && p->piece_upper[j] <= p->piece_lower[i])
            j++;
        if (j < end_b && p->piece_lower[j] < p->piece_upper[i] && p->piece_size[i] > most)
            most = p->piece_size[i];
    }
    BERTH_DCHECK(most <= p->size[a] && most < BERTH__EXACT_HEIGHT,
                 "[L16] a separation is a size, and has 30 bits");
    return (uint32_t)most;
}

static void find_neighbours(berth__exact *x)
{
    const berth__prepared *p = x->prepared;
    for (uint32_t i = 0; i < x->count; i++)
        for (uint32_t j = i + 1; j < x->count && p->lower[j] < p->upper[i]; j++) { /* in order of lower */
            uint32_t above_i = pair_separation(p, i, j);
            BERTH_DCHECK(p->lower[i] <= p->lower[j], "[L8] items are in canonical order");
            BERTH_DCHECK((above_i == 0) == (pair_separation(p, j, i) == 0), "[L16] who meets is met");
            if (above_i == 0)
                continue;
            set_add(set_of(x->adjacent, x, i), j);
            set_add(set_of(x->adjacent, x, j), i);
            if (x->separation) {
                x->separation[(size_t)i * x->count + j] = above_i;
                x->separation[(size_t)j * x->count + i] = pair_separation(p, j, i);
            }
        }
}

static bool are_equal(const berth__prepared *p, uint32_t a, uint32_t b)
{
    if (p->lower[a] != p->lower[b] || p->upper[a] != p->upper[b] || p->size[a] != p->size[b] ||
        berth__item_alignment(p, a) != berth__item_alignment(p, b) ||
        berth__item_fixed(p, a) != BERTH_NO_OFFSET || berth__item_fixed(p, b) != BERTH_NO_OFFSET)
        return false;
    uint32_t i = berth__piece_begin(p, a), j = berth__piece_begin(p, b);
    if (berth__piece_end(p, a) - i != berth__piece_end(p, b) - j)
        return false;
    for (; i < berth__piece_end(p, a); i++, j++)
        if (p->piece_lower[i] != p->piece_lower[j] || p->piece_upper[i] != p->piece_upper[j] ||
            p->piece_size[i] != p->piece_size[j])
            return false;
    return true;
}

/* Equal items are next to each other in canonical order. */
static void find_equals_and_pins(berth__exact *x)
{
    const berth__prepared *p = x->prepared;
    for (uint32_t i = 0; i < x->count; i++) {
        x->next_equal[i] = i + 1 < x->count && are_equal(p, i, i + 1) ? i + 1 : EXACT_NONE;
        if (berth__item_fixed(p, i) == BERTH_NO_OFFSET)
            continue;
        uint32_t at = x->pin_count++;
        BERTH_DCHECK(at < x->count, "[L16] there is room for every pin");
        for (; at > 0 && p->fixed[x->pins[at - 1]] > p->fixed[i]; at--)
            x->pins[at] = x->pins[at - 1];
        x->pins[at] = i;
    }
}

/* Writes the rows in lanes of the width that the capacity needs. */
static berth_status write_rows(berth__exact *x, bool narrow)
{
    const berth__prepared *p = x->prepared;
    size_t blocks = 0;
    for (uint32_t i = 0; i < x->count; i++) {
        exact_span *span = &x->spans[i];
        span->first_block = x->first[i] / EXACT_LANES;
        span->last_block = (x->last[i] + EXACT_LANES - 1) / EXACT_LANES;
        span->row_at = (uint32_t)blocks;
        BERTH_DCHECK(span->first_block < span->last_block, "[L7] every item lives in a section");
        blocks += span->last_block - span->first_block;
    }
    const size_t lane = narrow ? sizeof(int16_t) : sizeof(int32_t);
    berth__heap_free(x->rows);
    x->rows = berth__heap_aligned((blocks + 1) * EXACT_LANES * lane, 64);
    if (!x->rows)
        return BERTH_OUT_OF_HOST_MEMORY;
    memset(x->rows, 0, (blocks + 1) * EXACT_LANES * lane);
    for (uint32_t i = 0; i < x->count; i++)
        for (uint32_t k = berth__piece_begin(p, i); k < berth__piece_end(p, i); k++)
            for (uint32_t s = p->piece_lower[k]; s < p->piece_upper[k]; s++) {
                size_t at = span_lane(&x->spans[i], s);
                BERTH_DCHECK(at < blocks * EXACT_LANES, "[L16] a row lies in the rows");
                BERTH_DCHECK(!narrow || p->piece_size[k] <= INT16_MAX, "[L16] narrow lanes suffice");
                if (narrow)
                    ((int16_t *)x->rows)[at] = (int16_t)p->piece_size[k];
                else
                    ((int32_t *)x->rows)[at] = (int32_t)p->piece_size[k];
            }
    x->narrow = narrow;
    x->pass = narrow ? x->pass_narrow : x->pass_wide;
    return BERTH_OK;
}

static berth_status exact_allocate(berth__exact *x)
{
    const size_t count = x->count ? x->count : 1, words = x->words,
                 sections = (size_t)x->sections + EXACT_LANES;
    bool ok = true;
#define ROOM(pointer, places) \
    ((pointer) = berth__heap_zalloc((places), sizeof *(pointer)), ok = ok && (pointer) != NULL)
    ROOM(x->size, count);
    ROOM(x->adjacent, count * words);
    if (x->prepared->piece_first)
        ROOM(x->separation, count * count);
    ROOM(x->next_equal, count);
    ROOM(x->pins, count);
    ROOM(x->spans, count);
    ROOM(x->low, count);
    ROOM(x->base, count);
    ROOM(x->deferred_at, count);
    ROOM(x->offset, count);
    ROOM(x->why, count * words);
    ROOM(x->placed, words);
    ROOM(x->unplaced, words);
    ROOM(x->decided, words);
    ROOM(x->conflict, words);
    ROOM(x->crossing, sections);
    ROOM(x->load, sections);
    ROOM(x->rivals, sections);
    ROOM(x->weight, sections);
    ROOM(x->priority, count);
    ROOM(x->frames, 2 * count + 2);
    ROOM(x->kept_sets, (2 * count + 2) * words);
    ROOM(x->trail, TRAIL_AT_FIRST);
    ROOM(x->why_trail, TRAIL_AT_FIRST * words);
    x->list_room = count * (count + 1) + 2 * count;
    x->lists = berth__heap_alloc(x->list_room * sizeof *x->lists); /* mostly never touched */
    x->sums = berth__heap_aligned(sections * sizeof(int32_t), 64);
    x->over = berth__heap_aligned(sections * sizeof(int32_t), 64);
#undef ROOM
    x->trail_room = x->why_room = TRAIL_AT_FIRST;
    return ok && x->lists && x->sums && x->over ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
}

berth_status berth__exact_create(const berth__prepared *prepared, uint64_t seed, berth__exact_path path,
                                 berth__exact **exact)
{
    *exact = NULL;
    exact_pass_fn narrow = berth__exact_pass(true, path), wide = berth__exact_pass(false, path);
    if (!berth__exact_can(prepared) || !narrow || !wide)
        return berth__fail(BERTH_UNSUPPORTED,
                           "exact search takes at most %d items and %llu units, not %u and %llu",
                           BERTH__EXACT_ITEMS, (unsigned long long)BERTH__EXACT_HEIGHT, prepared->item_count,
                           (unsigned long long)prepared->max_live);
    berth__exact *x = berth__heap_zalloc(1, sizeof *x);
    if (!x)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an exact search");
    *x = (berth__exact){.prepared = prepared,
                        .count = prepared->item_count,
                        .sections = prepared->column_count,
                        .words = (prepared->item_count + 63) / 64 + (prepared->item_count == 0),
                        .first = prepared->lower,
                        .last = prepared->upper,
                        .has_alignment = prepared->alignment != NULL,
                        .pass_narrow = narrow,
                        .pass_wide = wide,
                        .weight_step = 1.0,
                        .random = seed ^ 0xB5297A4D3F84D5B5U};
    berth_status status = exact_allocate(x);
    if (status) {
        berth__exact_destroy(x);
        return berth__fail(status, "no memory for an exact search of %u items", prepared->item_count);
    }
    uint64_t lives = 0;
    for (uint32_t i = 0; i < x->count; i++) {
        x->size[i] = (uint32_t)prepared->size[i];
        lives += prepared->upper[i] - prepared->lower[i];
    }
    x->mean_life = x->count ? (uint32_t)(lives / x->count) : 0;
    for (uint32_t s = 0; s < x->sections; s++)
        x->weight[s] = 1.0;
    BERTH_DCHECK(prepared->max_live < BERTH__EXACT_HEIGHT && berth__prepared_is_valid(prepared),
                 "[L7] [L8] [L9] the problem is as solvers expect it");
    find_neighbours(x);
    find_equals_and_pins(x);
    *exact = x;
    return BERTH_OK;
}

void berth__exact_destroy(berth__exact *x)
{
    if (!x)
        return;
    void *all[] = {x->size,   x->adjacent, x->separation, x->next_equal,  x->pins,     x->spans,
                   x->rows,   x->low,      x->base,       x->deferred_at, x->offset,   x->why,
                   x->placed, x->unplaced, x->decided,    x->conflict,    x->crossing, x->load,
                   x->rivals, x->weight,   x->priority,   x->kept_sets,   x->trail,    x->why_trail,
                   x->lists,  x->sums,     x->over,       x->frames};
    for (size_t k = 0; k < BERTH_COUNT_OF(all); k++)
        berth__heap_free(all[k]);
    berth__heap_free(x);
}

/* Logarithm and power by sums and products only: the C library's differ in the last bit from one system to
 * the next, and then the searches would too. */
static double log2_of(double value)
{
    BERTH_DCHECK(value >= 1.0, "[L7] sizes and lives are from 1 on");
    double whole = 0.0;
    for (; value >= 2.0; whole += 1.0)
        value *= 0.5;
    double y = (value - 1.0) / (value + 1.0), square = y * y, term = y, sum = 0.0;
    for (int k = 1; k < 24; k += 2) {
        sum += term / (double)k;
        term *= square;
    }
    return whole + sum * 2.8853900817779268; /* 2 / ln 2 */
}

static double power_of_2(double exponent)
{
    double result = 1.0, term = 1.0, sum = 1.0;
    while (exponent >= 1.0) {
        result *= 2.0;
        exponent -= 1.0;
    }
    BERTH_DCHECK(exponent >= 0.0 && exponent < 1.0, "[L16] the series is for parts of 1");
    for (int k = 1; k < 16; k++) {
        term *= exponent * 0.69314718055994531 / (double)k;
        sum += term;
    }
    return result * sum;
}

static double random_fraction(berth__exact *x)
{
    return (double)(exact_random(x) >> 11) * (1.0 / 9007199254740992.0);
}

/* Priorities between "large first" and "long first", after the first run with some noise. */
static void vary_priorities(berth__exact *x)
{
    static const double first_mixes[] = {0.5, 1.0, 0.67, 0.0, 0.85};
    double mix = random_fraction(x);
    if (x->run_number < BERTH_COUNT_OF(first_mixes))
        mix = first_mixes[x->run_number];
    double noise = x->run_number == 0 ? 0.0 : 0.1;
    for (uint32_t i = 0; i < x->count; i++) {
        double size = log2_of((double)x->size[i]), life = log2_of((double)(x->last[i] - x->first[i]));
        double power = 2.0 * ((1.0 - mix) * size + mix * life);
        x->priority[i] = power_of_2(power) * (1.0 + noise * (2.0 * random_fraction(x) - 1.0));
    }
}

/* The empty state: everything as low as its alignment, the pins and its equals allow. False: something does
 * not fit even alone. */
static bool reset(berth__exact *x)
{
    memset(x->why, 0, (size_t)x->count * x->words * sizeof *x->why);
    memset(x->placed, 0, x->words * sizeof *x->placed);
    memset(x->decided, 0, x->words * sizeof *x->decided);
    memset(x->unplaced, 0, x->words * sizeof *x->unplaced);
    memset(x->crossing, 0, x->sections * sizeof *x->crossing);
    memset(x->load, 0, x->sections * sizeof *x->load);
    BERTH_DCHECK(x->depth == 0 && x->pin_count <= x->count, "[L16] a run begins when the last one is over");
    x->trail_count = x->why_count = x->list_top = 0;
    x->aborted = false;
    bool fits = true;
    for (uint32_t i = 0; i < x->count; i++) {
        uint64_t fixed = berth__item_fixed(x->prepared, i);
        uint32_t low = 0;
        if (i > 0 && x->next_equal[i - 1] == i)
            low = x->low[i - 1] + x->size[i - 1];
        x->low[i] = fixed != BERTH_NO_OFFSET ? (uint32_t)fixed : berth__exact_normalise(x, i, low);
        BERTH_DCHECK(x->low[i] >= low || fixed != BERTH_NO_OFFSET, "[L16] lows only rise");
        x->base[i] = i > 0 && x->next_equal[i - 1] == i ? 0 : x->low[i];
        x->deferred_at[i] = EXACT_NONE;
        set_add(x->unplaced, i);
        for (uint32_t k = berth__piece_begin(x->prepared, i); k < berth__piece_end(x->prepared, i); k++)
            for (uint32_t s = x->prepared->piece_lower[k]; s < x->prepared->piece_upper[k]; s++)
                x->load[s] += (uint32_t)x->prepared->piece_size[k];
        for (uint32_t s = x->first[i]; s + 1 < x->last[i]; s++)
            x->crossing[s]++;
        fits = fits && x->low[i] + x->size[i] <= x->capacity;
        if (!fits)
            break; /* lows past the capacity could grow past their bits */
    }
    return fits;
}

#ifndef NDEBUG
/* Few items are compared with each other; of all it is asked whether they are below the capacity. */
static bool plan_is_whole(const berth__exact *x)
{
    const berth__prepared *p = x->prepared;
    for (uint32_t i = 0; i < x->count; i++) {
        if (x->offset[i] + x->size[i] > x->capacity ||
            x->offset[i] != berth__item_align(p, i, x->offset[i]) ||
            (berth__item_fixed(p, i) != BERTH_NO_OFFSET && x->offset[i] != p->fixed[i]))
            return false;
        for (uint32_t j = i + 1; j < x->count && x->count <= 512 && p->lower[j] < p->upper[i]; j++) {
            const uint32_t above_i = pair_separation(p, i, j), above_j = pair_separation(p, j, i);
            if (above_i && x->offset[i] + above_i > x->offset[j] && x->offset[j] + above_j > x->offset[i])
                return false;
        }
    }
    return true;
}
#endif

berth_status berth__exact_run(berth__exact *x, berth__search *search, uint64_t capacity, uint64_t steps,
                              uint64_t *offsets, berth__exact_answer *answer)
{
    *answer = BERTH__EXACT_UNKNOWN;
    if (capacity < x->prepared->max_live) {
        *answer = BERTH__EXACT_INFEASIBLE;
        return BERTH_OK;
    }
    /* Past the bits we have only plans can be had, no proofs. */
    const bool clamped = capacity >= BERTH__EXACT_HEIGHT;
    capacity = clamped ? BERTH__EXACT_HEIGHT - 1 : capacity;
    if (x->capacity != capacity)
        x->run_number = x->luby_index = 0;
    x->capacity = (uint32_t)capacity;
    BERTH_DCHECK(capacity >= x->prepared->max_live && capacity < BERTH__EXACT_HEIGHT,
                 "[L16] capacities have 30 bits");
    bool narrow = capacity <= NARROW_CAPACITY;
    if (!x->rows || narrow != x->narrow) {
        berth_status status = write_rows(x, narrow);
        if (status)
            return berth__fail(status, "no memory for an exact search of %u items", x->count);
    }
    x->search = search;
    x->step_limit = berth__search_limit(search, steps);
    x->out_of_memory = false;
    while (berth__search_goes_on(search, x->step_limit)) {
        vary_priorities(x);
        x->run_number++;
        uint64_t length = FAILS_A_RUN * berth__luby(++x->luby_index),
                 most = LONGEST_AT_FIRST + LONGER_EACH * x->run_number;
        x->fail_limit = x->fails + (length < most ? length : most);
        BERTH_DCHECK(x->fail_limit > x->fails, "[L6] every run may fail at least once");
        bool solved = reset(x) && berth__exact_dive(x);
        if (x->out_of_memory)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an exact search of %u items",
                               x->count);
        if (solved)
            for (uint32_t i = 0; i < x->count; i++)
                offsets[i] = x->offset[i];
        BERTH_DCHECK(!solved || plan_is_whole(x),
                     "[L14] a plan that is found has all items below the capacity, and none overlap");
        if (solved || !x->aborted) {
            *answer = solved ? BERTH__EXACT_FOUND : clamped ? BERTH__EXACT_UNKNOWN : BERTH__EXACT_INFEASIBLE;
            return BERTH_OK;
        }
    }
    return BERTH_OK;
}
