/* The index of who lives when, and the room between those who do. */
#include "planner/problem/overlap.h"

#include <string.h>

#include "base/sort.h"

static unsigned level_of(const berth__prepared *p, uint32_t piece)
{
    BERTH_DCHECK(p->piece_lower[piece] < p->piece_upper[piece], "[L7] every piece has a life");
    return berth__bits_of(p->piece_upper[piece] - p->piece_lower[piece] - 1U);
}

/* Into their levels in order of their first column, in which single pieces come already. */
static berth_status distribute(berth__overlap *overlap)
{
    const berth__prepared *p = overlap->prepared;
    const uint32_t count = p->piece_count;
    uint64_t *sorted = NULL;
    if (p->piece_first) {
        sorted = berth__heap_alloc((size_t)count * 2 * sizeof *sorted);
        if (!sorted)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an index of %u pieces", count);
        for (uint32_t k = 0; k < count; k++)
            sorted[k] = (uint64_t)p->piece_lower[k] << 32 | k;
        berth__sort_keys(sorted, sorted + count, count, 32, 64);
    }
    uint32_t at[BERTH__OVERLAP_LEVELS];
    memcpy(at, overlap->level_first, sizeof at);
    for (uint32_t k = 0; k < count; k++) {
        uint32_t piece = sorted ? (uint32_t)sorted[k] : k;
        BERTH_DCHECK(at[level_of(p, piece)] < overlap->level_first[level_of(p, piece) + 1],
                     "[L10] a level has room for its own");
        overlap->pieces[at[level_of(p, piece)]++] = piece;
    }
    berth__heap_free(sorted);
    return BERTH_OK;
}

#ifndef NDEBUG
/* Whether every level has the pieces of its length in order of their first column, and all levels together have all. */
static bool overlap_is_valid(const berth__overlap *overlap)
{
    const berth__prepared *p = overlap->prepared;
    for (unsigned level = 0; level < BERTH__OVERLAP_LEVELS; level++)
        for (uint32_t at = overlap->level_first[level]; at < overlap->level_first[level + 1]; at++) {
            const uint32_t piece = overlap->pieces[at];
            if (piece >= p->piece_count || level_of(p, piece) != level ||
                (at > overlap->level_first[level] &&
                 p->piece_lower[overlap->pieces[at - 1]] > p->piece_lower[piece]))
                return false;
        }
    return overlap->level_first[0] == 0 && overlap->level_first[BERTH__OVERLAP_LEVELS] == p->piece_count;
}

static bool found_is_sorted(const berth__overlap *overlap)
{
    for (uint32_t k = 1; k < overlap->found_count; k++)
        if (overlap->found[k - 1].from > overlap->found[k].from)
            return false;
    return true;
}

/* Whether nothing that was found forbids `offset`; of many, only the first few are asked. */
static bool offset_is_free(const berth__overlap *overlap, uint64_t offset)
{
    for (uint32_t k = 0; k < overlap->found_count && k < 64; k++)
        if (overlap->found[k].from <= offset && offset < overlap->found[k].to)
            return false;
    return true;
}
#endif

berth_status berth__overlap_init(berth__overlap *overlap, const berth__prepared *p)
{
    *overlap = (berth__overlap){.prepared = p};
    const uint32_t count = p->piece_count;
    overlap->pieces = berth__heap_alloc((size_t)count * sizeof *overlap->pieces);
    if (p->piece_first)
        overlap->item_of_piece = berth__heap_alloc((size_t)count * sizeof *overlap->item_of_piece);
    if (!overlap->pieces || (p->piece_first && !overlap->item_of_piece)) {
        berth__overlap_finish(overlap);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an index of %u pieces", count);
    }
    uint32_t *first = overlap->level_first;
    for (uint32_t k = 0; k < count; k++)
        first[level_of(p, k) + 1]++;
    for (unsigned level = 0; level < BERTH__OVERLAP_LEVELS; level++)
        first[level + 1] += first[level];
    berth_status status = distribute(overlap);
    if (status) {
        berth__overlap_finish(overlap);
        return status;
    }
    for (uint32_t i = 0; p->piece_first && i < p->item_count; i++)
        for (uint32_t k = p->piece_first[i]; k < p->piece_first[i + 1]; k++)
            overlap->item_of_piece[k] = i;
    BERTH_DCHECK(overlap_is_valid(overlap), "[L10] the index has every piece in its level, in order");
    return BERTH_OK;
}

void berth__overlap_finish(berth__overlap *overlap)
{
    berth__heap_free(overlap->pieces);
    berth__heap_free(overlap->item_of_piece);
    berth__heap_free(overlap->found);
    berth__heap_free(overlap->unsorted);
    berth__heap_free(overlap->keys);
    berth__heap_free(overlap->scratch);
    *overlap = (berth__overlap){0};
}

static berth_status overlap_grow(berth__overlap *overlap)
{
    BERTH_DCHECK(overlap->found_count == overlap->found_room, "[L10] the lists grow when they are full");
    uint32_t room = overlap->found_room ? overlap->found_room * 2 : 256;
    berth__forbidden *found = berth__heap_realloc(overlap->found, room * sizeof *found);
    if (found)
        overlap->found = found;
    berth__forbidden *unsorted = berth__heap_realloc(overlap->unsorted, room * sizeof *unsorted);
    if (unsorted)
        overlap->unsorted = unsorted;
    uint64_t *keys = berth__heap_realloc(overlap->keys, room * sizeof *keys);
    if (keys)
        overlap->keys = keys;
    uint64_t *scratch = berth__heap_realloc(overlap->scratch, room * sizeof *scratch);
    if (scratch)
        overlap->scratch = scratch;
    if (!found || !unsorted || !keys || !scratch)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to look at %u pieces at once", room);
    overlap->found_room = room;
    return BERTH_OK;
}

/* The first place in a level whose piece starts at `column` or later. */
static uint32_t first_from(const berth__overlap *overlap, unsigned level, uint32_t column)
{
    BERTH_DCHECK(level < BERTH__OVERLAP_LEVELS, "[L10] a level of the index");
    uint32_t low = overlap->level_first[level], high = overlap->level_first[level + 1];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (overlap->prepared->piece_lower[overlap->pieces[middle]] < column)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t berth__overlap_first(const berth__overlap *overlap, unsigned level, uint32_t column)
{
    const uint64_t reach = (uint64_t)1 << level;
    return first_from(overlap, level, column >= reach ? (uint32_t)(column - reach + 1) : 0);
}

uint64_t berth__overlap_count(const berth__overlap *overlap, uint32_t lower, uint32_t upper)
{
    BERTH_DCHECK(lower < upper && upper <= overlap->prepared->column_count,
                 "[L7] who lives there is asked of columns");
    uint64_t count = 0;
    for (unsigned level = 0; level < BERTH__OVERLAP_LEVELS; level++)
        if (overlap->level_first[level] < overlap->level_first[level + 1])
            count += first_from(overlap, level, upper) - berth__overlap_first(overlap, level, lower);
    return count;
}

static berth_status look_at_level(berth__overlap *overlap, const uint64_t *offsets, uint32_t item,
                                  uint32_t piece, unsigned level)
{
    const berth__prepared *p = overlap->prepared;
    const uint32_t lower = p->piece_lower[piece], upper = p->piece_upper[piece];
    const uint64_t size = p->piece_size[piece];
    uint32_t at = berth__overlap_first(overlap, level, lower);
    for (; at < overlap->level_first[level + 1]; at++, overlap->looked_at++) {
        uint32_t other = overlap->pieces[at];
        if (p->piece_lower[other] >= upper)
            break;
        uint32_t owner = overlap->item_of_piece ? overlap->item_of_piece[other] : other;
        if (p->piece_upper[other] <= lower || offsets[owner] == BERTH_NO_OFFSET || owner == item)
            continue;
        if (overlap->found_count == overlap->found_room) {
            berth_status status = overlap_grow(overlap);
            if (status)
                return status;
        }
        uint64_t bottom = offsets[owner];
        BERTH_DCHECK(bottom <= INT64_MAX && p->piece_size[other] <= INT64_MAX - bottom,
                     "[L3] what is placed ends within 63 bits");
        BERTH_DCHECK(overlap->found_count < overlap->found_room, "[L10] there is room for what is found");
        overlap->unsorted[overlap->found_count++] =
            (berth__forbidden){bottom >= size ? bottom - size + 1 : 0, bottom + p->piece_size[other], owner};
    }
    return BERTH_OK;
}

static int lower_first(const void *context, uint32_t a, uint32_t b)
{
    const berth__forbidden *found = context;
    return (found[a].from > found[b].from) - (found[a].from < found[b].from);
}

/* By packed keys where offsets and numbers fit into a word together, else by comparing. */
static void sort_found(berth__overlap *overlap)
{
    const uint32_t count = overlap->found_count;
    const unsigned number_bits = berth__bits_of(count);
    uint64_t highest = 0;
    for (uint32_t k = 0; k < count; k++)
        highest = overlap->unsorted[k].from > highest ? overlap->unsorted[k].from : highest;
    const unsigned bits = berth__bits_of(highest);
    if (bits + number_bits <= 64) {
        for (uint32_t k = 0; k < count; k++)
            overlap->keys[k] = overlap->unsorted[k].from << number_bits | k;
        berth__sort_keys(overlap->keys, overlap->scratch, count, number_bits, number_bits + bits);
        const uint64_t mask = ((uint64_t)1 << number_bits) - 1;
        for (uint32_t k = 0; k < count; k++)
            overlap->found[k] = overlap->unsorted[overlap->keys[k] & mask];
        return;
    }
    uint32_t *order = (uint32_t *)overlap->keys;
    for (uint32_t k = 0; k < count; k++)
        order[k] = k;
    berth__sort_indices(order, (uint32_t *)overlap->scratch, count, lower_first, overlap->unsorted);
    for (uint32_t k = 0; k < count; k++)
        overlap->found[k] = overlap->unsorted[order[k]];
}

berth_status berth__overlap_look(berth__overlap *overlap, const uint64_t *offsets, uint32_t item)
{
    const berth__prepared *p = overlap->prepared;
    BERTH_DCHECK(item < p->item_count, "[L8] an item of the problem");
    overlap->found_count = 0;
    for (uint32_t piece = berth__piece_begin(p, item); piece < berth__piece_end(p, item); piece++)
        for (unsigned level = 0; level < BERTH__OVERLAP_LEVELS; level++) {
            if (overlap->level_first[level] == overlap->level_first[level + 1])
                continue;
            berth_status status = look_at_level(overlap, offsets, item, piece, level);
            if (status)
                return status;
        }
    sort_found(overlap);
    BERTH_DCHECK(found_is_sorted(overlap), "[L11] what is in the way is in order");
    return BERTH_OK;
}

uint64_t berth__overlap_fit(const berth__overlap *overlap, uint32_t item, uint64_t capacity, bool tight)
{
    const berth__prepared *p = overlap->prepared;
    const uint64_t size = p->size[item];
    if (capacity < size)
        return BERTH_NO_OFFSET;
    const uint64_t last = capacity - size;
    uint64_t at = 0, best = BERTH_NO_OFFSET, least_slack = UINT64_MAX;
    for (uint32_t k = 0; k <= overlap->found_count && at <= last; k++) {
        const bool end = k == overlap->found_count;
        const uint64_t until = end || overlap->found[k].from > last ? last + 1 : overlap->found[k].from;
        if (until > at) { /* offsets [at, until) are free */
            uint64_t offset = berth__item_align(p, item, at), slack = until - at - 1;
            if (offset < until && slack < least_slack) {
                best = offset;
                least_slack = slack;
                if (!tight || slack == 0)
                    break;
            }
        }
        if (!end && overlap->found[k].to > at)
            at = overlap->found[k].to;
    }
    BERTH_DCHECK(best == BERTH_NO_OFFSET || (best <= last && best == berth__item_align(p, item, best)),
                 "[L14] a place is below the capacity, and aligned");
    BERTH_DCHECK(best == BERTH_NO_OFFSET || offset_is_free(overlap, best),
                 "[L14] a place overlaps nothing that was found");
    return best;
}
