/* The inside of the allocator handle, for sources, wrappers, caches and plans.
 *
 *   our own allocators embed the handle as their first member and free both in `destroy`:
 *
 *       struct tracker { berth__wrapper base; ... };
 *                        ^ handle and self are one address
 *
 *   a user's allocator (berth_allocator_create) gets a handle of its own that points to the user's self.
 *
 * An allocator that must outlive its last reference (live blocks) simply does not free itself in `destroy`,
 * and does it when the last block comes back. */
#ifndef BERTH_CORE_ALLOCATOR_H
#define BERTH_CORE_ALLOCATOR_H

#include <stdatomic.h>

#include "base/base.h"
#include "base/thread.h"
#include "berth/allocator.h"
#include "berth/replay.h"

/* A block may have a berth__header in front, with the size that was asked for; see core/header.h. */
typedef enum berth__header_use {
    BERTH__HEADER_NONE = 0,
    BERTH__HEADER_PLAIN,  /* its tag is free */
    BERTH__HEADER_TAGGED, /* it is in use */
} berth__header_use;

struct berth_allocator {
    /* Where allocating and freeing lead: to operations of the table below, or past decorators that only hand
     * on, straight to whom they would hand on. A processor foresees only so many jumps through pointers. */
    berth_status (*allocate)(void *self, size_t size_bytes, size_t alignment, const berth_request *request,
                             void **out);
    void *allocate_self;
    berth_status (*deallocate)(void *self, void *p, size_t size_bytes, berth_stream *stream);
    void *deallocate_self;
    void *self;
    /* Larger requests, and those of 0 bytes, leave the front's straight way: BERTH__BLOCK_MOST, or 0 of an allocator whose
     * requests a replay may expect (below). One comparison, which there is anyway, tells all of these apart. */
    size_t straight_bytes;
    berth_allocator_ops ops; /* complete: no entry is NULL */
    _Atomic uint32_t references;
    bool embedded; /* `destroy` frees the handle too */
    /* What is in front of its blocks. A decorator that hands blocks through as they are says what the inner
     * allocator does. */
    berth__header_use header;
    /* What it says of sizes is about its own blocks: a pointer that it does not find is no live block. Not so
     * for a user's wrapper with blocks of its own, whose questions go to an inner allocator. */
    bool knows_blocks;
    bool metered; /* a scope meter counts what it hands out */
    /* Streams may be at work on what it hands out, and fill it with zero later: a host that writes beside a user's part,
     * a note in front of it, has it overwritten. */
    bool follows_streams;
    /* The size of a block is what was asked for, rounded up to a multiple of this. 0: only the allocator can tell. */
    size_t grain_bytes;
    /* Its bytes_in_use alone, for who asks at every run: all figures take ten times as long. NULL: ask for those. */
    uint64_t (*in_use)(void *self);
    void *in_use_self;
    void (*show_stats)(void *self, bool show); /* NULL: its figures cannot be switched this way */
    /* The word that each live block has for whoever stands around the allocator and counts, 0 while nobody wrote to it, and
     * what was asked for; NULL if no live block starts at `p`. The caller has the block. NULL: its blocks have no such word. */
    uint64_t *(*word_of)(void *self, const void *p, size_t *requested_bytes);
    void *word_self;
    berth_allocator *inner; /* whom a decorator stands around; NULL: it is none. The decorator's reference */
};

/* No block is larger. */
#define BERTH__BLOCK_MOST ((size_t)PTRDIFF_MAX - BERTH_ALIGNMENT_MAX)

/* The calling thread's scope that records, validates or replays. Never NULL: without one it is of no allocator, and expects
 * nothing. What a replay expects is handed out by the front itself, since the jump to the planned allocator and the second
 * look at the arguments would be a good part of the cost. */
extern BERTH__HIDDEN _Thread_local berth_run *berth__run_now;
extern BERTH__HIDDEN berth_run berth__no_run;

/* Fills an embedded handle with one reference. `ops` may lack optional operations, not required ones. */
void berth__allocator_init(berth_allocator *a, const berth_allocator_ops *ops, void *self);

/* Copies a user's table: what it is too short to hold comes as NULL. BERTH_INVALID_ARGUMENT with words. */
berth_status berth__ops_copy(berth_allocator_ops *to, const berth_allocator_ops *from);

/* The operations without the front's checks, for wrappers: the arguments have been checked once already. */
static inline berth_status berth__allocate(berth_allocator *a, size_t size_bytes, size_t alignment,
                                           const berth_request *request, void **out)
{
    return a->allocate(a->allocate_self, size_bytes, alignment, request, out);
}
static inline berth_status berth__deallocate(berth_allocator *a, void *p, size_t size_bytes,
                                             berth_stream *stream)
{
    return a->deallocate(a->deallocate_self, p, size_bytes, stream);
}

/* Whether a free that answered `status` has taken the block all the same: a guard tells of overwritten bytes, and a
 * strict replay of a free that came too early, of a block that is gone; and with a lost device its memory is lost [I8]. */
static inline bool berth__free_is_done(berth_status status)
{
    return BERTH_LIKELY(!status) || status == BERTH_CORRUPT || status == BERTH_MISMATCH ||
           status == BERTH_DEVICE_LOST;
}

/* Whether it may change a block's size itself: false if all that it ever answers is BERTH_UNSUPPORTED, and the front moves
 * the block. For those who would have to take back what they said in advance. */
bool berth__reallocates(const berth_allocator *a);

/* The end of a block's move to `moved`: the old one goes, and if that is refused the new one does, and the old one
 * stays its user's. */
berth_status berth__finish_move(berth_allocator *a, void *p, size_t old_bytes, void *moved, size_t new_bytes,
                                const berth_request *request, void **out);

/* The common start of our decorators. `berth__forward_ops` forwards every operation to `inner`; a decorator
 * copies the table and changes what it changes. Its `destroy` calls berth__wrapper_finish and frees itself. */
typedef struct berth__wrapper {
    berth_allocator base;
    berth_allocator *inner; /* retained */
} berth__wrapper;

extern const berth_allocator_ops berth__forward_ops;
void berth__wrapper_init(berth__wrapper *w, const berth_allocator_ops *ops, berth_allocator *inner);
void berth__wrapper_finish(berth__wrapper *w);

/* Whether `a` was made with exactly this destroy operation: how a public function recognises its own kind. */
static inline bool berth__allocator_is(const berth_allocator *a, void (*destroy)(void *self))
{
    return a && a->ops.destroy == destroy;
}

/* What the front passes on where the caller gave no request. */
extern BERTH__HIDDEN const berth_request berth__plain_request;

/* The label of a request: its own, else the thread's innermost scope; NULL if there is neither. */
const char *berth__request_label(const berth_request *request);

#endif
