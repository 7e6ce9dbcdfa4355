/* Size classes with a bound on waste: so many evenly spaced sizes in every doubling.
 *
 *   8 a doubling, granule 64:  64 128 192 ... 512 | 576 640 ... 1024 | 1152 1280 ... 2048 | ...
 *                              steps of 64          steps of 64        steps of 128
 *
 * A request is rounded up by less than one step, and a step is at most 1/8 of the size below it: the waste is
 * below 12.5 % of the request. Below 512 bytes the step is a cache line. */
#ifndef BERTH_HOST_SIZE_CLASS_H
#define BERTH_HOST_SIZE_CLASS_H

#include "base/base.h"

enum {
    berth__class_granule_log2 = 6,
    berth__class_size_log2_max = 46, /* larger requests are refused */
};

typedef struct berth__size_classes {
    uint32_t per_doubling_log2; /* 0 to 6 */
    uint32_t count;
} berth__size_classes;

/* The classes for a waste of at most `max_waste` of the request; false if that is not in [1/64, 1]. */
bool berth__size_classes_init(berth__size_classes *classes, double max_waste);

#define BERTH__CLASS_BYTES_MAX ((size_t)1 << berth__class_size_log2_max)

/* The class of a size from 1 to BERTH__CLASS_BYTES_MAX. */
static inline uint32_t berth__class_of(const berth__size_classes *classes, size_t size_bytes)
{
    BERTH_DCHECK(size_bytes != 0 && size_bytes <= BERTH__CLASS_BYTES_MAX, "[H5] the size has a class");
    size_t last = size_bytes - 1;
    uint32_t n = classes->per_doubling_log2;
    size_t linear = last >> berth__class_granule_log2;
    if (linear < ((size_t)2 << n)) /* the first two doublings have steps of one granule */
        return (uint32_t)linear;
    uint32_t top = 63u - (uint32_t)__builtin_clzll(last);
    uint32_t step_log2 = top - n;
    return ((step_log2 - berth__class_granule_log2) << n) + (uint32_t)(last >> step_log2);
}

/* The step between a class and the one below it, a power of two. */
static inline size_t berth__class_step(const berth__size_classes *classes, uint32_t index)
{
    uint32_t doubling = index >> classes->per_doubling_log2;
    return (size_t)1 << (berth__class_granule_log2 + (doubling ? doubling - 1 : 0));
}

/* The block size of a class. */
static inline size_t berth__class_bytes(const berth__size_classes *classes, uint32_t index)
{
    BERTH_DCHECK(index < classes->count, "[H5] there is such a class");
    uint32_t n = classes->per_doubling_log2;
    uint32_t doubling = index >> n;
    if (doubling < 2)
        return ((size_t)index + 1) << berth__class_granule_log2;
    size_t steps = ((size_t)index & (((size_t)1 << n) - 1)) + ((size_t)1 << n) + 1;
    return steps << (berth__class_granule_log2 + doubling - 1);
}

#endif
