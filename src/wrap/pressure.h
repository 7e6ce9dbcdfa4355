/* Which failures waiting or giving memory back can mend, and what is kept of a request in case of one. */
#ifndef BERTH_WRAP_PRESSURE_H
#define BERTH_WRAP_PRESSURE_H

#include "berth/allocator.h"

static inline bool berth__is_want_of_memory(berth_status status)
{
    return status == BERTH_OUT_OF_HOST_MEMORY || status == BERTH_OUT_OF_DEVICE_MEMORY ||
           status == BERTH_OVER_BUDGET;
}

/* What was asked, kept in memory over the inner allocator's call and looked at only if that fails: the short
 * way then has nothing to bring back from where it was saved, which is most of what such a decorator costs.
 */
typedef struct berth__asked {
    void *self;
    size_t size_bytes;
    size_t alignment;
    const berth_request *request;
    void **out;
} berth__asked;

#endif
