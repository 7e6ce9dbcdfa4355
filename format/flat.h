/* Flatbuffers, read where they lie: every offset is checked before it is followed, and an error names it. */
#ifndef BERTH_FORMAT_FLAT_H
#define BERTH_FORMAT_FLAT_H

#include "format/model.h"

typedef struct flat {
    const uint8_t *data;
    size_t size;
    format_error *error; /* the first failure is kept; after it everything reads as absent */
} flat;

/* A table; `at` is 0 for one that is absent. */
typedef struct flat_table {
    size_t at, vtable;
    uint16_t fields, bytes;
} flat_table;

/* A vector; count is 0 for one that is absent. */
typedef struct flat_vector {
    size_t at; /* of the first element */
    uint32_t count;
    bool present;
} flat_vector;

bool flat_failed(const flat *f);
void flat_fail(flat *f, size_t at, const char *field, const char *words);

uint64_t flat_read(const uint8_t *data, unsigned bytes); /* little endian */

flat_table flat_root(flat *f, const char *identifier);
/* Where a field of a table lies, 0 if it is absent. */
size_t flat_field(flat *f, flat_table t, unsigned id, unsigned bytes, const char *field);
uint64_t flat_number(flat *f, flat_table t, unsigned id, unsigned bytes, uint64_t absent, const char *field);
flat_table flat_child(flat *f, flat_table t, unsigned id, const char *field);
flat_vector flat_list(flat *f, flat_table t, unsigned id, unsigned element, const char *field);
format_text flat_string(flat *f, flat_table t, unsigned id, const char *field);
/* The element of a vector of tables. */
flat_table flat_item(flat *f, flat_vector v, uint32_t index, const char *field);
int32_t flat_int(const flat *f, flat_vector v, uint32_t index);

#endif
