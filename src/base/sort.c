/* A stable radix sort of packed keys and a stable merge sort of indices. */
#include "base/sort.h"

#include <stdbool.h>
#include <string.h>

/* Few keys are sorted by small digits: clearing and adding up the table would cost more than the keys. */
enum { DIGIT_BITS = 11, SMALL_DIGIT_BITS = 8, FEW = 2048, DIGITS = 1 << DIGIT_BITS, INSERTION_LIMIT = 16 };

/* One counting pass. */
static void digit_pass(const uint64_t *from, uint64_t *to, size_t count, unsigned shift, unsigned bits)
{
    size_t places[DIGITS];
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    memset(places, 0, (mask + 1) * sizeof *places);
    for (size_t i = 0; i < count; i++)
        places[(from[i] >> shift) & mask]++;
    size_t sum = 0;
    for (size_t digit = 0; digit <= mask; digit++) {
        size_t here = places[digit];
        places[digit] = sum;
        sum += here;
    }
    for (size_t i = 0; i < count; i++)
        to[places[(from[i] >> shift) & mask]++] = from[i];
}

/* The bits of the field in which keys differ; 0 where the keys are in order already, as times of a file mostly are. */
static uint64_t differing_bits(const uint64_t *keys, size_t count, uint64_t field)
{
    uint64_t differing = 0;
    bool in_order = true;
    for (size_t i = 1; i < count; i++) {
        differing |= keys[i] ^ keys[i - 1];
        in_order &= (keys[i] & field) >= (keys[i - 1] & field);
    }
    return in_order ? 0 : differing & field;
}

static void insertion_keys(uint64_t *keys, size_t count, unsigned low_bit, unsigned high_bit)
{
    const uint64_t mask = high_bit - low_bit >= 64 ? UINT64_MAX : (((uint64_t)1 << (high_bit - low_bit)) - 1);
    for (size_t i = 1; i < count; i++) {
        uint64_t key = keys[i], field = (key >> low_bit) & mask;
        size_t j = i;
        for (; j > 0 && ((keys[j - 1] >> low_bit) & mask) > field; j--)
            keys[j] = keys[j - 1];
        keys[j] = key;
    }
}

void berth__sort_keys(uint64_t *keys, uint64_t *scratch, size_t count, unsigned low_bit, unsigned high_bit)
{
    if (count < 2 || low_bit >= high_bit)
        return;
    if (count <= 2 * INSERTION_LIMIT) {
        insertion_keys(keys, count, low_bit, high_bit);
        return;
    }
    const uint64_t field =
        (high_bit < 64 ? ((uint64_t)1 << high_bit) - 1 : UINT64_MAX) & ~(((uint64_t)1 << low_bit) - 1);
    const uint64_t differing = differing_bits(keys, count, field);
    if (!differing)
        return;
    uint64_t *from = keys, *to = scratch;
    const unsigned digit_bits = count < FEW ? SMALL_DIGIT_BITS : DIGIT_BITS;
    const unsigned last = berth__bits_of(differing);
    for (unsigned shift = (unsigned)__builtin_ctzll(differing); shift < last; shift += digit_bits) {
        const unsigned bits = last - shift < digit_bits ? last - shift : digit_bits;
        if (!(differing >> shift & (((uint64_t)1 << bits) - 1)))
            continue; /* a digit that is the same in all keys moves nothing */
        digit_pass(from, to, count, shift, bits);
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != keys)
        memcpy(keys, from, count * sizeof *keys);
}

static void insertion_indices(uint32_t *indices, size_t count, berth__sort_order order, const void *context)
{
    for (size_t i = 1; i < count; i++) {
        uint32_t index = indices[i];
        size_t j = i;
        for (; j > 0 && order(context, indices[j - 1], index) > 0; j--)
            indices[j] = indices[j - 1];
        indices[j] = index;
    }
}

void berth__sort_indices(uint32_t *indices, uint32_t *scratch, size_t count, berth__sort_order order,
                         const void *context)
{
    size_t sorted = 1;
    while (sorted < count && order(context, indices[sorted - 1], indices[sorted]) <= 0)
        sorted++;
    if (sorted >= count)
        return;
    if (count <= INSERTION_LIMIT) {
        insertion_indices(indices, count, order, context);
        return;
    }
    size_t half = count / 2;
    berth__sort_indices(indices, scratch, half, order, context);
    berth__sort_indices(indices + half, scratch, count - half, order, context);
    memcpy(scratch, indices, half * sizeof *indices);
    size_t left = 0, right = half, to = 0;
    while (left < half && right < count)
        indices[to++] =
            order(context, scratch[left], indices[right]) <= 0 ? scratch[left++] : indices[right++];
    while (left < half)
        indices[to++] = scratch[left++];
}
