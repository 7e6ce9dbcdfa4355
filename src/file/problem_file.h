/* What reader and writer of problem files share: the columns, and the file in memory. */
#ifndef BERTH_FILE_PROBLEM_FILE_H
#define BERTH_FILE_PROBLEM_FILE_H

#include "berth/problem_file.h"
#include "file/csv.h"

typedef enum berth__column {
    BERTH__COLUMN_ID,
    BERTH__COLUMN_LOWER,
    BERTH__COLUMN_UPPER, /* also `end`, then inclusive */
    BERTH__COLUMN_SIZE,
    BERTH__COLUMN_ALIGNMENT,
    BERTH__COLUMN_HINT,
    BERTH__COLUMN_GAPS,
    BERTH__COLUMN_FIXED,
    BERTH__COLUMN_ALIAS,
    BERTH__COLUMN_LABEL,
    BERTH__COLUMN_OFFSET,
    BERTH__COLUMN_KINDS
} berth__column;

/* Where the columns stand in this file. */
typedef struct berth__columns {
    int place[BERTH__COLUMN_KINDS];     /* -1: not there */
    char name[BERTH__COLUMN_KINDS][16]; /* as this file calls it, for messages */
    size_t count;                       /* of all columns, known or not */
    bool end_is_inclusive;
} berth__columns;

enum { BERTH__NOTICES = 4, BERTH__ROWS_A_MARK = 16 };

typedef enum berth__text_kind {
    BERTH__TEXT_BORROWED,
    BERTH__TEXT_OWNED,
    BERTH__TEXT_MAPPED
} berth__text_kind;

/* Rows are kept as the text itself: of a million rows, a few names are asked for, so a row is found again by
 * a mark every 16 rows and a short walk. */
struct berth_problem_file {
    const char *text;
    size_t text_bytes;
    berth__text_kind text_kind;
    berth__columns columns;
    berth_problem problem;
    berth_problem_buffer *buffers;
    berth_gap *gaps;
    uint64_t *offsets; /* NULL: no such column */
    uint64_t *marks;   /* where rows 0, 16, 32, ... begin in the text */
    /* The row of a saved plan that is no buffer; see plan_file.c. */
    bool has_fingerprint;
    uint64_t fingerprint;
    uint64_t fingerprint_at;               /* where it begins in the text */
    char notices[BERTH__NOTICES + 1][160]; /* of unknown columns, and then the one of an offset column */
    size_t notice_count;
};

/* It would end every name that is shown, and two that differ behind it would look the same. */
#define BERTH__ZERO_BYTE "line %zu: there is a zero byte; is the file damaged, or not text?"

/* Reads the header, the first record of `csv`. BERTH_OK, BERTH_BAD_DATA. */
berth_status berth__columns_read(berth__columns *columns, berth__csv *csv, berth_problem_file *file);

void berth__problem_file_notice(berth_problem_file *file, const char *format, ...) BERTH_PRINTF(2, 3);

/* Goes on to the record of the next buffer, as berth__csv_next does to the next record. */
berth_status berth__problem_file_next(const berth_problem_file *file, berth__csv *csv);

/* Who walks through the whole text calls this after every record: pages of a mapped file that lie behind are given
 * back. `dropped` is what the last call answered, at first 0. */
size_t berth__problem_file_drop(const berth_problem_file *file, const berth__csv *csv, size_t dropped);

/* Whether `csv` holds the fingerprint's row. */
static inline bool berth__problem_file_at_fingerprint(const berth_problem_file *file, const berth__csv *csv)
{
    return file->has_fingerprint && csv->record == file->text + file->fingerprint_at;
}

/* The id of the fingerprint's row. */
#define BERTH__FINGERPRINT_ID "fingerprint"

/* Makes `csv` hold the record of a buffer's row. False if the text no longer has it. */
bool berth__problem_file_row(const berth_problem_file *file, size_t buffer, berth__csv *csv);

static inline const berth__csv_field *berth__column_field(const berth__columns *columns,
                                                          const berth__csv *csv, berth__column column)
{
    int place = columns->place[column];
    return place >= 0 && (size_t)place < csv->count ? &csv->fields[place] : NULL;
}

#endif
