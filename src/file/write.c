/* The writer of problem files: a file's own rows with offsets, or any problem in our columns. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/problem_file.h"

enum { BUFFER_BYTES = 1 << 16, TEMPORARY_SUFFIX = 32 };

/* Text on its way to a file. An ordinary file is written beside its place and moved there when whole, so that
 * a failure leaves what was there, and a plan may replace the problem it was made from. */
typedef struct output {
    int fd;
    const char *path;
    char *temporary; /* NULL: written in place */
    size_t used;
    int error; /* errno of the first failure */
    char buffer[BUFFER_BYTES];
} output;

static berth_status output_open(const char *path, output **out)
{
    output *o = berth__heap_zalloc(1, sizeof *o);
    if (!o)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to write a file");
    o->path = path;
    o->fd = STDOUT_FILENO;
    *out = o;
    if (strcmp(path, "-") == 0)
        return BERTH_OK;
    struct stat info;
    bool ordinary = stat(path, &info) != 0 || S_ISREG(info.st_mode);
    /* A link would be replaced by the move instead of what it points to. */
    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode))
        ordinary = false;
    if (ordinary) {
        size_t room = strlen(path) + TEMPORARY_SUFFIX;
        o->temporary = berth__heap_alloc(room);
        if (!o->temporary) {
            berth__heap_free(o);
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to write a file");
        }
        snprintf(o->temporary, room, "%s.%ld.tmp", path, (long)getpid());
    }
    o->fd = open(o->temporary ? o->temporary : path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (o->fd >= 0)
        return BERTH_OK;
    berth_status status = berth__fail(BERTH_IO, "'%s' cannot be written: %s", path, strerror(errno));
    berth__heap_free(o->temporary);
    berth__heap_free(o);
    return status;
}

static void flush(output *o)
{
    for (size_t done = 0; done < o->used && !o->error;) {
        ssize_t put = write(o->fd, o->buffer + done, o->used - done);
        if (put >= 0)
            done += (size_t)put;
        else if (errno != EINTR)
            o->error = errno;
    }
    o->used = 0;
}

static void put(output *o, const char *text, size_t length)
{
    while (length) {
        if (o->used == BUFFER_BYTES)
            flush(o);
        size_t some = BUFFER_BYTES - o->used < length ? BUFFER_BYTES - o->used : length;
        memcpy(o->buffer + o->used, text, some);
        o->used += some;
        text += some;
        length -= some;
    }
}

static void put_number(output *o, uint64_t n)
{
    char digits[20];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + n % 10);
    while (n /= 10);
    put(o, digits + at, sizeof digits - at);
}

static void put_signed(output *o, int64_t n)
{
    if (n < 0)
        put(o, "-", 1);
    put_number(o, n < 0 ? 0 - (uint64_t)n : (uint64_t)n);
}

/* Ends the writing; `status` is how it went so far. */
static berth_status output_close(output *o, berth_status status)
{
    flush(o);
    if (o->fd != STDOUT_FILENO && close(o->fd) != 0 && !o->error)
        o->error = errno;
    if (o->temporary && !status && !o->error && rename(o->temporary, o->path) != 0)
        o->error = errno;
    if (o->temporary && (status || o->error))
        unlink(o->temporary);
    if (!status && o->error)
        status = berth__fail(BERTH_IO, "'%s' cannot be written: %s", o->path, strerror(o->error));
    berth__heap_free(o->temporary);
    berth__heap_free(o);
    return status;
}

/* ---- A file's own rows --------------------------------------------------------------------------- */

/* One record with `text` as its offset: in its column, or after the last. Line ends stay as they are. */
static void put_record(output *o, const berth__csv *csv, int place, const char *text)
{
    const char *end = csv->record_end;
    if (place >= 0 && (size_t)place < csv->count) {
        const berth__csv_field *field = &csv->fields[place];
        put(o, csv->record, (size_t)(field->raw - csv->record));
        put(o, text, strlen(text));
        put(o, field->raw + field->raw_length, (size_t)(end - (field->raw + field->raw_length)));
    } else {
        put(o, csv->record, (size_t)(end - csv->record));
        put(o, ",", 1);
        put(o, text, strlen(text));
    }
    put(o, end < csv->end && *end == '\r' ? "\r\n" : "\n", end < csv->end && *end == '\r' ? 2 : 1);
}

static berth_status put_rows(output *o, const berth_problem_file *file, const uint64_t *offsets)
{
    berth__csv csv;
    int place = file->columns.place[BERTH__COLUMN_OFFSET];
    berth__csv_begin(&csv, file->text, file->text_bytes);
    berth_status status = berth__csv_next(&csv);
    if (!status && place >= 0) {
        put(o, csv.record, (size_t)(csv.record_end - csv.record));
        put(o, csv.record_end < csv.end && *csv.record_end == '\r' ? "\r\n" : "\n",
            csv.record_end < csv.end && *csv.record_end == '\r' ? 2 : 1);
    } else if (!status) {
        put_record(o, &csv, -1, "offset");
    }
    for (size_t row = 0; !status && row < file->problem.buffer_count; row++) {
        char text[24] = "";
        status = berth__csv_next(&csv);
        if (offsets[row] != BERTH_NO_OFFSET)
            snprintf(text, sizeof text, "%" PRIu64, offsets[row]);
        if (!status)
            put_record(o, &csv, place, text);
    }
    return status ? berth__fail(BERTH_BAD_DATA, "the input changed while it was planned") : BERTH_OK;
}

berth_status berth_problem_file_write(const berth_problem_file *file, const uint64_t *offsets,
                                      const char *path)
{
    if (!file || !path || (!offsets && file->problem.buffer_count))
        return berth__fail(BERTH_INVALID_ARGUMENT, "writing a plan needs a file, offsets and a path");
    output *o;
    berth_status status = output_open(path, &o);
    return status ? status : output_close(o, put_rows(o, file, offsets));
}

/* ---- Any problem --------------------------------------------------------------------------------- */

typedef struct columns_used {
    bool alignment, hint, gaps, fixed, alias;
} columns_used;

static columns_used look_for_columns(const berth_problem *problem)
{
    columns_used used = {0};
    for (size_t i = 0; i < problem->buffer_count; i++) {
        const berth_problem_buffer *b = &problem->buffers[i];
        used.alignment |= b->alignment > 1;
        used.hint |= b->hint != 0;
        used.gaps |= b->gap_count != 0;
        used.fixed |= b->fixed_offset != BERTH_NO_OFFSET;
        used.alias |= b->alias_group != 0;
    }
    return used;
}

/* Text of any length, in quotes where it needs them. */
static berth_status put_text(output *o, berth_problem_text_fn fn, void *context, size_t buffer)
{
    char small[256], *text = small;
    size_t length = fn(context, buffer, small, sizeof small);
    if (length >= sizeof small) {
        text = berth__heap_alloc(length + 1);
        if (!text)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a name of %zu bytes", length);
        fn(context, buffer, text, length + 1);
    }
    bool quoted =
        length && (text[0] == ' ' || text[0] == '\t' || text[length - 1] == ' ' || text[length - 1] == '\t');
    for (size_t i = 0; i < length; i++)
        quoted |= text[i] == ',' || text[i] == '"' || text[i] == '\n' || text[i] == '\r';
    if (quoted)
        put(o, "\"", 1);
    for (size_t i = 0; i < length; i++)
        put(o, text[i] == '"' ? "\"\"" : &text[i], text[i] == '"' ? 2 : 1);
    if (quoted)
        put(o, "\"", 1);
    if (text != small)
        berth__heap_free(text);
    return BERTH_OK;
}

static void put_gaps(output *o, const berth_problem *problem, const berth_problem_buffer *b)
{
    for (uint32_t k = 0; k < b->gap_count; k++) {
        if (k)
            put(o, " ", 1);
        put_signed(o, problem->gaps[b->gap_first + k].lower);
        put(o, "-", 1);
        put_signed(o, problem->gaps[b->gap_first + k].upper);
    }
}

static void put_optional(output *o, bool used, bool there, uint64_t n)
{
    if (used)
        put(o, ",", 1);
    if (used && there)
        put_number(o, n);
}

static void put_numbers(output *o, const berth_problem *problem, size_t i, columns_used used)
{
    const berth_problem_buffer *b = &problem->buffers[i];
    put(o, ",", 1);
    put_signed(o, b->lower);
    put(o, ",", 1);
    put_signed(o, b->upper);
    put_optional(o, true, true, b->size_bytes);
    put_optional(o, used.alignment, true, b->alignment ? b->alignment : 1);
    if (used.hint) {
        put(o, ",", 1);
        put_signed(o, b->hint);
    }
    if (used.gaps) {
        put(o, ",", 1);
        put_gaps(o, problem, b);
    }
    put_optional(o, used.fixed, b->fixed_offset != BERTH_NO_OFFSET, b->fixed_offset);
    put_optional(o, used.alias, b->alias_group != 0, b->alias_group);
}

berth_status berth_problem_write(const berth_problem *problem, berth_problem_text_fn id,
                                 berth_problem_text_fn label, void *context, const uint64_t *offsets,
                                 const char *path)
{
    if (!path)
        return berth__fail(BERTH_INVALID_ARGUMENT, "writing a problem needs a path");
    berth_status status = berth_problem_validate(problem);
    output *o;
    if (!status)
        status = output_open(path, &o);
    if (status)
        return status;
    columns_used used = look_for_columns(problem);
    char header[128];
    snprintf(header, sizeof header, "id,lower,upper,size%s%s%s%s%s%s%s\n", used.alignment ? ",alignment" : "",
             used.hint ? ",hint" : "", used.gaps ? ",gaps" : "", used.fixed ? ",fixed" : "",
             used.alias ? ",alias" : "", label ? ",label" : "", offsets ? ",offset" : "");
    put(o, header, strlen(header));
    for (size_t i = 0; i < problem->buffer_count && !status; i++) {
        if (id)
            status = put_text(o, id, context, i);
        else
            put_number(o, i);
        put_numbers(o, problem, i, used);
        if (label)
            put(o, ",", 1);
        if (label && !status)
            status = put_text(o, label, context, i);
        put_optional(o, offsets, offsets && offsets[i] != BERTH_NO_OFFSET, offsets ? offsets[i] : 0);
        put(o, "\n", 1);
    }
    return output_close(o, status);
}
