/* The log of RMM's logging resource adaptor as a history: Thread,Time,Action,Pointer,Size,Stream. */
#include <stdlib.h>
#include <string.h>

#include "format/inputs.h"
#include "format/lines.h"

enum { THREAD, TIME, ACTION, POINTER, SIZE, STREAM, COLUMNS };
enum { THREADS_MOST = 1024 };

struct rmm_reader {
    format_history *h;
    format_bad_lines bad;
    uint64_t threads[THREADS_MOST]; /* the system's numbers; ours are the indices */
    uint32_t thread_count;
    uint16_t device;
    uint64_t time_ns, day_ns; /* times of day begin again at midnight */
};

static uint32_t thread_of(struct rmm_reader *r, uint64_t number)
{
    for (uint32_t i = 0; i < r->thread_count; i++)
        if (r->threads[i] == number)
            return i;
    if (r->thread_count == THREADS_MOST)
        return THREADS_MOST;
    r->threads[r->thread_count] = number;
    return r->thread_count++;
}

/* The digits behind the point, as nanoseconds. */
static uint64_t fraction_ns(const char **at)
{
    uint64_t ns = 0, unit = 100000000;
    for (; **at >= '0' && **at <= '9'; (*at)++) {
        ns += (uint64_t)(**at - '0') * unit;
        unit /= 10;
    }
    return ns;
}

/* Seconds ("1634567890.123456") or a time of day ("14:05:59.123456", in older versions with a colon before the fraction). */
static bool time_of(const char *field, uint64_t *time_ns, bool *of_day)
{
    const uint64_t second = 1000000000;
    uint64_t parts[3];
    size_t count = 0;
    const char *at = field;
    while (count < 3 && format_lines_number(&at, 10, &parts[count])) {
        if (parts[count] > UINT64_MAX / second / 2)
            return false;
        count++;
        if (*at != ':' || count > 2)
            break;
        at++;
    }
    *of_day = count == 3;
    if (count == 1)
        *time_ns = parts[0] * second;
    else if (count == 3 && parts[0] < 24 && parts[1] < 60 && parts[2] < 62)
        *time_ns = (parts[0] * 3600 + parts[1] * 60 + parts[2]) * second;
    else
        return false;
    if (*at == '.' || *at == ':') {
        at++;
        *time_ns += fraction_ns(&at);
    }
    return !*at;
}

/* Lines of threads may pass each other by a little; a step back of hours is midnight. */
static uint64_t rmm_pass(struct rmm_reader *r, uint64_t time_ns, bool of_day)
{
    const uint64_t hour = UINT64_C(3600000000000);
    if (of_day && time_ns + r->day_ns + 12 * hour < r->time_ns)
        r->day_ns += 24 * hour;
    time_ns += of_day ? r->day_ns : 0;
    r->time_ns = time_ns > r->time_ns ? time_ns : r->time_ns;
    return r->time_ns;
}

static const char *rmm_line(struct rmm_reader *r, char **fields)
{
    uint64_t thread, time, pointer, size, stream;
    bool of_day;
    if (!format_lines_field_number(fields[THREAD], &thread) || !time_of(fields[TIME], &time, &of_day) ||
        !format_lines_field_address(fields[POINTER], &pointer) ||
        !format_lines_field_number(fields[SIZE], &size) ||
        !format_lines_field_address(fields[STREAM], &stream))
        return "a number or the time is missing";
    time = rmm_pass(r, time, of_day);
    if (strcmp(fields[ACTION], "allocate") == 0)
        format_history_alloc(r->h, &(format_block){.address = pointer,
                                                   .size_bytes = size,
                                                   .begin_ns = time,
                                                   .stream = stream,
                                                   .thread = thread_of(r, thread),
                                                   .device = r->device});
    else if (strcmp(fields[ACTION], "free") == 0 || strcmp(fields[ACTION], "deallocate") == 0)
        format_history_free_by(r->h, 0, r->device, pointer, time, thread_of(r, thread));
    else if (strcmp(fields[ACTION], "allocate failure") == 0)
        format_history_moment(r->h,
                              &(format_moment){.time_ns = time, .size_bytes = size, .device = r->device});
    else
        return "its action is not known";
    return NULL;
}

berth_status format_rmm_read(const char *path, format_history *h, format_progress progress, void *context,
                             format_error *error)
{
    struct rmm_reader r = {.h = h};
    format_lines lines;
    bool ready = format_history_begin(h, "RMM log");
    berth_status status = format_lines_open(&lines, path, error);
    r.device = ready ? format_history_device(h, "cuda") : 0; /* the log does not say which */
    while (ready && !status && !h->no_memory && format_lines_next(&lines)) {
        char *fields[COLUMNS];
        format_lines_progress(&lines, progress, context);
        if (strncmp(lines.line, "Thread,Time,", 12) == 0)
            continue;
        const char *wrong = format_lines_fields(lines.line, fields, COLUMNS) == COLUMNS
                                ? rmm_line(&r, fields)
                                : "it has too few fields";
        if (wrong)
            format_lines_bad(&r.bad, &lines, wrong);
    }
    format_lines_tell(&r.bad, h);
    return format_lines_end(&lines, status, path, h, error);
}
