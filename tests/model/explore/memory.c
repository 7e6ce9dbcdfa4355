/* The memory of C11 as a machine that one can step: every variable has its stores in order, every thread a view of
 * which ones it must have seen, and a store carries the view that its reader gains by acquiring (the operational
 * reading of C11 without promises: Kang, Hur, Lahav, Vafeiadis and Dreyer, A Promising Semantics, POPL 2017,
 * section 3). Clocks in the same views find plain accesses that nothing orders. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

enum { SHARED_MAX = 192, STORES_MAX = 1 << 13, PLACES_LOG2 = 15, PLACES = 1 << PLACES_LOG2 };

typedef struct view {
    uint32_t clock[EXPLORE_THREADS];
    uint16_t seen[SHARED_MAX]; /* by variable: the number of the newest store that must be seen */
} view;

typedef struct store store;
struct store {
    store *older;
    uint64_t value;
    uint16_t number;
    view carried; /* what an acquiring reader gains */
};

/* What one thread did last with eight bytes of memory: its clock then, and which bytes. */
typedef enum touch { PLAIN_READ, PLAIN_WRITE, ATOMIC_READ, ATOMIC_WRITE, TOUCHES } touch;

typedef struct place {
    uintptr_t cell; /* address / 8; 0: not used yet */
    uint32_t run;   /* what follows is of this run */
    struct {
        uint32_t clock[TOUCHES];
        uint8_t bytes[TOUCHES];
    } by[EXPLORE_THREADS];
} place;

/* An atomic variable. */
typedef struct variable {
    uintptr_t address;
    uint8_t readers, writers; /* threads, a bit each, over all runs */
    uint16_t id;              /* its place in views, from 1; 0: one thread's own so far */
    uint32_t run;
    store *newest; /* of this run */
} variable;

typedef struct lock_view {
    const void *lock;
    view carried;
} lock_view;

static struct memory {
    view threads[EXPLORE_THREADS];
    view acquirable[EXPLORE_THREADS]; /* what an acquire fence would gain */
    view released[EXPLORE_THREADS];   /* what the last release fence gave */
    view strict;                      /* stores and fences that are sequentially consistent */
    lock_view locks[64];
    int lock_count;
    uint32_t shared; /* variables with an id */
    store *stores;
    uint32_t store_count;
    place places[PLACES];
    variable variables[PLACES];
} * m;

static uint32_t hash(uintptr_t x)
{
    return (uint32_t)(((uint64_t)x * 0x9E3779B97F4A7C15u) >> (64 - PLACES_LOG2));
}

static view *mine(void)
{
    return &m->threads[explore_thread()];
}

static void join_seen(view *to, const view *from)
{
    for (uint32_t i = 1; i <= m->shared; i++)
        if (to->seen[i] < from->seen[i])
            to->seen[i] = from->seen[i];
}

static void join(view *to, const view *from)
{
    for (int t = 0; t < EXPLORE_THREADS; t++)
        if (to->clock[t] < from->clock[t])
            to->clock[t] = from->clock[t];
    join_seen(to, from);
}

static void copy(view *to, const view *from)
{
    memcpy(to, from, offsetof(view, seen) + (m->shared + 1) * sizeof from->seen[0]);
}

void memory_begin(void)
{
    if (!m) {
        m = calloc(1, sizeof *m);
        m->stores = calloc(STORES_MAX, sizeof *m->stores);
    }
    memset(m->threads, 0, sizeof m->threads);
    memset(m->acquirable, 0, sizeof m->acquirable);
    memset(m->released, 0, sizeof m->released);
    memset(&m->strict, 0, sizeof m->strict);
    m->lock_count = 0;
    m->store_count = 0;
    for (int t = 0; t < EXPLORE_THREADS; t++)
        m->threads[t].clock[t] = 1;
}

void memory_forget(void)
{
    memset(m->variables, 0, sizeof m->variables);
    m->shared = 0;
}

void memory_spawn(int thread)
{
    join(&m->threads[thread], &m->threads[0]);
    m->threads[0].clock[0]++;
}

void memory_join(int thread)
{
    join(&m->threads[0], &m->threads[thread]);
}

/* ---- Plain accesses ------------------------------------------------------------------------------------------- */

static place *place_of(uintptr_t cell)
{
    for (uint32_t i = hash(cell);; i = (i + 1) & (PLACES - 1)) {
        place *p = &m->places[i];
        if (p->cell && p->cell != cell)
            continue;
        if (p->run != explore_run())
            *p = (place){.cell = cell, .run = explore_run()};
        return p;
    }
}

static const char *const touch_names[TOUCHES] = {"reads", "writes", "reads (atomically)",
                                                 "writes (atomically)"};

static bool conflicts(touch a, touch b)
{
    return (a == PLAIN_READ || a == PLAIN_WRITE || b == PLAIN_READ || b == PLAIN_WRITE) &&
           (a == PLAIN_WRITE || a == ATOMIC_WRITE || b == PLAIN_WRITE || b == ATOMIC_WRITE);
}

static void touch_cell(const void *pc, uintptr_t cell, uint8_t bytes, touch how)
{
    int me = explore_thread();
    place *p = place_of(cell);
    for (int other = 1; me && other < EXPLORE_THREADS; other++)
        for (touch was = 0; other != me && was < TOUCHES; was++)
            if (p->by[other].clock[was] > mine()->clock[other] && (p->by[other].bytes[was] & bytes) &&
                conflicts(was, how)) {
                explore_note(pc, "%s %p", touch_names[how], (void *)(cell * 8));
                explore_fail("a race: thread %d %s what thread %d %s, and nothing orders the two", me,
                             touch_names[how], other, touch_names[was]);
            }
    uint32_t now = mine()->clock[me];
    p->by[me].bytes[how] = (uint8_t)(p->by[me].clock[how] == now ? p->by[me].bytes[how] | bytes : bytes);
    p->by[me].clock[how] = now;
}

static void touch_bytes(const void *pc, const void *address, size_t bytes, touch how)
{
    uintptr_t at = (uintptr_t)address, end = at + bytes;
    while (at < end) {
        uintptr_t next = (at / 8 + 1) * 8, stop = next < end ? next : end;
        touch_cell(pc, at / 8, (uint8_t)(((1u << (stop - at)) - 1) << at % 8), how);
        at = stop;
    }
}

void memory_plain(const void *pc, const void *address, size_t bytes, bool write)
{
    if (explore_alone() || explore_is_local(address))
        return;
    hooks_check_live(pc, address);
    touch_bytes(pc, address, bytes, write ? PLAIN_WRITE : PLAIN_READ);
}

/* ---- Variables ------------------------------------------------------------------------------------------------ */

static uint64_t bits_at(const void *address, int bytes)
{
    uint64_t value = 0;
    memcpy(&value, address, (size_t)bytes);
    return value;
}

static store *add_store(variable *v, uint64_t value)
{
    if (m->store_count == STORES_MAX) {
        explore_fail("the run does not end: %d stores", STORES_MAX);
        m->store_count--;
    }
    store *s = &m->stores[m->store_count++];
    s->older = v->newest;
    s->number = v->newest ? (uint16_t)(v->newest->number + 1) : 0;
    s->value = value;
    v->newest = s;
    return s;
}

/* The variable at an address, which the running thread is about to use. Only those that several threads use and one
 * writes matter; when that comes to light in the middle of a run, all runs so far were blind for it. */
static variable *variable_at(const void *address, int bytes, bool write)
{
    if (!m) /* in a constructor */
        return NULL;
    uint32_t i = hash((uintptr_t)address);
    while (m->variables[i].address && m->variables[i].address != (uintptr_t)address)
        i = (i + 1) & (PLACES - 1);
    variable *v = &m->variables[i];
    v->address = (uintptr_t)address;
    if (explore_thread() != 0) {
        v->readers |= (uint8_t)(1u << explore_thread());
        v->writers |= (uint8_t)(write << explore_thread());
    }
    if (!v->id && v->writers && (v->readers & (v->readers - 1))) {
        if (m->shared + 1 >= SHARED_MAX)
            explore_fail("more than %d variables are shared", SHARED_MAX - 2);
        v->id = (uint16_t)++m->shared;
        explore_again();
    }
    if (!v->id)
        return NULL;
    if (v->run != explore_run()) {
        v->run = explore_run();
        v->newest = NULL;
        memset(&add_store(v, bits_at(address, bytes))->carried, 0, sizeof(view));
    } else if (v->newest->value != bits_at(address, bytes)) { /* memset, or another plain write */
        store *s = add_store(v, bits_at(address, bytes));
        mine()->seen[v->id] = s->number;
        copy(&s->carried, mine());
    }
    return v;
}

static bool acquires(int order)
{
    return order == memory_order_acquire || order == memory_order_consume || order == memory_order_acq_rel ||
           order == memory_order_seq_cst;
}

static bool releases(int order)
{
    return order == memory_order_release || order == memory_order_acq_rel || order == memory_order_seq_cst;
}

static const char *order_name(int order)
{
    static const char *const names[] = {"relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst"};
    return names[order];
}

static void see(const variable *v, const store *s, int order)
{
    view *now = mine();
    if (now->seen[v->id] < s->number)
        now->seen[v->id] = s->number;
    join(acquires(order) ? now : &m->acquirable[explore_thread()], &s->carried);
}

static void put(variable *v, void *address, int bytes, uint64_t value, int order, const store *continued)
{
    memcpy(address, &value, (size_t)bytes);
    int me = explore_thread();
    store *s = add_store(v, bits_at(address, bytes));
    m->threads[me].seen[v->id] = s->number;
    copy(&s->carried, releases(order) ? mine() : &m->released[me]);
    s->carried.seen[v->id] = s->number;
    if (continued) /* a release sequence goes on through a read-modify-write */
        join(&s->carried, &continued->carried);
    if (order == memory_order_seq_cst)
        m->strict.seen[v->id] = s->number;
    m->threads[me].clock[me]++;
    explore_stored();
}

uint64_t memory_load(const void *pc, void *address, int bytes, int order)
{
    hooks_check_live(pc, address);
    variable *v = variable_at(address, bytes, false);
    if (!v)
        return bits_at(address, bytes);
    explore_step();
    touch_bytes(pc, address, (size_t)bytes, ATOMIC_READ);
    uint32_t oldest = mine()->seen[v->id];
    if (order == memory_order_seq_cst && oldest < m->strict.seen[v->id])
        oldest = m->strict.seen[v->id];
    store *s = v->newest;
    for (uint32_t back = explore_choose_store(s->number - oldest + 1u); back > 0; back--)
        s = s->older;
    see(v, s, order);
    explore_note(pc, "loads %p: %llx%s (%s)", address, (unsigned long long)s->value,
                 s == v->newest ? "" : " OLD", order_name(order));
    return s->value;
}

void memory_store(const void *pc, void *address, int bytes, uint64_t value, int order)
{
    hooks_check_live(pc, address);
    variable *v = variable_at(address, bytes, true);
    if (!v) {
        memcpy(address, &value, (size_t)bytes);
        return;
    }
    explore_step();
    touch_bytes(pc, address, (size_t)bytes, ATOMIC_WRITE);
    put(v, address, bytes, value, order, NULL);
    explore_note(pc, "stores %p: %llx (%s)", address, (unsigned long long)value, order_name(order));
}

uint64_t memory_modify(const void *pc, void *address, int bytes, memory_change *change, uint64_t operand,
                       int order)
{
    hooks_check_live(pc, address);
    variable *v = variable_at(address, bytes, true);
    uint64_t old = bits_at(address, bytes), value = change(old, operand);
    if (!v) {
        memcpy(address, &value, (size_t)bytes);
        return old;
    }
    explore_step();
    touch_bytes(pc, address, (size_t)bytes, ATOMIC_WRITE);
    store *s = v->newest;
    see(v, s, order);
    value = change(s->value, operand);
    put(v, address, bytes, value, order, s);
    explore_note(pc, "changes %p: %llx to %llx (%s)", address, (unsigned long long)s->value,
                 (unsigned long long)value, order_name(order));
    return s->value;
}

bool memory_compare_exchange(const void *pc, void *address, int bytes, uint64_t *expected, uint64_t wanted,
                             int order, int order_failed)
{
    hooks_check_live(pc, address);
    variable *v = variable_at(address, bytes, true);
    if (v) {
        explore_step();
        touch_bytes(pc, address, (size_t)bytes, ATOMIC_WRITE);
    }
    uint64_t old = v ? v->newest->value : bits_at(address, bytes);
    bool same = old == *expected;
    *expected = old;
    if (v) {
        store *s = v->newest;
        see(v, s, same ? order : order_failed);
        if (same)
            put(v, address, bytes, wanted, order, s);
        explore_note(pc, "compares %p: %llx%s %llx (%s)", address, (unsigned long long)old,
                     same ? " becomes" : ", not for", (unsigned long long)wanted, order_name(order));
    } else if (same) {
        memcpy(address, &wanted, (size_t)bytes);
    }
    return same;
}

/* ---- Fences and locks ----------------------------------------------------------------------------------------- */

void memory_fence(const void *pc, int order)
{
    int me = explore_thread();
    if (acquires(order))
        join(&m->threads[me], &m->acquirable[me]);
    if (order == memory_order_seq_cst) {
        explore_step();
        join_seen(&m->threads[me], &m->strict);
        join_seen(&m->strict, &m->threads[me]);
        explore_note(pc, "fence");
    }
    if (releases(order)) {
        copy(&m->released[me], &m->threads[me]);
        m->threads[me].clock[me]++;
    }
}

void memory_barrier_everywhere(const void *pc)
{
    explore_step();
    for (int t = 0; t < EXPLORE_THREADS; t++)
        join_seen(&m->strict, &m->threads[t]);
    for (int t = 0; t < EXPLORE_THREADS; t++)
        join_seen(&m->threads[t], &m->strict);
    explore_note(pc, "membarrier");
}

void memory_barrier_of(const void *pc, int thread)
{
    explore_step();
    join_seen(&m->threads[thread], &m->strict);
    join_seen(&m->strict, &m->threads[thread]);
    explore_note(pc, "makes thread %d pass a fence", thread);
}

static view *view_of_lock(const void *lock)
{
    for (int i = 0; i < m->lock_count; i++)
        if (m->locks[i].lock == lock)
            return &m->locks[i].carried;
    if (m->lock_count == (int)(sizeof m->locks / sizeof m->locks[0]))
        abort();
    m->locks[m->lock_count].lock = lock;
    memset(&m->locks[m->lock_count].carried, 0, sizeof(view));
    return &m->locks[m->lock_count++].carried;
}

void memory_lock_taken(const void *lock)
{
    join(mine(), view_of_lock(lock));
}

void memory_lock_given(const void *lock)
{
    join(view_of_lock(lock), mine());
    mine()->clock[explore_thread()]++;
}
