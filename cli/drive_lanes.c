/* Running a script: a thread for each lane, nothing allocated on the way. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cli/drive.h"

enum { PAGE = 4096, SPINS = 64 };

/* What all lanes share. Written before the threads begin, but for slots and lefts. */
typedef struct drive {
    drive_script *script;
    const drive_ops *ops;
    _Atomic(void *) *slots;  /* by block: NULL until it is allocated */
    _Atomic uint32_t *lefts; /* by stretch: lanes that are not through with it */
    pthread_barrier_t begin, end;
} drive;

typedef struct lane_run {
    drive *drive;
    uint32_t lane;
    uint64_t begin_ns, end_ns, failures;
    pthread_t thread;
} lane_run;

static char refused[1]; /* stands for a block that could not be had */

static uint64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Others may need the core that we wait on. */
static inline void wait_a_little(unsigned *turns)
{
    if (++*turns % SPINS == 0)
        sched_yield();
    else
        atomic_signal_fence(memory_order_seq_cst);
}

static inline void *wait_for_block(_Atomic(void *) *slot)
{
    unsigned turns = 0;
    void *p;
    while (!(p = atomic_load_explicit(slot, memory_order_acquire)))
        wait_a_little(&turns);
    return p;
}

/* The stretches before the last one are over. Whoever was in stretch s - 2 has waited for those before s - 3, so that two of them tell of
 * all. */
static void wait_for_stretch(const drive *d, uint32_t stretch)
{
    for (uint32_t back = 2; back <= 3 && back <= stretch; back++) {
        unsigned turns = 0;
        while (atomic_load_explicit(&d->lefts[stretch - back], memory_order_acquire))
            wait_a_little(&turns);
    }
}

/* A byte of each page, and the last: all of the block is resident from then on. */
static inline void touch(volatile char *p, uint64_t size)
{
    for (uint64_t i = 0; i < size; i += PAGE)
        p[i] = 1;
    if (size)
        p[size - 1] = 1;
}

static uint64_t run_events(const drive *d, void *self, const uint32_t *events, uint32_t count)
{
    const uint64_t *sizes = drive_at(d->script, d->script->sizes);
    const bool touches = d->script->touches;
    uint64_t failures = 0;
    for (uint32_t i = 0; i < count; i++) {
        _Atomic(void *) *slot = &d->slots[events[i] / 2];
        if (events[i] & 1) {
            void *p = wait_for_block(slot);
            if (p != refused)
                d->ops->deallocate(self, p);
            continue;
        }
        const uint64_t size = sizes[events[i] / 2];
        void *p = d->ops->allocate(self, size);
        failures += !p && size;
        if (p && touches)
            touch(p, size);
        atomic_store_explicit(slot, p ? p : refused, memory_order_release);
    }
    return failures;
}

static void run_lane(lane_run *run)
{
    drive *d = run->drive;
    const drive_script *s = d->script;
    const drive_lane *lane = (const drive_lane *)drive_at(s, s->lanes) + run->lane;
    const drive_part *parts = (const drive_part *)drive_at(s, s->parts) + lane->first_part;
    const uint32_t *events = (const uint32_t *)drive_at(s, s->events) + lane->first_event;
    run->begin_ns = now_ns(CLOCK_MONOTONIC);
    for (uint32_t i = 0; i < lane->part_count; i++) {
        wait_for_stretch(d, parts[i].stretch);
        run->failures += run_events(d, d->ops->selves[run->lane], events, parts[i].event_count);
        events += parts[i].event_count;
        atomic_fetch_sub_explicit(&d->lefts[parts[i].stretch], 1, memory_order_release);
    }
    run->end_ns = now_ns(CLOCK_MONOTONIC);
}

static void *lane_thread(void *context)
{
    lane_run *run = context;
    pthread_barrier_wait(&run->drive->begin);
    run_lane(run);
    pthread_barrier_wait(&run->drive->end);
    pthread_barrier_wait(&run->drive->begin); /* nobody ends while figures are taken */
    return NULL;
}

/* ---- Figures ------------------------------------------------------------------------------------------ */

/* A line of /proc/self/status, in bytes; 0 if there is none. Stdio would allocate. */
static uint64_t status_bytes(const char *key)
{
    char text[4096];
    const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    const ssize_t n = file >= 0 ? read(file, text, sizeof text - 1) : 0;
    if (file >= 0)
        close(file);
    text[n > 0 ? n : 0] = 0;
    const char *at = strstr(text, key);
    uint64_t kib = 0;
    for (at = at ? at + strlen(key) : ""; *at && *at != '\n'; at++)
        if (*at >= '0' && *at <= '9')
            kib = kib * 10 + (uint64_t)(*at - '0');
    return kib * 1024;
}

/* The peak counts from now on. What cannot forget it counts from the start, which is little more. */
static void forget_peak(void)
{
    const int file = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return;
    (void)!write(file, "5", 1);
    close(file);
}

static void take_figures(drive_script *s, const lane_run *runs, uint64_t cpu_before)
{
    uint64_t first = UINT64_MAX, last = 0;
    for (uint32_t i = 0; i < s->lane_count; i++) {
        first = runs[i].begin_ns < first ? runs[i].begin_ns : first;
        last = runs[i].end_ns > last ? runs[i].end_ns : last;
        s->result.failures += runs[i].failures;
    }
    s->result.wall_ns = last > first ? last - first : 0;
    s->result.cpu_ns = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_before;
    s->result.peak_bytes = status_bytes("VmHWM:");
}

/* ---- All lanes ---------------------------------------------------------------------------------------- */

static bool drive_fail(drive_script *s, const char *words)
{
    snprintf(s->result.words, sizeof s->result.words, "%s", words);
    return false;
}

/* One lane runs on the thread that there is: allocators do less for a process with one thread. */
static bool run_alone(drive *d, lane_run *run, bool (*before)(drive_script *), void (*after)(void))
{
    d->script->result.base_bytes = status_bytes("VmRSS:");
    forget_peak();
    if (!before(d->script))
        return false;
    const uint64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    run_lane(run);
    after();
    take_figures(d->script, run, cpu);
    return true;
}

static bool run_together(drive *d, lane_run *runs, bool (*before)(drive_script *), void (*after)(void))
{
    drive_script *s = d->script;
    pthread_barrier_init(&d->begin, NULL, s->lane_count + 1);
    pthread_barrier_init(&d->end, NULL, s->lane_count + 1);
    for (uint32_t i = 0; i < s->lane_count; i++)
        if (pthread_create(&runs[i].thread, NULL, lane_thread, &runs[i]) != 0)
            return drive_fail(s, "there are no more threads to be had");
    s->result.base_bytes = status_bytes("VmRSS:");
    forget_peak();
    if (!before(s))
        return false;
    const uint64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);
    pthread_barrier_wait(&d->begin);
    pthread_barrier_wait(&d->end);
    after();
    take_figures(s, runs, cpu);
    pthread_barrier_wait(&d->begin);
    for (uint32_t i = 0; i < s->lane_count; i++)
        pthread_join(runs[i].thread, NULL);
    return true;
}

/* Memory that is there already, beside the allocator. */
static void *own_memory(size_t size_bytes)
{
    void *p =
        mmap(NULL, size_bytes + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* The process ends soon after: what is taken here is not given back. */
bool drive_lanes(drive_script *script, const drive_ops *ops, bool (*before)(drive_script *script),
                 void (*after)(void))
{
    static drive d;
    static lane_run runs[DRIVE_LANES_MOST];
    d = (drive){.script = script, .ops = ops};
    d.slots = own_memory(script->block_count * sizeof *d.slots);
    d.lefts = own_memory(script->stretch_count * sizeof *d.lefts);
    if (!d.slots || !d.lefts)
        return drive_fail(script, "no memory for the driver");
    const uint32_t *lefts = drive_at(script, script->lefts);
    for (uint32_t i = 0; i < script->stretch_count; i++)
        atomic_init(&d.lefts[i], lefts[i]);
    for (uint32_t i = 0; i < script->lane_count; i++)
        runs[i] = (lane_run){.drive = &d, .lane = i};
    return script->lane_count == 1 ? run_alone(&d, runs, before, after)
                                   : run_together(&d, runs, before, after);
}
