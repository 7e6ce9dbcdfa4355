/* A decorator that keeps a note with every block: how large it is and whom it is counted for.
 *
 * Where host code may touch the memory the note lies in front of the block, so that a free finds it without a
 * search and without asking the inner allocator:
 *
 *      raw (from the inner allocator)      block (what the caller gets)
 *      |<------------- room ------------->|<-------- size -------->|
 *      |              | note, 32 bytes    |
 *
 * `room` is the alignment, at least 32, and for a large block a page. The note of a block that starts at a page
 * is in a map [W5]. Elsewhere (device memory, addresses without memory) notes are in a
 * map, and also over an inner allocator that tracks sizes: it shows its blocks to others, who must see what
 * the caller has. A decorator that needs the size only asks such an allocator, and adds nothing; nor does it
 * over a source that knows its blocks' sizes in a header. Where the inner allocator's record of a block has a word
 * for others (word_of: the pool), there is no note at all. */
#ifndef BERTH_WRAP_NOTED_H
#define BERTH_WRAP_NOTED_H

#include "base/annotate.h"
#include "base/block_map.h"
#include "base/header.h"
#include "core/allocator.h"

typedef struct berth__note {
    uint64_t size_bytes; /* as requested */
    uint64_t whom;       /* a number of the decorator's */
    uint64_t spare;      /* its size is an alignment */
    uint64_t seal; /* the room, and above it a check; one word, so that it is stored and loaded at once */
} berth__note;

typedef enum berth__note_place {
    BERTH__NOTE_SIZE_KNOWN, /* by the source's header: no note */
    BERTH__NOTE_IN_FRONT,
    BERTH__NOTE_IN_MAP,
    BERTH__NOTE_ASKED, /* of the inner allocator: the size alone is known */
} berth__note_place;

typedef struct berth__noted {
    berth__wrapper base;
    berth__note_place place;
    berth__block_map map;
} berth__noted;

/* Starts from berth__forward_ops; `ops` brings allocate, deallocate and destroy, and the questions about a
 * block are answered here. False: no memory for a map; there is nothing to finish. */
bool berth__noted_init(berth__noted *w, berth_allocator_ops *ops, berth_allocator *inner, bool size_only);
/* Gives the inner allocator and the map back. Blocks that are still live lose their notes. */
void berth__noted_finish(berth__noted *w);

static inline uint64_t berth__note_seal(const void *block, uint64_t room)
{
    return ((uint64_t)(uintptr_t)block << 32 ^ (uint64_t)0x6e07e5b1 << 32) | room;
}

static inline size_t berth__note_room(const berth__note *note)
{
    return (size_t)(uint32_t)note->seal;
}

static inline berth__note *berth__note_of(const void *block)
{
    return (berth__note *)((uintptr_t)block - sizeof(berth__note));
}

/* For pointers that never were blocks the answer is a guess, and the bytes may be marked. */
BERTH__NO_ASAN static inline bool berth__has_note(const void *block)
{
    if ((uintptr_t)block % sizeof(berth__note) != 0)
        return false;
    uint64_t seal = berth__note_of(block)->seal;
    return seal == berth__note_seal(block, (uint32_t)seal);
}

/* Allocates from the inner allocator and keeps the note. */
berth_status berth__noted_allocate(berth__noted *w, size_t size_bytes, size_t alignment,
                                   const berth_request *request, uint64_t whom, void **out);
/* Frees a live block of the inner allocator and copies its note out. BERTH_BAD_FREE: it is none. What the inner
 * allocator refuses stays as it was, and can be freed later. */
berth_status berth__noted_deallocate(berth__noted *w, void *p, size_t size_bytes, berth_stream *stream,
                                     berth__note *note);

/* Whether host code may read and write what `a` hands out. */
bool berth__is_host_accessible(berth_allocator *a);

#endif
