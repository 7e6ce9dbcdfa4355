/* An explorer of interleavings: runs a small program of two or three threads again and again on the real code, once
 * for every order of their steps and every value that C11 lets a load return, up to a bound.
 *
 * The way in is the compiler. With -fsanitize=thread it calls a function before each plain access and in place of
 * each atomic one; here these functions are ours (hooks.c) and not TSan's. Threads are coroutines of one thread of
 * the system, _Thread_local variables lie in a section that is exchanged with them, and pthread, membarrier and the
 * heap are stand-ins (hooks.h is included before every file). So the code under test has no switches.
 *
 *     explore.c   the search: which thread goes on, which store a load sees; printing and repeating a run
 *     memory.c    what C11 allows: the stores of each variable in their order, and what each thread must have seen
 *     hooks.c     what the compiler and the code call
 *
 * A step is an atomic access of a variable that several threads use, a mutex, or a barrier. A load may see an older
 * store unless the thread has seen a newer one, by itself or through what it has acquired: this stands for the store
 * buffers of x86 and the reordering of ARM. Plain accesses by two threads that nothing orders are reported as a race.
 * Not modelled: a store that overtakes another thread's store to the same variable, loads that see stores of their
 * own future, and reordering by the compiler across a missing signal fence.
 *
 * The bound: at most so many preemptions (a thread that could go on has to wait), and so many loads of old values. */
#ifndef BERTH_TESTS_EXPLORE_H
#define BERTH_TESTS_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>

enum { EXPLORE_THREADS = 4 }; /* with the one that sets up and looks at the end */

typedef struct explore_program {
    const char *name;
    void (*begin)(void);                        /* before the threads; may be NULL */
    void (*threads[EXPLORE_THREADS - 1])(void); /* NULL: fewer */
    void (*end)(void);                          /* after them: looks at what they left; may be NULL */
    int preemptions, old_loads;                 /* the bound, unless the command line says another */
    bool exits;                                 /* what berth does at the end of a thread belongs to it */
} explore_program;

/* Every thread of a program calls this once: what it did before is preparation, which happens in one order only, and
 * all of it before what follows. */
void explore_ready(void);

/* In a program: says what is wrong, ends the run and the search. */
void explore_check(bool holds, const char *what);

/* Waits, as a step, until `*flag` is true: for orders that the program under test does not make itself. */
void explore_wait(const bool *flag);

/* From now on the kernel refuses membarrier, as behind a filter that came late. */
void explore_refuse_membarrier(void);

/* explore_main runs the program that the command line names; see explore.c for its options. */
int explore_main(int argc, char **argv, const explore_program *programs, size_t count);

#endif
