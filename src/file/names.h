/* A table from names to numbers for ids and alias groups. It holds no text: whoever asks compares. */
#ifndef BERTH_FILE_NAMES_H
#define BERTH_FILE_NAMES_H

#include "base/base.h"
#include "file/csv.h"

#define BERTH__NO_NAME UINT32_MAX

/* Open addressing; a slot holds half of the hash and the number. Small whole numbers behind the letters that the first
 * name has in front of its own ("17", "b17", "tensor_17": most ids) take a bit each instead. Zeroed is empty. */
typedef struct berth__names {
    uint64_t *slots;
    size_t slot_count, used;
    uint64_t *bits;
    size_t bit_count;
    char prefix[31]; /* what stands in front of numbers; known once it has_prefix */
    uint8_t prefix_length;
    bool has_prefix;
} berth__names;

/* Whether the name with number `value` is `field`. */
typedef bool (*berth__names_same)(void *context, uint32_t value, const berth__csv_field *field);

uint64_t berth__names_hash(const berth__csv_field *field);

/* Finds `field`, or adds it with the number `value` and sets *found to BERTH__NO_NAME.
 * BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__names_add(berth__names *names, const berth__csv_field *field, uint32_t value,
                              berth__names_same same, void *context, uint32_t *found);

/* That `field` is about to be found or added: of millions of names the table is large, and slow to come. */
void berth__names_expect(const berth__names *names, const berth__csv_field *field);

/* The number of `field`, or BERTH__NO_NAME. */
uint32_t berth__names_find(const berth__names *names, const berth__csv_field *field, berth__names_same same,
                           void *context);

/* If `field` is the prefix and a small whole number in its one usual form: notes it and answers whether it was there
 * before. *taken says whether it was such a name. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__names_add_number(berth__names *names, const berth__csv_field *field, bool *taken,
                                     bool *twice);

void berth__names_finish(berth__names *names);

#endif
