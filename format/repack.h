/* A recorded trace made ready to keep: with symbols, packed, and without names if it is to be shared. */
#ifndef BERTH_FORMAT_REPACK_H
#define BERTH_FORMAT_REPACK_H

#include "format/history.h"

typedef struct format_repack_options {
    bool symbols; /* look up what stands at addresses */
    bool redact;  /* leave out names, paths and commands */
} format_repack_options;

typedef struct format_repacked {
    uint64_t events;
    uint32_t processes;
    uint32_t notices;       /* how many parts were damaged or missing */
    char first_notice[200]; /* the first of them in words */
} format_repacked;

/* Reads the trace `from` and writes `to`. BERTH_OK, or the error's status. */
berth_status format_repack(const char *from, const char *to, const format_repack_options *options,
                           format_progress progress, void *context, format_repacked *out,
                           format_error *error);

#endif
