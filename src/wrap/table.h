/* A table of live blocks by address, for wrappers: many threads, none or one locked instruction for each
 * call.
 *
 * Blocks are spread over shards by the 64 KiB piece of memory they lie in, so that threads that work in
 * different arenas meet in different shards. A shard is an array of entries in chains: the place of an entry
 * that was taken out is the next to be filled, so that steady work stays in a few warm lines, and there is
 * nothing to shift and there are no tombstones. (Open addressing was tried first: at half load its probes and
 * shifts are long enough to be mispredicted, which cost more than the second array.)
 *
 * A shard belongs to the first thread that puts something into it. That thread uses it without the lock while
 * its slot of the meter is entered; another that comes takes the lock, takes the shard away, and waits until the
 * owner is out of its slot. From then on everybody takes the lock [T4], until one thread has come so many times
 * in a row that the shard is its own again. How many doubles each time the shard is taken away, since that
 * interrupts the other processors: threads that do share a shard soon stay with the lock.
 *
 * An address is the same with and without a tag in its top bits (berth__untag). */
#ifndef BERTH_WRAP_TABLE_H
#define BERTH_WRAP_TABLE_H

#include "base/base.h"
#include "base/lock.h"
#include "count/meter.h"

enum { BERTH__TABLE_SHARDS = 64, BERTH__TABLE_STACK_MAX = 32, BERTH__SHARD_CHAINS = 4 /* for each entry */ };

/* A call stack, innermost first. Owned by its entry. */
typedef struct berth__entry_stack {
    uint32_t depth;
    void *frames[];
} berth__entry_stack;

typedef struct berth__entry {
    const void *address; /* NULL: no entry */
    uint64_t requested_bytes;
    uint64_t size_bytes; /* as counted: at least what was requested */
    uint64_t id;
    const char *label;
    berth__entry_stack *stack; /* NULL: none */
    uint32_t next;             /* in its chain, or among the free ones: index + 1, 0 at the end */
} berth__entry;

enum { BERTH__SHARD_FRESH = 0, BERTH__SHARD_SHARED = 1, BERTH__SHARD_OWNED = 2 };

typedef struct berth__shard {
    berth__spin lock; /* guards the shard, together with the owner's slot */
    _Atomic uint32_t
        owner;      /* BERTH__SHARD_FRESH, BERTH__SHARD_SHARED, or a thread's number + BERTH__SHARD_OWNED */
    uint32_t room;  /* entries there are; 0, or a power of two */
    uint32_t begun; /* entries that were ever filled: those behind are not in the free list */
    uint32_t free;  /* the free list: index + 1 */
    uint32_t shift; /* 64 - log2(number of chains) */
    berth__entry *entries;
    uint32_t *chains; /* behind the entries: index + 1 of each chain's first, 0: empty */
    /* While shared: who came last, how often in a row since, and how often would make the shard its own. */
    uint32_t last, in_a_row, wanted_in_a_row;
    uint32_t fill_a_cache_line[3];
} berth__shard;

_Static_assert(sizeof(berth__shard) == 64, "threads in two shards do not write to one cache line");

/* All zero but for the meter is an empty table. */
typedef struct berth__table {
    berth__slots *slots; /* say who is inside; its user's */
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

/* One address, whatever tags the pointers carry. */
BERTH__INLINE bool berth__table_same(const void *a, const void *b)
{
    return berth__untag((uintptr_t)a) == berth__untag((uintptr_t)b);
}

BERTH__INLINE berth__shard *berth__table_shard(berth__table *t, const void *address)
{
    return &t->shards[berth__table_mix(berth__untag((uintptr_t)address) >> 16) >> 58];
}

/* The chain that `address` belongs to: the top bits of the product, which spread addresses at equal
 * distances, as an arena hands them out, more evenly than chance would (Knuth 6.4, Fibonacci hashing). */
BERTH__INLINE uint32_t *berth__shard_chain(berth__shard *s, const void *address)
{
    return &s->chains[berth__table_mix(berth__untag((uintptr_t)address) >> 4) >> s->shift];
}

/* The link to the entry of `address`, which is 0 if there is none. The shard has room. */
BERTH__INLINE uint32_t *berth__shard_probe(berth__shard *s, const void *address)
{
    uint32_t *link = berth__shard_chain(s, address);
    while (*link && !berth__table_same(s->entries[*link - 1].address, address))
        link = &s->entries[*link - 1].next;
    return link;
}

BERTH__INLINE bool berth__shard_is_full(const berth__shard *s)
{
    return s->free == 0 && s->begun == s->room;
}

/* A place for an entry at the end of the chain that `link` ends. The shard is not full. */
BERTH__INLINE berth__entry *berth__shard_add(berth__shard *s, uint32_t *link)
{
    uint32_t index = s->free;
    berth__entry *e = &s->entries[(index ? index : s->begun + 1) - 1];
    if (BERTH_LIKELY(index != 0))
        s->free = e->next;
    else
        index = ++s->begun;
    e->next = 0;
    *link = index;
    return e;
}

/* Takes the entry that `link` leads to out. */
BERTH__INLINE void berth__shard_remove(berth__shard *s, uint32_t *link)
{
    uint32_t index = *link;
    berth__entry *e = &s->entries[index - 1];
    *link = e->next;
    e->address = NULL;
    e->next = s->free;
    s->free = index;
}

/* Enters `slot`, the thread's own and a quick one, if the shard belongs to the thread. */
BERTH__INLINE bool berth__shard_enter(berth__table *t, berth__shard *s, berth__slot *slot)
{
    if (BERTH_UNLIKELY(!berth__slot_enter_fast(t->slots, slot)))
        return false;
    /* Looked at once inside: whoever takes the shard away waits for us from here on. */
    uint32_t me = berth__thread_plus_one - 1 + BERTH__SHARD_OWNED;
    if (BERTH_LIKELY(atomic_load_explicit(&s->owner, memory_order_relaxed) == me))
        return true;
    berth__slot_leave(slot);
    return false;
}

/* Puts an entry without a stack and counts it in the meter, if the shard is the thread's own; `slot` is what
 * berth__slot_fast answered. False: use berth__table_put and the meter. The entry is written in parts
 * and read in parts, for a whole that was just written in parts would have to wait until they have reached
 * the cache. */
BERTH__INLINE bool berth__table_put_alone(berth__table *t, berth__slot *slot, const void *address,
                                          uint64_t requested_bytes, uint64_t size_bytes, uint64_t id,
                                          const char *label)
{
    berth__shard *s = berth__table_shard(t, address);
    if (BERTH_UNLIKELY(!berth__shard_enter(t, s, slot)))
        return false;
    int64_t credit = BERTH__SLOT_LOAD(slot->credit) - (int64_t)size_bytes;
    if (BERTH_UNLIKELY(credit < 0 || berth__shard_is_full(s)))
        goto leave;
    uint32_t *link = berth__shard_probe(s, address);
    if (BERTH_UNLIKELY(*link != 0))
        goto leave;
    berth__entry *place = berth__shard_add(s, link);
    place->address = address;
    place->requested_bytes = requested_bytes;
    place->size_bytes = size_bytes;
    place->id = id;
    place->label = label;
    place->stack = NULL;
    BERTH__SLOT_STORE(slot->credit, credit);
    berth__slot_hold(slot, 1);
    berth__slot_count(slot, size_bytes);
    berth__slot_leave(slot);
    return true;
leave:
    berth__slot_leave(slot);
    return false;
}

#define BERTH__ENTRY_WORD(to, from, field) ((to)->field = __atomic_load_n(&(from)->field, __ATOMIC_RELAXED))

/* Takes an entry out, all but its address, if the shard is the thread's own. False: use berth__table_take. */
BERTH__INLINE bool berth__table_take_alone(berth__table *t, berth__slot *slot, const void *address,
                                           berth__entry *out)
{
    berth__shard *s = berth__table_shard(t, address);
    if (BERTH_UNLIKELY(!berth__shard_enter(t, s, slot)))
        return false;
    if (BERTH_UNLIKELY(s->room == 0))
        goto leave;
    berth__entry *e = NULL, *entries = s->entries;
    uint32_t *link = berth__shard_chain(s, address), index;
    for (;; link = &e->next) {
        index = *link;
        if (BERTH_UNLIKELY(index == 0))
            goto leave;
        e = &entries[index - 1];
        if (BERTH_LIKELY(berth__table_same(e->address, address)))
            break;
    }
    BERTH__ENTRY_WORD(out, e, requested_bytes);
    BERTH__ENTRY_WORD(out, e, size_bytes);
    BERTH__ENTRY_WORD(out, e, id);
    BERTH__ENTRY_WORD(out, e, label);
    BERTH__ENTRY_WORD(out, e, stack);
    *link = e->next;
    e->address = NULL;
    e->next = s->free;
    s->free = index;
    berth__slot_leave(slot);
    return true;
leave:
    berth__slot_leave(slot);
    return false;
}

#endif
