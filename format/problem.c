/* A problem or plan in CSV as a history: its times are the times, its offsets the addresses. */
#include <stdlib.h>

#include "berth/problem_file.h"
#include "format/inputs.h"

/* A begin or an end; ends of a moment come first, as everywhere. */
struct turn {
    int64_t time;
    size_t buffer;
    bool begins;
};

static int compare_turns(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    if (x->begins != y->begins)
        return x->begins ? 1 : -1;
    return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

static uint32_t name_of(format_history *h, const berth_problem_file *file, size_t buffer,
                        size_t (*ask)(const berth_problem_file *file, size_t buffer, char *text, size_t room))
{
    char text[512];
    size_t length = ask(file, buffer, text, sizeof text);
    return format_history_text(h, text, length < sizeof text ? length : sizeof text - 1);
}

/* A history knows no negative times: if there are any, it begins with 0, and `zero` says what the file calls that. */
static void add_turns(format_history *h, const berth_problem_file *file, const struct turn *turns,
                      size_t count)
{
    const berth_problem *problem = berth_problem_file_problem(file);
    h->zero = count && turns[0].time < 0 ? turns[0].time : 0;
    for (size_t i = 0; i < count && !h->no_memory; i++) {
        size_t buffer = turns[i].buffer;
        uint64_t time = (uint64_t)turns[i].time - (uint64_t)h->zero;
        /* A place of its own, which is none: of an alias group, or in a gap, two may be alive at one offset. */
        uint64_t address = UINT64_MAX - buffer;
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
static void take_offsets(format_history *h, const uint64_t *offsets)
{
    for (uint32_t i = 0; offsets && i < h->block_count; i++) {
        uint64_t offset = offsets[UINT64_MAX - h->blocks[i].address];
        if (offset != BERTH_NO_OFFSET)
            h->blocks[i].address = offset;
    }
}

static size_t make_turns(const berth_problem *problem, struct turn *turns)
{
    size_t count = 0;
    for (size_t i = 0; i < problem->buffer_count; i++) {
        const berth_problem_buffer *b = &problem->buffers[i];
        if (b->lower == b->upper || !b->size_bytes)
            continue;
        turns[count++] = (struct turn){b->lower, i, true};
        turns[count++] = (struct turn){b->upper, i, false};
    }
    qsort(turns, count, sizeof *turns, compare_turns);
    return count;
}

/* Whether the problem says something for which a history has no word. */
static bool says_more(const berth_problem *problem)
{
    for (size_t i = 0; i < problem->buffer_count; i++)
        if (problem->buffers[i].gap_count || problem->buffers[i].alias_group ||
            problem->buffers[i].fixed_offset != BERTH_NO_OFFSET)
            return true;
    return false;
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
    bool ready = format_history_begin(h, "problem");
    size_t count = berth_problem_file_problem(file)->buffer_count;
    turns = malloc((2 * count + 1) * sizeof *turns);
    if (ready && turns) {
        h->has_times = false;
        h->has_addresses = berth_problem_file_offsets(file) != NULL;
        h->format = h->has_addresses ? "plan" : "problem";
        h->is_simplified = says_more(berth_problem_file_problem(file));
        add_turns(h, file, turns, make_turns(berth_problem_file_problem(file), turns));
        if (!h->tally)
            take_offsets(h, berth_problem_file_offsets(file));
    }
    if (!ready || !turns || h->no_memory)
        status = format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for the buffers of %s", path);
    free(turns);
    berth_problem_file_destroy(file);
    format_history_close(h);
    if (status)
        format_history_finish(h);
    return status;
}
