/* The gate that all spin locks pass, and the order in which things come to rest before a fork. */
#include "base/fork.h"

#include <pthread.h>
#include <sched.h>

#include "base/lock.h"
#include "base/park.h"

berth__fork_slot berth__fork_slots[BERTH__THREADS_MAX];
_Atomic uint32_t berth__fork_closed;

static pthread_mutex_t forking = PTHREAD_MUTEX_INITIALIZER; /* held by a thread that forks; and the watches */
static berth__fork_watch *watches;                          /* guard: forking. By rising rank */
static _Thread_local bool is_forking;

/* Threads without a number count here, whatever they hold. */
static _Atomic uint32_t numberless;
static _Thread_local uint32_t held_numberless;

/* ---- The gate ------------------------------------------------------------------------------------ */

static void wait_until_open(uint32_t rank)
{
    uint32_t closed;
    while ((closed = atomic_load_explicit(&berth__fork_closed, memory_order_acquire)) >= rank)
        berth__park(&berth__fork_closed, closed, BERTH__PARK_FOR_EVER);
}

/* A thread that forks itself passes: it takes what the watches take. */
static bool must_wait(uint32_t rank)
{
    return !is_forking && atomic_load_explicit(&berth__fork_closed, memory_order_acquire) >= rank;
}

static void enter_numbered(_Atomic uint32_t *slot, uint32_t rank)
{
    for (;;) {
        uint32_t held = atomic_load_explicit(slot, memory_order_relaxed) & ~(1u << rank);
        atomic_store_explicit(slot, held | 1u << rank, memory_order_relaxed);
        atomic_thread_fence(memory_order_seq_cst);
        if (held || held_numberless || !must_wait(rank))
            return;
        atomic_store_explicit(slot, 0, memory_order_release);
        wait_until_open(rank);
    }
}

static void enter_numberless(uint32_t rank)
{
    for (;;) {
        atomic_fetch_add(&numberless, 1);
        if (held_numberless || !must_wait(rank))
            break;
        atomic_fetch_sub(&numberless, 1);
        wait_until_open(rank);
    }
    held_numberless++;
}

void berth__fork_enter_slow(uint32_t rank)
{
    uint32_t number = berth__thread(); /* a thread gets its number here at the latest */
    if (number < BERTH__THREADS_MAX)
        enter_numbered(&berth__fork_slots[number].held, rank);
    else
        enter_numberless(rank);
}

void berth__fork_leave_slow(uint32_t rank)
{
    (void)rank;
    held_numberless--;
    atomic_fetch_sub(&numberless, 1);
}

void berth__fork_step_aside(uint32_t rank)
{
    uint32_t number = berth__thread_plus_one - 1;
    if (number >= BERTH__THREADS_MAX || !must_wait(rank))
        return;
    _Atomic uint32_t *slot = &berth__fork_slots[number].held;
    if (atomic_load_explicit(slot, memory_order_relaxed) == 1u << rank)
        enter_numbered(slot, rank);
}

/* ---- Around a fork ------------------------------------------------------------------------------- */

static void wait_while(_Atomic uint32_t *word, uint32_t mask)
{
    for (unsigned turn = 1; atomic_load_explicit(word, memory_order_acquire) & mask; turn++) {
        if (turn % 64 == 0)
            sched_yield();
        else
            berth__pause();
    }
}

/* On return no other thread holds anything up to `rank`, nor takes it. */
static void close_to(uint32_t rank)
{
    if (atomic_load(&berth__fork_closed) >= rank)
        return;
    atomic_store(&berth__fork_closed, rank);
    berth__barrier_heavy();
    uint32_t mine = berth__thread_plus_one - 1, end = berth__thread_numbers_end();
    for (uint32_t i = 0; i < end; i++)
        if (i != mine)
            wait_while(&berth__fork_slots[i].held, (2u << rank) - 1);
    if (held_numberless == 0)
        wait_while(&numberless, UINT32_MAX);
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&forking);
    is_forking = true;
    for (const berth__fork_watch *watch = watches; watch; watch = watch->next) {
        close_to(watch->rank);
        if (watch->prepare)
            watch->prepare();
    }
    close_to(BERTH__RANK_END);
}

static void run_backwards(const berth__fork_watch *watch, bool child)
{
    if (!watch)
        return;
    run_backwards(watch->next, child);
    void (*after)(void) = child ? watch->child : watch->parent;
    if (after)
        after();
}

static void open_again(bool child)
{
    run_backwards(watches, child);
    is_forking = false;
    atomic_store_explicit(&berth__fork_closed, 0, memory_order_release);
    pthread_mutex_unlock(&forking);
}

static void in_parent(void)
{
    open_again(false);
    berth__unpark_all(&berth__fork_closed);
}

/* Others may have noted something in the last moment, before they saw the gate. */
static void forget_others(void)
{
    uint32_t mine = berth__thread_plus_one - 1, end = berth__thread_numbers_end();
    for (uint32_t i = 0; i < end; i++)
        if (i != mine)
            atomic_store_explicit(&berth__fork_slots[i].held, 0, memory_order_relaxed);
    atomic_store(&numberless, held_numberless);
}

static void in_child(void)
{
    berth__thread_after_fork();
    forget_others();
    open_again(true);
}

/* Early: handlers of the program that come later run outside of ours, and may wait for its threads. */
__attribute__((constructor(110))) static void watch_forks(void)
{
    if (pthread_atfork(fork_prepare, in_parent, in_child) != 0)
        berth__log(BERTH_LOG_WARNING, "no memory to watch for forks: a child must not use this library");
}

void berth__fork_watch_add(berth__fork_watch *watch)
{
    if (atomic_load_explicit(&watch->added, memory_order_acquire))
        return;
    pthread_mutex_lock(&forking);
    if (!atomic_load(&watch->added)) {
        berth__fork_watch **link = &watches;
        while (*link && (*link)->rank <= watch->rank)
            link = &(*link)->next;
        watch->next = *link;
        *link = watch;
        atomic_store_explicit(&watch->added, true, memory_order_release);
    }
    pthread_mutex_unlock(&forking);
}
