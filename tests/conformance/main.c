/* Puts the stacks together and runs every check on each: sources alone, under one wrapper, under two, and
 * under three chosen at random. The seed is printed; `conformance_suite SEED [STACKS]` runs others. */
#include <sched.h>
#include <stdio.h>

#include "base/base.h"
#include "conformance.h"

struct one_test {
    const check *check;
    const source *source;
    const wrapper *inner, *outer, *outermost; /* NULL: none */
    char name[160];
};

static bool on_device;
bool memory_only;

static berth_allocator *put_on(berth_allocator *a, const wrapper *w, unsigned *flags)
{
    if (!w)
        return a;
    berth_allocator *wrapped = w->wrap(a);
    if (!wrapped)
        return a;
    berth_allocator_release(a);
    *flags |= w->flags;
    return wrapped;
}

static void run_one(void **state)
{
    const struct one_test *test = *state;
    uint64_t heap = berth__heap_live();
    subject s = {test->source->make(), test->source->flags};
    if (!s.a)
        skip();
    s.a = put_on(s.a, test->inner, &s.flags);
    s.a = put_on(s.a, test->outer, &s.flags);
    s.a = put_on(s.a, test->outermost, &s.flags);
    test->check->run(&s);
    berth_allocator_release(s.a);
    /* What a stream has to pass first is given back by a thread of the driver's; else the test's time limit ends it. */
    while (on_device && berth__heap_live() != heap)
        sched_yield();
    /* Slots of the registry's own meter stay; everything else that the stack asked for is back. */
    if (strcmp(test->source->name, "best for host") != 0)
        assert_int_equal(berth__heap_live(), heap);
}

static size_t add(struct CMUnitTest *tests, struct one_test *cases, size_t n, const check *c,
                  const struct one_test *stack)
{
    struct one_test *one = &cases[n];
    *one = *stack;
    one->check = c;
    snprintf(one->name, sizeof one->name, "%s%s%s%s%s%s%s: %s", one->outermost ? one->outermost->name : "",
             one->outermost ? " over " : "", one->outer ? one->outer->name : "", one->outer ? " over " : "",
             one->inner ? one->inner->name : "", one->inner ? " over " : "", one->source->name, c->name);
    tests[n] = (struct CMUnitTest){one->name, run_one, NULL, NULL, one};
    return n + 1;
}

static const wrapper *draw_wrapper(uint64_t *seed, bool outermost)
{
    const wrapper *w = &wrappers[draw(seed) % wrapper_count];
    return w->flags & HIDES_SIZES && !outermost ? NULL : w;
}

/* Every check on `count` stacks of three. */
static size_t add_random(struct CMUnitTest *tests, struct one_test *cases, size_t n, uint64_t seed,
                         size_t count)
{
    printf("stacks of three: seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < count; i++) {
        struct one_test stack = {.source = &sources[draw(&seed) % source_count],
                                 .inner = draw_wrapper(&seed, false),
                                 .outer = draw_wrapper(&seed, false),
                                 .outermost = draw_wrapper(&seed, true)};
        for (size_t c = 0; c < check_count; c++)
            n = add(tests, cases, n, &checks[c], &stack);
    }
    return n;
}

/* Arguments: a seed and a number of random stacks; or --device and a kind, for the sources on that device's
 * memory, and memory-only if it has neither streams nor pinned memory. */
int main(int argc, char **argv)
{
    on_device = argc > 2 && strcmp(argv[1], "--device") == 0;
    memory_only = on_device && argc > 3 && strcmp(argv[3], "memory-only") == 0;
    uint64_t seed = argc > 1 && !on_device ? strtoull(argv[1], NULL, 10) : 20;
    size_t threes = on_device ? 0 : argc > 2 ? (size_t)strtoull(argv[2], NULL, 10) : 100 / SCALE;
    size_t all_checks = check_count + thread_check_count, used_count = source_count;
    const source *used = on_device ? sources_on(argv[2], &used_count) : sources;
    if (!used)
        return 77;
    /* On devices one deep: what wrappers do to each other is seen on the host. */
    size_t pairs = on_device ? 0 : paired_wrapper_count;
    size_t stacks = used_count * (1 + wrapper_count + wrapper_count * pairs) + threes;
    struct CMUnitTest *tests = calloc(stacks * all_checks, sizeof *tests);
    struct one_test *cases = calloc(stacks * all_checks, sizeof *cases);
    size_t n = 0;
    for (size_t i = 0; i < used_count; i++)
        for (size_t inner = 0; inner <= wrapper_count; inner++)
            for (size_t outer = 0; outer <= (inner && inner <= pairs ? pairs : 0); outer++) {
                struct one_test stack = {.source = &used[i],
                                         .inner = inner ? &wrappers[inner - 1] : NULL,
                                         .outer = outer ? &wrappers[outer - 1] : NULL};
                for (size_t c = 0; c < check_count; c++)
                    n = add(tests, cases, n, &checks[c], &stack);
                /* Two deep nothing new happens between threads. */
                for (size_t c = 0; c < thread_check_count && !outer; c++)
                    n = add(tests, cases, n, &thread_checks[c], &stack);
            }
    n = add_random(tests, cases, n, seed, threes);
    int failed = _cmocka_run_group_tests("conformance", tests, n, NULL, NULL);
    free(tests);
    free(cases);
    return failed;
}
