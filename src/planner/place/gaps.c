/* Gaps of a stretch of time. What lives all through it is merged into a few intervals when the stretch is
 * opened; what lives during a part of it stays single and is looked at for each item anew. */
#include "planner/place/gaps.h"

#include <string.h>

#include "base/sort.h"

/* What is passed over in order costs little. */
enum { LOOKS_LIKE_ONE = 4 };

void berth__gaps_init(berth__gaps *gaps, berth__overlap *overlap)
{
    *gaps = (berth__gaps){.overlap = overlap};
}

void berth__gaps_finish(berth__gaps *gaps)
{
    void *all[] = {gaps->whole, gaps->part, gaps->unsorted, gaps->keys, gaps->scratch};
    for (size_t k = 0; k < BERTH_COUNT_OF(all); k++)
        berth__heap_free(all[k]);
    *gaps = (berth__gaps){0};
}

static berth_status gaps_grow(berth__gaps *gaps)
{
    const size_t room = gaps->room ? (size_t)gaps->room * 2 : 1024;
    bool ok = true;
#define GROW(pointer)                                                           \
    do {                                                                        \
        void *grown = berth__heap_realloc((pointer), room * sizeof *(pointer)); \
        ok = ok && grown;                                                       \
        (pointer) = grown ? grown : (pointer);                                  \
    } while (0)
    GROW(gaps->whole);
    GROW(gaps->part);
    GROW(gaps->unsorted);
    GROW(gaps->keys);
    GROW(gaps->scratch);
#undef GROW
    if (!ok)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to look at %zu pieces at once", room);
    gaps->room = (uint32_t)room;
    return BERTH_OK;
}

/* All placed pieces that live in [lower, upper), as they come. */
static berth_status gather(berth__gaps *gaps, const uint64_t *offsets, uint32_t lower, uint32_t upper,
                           uint32_t *count)
{
    const berth__overlap *overlap = gaps->overlap;
    const berth__prepared *p = overlap->prepared;
    *count = 0;
    for (unsigned level = 0; level < BERTH__OVERLAP_LEVELS; level++) {
        const uint32_t end = overlap->level_first[level + 1];
        for (uint32_t at = berth__overlap_first(overlap, level, lower); at < end; at++, gaps->looked_at++) {
            const uint32_t piece = overlap->pieces[at];
            const uint32_t owner = overlap->item_of_piece ? overlap->item_of_piece[piece] : piece;
            if (p->piece_lower[piece] >= upper)
                break;
            if (p->piece_upper[piece] <= lower || offsets[owner] == BERTH_NO_OFFSET)
                continue;
            berth_status status = *count == gaps->room ? gaps_grow(gaps) : BERTH_OK;
            if (status)
                return status;
            BERTH_DCHECK(*count < gaps->room, "[L11] there is room for what is gathered");
            gaps->unsorted[(*count)++] =
                (berth__taken_for){offsets[owner], offsets[owner] + p->piece_size[piece],
                                   p->piece_lower[piece], p->piece_upper[piece]};
        }
    }
    return BERTH_OK;
}

static int lower_first(const void *context, uint32_t a, uint32_t b)
{
    const berth__taken_for *taken = context;
    return (taken[a].from > taken[b].from) - (taken[a].from < taken[b].from);
}

/* Leaves in the low bits of `keys` the numbers of what was gathered, from the lowest offset up: packed with
 * the offset where both fit into a word, else by comparing. */
static uint64_t sort_gathered(berth__gaps *gaps, uint32_t count)
{
    uint64_t highest = 0;
    for (uint32_t k = 0; k < count; k++)
        highest = gaps->unsorted[k].from > highest ? gaps->unsorted[k].from : highest;
    const unsigned number_bits = berth__bits_of(count), bits = berth__bits_of(highest);
    if (bits + number_bits <= 64) {
        for (uint32_t k = 0; k < count; k++)
            gaps->keys[k] = gaps->unsorted[k].from << number_bits | k;
        berth__sort_keys(gaps->keys, gaps->scratch, count, number_bits, number_bits + bits);
        return ((uint64_t)1 << number_bits) - 1;
    }
    uint32_t *order = (uint32_t *)gaps->scratch;
    for (uint32_t k = 0; k < count; k++)
        order[k] = k;
    berth__sort_indices(order, (uint32_t *)gaps->keys, count, lower_first, gaps->unsorted);
    for (uint32_t k = 0; k < count; k++)
        gaps->keys[k] = order[k];
    return UINT32_MAX;
}

#ifndef NDEBUG
/* Whether intervals are in order, and those of the whole stretch apart; of many, the first few. */
static bool gaps_is_valid(const berth__gaps *gaps)
{
    for (uint32_t k = 0; k < gaps->whole_count && k < 64; k++)
        if (gaps->whole[k].from >= gaps->whole[k].to ||
            (k > 0 && gaps->whole[k - 1].to >= gaps->whole[k].from))
            return false;
    for (uint32_t k = 0; k < gaps->part_count && k < 64; k++)
        if (gaps->part[k].from >= gaps->part[k].to || gaps->part[k].lower >= gaps->part[k].upper ||
            (k > 0 && gaps->part[k - 1].from > gaps->part[k].from))
            return false;
    return true;
}

/* Whether [from, to) meets none of the first few intervals during [lower, upper). */
static bool place_is_free(const berth__gaps *gaps, uint64_t from, uint64_t to, uint32_t lower, uint32_t upper)
{
    for (uint32_t k = 0; k < gaps->whole_count && k < 64; k++)
        if (gaps->whole[k].from < to && from < gaps->whole[k].to)
            return false;
    for (uint32_t k = 0; k < gaps->part_count && k < 64; k++)
        if (gaps->part[k].from < to && from < gaps->part[k].to && gaps->part[k].lower < upper &&
            lower < gaps->part[k].upper)
            return false;
    return true;
}
#endif

berth_status berth__gaps_open(berth__gaps *gaps, const uint64_t *offsets, uint32_t lower, uint32_t upper)
{
    BERTH_DCHECK(lower < upper && upper <= gaps->overlap->prepared->column_count,
                 "[L7] a stretch of columns is opened");
    uint32_t count = 0;
    gaps->whole_count = gaps->part_count = 0;
    berth_status status = gather(gaps, offsets, lower, upper, &count);
    if (status || count == 0)
        return status;
    gaps->looked_at += count;
    const uint64_t mask = sort_gathered(gaps, count);
    berth__taken *last = NULL;
    for (uint32_t k = 0; k < count; k++) {
        const berth__taken_for *taken = &gaps->unsorted[gaps->keys[k] & mask];
        if (taken->lower > lower || taken->upper < upper) {
            gaps->part[gaps->part_count++] = *taken;
        } else if (last && taken->from <= last->to) {
            last->to = taken->to > last->to ? taken->to : last->to;
        } else {
            last = &gaps->whole[gaps->whole_count++];
            *last = (berth__taken){taken->from, taken->to};
        }
    }
    BERTH_DCHECK(gaps->whole_count + gaps->part_count <= count && gaps_is_valid(gaps),
                 "[L11] what is taken is in order");
    return BERTH_OK;
}

/* The next interval that is in the way of [lower, upper), upward; false: there is none any more. */
static bool next_taken(const berth__gaps *gaps, uint32_t lower, uint32_t upper, uint32_t *whole,
                       uint32_t *part, berth__taken *taken)
{
    while (*part < gaps->part_count && (gaps->part[*part].lower >= upper || gaps->part[*part].upper <= lower))
        ++*part;
    const bool has_whole = *whole < gaps->whole_count, has_part = *part < gaps->part_count;
    if (has_whole && (!has_part || gaps->whole[*whole].from <= gaps->part[*part].from))
        *taken = gaps->whole[(*whole)++];
    else if (has_part) {
        *taken = (berth__taken){gaps->part[*part].from, gaps->part[*part].to};
        ++*part;
    }
    return has_whole || has_part;
}

uint64_t berth__gaps_find(berth__gaps *gaps, uint32_t item, uint64_t capacity)
{
    const berth__prepared *p = gaps->overlap->prepared;
    const uint64_t size = p->size[item];
    uint64_t at = 0, best = BERTH_NO_OFFSET, smallest = UINT64_MAX;
    uint32_t whole = 0, part = 0;
    for (bool more = true; more && at < capacity;) {
        berth__taken taken = {capacity, capacity};
        more = next_taken(gaps, p->lower[item], p->upper[item], &whole, &part, &taken);
        const uint64_t until = taken.from < capacity ? taken.from : capacity;
        const uint64_t offset = berth__item_align(p, item, at);
        if (until >= offset && until - offset >= size && until - at < smallest) {
            smallest = until - at;
            best = offset;
            if (smallest == size)
                break;
        }
        at = taken.to > at ? taken.to : at;
    }
    BERTH_DCHECK(best == BERTH_NO_OFFSET ||
                     (best + size <= capacity && best == berth__item_align(p, item, best)),
                 "[L14] a place is below the capacity, and aligned");
    BERTH_DCHECK(best == BERTH_NO_OFFSET ||
                     place_is_free(gaps, best, best + size, p->lower[item], p->upper[item]),
                 "[L14] a place overlaps nothing that is taken");
    gaps->looked_at += whole + part / LOOKS_LIKE_ONE;
    return best;
}

static berth_status take_piece(berth__gaps *gaps, const berth__taken_for *taken)
{
    berth_status status = gaps->part_count == gaps->room ? gaps_grow(gaps) : BERTH_OK;
    if (status)
        return status;
    uint32_t to = gaps->part_count++;
    for (; to > 0 && gaps->part[to - 1].from > taken->from; to--)
        gaps->part[to] = gaps->part[to - 1];
    gaps->part[to] = *taken;
    gaps->looked_at += 1 + (gaps->part_count - to) / LOOKS_LIKE_ONE;
    BERTH_DCHECK(gaps->part_count <= gaps->room && gaps_is_valid(gaps), "[L11] what is taken is in order");
    return BERTH_OK;
}

berth_status berth__gaps_take(berth__gaps *gaps, uint32_t item, uint64_t offset)
{
    const berth__prepared *p = gaps->overlap->prepared;
    BERTH_DCHECK(offset != BERTH_NO_OFFSET, "[L14] what is taken has a place");
    berth_status status = BERTH_OK;
    for (uint32_t k = berth__piece_begin(p, item); k < berth__piece_end(p, item) && !status; k++)
        status = take_piece(gaps, &(berth__taken_for){offset, offset + p->piece_size[k], p->piece_lower[k],
                                                      p->piece_upper[k]});
    return status;
}
