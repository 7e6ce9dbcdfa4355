/* The recorder: opening the trace, the chunks of threads, and what a fork leaves of them. */
#include "preload/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "trace/definitions.h"

enum { OFF = 0, OPENING = 1, ON = 2, BROKEN = 3 };
enum { PATH_ROOM = 4096, COMMAND_ROOM = 1024 };

_Thread_local recorder_thread recorder_here;
recorder_settings recorder_options;

static struct {
    _Atomic uint32_t state;
    _Atomic uint32_t threads; /* numbers given */
    uint32_t generation;      /* grows with every fork */
    _Atomic uint32_t
        *mine;     /* 1, on a page that is all zero in a child: also where no handler of a fork ran (clone) */
    bool is_wiped; /* the page of `mine` */
    uint32_t process;
    berth__trace_live live;
    berth__trace_chunk definitions; /* guard: lock */
    recorder_lock lock;
    pthread_key_t key; /* runs when a thread ends */
    bool has_key;
    char path[PATH_ROOM];
} recorder = {.generation = 1};

/* ---- Small things ------------------------------------------------------------------------------------ */

void recorder_lock_take(recorder_lock *lock)
{
    while (atomic_exchange_explicit(&lock->word, 1, memory_order_acquire))
        sched_yield();
}
void recorder_lock_give(recorder_lock *lock)
{
    atomic_store_explicit(&lock->word, 0, memory_order_release);
}

/* By the system call: our own hooks stand in the way of mmap. */
void *recorder_pages(size_t size_bytes)
{
    long p = syscall(SYS_mmap, NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == -1 ? NULL : (void *)p;
}

void recorder_pages_give(void *pages, size_t size_bytes)
{
    syscall(SYS_munmap, pages, size_bytes);
}

berth__trace_file_header *recorder_header(void)
{
    return recorder.live.header;
}
uint32_t recorder_process(void)
{
    return recorder.process;
}

/* Nothing is told any more; the trace says how much is missing. */
static void recorder_break(void)
{
    atomic_store(&recorder.state, BROKEN);
}

static void count_lost(void)
{
    atomic_fetch_add_explicit(&recorder.live.header->lost, 1, memory_order_relaxed);
}

/* ---- Definitions ------------------------------------------------------------------------------------- */

uint32_t recorder_define(unsigned kind, _Atomic uint32_t *counter, uint64_t *values, const char *text)
{
    recorder_lock_take(&recorder.lock);
    berth__trace_chunk *c = &recorder.definitions;
    if (!berth__trace_chunk_has_room(c, BERTH__TRACE_DEFINITION_MOST)) {
        int code = c->header ? berth__trace_chunk_turn(&recorder.live, c)
                             : berth__trace_chunk_begin(&recorder.live, c, BERTH__TRACE_DEFINITIONS,
                                                        recorder.process, UINT32_MAX);
        if (code) {
            recorder_lock_give(&recorder.lock);
            recorder_break();
            return 0;
        }
    }
    if (counter)
        values[0] = atomic_fetch_add_explicit(counter, 1, memory_order_relaxed) + 1;
    uint32_t number = (uint32_t)values[0];
    c->at = berth__trace_define(c->at, kind, values, text);
    c->events++;
    berth__trace_chunk_publish(c);
    recorder_lock_give(&recorder.lock);
    return number;
}

/* The command line as the system has it, with blanks between its words. */
static uint32_t define_command(void)
{
    char text[COMMAND_ROOM];
    int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, text, sizeof text);
    if (file >= 0)
        close(file);
    while (length > 0 && text[length - 1] == 0)
        length--;
    if (length <= 0)
        return 0;
    for (ssize_t i = 0; i < length; i++)
        if (text[i] == 0)
            text[i] = ' ';
    uint64_t values[BERTH__TRACE_NUMBERS_MOST] = {
        0, (uint64_t)length}; /* as long as any kind, for the analyzer */
    return recorder_define(BERTH__TRACE_TEXT, &recorder.live.header->texts, values, text);
}

static void define_process(uint32_t parent_plus_one)
{
    int cancel;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); /* neither malloc nor fork ends a thread */
    recorder.process = atomic_fetch_add(&recorder.live.header->processes, 1);
    uint64_t values[] = {recorder.process, (uint64_t)getpid(), parent_plus_one, define_command()};
    recorder_define(BERTH__TRACE_PROCESS, NULL, values, NULL);
    pthread_setcancelstate(cancel, NULL);
}

/* ---- Threads ----------------------------------------------------------------------------------------- */

/* Says what the calling thread is called, if that is new: where a chunk begins, and at the end. */
static void thread_tell_name(recorder_thread *t)
{
    if (!berth__trace_thread_renamed(t->name))
        return;
    uint64_t text[] = {0, strnlen(t->name, sizeof t->name)};
    uint64_t values[] = {recorder.process, t->number,
                         recorder_define(BERTH__TRACE_TEXT, &recorder.live.header->texts, text, t->name)};
    if (values[2])
        recorder_define(BERTH__TRACE_THREAD, NULL, values, NULL);
}

/* Whether what the calling thread has is its own is seen where events are asked for; here for its end. */
static void child_begin(void);
static void notice_child(void)
{
    if (atomic_load(&recorder.state) == ON && atomic_load(recorder.mine) == 0)
        child_begin();
}

static void thread_ended(void *unused)
{
    (void)unused;
    recorder_thread *t = &recorder_here;
    notice_child();
    t->inside++;
    if (t->chunk.header && t->generation == recorder.generation) {
        thread_tell_name(t);
        berth__trace_chunk_end(&t->chunk);
    }
    recorder_stacks_thread_ended();
    t->chunk.header = NULL;
    t->watched =
        false; /* what is freed after this begins another chunk under another number, and we are called again */
    t->numbered = false;
    t->inside--;
}

static void thread_watch(recorder_thread *t)
{
    if (t->watched || !recorder.has_key)
        return;
    t->watched = true;
    pthread_setspecific(recorder.key, t);
}

static __attribute__((noinline, cold)) bool thread_begin_chunk(recorder_thread *t)
{
    if (t->generation != recorder.generation) { /* what is there belongs to the parent: it stays as it is */
        t->chunk.header = NULL;
        t->generation = recorder.generation;
        t->numbered = false;
    }
    if (!t->numbered) {
        t->number = atomic_fetch_add(&recorder.threads, 1);
        t->numbered = true;
        t->name[0] = 0;
    }
    thread_watch(t);
    int saved = errno; /* free leaves it alone, so we do */
    int code = t->chunk.header ? berth__trace_chunk_turn(&recorder.live, &t->chunk)
                               : berth__trace_chunk_begin(&recorder.live, &t->chunk, BERTH__TRACE_EVENTS,
                                                          recorder.process, t->number);
    if (code)
        recorder_break();
    else
        thread_tell_name(t);
    errno = saved;
    return code == 0;
}

static inline void thread_tell(const berth_trace_event *e, uint64_t tick)
{
    recorder_thread *t = &recorder_here;
    if (BERTH_UNLIKELY(t->generation != recorder.generation ||
                       !berth__trace_chunk_has_room(&t->chunk, BERTH__TRACE_EVENT_MOST)) &&
        !thread_begin_chunk(t)) {
        count_lost();
        return;
    }
    berth__trace_chunk_add(&t->chunk, e, tick);
}

void recorder_alloc(const void *p, size_t size_bytes, uint64_t tick, uint32_t stack)
{
    berth_trace_event e = {
        .kind = BERTH_TRACE_ALLOC, .address = (uintptr_t)p, .size_bytes = size_bytes, .stack = stack};
    thread_tell(&e, tick);
}
void recorder_free(const void *p, uint64_t tick)
{
    berth_trace_event e = {.kind = BERTH_TRACE_FREE, .address = (uintptr_t)p};
    thread_tell(&e, tick);
}
void recorder_fail(size_t size_bytes, uint32_t stack)
{
    berth_trace_event e = {.kind = BERTH_TRACE_FAIL, .size_bytes = size_bytes, .stack = stack};
    thread_tell(&e, berth__trace_tick());
}
void recorder_map(const void *p, size_t size_bytes, uint32_t stack)
{
    berth_trace_event e = {
        .kind = BERTH_TRACE_MAP, .address = (uintptr_t)p, .size_bytes = size_bytes, .stack = stack};
    thread_tell(&e, berth__trace_tick());
}
void recorder_unmap(const void *p, size_t size_bytes, uint64_t tick)
{
    berth_trace_event e = {.kind = BERTH_TRACE_UNMAP, .address = (uintptr_t)p, .size_bytes = size_bytes};
    thread_tell(&e, tick);
}

/* ---- Opening ----------------------------------------------------------------------------------------- */

static uint64_t setting(const char *name)
{
    const char *text = getenv(name);
    uint64_t n = 0;
    while (text && *text >= '0' && *text <= '9')
        n = n * 10 + (uint64_t)(*text++ - '0');
    return n;
}

/* In a child. Its one thread holds no lock; who did in the parent is not here. */
static __attribute__((noinline, cold)) void child_begin(void)
{
    recorder_lock_give(&recorder.lock);
    recorder_stacks_in_child();
    recorder.generation++;
    recorder.definitions.header = NULL; /* the parent's: both have it mapped, and only one writes */
    atomic_store(&recorder.threads, 0);
    if (atomic_load(&recorder.state) != ON)
        return;
    int saved = errno;
    recorder_here.inside++;
    atomic_store_explicit(recorder.mine, 1, memory_order_relaxed);
    define_process(recorder.process + 1);
    recorder_here.inside--;
    errno = saved;
}

/* Most often our handlers stand around those of the program's libraries, which may take memory, or wait for threads that do. So no
 * lock is held around a fork, and a child may have begun by the time this one runs. */
static void after_fork_in_child(void)
{
    if (atomic_load(&recorder.state) != ON || !recorder.is_wiped || atomic_load(recorder.mine) == 0)
        child_begin();
}

static bool open_trace(void)
{
    const char *path = getenv("BERTH_RECORD");
    size_t length = path ? strlen(path) : sizeof recorder.path;
    if (length >= sizeof recorder.path)
        return false;
    memcpy(recorder.path, path, length + 1);
    recorder_options.stack_depth = (uint32_t)setting("BERTH_RECORD_STACKS");
    recorder_options.min_bytes = setting("BERTH_RECORD_MIN_BYTES");
    recorder.mine = recorder_pages(BERTH__TRACE_PAGE);
    if (!recorder.mine || berth__trace_live_open(&recorder.live, recorder.path, true))
        return false;
    /* Where there is none, forks have their handlers. */
    recorder.is_wiped = madvise(recorder.mine, BERTH__TRACE_PAGE, MADV_WIPEONFORK) == 0;
    atomic_store(recorder.mine, 1);
    define_process(0);
    return true;
}

/* The first event of the process comes here, before main and before our own constructor if need be. */
static __attribute__((noinline, cold)) bool recorder_open(void)
{
    uint32_t off = OFF;
    if (!environ) /* before the C library itself begins, where programs may run already (.preinit_array): the next one asks again */
        return false;
    if (!atomic_compare_exchange_strong(&recorder.state, &off, OPENING))
        return false;
    recorder_here.inside++;
    int saved = errno;
    bool ok = open_trace();
    errno = saved;
    recorder_here.inside--;
    atomic_store_explicit(&recorder.state, ok ? ON : BROKEN, memory_order_release);
    return ok;
}

bool recorder_is_on(void)
{
    uint32_t state = atomic_load_explicit(&recorder.state, memory_order_acquire);
    if (BERTH_UNLIKELY(state != ON)) {
        if (state == BROKEN && recorder.live.header)
            count_lost();
        return state == OFF && recorder_open();
    }
    if (BERTH_UNLIKELY(atomic_load_explicit(recorder.mine, memory_order_relaxed) == 0))
        child_begin();
    return atomic_load_explicit(&recorder.live.header->paused, memory_order_relaxed) == 0;
}

/* The thread that ends the process, most often the first one, has no end of its own. */
__attribute__((destructor)) static void recorder_end(void)
{
    recorder_thread *t = &recorder_here;
    notice_child();
    if (atomic_load(&recorder.state) != ON || !t->chunk.header || t->generation != recorder.generation)
        return;
    t->inside++;
    thread_tell_name(t);
    t->inside--;
}

__attribute__((constructor)) static void recorder_start(void)
{
    recorder.has_key = pthread_key_create(&recorder.key, thread_ended) == 0;
    pthread_atfork(recorder_stacks_before_fork, recorder_stacks_after_fork, after_fork_in_child);
    if (!recorder_is_on() || !recorder_options.stack_depth)
        return;
    recorder_here.inside++;
    recorder_stacks_begin();
    recorder_here.inside--;
}
