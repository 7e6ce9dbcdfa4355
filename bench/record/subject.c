/* Programs that allocate, and print what a pair of malloc and free took of processor time: in one loop; from 128 places, as a program
 * does its work, under 24 callers; from 16 places in whatever order, so that most call stacks are new. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint32_t drawn = 1;
static uint32_t draw(uint32_t below)
{
    drawn = drawn * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)drawn * below >> 32);
}

/* ---- One place -------------------------------------------------------------------------------------------- */

static void run_pairs(long pairs)
{
    for (long i = 0; i < pairs; i++) {
        void *volatile p = malloc(64);
        free(p);
    }
}

/* ---- 128 places ------------------------------------------------------------------------------------------- */

#define SITE(n)                                                          \
    __attribute__((noinline)) static void *site_##n(void)                \
    {                                                                    \
        void *volatile p = malloc(32 + (size_t)((n)*2654435761U % 500)); \
        return p;                                                        \
    }
#define NAME(n) site_##n,
#define EIGHT(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4) X(n##5) X(n##6) X(n##7)
#define SIXTY_FOUR(X, n) \
    EIGHT(X, n##0)       \
    EIGHT(X, n##1) EIGHT(X, n##2) EIGHT(X, n##3) EIGHT(X, n##4) EIGHT(X, n##5) EIGHT(X, n##6) EIGHT(X, n##7)
#define ALL(X) SIXTY_FOUR(X, 1) SIXTY_FOUR(X, 2)
ALL(SITE)
static void *(*const sites[])(void) = {ALL(NAME)};
enum { SITES = sizeof sites / sizeof sites[0], CALLERS = 24, GROUP = 8 };

/* Eight places that follow each other, and what they take goes in the opposite order. */
__attribute__((noinline)) static void task(uint32_t first)
{
    void *own[GROUP];
    for (uint32_t i = 0; i < GROUP; i++)
        own[i] = sites[(first + i) % SITES]();
    for (uint32_t i = GROUP; i-- > 0;)
        free(own[i]);
}

__attribute__((noinline)) static void callers(int depth, long pairs)
{
    if (depth == 0)
        for (long i = 0; i < pairs; i += GROUP)
            task(draw(SITES / GROUP) * GROUP);
    else
        callers(depth - 1, pairs);
    __asm__ volatile(""); /* no tail call */
}

static void run_sites(long pairs)
{
    callers(CALLERS, pairs);
}

/* ---- Any order --------------------------------------------------------------------------------------------- */

typedef void step(int depth);
extern step *const steps[16];

#define STEP(n)                                               \
    __attribute__((noinline)) static void step_##n(int depth) \
    {                                                         \
        void *volatile p = malloc(16 + 16 * (n));             \
        if (depth)                                            \
            steps[draw(16)](depth - 1);                       \
        free(p);                                              \
    }
#define STEP_NAME(n) step_##n,
#define SIXTEEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
SIXTEEN(STEP)
step *const steps[16] = {SIXTEEN(STEP_NAME)};

static void run_paths(long pairs)
{
    for (long i = 0; i < pairs; i += CALLERS)
        steps[draw(16)](CALLERS - 1);
}

/* ---- Measuring --------------------------------------------------------------------------------------------- */

static double processor_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(long pairs);
    } programs[] = {{"pairs", run_pairs}, {"sites", run_sites}, {"paths", run_paths}};
    long pairs = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    for (size_t i = 0; pairs > 0 && i < sizeof programs / sizeof programs[0]; i++)
        if (strcmp(argv[1], programs[i].name) == 0) {
            double before = processor_ns();
            programs[i].run(pairs);
            printf("%.1f ns a pair\n", (processor_ns() - before) / (double)pairs);
            return 0;
        }
    fprintf(stderr, "usage: record_figures pairs|sites|paths COUNT\n");
    return 2;
}
