/* The guard's findings in words: what, where, whose, and both call stacks. */
#include <stdio.h>
#include <string.h>

#include "wrap/guard.h"

enum { TEXT_BYTES = 4096, STACK_BYTES = 1600 };

static void log_lines(char *text)
{
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        berth__log(BERTH_LOG_ERROR, "%s", line);
}

static void report_tell(const berth_guard_options *options, berth_guard_report *report, char *text)
{
    report->struct_size = sizeof *report;
    report->text = text;
    if (options->report)
        options->report(options->context, report);
    else
        log_lines(text);
}

static const char *const words[] = {
    [BERTH_GUARD_OVERFLOW] = "overflow: bytes behind a block were written",
    [BERTH_GUARD_UNDERFLOW] = "underflow: bytes in front of a block were written",
    [BERTH_GUARD_WRITE_AFTER_FREE] = "write after free: a freed block was written",
    [BERTH_GUARD_DOUBLE_FREE] = "double free: the block was freed already",
};

/* "3 bytes behind its end", from an offset that counts from its start. */
static void format_place(char *text, size_t capacity, int64_t offset, uint64_t size)
{
    if (offset < 0)
        snprintf(text, capacity, "%lld bytes before its start", (long long)-offset);
    else if ((uint64_t)offset >= size)
        snprintf(text, capacity, "%llu bytes behind its end", (unsigned long long)((uint64_t)offset - size));
    else
        snprintf(text, capacity, "at byte %lld of it", (long long)offset);
}

void berth__guard_tell(const berth_guard_options *options, berth_guard_fault fault,
                       const berth__guarded *block, int64_t offset_bytes)
{
    char allocated[STACK_BYTES], freed[STACK_BYTES], place[64], text[TEXT_BYTES];
    berth__stack_format(block->allocated_by, allocated, sizeof allocated);
    berth__stack_format(block->freed_by, freed, sizeof freed);
    format_place(place, sizeof place, offset_bytes, block->size_bytes);
    bool by_write = fault != BERTH_GUARD_DOUBLE_FREE;
    snprintf(text, sizeof text,
             "guard: %s%s%s\n"
             "  block %p of %llu bytes, number %llu, label %s\n"
             "  allocated by %s\n"
             "  freed by %s",
             words[fault], by_write ? ", the first one " : "", by_write ? place : "",
             (void *)block->entry.address, (unsigned long long)block->size_bytes,
             (unsigned long long)block->id, block->label ? block->label : "none", allocated,
             block->freed_by ? freed : "nobody yet");
    berth_guard_report report = {
        .fault = fault,
        .address = (void *)block->entry.address,
        .size_bytes = block->size_bytes,
        .offset_bytes = by_write ? offset_bytes : 0,
        .label = block->label,
        .allocation_id = block->id,
        .allocated_by = block->allocated_by ? block->allocated_by->frames : NULL,
        .allocated_depth = block->allocated_by ? block->allocated_by->depth : 0,
        .freed_by = block->freed_by ? block->freed_by->frames : NULL,
        .freed_depth = block->freed_by ? block->freed_by->depth : 0,
    };
    report_tell(options, &report, text);
}

void berth__guard_tell_foreign(const berth_guard_options *options, const void *p)
{
    const berth__stack *here = berth__stack_here();
    char freed[STACK_BYTES], text[TEXT_BYTES];
    berth__stack_format(here, freed, sizeof freed);
    snprintf(text, sizeof text,
             "guard: bad free: %p is not a block of this allocator, or was freed long ago\n"
             "  freed by %s",
             p, freed);
    berth_guard_report report = {
        .fault = BERTH_GUARD_BAD_FREE,
        .address = p,
        .freed_by = here ? here->frames : NULL,
        .freed_depth = here ? here->depth : 0,
    };
    report_tell(options, &report, text);
}
