/* subject MODE: a program that does not know of Berth, run with libberth_malloc.so in front of its malloc. Exits 0 if all
 * was as it should be, else names what was not. */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static _Atomic int failures;
#define CHECK(condition)                                               \
    do {                                                               \
        if (!(condition)) {                                            \
            dprintf(2, "FAILED: line %d: %s\n", __LINE__, #condition); \
            failures++;                                                \
        }                                                              \
    } while (0)

/* The compiler knows malloc well: it must not see what these pointers are for. */
static void *volatile hidden;
static void *hide(void *p)
{
    hidden = p;
    return hidden;
}
static size_t *volatile no_size = &(size_t){0};
static size_t opaque(size_t n)
{
    return n + *no_size;
}

/* ---- Before everything ----------------------------------------------------------------------------------- */

static void *early[64];
static unsigned early_in_handlers;

static void handler_allocates(void)
{
    for (size_t n = 1; n < 100000; n *= 3) {
        void *p = malloc(n);
        early_in_handlers += p != NULL;
        free(p);
    }
    free(early[63]);
    early[63] = malloc(777);
}

/* Runs before the constructors of every library but the one that asks to be the first: mostly libberth_malloc.so, and
 * another if there is one (earlier.c). */
static void before_all(int argc, char **argv, char **envp)
{
    (void)argc, (void)argv, (void)envp;
    for (size_t i = 0; i < 60; i++) {
        early[i] = malloc(i * i * i + 1);
        if (early[i])
            memset(early[i], (int)i, i * i * i + 1);
    }
    free(early[59]);
    early[59] = calloc(1, 300000);
    pthread_atfork(handler_allocates, handler_allocates, handler_allocates);
}
__attribute__((section(".preinit_array"), used)) static void (*preinit)(int, char **, char **) = before_all;

static void *constructed;
__attribute__((constructor)) static void before_main(void)
{
    constructed = malloc(1000);
    if (constructed)
        memset(constructed, 1, 1000);
}

static bool all_are(const unsigned char *p, int value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (p[i] != (unsigned char)value)
            return false;
    return true;
}

static void test_early(void)
{
    CHECK(constructed && all_are(constructed, 1, 1000));
    free(constructed);
    CHECK(early[59] && all_are(early[59], 0, 300000));
    free(early[59]);
    for (size_t i = 0; i < 59; i++) {
        size_t size = i * i * i + 1;
        CHECK(early[i] && all_are(early[i], (int)i, size) && malloc_usable_size(early[i]) >= size);
        if (i % 2)
            early[i] = realloc(early[i], 2 * size);
        CHECK(early[i] && all_are(early[i], (int)i, size));
        free(early[i]);
    }
}

/* ---- The family --------------------------------------------------------------------------------------------- */

static const size_t sizes[] = {0,     1,     8,      15,     16,     17,      63,     64,   65,    100,
                               127,   128,   129,    200,    255,    256,     257,    511,  1000,  1024,
                               1025,  1793,  2047,   2048,   2049,   4000,    4096,   4097, 16384, 16385,
                               65535, 65536, 100000, 262144, 300001, 1048576, 3000000};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void test_alignments(void)
{
    for (size_t alignment = 8; alignment <= 1 << 20; alignment *= 2)
        for (unsigned i = 0; i < SIZES; i++) {
            void *kept[3] = {0};
            for (unsigned k = 0; k < 3; k++) {
                CHECK(posix_memalign(&kept[k], alignment, sizes[i]) == 0);
                CHECK(kept[k] && (uintptr_t)kept[k] % alignment == 0 &&
                      malloc_usable_size(kept[k]) >= sizes[i]);
                memset(kept[k], (int)k, sizes[i]);
            }
            CHECK(all_are(kept[0], 0, sizes[i]) && all_are(kept[1], 1, sizes[i]) &&
                  all_are(kept[2], 2, sizes[i]));
            for (unsigned k = 0; k < 3; k++)
                free(kept[k]);
            void *a = aligned_alloc(alignment, sizes[i]), *m = memalign(alignment, sizes[i]);
            CHECK(a && m && a != m && (uintptr_t)a % alignment == 0 && (uintptr_t)m % alignment == 0);
            free(a);
            free(m);
        }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *v = valloc(100), *pv = pvalloc(opaque(100)), *odd = memalign(opaque(48), 10);
    CHECK(v && (uintptr_t)v % page == 0 && pv && (uintptr_t)pv % page == 0 && malloc_usable_size(pv) >= page);
    CHECK(odd && (uintptr_t)odd % 64 == 0);
    free(v);
    free(pv);
    free(odd);
}

static void test_refusals(void)
{
    void *p = &p;
    errno = 0;
    CHECK(hide(malloc(opaque(SIZE_MAX))) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(hide(malloc(opaque((size_t)PTRDIFF_MAX - 4096))) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(hide(calloc(opaque(SIZE_MAX / 2), 3)) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(hide(reallocarray(NULL, opaque(SIZE_MAX / 2), 3)) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(hide(pvalloc(opaque(SIZE_MAX - 3))) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(hide(aligned_alloc(opaque(48), 48)) == NULL && errno == EINVAL);
    errno = 0;
    CHECK(hide(memalign(opaque(SIZE_MAX), 48)) == NULL && errno == EINVAL);
    errno = 77;
    CHECK(posix_memalign(&p, opaque(4), 8) == EINVAL && posix_memalign(&p, opaque(0), 8) == EINVAL);
    CHECK(posix_memalign(&p, opaque(24), 8) == EINVAL &&
          posix_memalign(&p, 64, opaque(SIZE_MAX - 100)) == ENOMEM);
    CHECK(p == (void *)&p && errno == 77);
    void *kept = hide(malloc(100));
    memset(kept, 5, 100);
    CHECK(realloc(hidden, opaque(SIZE_MAX - 1)) == NULL && errno == ENOMEM);
    kept = hidden;
    CHECK(all_are(kept, 5, 100));
    free(kept);
}

static void test_sizes(void)
{
    for (unsigned i = 0; i < SIZES; i++) {
        size_t size = sizes[i];
        unsigned char *a = malloc(size), *b = hide(malloc(size));
        CHECK(a && b && a != b && (uintptr_t)a % 16 == 0 && malloc_usable_size(a) >= size);
        memset(a, 0xff, malloc_usable_size(a)); /* all of it may be used */
        free(a);
        unsigned char *c = calloc(size ? size : 1, 1), *d = calloc(1, size);
        CHECK(c && d && all_are(c, 0, size) && all_are(d, 0, size));
        free(b);
        free(c);
        free(d);
        for (unsigned k = 0; k < SIZES; k++) {
            unsigned char *p = malloc(size);
            memset(p, 0x5a, size);
            size_t least = size < sizes[k] ? size : sizes[k];
            p = realloc(p, sizes[k] ? sizes[k] : 1);
            CHECK(p && all_are(p, 0x5a, least) && malloc_usable_size(p) >= sizes[k]);
            free(p);
        }
    }
    CHECK(malloc_usable_size(NULL) == 0);
    void *p = hide(malloc(10));
    CHECK(realloc(p, opaque(0)) == NULL);
    p = realloc(NULL, 20);
    CHECK(p != NULL);
    errno = 55;
    free(p);
    free(NULL);
    p = hide(malloc(5000000));
    free(p);
    CHECK(errno == 55);
}

/* A block that grows in small steps, as strings and lists do. */
static void test_growing(void)
{
    unsigned char *p = NULL;
    for (size_t n = 1; n < 400000; n += n / 16 + 1) {
        p = realloc(p, n);
        CHECK(p != NULL);
        p[n - 1] = (unsigned char)n;
    }
    for (size_t n = 1; n < 400000; n += n / 16 + 1)
        CHECK(p[n - 1] == (unsigned char)n);
    free(p);
}

static void test_figures(void)
{
    enum { BLOCKS = 5000 };
    static void *blocks[BLOCKS];
    struct mallinfo2 before = mallinfo2();
    for (unsigned i = 0; i < BLOCKS; i++)
        blocks[i] = malloc(i % 3 ? 100 : 5000);
    struct mallinfo2 between = mallinfo2();
    size_t least = BLOCKS / 3 * 5000 + (BLOCKS - BLOCKS / 3 - 1) * 100;
    CHECK(between.uordblks - before.uordblks >= least && between.uordblks - before.uordblks < least * 5 / 4);
    for (unsigned i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    CHECK(mallinfo2().uordblks == before.uordblks);
    void *large = hide(malloc(50 << 20));
    free(large);
    CHECK(mallinfo2().arena >= (50 << 20));
    CHECK(malloc_trim(0) == 1 && mallinfo2().arena < (40 << 20));
}

/* ---- Threads -------------------------------------------------------------------------------------------------- */

enum { PLACES = 512, THREADS = 6 };
static _Atomic(unsigned char *) places[PLACES];

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* The first bytes tell how large it is and what it is filled with. */
static unsigned char *make_block(uint32_t *random)
{
    uint32_t size =
        next_random(random) % 100 < 95 ? 16 + next_random(random) % 3000 : 16 + next_random(random) % 200000;
    unsigned char *p = next_random(random) % 8 ? malloc(size) : aligned_alloc(64, (size + 63) / 64 * 64);
    if (!p)
        return NULL;
    memcpy(p, &size, sizeof size);
    p[4] = (unsigned char)next_random(random);
    memset(p + 5, p[4], size - 5);
    return p;
}
static void end_block(unsigned char *p)
{
    uint32_t size;
    memcpy(&size, p, sizeof size);
    CHECK(malloc_usable_size(p) >= size && all_are(p + 5, p[4], size - 5));
    free(p);
}

/* Each puts its blocks where others take them from. */
static void churn(uint32_t seed, unsigned rounds)
{
    uint32_t random = seed * 2654435761u + 1;
    for (unsigned i = 0; i < rounds; i++) {
        unsigned char *p = make_block(&random);
        CHECK(p != NULL);
        p = atomic_exchange(&places[next_random(&random) % PLACES], p);
        if (p)
            end_block(p);
    }
}
static void *churn_thread(void *seed)
{
    churn((uint32_t)(uintptr_t)seed, 4000);
    return NULL;
}

static void churn_together(void)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, churn_thread, (void *)(i + 1)) == 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < PLACES; i++) {
        unsigned char *p = atomic_exchange(&places[i], NULL);
        if (p)
            end_block(p);
    }
}

static void test_threads(void)
{
    churn_together(); /* what the C library keeps of threads is there after this */
    size_t in_use = mallinfo2().uordblks;
    churn_together();
    CHECK(mallinfo2().uordblks == in_use);
    malloc_trim(0);
    size_t arena = mallinfo2().arena;
    for (unsigned i = 0; i < 3; i++)
        churn_together();
    malloc_trim(0);
    CHECK(mallinfo2().uordblks == in_use);
    CHECK(mallinfo2().arena <= arena + (4 << 20)); /* heaps of threads that ended are taken up again */
}

/* Allocates and frees while its thread ends, after Berth's own part of the thread may have ended. */
static pthread_key_t late_key;
static void late(void *p)
{
    free(p);
    void *again = malloc(3000);
    free(malloc(40));
    free(again);
}
static void *late_thread(void *unused)
{
    (void)unused;
    pthread_setspecific(late_key, malloc(123));
    return malloc(50);
}
static void test_exits(void)
{
    pthread_key_t skipped[40];
    for (unsigned i = 0; i < 40; i++) /* beyond the 32 that need no memory of their own */
        CHECK(pthread_key_create(&skipped[i], NULL) == 0);
    CHECK(pthread_key_create(&late_key, late) == 0);
    size_t in_use = 0;
    for (unsigned i = 0; i < 2000; i++) {
        pthread_t thread;
        void *result = NULL;
        CHECK(pthread_create(&thread, NULL, late_thread, NULL) == 0);
        pthread_join(thread, &result);
        free(result);
        if (i == 100)
            in_use = mallinfo2().uordblks;
    }
    CHECK(mallinfo2().uordblks == in_use);
}

/* ---- Forks ------------------------------------------------------------------------------------------------------ */

static _Atomic bool stop;
static void *churn_until_stopped(void *seed)
{
    for (uint32_t i = 0; !stop; i++)
        churn((uint32_t)(uintptr_t)seed + i * 1000, 100);
    return NULL;
}

static int child_work(uint32_t seed)
{
    for (unsigned i = 0; i < PLACES / 2; i++) { /* blocks of threads that stayed behind */
        unsigned char *p = atomic_exchange(&places[i], NULL);
        if (p)
            end_block(p);
    }
    churn(seed, 500);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, churn_thread, (void *)(uintptr_t)7) == 0);
    pthread_join(thread, NULL);
    return failures != 0;
}

static void test_forks(void)
{
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, churn_until_stopped, (void *)(i + 1)) == 0);
    for (uint32_t i = 0; i < 30; i++) {
        churn(i + 50, 200);
        pid_t child = fork();
        if (child == 0)
            _exit(child_work(i));
        int status = -1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    }
    stop = true;
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    CHECK(early_in_handlers >= 30 * 2 * 11);
}

/* ---- Limits and mistakes ---------------------------------------------------------------------------------------- */

/* Under limit=64M. */
static void test_limit(void)
{
    enum { MOST = 4000 };
    static void *blocks[MOST];
    for (unsigned round = 0; round < 3; round++) {
        unsigned count = 0;
        errno = 0;
        while (count < MOST && (blocks[count] = malloc(round == 1 ? 1500 * 100 : 1 << 20)))
            count++;
        size_t bytes = count * (size_t)(round == 1 ? 1500 * 100 : 1 << 20);
        CHECK(errno == ENOMEM && bytes > (56 << 20) && bytes <= (64 << 20));
        while (count)
            free(blocks[--count]);
    }
    size_t small = 0;
    void *list = NULL, *p;
    while (small < (100 << 20) && (p = malloc(64))) {
        *(void **)p = list;
        list = p;
        small += 64;
    }
    CHECK(errno == ENOMEM && small > (50 << 20) && small < (64 << 20));
    while (list) {
        p = *(void **)list;
        free(list);
        list = p;
    }
    p = malloc(1 << 20);
    CHECK(p != NULL);
    free(p);
}

static void test_mistakes(void)
{
    const size_t freed_twice[] = {40, 40000};
    for (unsigned i = 0; i < 2; i++) {
        void *p = hide(malloc(freed_twice[i]));
        free(p);
        free(hidden);
    }
    char local[256] = {0};
    hide(local + (64 - (uintptr_t)local % 64) + 64);
    free(hidden);
    char *a = malloc(70), *b = malloc(70), *large = malloc(70000);
    CHECK(a && b && a != b && large);
    hide(a + 16); /* no block starts there, and nothing is freed */
    free(hidden);
    hide(large + 512);
    free(hidden);
    hide(large + 16);
    free(hidden);
    CHECK(malloc_usable_size(large + 16) == 0 && malloc_usable_size(a) >= 70);
    memset(a, 1, 70);
    free(a);
    free(b);
    free(large);
}

static void test_small_address_space(void)
{
    struct rlimit limit = {0};
    CHECK(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur < (size_t)1 << 30);
    enum { MOST = 100 };
    void *blocks[MOST] = {0};
    unsigned count = 0;
    while (count < MOST && (blocks[count] = malloc(5 << 20))) {
        memset(blocks[count], (int)count, 5 << 20);
        count++;
    }
    CHECK(count > 20);
    for (unsigned i = 0; i < count; i++) {
        CHECK(all_are(blocks[i], (int)i, 5 << 20));
        free(blocks[i]);
    }
}

static bool is_ours(void)
{
    Dl_info info;
    void *symbol = dlsym(RTLD_DEFAULT, "malloc");
    return symbol && dladdr(symbol, &info) && strstr(info.dli_fname, "libberth_malloc.so");
}

static void test_family(void)
{
    test_sizes();
    test_alignments();
    test_refusals();
    test_growing();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } modes[] = {{"early", test_early},       {"family", test_family},
                 {"figures", test_figures},   {"threads", test_threads},
                 {"churn", churn_together},   {"exits", test_exits},
                 {"forks", test_forks},       {"limit", test_limit},
                 {"mistakes", test_mistakes}, {"narrow", test_small_address_space}};
    CHECK(is_ours());
    for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(argv[1], modes[i].name) == 0) {
            modes[i].run();
            return failures != 0;
        }
    fprintf(stderr, "usage: subject MODE\n");
    return 2;
}
