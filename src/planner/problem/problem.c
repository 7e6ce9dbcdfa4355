/* A problem as plain data: whether its numbers make sense, its fingerprint, and who is live at a time. */
#include <inttypes.h>
#include <string.h>

#include "base/sort.h"
#include "planner/problem/rules.h"

/* Every offset that any solver can arrive at stays below this, so that sums need no further care. */
#define LARGEST_SUM ((uint64_t)INT64_MAX)

static uint64_t greatest_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static uint64_t step_of(const berth_problem *problem, const berth_problem_buffer *buffer)
{
    uint64_t a = buffer->alignment ? buffer->alignment : 1, b = problem->alignment ? problem->alignment : 1;
    return a == 1 || a == b ? b : a / greatest_divisor(a, b) * b; /* two factors below 2^32 */
}

static berth_status gaps_make_sense(const berth_problem *problem, size_t index)
{
    const berth_problem_buffer *b = &problem->buffers[index];
    if ((uint64_t)b->gap_first + b->gap_count > problem->gap_count)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "buffer %zu names gaps up to %" PRIu64 ", the problem has %zu", index,
                           (uint64_t)b->gap_first + b->gap_count, problem->gap_count);
    int64_t after = b->lower;
    for (uint32_t k = 0; k < b->gap_count; k++) {
        const berth_gap *gap = &problem->gaps[b->gap_first + k];
        if (gap->lower >= gap->upper)
            return berth__fail(BERTH_INVALID_ARGUMENT,
                               "buffer %zu: the gap %" PRId64 "-%" PRId64
                               " is empty or ends before it begins",
                               index, gap->lower, gap->upper);
        if (gap->lower < after || gap->upper > b->upper)
            return berth__fail(BERTH_INVALID_ARGUMENT,
                               "buffer %zu: the gap %" PRId64 "-%" PRId64
                               " lies outside the buffer's life %" PRId64 "-%" PRId64
                               " or overlaps the gap before it",
                               index, gap->lower, gap->upper, b->lower, b->upper);
        after = gap->upper;
    }
    return BERTH_OK;
}

/* Adds what buffer `index` may need at worst, with its padding, to `sum`. */
static berth_status add_need(const berth_problem *problem, size_t index, uint64_t *sum, uint64_t *pin_end)
{
    const berth_problem_buffer *b = &problem->buffers[index];
    uint64_t step = step_of(problem, b), end;
    if (b->size_bytes > LARGEST_SUM || step > LARGEST_SUM || *sum > LARGEST_SUM ||
        berth__add_overflows(*sum, berth__rules_size(problem, b), sum) ||
        berth__add_overflows(*sum, step - 1, sum) || *sum > LARGEST_SUM)
        return berth__fail(BERTH_OVERFLOW,
                           "the sizes up to buffer %zu add up to more than 63 bits hold; is the unit right?",
                           index);
    if (b->fixed_offset == BERTH_NO_OFFSET)
        return BERTH_OK;
    if (b->fixed_offset % step)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "buffer %zu is fixed at %" PRIu64
                           ", which is no multiple of its alignment %" PRIu64,
                           index, b->fixed_offset, step);
    if (b->fixed_offset > LARGEST_SUM ||
        berth__add_overflows(b->fixed_offset, berth__rules_size(problem, b), &end))
        return berth__fail(BERTH_OVERFLOW, "buffer %zu is fixed at %" PRIu64 ", past what 63 bits hold",
                           index, b->fixed_offset);
    if (end > *pin_end)
        *pin_end = end;
    return BERTH_OK;
}

/* Adds one that has neither gaps, alignment nor pin, as most have, to `sum`; false where it takes a closer look. */
static bool add_plain(const berth_problem_buffer *b, uint64_t *sum)
{
    const bool is_plain = b->alignment <= 1 && b->gap_count == 0 && b->fixed_offset == BERTH_NO_OFFSET &&
                          b->lower <= b->upper && b->size_bytes <= LARGEST_SUM - *sum;
    *sum += is_plain ? b->size_bytes : 0;
    return is_plain;
}

berth_status berth__rules_numbers(const berth_problem *problem)
{
    if (!problem || problem->struct_size < sizeof(berth_problem))
        return berth__fail(BERTH_INVALID_ARGUMENT, "the problem is NULL or its struct_size is not set");
    if ((problem->buffer_count && !problem->buffers) || (problem->gap_count && !problem->gaps))
        return berth__fail(BERTH_INVALID_ARGUMENT, "the problem counts buffers or gaps but has none");
    if (problem->buffer_count > UINT32_MAX - 1 || problem->gap_count > UINT32_MAX - 1)
        return berth__fail(BERTH_OVERFLOW, "%zu buffers are more than the planner can number",
                           problem->buffer_count);
    uint64_t sum = 0, pin_end = 0;
    const bool rounds = problem->alignment > 1;
    for (size_t i = 0; i < problem->buffer_count; i++) {
        const berth_problem_buffer *b = &problem->buffers[i];
        if (!rounds && add_plain(b, &sum))
            continue;
        if (b->lower > b->upper)
            return berth__fail(BERTH_INVALID_ARGUMENT,
                               "buffer %zu ends at %" PRId64 ", before it begins at %" PRId64, i, b->upper,
                               b->lower);
        berth_status status = b->gap_count ? gaps_make_sense(problem, i) : BERTH_OK;
        if (!status)
            status = add_need(problem, i, &sum, &pin_end);
        if (status)
            return status;
    }
    if (sum + pin_end > LARGEST_SUM)
        return berth__fail(BERTH_OVERFLOW,
                           "the sizes and the fixed offsets add up to more than 63 bits hold");
    return BERTH_OK;
}

static int by_group(const void *context, uint32_t a, uint32_t b)
{
    const berth_problem_buffer *buffers = context;
    uint32_t x = buffers[a].alias_group, y = buffers[b].alias_group;
    return (x > y) - (x < y);
}

/* Lists the buffers that are in alias groups, group by group. The caller frees. */
static berth_status list_groups(const berth_problem *problem, uint32_t **out, size_t *out_count)
{
    size_t count = 0;
    *out = NULL;
    for (size_t i = 0; i < problem->buffer_count; i++)
        count += problem->buffers[i].alias_group != 0;
    *out_count = count;
    if (!count)
        return BERTH_OK;
    uint32_t *list = berth__heap_zalloc(2 * count, sizeof *list);
    if (!list)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to list %zu members of alias groups", count);
    size_t n = 0;
    for (size_t i = 0; i < problem->buffer_count; i++)
        if (problem->buffers[i].alias_group)
            list[n++] = (uint32_t)i;
    BERTH_DCHECK(n == count, "[L2] the list has every member of a group");
    berth__sort_indices(list, list + count, count, by_group, problem->buffers);
    *out = list;
    return BERTH_OK;
}

/* One group, list[0 .. count): at most one pin, and that one right for every member. Spreads it to all. */
static berth_status spread_pin(const berth_problem *problem, const uint32_t *list, size_t count,
                               uint64_t *offsets)
{
    uint32_t holder = UINT32_MAX;
    BERTH_DCHECK(count > 0 && by_group(problem->buffers, list[0], list[count - 1]) == 0,
                 "[L2] members of one group share a pin");
    for (size_t k = 0; k < count; k++) {
        if (problem->buffers[list[k]].fixed_offset == BERTH_NO_OFFSET)
            continue;
        if (holder == UINT32_MAX)
            holder = list[k];
        else if (problem->buffers[list[k]].fixed_offset != problem->buffers[holder].fixed_offset)
            return berth__fail(BERTH_INVALID_ARGUMENT,
                               "buffers %" PRIu32 " and %" PRIu32 " share one place but are fixed at %" PRIu64
                               " and %" PRIu64,
                               holder, list[k], problem->buffers[holder].fixed_offset,
                               problem->buffers[list[k]].fixed_offset);
    }
    if (holder == UINT32_MAX)
        return BERTH_OK;
    uint64_t pin = problem->buffers[holder].fixed_offset;
    for (size_t k = 0; k < count; k++) {
        uint64_t step = step_of(problem, &problem->buffers[list[k]]);
        if (pin % step)
            return berth__fail(BERTH_INVALID_ARGUMENT,
                               "buffer %" PRIu32 " shares the place of buffer %" PRIu32 ", fixed at %" PRIu64
                               ", which is no multiple of its alignment %" PRIu64,
                               list[k], holder, pin, step);
        offsets[list[k]] = pin;
    }
    return BERTH_OK;
}

static berth_status pins_make_sense(const berth_problem *problem)
{
    uint32_t *list;
    size_t count;
    berth_status status = list_groups(problem, &list, &count);
    if (status)
        return status;
    uint64_t *offsets = berth__heap_zalloc(problem->buffer_count, sizeof *offsets);
    if (!offsets) {
        status = berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to look at the fixed offsets");
        goto free_list;
    }
    for (size_t i = 0; i < problem->buffer_count; i++)
        offsets[i] = problem->buffers[i].fixed_offset;
    for (size_t k = 0, end; k < count && !status; k = end) {
        for (end = k + 1; end < count && !by_group(problem->buffers, list[k], list[end]); end++)
            ;
        status = spread_pin(problem, list + k, end - k, offsets);
    }
    if (!status) {
        berth_verdict verdict = {.struct_size = sizeof verdict};
        status = berth__rules_collision(problem, offsets, &verdict);
        if (status == BERTH_MISMATCH)
            status = berth__fail(BERTH_INVALID_ARGUMENT, "fixed offsets collide: %s", verdict.words);
    }
    berth__heap_free(offsets);
free_list:
    berth__heap_free(list);
    return status;
}

berth_status berth_problem_validate(const berth_problem *problem)
{
    berth_status status = berth__rules_numbers(problem);
    for (size_t i = 0; !status && i < problem->buffer_count; i++)
        if (problem->buffers[i].fixed_offset != BERTH_NO_OFFSET)
            return pins_make_sense(problem);
    return status;
}

/* ---- Fingerprint ------------------------------------------------------------------------------- */

/* Spreads every bit of `x` over the whole word: the rows are added up, so each must look random. */
static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

/* Every field is a multiplication apart from the last, so that a million rows cost little; mix() ends a row.
 */
static uint64_t chain(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

static uint64_t row_hash(const berth_problem *problem, size_t index)
{
    const berth_problem_buffer *b = &problem->buffers[index];
    uint64_t hash = chain(1, (uint64_t)b->lower);
    hash = chain(hash, (uint64_t)b->upper);
    hash = chain(hash, b->size_bytes);
    hash = chain(hash, b->alignment ? b->alignment : 1);
    hash = chain(hash, b->fixed_offset);
    hash = chain(hash, (uint64_t)b->hint);
    for (uint32_t k = 0; k < b->gap_count; k++) {
        hash = chain(hash, (uint64_t)problem->gaps[b->gap_first + k].lower);
        hash = chain(hash, (uint64_t)problem->gaps[b->gap_first + k].upper);
    }
    return mix(hash);
}

berth_status berth__rules_fingerprint(const berth_problem *problem, uint64_t *out)
{
    uint32_t *list;
    size_t count;
    berth_status status = list_groups(problem, &list, &count);
    if (status)
        return status;
    uint64_t sum = 0;
    for (size_t i = 0; i < problem->buffer_count; i++)
        if (!problem->buffers[i].alias_group)
            sum += row_hash(problem, i);
    for (size_t k = 0, end; k < count; k = end) {
        uint64_t group = 0;
        for (end = k; end < count && !by_group(problem->buffers, list[k], list[end]); end++)
            group += row_hash(problem, list[end]);
        sum += mix(chain(2, group));
    }
    berth__heap_free(list);
    uint64_t hash = chain(sum, problem->buffer_count);
    hash = chain(hash, problem->capacity_bytes);
    *out = mix(chain(hash, problem->alignment ? problem->alignment : 1));
    return BERTH_OK;
}

berth_status berth_problem_fingerprint(const berth_problem *problem, uint64_t *out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "a fingerprint needs a place to go");
    berth_status status = berth__rules_numbers(problem);
    return status ? status : berth__rules_fingerprint(problem, out);
}

/* ---- Who is live ------------------------------------------------------------------------------- */

static bool is_live(const berth_problem *problem, size_t index, int64_t time)
{
    const berth_problem_buffer *b = &problem->buffers[index];
    if (time < b->lower || time >= b->upper || !b->size_bytes)
        return false;
    for (uint32_t k = 0; k < b->gap_count; k++)
        if (time >= problem->gaps[b->gap_first + k].lower && time < problem->gaps[b->gap_first + k].upper)
            return false;
    return true;
}

/* Whether buffer `a` is listed before buffer `b`. */
static bool problem_larger(const berth_problem *problem, size_t a, size_t b)
{
    uint64_t x = problem->buffers[a].size_bytes, y = problem->buffers[b].size_bytes;
    return x != y ? x > y : a < b;
}

/* Lets heap[at] sink in a heap whose root comes last in the list. */
static void sink(const berth_problem *problem, size_t *heap, size_t count, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && problem_larger(problem, heap[child], heap[child + 1]))
            child++;
        if (!problem_larger(problem, heap[at], heap[child]))
            return;
        size_t held = heap[at];
        heap[at] = heap[child];
        heap[child] = held;
    }
}

size_t berth__rules_live(const berth_problem *problem, int64_t time, size_t *indices, size_t room)
{
    size_t found = 0;
    for (size_t i = 0; i < problem->buffer_count; i++) {
        if (!is_live(problem, i, time))
            continue;
        if (found < room) {
            indices[found] = i;
            if (found + 1 == room) /* from now on only what beats the smallest comes in */
                for (size_t at = room / 2; at-- > 0;)
                    sink(problem, indices, room, at);
        } else if (room && problem_larger(problem, i, indices[0])) {
            indices[0] = i;
            sink(problem, indices, room, 0);
        }
        found++;
    }
    size_t kept = found < room ? found : room;
    for (size_t at = kept / 2; at-- > 0;)
        sink(problem, indices, kept, at);
    for (size_t left = kept; left > 1; left--) {
        size_t held = indices[0];
        indices[0] = indices[left - 1];
        indices[left - 1] = held;
        BERTH_DCHECK(left == kept || problem_larger(problem, held, indices[left]),
                     "[L9] who is live is listed from the largest on");
        sink(problem, indices, left - 1, 0);
    }
    return found;
}

berth_status berth_problem_live(const berth_problem *problem, int64_t time, size_t *indices, size_t room,
                                size_t *count)
{
    if (!count || (room && !indices))
        return berth__fail(BERTH_INVALID_ARGUMENT, "the list of live buffers needs a place to go");
    berth_status status = berth__rules_numbers(problem);
    if (!status)
        *count = berth__rules_live(problem, time, indices, room);
    return status;
}

/* ---- How much is live ---------------------------------------------------------------------------- */

/* Adds `size` to the load at `lower` and takes it away at `upper`. */
static void add_load(uint64_t *load, int64_t first, int64_t lower, int64_t upper, uint64_t size)
{
    BERTH_DCHECK(first <= lower && lower <= upper, "[L9] gaps are in order, within their buffer's life");
    load[(uint64_t)lower - (uint64_t)first] += size;
    load[(uint64_t)upper - (uint64_t)first] -= size;
}

static void add_loads(const berth_problem *problem, int64_t first, uint64_t *load)
{
    for (size_t i = 0; i < problem->buffer_count; i++) {
        const berth_problem_buffer *b = &problem->buffers[i];
        uint64_t size = berth__rules_size(problem, b);
        int64_t from = b->lower;
        for (uint32_t k = 0; k < b->gap_count; k++) {
            add_load(load, first, from, problem->gaps[b->gap_first + k].lower, size);
            from = problem->gaps[b->gap_first + k].upper;
        }
        add_load(load, first, from, b->upper, size);
    }
}

bool berth__rules_max_live(const berth_problem *problem, uint64_t *bytes, int64_t *when)
{
    enum { TIMES_A_BUFFER = 4 };
    int64_t first = INT64_MAX, last = INT64_MIN;
    for (size_t i = 0; i < problem->buffer_count; i++) {
        const berth_problem_buffer *b = &problem->buffers[i];
        if (b->alias_group)
            return false; /* of a group only the largest counts */
        first = b->lower < first ? b->lower : first;
        last = b->upper > last ? b->upper : last;
    }
    uint64_t span = problem->buffer_count ? (uint64_t)last - (uint64_t)first : 0;
    if (span > TIMES_A_BUFFER * (uint64_t)problem->buffer_count)
        return false;
    uint64_t *load = berth__heap_zalloc((size_t)span + 1, sizeof *load), sum = 0, most = 0, at = 0;
    if (!load)
        return false;
    add_loads(problem, first, load);
    for (uint64_t t = 0; t <= span; t++) {
        sum += load[t];
        BERTH_DCHECK(sum <= LARGEST_SUM, "[L9] no more ends than has begun");
        if (sum > most) {
            most = sum;
            at = t;
        }
    }
    BERTH_DCHECK(sum == 0, "[L9] whatever begins ends");
    berth__heap_free(load);
    *bytes = most;
    *when = most ? (int64_t)((uint64_t)first + at) : 0;
    return true;
}
