/* The inside of a shared arena: the layout of its memory, and a process's handle on it.
 *
 *   file:   | head, constant | head, live | entry | entry | … | labels | … to 64 KiB | arena | end
 *           '----------------- image: checksummed but for what is live ----'
 *
 * The image is written once, before anybody else can see the file. Who attaches reads it into memory of its own, checks the
 * copy and looks at nothing but the copy afterwards: a process that writes where it should not can spoil contents and the
 * live words, and no one's bookkeeping.
 *
 * Who may do what is told by locks on three bytes of the file that belong to an open file description (F_OFD_SETLK), which
 * each handle has its own of: the kernel drops them with the last descriptor of the handle, however its process ends. Robust
 * mutexes were turned down: their list of held locks runs through the shared memory, which a peer can overwrite.
 *
 *   byte 0   write lock: the owner
 *   byte 1   write lock: the owner writes        read locks: readers hold the content
 *   byte 2   read locks: handles for writing, so that sealing the content is refused before anything has changed
 */
#ifndef BERTH_SHARED_SHARED_H
#define BERTH_SHARED_SHARED_H

#include <stdatomic.h>

#include "base/base.h"
#include "base/lock.h"
#include "berth/shared.h"
#include "plan/plan.h"

enum {
    BERTH__SHARED_VERSION = 1,
    BERTH__SHARED_LIVE = 128,            /* where the live words begin */
    BERTH__SHARED_TABLE = 256,           /* where the entries begin */
    BERTH__SHARED_PAGE = 64 << 10,       /* the arena begins at a multiple: of every page size there is */
    BERTH__SHARED_IMAGE_MAX = 256 << 20, /* more than that is not read */
};

typedef struct berth__shared_head {
    char magic[8];
    uint32_t version;
    uint32_t count;
    uint64_t image_bytes;
    uint64_t arena_offset; /* in the file */
    uint64_t arena_bytes;
    uint64_t alignment; /* of the arena's address: the strictest of all entries */
    uint64_t fingerprint;
    uint64_t checksum; /* of the image without the live words, and with 0 here */
} berth__shared_head;

/* One allocation of the plan. */
typedef struct berth__shared_entry {
    uint64_t size_bytes;
    uint64_t offset; /* in the arena; BERTH_NO_OFFSET: none */
    uint64_t alignment;
    uint32_t freed_at; /* UINT32_MAX: never */
    uint32_t label;    /* where in the labels, which end with a 0 each; UINT32_MAX: none */
    uint32_t by_label; /* the id at this rank in the order of labels, those without last */
    uint32_t unused;   /* 0 */
} berth__shared_entry;

/* Of this part every process reads, and the owner writes. */
typedef struct berth__shared_live {
    _Atomic uint64_t state; /* generation << 2 | retired << 1 | writing */
    _Atomic uint64_t owner; /* process id of the last owner, for people */
} berth__shared_live;

enum { BERTH__SHARED_WRITING = 1, BERTH__SHARED_RETIRED = 2, BERTH__SHARED_GENERATION_SHIFT = 2 };

_Static_assert(sizeof(berth__shared_head) <= BERTH__SHARED_LIVE &&
                   sizeof(berth__shared_live) <= BERTH__SHARED_TABLE - BERTH__SHARED_LIVE &&
                   sizeof(berth__shared_entry) == 40,
               "the layout is the format");

/* Life: made by create or attach; in the list of all handles until the last reference goes, so that the child of a fork can let
 * go of what is the parent's. */
struct berth_shared {
    _Atomic uint32_t references;
    berth__spin lock;
    /* Guarded by the lock. */
    int descriptor; /* of a description that no other handle or process shares; -1: lost in a fork */
    bool may_write; /* the description is open for writing */
    bool owns, writes;
    uint32_t holds;
    /* The allocator that has handed the arena out; NULL: none. Set with the lock, cleared without. */
    _Atomic(const void *) taker;
    /* Constant. */
    char *map;
    uint64_t map_bytes;
    char *image; /* the copy; berth__shared_head first */
    berth__shared_live *live;
    char *arena;
    struct berth_shared *next, *previous; /* the list's lock */
};

BERTH__INLINE const berth__shared_head *berth__shared_head_of(const berth_shared *s)
{
    return (const berth__shared_head *)(const void *)s->image;
}
BERTH__INLINE const berth__shared_entry *berth__shared_entries(const char *image)
{
    return (const berth__shared_entry *)(const void *)(image + BERTH__SHARED_TABLE);
}
/* The label of an entry; NULL: none. */
const char *berth__shared_label(const char *image, uint32_t id);

/* ---- layout.c: pure ---------------------------------------------------------------------------------- */

/* The image of a plan's arena, from berth__heap_alloc. BERTH_OK, BERTH_OVERFLOW, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__shared_image_make(const berth__plan_content *plan, char **out);
/* The bytes of the file that such a head describes; 0 if it cannot be. */
uint64_t berth__shared_file_bytes(const berth__shared_head *head);
/* Whether the first bytes of a file are the head of an arena that fits `file_bytes`. BERTH_OK, BERTH_BAD_DATA, BERTH_UNSUPPORTED. */
berth_status berth__shared_head_check(const berth__shared_head *head, uint64_t file_bytes);
/* Of an image whose head fits it. */
uint64_t berth__shared_checksum(const char *image);
/* Whether a whole image holds together, and leads nowhere outside. BERTH_OK, BERTH_BAD_DATA. */
berth_status berth__shared_image_check(const char *image);

/* ---- system.c: what only Linux has ------------------------------------------------------------------- */

/* Each answers -1 or false with errno. All descriptors are closed on exec. */
int berth__shared_memory(const char *name, uint64_t size_bytes, bool reserve);
int berth__shared_reopen(int descriptor, bool for_writing);
/* The seals of memory that can have some; -1 for everything else. */
int berth__shared_seals_of(int descriptor);
bool berth__shared_seal_add(int descriptor, berth_shared_seals seals);
/* The highest of ours among the kernel's; false: not even the size is fixed. */
bool berth__shared_seals_read(int kernel_seals, berth_shared_seals *out);
/* Whether the memory's pages come from the system's ordinary ones: others may not be there when touched. */
bool berth__shared_is_plain_memory(int descriptor);
typedef enum berth__shared_byte {
    BERTH__SHARED_OWNER = 0,
    BERTH__SHARED_CONTENT = 1,
    BERTH__SHARED_WRITERS = 2
} berth__shared_byte;
typedef enum berth__shared_lock {
    BERTH__SHARED_UNLOCK,
    BERTH__SHARED_LOCK_READ,
    BERTH__SHARED_LOCK_WRITE
} berth__shared_lock;
/* Takes, changes or drops the lock at once; false with EAGAIN or EACCES: another handle's is in the way. */
bool berth__shared_lock_set(int descriptor, berth__shared_byte byte, berth__shared_lock lock);
/* Whether another handle has a lock there that excludes `lock`. */
bool berth__shared_is_locked(int descriptor, berth__shared_byte byte, berth__shared_lock lock);
/* Sleeps while the low half of `word` is `seen`, at most so long; wakes all that sleep there, in all processes. */
void berth__shared_sleep(_Atomic uint64_t *word, uint64_t seen, uint64_t timeout_ns);
void berth__shared_wake(_Atomic uint64_t *word);

/* Puts the description of `from`, which is closed, in the place of `to`'s at once. False with errno: nothing has changed. */
bool berth__shared_replace(int from, int to);

/* A failed system call as a status: BERTH_OUT_OF_HOST_MEMORY, BERTH_UNSUPPORTED or BERTH_IO. */
berth_status berth__shared_refused(const char *what);
#ifdef __clang_analyzer__ /* as for berth__fail */
#define berth__shared_refused(what) ((void)berth__shared_refused(what), BERTH_IO)
#endif

/* ---- room.c ------------------------------------------------------------------------------------------ */

/* How many bytes the system and the control groups of this process have left; UINT64_MAX: they do not say. `root` stands before the
 * paths of files that are read: "" but in tests. */
uint64_t berth__shared_room(const char *root);

/* ---- map.c ------------------------------------------------------------------------------------------- */

/* Around everything from the first descriptor to the handle, with no lock held: a child that is forked between would keep what it does
 * not know of, locks too. */
void berth__shared_open_begin(void);
void berth__shared_open_end(void);
/* A handle on a checked image and its file; takes both over, on failure too. The map is read-only. */
berth_status berth__shared_wrap(int descriptor, bool may_write, char *image, berth_shared **out);
/* With the handle's lock: makes the map writable or read-only. False with errno. */
bool berth__shared_protect(const berth_shared *s, bool writable);
/* With the handle's lock: maps the file anew in the same place. False with errno. */
bool berth__shared_map_again(const berth_shared *s, int descriptor, bool writable);
/* Whether a handle can still do what needs its descriptor. BERTH_OK, BERTH_IO. */
berth_status berth__shared_has_descriptor(const berth_shared *s);

static inline void berth__shared_enter(berth_shared *s)
{
    berth__spin_lock(&s->lock, BERTH__RANK_SHARED);
}
static inline void berth__shared_leave(berth_shared *s)
{
    berth__spin_unlock(&s->lock, BERTH__RANK_SHARED);
}

#endif
