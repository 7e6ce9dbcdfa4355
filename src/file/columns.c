/* The header of a problem file: which column is which, under all the names they go by. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "file/problem_file.h"

static const struct {
    const char *name;
    berth__column column;
} known[] = {
    {"id", BERTH__COLUMN_ID},        {"buffer", BERTH__COLUMN_ID},
    {"buffer_id", BERTH__COLUMN_ID}, {"lower", BERTH__COLUMN_LOWER},
    {"start", BERTH__COLUMN_LOWER},  {"begin", BERTH__COLUMN_LOWER},
    {"upper", BERTH__COLUMN_UPPER},  {"end", BERTH__COLUMN_UPPER},
    {"size", BERTH__COLUMN_SIZE},    {"alignment", BERTH__COLUMN_ALIGNMENT},
    {"hint", BERTH__COLUMN_HINT},    {"gaps", BERTH__COLUMN_GAPS},
    {"fixed", BERTH__COLUMN_FIXED},  {"alias", BERTH__COLUMN_ALIAS},
    {"label", BERTH__COLUMN_LABEL},  {"offset", BERTH__COLUMN_OFFSET},
};

void berth__problem_file_notice(berth_problem_file *file, const char *format, ...)
{
    if (file->notice_count == BERTH_COUNT_OF(file->notices))
        return;
    va_list args;
    va_start(args, format);
    /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start is right above */
    vsnprintf(file->notices[file->notice_count++], sizeof file->notices[0], format, args);
    va_end(args);
}

static berth_status take_name(berth__columns *columns, size_t place, char *name, size_t line,
                              berth_problem_file *file)
{
    for (size_t k = 0; k < BERTH_COUNT_OF(known); k++) {
        if (strcasecmp(name, known[k].name) != 0)
            continue;
        berth__column column = known[k].column;
        if (columns->place[column] >= 0)
            return berth__fail(BERTH_BAD_DATA, "line %zu: the columns `%s` and `%s` mean the same; keep one",
                               line, columns->name[column], known[k].name);
        columns->place[column] = (int)place;
        snprintf(columns->name[column], sizeof columns->name[column], "%s", known[k].name);
        columns->end_is_inclusive |= strcmp(known[k].name, "end") == 0;
        return BERTH_OK;
    }
    for (char *c = name; *c; c++) /* a terminal might obey it */
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    if (name[0] && file->notice_count < BERTH__NOTICES)
        berth__problem_file_notice(file, "the column `%s` is not known and not read", name);
    return BERTH_OK;
}

/* No name that we know, and a number among the fields. */
static bool looks_like_a_row(const berth__columns *columns, const berth__csv *csv)
{
    for (int k = 0; k < BERTH__COLUMN_KINDS; k++)
        if (columns->place[k] >= 0)
            return false;
    for (size_t i = 0; i < csv->count; i++) {
        size_t digits = 0;
        while (digits < csv->fields[i].length && csv->fields[i].text[digits] >= '0' &&
               csv->fields[i].text[digits] <= '9')
            digits++;
        if (digits && digits == csv->fields[i].length)
            return true;
    }
    return false;
}

/* In the header; in its first line, if what is there are no fields. */
static bool has_zero_byte(const berth__csv *csv, berth_status status)
{
    const char *end = csv->record_end;
    if (status == BERTH_BAD_DATA)
        end = memchr(csv->record, '\n', (size_t)(csv->end - csv->record));
    return memchr(csv->record, '\0', (size_t)((end ? end : csv->end) - csv->record)) != NULL;
}

berth_status berth__columns_read(berth__columns *columns, berth__csv *csv, berth_problem_file *file)
{
    static const char *const needed[] = {"id", "lower", "upper", "size"};
    memset(columns, 0, sizeof *columns);
    for (int k = 0; k < BERTH__COLUMN_KINDS; k++)
        columns->place[k] = -1;
    if (csv->end - csv->at >= 2 &&
        (memcmp(csv->at, "\xff\xfe", 2) == 0 || memcmp(csv->at, "\xfe\xff", 2) == 0))
        return berth__fail(BERTH_BAD_DATA, "line 1: this is UTF-16; save the file as UTF-8 or plain ASCII");
    if (csv->end - csv->at >= 2 && memcmp(csv->at, "\x1f\x8b", 2) == 0)
        return berth__fail(BERTH_BAD_DATA, "line 1: this is packed by gzip; unpack it first: gunzip -c FILE");
    berth_status status = berth__csv_next(csv);
    if (has_zero_byte(csv, status))
        return berth__fail(BERTH_BAD_DATA, BERTH__ZERO_BYTE, csv->record_line);
    if (status == BERTH_NOT_FOUND)
        return berth__fail(BERTH_BAD_DATA,
                           "line 1: the file is empty; a header such as id,lower,upper,size belongs here");
    for (size_t i = 0; !status && i < csv->count; i++) {
        char name[64];
        berth__csv_copy(&csv->fields[i], name, sizeof name);
        status = take_name(columns, i, name, csv->record_line, file);
    }
    columns->count = csv->count;
    if (!status && looks_like_a_row(columns, csv))
        return berth__fail(
            BERTH_BAD_DATA,
            "line %zu: this is a row, not a header; put id,lower,upper,size or what the columns are "
            "into a line above it",
            csv->record_line);
    for (size_t k = 0; !status && k < BERTH_COUNT_OF(needed); k++)
        if (columns->place[k] < 0)
            status =
                berth__fail(BERTH_BAD_DATA,
                            "line %zu: there is no column `%s`; the header needs id, lower, upper and size%s",
                            csv->record_line, needed[k],
                            csv->count == 1 ? ", with commas, semicolons or tabs between them" : "");
    return status;
}
