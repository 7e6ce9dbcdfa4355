/* What a program did with its memory, whatever file told it: blocks with their lives, in the order in which things
 * happened, with labels, call stacks, devices and streams.
 *
 *     reader of a format -> history -> views, answers, plans, writers of other formats
 *
 * Readers add; a failure to get memory is remembered (`no_memory`), so that they may look once at the end. Numbers of texts
 * and frames begin with 1; 0 is none. */
#ifndef BERTH_FORMAT_HISTORY_H
#define BERTH_FORMAT_HISTORY_H

#include "format/model.h"

#define FORMAT_ALIVE UINT32_MAX /* as an end: the block outlived the recording */

typedef struct format_block {
    uint64_t address, size_bytes;
    uint64_t begin_ns, end_ns; /* end_ns: of the last event while it is alive */
    uint64_t stream;
    uint32_t begin, end; /* indices of events; FORMAT_ALIVE. With a tally: where it is counted */
    uint32_t stack, label;
    uint32_t thread, end_thread; /* who allocated and who freed it; the same where the file does not say */
    uint16_t process, device;
} format_block;

typedef struct format_frame {
    uint32_t caller;
    uint32_t function, file, module; /* texts */
    uint32_t line;
    uint64_t address;
    uint64_t base; /* of the module: `address` less this is the same in every run; 0: unknown */
} format_frame;

/* Memory that a cache or the program itself took from the system or the driver. */
typedef struct format_segment {
    uint64_t address, size_bytes, begin_ns, end_ns;
    uint64_t stream;     /* whose blocks it is for; 0: anybody's, or not known */
    uint32_t begin, end; /* between which events: before the event of this index */
    uint32_t stack;
    uint32_t pool; /* a text: which of a cache's pools it belongs to; 0: not known */
    uint16_t process, device;
    bool stands_alone; /* no block reaches from it into a neighbour */
} format_segment;

/* An allocation that was refused, or (size 0) a moment that the program has named. */
typedef struct format_moment {
    uint64_t time_ns, size_bytes;
    uint64_t stream;
    uint64_t free_bytes; /* what the device still had, if that is known */
    /* How the allocator that refused stood, if it said so: freed bytes that streams use, holes, pieces in which nothing is alive. */
    uint64_t waiting_bytes, hole_bytes, largest_hole_bytes, unused_bytes;
    uint32_t before; /* the event of this index */
    uint32_t stack, label;
    uint16_t process, device;
    bool knows_free, knows_holes;
} format_moment;

/* A block that the program has let go of, while streams still use it: it ends later. */
typedef struct format_wait {
    uint32_t block;
    uint32_t before; /* the event of this index */
} format_wait;

/* What a problem says of a block beside its life and size. Blocks of one unit are parts of one thing at one place: a buffer that is away
 * at times, or what buffers that share a place take together. */
typedef struct format_tie {
    uint64_t fixed_offset; /* UINT64_MAX: anywhere */
    uint32_t unit;
    uint32_t alignment; /* of its place, from 1 */
    uint32_t row;       /* of the problem, from 0 */
} format_tie;

typedef struct format_device {
    uint32_t name;           /* text; 0: the host */
    uint64_t capacity_bytes; /* 0: unknown */
} format_device;

typedef struct format_thread {
    uint16_t process;
    uint32_t thread;
    uint32_t name; /* text */
} format_thread;

typedef struct format_notice {
    char words[200];
} format_notice;

typedef struct format_history {
    const char *format; /* "trace", "PyTorch snapshot" */
    bool has_addresses; /* else lives and sizes alone are known */
    bool has_times;     /* in nanoseconds; else times are counts of events */
    bool no_memory;

    format_block *blocks; /* in the order of their begins */
    uint32_t block_count, block_room;
    format_tie *ties; /* by block, of a problem with gaps, aliases, fixed offsets or alignments; else NULL */
    uint32_t *events; /* a block's index twice, plus one if it ends */
    uint32_t event_count, event_room;
    format_segment *segments;
    uint32_t segment_count, segment_room;
    format_moment *moments;
    uint32_t moment_count, moment_room;
    format_wait *waits;
    uint32_t wait_count, wait_room;

    char **texts;
    uint32_t text_count, text_room; /* texts[0] is "" */
    format_frame *frames;
    uint32_t frame_count, frame_room; /* frames[0] is none */
    format_device *devices;
    uint32_t device_count, device_room; /* devices[0] is the host */
    uint32_t *commands;                 /* by process: a text */
    uint32_t process_count, process_room;
    format_thread *threads; /* those that have names, by process and thread */
    uint32_t named_count, named_room;

    uint64_t first_ns, last_ns;
    int64_t zero;           /* what the file calls the time 0, if it has times below 0 */
    uint64_t unknown_frees; /* of blocks from before the recording */
    uint64_t lost_frees;    /* an address came again without having been freed */
    format_notice *notices;
    uint32_t notice_count, notice_room;

    /* NULL, or what counts while blocks come and go. Then only those that are alive are kept, in no order; of segments likewise;
     * and of events and moments none. */
    struct format_tally *tally;
    struct format_index
        *index; /* how texts, frames and live blocks are found; freed by format_history_close */
} format_history;

/* Begins an empty one. False: no memory; finish is still right. */
bool format_history_init(format_history *h, const char *format);
/* The same for readers, whose caller gives `h` all zero or with a tally, which it keeps. */
bool format_history_begin(format_history *h, const char *format);
/* All has been added: lets go of what only adding needs and ends the lives of what is alive. */
void format_history_close(format_history *h);
/* Frees all of it and zeroes it. */
void format_history_finish(format_history *h);

/* The number of a text; equal ones have one. 0 for an empty one. */
uint32_t format_history_text(format_history *h, const char *text, size_t length);
/* The number of a frame; equal ones have one. */
uint32_t format_history_frame(format_history *h, const format_frame *frame);
/* The number of a device by its name, "" for the host; made if it is new. */
uint16_t format_history_device(format_history *h, const char *name);

/* The command line of a process, which is known from then on. */
void format_history_process(format_history *h, uint16_t process, uint32_t command);
/* The name of a thread, a text. Sort once all were told, each of them once: then they are found. */
void format_history_thread(format_history *h, uint16_t process, uint32_t thread, uint32_t name);
void format_history_threads_sort(format_history *h);
/* The name of a thread, "" if it has none. */
const char *format_history_thread_name(const format_history *h, uint16_t process, uint32_t thread);

/* A block begins: everything of `block` is given but its ends. One that is alive at the same place ends first. */
void format_history_alloc(format_history *h, const format_block *block);
/* With a tally: a block that was there before the first event, which is alive or (ended) was until now. */
void format_history_was_there(format_history *h, const format_block *block, bool ended);
/* A block ends. False: none is known there. */
bool format_history_free(format_history *h, uint16_t process, uint16_t device, uint64_t address,
                         uint64_t time_ns);
/* The same, and who freed it, where the file says so. */
bool format_history_free_by(format_history *h, uint16_t process, uint16_t device, uint64_t address,
                            uint64_t time_ns, uint32_t thread);
/* The program has let go of a block, which ends when its streams have passed. */
void format_history_wait(format_history *h, uint16_t process, uint16_t device, uint64_t address);
/* Pages are taken, and given back, perhaps in parts: what is left on either side goes on as a segment of its own. */
void format_history_map(format_history *h, const format_segment *segment);
void format_history_unmap(format_history *h, uint16_t process, uint16_t device, uint64_t address,
                          uint64_t size_bytes, uint64_t time_ns);
/* Whether a segment that is not given back begins there; only before closing. */
bool format_history_has_segment(const format_history *h, uint16_t process, uint16_t device, uint64_t address);
void format_history_moment(format_history *h, const format_moment *moment);
/* Something that the user should know of the file, in words. */
void format_history_notice(format_history *h, const char *words, ...) BERTH_PRINTF(2, 3);

/* The block alive at an address, or NULL; only before closing. */
format_block *format_history_find(format_history *h, uint16_t process, uint16_t device, uint64_t address);

static inline const char *format_history_words(const format_history *h, uint32_t text)
{
    return text < h->text_count ? h->texts[text] : "";
}

/* ---- Figures ----------------------------------------------------------------------------------------- */

#define FORMAT_ANY_DEVICE UINT16_MAX

typedef struct format_peak {
    uint64_t bytes;
    uint32_t event; /* the allocation that reaches it first; FORMAT_ALIVE: nothing was ever alive */
    uint64_t time_ns;
    uint32_t blocks; /* alive then */
} format_peak;

/* The largest number of bytes alive at once, on one device or on all. */
format_peak format_history_peak(const format_history *h, uint16_t device);
/* Whether a block is alive right after an event. */
static inline bool format_block_is_alive(const format_block *b, uint32_t event)
{
    return b->begin <= event && event < b->end;
}

/* ---- Readers ----------------------------------------------------------------------------------------- */

/* Tells how far a reader is, as often as it likes. NULL: nobody wants to know. */
typedef void (*format_progress)(void *context, uint64_t done, uint64_t all);

/* Reads a trace (berth/trace.h, packed ones too). BERTH_OK with `h` closed, else error's status; `h` is finished then. */
berth_status format_trace_read(const char *path, format_history *h, format_progress progress, void *context,
                               format_error *error);

#endif
