/* Small numbers for threads, and a barrier that costs one side only. */
#ifndef BERTH_BASE_THREAD_H
#define BERTH_BASE_THREAD_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/base.h"

#define BERTH__THREADS_MAX 8160u /* more live threads than this share one slot */
#define BERTH__NO_THREAD UINT32_MAX

/* Says to other files of ours that the variable is ours too, so that it is reached without a table. */
#define BERTH__HIDDEN __attribute__((visibility("hidden")))

extern BERTH__HIDDEN _Thread_local uint32_t berth__thread_plus_one; /* 0: not asked for yet */
uint32_t berth__thread_take(void);

/* The calling thread's number, dense from 0 and given to another thread only after this one has ended.
 * BERTH__NO_THREAD when there are too many. */
BERTH__INLINE uint32_t berth__thread(void)
{
    uint32_t plus_one = berth__thread_plus_one;
    return BERTH_LIKELY(plus_one != 0) ? plus_one - 1 : berth__thread_take();
}

/* A mark that says "inside" for threads that run now: the fork generation, from 1, shifted by one, since what
 * another thread of the parent was in the middle of must not hold up the child for ever; and in the lowest
 * bit whether the kernel has membarrier(2). */
extern BERTH__HIDDEN _Atomic uint32_t berth__inside_mark;
BERTH__INLINE uint32_t berth__inside(void)
{
    return atomic_load_explicit(&berth__inside_mark, memory_order_relaxed);
}
BERTH__INLINE bool berth__same_generation(uint32_t mark)
{
    return mark >> 1 == berth__inside() >> 1;
}

/* For assertions: in the child of a fork, what other threads were in the middle of stays so for ever. */
BERTH__INLINE bool berth__is_child(void)
{
    return berth__inside() >> 1 > 1;
}

/* What users of thread numbers found last under the calling thread's number, by a key that never comes again.
 * Emptied when the number is given back, so that nobody acts under a number that is another thread's by then. */
typedef struct berth__memo {
    uint64_t key; /* 0: empty */
    void *slot, *value;
} berth__memo;
typedef struct berth__memos {
    berth__memo host_cache, device_pool, scope;
} berth__memos;
extern BERTH__HIDDEN _Thread_local berth__memos berth__thread_memos;

/* An asymmetric barrier: a store before the light side and a load after it are ordered against the heavy
 * side's, as if both were full fences. The light side costs nothing where the kernel has membarrier(2); the
 * heavy side then interrupts the other processors. A thread that uses the light side has a number; `mark` is
 * what berth__inside gave it. */
void berth__barrier_heavy(void);

/* Its two parts (barrier.c): whether the kernel has membarrier(2), asked once; and the fence for all threads. */
bool berth__barrier_register(void);
void berth__barrier_everywhere(void);

BERTH__INLINE void berth__barrier_light_at(uint32_t mark)
{
    if (BERTH_LIKELY(mark & 1))
        atomic_signal_fence(memory_order_seq_cst);
    else
        atomic_thread_fence(memory_order_seq_cst);
}

/* The same for users that keep the two apart. */
extern BERTH__HIDDEN _Atomic bool berth__barrier_is_asymmetric;
BERTH__INLINE void berth__barrier_light(void)
{
    berth__barrier_light_at(berth__inside());
}
BERTH__INLINE uint32_t berth__generation(void)
{
    return berth__inside();
}

/* Numbers from this one on have never been given. */
uint32_t berth__thread_numbers_end(void);
/* In a child, before anything else of ours: begins another fork generation. */
void berth__thread_after_fork(void);

#endif
