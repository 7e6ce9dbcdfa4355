/* Who holds how much, counted while a file is read. A history with a tally keeps only what is alive: memory grows with that and
 * with those who ever held something, not with the events.
 *
 * Peaks are of a device. What each holder had at its device's peak is kept without a copy of all at every new peak: a holder
 * notes its bytes when it changes for the first time after one. */
#ifndef BERTH_FORMAT_TALLY_H
#define BERTH_FORMAT_TALLY_H

#include "format/history.h"

typedef enum format_holder_kind {
    FORMAT_HOLDER_UNKNOWN,  /* neither label nor stack is known */
    FORMAT_HOLDER_LABEL,    /* name is a text */
    FORMAT_HOLDER_FUNCTION, /* name is a text: the first function that is no general way to ask for memory */
    FORMAT_HOLDER_ADDRESS,  /* name is a frame whose function is not known, one for all of its place */
} format_holder_kind;

typedef struct format_counts {
    uint64_t live_bytes, live_blocks, peak_bytes;
    uint64_t allocs; /* blocks that began; those that were there before are none */
} format_counts;

typedef struct format_holder {
    format_counts counts; /* its peak is its own */
    format_holder_kind kind;
    uint32_t name;
    uint32_t frame; /* one of its frames, for file and line; 0: none */
    uint16_t device;
    uint64_t noted, noted_bytes; /* the device's peak of this number, and what it held then */
} format_holder;

typedef struct format_tally_thread {
    format_counts counts;
    uint32_t thread;
    uint16_t process;
} format_tally_thread;

typedef struct format_tally_device {
    format_counts counts;
    uint64_t peak_ns, peak_number; /* how many peaks there were */
    uint64_t mapped_bytes, mapped_peak_bytes;
    uint64_t failures; /* allocations that were refused */
} format_tally_device;

/* Finds numbers by two words. Open addressing. */
struct format_tally_table {
    uint32_t *numbers; /* + 1 */
    uint32_t mask, count;
};

typedef struct format_tally {
    format_holder *holders;
    format_tally_thread *threads;
    format_tally_device *devices; /* by the history's numbers */
    uint32_t holder_count, holder_room, thread_count, thread_room, device_count, device_room;
    struct format_tally_table holder_table, thread_table, place_table;
    /* Frames of one place in a module, wherever a process has it and whoever called: the first stands for all. */
    struct format_place {
        uint64_t offset;
        uint32_t module, file, line, frame;
    } * places;
    uint32_t place_count, place_room;
    struct format_site {
        uint32_t kind, name, frame; /* kind + 1; 0: not looked for */
    } * sites;                      /* of stacks */
    uint32_t site_room;
    /* Fills in the function of a frame that has none, as far as it can; NULL: nobody can. */
    void (*name_frame)(void *context, format_history *h, uint32_t frame);
    void *context;
} format_tally;

/* All zero is empty. */
void format_tally_finish(format_tally *tally);

/* For the history. A block begins: notes in it where it is counted. False: no memory, and nothing is counted. */
bool format_tally_begin(format_history *h, format_block *block);
void format_tally_end(format_history *h, const format_block *block);
/* A block turns out to have been there from the start: all so far was larger by it. It begins. */
bool format_tally_was_there(format_history *h, format_block *block);
/* Pages are taken (or, negative, given back). False: no memory. */
bool format_tally_map(format_history *h, uint16_t device, int64_t bytes);
bool format_tally_fail(format_history *h, uint16_t device);

/* What a holder had when its device was at its peak. */
uint64_t format_holder_at_peak(const format_tally *tally, const format_holder *holder);
/* Its name, cut to `room`. Returns `text`. */
const char *format_holder_words(const format_history *h, const format_holder *holder, char *text,
                                size_t room);
/* Sums of all devices; of several the peak is not known and is 0. */
format_counts format_tally_sum(const format_tally *tally);

#endif
