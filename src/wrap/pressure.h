/* Which failures waiting or giving memory back can mend. */
#ifndef BERTH_WRAP_PRESSURE_H
#define BERTH_WRAP_PRESSURE_H

#include "berth/allocator.h"

static inline bool berth__is_want_of_memory(berth_status status)
{
    return status == BERTH_OUT_OF_HOST_MEMORY || status == BERTH_OUT_OF_DEVICE_MEMORY ||
           status == BERTH_OVER_BUDGET;
}

#endif
