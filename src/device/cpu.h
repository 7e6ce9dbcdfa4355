/* What the files of the CPU device share: timelines, streams and the threads that run them.
 *
 *     cpu.c           memory, copies, the table
 *     cpu_stream.c    streams and events: what is enqueued, and when it counts as done
 *     cpu_worker.c    threads: one for each stream that has work, kept for a while, then gone
 *     cpu_timeline.c  how far each stream has come, and who waits for it
 *
 * Locks, in the order in which they are taken: a stream's, then the workers'; a timeline's alone. Around a
 * fork two of the last rank are held at once, by the handlers, which therefore take them unchecked. */
#ifndef BERTH_DEVICE_CPU_H
#define BERTH_DEVICE_CPU_H

#include "base/lock.h"
#include "device/device.h"

typedef struct cpu_stream cpu_stream;

/* ---- Timelines ----------------------------------------------------------------------------------- */

/* How far a stream has come. Timelines are never given back to the system, only to the next stream, which
 * counts on from where the last one stopped. So an event needs no reference to anything: its mark is a
 * timeline and a number on it, and "passed" stays true for ever. */
typedef struct cpu_timeline {
    _Alignas(64) _Atomic uint64_t completed; /* operations that have run */
    _Atomic uint32_t waiters;                /* threads and parked streams that want to hear of progress */
    _Atomic uint32_t process;                /* the fork generation of the stream that owns it */
    uint32_t index;
    _Atomic(const berth_stream *) owner; /* compared, never followed */
    pthread_mutex_t lock;
    pthread_cond_t progress;
    cpu_stream *parked;             /* guard: lock; linked by park_next */
    struct cpu_timeline *next_free; /* guard: the free list's lock */
} cpu_timeline;

/* A mark: 18 bits of timeline, 46 bits of number. 0 is a point that everybody has passed. */
enum { CPU_NUMBER_BITS = 46 };
#define CPU_NUMBER_MAX (((uint64_t)1 << CPU_NUMBER_BITS) - 1)

static inline uint64_t cpu_mark(const cpu_timeline *timeline, uint64_t number)
{
    return (uint64_t)timeline->index << CPU_NUMBER_BITS | number;
}

/* A free timeline, or NULL: no memory, or 2^18 streams are alive. */
cpu_timeline *berth__cpu_timeline_take(void);
void berth__cpu_timeline_give(cpu_timeline *timeline);

/* Where timelines lie, in pieces that stay. Events are asked billions of times: this is not behind a call. */
enum { CPU_CHUNK = 256, CPU_CHUNKS = 1 << (64 - CPU_NUMBER_BITS - 8) };
extern _Atomic(cpu_timeline *) berth__cpu_chunks[CPU_CHUNKS];

static inline cpu_timeline *berth__cpu_timeline_of(uint64_t mark)
{
    size_t index = (size_t)(mark >> CPU_NUMBER_BITS);
    return atomic_load_explicit(&berth__cpu_chunks[index / CPU_CHUNK], memory_order_acquire) +
           index % CPU_CHUNK;
}

static inline bool berth__cpu_mark_passed(uint64_t mark)
{
    return atomic_load_explicit(&berth__cpu_timeline_of(mark)->completed, memory_order_acquire) >=
           (mark & CPU_NUMBER_MAX);
}
/* BERTH_OK when passed; BERTH_DEVICE_LOST when it never will be, since the stream stayed behind in the parent
 * process; else BERTH_NOT_READY. Keeps no words. */
berth_status berth__cpu_mark_state(uint64_t mark);
/* Blocks until the mark has been passed, which must be possible. */
void berth__cpu_mark_wait(uint64_t mark);
/* Has `stream` resumed once the mark is passed. False if it is already. */
bool berth__cpu_mark_park(uint64_t mark, cpu_stream *stream);
/* Tells those who wait. Call after `completed` has grown, with no lock held. */
void berth__cpu_timeline_wake(cpu_timeline *timeline);

/* ---- Streams ------------------------------------------------------------------------------------- */

typedef enum cpu_task_kind { CPU_COPY, CPU_ZERO, CPU_CALL, CPU_WAIT } cpu_task_kind;

typedef struct cpu_task {
    cpu_task_kind kind;
    union {
        struct {
            void *dst;
            const void *src;
            size_t size_bytes;
        } copy; /* and zero */
        struct {
            void (*fn)(void *context);
            void *context;
        } call;
        uint64_t mark;
    } u;
} cpu_task;

/* Idle: nothing enqueued and no thread. Active: a thread has it, or will. Parked: waits for another stream's
 * event without holding a thread. */
typedef enum cpu_stream_state { CPU_IDLE, CPU_ACTIVE, CPU_PARKED } cpu_stream_state;

enum { CPU_INLINE_TASKS = 16 };

struct cpu_stream {
    berth_stream base;
    cpu_timeline *timeline;
    uint32_t process;          /* the fork generation it was made in */
    _Atomic uint64_t enqueued; /* number of the last operation; written under lock */
    pthread_mutex_t lock;
    cpu_stream_state state; /* guard: lock */
    bool orphaned;          /* guard: lock; whoever makes it idle frees it */
    cpu_task *ring;         /* guard: lock; inline_ring until it grows */
    size_t capacity;        /* guard: lock; a power of two */
    size_t head, count;     /* guard: lock */
    cpu_stream *park_next;  /* guard: the timeline's lock */
    uint64_t park_mark;     /* guard: the timeline's lock */
    cpu_stream *run_next;   /* guard: the workers' lock */
    cpu_task inline_ring[CPU_INLINE_TASKS];
};

/* Runs the stream until it is empty or parked; the calling thread must not touch it afterwards. */
void berth__cpu_stream_run(cpu_stream *stream);
/* Makes a parked stream active and gives it to a thread. */
void berth__cpu_stream_resume(cpu_stream *stream);

/* ---- Threads ------------------------------------------------------------------------------------- */

/* Hands an active stream to an idle thread, or a new one, or, when the system gives no more, to the next that
 * becomes idle. False if there is none at all; errno of the attempt in *error. */
bool berth__cpu_worker_start(cpu_stream *stream, int *error);

/* Counts the forks between this process and the first: streams of an earlier generation are dead. */
extern _Atomic uint32_t berth__cpu_forks;
static inline uint32_t berth__cpu_process(void)
{
    return atomic_load_explicit(&berth__cpu_forks, memory_order_relaxed);
}
/* Has the fork handlers installed; called before the first stream. */
void berth__cpu_watch_forks(void);
/* What the handlers do to the timelines. */
void berth__cpu_timelines_before_fork(void);
void berth__cpu_timelines_after_fork(bool child);

/* ---- The parts of the table in cpu_stream.c ------------------------------------------------------- */

berth_status berth__cpu_stream_create(void *self, berth_device device, berth_stream **out);
void berth__cpu_stream_destroy(void *self, berth_stream *stream);
berth_status berth__cpu_stream_query(void *self, berth_stream *stream);
berth_status berth__cpu_stream_synchronize(void *self, berth_stream *stream);
berth_status berth__cpu_stream_wait_event(void *self, berth_stream *stream, berth_event *event);
berth_status berth__cpu_stream_call(void *self, berth_stream *stream, void (*fn)(void *context),
                                    void *context);
berth_status berth__cpu_event_create(void *self, berth_device device, berth_event **out);
berth_status berth__cpu_event_record(void *self, berth_event *event, berth_stream *stream);
berth_status berth__cpu_event_query(void *self, berth_event *event);
berth_status berth__cpu_event_wait(void *self, berth_event *event);
void berth__cpu_event_destroy(void *self, berth_event *event);
berth_status berth__cpu_enqueue(cpu_stream *stream, const cpu_task *task);

#endif
