/* The grammar of CSV: records and fields as slices of the text, nothing copied. */
#ifndef BERTH_FILE_CSV_H
#define BERTH_FILE_CSV_H

#include "base/base.h"

enum { BERTH__CSV_COLUMNS = 128 };

/* A field: its words without quotes or the blanks around them. In a quoted field a doubled quote stands for
 * one; it is kept doubled here. `raw` is all that stands between the separators. */
typedef struct berth__csv_field {
    const char *text;
    size_t length;
    const char *raw;
    size_t raw_length;
    bool quoted;
} berth__csv_field;

typedef struct berth__csv {
    const char *at, *end;
    size_t line; /* of `at`, from 1 */
    char separator;

    /* the record that berth__csv_next found */
    berth__csv_field fields[BERTH__CSV_COLUMNS];
    size_t count;
    const char *record, *record_end; /* without the end of the line */
    size_t record_line;
} berth__csv;

/* Starts at the text's beginning, after a byte-order mark. Fields are separated by what the first line has: commas, else semicolons, else
 * tabs. */
void berth__csv_begin(berth__csv *csv, const char *text, size_t size_bytes);

/* Goes on to the next record that is not blank. BERTH_OK, BERTH_NOT_FOUND at the end (no words are kept),
 * BERTH_BAD_DATA with the line. */
berth_status berth__csv_next(berth__csv *csv);

/* The same for a record whose fields nobody wants: it has none afterwards. What is wrong inside it is not always seen. */
berth_status berth__csv_skip(berth__csv *csv);

/* Copies a field with doubled quotes made single; as berth_problem_file_id. */
size_t berth__csv_copy(const berth__csv_field *field, char *text, size_t room);

#endif
