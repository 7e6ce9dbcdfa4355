/* A problem or plan in CSV as a history: its times are the times, its offsets the addresses. */
#include <stdlib.h>

#include "berth/problem_file.h"
#include "format/inputs.h"
#include "format/problem.h"

/* A begin or an end; ends of a moment come first, as everywhere. */
struct turn {
    int64_t time;
    size_t piece;
    bool begins;
};

static int compare_turns(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    if (x->begins != y->begins)
        return x->begins ? 1 : -1;
    return x->piece < y->piece ? -1 : x->piece > y->piece;
}

static uint32_t name_of(format_history *h, const berth_problem_file *file, size_t buffer,
                        size_t (*ask)(const berth_problem_file *file, size_t buffer, char *text, size_t room))
{
    char text[512];
    size_t length = ask(file, buffer, text, sizeof text);
    return format_history_text(h, text, length < sizeof text ? length : sizeof text - 1);
}

/* A history knows no negative times: if there are any, it begins with 0, and `zero` says what the file calls that. */
static void add_turns(format_history *h, const berth_problem_file *file, const problem_piece *pieces,
                      const struct turn *turns, size_t count)
{
    const berth_problem *problem = berth_problem_file_problem(file);
    h->zero = count && turns[0].time < 0 ? turns[0].time : 0;
    for (size_t i = 0; i < count && !h->no_memory; i++) {
        const size_t buffer = pieces[turns[i].piece].buffer;
        uint64_t time = (uint64_t)turns[i].time - (uint64_t)h->zero;
        /* A place of its own, which is none: in a gap two may be alive at one offset. */
        uint64_t address = UINT64_MAX - turns[i].piece;
        if (!turns[i].begins) {
            format_history_free(h, 0, 0, address, time);
            continue;
        }
        uint32_t label = name_of(h, file, buffer, berth_problem_file_label);
        format_history_alloc(
            h, &(format_block){.address = address,
                               .size_bytes = problem->buffers[buffer].size_bytes,
                               .begin_ns = time,
                               .label = label ? label : name_of(h, file, buffer, berth_problem_file_id)});
    }
}

/* When no block is looked for by its place any more. */
static void take_offsets(format_history *h, const problem_piece *pieces, const uint64_t *offsets)
{
    for (uint32_t i = 0; offsets && i < h->block_count; i++) {
        uint64_t offset = offsets[pieces[UINT64_MAX - h->blocks[i].address].buffer];
        if (offset != BERTH_NO_OFFSET)
            h->blocks[i].address = offset;
    }
}

static size_t make_turns(const problem_pieces *pieces, struct turn *turns)
{
    size_t count = 0;
    for (size_t i = 0; i < pieces->count; i++) {
        turns[count++] = (struct turn){pieces->items[i].lower, i, true};
        turns[count++] = (struct turn){pieces->items[i].upper, i, false};
    }
    if (count)
        qsort(turns, count, sizeof *turns, compare_turns);
    return count;
}

/* Whether lives and sizes are not all that the problem says. */
static bool says_more(const berth_problem *problem)
{
    for (size_t i = 0; i < problem->buffer_count; i++)
        if (problem->buffers[i].gap_count || problem->buffers[i].alias_group ||
            problem->buffers[i].alignment > 1 || problem->buffers[i].fixed_offset != BERTH_NO_OFFSET)
            return true;
    return false;
}

static uint32_t common_multiple(uint32_t a, uint32_t b)
{
    uint32_t x = a, y = b;
    while (y) {
        const uint32_t rest = x % y;
        x = y;
        y = rest;
    }
    const uint64_t both = (uint64_t)(a / x) * b;
    return both <= UINT32_MAX ? (uint32_t)both : a > b ? a : b;
}

/* What the members of each alias group ask of their place together, those too that never hold it; groups are numbered from 1 to the
 * number of buffers. NULL: no memory. */
static format_tie *group_ties(const berth_problem *problem)
{
    format_tie *ties = malloc((problem->buffer_count + 1) * sizeof *ties);
    for (size_t i = 0; ties && i <= problem->buffer_count; i++)
        ties[i] = (format_tie){UINT64_MAX, (uint32_t)(problem->buffer_count + i), 1, 0};
    for (size_t i = 0; ties && i < problem->buffer_count; i++) {
        const berth_problem_buffer *b = &problem->buffers[i];
        format_tie *tie = &ties[b->alias_group];
        tie->alignment = common_multiple(tie->alignment, b->alignment ? b->alignment : 1);
        tie->fixed_offset = b->fixed_offset != BERTH_NO_OFFSET ? b->fixed_offset : tie->fixed_offset;
    }
    return ties;
}

/* Before the places are taken: they say which piece a block is. */
static void take_ties(format_history *h, const berth_problem *problem, const problem_piece *pieces)
{
    if (!says_more(problem) || h->no_memory)
        return;
    format_tie *groups = group_ties(problem);
    h->ties = malloc(((size_t)h->block_count + 1) * sizeof *h->ties);
    h->no_memory = !h->ties || !groups;
    for (uint32_t i = 0; !h->no_memory && i < h->block_count; i++) {
        const size_t buffer = pieces[UINT64_MAX - h->blocks[i].address].buffer;
        const berth_problem_buffer *b = &problem->buffers[buffer];
        h->ties[i] = groups[b->alias_group];
        if (!b->alias_group)
            h->ties[i] = (format_tie){.fixed_offset = b->fixed_offset,
                                      .unit = (uint32_t)buffer,
                                      .alignment = b->alignment ? b->alignment : 1};
        h->ties[i].row = (uint32_t)buffer;
    }
    free(groups);
}

berth_status format_problem_read(const char *path, format_history *h, format_progress progress, void *context,
                                 format_error *error)
{
    (void)progress, (void)context;
    berth_problem_file *file = NULL;
    struct turn *turns = NULL;
    berth_status status = berth_problem_file_read(path, &file);
    if (status)
        return format_fail(error, status, "%s: %s", path, berth_last_error()->message);
    const berth_problem *problem = berth_problem_file_problem(file);
    problem_pieces pieces = {0};
    bool ready = format_history_begin(h, "problem") && problem_pieces_make(&pieces, problem);
    turns = malloc((2 * pieces.count + 1) * sizeof *turns);
    if (ready && turns) {
        h->has_times = false;
        h->has_addresses = berth_problem_file_offsets(file) != NULL;
        h->format = h->has_addresses ? "plan" : "problem";
        add_turns(h, file, pieces.items, turns, make_turns(&pieces, turns));
        if (!h->tally) {
            take_ties(h, problem, pieces.items);
            take_offsets(h, pieces.items, berth_problem_file_offsets(file));
        }
    }
    if (!ready || !turns || h->no_memory)
        status = format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for the buffers of %s", path);
    free(turns);
    problem_pieces_finish(&pieces);
    berth_problem_file_destroy(file);
    format_history_close(h);
    if (status)
        format_history_finish(h);
    return status;
}
