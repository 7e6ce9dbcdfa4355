/* Definitions in the bytes of a chunk: what the numbers in events mean.
 *
 *     kind, then its numbers:  text     number, length, the bytes
 *                              frame    number, caller, module, address, function, file, line, inlined
 *                              module   number, process, path, build id, base, start, end
 *                              device   number, name, kind, ordinal
 *                              process  number, pid, parent, command
 *     kind, the length of what follows, then
 *                              thread   process, thread, name
 *                              picture  process, thread, chunk, which refusal in it, waiting, free, largest, unused
 *
 * Kinds from BERTH__TRACE_SIZED on tell their length, so that a reader passes over those that it does not know.
 * A definition stands in the file before any event that uses it. A second one of the same number takes the place of the
 * first. */
#ifndef BERTH_TRACE_DEFINITIONS_H
#define BERTH_TRACE_DEFINITIONS_H

#include "trace/live.h"

enum {
    BERTH__TRACE_TEXT = 1,
    BERTH__TRACE_FRAME = 2,
    BERTH__TRACE_MODULE = 3,
    BERTH__TRACE_DEVICE = 4,
    BERTH__TRACE_PROCESS = 5,
    BERTH__TRACE_THREAD = 6,
    BERTH__TRACE_PICTURE = 7,
    BERTH__TRACE_SIZED = 6,
    BERTH__TRACE_NUMBERS_MOST = 8,
    BERTH__TRACE_DEFINITION_MOST =
        1 + BERTH__TRACE_NUMBERS_MOST * BERTH__TRACE_VARINT_MOST + BERTH__TRACE_TEXT_MOST,
};

/* How many numbers stand behind the kind; 0 for a kind that is none. */
static inline unsigned berth__trace_numbers(unsigned kind)
{
    static const unsigned char numbers[] = {0, 2, 8, 7, 4, 4, 3, 8};
    return kind < sizeof numbers ? numbers[kind] : 0;
}

/* Writes one to `to`, with room for BERTH__TRACE_DEFINITION_MOST. `text` is a text's, of values[1] bytes. Returns the
 * end. */
static inline unsigned char *berth__trace_define(unsigned char *to, unsigned kind, const uint64_t *values,
                                                 const char *text)
{
    *to++ = (unsigned char)kind;
    if (kind >= BERTH__TRACE_SIZED) {
        unsigned char scratch[BERTH__TRACE_VARINT_MOST];
        size_t length = 0;
        for (unsigned i = 0; i < berth__trace_numbers(kind); i++)
            length += (size_t)(berth__trace_put(scratch, values[i]) - scratch);
        to = berth__trace_put(to, length);
    }
    for (unsigned i = 0; i < berth__trace_numbers(kind); i++)
        to = berth__trace_put(to, values[i]);
    if (kind == BERTH__TRACE_TEXT) {
        memcpy(to, text, values[1]);
        to += values[1];
    }
    return to;
}

/* Takes the next from [from, end); *text points into it. NULL where the bytes are not of the form. A kind that is not known
 * and tells its length is passed over: it has no numbers. */
static inline const unsigned char *berth__trace_take_definition(const unsigned char *from,
                                                                const unsigned char *end, unsigned *kind,
                                                                uint64_t *values, const char **text)
{
    *kind = *from++;
    unsigned count = berth__trace_numbers(*kind);
    bool sized = *kind >= BERTH__TRACE_SIZED;
    if (sized) {
        uint64_t length;
        from = berth__trace_take(from, end, &length);
        if (!from || length > (uint64_t)(end - from))
            return NULL;
        end = from + length;
    }
    for (unsigned i = 0; from && i < count; i++)
        from = berth__trace_take(from, end, &values[i]);
    if (!from || (!count && !sized))
        return NULL;
    if (sized)
        return end; /* a later version may say more of a kind that we know */
    if (*kind == BERTH__TRACE_TEXT) {
        if (values[1] > BERTH__TRACE_TEXT_MOST || values[1] > (uint64_t)(end - from))
            return NULL;
        *text = (const char *)from;
        from += values[1];
    }
    return from;
}

#endif
