/* The writer of problem files: a file's own rows with offsets or in our columns, or any problem. */
#include <stdio.h>
#include <string.h>

#include "file/output.h"
#include "file/problem_file.h"

/* ---- A file's own rows --------------------------------------------------------------------------- */

static void put_line_end(berth__output *o, const berth__csv *csv)
{
    bool carriage_return = csv->record_end < csv->end && *csv->record_end == '\r';
    berth__output_put(o, carriage_return ? "\r\n" : "\n", carriage_return ? 2 : 1);
}

/* One record up to where its offset stands, in its column or after the last. */
static void put_before(berth__output *o, const berth__csv *csv, int place)
{
    if (place >= 0) {
        berth__output_put(o, csv->record, (size_t)(csv->fields[place].raw - csv->record));
        return;
    }
    berth__output_put(o, csv->record, (size_t)(csv->record_end - csv->record));
    berth__output_put(o, &csv->separator, 1);
}

/* And what comes after it. Line ends stay as they are. */
static void put_after(berth__output *o, const berth__csv *csv, int place)
{
    if (place >= 0) {
        const char *from = csv->fields[place].raw + csv->fields[place].raw_length;
        berth__output_put(o, from, (size_t)(csv->record_end - from));
    }
    put_line_end(o, csv);
}

static void put_record(berth__output *o, const berth__csv *csv)
{
    berth__output_put(o, csv->record, (size_t)(csv->record_end - csv->record));
    put_line_end(o, csv);
}

static berth_status put_header(berth__output *o, berth__csv *csv, int place)
{
    berth_status status = berth__csv_next(csv);
    if (!status && place >= 0) {
        put_record(o, csv);
    } else if (!status) {
        put_before(o, csv, -1);
        berth__output_put(o, "offset", 6);
        put_after(o, csv, -1);
    }
    return status;
}

static berth_status changed(berth_status status)
{
    return status == BERTH_NOT_FOUND || status == BERTH_BAD_DATA
               ? berth__fail(BERTH_BAD_DATA, "the input changed while it was read")
               : status;
}

static berth_status put_rows(berth__output *o, const berth_problem_file *file, const uint64_t *offsets)
{
    berth__csv csv;
    const int place = file->columns.place[BERTH__COLUMN_OFFSET];
    const size_t records = file->problem.buffer_count + file->has_fingerprint;
    berth__csv_begin(&csv, file->text, file->text_bytes);
    berth_status status = put_header(o, &csv, place);
    for (size_t k = 0, row = 0; !status && k < records; k++) {
        status = berth__csv_next(&csv);
        if (!status && csv.count != file->columns.count)
            status = BERTH_BAD_DATA;
        if (status)
            break;
        if (berth__problem_file_at_fingerprint(file, &csv)) {
            put_record(o, &csv); /* of sizes and lives, so it holds for any offsets */
            continue;
        }
        if (row == file->problem.buffer_count)
            return changed(BERTH_BAD_DATA);
        put_before(o, &csv, place);
        if (offsets[row] != BERTH_NO_OFFSET)
            berth__output_number(o, offsets[row]);
        put_after(o, &csv, place);
        row++;
    }
    return changed(status);
}

berth_status berth_problem_file_write(const berth_problem_file *file, const uint64_t *offsets,
                                      const char *path)
{
    if (!file || !path || (!offsets && file->problem.buffer_count))
        return berth__fail(BERTH_INVALID_ARGUMENT, "writing a plan needs a file, offsets and a path");
    berth__output *o;
    berth_status status = berth__output_open(path, &o);
    return status ? status : berth__output_close(o, put_rows(o, file, offsets));
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

static bool needs_quotes(const char *text, size_t length)
{
    bool needs =
        length && (text[0] == ' ' || text[0] == '\t' || text[length - 1] == ' ' || text[length - 1] == '\t');
    for (size_t i = 0; i < length && !needs; i++)
        needs = text[i] == ',' || text[i] == '"' || text[i] == '\n' || text[i] == '\r';
    return needs;
}

/* Text of any length, in quotes where it needs them. */
static berth_status put_text(berth__output *o, berth_problem_text_fn fn, void *context, size_t buffer)
{
    char small[256], *text = small;
    size_t length = fn(context, buffer, small, sizeof small);
    if (length >= sizeof small) {
        text = berth__heap_alloc(length + 1);
        if (!text)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a name of %zu bytes", length);
        fn(context, buffer, text, length + 1);
    }
    bool quoted = needs_quotes(text, length);
    if (quoted)
        berth__output_put(o, "\"", 1);
    for (size_t i = 0; i < length; i++)
        berth__output_put(o, text[i] == '"' ? "\"\"" : &text[i], text[i] == '"' ? 2 : 1);
    if (quoted)
        berth__output_put(o, "\"", 1);
    if (text != small)
        berth__heap_free(text);
    return BERTH_OK;
}

static void put_gaps(berth__output *o, const berth_problem *problem, const berth_problem_buffer *b)
{
    for (uint32_t k = 0; k < b->gap_count; k++) {
        if (k)
            berth__output_put(o, " ", 1);
        berth__output_signed(o, problem->gaps[b->gap_first + k].lower);
        berth__output_put(o, "-", 1);
        berth__output_signed(o, problem->gaps[b->gap_first + k].upper);
    }
}

static void put_optional(berth__output *o, bool used, bool there, uint64_t n)
{
    if (used)
        berth__output_put(o, ",", 1);
    if (used && there)
        berth__output_number(o, n);
}

static void put_numbers(berth__output *o, const berth_problem *problem, size_t i, columns_used used)
{
    const berth_problem_buffer *b = &problem->buffers[i];
    berth__output_put(o, ",", 1);
    berth__output_signed(o, b->lower);
    berth__output_put(o, ",", 1);
    berth__output_signed(o, b->upper);
    put_optional(o, true, true, b->size_bytes);
    put_optional(o, used.alignment, true, b->alignment ? b->alignment : 1);
    if (used.hint) {
        berth__output_put(o, ",", 1);
        berth__output_signed(o, b->hint);
    }
    if (used.gaps) {
        berth__output_put(o, ",", 1);
        put_gaps(o, problem, b);
    }
    put_optional(o, used.fixed, b->fixed_offset != BERTH_NO_OFFSET, b->fixed_offset);
}

static void put_own_header(berth__output *o, columns_used used, bool label, bool offset)
{
    char header[128];
    int length = snprintf(header, sizeof header, "id,lower,upper,size%s%s%s%s%s%s%s",
                          used.alignment ? ",alignment" : "", used.hint ? ",hint" : "",
                          used.gaps ? ",gaps" : "", used.fixed ? ",fixed" : "", used.alias ? ",alias" : "",
                          label ? ",label" : "", offset ? ",offset" : "");
    berth__output_put(o, header, (size_t)length);
}

berth_status berth_problem_write(const berth_problem *problem, berth_problem_text_fn id,
                                 berth_problem_text_fn label, void *context, const uint64_t *offsets,
                                 const char *path)
{
    if (!path)
        return berth__fail(BERTH_INVALID_ARGUMENT, "writing a problem needs a path");
    berth_status status = berth_problem_validate(problem);
    berth__output *o;
    if (!status)
        status = berth__output_open(path, &o);
    if (status)
        return status;
    columns_used used = look_for_columns(problem);
    put_own_header(o, used, label, offsets);
    berth__output_put(o, "\n", 1);
    for (size_t i = 0; i < problem->buffer_count && !status; i++) {
        if (id)
            status = put_text(o, id, context, i);
        else
            berth__output_number(o, i);
        put_numbers(o, problem, i, used);
        put_optional(o, used.alias, problem->buffers[i].alias_group != 0, problem->buffers[i].alias_group);
        if (label)
            berth__output_put(o, ",", 1);
        if (label && !status)
            status = put_text(o, label, context, i);
        put_optional(o, offsets, offsets && offsets[i] != BERTH_NO_OFFSET, offsets ? offsets[i] : 0);
        berth__output_put(o, "\n", 1);
    }
    return berth__output_close(o, status);
}

/* ---- A file in our columns ----------------------------------------------------------------------- */

/* A field as it was read: in quotes only where it needs them, and quotes are doubled in it already. */
static void put_field(berth__output *o, const berth__csv_field *field)
{
    bool quoted = field && needs_quotes(field->text, field->length);
    if (quoted)
        berth__output_put(o, "\"", 1);
    if (field)
        berth__output_put(o, field->text, field->length);
    if (quoted)
        berth__output_put(o, "\"", 1);
}

typedef struct converting {
    const berth_problem_file *file;
    columns_used used;
    bool label, offset;
    bool known[BERTH__CSV_COLUMNS]; /* by the column's place in the file */
} converting;

static berth_status look_for_labels(converting *c)
{
    const berth_problem_file *file = c->file;
    berth__csv csv;
    c->label = file->has_fingerprint;
    if (file->columns.place[BERTH__COLUMN_LABEL] < 0)
        return BERTH_OK;
    berth__csv_begin(&csv, file->text, file->text_bytes);
    berth_status status = berth__csv_next(&csv);
    for (size_t row = 0; !status && !c->label && row < file->problem.buffer_count; row++) {
        status = berth__csv_next(&csv);
        const berth__csv_field *field = berth__column_field(&file->columns, &csv, BERTH__COLUMN_LABEL);
        c->label = !status && field && field->length > 0;
    }
    return status;
}

static void put_unknown(berth__output *o, const converting *c, const berth__csv *csv)
{
    for (size_t k = 0; k < csv->count; k++)
        if (!c->known[k]) {
            berth__output_put(o, ",", 1);
            put_field(o, &csv->fields[k]);
        }
    berth__output_put(o, "\n", 1);
}

static void put_named(berth__output *o, const converting *c, const berth__csv *csv, bool used,
                      berth__column column)
{
    if (!used)
        return;
    berth__output_put(o, ",", 1);
    put_field(o, berth__column_field(&c->file->columns, csv, column));
}

static void put_converted(berth__output *o, const converting *c, const berth__csv *csv, size_t row)
{
    const berth_problem_file *file = c->file;
    const uint64_t offset = c->offset ? file->offsets[row] : BERTH_NO_OFFSET;
    put_field(o, berth__column_field(&file->columns, csv, BERTH__COLUMN_ID));
    put_numbers(o, &file->problem, row, c->used);
    put_named(o, c, csv, c->used.alias, BERTH__COLUMN_ALIAS);
    put_named(o, c, csv, c->label, BERTH__COLUMN_LABEL);
    put_optional(o, c->offset, offset != BERTH_NO_OFFSET, offset);
    put_unknown(o, c, csv);
}

/* The fingerprint's row among columns that may be fewer or more than those it was saved with. */
static void put_fingerprint(berth__output *o, const converting *c, const berth__csv *csv)
{
    put_field(o, berth__column_field(&c->file->columns, csv, BERTH__COLUMN_ID));
    put_named(o, c, csv, true, BERTH__COLUMN_LOWER);
    put_named(o, c, csv, true, BERTH__COLUMN_UPPER);
    put_named(o, c, csv, true, BERTH__COLUMN_SIZE);
    put_named(o, c, csv, c->used.alignment, BERTH__COLUMN_ALIGNMENT);
    put_named(o, c, csv, c->used.hint, BERTH__COLUMN_HINT);
    put_named(o, c, csv, c->used.gaps, BERTH__COLUMN_GAPS);
    put_named(o, c, csv, c->used.fixed, BERTH__COLUMN_FIXED);
    put_named(o, c, csv, c->used.alias, BERTH__COLUMN_ALIAS);
    put_named(o, c, csv, true, BERTH__COLUMN_LABEL);
    put_named(o, c, csv, true, BERTH__COLUMN_OFFSET);
    put_unknown(o, c, csv);
}

static berth_status convert_rows(berth__output *o, const converting *c)
{
    const berth_problem_file *file = c->file;
    berth__csv csv;
    berth__csv_begin(&csv, file->text, file->text_bytes);
    berth_status status = berth__csv_next(&csv);
    if (!status) {
        put_own_header(o, c->used, c->label, c->offset);
        put_unknown(o, c, &csv);
    }
    const size_t records = file->problem.buffer_count + file->has_fingerprint;
    for (size_t k = 0, row = 0; !status && k < records; k++) {
        status = berth__csv_next(&csv);
        if (!status && csv.count != file->columns.count)
            status = BERTH_BAD_DATA;
        if (!status && berth__problem_file_at_fingerprint(file, &csv))
            put_fingerprint(o, c, &csv);
        else if (!status && row == file->problem.buffer_count)
            status = BERTH_BAD_DATA;
        else if (!status)
            put_converted(o, c, &csv, row++);
    }
    return changed(status);
}

berth_status berth_problem_file_convert(const berth_problem_file *file, const char *path)
{
    if (!file || !path)
        return berth__fail(BERTH_INVALID_ARGUMENT, "converting needs a file and a path");
    converting c = {.file = file,
                    .used = look_for_columns(&file->problem),
                    .offset = file->columns.place[BERTH__COLUMN_OFFSET] >= 0};
    for (int k = 0; k < BERTH__COLUMN_KINDS; k++)
        if (file->columns.place[k] >= 0)
            c.known[file->columns.place[k]] = true;
    berth__output *o;
    berth_status status = changed(look_for_labels(&c));
    if (!status)
        status = berth__output_open(path, &o);
    return status ? status : berth__output_close(o, convert_rows(o, &c));
}
