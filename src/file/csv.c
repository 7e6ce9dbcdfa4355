/* The grammar of CSV: quoted fields, CRLF, a byte-order mark; a million rows in a fraction of a second. */
#include "file/csv.h"

#include <string.h>

/* The separator of the first line that is not blank. */
static char find_separator(const char *p, const char *end)
{
    bool semicolon = false, tab = false, quoted = false;
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n'))
        p++;
    for (; p < end && (quoted || *p != '\n'); p++) {
        quoted ^= *p == '"';
        if (*p == ',' && !quoted)
            return ',';
        semicolon |= *p == ';' && !quoted;
        tab |= *p == '\t' && !quoted;
    }
    return semicolon ? ';' : tab ? '\t' : ',';
}

void berth__csv_begin(berth__csv *csv, const char *text, size_t size_bytes)
{
    csv->at = text;
    csv->end = text + size_bytes;
    csv->line = 1;
    csv->count = 0;
    if (size_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        csv->at += 3;
    csv->separator = find_separator(csv->at, csv->end);
    csv->record = csv->record_end = csv->at;
    csv->record_line = 1;
}

static bool is_blank(const berth__csv *csv, char c)
{
    return c == ' ' || (c == '\t' && csv->separator != '\t');
}

/* Whether a line ends at `p`, which may be the end of the text. A lone carriage return ends none, except the
 * very last. */
static bool at_line_end(const berth__csv *csv, const char *p)
{
    return p == csv->end || *p == '\n' || (*p == '\r' && (p + 1 == csv->end || p[1] == '\n'));
}

static void skip_line_end(berth__csv *csv)
{
    if (csv->at < csv->end && *csv->at == '\r')
        csv->at++;
    if (csv->at < csv->end && *csv->at == '\n')
        csv->at++;
    csv->line++;
}

/* `csv->at` is behind the opening quote; leaves it at the separator. */
static berth_status read_quoted(berth__csv *csv, berth__csv_field *field)
{
    size_t first_line = csv->line;
    field->quoted = true;
    field->text = csv->at;
    for (;; csv->at++) {
        if (csv->at == csv->end)
            return berth__fail(BERTH_BAD_DATA, "line %zu: a quoted field is never closed", first_line);
        if (*csv->at == '\n')
            csv->line++;
        if (*csv->at != '"')
            continue;
        if (csv->at + 1 < csv->end && csv->at[1] == '"')
            csv->at++;
        else
            break;
    }
    field->length = (size_t)(csv->at - field->text);
    csv->at++;
    while (csv->at < csv->end && is_blank(csv, *csv->at))
        csv->at++;
    if (!at_line_end(csv, csv->at) && *csv->at != csv->separator)
        return berth__fail(BERTH_BAD_DATA, "line %zu: there is text after a closing quote", csv->line);
    return BERTH_OK;
}

static berth_status read_plain(berth__csv *csv, berth__csv_field *field)
{
    const char *p = csv->at, *end = csv->end;
    const char separator = csv->separator;
    field->quoted = false;
    field->text = p;
    while (p < end && *p != separator && *p != '\n' && *p != '"')
        p++;
    if (p < end && *p == '"')
        return berth__fail(BERTH_BAD_DATA, "line %zu: a quote inside a field that does not begin with one",
                           csv->line);
    if (p > field->text && p[-1] == '\r' && (p == end || *p == '\n'))
        p--;
    csv->at = p;
    while (p > field->text && is_blank(csv, p[-1]))
        p--;
    field->length = (size_t)(p - field->text);
    return BERTH_OK;
}

static berth_status read_field(berth__csv *csv)
{
    if (csv->count == BERTH__CSV_COLUMNS)
        return berth__fail(BERTH_BAD_DATA, "line %zu: more than %d fields", csv->line, BERTH__CSV_COLUMNS);
    berth__csv_field *field = &csv->fields[csv->count++];
    field->raw = csv->at;
    while (csv->at < csv->end && is_blank(csv, *csv->at))
        csv->at++;
    berth_status status;
    if (csv->at < csv->end && *csv->at == '"') {
        csv->at++;
        status = read_quoted(csv, field);
    } else {
        status = read_plain(csv, field);
    }
    field->raw_length = (size_t)(csv->at - field->raw);
    return status;
}

static void skip_blank_lines(berth__csv *csv)
{
    while (csv->at < csv->end) {
        const char *p = csv->at;
        while (p < csv->end && is_blank(csv, *p))
            p++;
        if (!at_line_end(csv, p))
            return;
        csv->at = p;
        if (p < csv->end)
            skip_line_end(csv);
    }
}

berth_status berth__csv_next(berth__csv *csv)
{
    skip_blank_lines(csv);
    csv->count = 0;
    csv->record = csv->record_end = csv->at;
    csv->record_line = csv->line;
    if (csv->at == csv->end)
        return BERTH_NOT_FOUND;
    for (;;) {
        berth_status status = read_field(csv);
        if (status)
            return status;
        if (csv->at == csv->end || *csv->at != csv->separator)
            break;
        csv->at++;
    }
    csv->record_end = csv->at;
    if (csv->at < csv->end)
        skip_line_end(csv);
    return BERTH_OK;
}

/* A record without quotes is a line: two looks for a byte, where cutting it into fields looks at each. */
berth_status berth__csv_skip(berth__csv *csv)
{
    skip_blank_lines(csv);
    const size_t left = (size_t)(csv->end - csv->at);
    const char *line_end = left ? memchr(csv->at, '\n', left) : NULL;
    if (!line_end || memchr(csv->at, '"', (size_t)(line_end - csv->at)))
        return berth__csv_next(csv);
    csv->count = 0;
    csv->record = csv->at;
    csv->record_end = line_end > csv->at && line_end[-1] == '\r' ? line_end - 1 : line_end;
    csv->record_line = csv->line++;
    csv->at = line_end + 1;
    return BERTH_OK;
}

size_t berth__csv_copy(const berth__csv_field *field, char *text, size_t room)
{
    size_t length = 0;
    for (size_t i = 0; i < field->length; i++) {
        if (field->quoted && field->text[i] == '"')
            i++; /* the first of a pair */
        if (length + 1 < room)
            text[length] = field->text[i];
        length++;
    }
    if (room)
        text[length < room ? length : room - 1] = '\0';
    return length;
}
