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
    /* Its bytes_in_use alone, for who asks at every run: all figures take ten times as long. NULL: ask for those. */
    uint64_t (*in_use)(void *self);
    void *in_use_self;
    void (*show_stats)(void *self, bool show); /* NULL: its figures cannot be switched this way */
};

/* Fills an embedded handle with one reference. `ops` may lack optional operations, not required ones. */
void berth__allocator_init(berth_allocator *a, const berth_allocator_ops *ops, void *self);

/* Copies a user's table: what it is too short to hold comes as NULL. BERTH_INVALID_ARGUMENT with words. */
berth_status berth__ops_copy(berth_allocator_ops *to, const berth_allocator_ops *from);

/* What a user's own code answered to an allocation: BERTH_OK without a block is BERTH_INTERNAL with words, so
 * that nobody above has to look [I7]; a failure without words of its own since `before` (berth__failures) gets some. */
berth_status berth__check_answer(const berth_allocator *a, berth_status status, uint64_t before,
                                 size_t size_bytes, void **out);

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

/* The common start of our decorators. `berth__forward_ops` forwards every operation to `inner`; a decorator
 * copies the table and changes what it changes. Its `destroy` calls berth__wrapper_finish and frees itself.
 */
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
