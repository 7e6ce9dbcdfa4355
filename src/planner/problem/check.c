/* The checker: proves a plan from the problem and the offsets alone. It shares no code with any solver.
 *
 * A sweep over time keeps the live pieces in order of address. Ranks are given in advance, so the ordered set
 * is a tree of 64-bit words in which a neighbour is a few bit operations away; a piece that comes alive can
 * only collide with its neighbours, because those before it were found free of collisions. Members of an
 * alias group may lie on top of each other: they have one offset, stand side by side ordered by size, and the
 * last of them covers the others.
 *
 * Of millions of rows in no order each look at a row is a miss, so the sweep looks at none: what comes when is a
 * bit a turn, and what lies where is a span by rank. */
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
    BERTH_DCHECK(n <= 1, "[L1] the levels suffice for every rank");
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
    BERTH_DCHECK(!(set->level[0][n / 64] >> n % 64 & 1), "[L1] what comes alive was not");
    for (int l = 0; l < set->levels; l++, n /= 64)
        set->level[l][n / 64] |= (uint64_t)1 << (n % 64);
}

static void set_remove(rank_set *set, size_t n)
{
    BERTH_DCHECK(set->level[0][n / 64] >> n % 64 & 1, "[L1] what ends was alive");
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
} piece;

/* What a piece takes of the addresses. */
typedef struct span {
    uint64_t begin, end;
} span;

/* Without gaps a piece is a buffer, and nothing is copied. */
typedef struct sweep {
    const berth_problem *problem;
    const uint64_t *offsets;
    piece *pieces;    /* NULL: piece i is buffer i */
    size_t room;      /* pieces, counting those that take no place */
    size_t count;     /* those that do, which are in the three orders below */
    uint32_t *starts; /* pieces in order of their beginning; for the walk their ranks */
    uint32_t *ends, *by_rank;
    uint32_t *rank;  /* by piece: where it is in by_rank, the order of addresses */
    uint64_t *turns; /* a bit for each start and end in order of time: whether it is a start */
    uint64_t *keys;  /* twice as many, to sort with */
    span *spans;     /* by rank, in the memory of the keys */
    rank_set live;
} sweep;

static uint32_t buffer_of(const sweep *s, uint32_t k)
{
    return s->pieces ? s->pieces[k].buffer : k;
}

static int64_t lower_of(const sweep *s, uint32_t k)
{
    return s->pieces ? s->pieces[k].lower : s->problem->buffers[k].lower;
}

static int64_t upper_of(const sweep *s, uint32_t k)
{
    return s->pieces ? s->pieces[k].upper : s->problem->buffers[k].upper;
}

static bool takes_place(const sweep *s, uint32_t k)
{
    const uint32_t buffer = buffer_of(s, k);
    return s->problem->buffers[buffer].size_bytes && s->offsets[buffer] != BERTH_NO_OFFSET &&
           lower_of(s, k) < upper_of(s, k);
}

static void cut_pieces(sweep *s)
{
    size_t count = 0;
    for (size_t i = 0; i < s->problem->buffer_count; i++) {
        const berth_problem_buffer *b = &s->problem->buffers[i];
        int64_t from = b->lower;
        for (uint32_t k = 0; k < b->gap_count; k++) {
            const berth_gap *gap = &s->problem->gaps[b->gap_first + k];
            s->pieces[count++] = (piece){from, gap->lower, (uint32_t)i};
            from = gap->upper;
        }
        s->pieces[count++] = (piece){from, b->upper, (uint32_t)i};
    }
    BERTH_DCHECK(count == s->room, "[L1] every piece was cut");
}

static int by_start(const void *context, uint32_t a, uint32_t b)
{
    return (lower_of(context, a) > lower_of(context, b)) - (lower_of(context, a) < lower_of(context, b));
}

static int by_end(const void *context, uint32_t a, uint32_t b)
{
    return (upper_of(context, a) > upper_of(context, b)) - (upper_of(context, a) < upper_of(context, b));
}

static int by_address(const void *context, uint32_t a, uint32_t b)
{
    const sweep *s = context;
    const uint32_t p = buffer_of(s, a), q = buffer_of(s, b);
    const berth_problem_buffer *x = &s->problem->buffers[p], *y = &s->problem->buffers[q];
    if (s->offsets[p] != s->offsets[q])
        return s->offsets[p] > s->offsets[q] ? 1 : -1;
    if (x->alias_group != y->alias_group)
        return x->alias_group > y->alias_group ? 1 : -1;
    return (x->size_bytes > y->size_bytes) - (x->size_bytes < y->size_bytes);
}

static uint64_t start_key(const sweep *s, uint32_t k)
{
    return (uint64_t)lower_of(s, k) ^ (uint64_t)1 << 63; /* in the order of signed numbers */
}

static uint64_t end_key(const sweep *s, uint32_t k)
{
    return (uint64_t)upper_of(s, k) ^ (uint64_t)1 << 63;
}

static uint64_t address_key(const sweep *s, uint32_t k)
{
    return s->offsets[buffer_of(s, k)];
}

/* The numbers that a list was sorted by, in their order. */
typedef struct sorted {
    const uint64_t *keys; /* each above the number of its piece; NULL: those of the pieces themselves */
    uint64_t least;
    unsigned piece_bits;
} sorted;

/* Sorts a list by number, packed with the piece into one word where both fit, which is ten times as fast as
 * by comparing. Files have their rows in order of time more often than not; then there is nothing to do. Inlined, so
 * that `key` is no call. */
static inline __attribute__((always_inline)) sorted
sort_pieces(sweep *s, uint32_t *list, uint64_t (*key)(const sweep *, uint32_t), berth__sort_order order)
{
    uint64_t least = UINT64_MAX, most = 0;
    bool is_sorted = true;
    for (size_t i = 0; i < s->count; i++) {
        const uint64_t value = key(s, list[i]);
        is_sorted = is_sorted && value >= most;
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    if (is_sorted)
        return (sorted){0};
    const unsigned bits = berth__bits_of(s->count ? most - least : 0), piece_bits = berth__bits_of(s->room);
    if (bits + piece_bits > 64) {
        berth__sort_indices(list, (uint32_t *)s->keys, s->count, order, s);
        return (sorted){0};
    }
    for (size_t i = 0; i < s->count; i++)
        s->keys[i] = (key(s, list[i]) - least) << piece_bits | list[i];
    berth__sort_keys(s->keys, s->keys + s->count, s->count, piece_bits, piece_bits + bits);
    for (size_t i = 0; i < s->count; i++)
        list[i] = (uint32_t)(s->keys[i] & (((uint64_t)1 << piece_bits) - 1));
    return (sorted){s->keys, least, piece_bits};
}

static bool has_groups(const berth_problem *problem)
{
    for (size_t i = 0; i < problem->buffer_count; i++)
        if (problem->buffers[i].alias_group)
            return true;
    return false;
}

/* The pieces that take a place, in their own order. Mostly all do, and once that is known nobody looks again. */
static void list_pieces(sweep *s, uint32_t *list)
{
    const bool all = s->count == s->room;
    size_t count = 0;
    for (uint32_t k = 0; k < s->room; k++)
        if (all || takes_place(s, k))
            list[count++] = k;
    s->count = count;
}

static inline uint64_t unpack(const sorted *order, size_t k)
{
    return (order->keys[k] >> order->piece_bits) + order->least;
}

static inline uint64_t time_of_start(const sweep *s, const sorted *order, size_t k)
{
    return order->keys ? unpack(order, k) : start_key(s, s->starts[k]);
}

static inline uint64_t time_of_end(const sweep *s, const sorted *order, size_t k)
{
    return order->keys ? unpack(order, k) : end_key(s, s->ends[k]);
}

/* Goes through starts and ends in order of time; an end at time t comes before a start at t. */
static void weave(sweep *s, const sorted *starts, const sorted *ends)
{
    size_t done = 0, turn = 0;
    for (size_t k = 0; k < s->count; k++, turn++) {
        const uint64_t now = time_of_start(s, starts, k);
        BERTH_DCHECK(k == 0 || time_of_start(s, starts, k - 1) <= now, "[L1] the sweep goes forward in time");
        for (; time_of_end(s, ends, done) <= now; done++, turn++)
            BERTH_DCHECK(done < k, "[L1] what ends has begun");
        s->turns[turn / 64] |= (uint64_t)1 << (turn % 64);
    }
}

/* Only members of a group ask for more than the order of offsets. */
static void sort_orders(sweep *s)
{
    list_pieces(s, s->starts);
    memcpy(s->ends, s->starts, s->count * sizeof *s->ends);
    sorted starts = sort_pieces(s, s->starts, start_key, by_start);
    if (starts.keys) { /* kept where the ranks will be */
        memcpy(s->by_rank, starts.keys, s->count * sizeof *starts.keys);
        starts.keys = (const void *)s->by_rank;
    }
    const sorted ends = sort_pieces(s, s->ends, end_key, by_end);
    weave(s, &starts, &ends);
    list_pieces(s, s->by_rank);
    if (has_groups(s->problem))
        berth__sort_indices(s->by_rank, (uint32_t *)s->keys, s->count, by_address, s);
    else
        (void)sort_pieces(s, s->by_rank, address_key, by_address);
    for (size_t r = 0; r < s->count; r++) {
        BERTH_DCHECK(r == 0 || address_key(s, s->by_rank[r - 1]) <= address_key(s, s->by_rank[r]),
                     "[L1] ranks are in order of address");
        s->rank[s->by_rank[r]] = (uint32_t)r;
    }
    for (size_t k = 0; k < s->count; k++) {
        s->starts[k] = s->rank[s->starts[k]];
        s->ends[k] = s->rank[s->ends[k]];
    }
}

static uint64_t end_of(const sweep *s, size_t buffer)
{
    return s->offsets[buffer] + berth__rules_size(s->problem, &s->problem->buffers[buffer]);
}

static void measure_spans(sweep *s)
{
    s->spans = (void *)s->keys; /* as large as two keys, and those are sorted */
    s->keys = NULL;
    for (uint32_t k = 0; k < s->room; k++)
        if (takes_place(s, k)) {
            const uint32_t buffer = buffer_of(s, k);
            s->spans[s->rank[k]] = (span){s->offsets[buffer], end_of(s, buffer)};
        }
}

static bool share_a_place(const sweep *s, size_t a, size_t b)
{
    uint32_t group = s->problem->buffers[a].alias_group;
    return a == b || (group && group == s->problem->buffers[b].alias_group && s->offsets[a] == s->offsets[b]);
}

static berth_status collide(const sweep *s, size_t a, size_t b, int64_t time, berth_verdict *verdict)
{
    BERTH_DCHECK(s->offsets[a] < end_of(s, b) && s->offsets[b] < end_of(s, a),
                 "[L1] what is said to collide overlaps");
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

static berth_status check_neighbour(const sweep *s, size_t rank, size_t other, berth_verdict *verdict)
{
    const span *own = &s->spans[rank], *its = &s->spans[other];
    if (its->end <= own->begin || own->end <= its->begin)
        return BERTH_OK;
    const uint32_t a = buffer_of(s, s->by_rank[rank]), b = buffer_of(s, s->by_rank[other]);
    return share_a_place(s, a, b) ? BERTH_OK : collide(s, a, b, lower_of(s, s->by_rank[rank]), verdict);
}

static berth_status check_walk(sweep *s, berth_verdict *verdict)
{
    enum { AHEAD = 16 }; /* so that the misses of many pieces are under way together */
    size_t done = 0;
    for (size_t k = 0, turn = 0; k < s->count; turn++) {
        if (!(s->turns[turn / 64] >> turn % 64 & 1)) {
            BERTH_DCHECK(done < k, "[L1] what ends has begun");
            set_remove(&s->live, s->ends[done++]);
            continue;
        }
        if (k + AHEAD < s->count)
            __builtin_prefetch(&s->spans[s->starts[k + AHEAD]]);
        const size_t rank = s->starts[k++];
        const size_t below = set_below(&s->live, rank), above = set_above(&s->live, rank);
        berth_status status = below == NONE ? BERTH_OK : check_neighbour(s, rank, below, verdict);
        if (!status && above != NONE)
            status = check_neighbour(s, rank, above, verdict);
        if (status)
            return status;
        set_insert(&s->live, rank);
    }
    return BERTH_OK;
}

static berth_status sweep_init(sweep *s)
{
    bool has_gaps = false;
    for (size_t i = 0; i < s->problem->buffer_count; i++) { /* not buffers + gaps: buffers may share gaps */
        has_gaps = has_gaps || s->problem->buffers[i].gap_count;
        s->room += (size_t)s->problem->buffers[i].gap_count + 1;
    }
    if (s->room >= UINT32_MAX)
        return berth__fail(BERTH_OVERFLOW, "the gaps cut the buffers into %zu pieces, too many to number",
                           s->room);
    s->starts = berth__heap_alloc(4 * s->room * sizeof *s->starts);
    s->keys = berth__heap_alloc(2 * s->room * sizeof *s->keys);
    if (has_gaps)
        s->pieces = berth__heap_alloc(s->room * sizeof *s->pieces);
    s->turns = berth__heap_zalloc(s->room / 32 + 1, sizeof *s->turns); /* two bits a piece */
    if (!s->starts || !s->keys || !s->turns || (has_gaps && !s->pieces))
        return BERTH_OUT_OF_HOST_MEMORY;
    s->ends = s->starts + s->room;
    s->by_rank = s->ends + s->room;
    s->rank = s->by_rank + s->room;
    if (has_gaps)
        cut_pieces(s);
    sort_orders(s);
    measure_spans(s);
    return set_init(&s->live, s->count) ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
}

berth_status berth__rules_collision(const berth_problem *problem, const uint64_t *offsets,
                                    berth_verdict *verdict)
{
    sweep s = {.problem = problem, .offsets = offsets};
    if (problem->buffer_count == 0)
        return BERTH_OK;
    berth_status status = sweep_init(&s);
    if (status == BERTH_OUT_OF_HOST_MEMORY)
        berth__fail(status, "no memory to check %zu pieces of buffers", s.room);
    if (!status)
        status = check_walk(&s, verdict);
    berth__heap_free(s.live.words);
    berth__heap_free(s.keys);
    berth__heap_free(s.spans);
    berth__heap_free(s.turns);
    berth__heap_free(s.starts);
    berth__heap_free(s.pieces);
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

/* What can be seen of one buffer alone. One that is never live takes no place and needs no offset; one that it
 * has all the same is right like any other, since whoever replays the plan will hand it out. */
static berth_status check_place(const berth_problem *problem, const uint64_t *offsets, size_t i,
                                berth_verdict *verdict)
{
    const berth_problem_buffer *b = &problem->buffers[i];
    const bool empty = is_empty(problem, b);
    uint64_t offset = offsets[i], end;
    if (offset == BERTH_NO_OFFSET)
        return empty ? BERTH_OK : broken(verdict, i, "buffer %zu has no offset", i);
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
    if (!empty && end > verdict->peak_bytes)
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
        count += problem->buffers[i].alias_group && offsets[i] != BERTH_NO_OFFSET;
    if (count < 2)
        return BERTH_OK;
    uint32_t *list = berth__heap_zalloc(2 * count, sizeof *list);
    if (!list)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to check %zu members of alias groups", count);
    size_t n = 0;
    for (size_t i = 0; i < problem->buffer_count; i++)
        if (problem->buffers[i].alias_group && offsets[i] != BERTH_NO_OFFSET)
            list[n++] = (uint32_t)i;
    BERTH_DCHECK(n == count, "[L2] the list has every member of a group");
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

berth_status berth__rules_check(const berth_problem *problem, const uint64_t *offsets, berth_verdict *verdict)
{
    berth_status status = BERTH_OK;
    for (size_t i = 0; i < problem->buffer_count && !status; i++)
        status = check_place(problem, offsets, i, verdict);
    if (!status)
        status = check_groups(problem, offsets, verdict);
    return status ? status : berth__rules_collision(problem, offsets, verdict);
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
    status = berth__rules_check(problem, offsets, &verdict);
    if (out)
        *out = verdict;
    return status == BERTH_MISMATCH ? berth__fail(BERTH_MISMATCH, "%s", verdict.words) : status;
}
