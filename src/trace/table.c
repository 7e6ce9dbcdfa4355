/* Keys of any bytes and the number that each has been given. */
#include "trace/table.h"

#include <string.h>

#include "trace/format.h"

enum { ARENA_BYTES = 65536 - 64 };

/* Keys are never given back one by one, so they lie one behind the other. */
struct berth__trace_arena {
    struct berth__trace_arena *next;
    size_t used, room;
    unsigned char bytes[];
};

static const void *arena_copy(berth__trace_table *table, const void *key, size_t length)
{
    struct berth__trace_arena *a = table->arena;
    if (!a || a->room - a->used < length) {
        size_t room = length > ARENA_BYTES ? length : ARENA_BYTES;
        a = berth__heap_alloc(sizeof *a + room);
        if (!a)
            return NULL;
        a->next = table->arena;
        a->used = 0;
        a->room = room;
        table->arena = a;
    }
    unsigned char *copy = a->bytes + a->used;
    memcpy(copy, key, length);
    a->used += length;
    return copy;
}

/* Where `key` is or would go; the table is never full. */
static struct berth__trace_entry *table_place(const berth__trace_table *table, uint64_t hash, const void *key,
                                              size_t length)
{
    for (uint32_t i = (uint32_t)hash & table->mask;; i = (i + 1) & table->mask) {
        struct berth__trace_entry *e = &table->entries[i];
        if (!e->key || (e->hash == hash && e->length == length && memcmp(e->key, key, length) == 0))
            return e;
    }
}

static bool table_grow(berth__trace_table *table)
{
    uint32_t size = table->entries ? (table->mask + 1) * 2 : 256;
    struct berth__trace_entry *old = table->entries;
    uint32_t old_size = old ? table->mask + 1 : 0;
    struct berth__trace_entry *entries = berth__heap_zalloc(size, sizeof *entries);
    if (!entries)
        return false;
    table->entries = entries;
    table->mask = size - 1;
    for (uint32_t i = 0; i < old_size; i++)
        if (old[i].key)
            *table_place(table, old[i].hash, old[i].key, old[i].length) = old[i];
    berth__heap_free(old);
    return true;
}

uint32_t berth__trace_table_find(const berth__trace_table *table, const void *key, size_t length)
{
    if (!table->entries)
        return 0;
    return table_place(table, berth__trace_checksum(key, length), key, length)->number;
}

bool berth__trace_table_add(berth__trace_table *table, const void *key, size_t length, uint32_t number)
{
    if ((!table->entries || table->count > table->mask / 2) && !table_grow(table))
        return false;
    const void *copy = arena_copy(table, key, length);
    if (!copy)
        return false;
    uint64_t hash = berth__trace_checksum(key, length);
    *table_place(table, hash, key, length) =
        (struct berth__trace_entry){hash, copy, (uint32_t)length, number};
    table->count++;
    return true;
}

void berth__trace_table_finish(berth__trace_table *table)
{
    while (table->arena) {
        struct berth__trace_arena *next = table->arena->next;
        berth__heap_free(table->arena);
        table->arena = next;
    }
    berth__heap_free(table->entries);
    *table = (berth__trace_table){0};
}
