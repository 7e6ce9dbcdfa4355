/* Blocks in several pieces: where a source gives no block of the plan's size, the plan is divided (src/plan/split.c), and
 * the block's places are reckoned from its lowest piece. To a run that is no different from any other block: a place is
 * an offset from the base. */
#include <stdlib.h>
#include <string.h>

#include "count/scope.h"
#include "device/device.h"
#include "replay/replay.h"

bool berth__block_holds(const berth__block *b, const void *pointer)
{
    if (BERTH_LIKELY(!b->pieces))
        return (uintptr_t)pointer - (uintptr_t)b->base < b->bytes;
    for (size_t i = 0; i < b->piece_count; i++)
        if ((uintptr_t)pointer - (uintptr_t)b->pieces[i].base < b->pieces[i].bytes)
            return true;
    return false;
}

/* ---- From the source and back -------------------------------------------------------------------- */

static void give_piece(berth__planned *p, const berth__piece *piece)
{
    BERTH_DCHECK(!berth__planned_is_locked(), "[B2] the inner allocator is not called under a lock");
    if (!berth__free_is_done(berth__inner_give(p, piece->base, piece->bytes)))
        berth__log(BERTH_LOG_ERROR, "%zu bytes of a planned block are lost: %s", piece->bytes,
                   berth_last_error()->message);
    else
        berth__count_block_back(p, piece->given_bytes);
}

static berth_status take_piece(berth__planned *p, size_t bytes, size_t alignment, uint32_t flags,
                               berth__piece *out)
{
    berth_request request = BERTH_REQUEST_INIT;
    void *base = NULL;
    request.flags = flags;
    request.label = berth__label_uncounted;
    berth__count_block_changes(p);
    berth_status status = berth__inner_allocate(p, bytes, alignment, &request, &base);
    if (status)
        return status;
    *out = (berth__piece){base, bytes, berth__block_given(p, base, bytes)};
    berth__count_block(p, out->given_bytes);
    return BERTH_OK;
}

/* All or none. */
static berth_status take_pieces(berth__planned *p, const berth__plan_split *split, size_t alignment,
                                uint32_t flags, berth__piece *out)
{
    berth_status status = BERTH_OK;
    size_t taken = 0;
    for (; taken < split->piece_count && !status; taken += !status)
        status = take_piece(p, (size_t)split->piece_bytes[taken], alignment, flags, &out[taken]);
    for (size_t i = 0; i < taken && status; i++)
        give_piece(p, &out[i]);
    return status;
}

/* ---- As one block -------------------------------------------------------------------------------- */

static int by_address(const void *a, const void *b)
{
    const berth__piece *x = a, *y = b;
    return ((uintptr_t)x->base > (uintptr_t)y->base) - ((uintptr_t)x->base < (uintptr_t)y->base);
}

/* Where the plan's places are in these pieces. */
static berth_status pieces_relocate(berth__plan_content *plan, const berth__plan_split *split,
                                    const berth__piece *pieces, berth__plan_content **out)
{
    uint64_t *distances = berth__heap_zalloc(split->piece_count, sizeof *distances);
    uintptr_t lowest = UINTPTR_MAX;
    if (!distances)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a planned block's record");
    for (size_t i = 0; i < split->piece_count; i++)
        lowest = (uintptr_t)pieces[i].base < lowest ? (uintptr_t)pieces[i].base : lowest;
    BERTH_DCHECK(split->piece_count > 0, "[R2] a divided plan has pieces");
    for (size_t i = 0; i < split->piece_count; i++)
        distances[i] = (uintptr_t)pieces[i].base - lowest;
    berth_status status = berth__plan_relocate(plan, split, distances, out);
    berth__heap_free(distances);
    return status;
}

/* The pieces in rising order are the block's. */
static void set_pieces(berth__planned *p, berth__block *b, berth__piece *pieces, size_t count,
                       size_t alignment, berth__plan_content *laid_out)
{
    size_t bytes = 0, given = 0;
    qsort(pieces, count, sizeof *pieces, by_address);
    for (size_t i = 0; i < count; i++) {
        BERTH_DCHECK(i == 0 || pieces[i].base >= pieces[i - 1].base + pieces[i - 1].bytes,
                     "[R2] pieces do not overlap");
        bytes += pieces[i].bytes;
        given += pieces[i].given_bytes;
    }
    BERTH_DCHECK(b->state == BERTH__BLOCK_RUNNING && !b->plan && !b->base && !b->pieces,
                 "[R5] a block that has memory keeps it");
    berth__planned_lock(p);
    b->pieces = pieces;
    b->piece_count = count;
    b->split = laid_out;
    b->base = pieces[0].base;
    b->bytes = bytes;
    b->given_bytes = given;
    b->alignment = alignment;
    berth__planned_reach(p, (uintptr_t)pieces[0].base,
                         (uintptr_t)pieces[count - 1].base + pieces[count - 1].bytes);
    berth__planned_unlock(p);
}

static berth_status take_divided(berth__planned *p, berth__block *b, berth__plan_content *plan,
                                 size_t alignment, size_t most_bytes, uint32_t flags)
{
    berth__plan_split split = {0};
    berth__plan_content *laid_out = NULL;
    berth_status status = berth__plan_split_make(plan, most_bytes, alignment, &split);
    if (status)
        return status;
    berth__piece *pieces = berth__heap_zalloc(split.piece_count, sizeof *pieces);
    status = pieces ? take_pieces(p, &split, alignment, flags, pieces)
                    : berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a planned block's record");
    if (!status) {
        status = pieces_relocate(plan, &split, pieces, &laid_out);
        for (size_t i = 0; i < split.piece_count && status; i++)
            give_piece(p, &pieces[i]);
    }
    if (!status)
        set_pieces(p, b, pieces, split.piece_count, alignment, laid_out);
    else
        berth__heap_free(pieces);
    berth__plan_split_finish(&split);
    return status;
}

static size_t most_of_device(const berth__planned *p)
{
    berth_allocator *inner = p->base.inner;
    berth_device device = berth_allocator_device(inner);
    return device.kind == BERTH_DEVICE_UNKNOWN
               ? SIZE_MAX
               : berth__device_most_bytes(device, inner->ops.memory_kind(inner->self));
}

/* As large as the device says, else half of the plan; and half of that again while it is refused. */
berth_status berth__pieces_take(berth__planned *p, berth__block *b, berth__plan_content *plan,
                                size_t alignment, bool whole_refused)
{
    size_t known = most_of_device(p), largest = (size_t)plan->largest_bytes;
    size_t half = (size_t)(plan->total_bytes / 2), most = known < plan->total_bytes ? known : half;
    berth_status status = BERTH_OUT_OF_DEVICE_MEMORY; /* with the words of the refusal */
    if (!whole_refused && largest > most)
        return berth__fail(BERTH_OUT_OF_DEVICE_MEMORY,
                           "the plan has an allocation of %zu bytes, and the device gives %zu at most",
                           largest, most);
    if (plan->rank_count < 2) /* nothing to divide */
        return status;
    if (most < largest)
        most = largest;
    while ((status = take_divided(p, b, plan, alignment, most, whole_refused ? BERTH_NO_RETRY : 0)) ==
               BERTH_OUT_OF_DEVICE_MEMORY &&
           most > largest) {
        most = most / 2 > largest ? most / 2 : largest;
        whole_refused = true;
    }
    return status;
}

void berth__pieces_give(berth__planned *p, berth__block *b)
{
    BERTH_DCHECK((!b->plan && b->straggler_count == 0) || berth__is_child(),
                 "[R5] memory in which something may be live stays");
    for (size_t i = 0; i < b->piece_count; i++)
        give_piece(p, &b->pieces[i]);
}
