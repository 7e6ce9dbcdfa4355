/* A checksum of bytes for our own files: it tells damage, not malice. */
#ifndef BERTH_BASE_CHECKSUM_H
#define BERTH_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Every bit counts, eight bytes a step; never 0. */
static inline uint64_t berth__checksum(const void *bytes, size_t size_bytes)
{
    const unsigned char *at = bytes;
    uint64_t hash = UINT64_C(0x9e3779b97f4a7c15) ^ size_bytes;
    for (size_t left = size_bytes; left;) {
        uint64_t word = 0;
        size_t step = left < 8 ? left : 8;
        memcpy(&word, at, step);
        hash = (hash ^ word) * UINT64_C(0x9fb21c651e98df25);
        hash ^= hash >> 32;
        at += step;
        left -= step;
    }
    return hash ? hash : 1;
}

#endif
