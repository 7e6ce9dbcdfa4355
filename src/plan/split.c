/* A plan in several pieces of memory, for sources that do not give one block of its size.
 *
 * The plan is cut at offsets. What begins between two cuts lies in one piece, as it lies in the plan; what lies across the
 * second cut makes the piece longer. Where it would be longer than a piece may be, it is moved: all of these hold the byte
 * at which the piece must end, so no two of them are ever alive together, and one place of the size of the largest
 * serves them all.
 *
 *     offset  ├──────────────┼─────────────────┼──────────┤     two cuts
 *                 a    ┌─────┴─┐   c   ┌───────┴──┐   e
 *                      │   b   │       │    d     │            b and d lie across
 *     pieces  ├────────────────┤ ├─────────────┤ ├────────┬──────────┤
 *                 a        b         c                e   │    d     │      d was moved
 *
 * Cuts are chosen where what lies across is small. Nothing is solved anew: cutting costs a sort, and more memory by the
 * largest allocation across each cut at most. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

typedef struct cutter {
    const berth__plan_content *c;
    uint64_t most_bytes, alignment;
    uint64_t *across; /* by rank: the largest allocation that lies across a cut there */
    uint64_t *cuts;   /* rising; cuts[0] is 0 */
    size_t cut_count, cut_room;
} cutter;

static berth_status no_memory(void)
{
    return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to divide a plan into pieces");
}

/* The first rank whose offset is at or above `offset`; rank_count if none is. */
static uint32_t rank_from(const berth__plan_content *c, uint64_t offset)
{
    uint32_t low = 0, high = c->rank_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (c->rank_offsets[middle] >= offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* ---- What lies across ---------------------------------------------------------------------------- */

typedef struct sized {
    uint64_t size_bytes;
    uint32_t id;
} sized;

static int larger_first(const void *a, const void *b)
{
    const sized *x = a, *y = b;
    if (x->size_bytes != y->size_bytes)
        return x->size_bytes < y->size_bytes ? 1 : -1;
    return (x->id > y->id) - (x->id < y->id);
}

/* The first rank from `rank` on that nothing was written to; paths are shortened on the way. */
static uint32_t next_open(uint32_t *next, uint32_t rank)
{
    while (next[rank] != rank) {
        next[rank] = next[next[rank]];
        rank = next[rank];
    }
    return rank;
}

/* The largest first, so that each rank is written once. */
static void paint_across(const cutter *k, const sized *order, size_t count, uint32_t *next)
{
    const berth__plan_content *c = k->c;
    for (uint32_t rank = 0; rank <= c->rank_count; rank++)
        next[rank] = rank;
    for (size_t i = 0; i < count; i++) {
        const berth__plan_entry *e = &c->entries[order[i].id];
        uint32_t end = rank_from(c, e->offset + e->size_bytes);
        for (uint32_t rank = next_open(next, e->rank + 1); rank < end; rank = next_open(next, rank)) {
            k->across[rank] = e->size_bytes;
            next[rank] = rank + 1;
        }
    }
}

static berth_status find_across(cutter *k)
{
    const berth__plan_content *c = k->c;
    size_t count = 0;
    sized *order = berth__heap_zalloc(c->planned, sizeof *order);
    uint32_t *next = berth__heap_zalloc((size_t)c->rank_count + 1, sizeof *next);
    k->across = berth__heap_zalloc(c->rank_count, sizeof *k->across);
    berth_status status = order && next && k->across ? BERTH_OK : no_memory();
    if (!status) {
        for (uint32_t id = 0; id < c->count; id++)
            if (c->entries[id].rank != BERTH__NO_RANK)
                order[count++] = (sized){c->entries[id].size_bytes, id};
        qsort(order, count, sizeof *order, larger_first);
        paint_across(k, order, count, next);
    }
    berth__heap_free(order);
    berth__heap_free(next);
    return status;
}

/* ---- Where to cut -------------------------------------------------------------------------------- */

/* Where the piece behind a cut begins: what is aligned in the plan is aligned in the piece. */
static uint64_t start_of(const cutter *k, uint64_t cut)
{
    return cut / k->alignment * k->alignment;
}

/* The next cut behind `cut`: among the offsets in the far half of what a piece can hold the one with least across it, and of
 * these the last; else any in the near half; else the next there is. */
static uint32_t choose_cut(const cutter *k, uint64_t cut)
{
    const berth__plan_content *c = k->c;
    uint64_t start = start_of(k, cut);
    uint32_t first = rank_from(c, cut + 1), end = rank_from(c, start + k->most_bytes + 1);
    uint32_t half = rank_from(c, start + k->most_bytes / 2);
    if (first >= end) /* above: an alignment larger than a piece has put its start far below the cut */
        return first;
    uint32_t best = end - 1;
    for (uint32_t rank = end - 1; rank > first && rank > half; rank--)
        if (k->across[rank - 1] < k->across[best])
            best = rank - 1;
    return best;
}

static berth_status cut_all(cutter *k)
{
    const berth__plan_content *c = k->c;
    uint64_t cut = 0;
    do {
        if (k->cut_count == k->cut_room) {
            size_t room = k->cut_room ? k->cut_room * 2 : 16;
            uint64_t *larger = berth__heap_realloc(k->cuts, room * sizeof *larger);
            if (!larger)
                return no_memory();
            k->cuts = larger;
            k->cut_room = room;
        }
        k->cuts[k->cut_count++] = cut;
        if (c->total_bytes - start_of(k, cut) <= k->most_bytes)
            break;
        uint32_t rank = choose_cut(k, cut);
        if (rank >= c->rank_count)
            break;
        cut = c->rank_offsets[rank];
    } while (true);
    return BERTH_OK;
}

/* ---- Pieces -------------------------------------------------------------------------------------- */

/* The last cut at or below `offset`. */
static size_t cut_below(const cutter *k, uint64_t offset)
{
    size_t low = 0, high = k->cut_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (k->cuts[middle] <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Those that stay get their place; the others say how large a place the cut behind them needs. */
static void place_those_that_stay(const cutter *k, berth__plan_split *out, uint64_t *moved_bytes)
{
    const berth__plan_content *c = k->c;
    for (uint32_t id = 0; id < c->count; id++) {
        const berth__plan_entry *e = &c->entries[id];
        if (e->rank == BERTH__NO_RANK)
            continue;
        size_t below = cut_below(k, e->offset);
        uint64_t end = e->offset + e->size_bytes, start = start_of(k, k->cuts[below]);
        if (end - start > k->most_bytes) {
            out->pieces[id] = UINT32_MAX - (uint32_t)(below + 1); /* of that cut, for now */
            if (e->size_bytes > moved_bytes[below + 1])
                moved_bytes[below + 1] = e->size_bytes;
            continue;
        }
        out->pieces[id] = (uint32_t)below;
        out->offsets[id] = e->offset - start;
        if (end - start > out->piece_bytes[below])
            out->piece_bytes[below] = end - start;
    }
}

/* A place for what each cut moves: behind what a piece has already, else in a piece of its own. */
static void place_moved(const cutter *k, berth__plan_split *out, const uint64_t *moved_bytes,
                        uint32_t *piece_of, uint64_t *offset_of)
{
    for (size_t cut = 1; cut <= k->cut_count; cut++) {
        size_t piece = 0;
        uint64_t at = 0;
        if (moved_bytes[cut] == 0)
            continue;
        for (; piece < out->piece_count; piece++) {
            at = berth__align_up(out->piece_bytes[piece], k->alignment);
            if (at < k->most_bytes && moved_bytes[cut] <= k->most_bytes - at)
                break;
        }
        if (piece == out->piece_count) { /* there is room for one more a cut */
            out->piece_count++;
            at = 0;
        }
        piece_of[cut] = (uint32_t)piece;
        offset_of[cut] = at;
        out->piece_bytes[piece] = at + moved_bytes[cut];
    }
    for (uint32_t id = 0; id < k->c->count; id++) {
        size_t cut = UINT32_MAX - out->pieces[id];
        if (k->c->entries[id].rank == BERTH__NO_RANK || cut > k->cut_count)
            continue;
        out->pieces[id] = piece_of[cut];
        out->offsets[id] = offset_of[cut];
    }
}

/* A piece from which everything was moved is none. */
static void drop_empty(berth__plan_split *out, const berth__plan_content *c, uint32_t *renamed)
{
    size_t kept = 0;
    for (size_t i = 0; i < out->piece_count; i++) {
        renamed[i] = (uint32_t)kept;
        if (out->piece_bytes[i])
            out->piece_bytes[kept++] = out->piece_bytes[i];
    }
    out->piece_count = kept;
    for (uint32_t id = 0; id < c->count; id++)
        if (c->entries[id].rank != BERTH__NO_RANK)
            out->pieces[id] = renamed[out->pieces[id]];
}

static berth_status place_all(const cutter *k, berth__plan_split *out)
{
    size_t room = 2 * (k->cut_count + 1);
    out->pieces = berth__heap_zalloc(k->c->count, sizeof *out->pieces);
    out->offsets = berth__heap_zalloc(k->c->count, sizeof *out->offsets);
    out->piece_bytes = berth__heap_zalloc(room, sizeof *out->piece_bytes);
    out->piece_count = k->cut_count;
    uint64_t *moved = berth__heap_zalloc(room, sizeof *moved),
             *offsets = berth__heap_zalloc(room, sizeof *offsets);
    uint32_t *names = berth__heap_zalloc(room, sizeof *names);
    berth_status status =
        out->pieces && out->offsets && out->piece_bytes && moved && offsets && names ? BERTH_OK : no_memory();
    if (!status) {
        place_those_that_stay(k, out, moved);
        place_moved(k, out, moved, names, offsets);
        drop_empty(out, k->c, names);
    }
    berth__heap_free(moved);
    berth__heap_free(offsets);
    berth__heap_free(names);
    return status;
}

void berth__plan_split_finish(berth__plan_split *split)
{
    berth__heap_free(split->pieces);
    berth__heap_free(split->offsets);
    berth__heap_free(split->piece_bytes);
    *split = (berth__plan_split){0};
}

berth_status berth__plan_split_make(const berth__plan_content *content, uint64_t most_bytes,
                                    uint64_t alignment, berth__plan_split *out)
{
    cutter k = {.c = content, .most_bytes = most_bytes, .alignment = alignment};
    *out = (berth__plan_split){0};
    if (!BERTH_ASSERT(content->largest_bytes <= most_bytes, "each allocation fits into a piece"))
        return BERTH_INTERNAL;
    berth_status status = find_across(&k);
    if (!status)
        status = cut_all(&k);
    if (!status)
        status = place_all(&k, out);
    if (status)
        berth__plan_split_finish(out);
    berth__heap_free(k.across);
    berth__heap_free(k.cuts);
    return status;
}
