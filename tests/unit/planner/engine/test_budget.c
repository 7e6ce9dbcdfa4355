/* Budgets: whatever the input and however little there is to spend, a valid plan comes back in time, and
 * `auto` is not worse than a heuristic that makes do with its share of the steps. Nothing here looks at a
 * clock: a test that plays one says when time is up, and steps are counted from there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "plan_families.h"
#include "plan_random.h"
#include "planner/engine/solver.h"
#include "planner/place/pins.h"
#include "planner/place/stack.h"
#include "planner/problem/bound.h"
#include "scale.h"

static const random_shape shapes[] = {
    {.buffers = 60, .times = 25, .sizes = 9, .unit = 64},
    {.buffers = 60, .times = 25, .sizes = 9, .unit = 3, .largest_gap = 3},
    {.buffers = 60, .times = 25, .sizes = 9, .unit = 1, .alias_groups = 6, .alignments = 7},
    {.buffers = 60, .times = 25, .sizes = 9, .unit = 1, .pinned_percent = 20},
};

/* ---- Pins ---- */

/* Pins as they lie in a plan: a few rows of random lengths, one above the other. */
static uint32_t make_pins(berth__pin *pin, uint32_t columns, uint64_t *random)
{
    uint32_t count = 0;
    for (uint32_t row = 0; row < 8; row++)
        for (uint32_t c = random_below(random, 9); c < columns;) {
            uint32_t life = 1 + random_below(random, row % 2 ? 6 : columns);
            uint32_t end = c + life < columns ? c + life : columns;
            pin[count] = (berth__pin){c, end, count, count};
            count++;
            c = end + random_below(random, 5);
        }
    return count;
}

static void test_pins_against_looking(void **state)
{
    (void)state;
    enum { COLUMNS = 61, MANY = 8 * COLUMNS };
    berth__pin pin[MANY];
    bool taken[MANY];
    for (uint64_t seed = 0; seed < 30; seed++) {
        uint64_t random = seed;
        berth__pins pins;
        const uint32_t count = make_pins(pin, COLUMNS, &random);
        memset(taken, 0, sizeof taken);
        assert_true(berth__pins_init(&pins, pin, count, COLUMNS));
        for (uint32_t left = count; left > 0;) {
            const uint32_t lower = random_below(&random, COLUMNS),
                           upper = lower + 1 + random_below(&random, COLUMNS - lower);
            uint32_t lowest = BERTH__NO_PIN;
            for (uint32_t k = count; k-- > 0;)
                lowest = !taken[k] && pin[k].lower < upper && pin[k].upper > lower ? k : lowest;
            assert_int_equal(berth__pins_lowest(&pins, lower, upper), lowest);
            /* one is reached when nothing is left below it */
            if (lowest == BERTH__NO_PIN ||
                berth__pins_lowest(&pins, pin[lowest].lower, pin[lowest].upper) != lowest)
                continue;
            berth__pins_take(&pins, lowest);
            taken[lowest] = true;
            left--;
        }
        assert_int_equal(berth__pins_lowest(&pins, 0, COLUMNS), BERTH__NO_PIN);
        berth__pins_finish(&pins);
    }
}

static uint64_t solve(const berth_problem *problem, const char *solver, uint64_t steps, uint64_t *offsets,
                      berth_certificate *certificate)
{
    berth_solve_options options = {.struct_size = sizeof options, .solver = solver, .step_budget = steps};
    certificate->struct_size = sizeof *certificate;
    assert_int_equal(berth_solve(problem, &options, offsets, certificate), BERTH_OK);
    assert_int_equal(berth_problem_check(problem, offsets, NULL), BERTH_OK);
    return certificate->peak_bytes;
}

/* Half of a plan of 100,000 is pinned where it was; that the rest finds its places again costs some steps an
 * item. Looked for one by one, the pins alone would be thousands of millions. */
static void test_many_pins(void **state)
{
    (void)state;
    enum { COUNT = 100000 / SCALE };
    uint64_t *offsets = malloc(COUNT * sizeof *offsets);
    for (size_t f = SCALE == 1 ? 1 : 2; f < 3; f++) {
        berth_problem problem;
        berth_certificate c;
        family_make(&families[f], COUNT, 1, &problem);
        berth_problem_buffer *buffers = (berth_problem_buffer *)problem.buffers;
        const uint64_t peak = solve(&problem, "auto", 3 * COUNT, offsets, &c);
        for (size_t i = 0; i < COUNT; i += 2)
            buffers[i].fixed_offset = offsets[i];
        assert_true(solve(&problem, "auto", 5 * COUNT, offsets, &c) < 4 * peak);
        assert_true(c.steps <= 7 * (uint64_t)COUNT);
        family_free(&problem);
    }
    free(offsets);
}

/* ---- The clock ---- */

typedef struct played_clock {
    uint64_t calls, strikes_at, steps;
} played_clock;

static berth_stop play(void *context, const berth_progress *progress)
{
    played_clock *clock = context;
    if (++clock->calls < clock->strikes_at)
        return BERTH_STOP_DONE;
    if (clock->calls == clock->strikes_at)
        clock->steps = progress->steps;
    return BERTH_STOP_CLOCK;
}

static void test_the_clock_is_heeded_at_once(void **state)
{
    (void)state;
    enum { COUNT = 60000 };
    uint64_t *offsets = malloc(COUNT * sizeof *offsets);
    for (size_t f = 0; f < FAMILIES; f += SCALE == 1 ? 1 : 4) {
        berth_problem problem;
        family_make(&families[f], COUNT, 1, &problem);
        for (uint64_t strikes_at = 1; strikes_at < 200; strikes_at = strikes_at * 11 + 2) {
            played_clock clock = {.strikes_at = strikes_at};
            berth_solve_options options = {
                .struct_size = sizeof options, .progress = play, .context = &clock};
            berth_certificate c = {.struct_size = sizeof c};
            assert_int_equal(berth_solve(&problem, &options, offsets, &c), BERTH_OK);
            assert_int_equal(berth_problem_check(&problem, offsets, NULL), BERTH_OK);
            if (clock.calls < strikes_at)
                break; /* it was done before */
            assert_true(c.steps <= clock.steps + 5000);
            assert_true(c.proven_optimal || c.stopped_by == BERTH_STOP_CLOCK);
        }
        family_free(&problem);
    }
    free(offsets);
}

static void test_a_stack_is_a_plan(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 120; seed++) {
        random_problem random;
        random_problem_make(&random, &shapes[seed % BERTH_COUNT_OF(shapes)], seed);
        berth__prepared p;
        uint64_t offsets[RANDOM_BUFFERS], bytes[RANDOM_BUFFERS];
        assert_int_equal(berth__prepared_init(&p, &random.problem), BERTH_OK);
        memset(offsets, 0xff, sizeof offsets);
        const uint64_t peak = berth__stack_above(&p, offsets);
        assert_int_equal(peak, p.item_count ? berth__prepared_peak(&p, offsets) : 0);
        berth__prepared_expand(&p, offsets, bytes);
        assert_int_equal(berth_problem_check(&random.problem, bytes, NULL), BERTH_OK);
        berth__prepared_finish(&p);
    }
}

/* Rounded up to classes, the last of seven would end past the largest offset there is. */
static void test_a_stack_of_the_largest(void **state)
{
    (void)state;
    berth_problem_buffer buffers[7];
    uint64_t offsets[7];
    for (uint64_t i = 0; i < 7; i++)
        buffers[i] = (berth_problem_buffer){
            .upper = 1, .size_bytes = (i ? UINT64_C(9) : 8) << 57, .fixed_offset = BERTH_NO_OFFSET};
    const berth_problem problem = {.struct_size = sizeof problem, .buffers = buffers, .buffer_count = 7};
    berth__prepared p;
    assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
    memset(offsets, 0xff, sizeof offsets);
    assert_int_equal(p.unit_bytes, UINT64_C(1) << 57);
    assert_int_equal(berth__stack_above(&p, offsets), 62);
    berth__prepared_finish(&p);
}

/* ---- The heuristics ---- */

/* Whatever auto may spend, a heuristic that finishes with a 32nd of it is not better; and the time-ordered
 * best fit is not better whatever it may spend, unless it has to look around for pins and gaps too. */
static void expect_not_worse(const berth_problem *problem, uint64_t steps, bool is_plain, uint64_t *offsets)
{
    berth_certificate c;
    const uint64_t best = solve(problem, "auto", steps, offsets, &c);
    for (size_t k = 1; berth_solver_name(k); k++) {
        const bool is_greedy = is_plain && strcmp(berth_solver_name(k), "greedy") == 0;
        if (!is_greedy && steps < 32)
            continue;
        const uint64_t peak =
            solve(problem, berth_solver_name(k), is_greedy ? steps : steps / 32, offsets, &c);
        if ((is_greedy || c.stopped_by != BERTH_STOP_STEPS) && peak < best)
            fail_msg("%llu steps: %s needs %llu, auto %llu", (unsigned long long)steps, berth_solver_name(k),
                     (unsigned long long)peak, (unsigned long long)best);
    }
}

static void test_not_worse_at_any_budget(void **state)
{
    (void)state;
    static const uint64_t budgets[] = {1, 60, 240, 1000, 4000, 10000, 30000, 60000, 200000};
    uint64_t offsets[RANDOM_BUFFERS];
    for (uint64_t seed = 0; seed < 48 / SCALE; seed++) {
        random_problem random;
        random_problem_make(&random, &shapes[seed % BERTH_COUNT_OF(shapes)], seed);
        for (size_t k = 0; k < BERTH_COUNT_OF(budgets) - (SCALE > 1 ? 2 : 0); k++)
            expect_not_worse(&random.problem, budgets[k], seed % BERTH_COUNT_OF(shapes) == 0, offsets);
    }
}

static void test_families_not_worse_at_any_budget(void **state)
{
    (void)state;
    enum { COUNT = 400 };
    static const uint64_t an_item[] = {1, 3, 5, 9, 30, 70, 300, 1200};
    uint64_t *offsets = malloc(COUNT * sizeof *offsets);
    for (size_t f = 0; f < FAMILIES; f += SCALE == 1 ? 1 : 3) {
        berth_problem problem;
        family_make(&families[f], COUNT, 2, &problem);
        for (size_t k = 0; k < BERTH_COUNT_OF(an_item) - (SCALE > 1 ? 2 : 0); k++)
            expect_not_worse(&problem, an_item[k] * COUNT, true, offsets);
        family_free(&problem);
    }
    free(offsets);
}

/* ---- Growth ---- */

/* The steps of the first plans grow with the number of items, and no faster. */
static void test_steps_grow_with_the_items(void **state)
{
    (void)state;
    uint64_t *offsets = malloc(60000 * sizeof *offsets);
    for (size_t f = 0; f < FAMILIES; f++)
        for (size_t count = 10000 / SCALE; count <= 60000 / SCALE; count *= 6) {
            berth_problem problem;
            berth_certificate c;
            family_make(&families[f], count, 1, &problem);
            solve(&problem, "auto", 5 * count, offsets, &c);
            assert_true(c.steps <= 7 * count + 5000);
            family_free(&problem);
        }
    free(offsets);
}

/* A plan at the bound that comes after the last step ends the search, however many steps there are later. */
static void test_what_is_over_is_not_resumed(void **state)
{
    (void)state;
    const berth_problem_buffer buffers[] = {
        {.upper = 2, .size_bytes = 4, .fixed_offset = BERTH_NO_OFFSET},
        {.lower = 1, .upper = 3, .size_bytes = 2, .fixed_offset = BERTH_NO_OFFSET}};
    const berth_problem problem = {
        .struct_size = sizeof problem, .buffers = buffers, .buffer_count = 2, .alignment = 1};
    berth__prepared prepared;
    assert_int_equal(berth__prepared_init(&prepared, &problem), BERTH_OK);
    uint64_t best[2], plan[2] = {0, prepared.size[0]};
    berth__search search = {.prepared = &prepared,
                            .capacity = BERTH__NO_CAPACITY,
                            .step_budget = 10,
                            .best_peak = UINT64_MAX,
                            .best = best};
    assert_int_equal(berth__bound(&prepared, &search.lower_bound), BERTH_OK);
    assert_true(berth__search_step(&search, 10));
    assert_int_equal(search.stop, BERTH_STOP_STEPS);
    assert_true(berth__search_offer(&search, plan, "test"));
    search.step_budget = 1000;
    assert_false(berth__search_resume(&search));
    assert_int_equal(search.stop, BERTH_STOP_OPTIMAL);
    berth__prepared_finish(&prepared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pins_against_looking),
        cmocka_unit_test(test_many_pins),
        cmocka_unit_test(test_the_clock_is_heeded_at_once),
        cmocka_unit_test(test_a_stack_is_a_plan),
        cmocka_unit_test(test_a_stack_of_the_largest),
        cmocka_unit_test(test_not_worse_at_any_budget),
        cmocka_unit_test(test_families_not_worse_at_any_budget),
        cmocka_unit_test(test_steps_grow_with_the_items),
        cmocka_unit_test(test_what_is_over_is_not_resumed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
