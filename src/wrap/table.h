/* A table of live blocks by address, for wrappers: many threads, one locked instruction for each call.
 *
 * Blocks are spread over shards by the 64 KiB piece of memory they lie in, so that threads that work in
 * different arenas take different locks. A shard is an open-addressing table with linear probing; a removal
 * closes its gap by shifting back, so that no tombstones pile up. */
#ifndef BERTH_WRAP_TABLE_H
#define BERTH_WRAP_TABLE_H

#include "base/base.h"
#include "base/lock.h"

enum { BERTH__TABLE_SHARDS = 64, BERTH__TABLE_STACK_MAX = 32 };

/* A call stack, innermost first. Owned by its entry. */
typedef struct berth__stack {
    uint32_t depth;
    void *frames[];
} berth__stack;

typedef struct berth__entry {
    const void *address; /* NULL: no entry */
    uint64_t requested_bytes;
    uint64_t size_bytes; /* as counted: at least what was requested */
    uint64_t id;
    const char *label;
    berth__stack *stack; /* NULL: none */
} berth__entry;

typedef struct berth__shard {
    berth__spin lock; /* guards the shard */
    uint32_t count;
    uint32_t room; /* 0, or a power of two */
    berth__entry *entries;
    uint64_t fill_a_cache_line[5];
} berth__shard;

/* All zero is an empty table. */
typedef struct berth__table {
    berth__shard shards[BERTH__TABLE_SHARDS];
} berth__table;

/* Gives the memory back, stacks too. */
void berth__table_finish(berth__table *t);

/* Adds `entry`. One that is there for the address already is replaced and handed out in `old` (else
 * old->address is NULL). False: no memory, nothing changed. Any thread, as all below. */
bool berth__table_put(berth__table *t, const berth__entry *entry, berth__entry *old);

/* Takes the entry of `address` out; false if there is none. The stack passes to the caller. */
bool berth__table_take(berth__table *t, const void *address, berth__entry *out);

/* A copy of the entry of `address`; its stack must not be looked at. */
bool berth__table_get(berth__table *t, const void *address, berth__entry *out);

/* Whether `p` lies in a block of the table. Looks at every entry. */
bool berth__table_holds(berth__table *t, const void *p);

/* Copies of all entries with copies of their stacks, by rising id. The caller frees them with
 * berth__table_free_copy. False: no memory. */
bool berth__table_copy(berth__table *t, berth__entry **out, size_t *count);
void berth__table_free_copy(berth__entry *copy, size_t count);

#endif
