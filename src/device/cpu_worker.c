/* The threads of CPU streams: one for each stream that has work; idle ones are kept for a while.
 *
 * A thread belongs to a stream only while that has something to do. So thousands of streams cost nothing
 * until they are used, a short pause does not cost a thread's start, and a stream that is idle can be freed
 * at once. There is no upper bound on purpose: work on a stream may block on what another stream does. */
#include "device/cpu.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <time.h>

enum { IDLE_SECONDS = 2, STACK_BYTES = 256 << 10 };

/* Lives on its thread's stack while the thread is idle. */
typedef struct idle_worker {
    pthread_cond_t wake;
    cpu_stream *stream;       /* guard: pool_lock; what it is to run next */
    struct idle_worker *next; /* guard: pool_lock */
} idle_worker;

static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;
static idle_worker *idle_list; /* guard: pool_lock; the last to become idle is the first to work */
static uint32_t alive;         /* guard: pool_lock */
static cpu_stream *runnable, *runnable_end; /* guard: pool_lock; only when the system gives no more threads */
_Atomic uint32_t berth__cpu_forks;

/* ---- Forks ---------------------------------------------------------------------------------------- */

static void before_fork(void)
{
    pthread_mutex_lock(&pool_lock);
    berth__cpu_timelines_before_fork();
}

static void after_fork_in_parent(void)
{
    berth__cpu_timelines_after_fork(false);
    pthread_mutex_unlock(&pool_lock);
}

static void after_fork_in_child(void)
{
    atomic_fetch_add(&berth__cpu_forks, 1);
    idle_list = NULL;
    runnable = runnable_end = NULL;
    alive = 0;
    berth__cpu_timelines_after_fork(true);
    pthread_mutex_unlock(&pool_lock);
}

void berth__cpu_watch_forks(void)
{
    static berth__fork_watch watch = {.rank = BERTH__RANK_DEVICE,
                                      .prepare = before_fork,
                                      .parent = after_fork_in_parent,
                                      .child = after_fork_in_child};
    berth__fork_watch_add(&watch);
}

/* ---- Threads -------------------------------------------------------------------------------------- */

/* Call under pool_lock. */
static cpu_stream *pop_runnable(void)
{
    cpu_stream *stream = runnable;
    if (stream) {
        runnable = stream->run_next;
        if (!runnable)
            runnable_end = NULL;
    }
    return stream;
}

/* Call under pool_lock. */
static void forget_idle(const idle_worker *worker)
{
    for (idle_worker **link = &idle_list; *link; link = &(*link)->next)
        if (*link == worker) {
            *link = worker->next;
            return;
        }
}

/* The next stream for a thread that has nothing to do; NULL when it should go. Call under pool_lock. */
static cpu_stream *wait_for_stream(idle_worker *worker)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += IDLE_SECONDS;
    worker->stream = NULL;
    worker->next = idle_list;
    idle_list = worker;
    while (!worker->stream)
        if (pthread_cond_timedwait(&worker->wake, &pool_lock, &until) == ETIMEDOUT && !worker->stream) {
            forget_idle(worker);
            break;
        }
    return worker->stream;
}

static void *worker_main(void *first)
{
    cpu_stream *stream = first;
    idle_worker self = {.stream = NULL};
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&self.wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    while (stream) {
        berth__cpu_stream_run(stream);
        berth__mutex_lock(&pool_lock, BERTH__RANK_DEVICE);
        stream = pop_runnable();
        if (!stream)
            stream = wait_for_stream(&self);
        if (!stream)
            alive--;
        berth__mutex_unlock(&pool_lock, BERTH__RANK_DEVICE);
    }
    pthread_cond_destroy(&self.wake);
    return NULL;
}

/* The thread takes no signals: handlers of the host program run on threads of its own. */
static int start_thread(cpu_stream *stream)
{
    pthread_t thread;
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error)
        return error;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, &attributes, worker_main, stream);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

bool berth__cpu_worker_start(cpu_stream *stream, int *error)
{
    bool started = true;
    berth__mutex_lock(&pool_lock, BERTH__RANK_DEVICE);
    if (idle_list) {
        idle_worker *worker = idle_list;
        idle_list = worker->next;
        worker->stream = stream;
        pthread_cond_signal(&worker->wake);
    } else if ((*error = start_thread(stream)) == 0) {
        alive++;
    } else if (alive > 0) {
        stream->run_next = NULL;
        if (runnable_end)
            runnable_end->run_next = stream;
        else
            runnable = stream;
        runnable_end = stream;
    } else {
        started = false;
    }
    berth__mutex_unlock(&pool_lock, BERTH__RANK_DEVICE);
    return started;
}
