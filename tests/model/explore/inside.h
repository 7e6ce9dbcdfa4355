/* What the explorer's own files share. All of its state lies outside static storage, which is put back before every
 * run. */
#ifndef BERTH_TESTS_EXPLORE_INSIDE_H
#define BERTH_TESTS_EXPLORE_INSIDE_H

#include <stdint.h>

#include "explore.h"

/* ---- explore.c: the search ----------------------------------------------------------------------------------- */

int explore_thread(void); /* the running one; 0 before and after the others */
bool explore_alone(void); /* only thread 0 is there: nothing to choose */
bool explore_is_local(
    const void *address); /* a _Thread_local variable: every thread has its own at this address */
/* A step begins: another thread may go first. */
void explore_step(void);
/* The running thread waits for somebody: another goes on, until something was stored. */
void explore_yield(void);
/* The running thread cannot go on before explore_wake. */
void explore_block(const void *on);
void explore_wake(const void *on);
void explore_stored(void);
/* Which of `count` stores a load sees, 0 being the newest. */
uint32_t explore_choose_store(uint32_t count);
/* The run shows a fault. Does not return, except to thread 0 at the end. */
void explore_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The search learnt that more is shared than it knew, and begins again. */
void explore_again(void);
/* A line of the printed run. */
void explore_note(const void *pc, const char *format, ...) __attribute__((format(printf, 2, 3)));
uint32_t explore_run(void); /* its number, from 1 */
void explore_at_exit(void (*function)(void *),
                     void *argument); /* of the running thread; NULL argument: no more */

/* ---- memory.c: what C11 allows -------------------------------------------------------------------------------- */

void memory_begin(void);
void memory_forget(void);      /* which variables are shared: another program begins */
void memory_spawn(int thread); /* it has seen what thread 0 has */
void memory_join(int thread);  /* and the other way round */
uint64_t memory_load(const void *pc, void *address, int bytes, int order);
void memory_store(const void *pc, void *address, int bytes, uint64_t value, int order);
typedef uint64_t memory_change(uint64_t old, uint64_t operand);
uint64_t memory_modify(const void *pc, void *address, int bytes, memory_change *change, uint64_t operand,
                       int order);
bool memory_compare_exchange(const void *pc, void *address, int bytes, uint64_t *expected, uint64_t wanted,
                             int order, int order_failed);
void memory_fence(const void *pc, int order);
void memory_barrier_everywhere(const void *pc);     /* membarrier(2) */
void memory_barrier_of(const void *pc, int thread); /* one other thread passes a fence */
void memory_plain(const void *pc, const void *address, size_t bytes, bool write);
/* A lock's order: what was done before it is given is seen by who takes it. */
void memory_lock_taken(const void *lock);
void memory_lock_given(const void *lock);

/* ---- hooks.c -------------------------------------------------------------------------------------------------- */

void hooks_begin(void);
void hooks_check_live(const void *pc,
                      const void *address); /* memory of the heap that is freed is not touched */

#endif
