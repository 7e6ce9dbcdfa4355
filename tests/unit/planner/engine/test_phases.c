/* Each phase of the planner alone: the tree of largest keys, the skyline, the index of who lives when, and
 * repair; and the families, through `auto`. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_families.h"
#include "plan_phase.h"
#include "plan_random.h"
#include "planner/improve/repair.h"
#include "planner/place/maxtree.h"
#include "planner/place/valley.h"
#include "planner/problem/overlap.h"
#include "scale.h"

static void test_maxtree(void **state)
{
    (void)state;
    uint64_t random = 5;
    static const uint32_t counts[] = {1, 15, 16, 17, 300, 5000};
    for (size_t c = 0; c < BERTH_COUNT_OF(counts); c++) {
        const uint32_t count = counts[c];
        uint32_t *keys = calloc(count, sizeof *keys);
        berth__maxtree tree;
        assert_true(berth__maxtree_init(&tree, count));
        for (int round = 0; round < 3000 / SCALE; round++) {
            uint32_t at = random_below(&random, count), from = random_below(&random, count);
            uint32_t to = from + random_below(&random, count - from + 1),
                     limit = 1 + random_below(&random, 50);
            keys[at] = random_below(&random, 3) ? random_below(&random, 50) : 0;
            berth__maxtree_set(&tree, at, keys[at]);
            uint32_t best = 0, first = UINT32_MAX;
            for (uint32_t k = from; k < to; k++)
                best = keys[k] > best ? keys[k] : best;
            for (uint32_t k = from; k < count && first == UINT32_MAX; k++)
                first = keys[k] >= limit ? k : UINT32_MAX;
            uint32_t found = berth__maxtree_best(&tree, from, to);
            assert_int_equal(found == UINT32_MAX, best == 0);
            if (best) {
                assert_true(found >= from && found < to);
                assert_int_equal(keys[found], best);
            }
            assert_int_equal(berth__maxtree_first(&tree, from, limit), first);
        }
        berth__maxtree_finish(&tree);
        free(keys);
    }
}

static void test_every_valley_is_a_plan(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 120; seed++) {
        random_problem random;
        random_problem_make(&random, &phase_shapes[seed % BERTH_COUNT_OF(phase_shapes)], seed);
        berth__prepared prepared;
        assert_int_equal(berth__prepared_init(&prepared, &random.problem), BERTH_OK);
        for (unsigned variant = 0; variant < BERTH__VALLEY_VARIANTS; variant++) {
            berth__search search = search_of(&prepared);
            uint64_t offsets[RANDOM_BUFFERS], peak;
            assert_int_equal(berth__valley_run(&search, variant, UINT64_MAX, offsets, &peak), BERTH_OK);
            assert_int_equal(peak, prepared.item_count ? berth__prepared_peak(&prepared, offsets) : 0);
            expect_valid(&random.problem, &prepared, offsets);
            if (peak) { /* a plan that would not end below the limit is not finished */
                uint64_t same = peak;
                assert_int_equal(berth__valley_run(&search, variant, same, offsets, &peak), BERTH_OK);
                assert_int_equal(peak, UINT64_MAX);
            }
        }
        berth__prepared_finish(&prepared);
    }
}

/* The rooms found by the index against those found by trying every offset. */
static void test_overlap_against_trying(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 120; seed++) {
        random_problem random;
        random_problem_make(&random, &phase_shapes[seed % BERTH_COUNT_OF(phase_shapes)], seed);
        berth__prepared p;
        assert_int_equal(berth__prepared_init(&p, &random.problem), BERTH_OK);
        berth__search search = search_of(&p);
        uint64_t offsets[RANDOM_BUFFERS], peak;
        assert_int_equal(berth__valley_run(&search, 0, UINT64_MAX, offsets, &peak), BERTH_OK);
        berth__overlap overlap;
        assert_int_equal(berth__overlap_init(&overlap, &p), BERTH_OK);
        for (uint32_t i = 0; i < p.item_count; i++) {
            assert_int_equal(berth__overlap_look(&overlap, offsets, i), BERTH_OK);
            uint64_t capacity = peak, lowest = BERTH_NO_OFFSET;
            for (uint64_t at = 0; at + p.size[i] <= capacity && lowest == BERTH_NO_OFFSET; at++) {
                bool free_here = at % berth__item_alignment(&p, i) == 0;
                for (uint32_t a = berth__piece_begin(&p, i); a < berth__piece_end(&p, i) && free_here; a++)
                    for (uint32_t j = 0; j < p.item_count && free_here; j++)
                        for (uint32_t b = berth__piece_begin(&p, j); b < berth__piece_end(&p, j) && j != i;
                             b++)
                            if (p.piece_lower[a] < p.piece_upper[b] && p.piece_lower[b] < p.piece_upper[a] &&
                                at < offsets[j] + p.piece_size[b] && offsets[j] < at + p.piece_size[a])
                                free_here = false;
                lowest = free_here ? at : lowest;
            }
            assert_int_equal(berth__overlap_fit(&overlap, i, capacity, false), lowest);
            uint64_t tight = berth__overlap_fit(&overlap, i, capacity, true);
            assert_int_equal(tight == BERTH_NO_OFFSET, lowest == BERTH_NO_OFFSET);
        }
        berth__overlap_finish(&overlap);
        berth__prepared_finish(&p);
    }
}

static void test_repair_improves_and_stays_valid(void **state)
{
    (void)state;
    unsigned improved = 0;
    for (uint64_t seed = 0; seed < 120; seed++) {
        random_problem random;
        random_problem_make(&random, &phase_shapes[seed % BERTH_COUNT_OF(phase_shapes)], seed);
        berth__prepared prepared;
        assert_int_equal(berth__prepared_init(&prepared, &random.problem), BERTH_OK);
        berth__search search = search_of(&prepared);
        uint64_t offsets[RANDOM_BUFFERS], best[RANDOM_BUFFERS], peak;
        search.best = best;
        assert_int_equal(berth__valley_run(&search, 1, UINT64_MAX, offsets, &peak), BERTH_OK);
        berth__search_offer(&search, offsets, "valley");
        assert_int_equal(berth__repair(&search, 5000), BERTH_OK);
        assert_true(search.best_peak <= peak);
        improved += search.best_peak < peak;
        assert_int_equal(search.best_peak, berth__prepared_peak(&prepared, best));
        expect_valid(&random.problem, &prepared, best);
        berth__prepared_finish(&prepared);
    }
    assert_true(improved > 20);
}

/* One huge item above hundreds of thousands of small ones that never meet: no place below the capacity is free, so it takes
 * nearly all of them out, and to put them in order for coming back must not take their square. */
static void test_repair_of_one_that_has_all_in_its_way(void **state)
{
    (void)state;
    enum { COUNT = 200000, SMALL_AT = 440, HUGE_AT = 700 };
    berth_problem_buffer *buffers = malloc(COUNT * sizeof *buffers);
    uint64_t *offsets = malloc(COUNT * sizeof *offsets), *best = malloc(COUNT * sizeof *best), random = 7;
    for (size_t i = 1; i < COUNT; i++)
        family_buffer(&buffers[i], i, 1, 1 + random_below(&random, 255));
    family_buffer(&buffers[0], 0, COUNT, 1000001);
    const berth_problem problem = {.struct_size = sizeof problem, .buffers = buffers, .buffer_count = COUNT};
    berth__prepared p;
    assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
    for (uint32_t i = 0; i < p.item_count; i++)
        offsets[i] = p.size[i] > 255 ? HUGE_AT : SMALL_AT;
    berth__search search = search_of(&p);
    search.best = best;
    berth__search_offer(&search, offsets, "test");
    assert_int_equal(berth__repair(&search, 1000000), BERTH_OK);
    expect_valid(&problem, &p, best);
    berth__prepared_finish(&p);
    free(best);
    free(offsets);
    free(buffers);
}

static void solve_family(const family *which, size_t count, uint64_t seed, double at_most)
{
    berth_problem problem;
    uint64_t optimum = family_make(which, count, seed, &problem), *offsets = malloc(count * sizeof *offsets);
    berth_solve_options options = {.struct_size = sizeof options, .effort = BERTH_EFFORT_FAST, .seed = seed};
    berth_certificate c = {.struct_size = sizeof c};
    assert_int_equal(berth_solve(&problem, &options, offsets, &c), BERTH_OK);
    assert_int_equal(berth_problem_check(&problem, offsets, NULL), BERTH_OK);
    if (optimum)
        assert_true(c.lower_bound_bytes <= optimum && c.peak_bytes >= optimum);
    if ((double)c.peak_bytes > at_most * (double)c.lower_bound_bytes)
        fail_msg("%s of %zu: %.4f of the bound", which->name, count,
                 (double)c.peak_bytes / (double)c.lower_bound_bytes);
    free(offsets);
    family_free(&problem);
}

/* Loose enough for other seeds and tight enough to see a phase break. */
static void test_families(void **state)
{
    (void)state;
    static const double at_most[FAMILIES] = {1.01, 1.01, 1.1, 1.3, 1.3, 1.01, 1.0, 1.0, 1.01};
    for (size_t k = 0; k < FAMILIES; k++)
        for (uint64_t seed = 1; seed < 3; seed++)
            solve_family(&families[k], 5000, seed, at_most[k]);
}

/* 400 tiles without any waste: the exact search finds the one way. */
static void test_tilings_are_solved(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed < 5; seed++)
        solve_family(&families[3], 300, seed, 1.0);
}

/* The same steps with rows in another order: the same plan, buffer by buffer. */
static void test_auto_is_deterministic(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        random_problem random, shuffled;
        size_t to[RANDOM_BUFFERS];
        random_problem_make(&random, &phase_shapes[seed % BERTH_COUNT_OF(phase_shapes)], seed);
        random_problem_name(&random);
        random_problem_shuffle(&shuffled, &random, to);
        uint64_t one[RANDOM_BUFFERS], two[RANDOM_BUFFERS];
        berth_certificate first = {.struct_size = sizeof first}, second = {.struct_size = sizeof second};
        berth_solve_options options = {.struct_size = sizeof options, .step_budget = 60000, .seed = seed};
        assert_int_equal(berth_solve(&random.problem, &options, one, &first), BERTH_OK);
        assert_int_equal(berth_solve(&shuffled.problem, &options, two, &second), BERTH_OK);
        assert_int_equal(first.peak_bytes, second.peak_bytes);
        assert_int_equal(first.steps, second.steps);
        assert_int_equal(first.lower_bound_bytes, second.lower_bound_bytes);
        assert_int_equal(first.stopped_by, second.stopped_by);
        for (size_t i = 0; i < random.problem.buffer_count; i++)
            assert_int_equal(one[i], two[to[i]]);
    }
}

typedef struct worker {
    pthread_t thread;
    const berth_problem *problem;
    uint64_t *offsets;
    berth_certificate certificate;
    berth_status status;
} worker;

static void *work(void *context)
{
    worker *w = context;
    berth_solve_options options = {.struct_size = sizeof options, .step_budget = 300000, .seed = 3};
    w->certificate.struct_size = sizeof w->certificate;
    w->status = berth_solve(w->problem, &options, w->offsets, &w->certificate);
    return NULL;
}

/* Several threads at once find what each alone would. */
static void test_threads_find_the_same(void **state)
{
    (void)state;
    enum { WORKERS = 4, BUFFERS = 300 };
    berth_problem problem;
    worker workers[WORKERS];
    family_make(&families[4], BUFFERS, 7, &problem); /* too hard to be solved in these steps */
    for (int k = 0; k < WORKERS; k++) {
        workers[k] = (worker){.problem = &problem, .offsets = malloc(BUFFERS * sizeof(uint64_t))};
        assert_int_equal(pthread_create(&workers[k].thread, NULL, work, &workers[k]), 0);
    }
    for (int k = 0; k < WORKERS; k++) {
        pthread_join(workers[k].thread, NULL);
        assert_int_equal(workers[k].status, BERTH_OK);
        assert_int_equal(workers[k].certificate.steps, workers[0].certificate.steps);
        assert_memory_equal(workers[k].offsets, workers[0].offsets, BUFFERS * sizeof(uint64_t));
    }
    for (int k = 0; k < WORKERS; k++)
        free(workers[k].offsets);
    family_free(&problem);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maxtree),
        cmocka_unit_test(test_every_valley_is_a_plan),
        cmocka_unit_test(test_overlap_against_trying),
        cmocka_unit_test(test_repair_improves_and_stays_valid),
        cmocka_unit_test(test_repair_of_one_that_has_all_in_its_way),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_tilings_are_solved),
        cmocka_unit_test(test_auto_is_deterministic),
        cmocka_unit_test(test_threads_find_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
