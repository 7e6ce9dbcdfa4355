/* Pieces in bytes and times become pieces in units and columns, in canonical order. */
#include "planner/problem/prepared.h"

#include <string.h>

#include "base/sort.h"
#include "planner/problem/pieces.h"

/* What is needed while preparing, beside the result. */
typedef struct preparation {
    const berth_problem *problem;
    berth__prepared *prepared;
    berth__pieces raw;
    uint32_t *column_lower, *column_upper; /* by piece */
    uint64_t *scratch;                     /* by piece */
    uint64_t *times;                       /* where times gave way to ranks: the times by rank */
    uint32_t *piece_first;                 /* by raw item; NULL where item i is piece i */
    uint32_t *order;                       /* raw items in canonical order */
} preparation;

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Two keys in one word need the times to leave room for the piece's number. Where they do not, times give way
 * to their ranks, which are few. */
static berth_status shrink_times(preparation *prep, unsigned room_bits)
{
    berth__pieces *raw = &prep->raw;
    const size_t count = raw->piece_count;
    uint64_t largest = 0;
    for (size_t k = 0; k < count; k++)
        largest = raw->end[k] > largest ? raw->end[k] : largest;
    if (berth__bits_of(largest) <= room_bits)
        return BERTH_OK;
    uint64_t *times = berth__heap_alloc(2 * count * sizeof *times);
    uint64_t *scratch = berth__heap_alloc(2 * count * sizeof *scratch);
    if (times && scratch) {
        memcpy(times, raw->start, count * sizeof *times);
        memcpy(times + count, raw->end, count * sizeof *times);
        berth__sort_keys(times, scratch, 2 * count, 0, 64);
        size_t distinct = 0;
        for (size_t k = 0; k < 2 * count; k++)
            if (distinct == 0 || times[distinct - 1] != times[k])
                times[distinct++] = times[k];
        for (size_t k = 0; k < 2 * count; k++) {
            uint64_t *time = k < count ? &raw->start[k] : &raw->end[k - count];
            size_t low = 0, high = distinct;
            while (low < high) {
                size_t middle = low + (high - low) / 2;
                if (times[middle] < *time)
                    low = middle + 1;
                else
                    high = middle;
            }
            BERTH_DCHECK(low < distinct && times[low] == *time, "[L8] every time has a rank");
            *time = low;
        }
    }
    berth__heap_free(scratch);
    prep->times = times;
    return times && scratch ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
}

static void pack_and_sort(uint64_t *times, uint64_t *scratch, size_t count, unsigned piece_bits)
{
    uint64_t largest = 0;
    for (size_t k = 0; k < count; k++) {
        largest = times[k] > largest ? times[k] : largest;
        times[k] = times[k] << piece_bits | k;
    }
    BERTH_DCHECK(berth__bits_of(largest) + piece_bits <= 64,
                 "[L8] a time and the number of its piece fit into a word");
    berth__sort_keys(times, scratch, count, piece_bits, piece_bits + berth__bits_of(largest));
}

/* Walks through all starts and ends in order of time, an end before a start at the same time, and names the
 * columns. Also finds the most live, since here time still goes by the caller's clock. */
static berth_status make_columns(preparation *prep)
{
    berth__pieces *raw = &prep->raw;
    const size_t count = raw->piece_count;
    const unsigned piece_bits = berth__bits_of(count);
    berth_status status = shrink_times(prep, 64 - piece_bits);
    if (status)
        return status;
    pack_and_sort(raw->start, prep->scratch, count, piece_bits);
    pack_and_sort(raw->end, prep->scratch, count, piece_bits);
    const uint64_t piece_mask = ((uint64_t)1 << piece_bits) - 1;
    uint32_t column = UINT32_MAX; /* the one before the first */
    bool after_end = true;
    uint64_t live = 0;
    size_t next_start = 0, next_end = 0;
    uint64_t max_live = 0, max_time = 0;
    uint32_t max_column = 0;
    while (next_start < count) {
        if (raw->end[next_end] >> piece_bits <= raw->start[next_start] >> piece_bits) {
            size_t piece = raw->end[next_end++] & piece_mask;
            prep->column_upper[piece] = column + 1;
            BERTH_DCHECK(prep->column_lower[piece] <= column && column != UINT32_MAX,
                         "[L7] what ends has begun");
            BERTH_DCHECK(live >= raw->size_bytes[piece], "[L9] what ends was live");
            live -= raw->size_bytes[piece];
            after_end = true;
            continue;
        }
        uint64_t time = raw->start[next_start] >> piece_bits;
        size_t piece = raw->start[next_start++] & piece_mask;
        BERTH_DCHECK(next_start <= count && piece < count, "[L8] the order of starts names pieces");
        column += after_end;
        after_end = false;
        prep->column_lower[piece] = column;
        live += raw->size_bytes[piece];
        if (live > max_live) {
            max_live = live;
            max_column = column;
            max_time = prep->times ? prep->times[time] : time;
        }
    }
    for (; next_end < count; next_end++)
        prep->column_upper[raw->end[next_end] & piece_mask] = column + 1;
    BERTH_DCHECK(column < count, "[L8] there are no more columns than pieces");
    BERTH_DCHECK(max_live > 0 && max_column <= column, "[L9] something is live, in a column");
    prep->prepared->column_count = column + 1;
    prep->prepared->max_live = max_live; /* in bytes until the unit is known */
    prep->prepared->max_live_column = max_column;
    prep->prepared->max_live_time = (int64_t)((uint64_t)raw->origin + max_time);
    return BERTH_OK;
}

/* Pieces of one item that have come to touch at one size are one: nobody starts in between, so the gap
 * between them is of no use. Also notes where each item's pieces begin. */
static berth_status join_pieces(preparation *prep)
{
    berth__pieces *raw = &prep->raw;
    if (!raw->item)
        return BERTH_OK;
    prep->piece_first = berth__heap_alloc(((size_t)raw->item_count + 1) * sizeof *prep->piece_first);
    if (!prep->piece_first)
        return BERTH_OUT_OF_HOST_MEMORY;
    uint32_t kept = 0, items = 0;
    for (uint32_t k = 0; k < raw->piece_count; k++) {
        bool first = k == 0 || raw->item[k] != raw->item[k - 1];
        if (first)
            prep->piece_first[items++] = kept;
        BERTH_DCHECK(first || prep->column_upper[kept - 1] <= prep->column_lower[k],
                     "[L8] pieces of an item are in order and disjoint");
        if (!first && prep->column_upper[kept - 1] == prep->column_lower[k] &&
            raw->size_bytes[kept - 1] == raw->size_bytes[k]) {
            prep->column_upper[kept - 1] = prep->column_upper[k];
            continue;
        }
        prep->column_lower[kept] = prep->column_lower[k];
        prep->column_upper[kept] = prep->column_upper[k];
        raw->size_bytes[kept++] = raw->size_bytes[k];
    }
    BERTH_DCHECK(items == raw->item_count, "[L8] every item has a piece");
    prep->piece_first[items] = kept;
    raw->piece_count = kept;
    if (kept == items) { /* all gaps were of no use */
        berth__heap_free(prep->piece_first);
        prep->piece_first = NULL;
    }
    return BERTH_OK;
}

/* The largest number of bytes that divides all sizes and pins, and that every alignment divides or is a
 * multiple of: then pushing a plan downward keeps all offsets at its multiples. */
static uint64_t find_unit(const berth__pieces *raw)
{
    uint64_t unit = 0;
    for (uint32_t k = 0; k < raw->piece_count && unit != 1; k++)
        unit = greatest_common_divisor(raw->size_bytes[k], unit);
    for (uint32_t i = 0; raw->fixed_bytes && i < raw->item_count && unit != 1; i++)
        if (raw->fixed_bytes[i] != BERTH_NO_OFFSET)
            unit = greatest_common_divisor(unit, raw->fixed_bytes[i]);
    bool changed = raw->alignment_bytes != NULL;
    while (changed) {
        changed = false;
        for (uint32_t i = 0; i < raw->item_count; i++) {
            uint64_t alignment = raw->alignment_bytes[i];
            bool pinned = raw->fixed_bytes && raw->fixed_bytes[i] != BERTH_NO_OFFSET;
            if (pinned || alignment == 1 || unit % alignment == 0 || alignment % unit == 0)
                continue;
            unit = greatest_common_divisor(unit, alignment);
            changed = true;
        }
    }
    return unit ? unit : 1;
}

static berth_status to_units(preparation *prep)
{
    berth__pieces *raw = &prep->raw;
    berth__prepared *prepared = prep->prepared;
    const uint64_t unit = find_unit(raw);
    uint64_t free_sum = 0, fixed_top = 0;
    bool overflow = false;
    for (uint32_t k = 0; k < raw->piece_count; k++) {
        BERTH_DCHECK(raw->size_bytes[k] > 0 && raw->size_bytes[k] % unit == 0,
                     "[L8] sizes are multiples of the unit");
        raw->size_bytes[k] /= unit;
    }
    for (uint32_t i = 0; i < raw->item_count; i++) {
        uint32_t begin = prep->piece_first ? prep->piece_first[i] : i;
        uint32_t end = prep->piece_first ? prep->piece_first[i + 1] : i + 1;
        uint64_t size = 0, top;
        for (uint32_t k = begin; k < end; k++)
            size = raw->size_bytes[k] > size ? raw->size_bytes[k] : size;
        if (raw->fixed_bytes && raw->fixed_bytes[i] != BERTH_NO_OFFSET) {
            BERTH_DCHECK(raw->fixed_bytes[i] % unit == 0, "[L8] pins are multiples of the unit");
            raw->fixed_bytes[i] /= unit;
            if (raw->alignment_bytes)
                raw->alignment_bytes[i] = 1;
            overflow |= berth__add_overflows(raw->fixed_bytes[i], size, &top);
            fixed_top = top > fixed_top ? top : fixed_top;
            continue;
        }
        if (raw->alignment_bytes) {
            uint64_t alignment = raw->alignment_bytes[i];
            BERTH_DCHECK(alignment > unit ? alignment % unit == 0 : unit % alignment == 0,
                         "[L8] the unit suits every alignment");
            raw->alignment_bytes[i] = alignment > unit ? alignment / unit : 1;
            overflow |= berth__add_overflows(free_sum, raw->alignment_bytes[i] - 1, &free_sum);
        }
        overflow |= berth__add_overflows(free_sum, size, &free_sum);
    }
    overflow |= berth__add_overflows(free_sum, fixed_top, &prepared->horizon);
    if (overflow || prepared->horizon > INT64_MAX / unit)
        return berth__fail(BERTH_OVERFLOW, "the sizes, alignments and pins add up past 63 bits");
    prepared->unit_bytes = unit;
    BERTH_DCHECK(prepared->max_live % unit == 0, "[L9] what is live is a sum of sizes");
    prepared->max_live /= unit;
    prepared->capacity =
        prep->problem->capacity_bytes ? prep->problem->capacity_bytes / unit : BERTH__NO_CAPACITY;
    return BERTH_OK;
}

static int prepared_compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_pieces(const preparation *prep, uint32_t a, uint32_t b)
{
    if (!prep->piece_first)
        return 0;
    uint32_t at_a = prep->piece_first[a], at_b = prep->piece_first[b];
    uint32_t count_a = prep->piece_first[a + 1] - at_a, count_b = prep->piece_first[b + 1] - at_b;
    int order = prepared_compare(count_a, count_b);
    for (uint32_t k = 0; order == 0 && k < count_a; k++) {
        order = prepared_compare(prep->column_lower[at_a + k], prep->column_lower[at_b + k]);
        order = order ? order : prepared_compare(prep->column_upper[at_a + k], prep->column_upper[at_b + k]);
        order =
            order ? order : prepared_compare(prep->raw.size_bytes[at_a + k], prep->raw.size_bytes[at_b + k]);
    }
    return order;
}

static uint64_t largest_piece(const preparation *prep, uint32_t item)
{
    if (!prep->piece_first)
        return prep->raw.size_bytes[item];
    uint64_t size = 0;
    for (uint32_t k = prep->piece_first[item]; k < prep->piece_first[item + 1]; k++)
        size = prep->raw.size_bytes[k] > size ? prep->raw.size_bytes[k] : size;
    return size;
}

/* What decides among items of the same columns. Those that are equal in all of it are equal for every solver
 * too, but for their names. */
static int canonical_order(const void *context, uint32_t a, uint32_t b)
{
    const preparation *prep = context;
    const berth__pieces *raw = &prep->raw;
    int order = prepared_compare(largest_piece(prep, a), largest_piece(prep, b));
    if (order == 0 && raw->alignment_bytes)
        order = prepared_compare(raw->alignment_bytes[a], raw->alignment_bytes[b]);
    if (order == 0 && raw->fixed_bytes)
        order = prepared_compare(raw->fixed_bytes[a], raw->fixed_bytes[b]);
    order = order ? order : compare_pieces(prep, a, b);
    if (order)
        return order;
    const berth_problem_buffer *first = &prep->problem->buffers[raw->buffer_of_item[a]];
    const berth_problem_buffer *second = &prep->problem->buffers[raw->buffer_of_item[b]];
    if (first->hint != second->hint)
        return first->hint < second->hint ? -1 : 1;
    if (first->lower != second->lower)
        return first->lower < second->lower ? -1 : 1;
    return (first->upper > second->upper) - (first->upper < second->upper);
}

static uint32_t item_lower(const preparation *prep, uint32_t item)
{
    return prep->column_lower[prep->piece_first ? prep->piece_first[item] : item];
}

static uint32_t item_upper(const preparation *prep, uint32_t item)
{
    return prep->column_upper[prep->piece_first ? prep->piece_first[item + 1] - 1 : item];
}

/* Among items of the same first column. */
static int later_order(const void *context, uint32_t a, uint32_t b)
{
    const int order = prepared_compare(item_upper(context, a), item_upper(context, b));
    return order ? order : canonical_order(context, a, b);
}

/* Items of the same first column that are many: radix sorts by size and last column; then what is still tied is
 * compared. Sizes past 32 bits are told apart by the comparing. */
static void sort_column(preparation *prep, uint64_t *keys, uint32_t *order, uint32_t count)
{
    const unsigned column_bits = berth__bits_of(prep->prepared->column_count);
    for (uint32_t k = 0; k < count; k++) {
        const uint64_t size = largest_piece(prep, order[k]);
        keys[k] = (size < UINT32_MAX ? size : UINT32_MAX) << 32 | order[k];
    }
    BERTH_DCHECK(item_lower(prep, order[0]) == item_lower(prep, order[count - 1]),
                 "[L8] those of one first column are sorted among each other");
    berth__sort_keys(keys, prep->scratch, count, 32, 64);
    for (uint32_t k = 0; k < count; k++)
        keys[k] = (uint64_t)item_upper(prep, (uint32_t)keys[k]) << 32 | (uint32_t)keys[k];
    berth__sort_keys(keys, prep->scratch, count, 32, 32 + column_bits);
    for (uint32_t k = 0; k < count; k++)
        order[k] = (uint32_t)keys[k];
    for (uint32_t k = 0, after; k < count; k = after) {
        for (after = k + 1; after < count && keys[after] >> 32 == keys[k] >> 32; after++)
            ;
        berth__sort_indices(order + k, (uint32_t *)prep->scratch, after - k, canonical_order, prep);
    }
}

/* By first column, which is no work for rows in order of time; then those of each column, which are mostly few. */
static berth_status sort_items(preparation *prep)
{
    enum { FEW = 64 };
    const uint32_t count = prep->raw.item_count;
    uint64_t *keys = prep->raw.start; /* no longer needed, and long enough */
    prep->order = berth__heap_alloc(count * sizeof *prep->order);
    if (!prep->order)
        return BERTH_OUT_OF_HOST_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        keys[i] = (uint64_t)item_lower(prep, i) << 32 | i;
    berth__sort_keys(keys, prep->scratch, count, 32, 32 + berth__bits_of(prep->prepared->column_count));
    for (uint32_t k = 0; k < count; k++)
        prep->order[k] = (uint32_t)keys[k];
    for (uint32_t k = 0, after; k < count; k = after) {
        for (after = k + 1; after < count && keys[after] >> 32 == keys[k] >> 32; after++)
            ;
        if (after - k <= FEW)
            berth__sort_indices(prep->order + k, (uint32_t *)prep->scratch, after - k, later_order, prep);
        else
            sort_column(prep, keys + k, prep->order + k, after - k);
    }
    return BERTH_OK;
}

#ifndef NDEBUG
/* Whether `order` has every number below `count` once; of few, since each is looked for. */
static bool is_permutation(const uint32_t *order, uint32_t count)
{
    uint64_t seen[16] = {0};
    if (count > 64 * BERTH_COUNT_OF(seen))
        return true;
    for (uint32_t k = 0; k < count; k++) {
        if (order[k] >= count || (seen[order[k] / 64] >> order[k] % 64 & 1))
            return false;
        seen[order[k] / 64] |= (uint64_t)1 << order[k] % 64;
    }
    return true;
}
#endif

static berth_status permute_u64(uint64_t **array, const uint32_t *order, uint32_t count)
{
    if (!*array)
        return BERTH_OK;
    uint64_t *sorted = berth__heap_alloc(count * sizeof *sorted);
    if (!sorted)
        return BERTH_OUT_OF_HOST_MEMORY;
    for (uint32_t k = 0; k < count; k++)
        sorted[k] = (*array)[order[k]];
    berth__heap_free(*array);
    *array = sorted;
    return BERTH_OK;
}

static berth_status permute_u32(uint32_t **array, const uint32_t *order, uint32_t count)
{
    uint32_t *sorted = berth__heap_alloc(count * sizeof *sorted);
    if (!sorted)
        return BERTH_OUT_OF_HOST_MEMORY;
    for (uint32_t k = 0; k < count; k++)
        sorted[k] = (*array)[order[k]];
    berth__heap_free(*array);
    *array = sorted;
    return BERTH_OK;
}

static void take_u64(uint64_t **to, uint64_t **from)
{
    *to = *from;
    *from = NULL;
}

static void take_u32(uint32_t **to, uint32_t **from)
{
    *to = *from;
    *from = NULL;
}

/* Items of several pieces: the piece arrays in canonical order, and the hulls beside them. */
static berth_status place_pieces(preparation *prep)
{
    berth__prepared *prepared = prep->prepared;
    const uint32_t items = prep->raw.item_count, pieces = prep->raw.piece_count;
    uint32_t *piece_order = berth__heap_alloc(pieces * sizeof *piece_order);
    prepared->piece_first = berth__heap_alloc(((size_t)items + 1) * sizeof *prepared->piece_first);
    prepared->lower = berth__heap_alloc(items * sizeof *prepared->lower);
    prepared->upper = berth__heap_alloc(items * sizeof *prepared->upper);
    prepared->size = berth__heap_alloc(items * sizeof *prepared->size);
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    if (!piece_order || !prepared->piece_first || !prepared->lower || !prepared->upper || !prepared->size)
        goto free_order;
    uint32_t at = 0;
    for (uint32_t k = 0; k < items; k++) {
        uint32_t i = prep->order[k];
        prepared->piece_first[k] = at;
        prepared->lower[k] = prep->column_lower[prep->piece_first[i]];
        prepared->upper[k] = prep->column_upper[prep->piece_first[i + 1] - 1];
        prepared->size[k] = largest_piece(prep, i);
        for (uint32_t piece = prep->piece_first[i]; piece < prep->piece_first[i + 1]; piece++)
            piece_order[at++] = piece;
    }
    BERTH_DCHECK(at == pieces && is_permutation(piece_order, pieces), "[L8] every piece has one place");
    prepared->piece_first[items] = at;
    status = permute_u32(&prep->column_lower, piece_order, pieces);
    status = status ? status : permute_u32(&prep->column_upper, piece_order, pieces);
    status = status ? status : permute_u64(&prep->raw.size_bytes, piece_order, pieces);
    take_u32(&prepared->piece_lower, &prep->column_lower);
    take_u32(&prepared->piece_upper, &prep->column_upper);
    take_u64(&prepared->piece_size, &prep->raw.size_bytes);
free_order:
    berth__heap_free(piece_order);
    return status;
}

static berth_status place_items(preparation *prep)
{
    berth__prepared *prepared = prep->prepared;
    berth__pieces *raw = &prep->raw;
    const uint32_t items = raw->item_count;
    berth_status status = permute_u64(&raw->alignment_bytes, prep->order, items);
    status = status ? status : permute_u64(&raw->fixed_bytes, prep->order, items);
    if (!status && prep->piece_first)
        status = place_pieces(prep);
    else if (!status) {
        status = permute_u32(&prep->column_lower, prep->order, items);
        status = status ? status : permute_u32(&prep->column_upper, prep->order, items);
        status = status ? status : permute_u64(&raw->size_bytes, prep->order, items);
        take_u32(&prepared->lower, &prep->column_lower);
        take_u32(&prepared->upper, &prep->column_upper);
        take_u64(&prepared->size, &raw->size_bytes);
        prepared->piece_lower = prepared->lower;
        prepared->piece_upper = prepared->upper;
        prepared->piece_size = prepared->size;
    }
    take_u64(&prepared->alignment, &raw->alignment_bytes);
    take_u64(&prepared->fixed, &raw->fixed_bytes);
    take_u32(&prepared->item_of_buffer, &raw->item_of_buffer);
    prepared->idle = raw->idle;
    prepared->idle_count = raw->idle_count;
    raw->idle = NULL;
    if (status)
        return status;
    uint32_t *place = (uint32_t *)prep->scratch;
    BERTH_DCHECK(is_permutation(prep->order, items), "[L8] every item has one place");
    for (uint32_t k = 0; k < items; k++)
        place[prep->order[k]] = k;
    for (uint32_t b = 0; b < prepared->buffer_count; b++)
        if (prepared->item_of_buffer[b] != BERTH__NO_ITEM) {
            BERTH_DCHECK(prepared->item_of_buffer[b] < items, "[L8] a buffer is part of an item, or empty");
            prepared->item_of_buffer[b] = place[prepared->item_of_buffer[b]];
        }
    return BERTH_OK;
}

static berth_status prepared_run(preparation *prep)
{
    berth__prepared *prepared = prep->prepared;
    berth_status status = berth__pieces_init(&prep->raw, prep->problem);
    if (status)
        return status;
    const size_t pieces = prep->raw.piece_count;
    prepared->buffer_count = (uint32_t)prep->problem->buffer_count;
    prepared->max_live_time = prep->raw.origin;
    prep->column_lower = berth__heap_alloc(pieces * sizeof *prep->column_lower);
    prep->column_upper = berth__heap_alloc(pieces * sizeof *prep->column_upper);
    prep->scratch = berth__heap_alloc(pieces * sizeof *prep->scratch);
    if (!prep->column_lower || !prep->column_upper || !prep->scratch)
        return BERTH_OUT_OF_HOST_MEMORY;
    status = pieces ? make_columns(prep) : BERTH_OK;
    berth__heap_free(prep->raw.end);
    prep->raw.end = NULL;
    status = status ? status : join_pieces(prep);
    status = status ? status : to_units(prep);
    status = status ? status : sort_items(prep);
    berth__heap_free(prep->raw.start);
    prep->raw.start = NULL;
    status = status ? status : place_items(prep);
    prepared->item_count = prep->raw.item_count;
    prepared->piece_count = prep->raw.piece_count;
    prepared->is_plain = !prepared->piece_first && !prepared->alignment && !prepared->fixed;
    return status;
}

berth_status berth__prepared_init(berth__prepared *prepared, const berth_problem *problem)
{
    *prepared = (berth__prepared){0};
    preparation prep = {.problem = problem, .prepared = prepared};
    berth_status status = prepared_run(&prep);
    berth__pieces_finish(&prep.raw);
    berth__heap_free(prep.column_lower);
    berth__heap_free(prep.column_upper);
    berth__heap_free(prep.scratch);
    berth__heap_free(prep.times);
    berth__heap_free(prep.piece_first);
    berth__heap_free(prep.order);
    if (status == BERTH_OUT_OF_HOST_MEMORY)
        status = berth__fail(status, "no memory to prepare %zu buffers for planning", problem->buffer_count);
    BERTH_DCHECK(status || berth__prepared_is_valid(prepared),
                 "[L7] [L8] [L9] the problem is as solvers expect it");
    BERTH_DCHECK(status || prepared->item_count <= prepared->buffer_count, "[L8] an item is made of buffers");
    BERTH_DCHECK(status || prepared->idle_count + (uint64_t)prepared->item_count <= prepared->buffer_count,
                 "[L8] a buffer is idle or part of an item");
    if (status)
        berth__prepared_finish(prepared);
    return status;
}

void berth__prepared_finish(berth__prepared *prepared)
{
    if (prepared->piece_lower != prepared->lower) {
        berth__heap_free(prepared->piece_lower);
        berth__heap_free(prepared->piece_upper);
        berth__heap_free(prepared->piece_size);
    }
    berth__heap_free(prepared->lower);
    berth__heap_free(prepared->upper);
    berth__heap_free(prepared->size);
    berth__heap_free(prepared->alignment);
    berth__heap_free(prepared->fixed);
    berth__heap_free(prepared->piece_first);
    berth__heap_free(prepared->item_of_buffer);
    berth__heap_free(prepared->idle);
    *prepared = (berth__prepared){0};
}

void berth__prepared_expand(const berth__prepared *prepared, const uint64_t *item_offsets,
                            uint64_t *buffer_offsets)
{
    for (uint32_t b = 0; b < prepared->buffer_count; b++) {
        uint32_t item = prepared->item_of_buffer[b];
        BERTH_DCHECK(item == BERTH__NO_ITEM || item < prepared->item_count,
                     "[L8] a buffer is part of an item, or empty");
        BERTH_DCHECK(item == BERTH__NO_ITEM || item_offsets[item] <= INT64_MAX / prepared->unit_bytes,
                     "[L3] offsets stay within 63 bits");
        buffer_offsets[b] = item == BERTH__NO_ITEM ? 0 : item_offsets[item] * prepared->unit_bytes;
    }
    for (uint32_t k = 0; k < prepared->idle_count; k++) {
        BERTH_DCHECK(prepared->item_of_buffer[prepared->idle[k].buffer] == BERTH__NO_ITEM,
                     "[L8] an idle buffer is part of no item");
        buffer_offsets[prepared->idle[k].buffer] = prepared->idle[k].offset_bytes;
    }
}

uint64_t berth__prepared_peak(const berth__prepared *prepared, const uint64_t *item_offsets)
{
    uint64_t peak = 0;
    for (uint32_t i = 0; i < prepared->item_count; i++) {
        BERTH_DCHECK(item_offsets[i] != BERTH_NO_OFFSET, "[L3] the peak is that of a whole plan");
        uint64_t top = item_offsets[i] + prepared->size[i];
        peak = top > peak ? top : peak;
    }
    return peak;
}
