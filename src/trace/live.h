/* A trace file that is written in place: the file is mapped, chunk by chunk, so that what was written is there however
 * the process ends. Several processes may write one file. Nothing here takes memory from a heap or a lock, and failures
 * are errno's: a recorder inside malloc uses this. */
#ifndef BERTH_TRACE_LIVE_H
#define BERTH_TRACE_LIVE_H

#include "trace/encode.h"

/* One mapped file. The path must stay where it is: the file is opened anew when the program has closed our
 * descriptor, as programs do that close all of them. */
typedef struct berth__trace_live {
    const char *path;
    int file;
    uint64_t device, inode; /* what `path` was when it was opened */
    berth__trace_file_header *header;
} berth__trace_live;

/* Opens and empties the file at `path`, which nobody else may be writing, and says that we do: until the descriptor and its
 * copies in other processes are closed nobody else gets it. A pipe or a device is opened as it is. 0 or errno; EBUSY: somebody
 * writes it. */
int berth__trace_open_alone(const char *path, int flags, int *out);

/* Makes an empty trace at `path` and opens it. 0 or errno; EBUSY as above. */
int berth__trace_live_create(berth__trace_live *live, const char *path);
/* Opens one that another process has made; `writes`: so that nobody begins it anew meanwhile. 0 or errno; EINVAL: it is no
 * trace of this version, or finished. */
int berth__trace_live_open(berth__trace_live *live, const char *path, bool writes);
/* Nothing is written any more, though children that were forked meanwhile may still have the descriptor. */
void berth__trace_live_release(berth__trace_live *live);
void berth__trace_live_close(berth__trace_live *live);

/* What follows is no cancellation point and raises no signal: malloc must not, and whoever writes may hold a lock.
 * A chunk being written. The owner adds with berth__trace_chunk_add or, for definitions, by itself. */
typedef struct berth__trace_chunk {
    berth__trace_chunk_header *header; /* NULL: none is open */
    unsigned char *at, *end;
    uint32_t events;
    berth__trace_state state;
} berth__trace_chunk;

/* Maps a place in the file for the chunks of this thread. 0 or errno: the disk is full. */
int berth__trace_chunk_begin(berth__trace_live *live, berth__trace_chunk *chunk, uint32_t type,
                             uint32_t process, uint32_t thread);
/* It is full: copies it to the end of the file, and begins the thread's next one in the same place. Whoever is killed in
 * between leaves two of one number, of which readers take one. 0 or errno. */
int berth__trace_chunk_turn(berth__trace_live *live, berth__trace_chunk *chunk);
/* Checksums it where it is and lets go of it. NULL header is a no-op. */
void berth__trace_chunk_end(berth__trace_chunk *chunk);

/* Fills in a header; the file's place is the caller's. */
void berth__trace_chunk_head(berth__trace_chunk_header *h, uint32_t type, uint32_t process, uint32_t thread,
                             uint32_t sequence, uint32_t room_bytes);
uint64_t berth__trace_header_checksum(const berth__trace_chunk_header *h);

enum { BERTH__TRACE_THREAD_NAME = 16 }; /* the system's names, with their zero */
/* The name that the system has for the calling thread. True if it is another one than in `name`, where it stands then. */
bool berth__trace_thread_renamed(char name[BERTH__TRACE_THREAD_NAME]);

static inline bool berth__trace_chunk_has_room(const berth__trace_chunk *chunk, size_t bytes)
{
    return chunk->header && (size_t)(chunk->end - chunk->at) >= bytes;
}
/* Says that what stands before `chunk->at` holds: for whoever reads the file after us. */
static inline void berth__trace_chunk_publish(berth__trace_chunk *chunk)
{
    uint64_t bytes = (uint64_t)(chunk->at - (unsigned char *)(chunk->header + 1));
    atomic_store_explicit(&chunk->header->used, (uint64_t)chunk->events << 32 | bytes, memory_order_release);
}
/* Adds an event; the caller has seen that there is room for BERTH__TRACE_EVENT_MOST. */
static inline void berth__trace_chunk_add(berth__trace_chunk *chunk, const berth_trace_event *e,
                                          uint64_t tick)
{
    chunk->at = berth__trace_encode(chunk->at, &chunk->state, e, tick);
    chunk->events++;
    berth__trace_chunk_publish(chunk);
}

#endif
