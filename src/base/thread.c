/* Hands out thread numbers and takes them back at thread exit; registers for membarrier. */
#include "base/thread.h"

#include <pthread.h>
#include <sched.h>

#include "base/lock.h"

_Thread_local uint32_t berth__thread_plus_one;
_Atomic uint32_t berth__inside_mark = 2;
_Thread_local berth__memos berth__thread_memos;
_Atomic bool berth__barrier_is_asymmetric;

static berth__spin numbers_lock;
static uint64_t numbers_taken[BERTH__THREADS_MAX / 64 + 1]; /* guard: numbers_lock */
static _Atomic uint32_t numbers_end;                        /* raised under numbers_lock */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t exit_key;
static bool exit_key_works; /* written by `once` */

void berth__thread_after_fork(void)
{
    atomic_fetch_add(&berth__inside_mark, 2);
}

uint32_t berth__thread_numbers_end(void)
{
    return atomic_load(&numbers_end);
}

static void give_number(void *plus_one)
{
    uint32_t number = (uint32_t)(uintptr_t)plus_one - 1;
    berth__thread_plus_one = 0;
    berth__thread_memos = (berth__memos){0};
    berth__fork_lock(&numbers_lock, BERTH__RANK_THREADS);
    numbers_taken[number / 64] &= ~((uint64_t)1 << number % 64);
    berth__fork_unlock(&numbers_lock, BERTH__RANK_THREADS);
}

static void set_up(void)
{
    exit_key_works = pthread_key_create(&exit_key, give_number) == 0;
    if (berth__barrier_register()) {
        atomic_fetch_or(&berth__inside_mark, 1);
        atomic_store(&berth__barrier_is_asymmetric, true);
    }
}

/* The lowest free number: few threads then touch few slots, however many came and went. */
static uint32_t lowest_free(void)
{
    for (uint32_t word = 0; word < BERTH_COUNT_OF(numbers_taken); word++) {
        if (~numbers_taken[word] == 0)
            continue;
        uint32_t number = word * 64 + (uint32_t)__builtin_ctzll(~numbers_taken[word]);
        return number < BERTH__THREADS_MAX ? number : BERTH__NO_THREAD;
    }
    return BERTH__NO_THREAD;
}

uint32_t berth__thread_take(void)
{
    pthread_once(&once, set_up);
    if (!exit_key_works)
        return BERTH__NO_THREAD;
    berth__fork_lock(&numbers_lock, BERTH__RANK_THREADS);
    uint32_t number = lowest_free();
    if (number != BERTH__NO_THREAD)
        numbers_taken[number / 64] |= (uint64_t)1 << number % 64;
    if (number != BERTH__NO_THREAD && number >= atomic_load(&numbers_end))
        atomic_store(&numbers_end, number + 1);
    berth__fork_unlock(&numbers_lock, BERTH__RANK_THREADS);
    if (number == BERTH__NO_THREAD)
        return number;
    berth__thread_plus_one = number + 1;
    /* A fork that does not see the number in its count is seen by what the thread does next. */
    atomic_thread_fence(memory_order_seq_cst);
    if (pthread_setspecific(exit_key, (void *)(uintptr_t)(number + 1)) != 0) {
        give_number((void *)(uintptr_t)(number + 1));
        return BERTH__NO_THREAD;
    }
    return number;
}

void berth__barrier_heavy(void)
{
    pthread_once(&once, set_up);
    atomic_thread_fence(memory_order_seq_cst);
    if (!(berth__inside() & 1))
        return;
    berth__barrier_everywhere();
    atomic_thread_fence(memory_order_seq_cst);
}

bool berth__fork_lock(berth__spin *spin, berth__rank rank)
{
    BERTH__RANK_TAKE(rank);
    uint32_t mine = berth__inside();
    for (unsigned turn = 1;; turn++) {
        uint32_t holder = atomic_load_explicit(&spin->word, memory_order_relaxed);
        if ((holder == 0 || !berth__same_generation(holder)) &&
            atomic_compare_exchange_strong_explicit(&spin->word, &holder, mine, memory_order_acquire,
                                                    memory_order_relaxed))
            return holder != 0;
        if (turn % 64 == 0)
            sched_yield();
        else
            berth__pause();
    }
}
