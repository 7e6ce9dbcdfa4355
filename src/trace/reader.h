/* The inside of a trace that is read.
 *
 *     open    walks the headers of all chunks, which gives each thread its list of them, and takes the definitions
 *     next    merges the threads: a heap of cursors by the tick of each one's next event; a chunk is in memory only
 *             while its cursor stands in it */
#ifndef BERTH_TRACE_READER_H
#define BERTH_TRACE_READER_H

#include "trace/decode.h"
#include "trace/definitions.h"
#include "trace/table.h"

enum { BERTH__TRACE_DAMAGE_MOST = 64, BERTH__TRACE_DAMAGE_WORDS = 160 };

/* A chunk of events in the file. */
typedef struct berth__trace_piece {
    uint64_t offset;
    uint64_t tick_first;
    uint32_t next; /* of the same thread: index + 1; 0: the last */
    uint32_t sequence;
    uint32_t cursor;
    uint32_t events;
    bool finished; /* else it is the last one of its thread, or there is a finished copy of it */
} berth__trace_piece;

/* A thread's place. */
typedef struct berth__trace_cursor {
    uint32_t process, thread;
    uint32_t first;    /* piece, index + 1; 0: none */
    uint32_t piece;    /* the one it stands in or before; index + 1, 0: at the end */
    bool loaded;       /* `event` is its next one, at state.tick; else `piece` is still to be loaded */
    uint32_t sequence; /* of the chunk with which it goes on when the trace has grown */
    size_t passed; /* rows of that chunk, in bytes, that were told already; `state` is what is known then */
    bool whole;    /* what is loaded was finished: it does not grow any more */
    bool stale;    /* it was loaded before the file was looked at last: there may be more of it */
    uint64_t tick; /* of what comes next */
    unsigned char *bytes; /* NULL: nothing is loaded */
    const unsigned char *at, *end;
    berth__trace_state state;
    berth_trace_event event;
} berth__trace_cursor;

/* A thread's name. Chunks do not stand in the file in the order of writing: the largest sequence is the last one. */
struct berth__trace_named {
    berth_trace_thread thread;
    uint32_t sequence; /* of the chunk that tells it */
};

/* Definitions of one kind by their number. */
typedef struct berth__trace_list {
    void *items;
    uint32_t count, room; /* numbers below `count` may be meant; what was not defined is all zero */
} berth__trace_list;

struct berth_trace_reader {
    int file;
    uint64_t size_bytes;
    berth__trace_file_header header;
    uint64_t tick, clock_ns; /* a moment late in the file */
    berth_trace_unpack_fn unpack;
    void *context;
    berth__trace_piece *pieces;
    uint32_t piece_count, piece_room;
    berth__trace_cursor *cursors;
    uint32_t cursor_count, cursor_room;
    berth__trace_table threads; /* process and thread, to a cursor's index + 1 */
    berth__trace_table taken;   /* finished chunks of definitions, by their offset */
    uint32_t *heap;
    uint32_t heap_count;
    uint64_t events, last_ns;
    uint64_t tick_most; /* events behind it are left for later: berth_trace_follow */
    bool is_walking;    /* what is noted now may be otherwise when the chunks are walked again */
    berth__trace_list texts, frames, modules, devices, processes;
    berth__trace_list thread_names;   /* struct berth__trace_named, in the order in which they came */
    berth__trace_table thread_table;  /* process and thread, to one of them + 1 */
    berth__trace_list pictures;       /* berth_trace_picture, in the order in which they came */
    berth__trace_table picture_table; /* process, thread, chunk and refusal, to one of them + 1 */
    struct berth__trace_words *words; /* where texts lie */
    char (*damage)[BERTH__TRACE_DAMAGE_WORDS];
    bool damage_of_walk[BERTH__TRACE_DAMAGE_MOST];
    uint32_t damage_count;
};

/* Notes what is damaged; false for callers to answer with. */
bool berth__trace_note(berth_trace_reader *r, const char *format, ...) BERTH_PRINTF(2, 3);

/* Reads the header of a chunk at `offset`; false if there is none that holds. */
bool berth__trace_read_header(const berth_trace_reader *r, uint64_t offset, berth__trace_chunk_header *h);
/* Its payload as rows, in new memory that the caller frees; *out NULL if it is damaged, which is noted. BERTH_OK,
 * BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__trace_load(berth_trace_reader *r, uint64_t offset, const berth__trace_chunk_header *h,
                               unsigned char **out, size_t *size_bytes);

/* Whether every cursor finds the chunk in which it goes on, or has none to go on in. */
bool berth__trace_all_there(const berth_trace_reader *r);
/* Sets all threads to where they go on; a heap of those that have something left. */
void berth__trace_resume(berth_trace_reader *r);
/* Finds the chunks anew in a file that has grown, and goes on. BERTH_OK, BERTH_IO, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__trace_look_again(berth_trace_reader *r);

/* Takes the definitions of a payload; `sequence` is that of its chunk. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__trace_take_definitions(berth_trace_reader *r, uint64_t offset, uint32_t sequence,
                                           const unsigned char *bytes, size_t size_bytes);
/* How it stood at a refusal; NULL: not told. */
const berth_trace_picture *berth__trace_find_picture(const berth_trace_reader *r, uint32_t process,
                                                     uint32_t thread, uint32_t sequence, uint32_t refusal);
void berth__trace_definitions_finish(berth_trace_reader *r);

#endif
