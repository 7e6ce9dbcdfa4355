/* Problems and plans as CSV: docs/formats.md describes the columns. Files are untrusted: every number is
 * checked, and an error names the line and the column. */
#ifndef BERTH_PROBLEM_FILE_H
#define BERTH_PROBLEM_FILE_H

#include "berth/problem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct berth_problem_file berth_problem_file;

/* Reads a problem; "-" is the standard input. The caller destroys the result. The file is mapped where that
 * is possible, so it must not be cut short while the result lives; replacing it is fine. Any thread.
 * BERTH_OK, BERTH_IO, BERTH_BAD_DATA, BERTH_OVERFLOW, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_problem_file_read(const char *path, berth_problem_file **out);

/* The same from memory, which must stay as it is until the result is destroyed. Any thread.
 * BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_BAD_DATA, BERTH_OVERFLOW, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_problem_file_parse(const void *text, size_t size_bytes,
                                                berth_problem_file **out);

/* NULL is a no-op. */
BERTH_API void berth_problem_file_destroy(berth_problem_file *file);

/* The problem, valid as berth_problem_validate promises, without capacity and alignment: copy the struct and
 * set them. The row with which a saved plan (berth_plan_save) keeps its fingerprint is no buffer of it. It
 * belongs to the file and lives as long; NULL for no file. Any thread. */
BERTH_API const berth_problem *berth_problem_file_problem(const berth_problem_file *file);

/* berth_solve for the file's problem with this capacity (0: none) and alignment (0 or 1: rounds nothing), in half the
 * memory: the buffers are folded away while it searches. Until it returns, nobody may look at the file or its
 * problem, the progress callback included. One thread at a time a file. Statuses as berth_solve. */
BERTH_API berth_status berth_problem_file_solve(berth_problem_file *file, uint64_t capacity_bytes,
                                                uint32_t alignment, const berth_solve_options *options,
                                                uint64_t *offsets, berth_certificate *certificate);

/* The column `offset`, one number a buffer and BERTH_NO_OFFSET where it is empty, or NULL if there is none.
 * Nothing is known about it before berth_problem_check has proven it. Belongs to the file. */
BERTH_API const uint64_t *berth_problem_file_offsets(const berth_problem_file *file);

/* Writes a buffer's id or label into `text`, at most `room` bytes and always closed by a zero if there is
 * room at all; "" for a buffer or a column that is not there. Returns its full length. Any thread. */
BERTH_API size_t berth_problem_file_id(const berth_problem_file *file, size_t buffer, char *text,
                                       size_t room);
BERTH_API size_t berth_problem_file_label(const berth_problem_file *file, size_t buffer, char *text,
                                          size_t room);

/* The line, counted from 1, on which a buffer's row begins; 0 if there is no such buffer. */
BERTH_API size_t berth_problem_file_line(const berth_problem_file *file, size_t buffer);

/* Writes `words`, which the planner or the checker said of the file's problem, into `text` with each buffer named as people know
 * it: 'conv1' (line 3), not buffer 1. At most `room` bytes, always closed by a zero if there is room at all. Returns the full
 * length. Any thread. */
BERTH_API size_t berth_problem_file_words(const berth_problem_file *file, const char *words, char *text,
                                          size_t room);

/* What was read otherwise than one might expect (an offset column, columns that are not known): a sentence
 * for index 0, 1, ...; NULL past the last. That of an offset column is the last. Belongs to the file. */
BERTH_API const char *berth_problem_file_notice(const berth_problem_file *file, size_t index);

/* Writes the file's rows in their order with all their columns and the plan's offsets in the column `offset`,
 * added if the file has none. "-" is the standard output; an ordinary file appears whole or not at all, keeps
 * the mode and the owner of the one it replaces, and may be the one that was read. What is no ordinary file is
 * written in place. Any thread.
 * BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_IO, BERTH_BAD_DATA (the input changed meanwhile),
 * BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_problem_file_write(const berth_problem_file *file, const uint64_t *offsets,
                                                const char *path);

/* Writes the file's rows in their order in berth's own columns: id,lower,upper,size with half-open lives, those
 * of alignment, hint, gaps, fixed, alias, label and offset that are in use, and after them every column that is
 * not known, as it was. Ends of path as berth_problem_file_write. Any thread.
 * BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_IO, BERTH_BAD_DATA (the input changed meanwhile),
 * BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_problem_file_convert(const berth_problem_file *file, const char *path);

/* Takes the offsets of `plan`, found by id, for the buffers of `problem` into offsets[]. Rows may come in
 * another order; a row that is missing, extra, or has another life or size is BERTH_MISMATCH with words.
 * Proves nothing about the offsets: that is berth_problem_check. Any thread.
 * BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_MISMATCH, BERTH_BAD_DATA (no column offset), BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_problem_file_match(const berth_problem_file *problem,
                                                const berth_problem_file *plan, uint64_t *offsets);

/* Text that belongs to a buffer, as berth_problem_file_id gives it. */
typedef size_t (*berth_problem_text_fn)(void *context, size_t buffer, char *text, size_t room);

/* Writes any problem with the columns id,lower,upper,size and those of alignment, hint, gaps, fixed, alias,
 * label and offset that are in use. `id` NULL: the index; `label` NULL: none; `offsets` NULL: none. Ends of
 * path as berth_problem_file_write. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OVERFLOW, BERTH_IO,
 * BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_problem_write(const berth_problem *problem, berth_problem_text_fn id,
                                           berth_problem_text_fn label, void *context,
                                           const uint64_t *offsets, const char *path);

#ifdef __cplusplus
}
#endif
#endif
