/* What retry, the failure callback and explain have in common: they do something only where an allocation
 * fails for want of memory. Any number of them right above each other cost what one costs, since the
 * outermost asks beneath them all, and they are asked in turn, the innermost first, only once that has
 * failed. */
#ifndef BERTH_WRAP_ON_FAILURE_H
#define BERTH_WRAP_ON_FAILURE_H

#include "core/allocator.h"

static inline bool berth__is_want_of_memory(berth_status status)
{
    return status == BERTH_OUT_OF_HOST_MEMORY || status == BERTH_OUT_OF_DEVICE_MEMORY ||
           status == BERTH_OVER_BUDGET;
}

/* What was asked, kept in memory over the call and looked at only if that fails: the fast path then has
 * nothing to bring back from where it was saved, which would be most of what such a decorator costs. */
typedef struct berth__asked {
    struct berth__on_failure *outermost;
    size_t size_bytes;
    size_t alignment;
    const berth_request *request;
    void **out;
} berth__asked;

typedef struct berth__on_failure {
    berth__wrapper base;
    berth_allocator *beneath; /* the first inner one that is no such decorator */
    /* The inner allocator answered `status`, a want of memory: what is answered instead. */
    berth_status (*answer)(struct berth__on_failure *self, const berth__asked *asked, berth_status status);
} berth__on_failure;

berth_status berth__on_failure_allocate(void *self, size_t size_bytes, size_t alignment,
                                        const berth_request *request, void **out);

/* The first allocator from `a` inwards that is no such decorator; `a` itself if it is none. */
berth_allocator *berth__on_failure_beneath(berth_allocator *a);

/* `ops` starts from berth__forward_ops and brings what is not forwarded; allocating is this file's.
 * berth__wrapper_finish undoes it. */
void berth__on_failure_init(berth__on_failure *m, berth_allocator_ops *ops, berth_allocator *inner,
                            berth_status (*answer)(berth__on_failure *self, const berth__asked *asked,
                                                   berth_status status));

#endif
