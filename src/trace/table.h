/* Keys of any bytes and the number that each has been given: how a writer finds what it has defined before. */
#ifndef BERTH_TRACE_TABLE_H
#define BERTH_TRACE_TABLE_H

#include "base/base.h"

/* Open addressing. All zero is empty. */
typedef struct berth__trace_table {
    struct berth__trace_entry {
        uint64_t hash;
        const void *key; /* NULL: empty; ours */
        uint32_t length, number;
    } * entries;
    uint32_t mask; /* entries - 1 */
    uint32_t count;
    struct berth__trace_arena *arena; /* where the keys lie */
} berth__trace_table;

/* The number of `key`, or 0. */
uint32_t berth__trace_table_find(const berth__trace_table *table, const void *key, size_t length);
/* Adds it, of a key that is not there and a number that is not 0. False: no memory. */
bool berth__trace_table_add(berth__trace_table *table, const void *key, size_t length, uint32_t number);
void berth__trace_table_finish(berth__trace_table *table);

#endif
