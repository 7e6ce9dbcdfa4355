/* A program that knows what it does: it prints how often it allocates, and the test compares. */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MARKED = 4321 }; /* bytes: a size that nobody else asks for */

static _Thread_local void *volatile kept;

/* Used: else a compiler that knows all callers gives them a copy for this size, under another name. */
__attribute__((noinline, used)) static void innermost(size_t size)
{
    kept = malloc(size);
    __asm__ volatile("" ::: "memory");
}
__attribute__((noinline, used)) static void caller_of_innermost(size_t size)
{
    innermost(size);
    __asm__ volatile("" ::: "memory");
}

static void pairs(int count)
{
    for (int i = 0; i < count; i++) {
        caller_of_innermost(MARKED);
        free(kept);
    }
}

static void *thread_pairs(void *count)
{
    pairs(*(int *)count);
    return NULL;
}

/* Named by itself after its first allocation, and again before its end. */
static void *thread_named(void *unused)
{
    (void)unused;
    pairs(1);
    prctl(PR_SET_NAME, "worker");
    pairs(1);
    return NULL;
}

static void late_pair(void *unused)
{
    (void)unused;
    pairs(1);
}

/* One pair while it runs, and one when its end is under way: keys are destroyed in the order in which they were made. */
static void *thread_late(void *key)
{
    pairs(1);
    pthread_setspecific(*(pthread_key_t *)key, key);
    return NULL;
}

static void late(void)
{
    pthread_key_t key;
    pthread_t thread;
    pthread_key_create(&key, late_pair);
    pthread_create(&thread, NULL, thread_late, &key);
    pthread_join(thread, NULL);
}

static void family(void)
{
    void *p = calloc(MARKED, 1);
    p = realloc(p, MARKED + 1);
    p = reallocarray(p, MARKED, 2);
    free(p);
    if (posix_memalign(&p, 64, MARKED) == 0)
        free(p);
    kept = aligned_alloc(64, 4352); /* kept: a compiler may leave a pair out */
    free(kept);
    p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap((char *)p + 65536, 65536);
}

/* ---- Before main ------------------------------------------------------------------------------------------- */

static void *volatile kept_before;

/* Runs before the constructors of all libraries, the recorder's and the C library's among them: there is no environment yet, and
 * this one cannot be told. */
static void before_constructors(void)
{
    kept_before = malloc(MARKED + 2000);
}
__attribute__((section(".preinit_array"), used)) static void (*const preinit)(void) = before_constructors;

__attribute__((constructor)) static void before_main(void)
{
    kept_before = malloc(MARKED + 2001);
}

/* ---- Mappings ---------------------------------------------------------------------------------------------- */

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
/* Counts of pages below are ones that nobody else asks for. */

static char *map_pages(void *at, size_t pages, int protection)
{
    int fixed = at ? MAP_FIXED : 0;
    void *p = mmap(at, pages * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
    if (p == MAP_FAILED)
        exit(1);
    return p;
}

/* What is refused ends nothing, and what is mapped over ends. */
static void maps(void)
{
    const int usable = PROT_READ | PROT_WRITE;
    char *p = map_pages(NULL, 1501, usable);
    if (munmap(p + 1, PAGE) == 0)
        exit(1);
    p = map_pages(NULL, 1502, usable);
    map_pages(p + 501 * PAGE, 301, usable); /* 700 behind it */
    p = map_pages(NULL, 1503, usable);
    map_pages(p, 1503, PROT_NONE);
    p = map_pages(NULL, 1504, usable);
    munmap(p, 1504 * PAGE - 100);
    p = map_pages(NULL, 1505, usable);
    char *q = map_pages(NULL, 1506, usable);
    if (mremap(p, 1505 * PAGE, 1505 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, q) != q)
        exit(1);
}

/* ---- Many places that allocate ------------------------------------------------------------------------------- */

#define SITE(n)                                                          \
    __attribute__((noinline)) static void *site_##n(void)                \
    {                                                                    \
        void *volatile p = malloc(32 + (size_t)((n)*2654435761U % 500)); \
        return p;                                                        \
    }
#define NAME(n) site_##n,
#define EIGHT(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7)
#define ALL(X)  \
    EIGHT(X, 1) \
    EIGHT(X, 2) \
    EIGHT(X, 3) \
    EIGHT(X, 4) \
    EIGHT(X, 5) \
    EIGHT(X, 6) \
    EIGHT(X, 7) EIGHT(X, 10) EIGHT(X, 11) EIGHT(X, 12) EIGHT(X, 13) EIGHT(X, 14) EIGHT(X, 15) EIGHT(X, 16)
ALL(SITE)
static void *(*const site_list[])(void) = {ALL(NAME)};

static uint32_t drawn = 1;
static uint32_t draw(uint32_t below)
{
    drawn = drawn * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)drawn * below >> 32);
}

/* As a program does its work: a task goes through places that follow each other, and most of what it takes goes with it. */
__attribute__((noinline)) static void task(uint32_t first, int depth)
{
    enum { OWN = 8, SITES = sizeof site_list / sizeof site_list[0] };
    static void *stays[256];
    void *own[OWN];
    for (uint32_t i = 0; i < OWN; i++)
        own[i] = site_list[(first + i) % SITES]();
    if (depth)
        task(first + OWN, depth - 1);
    for (uint32_t i = OWN; i-- > 0;) {
        if (draw(16) == 0) {
            void **other = &stays[draw(256)], *was = *other;
            *other = own[i];
            own[i] = was;
        }
        free(own[i]);
    }
}

/* ---- Libraries ----------------------------------------------------------------------------------------------- */

/* One after the other at one place, if the loader will. */
static int turns(char *const *libraries)
{
    for (; *libraries; libraries++) {
        void *library = dlopen(*libraries, RTLD_NOW | RTLD_LOCAL);
        void *(*run)(size_t) = NULL;
        if (library)
            *(void **)&run = dlsym(library, "run");
        if (!run) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        free(run(MARKED));
        if (dlclose(library))
            return 1;
    }
    return 0;
}

/* ---- Signals ------------------------------------------------------------------------------------------------- */

/* Says what comes, until SIGUSR2. */
static void tell_signals(void)
{
    sigset_t all;
    int number = 0;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    puts("ready");
    fflush(stdout);
    while (number != SIGUSR2 && sigwait(&all, &number) == 0) {
        printf("signal %d\n", number);
        fflush(stdout);
    }
}

static void close_everything(void)
{
    for (int file = 3; file < 4096; file++)
        close(file);
    if (chdir("/"))
        exit(1);
}

int main(int argc, char **argv)
{
    int count = argc > 2 ? atoi(argv[2]) : 0;
    const char *what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "pairs") == 0) {
        pairs(count);
    } else if (strcmp(what, "threads") == 0) {
        pthread_t threads[8];
        for (int i = 0; i < 8; i++)
            pthread_create(&threads[i], NULL, thread_pairs, &count);
        for (int i = 0; i < 8; i++)
            pthread_join(threads[i], NULL);
    } else if (strcmp(what, "named") == 0) {
        pthread_t thread;
        pairs(1);
        pthread_create(&thread, NULL, thread_named, NULL);
        pthread_join(thread, NULL);
        prctl(PR_SET_NAME, "the first");
    } else if (strcmp(what, "late") == 0) {
        late();
    } else if (strcmp(what, "kill") == 0) {
        pairs(count);
        kill(getpid(), SIGKILL);
    } else if (strcmp(what, "fork") == 0) {
        pairs(count);
        pid_t child = fork();
        pairs(count);
        if (child == 0)
            _exit(0);
        waitpid(child, NULL, 0);
        prctl(PR_SET_NAME, "the parent"); /* after the child has told its own name */
    } else if (strcmp(what, "exec") == 0) {
        pairs(count);
        char *again[] = {argv[0], "pairs", argv[2], NULL};
        execv(argv[0], again);
    } else if (strcmp(what, "closed") == 0) {
        close_everything();
        pairs(count);
    } else if (strcmp(what, "family") == 0) {
        family();
    } else if (strcmp(what, "maps") == 0) {
        maps();
    } else if (strcmp(what, "sites") == 0) {
        for (int i = 0; i < count; i++)
            task(draw(256), 3);
    } else if (strcmp(what, "turns") == 0) {
        return turns(argv + 2);
    } else if (strcmp(what, "signals") == 0) {
        tell_signals();
    } else if (strcmp(what, "refused") == 0) { /* one of each way in which malloc says no */
        volatile size_t huge = (size_t)1 << 60;
        /* volatile: a compiler may leave out what nobody looks at, and then answers that it worked */
        void *volatile held = malloc(1000), *volatile p = malloc(huge), *volatile q = calloc(huge, 64);
        void *volatile r = realloc(held, huge + 1);
        void *aligned = NULL;
        int code = posix_memalign(&aligned, 64, huge + 2);
        void *volatile s = reallocarray(held, huge, 32);
        return p || q || r || s || code == 0;
    } else if (strcmp(what, "exit") == 0) {
        return count;
    } else if (strcmp(what, "wait") ==
               0) { /* tells when it has done its pairs; does more when it is told to */
        pairs(count);
        puts("ready");
        fflush(stdout);
        char line[16];
        while (fgets(line, sizeof line, stdin)) {
            pairs(count);
            puts("done");
            fflush(stdout);
        }
    } else if (strcmp(what, "hold") == 0) { /* its number; then it keeps more for every line */
        printf("%d\n", (int)getpid());
        fflush(stdout);
        char line[16];
        while (fgets(line, sizeof line, stdin)) {
            for (int i = 0; i < count; i++)
                caller_of_innermost(MARKED);
            puts("done");
            fflush(stdout);
        }
    } else if (strcmp(what, "term") == 0) {
        puts("ready");
        fflush(stdout);
        pause();
    }
    return 0;
}
