/* Who holds memory: the blocks of a history put together by label or by call site, at one moment and in all. */
#ifndef BERTH_CLI_HOLDERS_H
#define BERTH_CLI_HOLDERS_H

#include <stddef.h>

#include "format/history.h"

/* Events count from 0. After the last one is what was alive at the end; before the first one nothing is. */
#define HOLDERS_AT_END (UINT32_MAX - 1)

typedef enum holders_by {
    HOLDERS_BY_LABEL,
    HOLDERS_BY_SITE, /* the innermost frame that is not an allocator's: function and line, else module and offset */
} holders_by;

typedef struct holder {
    uint64_t live_bytes;  /* right after the event */
    uint64_t total_bytes; /* ever allocated */
    uint64_t allocations;
    uint32_t live_blocks;
    uint32_t label; /* by label: the text; 0: blocks without one */
    uint32_t frame; /* by site: the frame itself, whose callers are one of the ways to it; 0: no stack */
} holder;

typedef struct holders {
    holder *items; /* the most live bytes first; then the most bytes in all */
    uint32_t count;
    holders_by by;
    uint32_t *
        of; /* by label or by stack (a frame's number): the index of its holder; UINT32_MAX: it has no block */
} holders;

/* Groups the blocks of one device (FORMAT_ANY_DEVICE: all) as they are right after `event` (format_history_peak's; FORMAT_ALIVE or
 * HOLDERS_AT_END: at the end). `h` is closed and outlives `out`, which the caller finishes. False: no memory. */
bool holders_init(holders *out, const format_history *h, uint16_t device, uint32_t event, holders_by by);
void holders_finish(holders *by);

/* The index of the holder of a block. */
static inline uint32_t holders_of_block(const holders *by, const format_block *b)
{
    return by->of[by->by == HOLDERS_BY_LABEL ? b->label : b->stack];
}

/* The frame of a stack that counts as its call site; 0 for stack 0. If all are an allocator's, it is the outermost. */
uint32_t holders_site(const format_history *h, uint32_t stack);

/* A frame as people read it, "parse_header (reader.c:81)", "libfoo.so+0x1f30", "no call stack"; cut to the room, with three dots, and
 * harmless for a terminal, as are all names here. */
enum { HOLDERS_NAME_ROOM = 200 };
const char *holders_frame_name(const format_history *h, uint32_t frame, char text[HOLDERS_NAME_ROOM]);
/* A label; 0 is "no label". */
const char *holders_label_name(const format_history *h, uint32_t label, char text[HOLDERS_NAME_ROOM]);
/* A holder's name: its label ("no label" for none) or its frame's. */
const char *holders_name(const format_history *h, const holders *by, const holder *one,
                         char text[HOLDERS_NAME_ROOM]);

/* The last part of a path, in the text itself. */
const char *holders_file_name(const char *path);

#endif
