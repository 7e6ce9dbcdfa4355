/* Buffers become items made of pieces.
 *
 * A plain buffer is one piece. A gap splits it. The members of an alias group lie on one another at one
 * offset, so the group is live wherever a member is, with the size of the largest one live:
 *
 *      member a   .####....          size 4
 *      member b   ...####..          size 2          item   .4442..    three units of time at 4, two at 2
 *
 * Merging to the hull at the largest size would be simpler and would forbid plans that are valid, so that no
 * proof could be had from it. */
#include "planner/problem/pieces.h"

#include <string.h>

#include "base/sort.h"

/* A live stretch of one member while an item's profile is being made. */
typedef struct stretch {
    uint64_t start, end, size;
} stretch;

typedef struct builder {
    const berth_problem *problem;
    berth__pieces *pieces;
    uint64_t rounding;
    uint64_t *members; /* group << 32 | buffer for all buffers in groups, by group */
    size_t member_count;
    /* Room for the largest group, see profile_of_group. */
    stretch *stretches;
    uint64_t *cuts;
    uint64_t *scratch;
    uint32_t *next_unpainted;
    uint64_t *painted;
} builder;

static bool is_empty(const berth_problem_buffer *buffer)
{
    return buffer->size_bytes == 0 || buffer->lower >= buffer->upper;
}

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static berth_status round_size(const builder *build, const berth_problem_buffer *buffer, uint64_t *rounded)
{
    uint64_t size = buffer->size_bytes, rest = size % build->rounding;
    if (rest && berth__add_overflows(size, build->rounding - rest, &size))
        return berth__fail(BERTH_OVERFLOW, "size %llu rounded up to a multiple of %llu is past 64 bits",
                           (unsigned long long)buffer->size_bytes, (unsigned long long)build->rounding);
    BERTH_DCHECK(size % build->rounding == 0 && size >= buffer->size_bytes, "[L8] sizes are rounded up");
    *rounded = size;
    return BERTH_OK;
}

static berth_status join_alignment(uint64_t *alignment, uint64_t other)
{
    other = other ? other : 1;
    uint64_t joined;
    if (berth__mul_overflows(*alignment, other / greatest_common_divisor(*alignment, other), &joined))
        return berth__fail(BERTH_OVERFLOW, "alignments %llu and %llu have no common multiple within 64 bits",
                           (unsigned long long)*alignment, (unsigned long long)other);
    BERTH_DCHECK(joined % *alignment == 0 && joined % other == 0, "[L2] a common alignment serves both");
    *alignment = joined;
    return BERTH_OK;
}

static uint64_t since_origin(const builder *build, int64_t time)
{
    BERTH_DCHECK(time >= build->pieces->origin, "[L8] nothing begins before the first time");
    return (uint64_t)time - (uint64_t)build->pieces->origin;
}

/* Calls for every live stretch of a buffer; returns how many. With `out` NULL it only counts. */
static size_t buffer_stretches(const builder *build, const berth_problem_buffer *buffer, uint64_t size,
                               stretch *out)
{
    size_t count = 0;
    int64_t from = buffer->lower;
    for (uint32_t g = 0; g <= buffer->gap_count; g++) {
        bool last = g == buffer->gap_count;
        const berth_gap *gap = last ? NULL : &build->problem->gaps[buffer->gap_first + g];
        int64_t to = last ? buffer->upper : gap->lower;
        BERTH_DCHECK(from <= to, "[L8] gaps are in order, within their buffer's life");
        if (from < to) {
            if (out)
                out[count] = (stretch){since_origin(build, from), since_origin(build, to), size};
            count++;
        }
        from = last || gap->upper < from ? from : gap->upper;
    }
    return count;
}

static void append_piece(builder *build, uint32_t item, const stretch *piece)
{
    berth__pieces *pieces = build->pieces;
    uint32_t at = pieces->piece_count++;
    BERTH_DCHECK(piece->start < piece->end && piece->size > 0, "[L7] every piece has a size and a life");
    BERTH_DCHECK(at == 0 || !pieces->item || pieces->item[at - 1] != item ||
                     pieces->end[at - 1] <= piece->start,
                 "[L8] pieces of an item are in order and disjoint");
    BERTH_DCHECK(item < pieces->item_count, "[L8] a piece is added to an item that has begun");
    pieces->start[at] = piece->start;
    pieces->end[at] = piece->end;
    pieces->size_bytes[at] = piece->size;
    if (pieces->item)
        pieces->item[at] = item;
    else
        BERTH_DCHECK(at == item, "[L8] without gaps and groups a piece is an item");
}

static berth_status begin_item(builder *build, uint32_t buffer, uint32_t *item)
{
    berth__pieces *pieces = build->pieces;
    *item = pieces->item_count++;
    BERTH_DCHECK(*item < build->problem->buffer_count, "[L8] an item is made of buffers");
    pieces->buffer_of_item[*item] = buffer;
    if (pieces->fixed_bytes)
        pieces->fixed_bytes[*item] = build->problem->buffers[buffer].fixed_offset;
    if (!pieces->alignment_bytes)
        return BERTH_OK;
    pieces->alignment_bytes[*item] = build->rounding;
    return join_alignment(&pieces->alignment_bytes[*item], build->problem->buffers[buffer].alignment);
}

static berth_status add_single(builder *build, uint32_t index)
{
    const berth_problem_buffer *buffer = &build->problem->buffers[index];
    berth__pieces *pieces = build->pieces;
    uint64_t size = 0;
    berth_status status = round_size(build, buffer, &size);
    if (status)
        return status;
    size_t count = is_empty(buffer) ? 0 : buffer_stretches(build, buffer, size, NULL);
    if (count == 0) {
        pieces->item_of_buffer[index] = BERTH__NO_ITEM;
        if (buffer->fixed_offset != BERTH_NO_OFFSET)
            pieces->idle[pieces->idle_count++] = (berth__idle_buffer){index, buffer->fixed_offset};
        return BERTH_OK;
    }
    uint32_t item;
    status = begin_item(build, index, &item);
    if (status)
        return status;
    pieces->item_of_buffer[index] = item;
    BERTH_DCHECK(buffer->alias_group == 0 && (count == 1 || build->stretches),
                 "[L8] a buffer with gaps has room for its pieces");
    stretch one, *out = count == 1 ? &one : build->stretches;
    buffer_stretches(build, buffer, size, out);
    for (size_t k = 0; k < count; k++)
        append_piece(build, item, &out[k]);
    return BERTH_OK;
}

static size_t cut_at(const uint64_t *cuts, size_t count, uint64_t time)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (cuts[middle] < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint32_t unpainted_from(uint32_t *next, uint32_t at)
{
    uint32_t root = at;
    while (next[root] != root)
        root = next[root];
    while (next[at] != root) {
        uint32_t following = next[at];
        next[at] = root;
        at = following;
    }
    return root;
}

static int larger_first(const void *context, uint32_t a, uint32_t b)
{
    const stretch *stretches = context;
    return (stretches[a].size < stretches[b].size) - (stretches[a].size > stretches[b].size);
}

/* The profile of `count` stretches: all their ends cut time into intervals, and each stretch, largest first,
 * paints those that no larger one has painted. Painted intervals are jumped over by path compression, so the
 * whole is n log n also for a group of everything. */
static void append_profile(builder *build, uint32_t item, size_t count)
{
    const stretch *stretches = build->stretches;
    uint64_t *cuts = build->cuts;
    size_t cut_count = 0;
    for (size_t k = 0; k < count; k++) {
        cuts[2 * k] = stretches[k].start;
        cuts[2 * k + 1] = stretches[k].end;
    }
    berth__sort_keys(cuts, build->scratch, 2 * count, 0, 64);
    for (size_t k = 0; k < 2 * count; k++)
        if (cut_count == 0 || cuts[cut_count - 1] != cuts[k])
            cuts[cut_count++] = cuts[k];
    uint32_t *next = build->next_unpainted, *order = (uint32_t *)build->scratch;
    for (uint32_t k = 0; k < count; k++)
        order[k] = k;
    berth__sort_indices(order, order + count, count, larger_first, stretches);
    for (uint32_t k = 0; k < cut_count; k++) {
        next[k] = k;
        build->painted[k] = 0;
    }
    for (size_t k = 0; k < count; k++) {
        const stretch *brush = &stretches[order[k]];
        BERTH_DCHECK(k == 0 || stretches[order[k - 1]].size >= brush->size, "[L8] the largest paints first");
        uint32_t last = (uint32_t)cut_at(cuts, cut_count, brush->end);
        BERTH_DCHECK(last < cut_count && cuts[last] == brush->end, "[L8] every stretch ends at a cut");
        uint32_t at = unpainted_from(next, (uint32_t)cut_at(cuts, cut_count, brush->start));
        while (at < last) {
            BERTH_DCHECK(build->painted[at] == 0, "[L8] each interval is painted once");
            build->painted[at] = brush->size;
            next[at] = at + 1;
            at = unpainted_from(next, at + 1);
        }
    }
    stretch run = {0, 0, 0};
    BERTH_DCHECK(build->painted[cut_count - 1] == 0, "[L8] the last cut ends everything");
    for (size_t k = 0; k < cut_count; k++) { /* the last cut ends everything and is painted 0 */
        if (build->painted[k] == run.size)
            continue;
        run.end = cuts[k];
        if (run.size)
            append_piece(build, item, &run);
        run = (stretch){cuts[k], 0, build->painted[k]};
    }
}

/* The order in which the members of a group stand for it: by what they say, never by their index. */
static int representative_order(const berth_problem_buffer *a, const berth_problem_buffer *b)
{
    if (a->lower != b->lower)
        return a->lower < b->lower ? -1 : 1;
    if (a->upper != b->upper)
        return a->upper < b->upper ? -1 : 1;
    if (a->size_bytes != b->size_bytes)
        return a->size_bytes < b->size_bytes ? -1 : 1;
    return (a->hint > b->hint) - (a->hint < b->hint);
}

static berth_status add_group(builder *build, const uint64_t *members, size_t member_count)
{
    const berth_problem *problem = build->problem;
    berth__pieces *pieces = build->pieces;
    size_t count = 0;
    uint32_t standing = (uint32_t)members[0], item = BERTH__NO_ITEM;
    uint64_t fixed = BERTH_NO_OFFSET;
    for (size_t k = 0; k < member_count; k++) {
        const berth_problem_buffer *buffer = &problem->buffers[(uint32_t)members[k]];
        uint64_t size = 0;
        berth_status status = round_size(build, buffer, &size);
        if (status)
            return status;
        if (!is_empty(buffer))
            count += buffer_stretches(build, buffer, size, build->stretches + count);
        if (representative_order(buffer, &problem->buffers[standing]) < 0)
            standing = (uint32_t)members[k];
        BERTH_DCHECK(fixed == BERTH_NO_OFFSET || buffer->fixed_offset == BERTH_NO_OFFSET ||
                         buffer->fixed_offset == fixed,
                     "[L2] members of a group have one pin");
        if (buffer->fixed_offset != BERTH_NO_OFFSET)
            fixed = buffer->fixed_offset;
    }
    if (count) {
        berth_status status = begin_item(build, standing, &item);
        if (status)
            return status;
        if (pieces->fixed_bytes)
            pieces->fixed_bytes[item] = fixed;
        append_profile(build, item, count);
    }
    for (size_t k = 0; k < member_count; k++) {
        uint32_t buffer = (uint32_t)members[k];
        pieces->item_of_buffer[buffer] = item;
        if (item == BERTH__NO_ITEM && fixed != BERTH_NO_OFFSET)
            pieces->idle[pieces->idle_count++] = (berth__idle_buffer){buffer, fixed};
        if (item != BERTH__NO_ITEM && pieces->alignment_bytes) {
            berth_status status =
                join_alignment(&pieces->alignment_bytes[item], problem->buffers[buffer].alignment);
            if (status)
                return status;
        }
    }
    return BERTH_OK;
}

/* What the problem uses, so that what it does not use costs nothing. */
typedef struct needs {
    size_t pieces; /* at most */
    size_t grouped, idle;
    size_t largest_profile; /* stretches of one item, at most */
    bool several_pieces, alignment, fixed;
} needs;

static needs count_needs(builder *build)
{
    const berth_problem *problem = build->problem;
    needs need = {.alignment = build->rounding > 1};
    build->pieces->origin = INT64_MAX;
    for (size_t i = 0; i < problem->buffer_count; i++) {
        const berth_problem_buffer *buffer = &problem->buffers[i];
        bool pinned = buffer->fixed_offset != BERTH_NO_OFFSET;
        need.fixed |= pinned;
        need.alignment |= buffer->alignment > 1;
        need.grouped += buffer->alias_group != 0;
        need.several_pieces |= buffer->alias_group != 0 || buffer->gap_count != 0;
        need.idle += pinned || buffer->alias_group != 0;
        if (is_empty(buffer))
            continue;
        /* A profile of k stretches has at most 2k - 1 pieces. */
        size_t stretches = (size_t)buffer->gap_count + 1;
        need.pieces += buffer->alias_group ? 2 * stretches : stretches;
        if (stretches > need.largest_profile)
            need.largest_profile = stretches;
        if (buffer->lower < build->pieces->origin)
            build->pieces->origin = buffer->lower;
    }
    if (build->pieces->origin == INT64_MAX)
        build->pieces->origin = 0;
    return need;
}

/* Sorts the grouped buffers by group. The groups come in the order of their numbers; what comes out is put in
 * canonical order later. */
static berth_status collect_members(builder *build, needs *need)
{
    if (need->grouped == 0)
        return BERTH_OK;
    build->members = berth__heap_alloc(need->grouped * sizeof *build->members);
    uint64_t *scratch = berth__heap_alloc(need->grouped * sizeof *scratch);
    if (!build->members || !scratch) {
        berth__heap_free(scratch);
        return BERTH_OUT_OF_HOST_MEMORY;
    }
    for (size_t i = 0; i < build->problem->buffer_count; i++)
        if (build->problem->buffers[i].alias_group)
            build->members[build->member_count++] =
                (uint64_t)build->problem->buffers[i].alias_group << 32 | i;
    berth__sort_keys(build->members, scratch, build->member_count, 32, 64);
    berth__heap_free(scratch);
    BERTH_DCHECK(build->member_count == need->grouped, "[L8] the list has every member");
    size_t in_group = 0;
    for (size_t k = 0; k < build->member_count; k++) {
        if (k && build->members[k] >> 32 != build->members[k - 1] >> 32)
            in_group = 0;
        BERTH_DCHECK(k == 0 || build->members[k - 1] < build->members[k],
                     "[L8] members stand group by group");
        in_group += (size_t)build->problem->buffers[(uint32_t)build->members[k]].gap_count + 1;
        if (in_group > need->largest_profile)
            need->largest_profile = in_group;
    }
    return BERTH_OK;
}

static berth_status pieces_allocate(builder *build, const needs *need)
{
    berth__pieces *pieces = build->pieces;
    const size_t buffers = build->problem->buffer_count;
    bool ok = true;
#define ROOM(pointer, count) \
    ((pointer) = berth__heap_alloc((count) * sizeof *(pointer)), ok = ok && (pointer) != NULL)
    ROOM(pieces->start, need->pieces);
    ROOM(pieces->end, need->pieces);
    ROOM(pieces->size_bytes, need->pieces);
    ROOM(pieces->buffer_of_item, buffers);
    ROOM(pieces->item_of_buffer, buffers);
    if (need->idle)
        ROOM(pieces->idle, need->idle);
    if (need->alignment)
        ROOM(pieces->alignment_bytes, buffers);
    if (need->fixed)
        ROOM(pieces->fixed_bytes, buffers);
    if (need->several_pieces) {
        ROOM(pieces->item, need->pieces);
        ROOM(build->stretches, need->largest_profile);
        ROOM(build->cuts, 2 * need->largest_profile);
        ROOM(build->scratch, 2 * need->largest_profile);
        ROOM(build->next_unpainted, 2 * need->largest_profile + 1);
        ROOM(build->painted, 2 * need->largest_profile);
    }
#undef ROOM
    return ok ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
}

static berth_status add_all(builder *build)
{
    for (size_t i = 0; i < build->problem->buffer_count; i++)
        if (build->problem->buffers[i].alias_group == 0) {
            berth_status status = add_single(build, (uint32_t)i);
            if (status)
                return status;
        }
    for (size_t k = 0; k < build->member_count;) {
        size_t after = k + 1;
        while (after < build->member_count && build->members[after] >> 32 == build->members[k] >> 32)
            after++;
        berth_status status = add_group(build, build->members + k, after - k);
        if (status)
            return status;
        k = after;
    }
    return BERTH_OK;
}

berth_status berth__pieces_init(berth__pieces *pieces, const berth_problem *problem)
{
    *pieces = (berth__pieces){0};
    builder build = {
        .problem = problem, .pieces = pieces, .rounding = problem->alignment > 1 ? problem->alignment : 1};
    needs need = count_needs(&build);
    berth_status status = BERTH_OK;
    if (problem->buffer_count >= UINT32_MAX / 4 || need.pieces >= UINT32_MAX / 4)
        status = berth__fail(BERTH_OVERFLOW, "%zu buffers with %zu pieces: the planner counts to %u of each",
                             problem->buffer_count, need.pieces, UINT32_MAX / 4);
    if (!status)
        status = collect_members(&build, &need);
    if (!status)
        status = pieces_allocate(&build, &need);
    if (!status)
        status = add_all(&build);
    BERTH_DCHECK(status || (pieces->piece_count <= need.pieces && pieces->idle_count <= need.idle),
                 "[L8] there was room for all pieces");
    BERTH_DCHECK(status || pieces->piece_count >= pieces->item_count, "[L8] every item has a piece");
    berth__heap_free(build.members);
    berth__heap_free(build.stretches);
    berth__heap_free(build.cuts);
    berth__heap_free(build.scratch);
    berth__heap_free(build.next_unpainted);
    berth__heap_free(build.painted);
    if (status == BERTH_OUT_OF_HOST_MEMORY)
        status = berth__fail(status, "no memory to prepare %zu buffers for planning", problem->buffer_count);
    if (status)
        berth__pieces_finish(pieces);
    return status;
}

void berth__pieces_finish(berth__pieces *pieces)
{
    berth__heap_free(pieces->start);
    berth__heap_free(pieces->end);
    berth__heap_free(pieces->size_bytes);
    berth__heap_free(pieces->item);
    berth__heap_free(pieces->buffer_of_item);
    berth__heap_free(pieces->alignment_bytes);
    berth__heap_free(pieces->fixed_bytes);
    berth__heap_free(pieces->item_of_buffer);
    berth__heap_free(pieces->idle);
    *pieces = (berth__pieces){0};
}
