/* How much stack a search takes. It runs on whatever thread asks for it, and stream threads have small stacks:
 * 32 KiB at most, however many buffers there are. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/base.h"
#include "plan_families.h"

/* Sanitizers put red zones around everything, and without optimisation nothing shares a place. */
#if !defined(NDEBUG) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LARGEST = 256 * 1024, STEPS = 100000 };
#else
enum { LARGEST = 32 * 1024, STEPS = 400000 };
#endif
enum { STACK = 1024 * 1024, PAINT = 0xA5, COUNT = 2040 };

static void *do_nothing(void *argument)
{
    return argument;
}

static void *solve(void *argument)
{
    const berth_problem *problem = argument;
    uint64_t *offsets = malloc(problem->buffer_count * sizeof *offsets);
    berth_solve_options options = {.struct_size = sizeof options, .step_budget = STEPS};
    berth_certificate c = {.struct_size = sizeof c};
    const berth_status status = berth_solve(problem, &options, offsets, &c);
    free(offsets);
    return (void *)(intptr_t)status;
}

/* Runs on a painted stack, and counts from its far end how much paint is left. */
static size_t stack_of(void *(*run)(void *), void *argument, intptr_t expected)
{
    unsigned char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(stack != MAP_FAILED);
    memset(stack, PAINT, STACK);
    pthread_attr_t attributes;
    pthread_t thread;
    void *answer;
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstack(&attributes, stack, STACK), 0);
    assert_int_equal(pthread_create(&thread, &attributes, run, argument), 0);
    assert_int_equal(pthread_join(thread, &answer), 0);
    assert_int_equal((intptr_t)answer, expected);
    size_t left = 0;
    while (left < STACK && stack[left] == PAINT)
        left++;
    pthread_attr_destroy(&attributes);
    munmap(stack, STACK);
    return STACK - left;
}

static void expect_small(const char *name, berth_problem *problem)
{
    const size_t idle = stack_of(do_nothing, NULL, 0), busy = stack_of(solve, problem, BERTH_OK);
    if (busy - idle > LARGEST)
        fail_msg("%s: %zu bytes of stack", name, busy - idle);
}

static void test_every_family(void **state)
{
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++)
        for (size_t count = COUNT; count <= 4 * COUNT; count *= 4) {
            berth_problem problem;
            family_make(&families[f], count, 3, &problem);
            expect_small(families[f].name, &problem);
            family_free(&problem);
        }
}

/* With pins, gaps and groups the search goes other ways. */
static void test_everything_a_problem_can_say(void **state)
{
    (void)state;
    for (size_t f = 0; f < FAMILIES; f++) {
        berth_problem problem;
        berth_gap gaps[COUNT];
        uint64_t offsets[COUNT];
        family_make(&families[f], COUNT, 4, &problem);
        berth_problem_buffer *buffers = (berth_problem_buffer *)problem.buffers;
        berth_solve_options options = {.struct_size = sizeof options, .step_budget = 20000};
        assert_int_equal(berth_solve(&problem, &options, offsets, NULL), BERTH_OK);
        for (uint32_t i = 0; i < COUNT; i++) {
            gaps[i] = (berth_gap){buffers[i].lower + 1, buffers[i].lower + 2};
            buffers[i].gap_first = i;
            buffers[i].gap_count = buffers[i].lower + 3 < buffers[i].upper;
            buffers[i].fixed_offset = i % 16 == 0 ? offsets[i] : BERTH_NO_OFFSET;
            buffers[i].alias_group = i % 16 == 3 ? 1 + i / 64 : 0;
            buffers[i].alignment = i % 16 == 5 ? 3 : 1;
        }
        problem.gaps = gaps;
        problem.gap_count = COUNT;
        expect_small(families[f].name, &problem);
        family_free(&problem);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_family),
        cmocka_unit_test(test_everything_a_problem_can_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
