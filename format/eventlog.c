/* The event log of berth/decorators.h as a history. */
#include <string.h>

#include "berth/decorators.h"
#include "format/inputs.h"
#include "format/lines.h"

enum { TIME, THREAD, EVENT, ADDRESS, BYTES, ALIGNMENT, LABEL, STREAM, STATUS, COLUMNS };
enum { THREADS = 64 }; /* more share a place, and may lose what the other left there */

struct log_reader {
    format_history *h;
    format_bad_lines bad;
    format_block freed[THREADS]; /* by a thread's last free, with its label: it may have failed */
    uint64_t time_ns; /* grows: a line waits for its write, so threads may pass each other by a little */
};

static void log_free(struct log_reader *r, uint64_t address, uint32_t thread)
{
    const format_block *b = format_history_find(r->h, 0, 0, address);
    r->freed[thread % THREADS] = b ? *b : (format_block){0};
    format_history_free_by(r->h, 0, 0, address, r->time_ns, thread);
}

static void log_allocate(struct log_reader *r, const format_block *b, const char *status)
{
    if (strcmp(status, "OK") == 0)
        format_history_alloc(r->h, b);
    else
        format_history_moment(
            r->h, &(format_moment){.time_ns = b->begin_ns, .size_bytes = b->size_bytes, .label = b->label});
}

/* The block did not go: it goes on as another one, since a life has one end. */
static void log_revive(struct log_reader *r, uint64_t address, uint32_t thread)
{
    format_block *freed = &r->freed[thread % THREADS];
    if (freed->address != address || !freed->size_bytes)
        return;
    freed->begin_ns = r->time_ns;
    format_history_alloc(r->h, freed);
    freed->size_bytes = 0; /* once */
}

/* NULL, or what is wrong. */
static const char *log_line(struct log_reader *r, char **fields)
{
    uint64_t time, thread, address, bytes, stream;
    if (!format_lines_field_number(fields[TIME], &time) ||
        !format_lines_field_number(fields[THREAD], &thread) ||
        !format_lines_field_number(fields[ADDRESS], &address) ||
        !format_lines_field_number(fields[BYTES], &bytes) ||
        !format_lines_field_number(fields[STREAM], &stream))
        return "a number is missing";
    r->time_ns = time > r->time_ns ? time : r->time_ns;
    const char *event = fields[EVENT];
    format_block b = {.address = address,
                      .size_bytes = bytes,
                      .begin_ns = r->time_ns,
                      .stream = stream,
                      .thread = (uint32_t)thread,
                      .label = format_history_text(r->h, fields[LABEL], strlen(fields[LABEL]))};
    if (strcmp(event, "allocate") == 0 || strcmp(event, "reallocate") == 0)
        log_allocate(r, &b, fields[STATUS]);
    else if (strcmp(event, "free") == 0 || strcmp(event, "reallocate_from") == 0)
        log_free(r, address, (uint32_t)thread);
    else if (strcmp(event, "free_failed") == 0)
        log_revive(r, address, (uint32_t)thread);
    else if (strcmp(event, "record_use") != 0)
        return "its event is not known";
    return NULL;
}

berth_status format_eventlog_read(const char *path, format_history *h, format_progress progress,
                                  void *context, format_error *error)
{
    struct log_reader r = {.h = h};
    format_lines lines;
    bool ready = format_history_begin(h, "event log");
    berth_status status = format_lines_open(&lines, path, error);
    lines.quotes = true;
    while (ready && !status && !h->no_memory && format_lines_next(&lines)) {
        char *fields[COLUMNS];
        format_lines_progress(&lines, progress, context);
        if (strncmp(lines.line, BERTH_EVENT_LOG_HEADER, sizeof BERTH_EVENT_LOG_HEADER - 2) == 0)
            continue; /* logs that were put together have it several times */
        const char *wrong = format_lines_fields(lines.line, fields, COLUMNS) == COLUMNS
                                ? log_line(&r, fields)
                                : "it has too few fields";
        if (wrong)
            format_lines_bad(&r.bad, &lines, wrong);
    }
    format_lines_tell(&r.bad, h);
    return format_lines_end(&lines, status, path, h, error);
}
