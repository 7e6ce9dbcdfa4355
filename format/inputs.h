/* Any file that tells what a program did with its memory, recognised by what is in it. */
#ifndef BERTH_FORMAT_INPUTS_H
#define BERTH_FORMAT_INPUTS_H

#include "format/history.h"

/* What a file is, by its first bytes. */
typedef enum format_input {
    FORMAT_INPUT_TRACE,     /* berth/trace.h */
    FORMAT_INPUT_PROBLEM,   /* CSV with lives and sizes, perhaps offsets */
    FORMAT_INPUT_SNAPSHOT,  /* a pickle: PyTorch's torch.cuda.memory._dump_snapshot */
    FORMAT_INPUT_EVENTLOG,  /* berth/decorators.h */
    FORMAT_INPUT_RMM,       /* RMM's logging resource adaptor */
    FORMAT_INPUT_HEAPTRACK, /* plain or packed with zstd */
    FORMAT_INPUT_MASSIF,
    FORMAT_INPUT_TFLITE, /* models: berth plan reads them */
    FORMAT_INPUT_ONNX,
    FORMAT_INPUT_UNKNOWN,
} format_input;

/* Whether such a file tells a history whose blocks came one after another, so that it can be a problem too. */
static inline bool format_input_is_history(format_input input)
{
    return input != FORMAT_INPUT_PROBLEM && input < FORMAT_INPUT_TFLITE;
}

/* Recognises a file by its first `size_bytes` bytes (4,096 are enough). *looks_like, for one that is none of ours, says what
 * it is and what to do, "a gzip file: unpack it first"; it is a constant text. */
format_input format_recognise(const void *bytes, size_t size_bytes, const char **looks_like);

/* Opens `path` ("-": the standard input) for readers, which look at several places, or twice: a file is opened, what comes once
 * (a pipe, also one that the shell calls /dev/fd/63) is copied to a file without a name, and *is_kept. -1 with words. */
int format_input_open(const char *path, bool *is_kept, format_error *error);

/* Reads `path` ("-": the standard input) whatever it is. BERTH_OK with `h` closed, else the error's status; `h` is finished
 * then. BERTH_BAD_DATA for a file that is nothing we know, with words. */
berth_status format_history_read(const char *path, format_history *h, format_progress progress, void *context,
                                 format_error *error);

/* The same, counted in `tally`, which is empty and stays the caller's (format/tally.h): `h` has only what is alive at the end. */
berth_status format_history_count(const char *path, format_history *h, struct format_tally *tally,
                                  format_progress progress, void *context, format_error *error);

/* Readers of one format each; `h` is all zero, or has a tally; they answer the same way. */
berth_status format_snapshot_read(const char *path, format_history *h, format_progress progress,
                                  void *context, format_error *error);
berth_status format_problem_read(const char *path, format_history *h, format_progress progress, void *context,
                                 format_error *error);

berth_status format_eventlog_read(const char *path, format_history *h, format_progress progress,
                                  void *context, format_error *error);
berth_status format_rmm_read(const char *path, format_history *h, format_progress progress, void *context,
                             format_error *error);
berth_status format_heaptrack_read(const char *path, format_history *h, format_progress progress,
                                   void *context, format_error *error);
berth_status format_massif_read(const char *path, format_history *h, format_progress progress, void *context,
                                format_error *error);

#endif
