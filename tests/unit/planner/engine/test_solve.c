/* Every solver's plan is valid, every claim about it true: against brute force, against changes of the
 * problem that must not matter, and with every internal allocation failing in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "brute.h"

enum {
    PROBLEMS = 60,
    STEPS = 40000
}; /* steps: auto would go on for seconds where it cannot prove anything */

static const random_shape tiny[] = {
    {.buffers = 7, .times = 8, .sizes = 6, .unit = 1},
    {.buffers = 7, .times = 6, .sizes = 5, .unit = 8, .alignments = 24},
    {.buffers = 7, .times = 8, .sizes = 6, .unit = 1, .largest_gap = 3},
    {.buffers = 7, .times = 8, .sizes = 6, .unit = 2, .alias_groups = 2},
    {.buffers = 7, .times = 8, .sizes = 6, .unit = 1, .pinned_percent = 30},
    {.buffers = 7,
     .times = 7,
     .sizes = 6,
     .unit = 4,
     .largest_gap = 2,
     .alias_groups = 2,
     .alignments = 4,
     .pinned_percent = 15,
     .rounding = 3},
};
static const random_shape middling = {.buffers = 60,
                                      .times = 20,
                                      .sizes = 40,
                                      .unit = 16,
                                      .largest_gap = 3,
                                      .alias_groups = 3,
                                      .alignments = 2,
                                      .pinned_percent = 10};

static uint64_t solve(const berth_problem *problem, const char *solver, uint64_t *offsets,
                      berth_certificate *certificate)
{
    berth_certificate own = {.struct_size = sizeof own};
    certificate = certificate ? certificate : &own;
    certificate->struct_size = sizeof *certificate;
    berth_solve_options options = {.struct_size = sizeof options, .step_budget = STEPS, .solver = solver};
    assert_int_equal(berth_solve(problem, &options, offsets, certificate), BERTH_OK);
    berth_verdict verdict = {.struct_size = sizeof verdict};
    if (berth_problem_check(problem, offsets, &verdict) != BERTH_OK)
        fail_msg("%s: %s", solver, verdict.words);
    assert_int_equal(verdict.peak_bytes, certificate->peak_bytes);
    return certificate->peak_bytes;
}

static void no_claim_is_wrong(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof tiny / sizeof tiny[0]; s++)
        for (uint64_t seed = 0; seed < PROBLEMS; seed++) {
            random_problem random;
            uint64_t offsets[RANDOM_BUFFERS];
            random_problem_make(&random, &tiny[s], seed * 977 + s);
            uint64_t optimum = brute_optimum(&random);
            random.problem.capacity_bytes = optimum + seed % 3 - (optimum ? 1 : 0);
            for (size_t k = 0; berth_solver_name(k); k++) {
                berth_certificate c;
                uint64_t peak = solve(&random.problem, berth_solver_name(k), offsets, &c);
                assert_true(peak >= optimum);
                assert_true(c.lower_bound_bytes <= optimum);
                assert_true(c.max_live_bytes <= c.lower_bound_bytes);
                assert_true(!c.proven_optimal || peak == optimum);
                uint64_t capacity = random.problem.capacity_bytes;
                if (capacity) {
                    assert_true(c.fits != BERTH_FITS_NO || optimum > capacity);
                    assert_int_equal(c.fits == BERTH_FITS_YES, peak <= capacity);
                }
            }
        }
}

/* What small problems are proven at, whatever the effort, and the greatest is never worse than the default. */
static void efforts_agree_where_there_is_a_proof(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof tiny / sizeof tiny[0]; s++)
        for (uint64_t seed = 0; seed < PROBLEMS / 6; seed++) {
            random_problem random;
            uint64_t offsets[RANDOM_BUFFERS];
            random_problem_make(&random, &tiny[s], seed * 31 + s);
            berth_certificate by_default = {.struct_size = sizeof by_default}, at_most = by_default;
            berth_solve_options options = {.struct_size = sizeof options, .effort = BERTH_EFFORT_DEFAULT};
            assert_int_equal(berth_solve(&random.problem, &options, offsets, &by_default), BERTH_OK);
            options.effort = BERTH_EFFORT_MAX;
            assert_int_equal(berth_solve(&random.problem, &options, offsets, &at_most), BERTH_OK);
            assert_true(at_most.peak_bytes <= by_default.peak_bytes);
            assert_true(at_most.proven_optimal);
            assert_int_equal(at_most.peak_bytes, brute_optimum(&random));
        }
}

/* Sizes that are not multiples of the alignment that all share: the bound knows the holes between them. */
static void a_common_alignment_raises_the_bound(void **state)
{
    (void)state;
    uint64_t raised = 0, offsets[RANDOM_BUFFERS];
    for (uint64_t seed = 0; seed < PROBLEMS; seed++) {
        random_problem random;
        random_problem_make(&random, &tiny[0], seed + 5);
        for (size_t i = 0; i < random.problem.buffer_count; i++)
            random.buffers[i].alignment = 4;
        berth_certificate c;
        uint64_t peak = solve(&random.problem, NULL, offsets, &c), optimum = brute_optimum(&random);
        assert_true(c.lower_bound_bytes <= optimum && optimum <= peak);
        assert_true(!c.proven_optimal || peak == optimum);
        raised += c.lower_bound_bytes > c.max_live_bytes;
    }
    assert_true(raised > PROBLEMS / 2);
}

static void auto_is_never_above_a_single_heuristic(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < PROBLEMS; seed++) {
        random_problem random;
        uint64_t offsets[RANDOM_BUFFERS];
        random_problem_make(&random, &middling, seed);
        uint64_t best = solve(&random.problem, "auto", offsets, NULL);
        for (size_t k = 1; berth_solver_name(k); k++)
            assert_true(best <= solve(&random.problem, berth_solver_name(k), offsets, NULL));
    }
}

static void the_order_of_rows_does_not_matter(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < PROBLEMS; seed++) {
        random_problem random, shuffled;
        uint64_t offsets[RANDOM_BUFFERS], again[RANDOM_BUFFERS];
        size_t to[RANDOM_BUFFERS];
        random_problem_make(&random, &middling, seed);
        random_problem_name(&random);
        random_problem_shuffle(&shuffled, &random, to);
        for (size_t k = 0; berth_solver_name(k); k++) {
            berth_certificate a, b;
            solve(&random.problem, berth_solver_name(k), offsets, &a);
            solve(&shuffled.problem, berth_solver_name(k), again, &b);
            assert_int_equal(a.peak_bytes, b.peak_bytes);
            assert_int_equal(a.fingerprint, b.fingerprint);
            assert_string_equal(a.solver, b.solver);
            for (size_t i = 0; i < random.problem.buffer_count; i++)
                assert_int_equal(offsets[i], again[to[i]]);
        }
    }
}

static void shifted_times_and_scaled_sizes_give_the_same_plan(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < PROBLEMS; seed++) {
        random_problem random, other;
        uint64_t offsets[RANDOM_BUFFERS], again[RANDOM_BUFFERS];
        random_problem_make(&random, &middling, seed);
        other = random;
        other.problem.buffers = other.buffers;
        other.problem.gaps = other.gaps;
        for (size_t i = 0; i < random.problem.buffer_count; i++) {
            other.buffers[i].lower += 1000;
            other.buffers[i].upper += 1000;
            other.buffers[i].size_bytes *= 7;
            other.buffers[i].alignment = (other.buffers[i].alignment ? other.buffers[i].alignment : 1) * 7;
            if (other.buffers[i].fixed_offset != BERTH_NO_OFFSET)
                other.buffers[i].fixed_offset *= 7;
        }
        for (size_t i = 0; i < random.problem.gap_count; i++) {
            other.gaps[i].lower += 1000;
            other.gaps[i].upper += 1000;
        }
        for (size_t k = 0; berth_solver_name(k); k++) {
            solve(&random.problem, berth_solver_name(k), offsets, NULL);
            solve(&other.problem, berth_solver_name(k), again, NULL);
            for (size_t i = 0; i < random.problem.buffer_count; i++)
                assert_int_equal(again[i], offsets[i] * 7);
        }
    }
}

/* Fails the first request for memory, then the second, until the call gets through. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    random_problem random;
    uint64_t offsets[RANDOM_BUFFERS];
    berth_certificate c = {.struct_size = sizeof c};
    for (uint64_t seed = 0; seed < 3; seed++) {
        random_shape shape = middling;
        if (seed == 0) /* without pins and pieces the time-ordered solver goes its own way */
            shape.largest_gap = shape.alias_groups = shape.pinned_percent = 0;
        random_problem_make(&random, &shape, seed);
        for (size_t k = 0; berth_solver_name(k); k++) {
            berth_solve_options options = {
                .struct_size = sizeof options, .step_budget = STEPS, .solver = berth_solver_name(k)};
            uint64_t live = berth__heap_live();
            berth_status status = BERTH_OUT_OF_HOST_MEMORY;
            for (uint64_t n = 1; status == BERTH_OUT_OF_HOST_MEMORY; n++) {
                berth__heap_fail_at(n, false);
                status = berth_solve(&random.problem, &options, offsets, &c);
                berth__heap_fail_at(0, false);
                assert_int_equal(berth__heap_live(), live);
                assert_true(n < 2000);
            }
            assert_int_equal(status, BERTH_OK);
        }
    }
}

typedef struct watch {
    uint64_t calls, stop_at;
    berth_stop answer;
} watch;

static berth_stop watch_progress(void *context, const berth_progress *progress)
{
    watch *w = context;
    assert_non_null(progress->phase);
    return ++w->calls >= w->stop_at ? w->answer : BERTH_STOP_DONE;
}

static void a_stop_keeps_the_best_plan(void **state)
{
    (void)state;
    random_problem random;
    uint64_t offsets[RANDOM_BUFFERS];
    berth_certificate c = {.struct_size = sizeof c};
    random_problem_make(&random, &middling, 8);
    watch w = {.stop_at = 1, .answer = BERTH_STOP_CLOCK};
    berth_solve_options options = {
        .struct_size = sizeof options, .step_budget = STEPS, .progress = watch_progress, .context = &w};
    assert_int_equal(berth_solve(&random.problem, &options, offsets, &c), BERTH_OK);
    assert_int_equal(berth_problem_check(&random.problem, offsets, NULL), BERTH_OK);
    if (!c.proven_optimal)
        assert_int_equal(c.stopped_by, BERTH_STOP_CLOCK);
    w = (watch){.stop_at = 1, .answer = BERTH_STOP_CANCELLED};
    assert_int_equal(berth_solve(&random.problem, &options, offsets, &c), BERTH_CANCELLED);
    /* cancelled once there is a plan: that one is kept */
    random_problem other;
    for (uint64_t seed = 0; w.calls < 2; seed++) { /* until one is not solved by the first solver alone */
        random_problem_make(&other, &middling, seed);
        w = (watch){.stop_at = 2, .answer = BERTH_STOP_CANCELLED};
        assert_int_equal(berth_solve(&other.problem, &options, offsets, &c), BERTH_OK);
        assert_int_equal(berth_problem_check(&other.problem, offsets, NULL), BERTH_OK);
    }
    assert_int_equal(c.stopped_by, BERTH_STOP_CANCELLED);
    options.progress = NULL;
    options.step_budget = 1;
    assert_int_equal(berth_solve(&random.problem, &options, offsets, &c), BERTH_OK);
    assert_int_equal(berth_problem_check(&random.problem, offsets, NULL), BERTH_OK);
}

static void a_capacity_ends_the_search_unless_minimising(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        random_problem random;
        uint64_t offsets[RANDOM_BUFFERS];
        berth_certificate c = {.struct_size = sizeof c};
        random_problem_make(&random, &middling, seed);
        uint64_t best = solve(&random.problem, "auto", offsets, NULL);
        random.problem.capacity_bytes = best * 4 + 64;
        solve(&random.problem, "auto", offsets, &c);
        assert_true(c.stopped_by == BERTH_STOP_FITS || c.stopped_by == BERTH_STOP_OPTIMAL);
        berth_solve_options options = {.struct_size = sizeof options, .step_budget = STEPS, .minimise = true};
        assert_int_equal(berth_solve(&random.problem, &options, offsets, &c), BERTH_OK);
        assert_int_equal(c.peak_bytes, best);
        random.problem.capacity_bytes = 1;
        if (best > 1) {
            solve(&random.problem, "auto", offsets, &c);
            assert_int_equal(c.fits, BERTH_FITS_NO);
        }
    }
}

static void an_unknown_solver_is_named(void **state)
{
    (void)state;
    berth_problem problem = {.struct_size = sizeof problem};
    berth_solve_options options = {.struct_size = sizeof options, .step_budget = STEPS, .solver = "fastest"};
    assert_int_equal(berth_solve(&problem, &options, NULL, NULL), BERTH_NOT_FOUND);
    assert_non_null(strstr(berth_last_error()->message, "fastest"));
}

static void nobody_needs_nothing(void **state)
{
    (void)state;
    berth_problem_buffer empty = {.lower = 3, .upper = 3, .size_bytes = 9, .fixed_offset = BERTH_NO_OFFSET};
    berth_problem problem = {.struct_size = sizeof problem, .buffers = &empty, .buffer_count = 1};
    uint64_t offset = 5;
    berth_certificate c = {.struct_size = sizeof c};
    for (size_t k = 0; berth_solver_name(k); k++) {
        assert_int_equal(solve(&problem, berth_solver_name(k), &offset, &c), 0);
        assert_true(c.proven_optimal);
    }
    problem.buffer_count = 0;
    assert_int_equal(berth_solve(&problem, NULL, NULL, &c), BERTH_OK);
    assert_int_equal(c.peak_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_claim_is_wrong),
        cmocka_unit_test(efforts_agree_where_there_is_a_proof),
        cmocka_unit_test(a_common_alignment_raises_the_bound),
        cmocka_unit_test(auto_is_never_above_a_single_heuristic),
        cmocka_unit_test(the_order_of_rows_does_not_matter),
        cmocka_unit_test(shifted_times_and_scaled_sizes_give_the_same_plan),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_stop_keeps_the_best_plan),
        cmocka_unit_test(a_capacity_ends_the_search_unless_minimising),
        cmocka_unit_test(an_unknown_solver_is_named),
        cmocka_unit_test(nobody_needs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
