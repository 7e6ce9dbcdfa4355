/* The order of things around a fork. Handlers that were registered last run first before a fork, and last after it:
 *
 *     ours          no heap is taken up or left; the thread stops using the pool
 *     Berth's own   every pool, wrapper and figure comes to rest; other threads may still need bookkeeping for that
 *     bookkeeping   its lock is the forking thread's
 *     others'       that were registered before us; they may allocate, and get bookkeeping
 */
#include <pthread.h>

#include "preload/malloc/malloc.h"
#include "preload/malloc/small.h"

static void all_before(void)
{
    small_before_fork();
    large_before_fork();
}
static void all_after(void)
{
    small_after_fork();
    large_after_fork();
}

void forks_watch_bookkeeping(void)
{
    pthread_atfork(book_before_fork, book_after_fork, book_after_fork);
}

void forks_watch_all(void)
{
    pthread_atfork(all_before, all_after, all_after);
}
