/* A table of live blocks by address, for wrappers: many threads, none or one locked instruction for each
 * call.
 *
 * Blocks are spread over shards by the 64 KiB piece of memory they lie in, so that threads that work in
 * different arenas meet in different shards. A shard is an open-addressing table with linear probing; a
 * removal closes its gap by shifting back, so that no tombstones pile up.
 *
 * A shard belongs to the first thread that puts something into it. That thread uses it without the lock while
 * its slot of the meter is entered; another that comes takes the lock, takes the shard away for good, and
 * waits until the owner is out of its slot. From then on everybody takes the lock. [T4] */
#ifndef BERTH_WRAP_TABLE_H
#define BERTH_WRAP_TABLE_H

#include "base/base.h"
#include "base/lock.h"
#include "core/meter.h"

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

enum { BERTH__SHARD_FRESH = 0, BERTH__SHARD_SHARED = 1, BERTH__SHARD_OWNED = 2 };

typedef struct berth__shard {
    berth__spin lock; /* guards the shard, together with the owner's slot */
    _Atomic uint32_t
        owner; /* BERTH__SHARD_FRESH, BERTH__SHARD_SHARED, or a thread's number + BERTH__SHARD_OWNED */
    uint32_t count;
    uint32_t room; /* 0, or a power of two */
    berth__entry *entries;
    uint64_t fill_a_cache_line[5];
} berth__shard;

/* All zero but for the meter is an empty table. */
typedef struct berth__table {
    berth__meter *meter; /* whose slots say who is inside; its user's */
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

/* ---- The inside, for the owner's way without the lock ---------------------------------------------- */

BERTH__INLINE uint64_t berth__table_mix(uint64_t x)
{
    return x * 0x9e3779b97f4a7c15u;
}

BERTH__INLINE berth__shard *berth__table_shard(berth__table *t, const void *address)
{
    return &t->shards[berth__table_mix((uintptr_t)address >> 16) >> 58];
}

/* Where the search for `address` begins. */
BERTH__INLINE uint32_t berth__shard_home(const berth__shard *s, const void *address)
{
    return (uint32_t)(berth__table_mix((uintptr_t)address >> 4) >> 32) & (s->room - 1);
}

/* The entry of `address`, or the gap where it belongs. The shard has room, so there is always one. */
BERTH__INLINE berth__entry *berth__shard_probe(berth__shard *s, const void *address)
{
    uint32_t i = berth__shard_home(s, address);
    while (s->entries[i].address != address && s->entries[i].address)
        i = (i + 1) & (s->room - 1);
    return &s->entries[i];
}

BERTH__INLINE berth__entry *berth__shard_find(berth__shard *s, const void *address)
{
    if (BERTH_UNLIKELY(s->room == 0))
        return NULL;
    berth__entry *e = berth__shard_probe(s, address);
    return BERTH_LIKELY(e->address != NULL) ? e : NULL;
}

/* Three quarters is the most that linear probing likes. */
BERTH__INLINE bool berth__shard_is_full(const berth__shard *s)
{
    return (uint64_t)s->count * 4 >= (uint64_t)s->room * 3;
}

void berth__shard_close_gap(berth__shard *s, uint32_t hole);

BERTH__INLINE void berth__shard_remove(berth__shard *s, berth__entry *e)
{
    uint32_t hole = (uint32_t)(e - s->entries);
    s->count--;
    if (BERTH_LIKELY(s->entries[(hole + 1) & (s->room - 1)].address == NULL))
        e->address = NULL;
    else
        berth__shard_close_gap(s, hole);
}

/* Enters `slot`, the thread's own, if the shard belongs to the thread. */
BERTH__INLINE bool berth__shard_enter(berth__table *t, berth__shard *s, uint32_t thread,
                                      berth__meter_slot *slot)
{
    if (BERTH_UNLIKELY(!berth__meter_enter(t->meter, slot)))
        return false;
    /* Looked at once inside: whoever takes the shard away waits for us from here on. */
    if (BERTH_LIKELY(atomic_load_explicit(&s->owner, memory_order_relaxed) == thread + BERTH__SHARD_OWNED))
        return true;
    berth__meter_leave(slot);
    return false;
}

/* Puts an entry without a stack and counts it in the meter, if the shard is the thread's own. False: use
 * berth__table_put and the meter. The entry is written in parts and read in parts, for a whole that was just
 * written in parts would have to wait until they have reached the cache. */
BERTH__INLINE bool berth__table_put_alone(berth__table *t, uint32_t thread, berth__meter_slot *slot,
                                          const void *address, uint64_t requested_bytes, uint64_t size_bytes,
                                          uint64_t id, const char *label)
{
    berth__shard *s = berth__table_shard(t, address);
    if (BERTH_UNLIKELY(!berth__shard_enter(t, s, thread, slot)))
        return false;
    int64_t credit = BERTH__METER_LOAD(slot->credit) - (int64_t)size_bytes;
    berth__entry *place =
        BERTH_LIKELY(credit >= 0 && !berth__shard_is_full(s)) ? berth__shard_probe(s, address) : NULL;
    if (BERTH_UNLIKELY(!place || place->address != NULL)) {
        berth__meter_leave(slot);
        return false;
    }
    place->address = address;
    place->requested_bytes = requested_bytes;
    place->size_bytes = size_bytes;
    place->id = id;
    place->label = label;
    place->stack = NULL;
    s->count++;
    BERTH__METER_STORE(slot->credit, credit);
    berth__meter_count(slot, size_bytes);
    berth__meter_leave(slot);
    return true;
}

#define BERTH__ENTRY_WORD(to, from, field) ((to)->field = __atomic_load_n(&(from)->field, __ATOMIC_RELAXED))

/* Takes an entry out, if the shard is the thread's own. False: use berth__table_take. */
BERTH__INLINE bool berth__table_take_alone(berth__table *t, uint32_t thread, berth__meter_slot *slot,
                                           const void *address, berth__entry *out)
{
    berth__shard *s = berth__table_shard(t, address);
    if (BERTH_UNLIKELY(!berth__shard_enter(t, s, thread, slot)))
        return false;
    berth__entry *e = berth__shard_find(s, address);
    if (BERTH_LIKELY(e != NULL)) {
        BERTH__ENTRY_WORD(out, e, address);
        BERTH__ENTRY_WORD(out, e, requested_bytes);
        BERTH__ENTRY_WORD(out, e, size_bytes);
        BERTH__ENTRY_WORD(out, e, id);
        BERTH__ENTRY_WORD(out, e, label);
        BERTH__ENTRY_WORD(out, e, stack);
        berth__shard_remove(s, e);
    }
    berth__meter_leave(slot);
    return e != NULL;
}

#endif
