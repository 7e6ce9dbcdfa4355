/* Timelines: how far each CPU stream has come, and who waits for it. */
#include "device/cpu.h"

#include <sys/mman.h>

/* The first chunk is static: most programs need no other. Later ones are mapped and stay. */
static cpu_timeline first_chunk[CPU_CHUNK];
_Atomic(cpu_timeline *) berth__cpu_chunks[CPU_CHUNKS] = {first_chunk};

static pthread_mutex_t free_lock = PTHREAD_MUTEX_INITIALIZER;
static cpu_timeline *free_list; /* guard: free_lock */
static uint32_t used;           /* guard: free_lock; timelines ever handed out */

/* Call under free_lock. */
static cpu_timeline *take_unused(void)
{
    if (used == (uint32_t)CPU_CHUNK * CPU_CHUNKS)
        return NULL;
    cpu_timeline *chunk = atomic_load_explicit(&berth__cpu_chunks[used / CPU_CHUNK], memory_order_relaxed);
    if (!chunk) {
        void *p =
            mmap(NULL, CPU_CHUNK * sizeof *chunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return NULL;
        chunk = p;
        atomic_store_explicit(&berth__cpu_chunks[used / CPU_CHUNK], chunk, memory_order_release);
    }
    cpu_timeline *timeline = &chunk[used % CPU_CHUNK];
    timeline->index = used++;
    pthread_mutex_init(&timeline->lock, NULL);
    pthread_cond_init(&timeline->progress, NULL);
    return timeline;
}

cpu_timeline *berth__cpu_timeline_take(void)
{
    berth__mutex_lock(&free_lock, BERTH__RANK_DEVICE);
    cpu_timeline *timeline = free_list;
    if (timeline)
        free_list = timeline->next_free;
    else
        timeline = take_unused();
    berth__mutex_unlock(&free_lock, BERTH__RANK_DEVICE);
    if (timeline)
        atomic_store_explicit(&timeline->process, berth__cpu_process(), memory_order_relaxed);
    return timeline;
}

void berth__cpu_timeline_give(cpu_timeline *timeline)
{
    /* One that has used up half of its numbers is retired, so that a new stream never starts near the end. */
    if (atomic_load_explicit(&timeline->completed, memory_order_relaxed) > CPU_NUMBER_MAX / 2)
        return;
    berth__mutex_lock(&free_lock, BERTH__RANK_DEVICE);
    timeline->next_free = free_list;
    free_list = timeline;
    berth__mutex_unlock(&free_lock, BERTH__RANK_DEVICE);
}

void berth__cpu_timelines_before_fork(void)
{
    pthread_mutex_lock(&free_lock);
}

void berth__cpu_timelines_after_fork(bool child)
{
    /* A thread of the parent may have held the lock of a free timeline, for a late wake: the child starts
     * with fresh ones. */
    if (child)
        free_list = NULL;
    pthread_mutex_unlock(&free_lock);
}

static bool passed(const cpu_timeline *timeline, uint64_t mark)
{
    /* Sequentially consistent: a waiter counts itself before it looks, a stream moves on before it looks for
     * waiters; one of the two sees the other. */
    return atomic_load(&timeline->completed) >= (mark & CPU_NUMBER_MAX);
}

berth_status berth__cpu_mark_state(uint64_t mark)
{
    if (BERTH_LIKELY(berth__cpu_mark_passed(mark)))
        return BERTH_OK;
    uint32_t process = atomic_load_explicit(&berth__cpu_timeline_of(mark)->process, memory_order_relaxed);
    return process == berth__cpu_process() ? BERTH_NOT_READY : BERTH_DEVICE_LOST;
}

void berth__cpu_mark_wait(uint64_t mark)
{
    cpu_timeline *timeline = berth__cpu_timeline_of(mark);
    berth__mutex_lock(&timeline->lock, BERTH__RANK_DEVICE);
    atomic_fetch_add(&timeline->waiters, 1);
    while (!passed(timeline, mark))
        pthread_cond_wait(&timeline->progress, &timeline->lock);
    atomic_fetch_sub(&timeline->waiters, 1);
    berth__mutex_unlock(&timeline->lock, BERTH__RANK_DEVICE);
}

bool berth__cpu_mark_park(uint64_t mark, cpu_stream *stream)
{
    cpu_timeline *timeline = berth__cpu_timeline_of(mark);
    berth__mutex_lock(&timeline->lock, BERTH__RANK_DEVICE);
    atomic_fetch_add(&timeline->waiters, 1);
    bool late = passed(timeline, mark);
    if (late) {
        atomic_fetch_sub(&timeline->waiters, 1);
    } else {
        stream->park_mark = mark;
        stream->park_next = timeline->parked;
        timeline->parked = stream;
    }
    berth__mutex_unlock(&timeline->lock, BERTH__RANK_DEVICE);
    return !late;
}

void berth__cpu_timeline_wake(cpu_timeline *timeline)
{
    if (atomic_load(&timeline->waiters) == 0)
        return;
    cpu_stream *ready = NULL;
    berth__mutex_lock(&timeline->lock, BERTH__RANK_DEVICE);
    for (cpu_stream **link = &timeline->parked; *link;) {
        cpu_stream *stream = *link;
        if (!passed(timeline, stream->park_mark)) {
            link = &stream->park_next;
            continue;
        }
        *link = stream->park_next;
        stream->park_next = ready;
        ready = stream;
        atomic_fetch_sub(&timeline->waiters, 1);
    }
    pthread_cond_broadcast(&timeline->progress);
    berth__mutex_unlock(&timeline->lock, BERTH__RANK_DEVICE);
    while (ready) {
        cpu_stream *stream = ready;
        ready = stream->park_next; /* before it may run, and be freed */
        berth__cpu_stream_resume(stream);
    }
}
