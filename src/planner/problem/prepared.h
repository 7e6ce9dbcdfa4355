/* The form in which all solvers see a problem: items instead of buffers, columns instead of times, units
 * instead of bytes, in an order that does not depend on the order of the rows.
 *
 *   item    what gets one offset: a buffer, or all buffers of an alias group. Empty buffers are in none.
 *   piece   a time during which an item is live with one size. A plain buffer has one; gaps and alias members
 *           of several sizes make more. Pieces of an item never overlap and are in order of time.
 *   column  a stretch of time named by a number. A new one begins only where a start follows an end:
 *
 *               times     0   1   2   3   4   5   6
 *               a         [-------)                        a: columns [0, 1)
 *               b             [---------------)            b: columns [0, 2)
 *               c                     [---)                c: columns [1, 2)
 *                         |  column 0 |  column 1  |
 *
 *           Everything that meets a column is live together at some moment of it (after its last start, before
 *           its first end), so columns lose nothing, and there are never more columns than pieces.
 *   unit    the number of bytes that all sizes, pins and the alignments that matter are multiples of. A best plan
 *           pushed downward has all its offsets at multiples of it.
 *
 * Items are in canonical order: first column, last column, size, alignment, pin, hint, original times. */
#ifndef BERTH_PLANNER_PROBLEM_PREPARED_H
#define BERTH_PLANNER_PROBLEM_PREPARED_H

#include "base/base.h"
#include "berth/problem.h"

#define BERTH__NO_ITEM UINT32_MAX
#define BERTH__NO_CAPACITY UINT64_MAX

/* An empty buffer that the problem pins, or a member of an empty group that is pinned. */
typedef struct berth__idle_buffer {
    uint32_t buffer;
    uint64_t offset_bytes;
} berth__idle_buffer;

/* Made by berth__prepared_init, read-only afterwards, emptied by berth__prepared_finish. Keeps no pointer to
 * the problem. Arrays are by item unless they say otherwise; offsets, sizes and capacity are in units. */
typedef struct berth__prepared {
    uint32_t item_count;
    uint32_t piece_count;
    uint32_t column_count;
    uint32_t buffer_count;

    uint32_t *lower, *upper; /* columns [lower, upper), from the first piece to the last */
    uint64_t *size;          /* of the largest piece */
    uint64_t *alignment;     /* NULL: all 1. From 1; 1 where there is a pin */
    uint64_t *fixed;         /* NULL: none. BERTH_NO_OFFSET: free */

    uint32_t *piece_first; /* NULL: item i is piece i. Else the pieces [piece_first[i], piece_first[i + 1]) */
    uint32_t *piece_lower, *piece_upper; /* by piece; the item arrays themselves where piece_first is NULL */
    uint64_t *piece_size;

    uint32_t *item_of_buffer; /* by buffer; BERTH__NO_ITEM: empty */
    berth__idle_buffer *idle;
    uint32_t idle_count;

    uint64_t unit_bytes;
    uint64_t capacity;        /* BERTH__NO_CAPACITY: none */
    uint64_t max_live;        /* over all columns */
    int64_t max_live_time;    /* the first time of it, as the caller counts time */
    uint32_t max_live_column; /* the first column of it */
    uint64_t horizon;         /* no plan that a solver makes ends above it: all sums stay within 63 bits */
    bool is_plain;            /* one piece each, no alignment, no pins */
} berth__prepared;

/* Fills `prepared` from a problem that berth_problem_validate accepts. Needs about 45 bytes a buffer while it
 * works and 24 a buffer afterwards. BERTH_OK, BERTH_OVERFLOW, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__prepared_init(berth__prepared *prepared, const berth_problem *problem);
void berth__prepared_finish(berth__prepared *prepared);

/* Whether items, pieces and columns are as said above, and the most live is that of the loads (of few columns).
 * A look at every piece. For tests and debug builds. */
bool berth__prepared_is_valid(const berth__prepared *prepared);

/* Writes the byte offset of every buffer for unit offsets by item. */
void berth__prepared_expand(const berth__prepared *prepared, const uint64_t *item_offsets,
                            uint64_t *buffer_offsets);

static inline uint32_t berth__piece_begin(const berth__prepared *prepared, uint32_t item)
{
    return prepared->piece_first ? prepared->piece_first[item] : item;
}

static inline uint32_t berth__piece_end(const berth__prepared *prepared, uint32_t item)
{
    return prepared->piece_first ? prepared->piece_first[item + 1] : item + 1;
}

static inline uint64_t berth__item_alignment(const berth__prepared *prepared, uint32_t item)
{
    return prepared->alignment ? prepared->alignment[item] : 1;
}

static inline uint64_t berth__item_fixed(const berth__prepared *prepared, uint32_t item)
{
    return prepared->fixed ? prepared->fixed[item] : BERTH_NO_OFFSET;
}

/* `offset` up to the next place where `item` may start. Says nothing about pins. */
static inline uint64_t berth__item_align(const berth__prepared *prepared, uint32_t item, uint64_t offset)
{
    uint64_t alignment = berth__item_alignment(prepared, item);
    if (BERTH_LIKELY(alignment == 1))
        return offset;
    uint64_t rest = offset % alignment;
    return rest ? offset + (alignment - rest) : offset;
}

/* The end of the highest item. */
uint64_t berth__prepared_peak(const berth__prepared *prepared, const uint64_t *item_offsets);

#endif
