/* One random generator for all searches, and the lengths at which they begin anew. The caller owns the state, so
 * that the same seed gives the same numbers on any machine and any thread. */
#ifndef BERTH_BASE_RANDOM_H
#define BERTH_BASE_RANDOM_H

#include <stdint.h>

/* SplitMix64 (Steele, Lea and Flood, 2014): any state will do, also 0. */
static inline uint64_t berth__random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15U);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
}

/* 1 1 2 1 1 2 4 1 1 2 1 1 2 4 8 ... from index 1 on: within a logarithm of the best schedule of restarts,
 * whatever is searched (Luby, Sinclair and Zuckerman, 1993). */
static inline uint64_t berth__luby(uint64_t index)
{
    for (;;) {
        uint64_t length = 1;
        while (length < index)
            length = 2 * length + 1;
        if (length == index)
            return (length + 1) / 2;
        index -= length / 2;
    }
}

#endif
