/* The table of live blocks: shards, their owners, growing, and copies for reports. */
#include "wrap/table.h"

#include <stdlib.h>
#include <string.h>

enum { first_room = 16, FIRST_IN_A_ROW = 64, MOST_IN_A_ROW = 1 << 20 };

/* What stands for the calling thread as an owner; one without a slot is nobody's equal. */
static inline uint32_t owner_me(void)
{
    uint32_t thread = berth__thread();
    return thread < BERTH__THREADS_MAX ? thread + BERTH__SHARD_OWNED : UINT32_MAX;
}

/* With the lock held: the owner is not inside any more, and does not enter again before it has had the lock. */
static void take_away(berth__table *t, berth__shard *s, uint32_t owner)
{
    atomic_store(&s->owner, BERTH__SHARD_SHARED);
    berth__barrier_heavy();
    berth__slot_wait(berth__slot_of(t->slots, owner - BERTH__SHARD_OWNED));
    uint32_t wanted = s->wanted_in_a_row;
    s->wanted_in_a_row = wanted == 0 ? FIRST_IN_A_ROW : wanted < MOST_IN_A_ROW ? wanted * 2 : wanted;
}

/* With the lock held: the calling thread is at a shared shard, which may become its own. */
static void count_in_a_row(berth__shard *s)
{
    uint32_t me = owner_me();
    s->in_a_row = s->last == me ? s->in_a_row + 1 : 0;
    s->last = me;
    if (s->in_a_row < s->wanted_in_a_row || me == UINT32_MAX)
        return;
    s->in_a_row = 0;
    atomic_store_explicit(&s->owner, me, memory_order_relaxed);
}

static inline void shard_lock(berth__table *t, berth__shard *s)
{
    berth__spin_lock(&s->lock, BERTH__RANK_TABLE);
    uint32_t owner = atomic_load_explicit(&s->owner, memory_order_relaxed);
    if (BERTH_UNLIKELY(owner >= BERTH__SHARD_OWNED && owner != owner_me()))
        take_away(t, s, owner);
    else if (owner == BERTH__SHARD_SHARED)
        count_in_a_row(s);
}

static inline void shard_unlock(berth__shard *s)
{
    berth__spin_unlock(&s->lock, BERTH__RANK_TABLE);
}

/* The entries of a shard and, behind them, its chains, all empty; NULL without memory. */
static berth__entry *new_entries(uint32_t room)
{
    size_t each = sizeof(berth__entry) + BERTH__SHARD_CHAINS * sizeof(uint32_t);
    return room ? berth__heap_zalloc(room, each) : NULL;
}

/* With the lock held: moves everything into `fresh`, which holds `room` entries, and returns the old ones. */
static berth__entry *move_into(berth__shard *s, berth__entry *fresh, uint32_t room)
{
    berth__entry *old = s->entries;
    uint32_t old_room = s->room;
    s->entries = fresh;
    s->chains = (uint32_t *)(fresh + room);
    s->room = room;
    s->shift = 64u - (uint32_t)__builtin_ctz(room * BERTH__SHARD_CHAINS);
    s->begun = s->free = 0;
    for (uint32_t i = 0; i < old_room; i++)
        if (old[i].address) {
            berth__entry *e = berth__shard_add(s, berth__shard_probe(s, old[i].address));
            *e = old[i];
            e->next = 0;
        }
    return old;
}

/* The lock is held, and let go while memory is asked for; another thread may grow the shard meanwhile. */
static bool shard_grow(berth__table *t, berth__shard *s)
{
    while (berth__shard_is_full(s)) {
        uint32_t room = s->room ? s->room * 2 : first_room; /* 0 once it wraps */
        shard_unlock(s);
        berth__entry *fresh = new_entries(room);
        shard_lock(t, s);
        if (!fresh)
            return !berth__shard_is_full(s);
        berth__entry *unused = room > s->room ? move_into(s, fresh, room) : fresh;
        shard_unlock(s);
        berth__heap_free(unused);
        shard_lock(t, s);
    }
    return true;
}

bool berth__table_put(berth__table *t, const berth__entry *entry, berth__entry *old)
{
    berth__shard *s = berth__table_shard(t, entry->address);
    shard_lock(t, s);
    if (BERTH_UNLIKELY(berth__shard_is_full(s)) && !shard_grow(t, s)) {
        shard_unlock(s);
        return false;
    }
    if (atomic_load_explicit(&s->owner, memory_order_relaxed) == BERTH__SHARD_FRESH)
        atomic_store_explicit(&s->owner, owner_me() == UINT32_MAX ? BERTH__SHARD_SHARED : owner_me(),
                              memory_order_relaxed);
    uint32_t *link = berth__shard_probe(s, entry->address);
    old->address = NULL;
    if (BERTH_UNLIKELY(*link != 0)) {
        *old = s->entries[*link - 1];
        berth__shard_remove(s, link);
        link = berth__shard_probe(s, entry->address);
    }
    berth__entry *place = berth__shard_add(s, link);
    *place = *entry;
    place->next = 0;
    shard_unlock(s);
    return true;
}

/* With the lock held: the link to the entry of `address`, NULL if there is none. */
static uint32_t *shard_find(berth__shard *s, const void *address)
{
    uint32_t *link = s->room ? berth__shard_probe(s, address) : NULL;
    return link && *link ? link : NULL;
}

bool berth__table_take(berth__table *t, const void *address, berth__entry *out)
{
    berth__shard *s = berth__table_shard(t, address);
    shard_lock(t, s);
    uint32_t *link = shard_find(s, address);
    if (link) {
        *out = s->entries[*link - 1];
        berth__shard_remove(s, link);
    }
    shard_unlock(s);
    return link != NULL;
}

/* ---- Looking ------------------------------------------------------------------------------------- */

bool berth__table_get(berth__table *t, const void *address, berth__entry *out)
{
    berth__shard *s = berth__table_shard(t, address);
    shard_lock(t, s);
    uint32_t *link = shard_find(s, address);
    if (link)
        *out = s->entries[*link - 1];
    shard_unlock(s);
    return link != NULL;
}

bool berth__table_holds(berth__table *t, const void *p)
{
    bool held = false;
    for (berth__shard *s = t->shards; s < t->shards + BERTH__TABLE_SHARDS && !held; s++) {
        shard_lock(t, s);
        for (uint32_t i = 0; i < s->room && !held; i++) {
            const void *begin = s->entries[i].address;
            uintptr_t inside = berth__distance(p, (uintptr_t)begin); /* huge in front of it */
            held = begin && (inside == 0 || inside < s->entries[i].requested_bytes);
        }
        shard_unlock(s);
    }
    return held;
}

void berth__table_finish(berth__table *t)
{
    for (berth__shard *s = t->shards; s < t->shards + BERTH__TABLE_SHARDS; s++) {
        for (uint32_t i = 0; i < s->room; i++)
            if (s->entries[i].address)
                berth__heap_free(s->entries[i].stack);
        berth__heap_free(s->entries);
    }
}

/* ---- Copies -------------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const berth__entry *)a)->id, y = ((const berth__entry *)b)->id;
    return x < y ? -1 : x > y;
}

/* A copy carries room for the deepest stack, since none can be asked for under the lock. */
static size_t stack_bytes(void)
{
    return sizeof(berth__entry_stack) + BERTH__TABLE_STACK_MAX * sizeof(void *);
}

static bool give_stacks(berth__entry *copy, size_t room)
{
    for (size_t i = 0; i < room; i++)
        if (!(copy[i].stack = berth__heap_alloc(stack_bytes())))
            return false;
    return true;
}

static void copy_entry(berth__entry *to, const berth__entry *from)
{
    berth__entry_stack *stack = to->stack;
    *to = *from;
    to->stack = stack;
    if (!stack)
        return;
    stack->depth = 0;
    if (from->stack)
        memcpy(stack, from->stack, sizeof *stack + from->stack->depth * sizeof(void *));
}

/* The number of entries, and whether any has a stack. */
static size_t table_survey(berth__table *t, bool *stacks)
{
    size_t count = 0;
    for (berth__shard *s = t->shards; s < t->shards + BERTH__TABLE_SHARDS; s++) {
        shard_lock(t, s);
        for (uint32_t i = 0; i < s->begun; i++) {
            count += s->entries[i].address != NULL;
            *stacks = *stacks || (s->entries[i].address && s->entries[i].stack);
        }
        shard_unlock(s);
    }
    return count;
}

/* False: there are more than `room` by now. */
static bool table_fill(berth__table *t, berth__entry *copy, size_t room, size_t *count)
{
    size_t n = 0;
    bool fits = true;
    for (berth__shard *s = t->shards; s < t->shards + BERTH__TABLE_SHARDS && fits; s++) {
        shard_lock(t, s);
        for (uint32_t i = 0; fits && i < s->begun; i++) {
            if (!s->entries[i].address)
                continue;
            fits = n < room;
            if (fits)
                copy_entry(&copy[n++], &s->entries[i]);
        }
        shard_unlock(s);
    }
    *count = n;
    return fits;
}

bool berth__table_copy(berth__table *t, berth__entry **out, size_t *count)
{
    for (;;) {
        bool stacks = false;
        size_t room = table_survey(t, &stacks);
        room += room / 8 + 8; /* others may be adding */
        berth__entry *copy = berth__heap_zalloc(room, sizeof *copy);
        if (!copy)
            return false;
        if (stacks && !give_stacks(copy, room)) {
            berth__table_free_copy(copy, room);
            return false;
        }
        if (table_fill(t, copy, room, count)) {
            for (size_t i = *count; i < room; i++)
                berth__heap_free(copy[i].stack);
            qsort(copy, *count, sizeof *copy, by_id);
            *out = copy;
            return true;
        }
        berth__table_free_copy(copy, room);
    }
}

void berth__table_free_copy(berth__entry *copy, size_t count)
{
    for (size_t i = 0; copy && i < count; i++)
        berth__heap_free(copy[i].stack);
    berth__heap_free(copy);
}
