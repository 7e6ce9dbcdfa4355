/* Programs that do what few do, and that a recorder must not disturb: each ends with 0 if nothing was different. */
#include <alloca.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "odd_behind.h"

enum { MARKED = 4321, MANY = 60000, REMAPPED = 3 << 20 };

static void *volatile kept;

static void pairs(int count)
{
    for (int i = 0; i < count; i++) {
        kept = malloc(MARKED);
        free(kept);
    }
}

/* ---- Cancelled while it allocates, which is no place to be cancelled ------------------------------------- */

static atomic_bool is_cancelled, has_done;

static void *cancelled(void *unused)
{
    (void)unused;
    while (!is_cancelled)
        ;
    pairs(MANY);
    has_done = true;
    pthread_testcancel();
    return NULL;
}

static int odd_cancel(void)
{
    pthread_t thread;
    void *result = NULL;
    if (pthread_create(&thread, NULL, cancelled, NULL) || pthread_cancel(thread))
        return 2;
    is_cancelled = true;
    pthread_join(thread, &result);
    pairs(MANY); /* nobody has gone with a lock */
    return result != PTHREAD_CANCELED || !has_done;
}

/* ---- errno ------------------------------------------------------------------------------------------------ */

static void close_all(void)
{
    for (int file = 3; file < 1100; file++)
        syscall(SYS_close, file);
}

/* Frees only, so that every chunk ends with one. */
static int odd_errno(void)
{
    static void *blocks[MANY];
    for (int i = 0; i < MANY; i++)
        blocks[i] = malloc(32);
    for (int i = 0; i < MANY; i++) {
        if (i % 8192 == 0)
            close_all();
        errno = 1234;
        free(blocks[i]);
        if (errno != 1234)
            return 1;
    }
    return 0;
}

/* ---- A limit on the length of files ------------------------------------------------------------------------- */

static int odd_limit(void)
{
    struct rlimit limit = {200000, 200000};
    if (setrlimit(RLIMIT_FSIZE, &limit))
        return 2;
    pairs(MANY);
    return 0;
}

/* ---- A child that no handler of a fork knows of ---------------------------------------------------------------- */

static int odd_clone(void)
{
    int status = 1;
    pairs(10);
    long child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    pairs(MANY);
    if (child == 0)
        exit(0);
    return child < 0 || waitpid((pid_t)child, &status, 0) != child || status != 0;
}

/* ---- Many threads, one after the other ----------------------------------------------------------------------------- */

static void *one_pair(void *unused)
{
    pairs(1);
    return unused;
}

static long kib_mapped(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1)
        pages = -1;
    if (file)
        fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static int odd_threads(void)
{
    long before = 0;
    for (int i = 0; i < 600; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, one_pair, NULL))
            return 2;
        pthread_join(thread, NULL);
        if (i == 100)
            before = kib_mapped();
    }
    long grown = kib_mapped() - before;
    if (grown > 10000)
        fprintf(stderr, "500 threads leave %ld KiB mapped\n", grown);
    return grown > 10000;
}

/* ---- A library of C++ in a program of C ---------------------------------------------------------------------------- */

static int odd_library(const char *path)
{
    for (int i = 0; i < 2; i++) {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        int (*run)(int) = NULL;
        if (library)
            *(void **)&run = dlsym(library, "odd_library_run");
        if (!run || run(10) != 10) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        if (dlclose(library))
            return 1;
    }
    return 0;
}

/* ---- A place that is another's when it is given back (odd_behind.c) ---------------------------------------------------- */

static int odd_remap(void)
{
    /* Between two pages that stay, so that it must move. */
    char *all = mmap(NULL, REMAPPED + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return 2;
    void *p =
        mmap(all + 4096, REMAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    return p == MAP_FAILED || mremap(p, REMAPPED, 2 * REMAPPED, MREMAP_MAYMOVE) == MAP_FAILED;
}

/* ---- Forks among threads, and a library whose handlers take memory and a lock (odd_behind.c) ------------------------------- */

static atomic_bool has_forked;

/* Its stacks are ever new ones: each bit of `path` is one of two callers. */
__attribute__((noinline)) static void odd_path(unsigned path, int depth)
{
    if (!depth)
        pairs(1);
    else if (path & 1)
        odd_path(path >> 1, depth - 1);
    else
        odd_path(path >> 1, depth - 1);
    __asm__ volatile("" ::"r"(depth));
}

static void *wander(void *unused)
{
    for (unsigned path = 0; !has_forked; path++) {
        pthread_mutex_lock(&odd_lock);
        odd_path(path, 14);
        pthread_mutex_unlock(&odd_lock);
        odd_path(~path, 14);
        sched_yield();
    }
    return unused;
}

static int odd_fork(void)
{
    enum { FORKS = 6, THREADS = 2 };
    pthread_t threads[THREADS];
    int result = 0;
    odd_forks = true;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, wander, NULL))
            return 2;
    for (int i = 0; i < FORKS && !result; i++) {
        int status = 1;
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            odd_path((unsigned)i, 16);
            _exit(0);
        }
        result = child < 0 || waitpid(child, &status, 0) != child || status != 0;
    }
    has_forked = true;
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return result;
}

/* ---- A small stack for signals ----------------------------------------------------------------------------------------- */

static void *volatile from_handler;

static void handler(int number)
{
    (void)number;
    from_handler = malloc(MARKED);
}

/* As small as the system says (8 KiB where it says nothing), with nothing below. */
static int odd_signal(void)
{
    enum { STACK = 8192, PAGE = 4096 };
    char *pages = mmap(NULL, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED || mprotect(pages, PAGE, PROT_NONE))
        return 2;
    stack_t stack = {.ss_sp = pages + PAGE, .ss_size = STACK};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&stack, NULL) || sigaction(SIGUSR1, &action, NULL) || raise(SIGUSR1))
        return 2;
    free(from_handler);
    pairs(1);
    return 0;
}

/* ---- Frames that differ in size and lie on each other ------------------------------------------------------------------- */

static char *odd_top; /* where the flexible frame ends */

__attribute__((noinline)) static void odd_take(bool takes)
{
    if (takes)
        kept = malloc(MARKED);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void odd_flexible(size_t size, bool takes)
{
    char *volatile room =
        alloca(size); /* nothing is written there, so that it still holds what stood there before */
    odd_top = room;
    odd_take(takes);
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) static void odd_wide(size_t size, bool takes)
{
    volatile char room[2048];
    room[0] = 0;
    odd_flexible(size, takes);
    room[1] = room[0];
}

__attribute__((noinline)) static void odd_narrow(size_t size, bool takes)
{
    odd_flexible(size, takes);
    __asm__ volatile("" ::: "memory");
}

/* Both take their block under the same stack pointer, and the second leaves the first one's return address as it was. */
static int odd_lie(void)
{
    static void (*const volatile callers[])(size_t, bool) = {odd_narrow, odd_wide, odd_narrow};
    static const bool takes[] = {false, true, true};
    char *tops[3];
    size_t size = 64;
    volatile int rounds = 3; /* one place calls all of them: the loop is not unrolled */
    for (int i = 0; i < rounds; i++) {
        if (i == 2)
            size += (size_t)(tops[0] - tops[1]);
        callers[i](size, takes[i]);
        tops[i] = odd_top;
    }
    return tops[1] != tops[2];
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "cancel") == 0)
        return odd_cancel();
    if (strcmp(what, "errno") == 0)
        return odd_errno();
    if (strcmp(what, "limit") == 0)
        return odd_limit();
    if (strcmp(what, "clone") == 0)
        return odd_clone();
    if (strcmp(what, "threads") == 0)
        return odd_threads();
    if (strcmp(what, "library") == 0)
        return odd_library(argv[2]);
    if (strcmp(what, "remap") == 0)
        return odd_remap();
    if (strcmp(what, "lie") == 0)
        return odd_lie();
    if (strcmp(what, "signal") == 0)
        return odd_signal();
    if (strcmp(what, "fork") == 0) {
        alarm(60);
        return odd_fork();
    }
    return 3;
}
