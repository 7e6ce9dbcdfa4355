/* The reader of problem files: rows to numbers, each checked on the way, errors by line and column. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file/names.h"
#include "file/problem_file.h"

/* Mapped pages behind the reader are given back, so that a file's text never adds up to its size in memory. */
enum { DROP_BYTES = 1 << 19, SWEEP_BYTES = 8 * DROP_BYTES };

/* An alias group's name where the text has it first: to find it through its row would be a walk for every member. */
typedef struct alias_name {
    const char *text;
    size_t length;
} alias_name;

/* An id that is looked for in the table when as many rows have come after it. */
enum { IDS_AHEAD = 16 };
typedef struct waiting_id {
    berth__csv_field field;
    uint32_t row;
    size_t line;
} waiting_id;

/* A reading in progress. */
typedef struct reading {
    berth_problem_file *file;
    berth__csv csv;
    size_t room, gap_room, mark_room; /* of the file's arrays */
    size_t rows, gaps;
    uint64_t size_sum;
    berth__names ids, aliases;
    waiting_id waiting[IDS_AHEAD]; /* from number ids_looked to ids_come, modulo IDS_AHEAD */
    size_t ids_come, ids_looked;
    alias_name *alias_names; /* of every alias group, for comparing */
    uint32_t alias_count, alias_room;
    size_t dropped; /* bytes of the text given back */
} reading;

/* ---- Words -------------------------------------------------------------------------------------- */

/* A field as a message shows it: short, and without bytes that would disturb a terminal. */
static const char *shown(const berth__csv_field *field, char text[40])
{
    size_t length = berth__csv_copy(field, text, 40);
    for (size_t i = 0; text[i]; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            text[i] = '?';
    if (length > 39)
        memcpy(text + 36, "...", 4);
    return text;
}

static berth_status bad_field(const reading *r, berth__column column, berth_status status,
                              const berth__csv_field *field, const char *what)
{
    char text[40];
    return berth__fail(status, "line %zu, column `%s`: '%s' %s", r->csv.record_line,
                       r->file->columns.name[column], shown(field, text), what);
}

/* ---- Numbers ------------------------------------------------------------------------------------ */

/* Digits at *at, which moves behind them. BERTH_OK, BERTH_NOT_FOUND (no digit), BERTH_OVERFLOW. */
static berth_status read_digits(const char **at, const char *end, uint64_t *out)
{
    const char *p = *at;
    uint64_t n = 0;
    if (p == end || *p < '0' || *p > '9')
        return BERTH_NOT_FOUND;
    /* 19 digits cannot overflow: the common case needs no look */
    const char *safe = end - p > 19 ? p + 19 : end;
    for (; p < safe && *p >= '0' && *p <= '9'; p++)
        n = n * 10 + (uint64_t)(*p - '0');
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        if (berth__mul_overflows(n, 10, &n) || berth__add_overflows(n, (uint64_t)(*p - '0'), &n))
            return BERTH_OVERFLOW;
    *at = p;
    *out = n;
    return BERTH_OK;
}

static berth_status read_signed(const char **at, const char *end, int64_t *out)
{
    bool negative = *at < end && **at == '-';
    uint64_t n;
    *at += negative;
    berth_status status = read_digits(at, end, &n);
    if (status)
        return status;
    if (n > (uint64_t)INT64_MAX + negative)
        return BERTH_OVERFLOW;
    *out = negative ? (int64_t)(0 - n) : (int64_t)n;
    return BERTH_OK;
}

/* A field that must be one whole number; an empty one leaves *out alone where the column may be empty. */
static berth_status take_unsigned(reading *r, berth__column column, bool optional, uint64_t *out)
{
    const berth__csv_field *field = berth__column_field(&r->file->columns, &r->csv, column);
    if (!field || (optional && !field->length))
        return BERTH_OK;
    const char *at = field->text, *end = at + field->length;
    berth_status status = read_digits(&at, end, out);
    if (status == BERTH_OVERFLOW)
        return bad_field(r, column, BERTH_OVERFLOW, field, "does not fit into 64 bits");
    if (status || at != end)
        return bad_field(r, column, BERTH_BAD_DATA, field, "is not a whole number from 0");
    return BERTH_OK;
}

static berth_status take_signed(reading *r, berth__column column, bool optional, int64_t *out)
{
    const berth__csv_field *field = berth__column_field(&r->file->columns, &r->csv, column);
    if (!field || (optional && !field->length))
        return BERTH_OK;
    const char *at = field->text, *end = at + field->length;
    berth_status status = read_signed(&at, end, out);
    if (status == BERTH_OVERFLOW)
        return bad_field(r, column, BERTH_OVERFLOW, field, "does not fit into 64 bits");
    if (status || at != end)
        return bad_field(r, column, BERTH_BAD_DATA, field, "is not a whole number");
    return BERTH_OK;
}

/* ---- Columns of a row --------------------------------------------------------------------------- */

static bool same_id(void *context, uint32_t row, const berth__csv_field *field)
{
    const berth_problem_file *file = ((const reading *)context)->file;
    berth__csv csv;
    if (!berth__problem_file_row(file, row, &csv))
        return false;
    const berth__csv_field *other = berth__column_field(&file->columns, &csv, BERTH__COLUMN_ID);
    return other && other->length == field->length && memcmp(other->text, field->text, field->length) == 0;
}

static bool same_alias(void *context, uint32_t group, const berth__csv_field *field)
{
    const alias_name *name = &((const reading *)context)->alias_names[group - 1];
    return name->length == field->length && memcmp(name->text, field->text, field->length) == 0;
}

static berth_status id_is_there(const reading *r, const berth__csv_field *field, size_t line, size_t row)
{
    char text[40];
    return berth__fail(BERTH_BAD_DATA, "line %zu, column `%s`: '%s' is already the id of line %zu", line,
                       r->file->columns.name[BERTH__COLUMN_ID], shown(field, text),
                       berth_problem_file_line(r->file, row));
}

/* Looks for all ids but the last `left`. After a failure none waits: those that do came later. */
static berth_status look_for_ids(reading *r, size_t left)
{
    berth_status status = BERTH_OK;
    while (!status && r->ids_come - r->ids_looked > left) {
        const waiting_id *id = &r->waiting[r->ids_looked++ % IDS_AHEAD];
        uint32_t first;
        status = berth__names_add(&r->ids, &id->field, id->row, same_id, r, &first);
        if (!status && first != BERTH__NO_NAME)
            status = id_is_there(r, &id->field, id->line, first);
    }
    if (status)
        r->ids_looked = r->ids_come;
    return status;
}

static berth_status take_id(reading *r)
{
    const berth__csv_field *field = berth__column_field(&r->file->columns, &r->csv, BERTH__COLUMN_ID);
    if (!field->length)
        return berth__fail(BERTH_BAD_DATA, "line %zu, column `%s`: the id is empty", r->csv.record_line,
                           r->file->columns.name[BERTH__COLUMN_ID]);
    bool number, twice = false;
    berth_status status = berth__names_add_number(&r->ids, field, &number, &twice);
    if (!status && !number)
        status = look_for_ids(r, IDS_AHEAD - 1);
    if (!status && !number) {
        r->waiting[r->ids_come++ % IDS_AHEAD] = (waiting_id){*field, (uint32_t)r->rows, r->csv.record_line};
        berth__names_expect(&r->ids, field);
    }
    for (size_t row = 0; !status && twice && row < r->rows; row++)
        if (same_id(r, (uint32_t)row, field))
            status = id_is_there(r, field, r->csv.record_line, row);
    return status;
}

static berth_status take_alias(reading *r, berth_problem_buffer *b)
{
    const berth__csv_field *field = berth__column_field(&r->file->columns, &r->csv, BERTH__COLUMN_ALIAS);
    if (!field || !field->length)
        return BERTH_OK;
    if (r->alias_count == r->alias_room) {
        uint32_t room = r->alias_room ? r->alias_room * 2 : 64;
        alias_name *names = berth__heap_realloc(r->alias_names, room * sizeof *names);
        if (!names)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %" PRIu32 " alias groups", room);
        r->alias_names = names;
        r->alias_room = room;
    }
    uint32_t found;
    berth_status status = berth__names_add(&r->aliases, field, r->alias_count + 1, same_alias, r, &found);
    if (status)
        return status;
    if (found == BERTH__NO_NAME) {
        r->alias_names[r->alias_count++] = (alias_name){field->text, field->length};
        found = r->alias_count;
    }
    b->alias_group = found;
    return BERTH_OK;
}

static berth_status add_gap(reading *r, berth_problem_buffer *b, berth_gap gap)
{
    berth_problem_file *file = r->file;
    if (r->gaps == r->gap_room) {
        size_t room = r->gap_room ? r->gap_room * 2 : 256;
        berth_gap *gaps = room > UINT32_MAX ? NULL : berth__heap_realloc(file->gaps, room * sizeof *gaps);
        if (!gaps)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %zu gaps", room);
        file->gaps = gaps;
        r->gap_room = room;
    }
    file->gaps[r->gaps++] = gap;
    b->gap_count++;
    return BERTH_OK;
}

static int compare_gaps(const void *a, const void *b)
{
    const berth_gap *x = a, *y = b;
    return (x->lower > y->lower) - (x->lower < y->lower);
}

/* A row's gaps may stand in any order, and mostly stand in that of time. Whether two of them overlap. */
static bool order_gaps(berth_gap *gaps, size_t count)
{
    bool in_order = true, overlap = false;
    for (size_t k = 1; k < count; k++)
        in_order = in_order && gaps[k - 1].lower <= gaps[k].lower;
    if (!in_order)
        qsort(gaps, count, sizeof *gaps, compare_gaps);
    for (size_t k = 1; k < count; k++)
        overlap = overlap || gaps[k].lower < gaps[k - 1].upper;
    return overlap;
}

static berth_status take_gaps(reading *r, berth_problem_buffer *b)
{
    const berth__csv_field *field = berth__column_field(&r->file->columns, &r->csv, BERTH__COLUMN_GAPS);
    if (!field || !field->length)
        return BERTH_OK;
    if (memchr(field->text, '@', field->length))
        return bad_field(r, BERTH__COLUMN_GAPS, BERTH_BAD_DATA, field,
                         "has a windowed gap (`@`), which berth does not read; only lo-hi is");
    const char *at = field->text, *end = at + field->length;
    b->gap_first = (uint32_t)r->gaps;
    while (at < end) {
        berth_gap gap;
        if (*at == ' ') {
            at++;
            continue;
        }
        berth_status status = read_signed(&at, end, &gap.lower);
        if (!status && (at == end || *at++ != '-'))
            status = BERTH_NOT_FOUND;
        if (!status)
            status = read_signed(&at, end, &gap.upper);
        if (!status && r->file->columns.end_is_inclusive && __builtin_add_overflow(gap.upper, 1, &gap.upper))
            status = BERTH_OVERFLOW;
        if (status == BERTH_OVERFLOW)
            return bad_field(r, BERTH__COLUMN_GAPS, BERTH_OVERFLOW, field, "does not fit into 64 bits");
        if (status || (at < end && *at != ' '))
            return bad_field(r, BERTH__COLUMN_GAPS, BERTH_BAD_DATA, field,
                             "is not a list of gaps lo-hi with blanks between them");
        if (gap.lower >= gap.upper || gap.lower < b->lower || gap.upper > b->upper)
            return bad_field(r, BERTH__COLUMN_GAPS, BERTH_BAD_DATA, field,
                             "has a gap that is empty or lies outside the buffer's life");
        status = add_gap(r, b, gap);
        if (status)
            return status;
    }
    return b->gap_count && order_gaps(r->file->gaps + b->gap_first, b->gap_count)
               ? bad_field(r, BERTH__COLUMN_GAPS, BERTH_BAD_DATA, field, "has gaps that overlap")
               : BERTH_OK;
}

static berth_status take_life(reading *r, berth_problem_buffer *b)
{
    berth_status status = take_signed(r, BERTH__COLUMN_LOWER, false, &b->lower);
    if (!status)
        status = take_signed(r, BERTH__COLUMN_UPPER, false, &b->upper);
    if (status)
        return status;
    const berth__csv_field *field = berth__column_field(&r->file->columns, &r->csv, BERTH__COLUMN_UPPER);
    if (r->file->columns.end_is_inclusive && __builtin_add_overflow(b->upper, 1, &b->upper))
        return bad_field(r, BERTH__COLUMN_UPPER, BERTH_OVERFLOW, field, "does not fit into 64 bits");
    if (b->upper < b->lower)
        return bad_field(r, BERTH__COLUMN_UPPER, BERTH_BAD_DATA, field, "lies before the buffer's beginning");
    return BERTH_OK;
}

static berth_status take_size(reading *r, berth_problem_buffer *b)
{
    berth_status status = take_unsigned(r, BERTH__COLUMN_SIZE, false, &b->size_bytes);
    if (status)
        return status;
    if (berth__add_overflows(r->size_sum, b->size_bytes, &r->size_sum) || r->size_sum > INT64_MAX)
        return bad_field(r, BERTH__COLUMN_SIZE, BERTH_OVERFLOW,
                         berth__column_field(&r->file->columns, &r->csv, BERTH__COLUMN_SIZE),
                         "makes the sizes add up to more than 63 bits hold");
    return BERTH_OK;
}

static berth_status take_placement(reading *r, berth_problem_buffer *b)
{
    uint64_t alignment = 1;
    berth_status status = take_unsigned(r, BERTH__COLUMN_ALIGNMENT, true, &alignment);
    if (status)
        return status;
    if (alignment > UINT32_MAX)
        return bad_field(r, BERTH__COLUMN_ALIGNMENT, BERTH_OVERFLOW,
                         berth__column_field(&r->file->columns, &r->csv, BERTH__COLUMN_ALIGNMENT),
                         "is larger than any alignment that berth plans with (4294967295)");
    b->alignment = alignment ? (uint32_t)alignment : 1;
    const berth__csv_field *field = berth__column_field(&r->file->columns, &r->csv, BERTH__COLUMN_FIXED);
    status = take_unsigned(r, BERTH__COLUMN_FIXED, true, &b->fixed_offset);
    if (status || !field || !field->length)
        return status;
    /* this first: the largest number there is would count as no pin */
    if (b->fixed_offset > INT64_MAX || b->fixed_offset + b->size_bytes > INT64_MAX)
        return bad_field(r, BERTH__COLUMN_FIXED, BERTH_OVERFLOW, field, "plus the size is past 63 bits");
    if (b->fixed_offset % b->alignment)
        return bad_field(r, BERTH__COLUMN_FIXED, BERTH_BAD_DATA, field, "is no multiple of the alignment");
    return BERTH_OK;
}

static berth_status take_offset(reading *r)
{
    uint64_t offset = BERTH_NO_OFFSET;
    berth_status status = take_unsigned(r, BERTH__COLUMN_OFFSET, true, &offset);
    if (!status && r->file->offsets)
        r->file->offsets[r->rows] = offset;
    return status;
}

/* A saved plan has one row that is no buffer: `fingerprint`, without life and size, the number in its label.
 * Anything else of that id is a buffer like any other. */
static bool is_fingerprint(const reading *r, uint64_t *number)
{
    const berth__columns *columns = &r->file->columns;
    const berth__csv_field *id = berth__column_field(columns, &r->csv, BERTH__COLUMN_ID);
    const berth__csv_field *lower = berth__column_field(columns, &r->csv, BERTH__COLUMN_LOWER);
    const berth__csv_field *upper = berth__column_field(columns, &r->csv, BERTH__COLUMN_UPPER);
    const berth__csv_field *size = berth__column_field(columns, &r->csv, BERTH__COLUMN_SIZE);
    const berth__csv_field *label = berth__column_field(columns, &r->csv, BERTH__COLUMN_LABEL);
    if (!id || id->length != strlen(BERTH__FINGERPRINT_ID) ||
        memcmp(id->text, BERTH__FINGERPRINT_ID, id->length) != 0)
        return false;
    char hex[17], *end;
    if (!label || columns->place[BERTH__COLUMN_OFFSET] < 0 || size->length != 1 || *size->text != '0' ||
        lower->length != upper->length || memcmp(lower->text, upper->text, lower->length) != 0 ||
        label->length == 0 || label->length >= sizeof hex)
        return false;
    berth__csv_copy(label, hex, sizeof hex);
    *number = strtoull(hex, &end, 16);
    return *end == '\0' && hex[0] != '-' && hex[0] != '+' && hex[0] != ' ';
}

static berth_status take_fingerprint(reading *r, uint64_t number)
{
    berth_problem_file *file = r->file;
    if (file->has_fingerprint)
        return berth__fail(BERTH_BAD_DATA, "line %zu: a second fingerprint; a saved plan has one",
                           r->csv.record_line);
    file->has_fingerprint = true;
    file->fingerprint = number;
    file->fingerprint_at = (uint64_t)(r->csv.record - file->text);
    return BERTH_OK;
}

/* ---- Rows --------------------------------------------------------------------------------------- */

static void *grown(void *array, size_t count, size_t element_bytes)
{
    size_t bytes;
    return __builtin_mul_overflow(count, element_bytes, &bytes) ? NULL : berth__heap_realloc(array, bytes);
}

static berth_status make_room(reading *r)
{
    berth_problem_file *file = r->file;
    size_t room = r->room + r->room / 2 + 64;
    berth_problem_buffer *buffers = grown(file->buffers, room, sizeof *buffers);
    if (!buffers)
        goto refused;
    file->buffers = buffers;
    if (file->columns.place[BERTH__COLUMN_OFFSET] >= 0) {
        uint64_t *offsets = grown(file->offsets, room, sizeof *offsets);
        if (!offsets)
            goto refused;
        file->offsets = offsets;
    }
    uint64_t *marks = grown(file->marks, room / BERTH__ROWS_A_MARK + 1, sizeof *marks);
    if (!marks)
        goto refused;
    file->marks = marks;
    r->room = room;
    return BERTH_OK;
refused:
    return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %zu buffers", room);
}

static berth_status take_row(reading *r)
{
    berth_problem_file *file = r->file;
    if (r->csv.count != file->columns.count)
        return berth__fail(BERTH_BAD_DATA, "line %zu: %zu field%s where the header has %zu columns",
                           r->csv.record_line, r->csv.count, r->csv.count == 1 ? "" : "s",
                           file->columns.count);
    if (memchr(r->csv.record, '\0', (size_t)(r->csv.record_end - r->csv.record)))
        return berth__fail(BERTH_BAD_DATA, BERTH__ZERO_BYTE, r->csv.record_line);
    uint64_t fingerprint;
    if (is_fingerprint(r, &fingerprint))
        return take_fingerprint(r, fingerprint);
    if (r->rows == UINT32_MAX - 1)
        return berth__fail(BERTH_OVERFLOW, "line %zu: more rows than can be numbered", r->csv.record_line);
    berth_status status = r->rows == r->room ? make_room(r) : BERTH_OK;
    if (status)
        return status;
    if (r->rows % BERTH__ROWS_A_MARK == 0)
        file->marks[r->rows / BERTH__ROWS_A_MARK] = (uint64_t)(r->csv.record - file->text);
    berth_problem_buffer *b = &file->buffers[r->rows];
    *b = (berth_problem_buffer){.fixed_offset = BERTH_NO_OFFSET};
    if ((status = take_id(r)) || (status = take_life(r, b)) || (status = take_size(r, b)) ||
        (status = take_placement(r, b)) || (status = take_signed(r, BERTH__COLUMN_HINT, true, &b->hint)) ||
        (status = take_gaps(r, b)) || (status = take_alias(r, b)) || (status = take_offset(r)))
        return status;
    r->rows++;
    file->problem.buffer_count = r->rows; /* berth__problem_file_row looks here */
    return BERTH_OK;
}

size_t berth__problem_file_drop(const berth_problem_file *file, const berth__csv *csv, size_t dropped)
{
    size_t done = (size_t)(csv->at - file->text);
    if (file->text_kind != BERTH__TEXT_MAPPED || done - dropped < DROP_BYTES)
        return dropped;
    done = done / DROP_BYTES * DROP_BYTES;
    /* Now and then from the beginning: comparing names brings single pages back, and their neighbours. */
    size_t from = done % SWEEP_BYTES == 0 ? 0 : dropped;
    madvise((char *)(uintptr_t)file->text + from, done - from, MADV_DONTNEED);
    return done;
}

static berth_status read_rows(reading *r)
{
    berth_problem_file *file = r->file;
    berth__csv_begin(&r->csv, file->text, file->text_bytes);
    berth_status status = berth__columns_read(&file->columns, &r->csv, file);
    while (!status && !(status = berth__csv_next(&r->csv))) {
        status = take_row(r);
        r->dropped = berth__problem_file_drop(file, &r->csv, r->dropped);
    }
    berth_status earlier = look_for_ids(r, 0); /* what is wrong with a row before is told first */
    if (earlier || status != BERTH_NOT_FOUND)
        return earlier ? earlier : status;
    if (file->columns.place[BERTH__COLUMN_OFFSET] >= 0)
        berth__problem_file_notice(file, "the column `offset` is an answer and is not read as a wish; "
                                         "`fixed` pins a buffer");
    file->problem.struct_size = sizeof(berth_problem);
    file->problem.buffers = file->buffers;
    file->problem.gaps = file->gaps;
    file->problem.gap_count = r->gaps;
    status = berth_problem_validate(&file->problem);
    if (status == BERTH_INVALID_ARGUMENT) { /* what is left of it concerns several rows */
        char words[400];
        (void)berth_problem_file_words(file, berth_last_error()->message, words, sizeof words);
        status = berth__fail(BERTH_BAD_DATA, "%s", words);
    }
    return status;
}

static berth_status read_text(berth_problem_file *file)
{
    reading r = {.file = file};
    berth_status status = read_rows(&r);
    berth__names_finish(&r.ids);
    berth__names_finish(&r.aliases);
    berth__heap_free(r.alias_names);
    return status;
}

/* ---- Where the text comes from ------------------------------------------------------------------ */

static berth_status slurp(berth_problem_file *file, int fd)
{
    char *text = NULL;
    size_t room = 0, used = 0;
    for (;;) {
        if (used == room) {
            size_t more = room ? room * 2 : 1 << 16;
            char *moved = berth__heap_realloc(text, more);
            if (!moved) {
                berth__heap_free(text);
                return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to read %zu bytes", more);
            }
            text = moved;
            room = more;
        }
        ssize_t got = read(fd, text + used, room - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            berth__heap_free(text);
            return berth__fail(BERTH_IO, "cannot be read: %s", strerror(errno));
        }
        if (got == 0)
            break;
        used += (size_t)got;
    }
    file->text = text;
    file->text_bytes = used;
    file->text_kind = BERTH__TEXT_OWNED;
    return BERTH_OK;
}

static berth_status read_load(berth_problem_file *file, const char *path)
{
    if (strcmp(path, "-") == 0)
        return slurp(file, STDIN_FILENO);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return berth__fail(BERTH_IO, "cannot be opened: %s", strerror(errno));
    struct stat info;
    berth_status status = BERTH_OK;
    void *text = MAP_FAILED;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0)
        text = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text != MAP_FAILED) {
        madvise(text, (size_t)info.st_size, MADV_SEQUENTIAL);
        file->text = text;
        file->text_bytes = (size_t)info.st_size;
        file->text_kind = BERTH__TEXT_MAPPED;
    } else {
        status = slurp(file, fd);
    }
    close(fd);
    return status;
}

static berth_status read_from(const char *path, const void *text, size_t size_bytes, berth_problem_file **out)
{
    *out = NULL;
    berth_problem_file *file = berth__heap_zalloc(1, sizeof *file);
    if (!file)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to read a problem");
    berth_status status = BERTH_OK;
    if (path) {
        status = read_load(file, path);
    } else {
        file->text = text;
        file->text_bytes = size_bytes;
    }
    if (!status)
        status = read_text(file);
    if (status) {
        berth_problem_file_destroy(file);
        return status;
    }
    *out = file;
    return BERTH_OK;
}

berth_status berth_problem_file_read(const char *path, berth_problem_file **out)
{
    if (out)
        *out = NULL;
    if (!path || !out)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "reading a problem needs a path and a place for the result");
    return read_from(path, NULL, 0, out);
}

berth_status berth_problem_file_parse(const void *text, size_t size_bytes, berth_problem_file **out)
{
    if (out)
        *out = NULL;
    if ((!text && size_bytes) || !out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "reading a problem needs text and a place for the result");
    return read_from(NULL, text ? text : "", size_bytes, out);
}

void berth_problem_file_destroy(berth_problem_file *file)
{
    if (!file)
        return;
    if (file->text_kind == BERTH__TEXT_MAPPED)
        munmap((void *)(uintptr_t)file->text, file->text_bytes);
    else if (file->text_kind == BERTH__TEXT_OWNED)
        berth__heap_free((void *)(uintptr_t)file->text);
    berth__heap_free(file->buffers);
    berth__heap_free(file->gaps);
    berth__heap_free(file->offsets);
    berth__heap_free(file->marks);
    berth__heap_free(file);
}
