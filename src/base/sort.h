/* The two sorts the planner uses: a stable radix sort of packed keys, and a stable merge sort of indices.
 * Both work in the caller's scratch, so nothing here can fail. */
#ifndef BERTH_BASE_SORT_H
#define BERTH_BASE_SORT_H

#include <stddef.h>
#include <stdint.h>

/* Sorts `keys` upward by their bits [low_bit, high_bit) alone; equal ones keep their order, so that several
 * calls sort by several fields, the least important first. `scratch` has as many places. Sorted input costs one look. */
void berth__sort_keys(uint64_t *keys, uint64_t *scratch, size_t count, unsigned low_bit, unsigned high_bit);

/* Below 0, 0, above 0 as item `a` comes before, with or after item `b`. */
typedef int (*berth__sort_order)(const void *context, uint32_t a, uint32_t b);

/* Sorts indices; equal ones keep their order. `scratch` has as many places. Sorted input costs one look. */
void berth__sort_indices(uint32_t *indices, uint32_t *scratch, size_t count, berth__sort_order order,
                         const void *context);

/* How many low bits hold `value`; 0 for 0. */
static inline unsigned berth__bits_of(uint64_t value)
{
    return value ? 64U - (unsigned)__builtin_clzll(value) : 0U;
}

#endif
