/* Text files line by line, in memory that does not grow with the file; zstd is unpacked on the way where this build has it. */
#ifndef BERTH_FORMAT_LINES_H
#define BERTH_FORMAT_LINES_H

#include "format/history.h"

typedef struct format_lines {
    char *line; /* without its end; closed by a zero, and the caller's to change until the next one */
    size_t length;
    uint64_t number; /* from 1 */
    bool ended;      /* the line has its newline: the last one of a file that is still written may not */
    bool quotes;     /* set by the caller: a newline between quotes is part of the line */
    struct format_lines_state *state;
} format_lines;

/* Opens a file. BERTH_OK, or the error's status; close is right in any case. */
berth_status format_lines_open(format_lines *lines, const char *path, format_error *error);
/* The next line. False: there is none, because the file ends or because of what format_lines_close says. */
bool format_lines_next(format_lines *lines);
/* How far it is, for format_progress. */
void format_lines_progress(const format_lines *lines, format_progress progress, void *context);
/* Closes; BERTH_OK, or why lines came to an end before the file did. */
berth_status format_lines_close(format_lines *lines, format_error *error);

/* Unpacks the first bytes of a zstd file. How many came out; 0 if that is not possible. */
size_t format_lines_unpack_head(const void *packed, size_t packed_bytes, void *to, size_t room);

/* ---- What stands in a line ---------------------------------------------------------------------------- */

/* Cuts a line of CSV into at most `room` fields, in place; quotes are taken off. How many there are. */
size_t format_lines_fields(char *line, char **fields, size_t room);

/* A whole number at *at, which moves behind it: with digits of `base` (10 or 16). False: there is none, or it is too large. */
bool format_lines_number(const char **at, unsigned base, uint64_t *number);
/* The same for a whole field: "0x" is hexadecimal, an empty one, "(nil)" and "nullptr" are 0. */
bool format_lines_field_number(const char *field, uint64_t *number);
/* An address: hexadecimal with or without "0x". */
bool format_lines_field_address(const char *field, uint64_t *number);

/* ---- Lines that cannot be read ------------------------------------------------------------------------- */

typedef struct format_bad_lines {
    uint64_t count, first;
    const char *why; /* of the first */
} format_bad_lines;

/* Notes that a line says nothing. */
void format_lines_bad(format_bad_lines *bad, const format_lines *lines, const char *why);
/* Tells the user of them. */
void format_lines_tell(const format_bad_lines *bad, format_history *h);

/* ---- The frame of a reader ------------------------------------------------------------------------------ */

/* Ends a reader: lines are closed, `h` is closed, and finished unless the answer is BERTH_OK. */
berth_status format_lines_end(format_lines *lines, berth_status status, const char *path, format_history *h,
                              format_error *error);

#endif
