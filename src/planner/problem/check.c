/* The checker: proves a plan from the problem and the offsets alone. It shares no code with any solver.
 *
 * A sweep over time keeps the live pieces in order of address. Ranks are given in advance, so the ordered set
 * is a tree of 64-bit words in which a neighbour is a few bit operations away; a piece that comes alive can
 * only collide with its neighbours, because those before it were found free of collisions. Members of an
 * alias group may lie on top of each other: they have one offset, stand side by side ordered by size, and the
 * last of them covers the others. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/sort.h"
#include "planner/problem/rules.h"

enum { LEVELS = 6 };
#define NONE SIZE_MAX

/* A set of numbers below `room`; level 0 holds a bit a number, every level above a bit a word below. */
typedef struct rank_set {
    uint64_t *words; /* all levels in one block */
    uint64_t *level[LEVELS];
    int levels;
} rank_set;

static bool set_init(rank_set *set, size_t room)
{
    size_t total = 0, count[LEVELS], n = room;
    set->levels = 0;
    do {
        n = (n + 63) / 64;
        count[set->levels++] = n;
        total += n;
    } while (n > 1 && set->levels < LEVELS);
    set->words = berth__heap_zalloc(total, sizeof(uint64_t));
    if (!set->words)
        return false;
    uint64_t *at = set->words;
    for (int l = 0; l < set->levels; at += count[l++])
        set->level[l] = at;
    return true;
}

static void set_insert(rank_set *set, size_t n)
{
    for (int l = 0; l < set->levels; l++, n /= 64)
        set->level[l][n / 64] |= (uint64_t)1 << (n % 64);
}

static void set_remove(rank_set *set, size_t n)
{
    for (int l = 0; l < set->levels; l++, n /= 64) {
        set->level[l][n / 64] &= ~((uint64_t)1 << (n % 64));
        if (set->level[l][n / 64])
            return;
    }
}

static size_t set_below(const rank_set *set, size_t n)
{
    for (int l = 0; l < set->levels; l++, n /= 64) {
        uint64_t bits = set->level[l][n / 64] & (((uint64_t)1 << (n % 64)) - 1);
        if (!bits)
            continue;
        n = n / 64 * 64 + (63 - (size_t)__builtin_clzll(bits));
        while (l-- > 0)
            n = n * 64 + (63 - (size_t)__builtin_clzll(set->level[l][n]));
        return n;
    }
    return NONE;
}

static size_t set_above(const rank_set *set, size_t n)
{
    for (int l = 0; l < set->levels; l++, n /= 64) {
        uint64_t bits = n % 64 == 63 ? 0 : set->level[l][n / 64] & ~(((uint64_t)2 << (n % 64)) - 1);
        if (!bits)
            continue;
        n = n / 64 * 64 + (size_t)__builtin_ctzll(bits);
        while (l-- > 0)
            n = n * 64 + (size_t)__builtin_ctzll(set->level[l][n]);
        return n;
    }
    return NONE;
}

/* A stretch of a buffer's life without gaps. */
typedef struct piece {
    int64_t lower, upper;
    uint32_t buffer;
    uint32_t rank; /* by address */
} piece;

typedef struct sweep {
    const berth_problem *problem;
    const uint64_t *offsets;
    piece *pieces;
    size_t count;
    uint32_t *starts, *ends, *by_rank, *scratch; /* indices of pieces */
    rank_set live;
} sweep;

static int by_start(const void *context, uint32_t a, uint32_t b)
{
    const piece *pieces = context;
    return (pieces[a].lower > pieces[b].lower) - (pieces[a].lower < pieces[b].lower);
}

static int by_end(const void *context, uint32_t a, uint32_t b)
{
    const piece *pieces = context;
    return (pieces[a].upper > pieces[b].upper) - (pieces[a].upper < pieces[b].upper);
}

static int by_address(const void *context, uint32_t a, uint32_t b)
{
    const sweep *s = context;
    const piece *p = &s->pieces[a], *q = &s->pieces[b];
    const berth_problem_buffer *x = &s->problem->buffers[p->buffer], *y = &s->problem->buffers[q->buffer];
    if (s->offsets[p->buffer] != s->offsets[q->buffer])
        return s->offsets[p->buffer] > s->offsets[q->buffer] ? 1 : -1;
    if (x->alias_group != y->alias_group)
        return x->alias_group > y->alias_group ? 1 : -1;
    return (x->size_bytes > y->size_bytes) - (x->size_bytes < y->size_bytes);
}

static void add_piece(sweep *s, int64_t lower, int64_t upper, size_t buffer)
{
    if (lower < upper)
        s->pieces[s->count++] = (piece){.lower = lower, .upper = upper, .buffer = (uint32_t)buffer};
}

static void cut_pieces(sweep *s)
{
    for (size_t i = 0; i < s->problem->buffer_count; i++) {
        const berth_problem_buffer *b = &s->problem->buffers[i];
        if (!b->size_bytes || s->offsets[i] == BERTH_NO_OFFSET)
            continue;
        int64_t from = b->lower;
        for (uint32_t k = 0; k < b->gap_count; k++) {
            const berth_gap *gap = &s->problem->gaps[b->gap_first + k];
            add_piece(s, from, gap->lower, i);
            from = gap->upper;
        }
        add_piece(s, from, b->upper, i);
    }
}

static void sort_pieces(sweep *s)
{
    for (size_t i = 0; i < s->count; i++)
        s->starts[i] = s->ends[i] = s->by_rank[i] = (uint32_t)i;
    berth__sort_indices(s->starts, s->scratch, s->count, by_start, s->pieces);
    berth__sort_indices(s->ends, s->scratch, s->count, by_end, s->pieces);
    berth__sort_indices(s->by_rank, s->scratch, s->count, by_address, s);
    for (size_t r = 0; r < s->count; r++)
        s->pieces[s->by_rank[r]].rank = (uint32_t)r;
}

static uint64_t end_of(const sweep *s, size_t buffer)
{
    return s->offsets[buffer] + berth__rules_size(s->problem, &s->problem->buffers[buffer]);
}

static bool share_a_place(const sweep *s, size_t a, size_t b)
{
    uint32_t group = s->problem->buffers[a].alias_group;
    return a == b || (group && group == s->problem->buffers[b].alias_group && s->offsets[a] == s->offsets[b]);
}

static berth_status collide(const sweep *s, size_t a, size_t b, int64_t time, berth_verdict *verdict)
{
    verdict->first = a < b ? a : b;
    verdict->second = a < b ? b : a;
    verdict->time = time;
    snprintf(verdict->words, sizeof verdict->words,
             "buffers %zu and %zu are both live at time %" PRId64 " and overlap: [%" PRIu64 ", %" PRIu64
             ") and [%" PRIu64 ", %" PRIu64 ")",
             verdict->first, verdict->second, time, s->offsets[verdict->first], end_of(s, verdict->first),
             s->offsets[verdict->second], end_of(s, verdict->second));
    return BERTH_MISMATCH;
}

static berth_status walk(sweep *s, berth_verdict *verdict)
{
    size_t done = 0;
    for (size_t k = 0; k < s->count; k++) {
        const piece *p = &s->pieces[s->starts[k]];
        /* an end at time t comes before a start at t */
        for (; s->pieces[s->ends[done]].upper <= p->lower; done++)
            set_remove(&s->live, s->pieces[s->ends[done]].rank);
        size_t below = set_below(&s->live, p->rank), above = set_above(&s->live, p->rank);
        if (below != NONE) {
            uint32_t other = s->pieces[s->by_rank[below]].buffer;
            if (!share_a_place(s, p->buffer, other) && end_of(s, other) > s->offsets[p->buffer])
                return collide(s, p->buffer, other, p->lower, verdict);
        }
        if (above != NONE) {
            uint32_t other = s->pieces[s->by_rank[above]].buffer;
            if (!share_a_place(s, p->buffer, other) && s->offsets[other] < end_of(s, p->buffer))
                return collide(s, p->buffer, other, p->lower, verdict);
        }
        set_insert(&s->live, p->rank);
    }
    return BERTH_OK;
}

berth_status berth__rules_collision(const berth_problem *problem, const uint64_t *offsets,
                                    berth_verdict *verdict)
{
    size_t room = 0; /* not buffers + gaps: buffers may share gaps */
    for (size_t i = 0; i < problem->buffer_count; i++)
        room += offsets[i] == BERTH_NO_OFFSET ? 0 : (size_t)problem->buffers[i].gap_count + 1;
    if (room >= UINT32_MAX)
        return berth__fail(BERTH_OVERFLOW, "the gaps cut the buffers into %zu pieces, too many to number",
                           room);
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    sweep s = {.problem = problem, .offsets = offsets};
    s.pieces = berth__heap_zalloc(room, sizeof *s.pieces);
    if (!s.pieces)
        goto say;
    s.starts = berth__heap_zalloc(4 * room, sizeof *s.starts);
    if (!s.starts)
        goto free_pieces;
    s.ends = s.starts + room;
    s.by_rank = s.ends + room;
    s.scratch = s.by_rank + room;
    cut_pieces(&s);
    if (!set_init(&s.live, s.count))
        goto free_orders;
    sort_pieces(&s);
    status = walk(&s, verdict);
    berth__heap_free(s.live.words);
free_orders:
    berth__heap_free(s.starts);
free_pieces:
    berth__heap_free(s.pieces);
say:
    if (status == BERTH_OUT_OF_HOST_MEMORY)
        return berth__fail(status, "no memory to check %zu pieces of buffers", room);
    return status;
}

/* ---- The rest of the proof --------------------------------------------------------------------- */

static bool is_empty(const berth_problem *problem, const berth_problem_buffer *b)
{
    if (!b->size_bytes || b->lower == b->upper)
        return true;
    int64_t from = b->lower;
    for (uint32_t k = 0; k < b->gap_count && problem->gaps[b->gap_first + k].lower == from; k++)
        from = problem->gaps[b->gap_first + k].upper;
    return from == b->upper;
}

static berth_status broken(berth_verdict *verdict, size_t first, const char *format, ...) BERTH_PRINTF(3, 4);
static berth_status broken(berth_verdict *verdict, size_t first, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is right above */
    vsnprintf(verdict->words, sizeof verdict->words, format, args);
    va_end(args);
    verdict->first = first;
    return BERTH_MISMATCH;
}

/* What can be seen of one buffer alone. */
static berth_status check_place(const berth_problem *problem, const uint64_t *offsets, size_t i,
                                berth_verdict *verdict)
{
    const berth_problem_buffer *b = &problem->buffers[i];
    uint64_t offset = offsets[i], end;
    if (is_empty(problem, b))
        return BERTH_OK; /* never live: it takes no place, so any offset is right */
    if (offset == BERTH_NO_OFFSET)
        return broken(verdict, i, "buffer %zu has no offset", i);
    if (b->fixed_offset != BERTH_NO_OFFSET && offset != b->fixed_offset)
        return broken(verdict, i, "buffer %zu is fixed at %" PRIu64 " but planned at %" PRIu64, i,
                      b->fixed_offset, offset);
    if (b->alignment > 1 && offset % b->alignment)
        return broken(verdict, i, "buffer %zu: offset %" PRIu64 " is no multiple of its alignment %" PRIu32,
                      i, offset, b->alignment);
    if (problem->alignment > 1 && offset % problem->alignment)
        return broken(verdict, i, "buffer %zu: offset %" PRIu64 " is no multiple of the alignment %" PRIu32,
                      i, offset, problem->alignment);
    if (berth__add_overflows(offset, berth__rules_size(problem, b), &end) || end > INT64_MAX)
        return broken(verdict, i, "buffer %zu: offset %" PRIu64 " plus its size does not fit into 63 bits", i,
                      offset);
    if (end > verdict->peak_bytes)
        verdict->peak_bytes = end;
    return BERTH_OK;
}

static int by_group(const void *context, uint32_t a, uint32_t b)
{
    const berth_problem_buffer *buffers = context;
    return (buffers[a].alias_group > buffers[b].alias_group) -
           (buffers[a].alias_group < buffers[b].alias_group);
}

static berth_status check_groups(const berth_problem *problem, const uint64_t *offsets,
                                 berth_verdict *verdict)
{
    size_t count = 0;
    for (size_t i = 0; i < problem->buffer_count; i++)
        count += problem->buffers[i].alias_group && !is_empty(problem, &problem->buffers[i]);
    if (count < 2)
        return BERTH_OK;
    uint32_t *list = berth__heap_zalloc(2 * count, sizeof *list);
    if (!list)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to check %zu members of alias groups", count);
    size_t n = 0;
    for (size_t i = 0; i < problem->buffer_count; i++)
        if (problem->buffers[i].alias_group && !is_empty(problem, &problem->buffers[i]))
            list[n++] = (uint32_t)i;
    berth__sort_indices(list, list + count, count, by_group, problem->buffers);
    berth_status status = BERTH_OK;
    for (size_t k = 1; k < count && !status; k++) {
        uint32_t a = list[k - 1], b = list[k];
        if (by_group(problem->buffers, a, b) || offsets[a] == offsets[b])
            continue;
        verdict->second = b;
        status = broken(verdict, a,
                        "buffers %" PRIu32 " and %" PRIu32 " share one place but are planned at %" PRIu64
                        " and %" PRIu64,
                        a, b, offsets[a], offsets[b]);
    }
    berth__heap_free(list);
    return status;
}

berth_status berth_problem_check(const berth_problem *problem, const uint64_t *offsets, berth_verdict *out)
{
    berth_verdict verdict = {.struct_size = sizeof verdict};
    if (out && out->struct_size < sizeof verdict)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the verdict's struct_size is not set");
    berth_status status = berth__rules_numbers(problem);
    if (status)
        return status;
    if (!offsets && problem->buffer_count)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there are no offsets to check");
    for (size_t i = 0; i < problem->buffer_count && !status; i++)
        status = check_place(problem, offsets, i, &verdict);
    if (!status)
        status = check_groups(problem, offsets, &verdict);
    if (!status)
        status = berth__rules_collision(problem, offsets, &verdict);
    if (out)
        *out = verdict;
    return status == BERTH_MISMATCH ? berth__fail(BERTH_MISMATCH, "%s", verdict.words) : status;
}
