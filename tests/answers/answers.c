/* Prints what the planner answers to a number of problems: steps, peak and a sum over all offsets, a line
 * each. Every machine, compiler and path prints the same; whoever runs this on two of them compares the
 * lines.
 *
 *     answers [baseline]        the exact search alone on its baseline path, else on the best there is */
#include <stdio.h>
#include <string.h>

#include "plan_families.h"
#include "plan_random.h"
#include "planner/exact/exact.h"

static uint64_t sum_of(const uint64_t *offsets, size_t count)
{
    uint64_t sum = 0xCBF29CE484222325U;
    for (size_t i = 0; i < count; i++)
        sum = (sum ^ offsets[i]) * 0x100000001B3U;
    return sum;
}

static void print_auto(const char *name, const berth_problem *problem, uint64_t seed, uint64_t steps)
{
    uint64_t *offsets = malloc(problem->buffer_count * sizeof *offsets);
    berth_solve_options options = {.struct_size = sizeof options, .seed = seed, .step_budget = steps};
    berth_certificate c = {.struct_size = sizeof c};
    berth_status status = berth_solve(problem, &options, offsets, &c);
    printf("auto %s %llu: status %d, %llu steps, peak %llu, bound %llu, by %s, offsets %016llx\n", name,
           (unsigned long long)seed, (int)status, (unsigned long long)c.steps,
           (unsigned long long)c.peak_bytes, (unsigned long long)c.lower_bound_bytes, c.solver,
           (unsigned long long)sum_of(offsets, problem->buffer_count));
    free(offsets);
}

static void print_exact(const char *name, const berth_problem *problem, uint64_t seed, berth__exact_path path)
{
    berth__prepared prepared;
    if (berth__prepared_init(&prepared, problem) != BERTH_OK)
        return;
    uint64_t *offsets = calloc(prepared.item_count + 1, sizeof *offsets);
    berth__search search = {.prepared = &prepared, .step_budget = UINT64_MAX};
    berth__exact *exact;
    berth__exact_answer answer = BERTH__EXACT_UNKNOWN;
    if (berth__exact_create(&prepared, seed, path, &exact) == BERTH_OK)
        berth__exact_run(exact, &search, prepared.max_live, 100000, offsets, &answer);
    printf("exact %s %llu: answer %d after %llu steps and %llu dead ends, offsets %016llx\n", name,
           (unsigned long long)seed, (int)answer, (unsigned long long)search.steps,
           (unsigned long long)(exact ? berth__exact_fails(exact) : 0),
           (unsigned long long)sum_of(offsets, prepared.item_count));
    berth__exact_destroy(exact);
    berth__prepared_finish(&prepared);
    free(offsets);
}

int main(int argc, char **argv)
{
    const bool baseline = argc > 1 && strcmp(argv[1], "baseline") == 0;
    const berth__exact_path path = baseline ? BERTH__EXACT_BASELINE : BERTH__EXACT_BEST;
    static const random_shape shapes[] = {
        {.buffers = 60, .times = 25, .sizes = 9, .unit = 64},
        {.buffers = 60, .times = 25, .sizes = 9000, .unit = 1}, /* lanes of 32 bits */
        {.buffers = 60, .times = 25, .sizes = 9, .unit = 3, .largest_gap = 3},
        {.buffers = 60, .times = 25, .sizes = 9, .unit = 1, .alias_groups = 6},
        {.buffers = 60, .times = 25, .sizes = 9, .unit = 1, .alignments = 7},
        {.buffers = 60, .times = 25, .sizes = 9, .unit = 1, .pinned_percent = 20},
        {.buffers = 60, .times = 25, .sizes = 9, .unit = 1, .full = 40},
    };
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (uint64_t seed = 1; seed <= 12; seed++) {
            random_problem random;
            char name[32];
            snprintf(name, sizeof name, "shape %zu", k);
            random_problem_make(&random, &shapes[k], seed);
            print_auto(name, &random.problem, seed, 60000);
            print_exact(name, &random.problem, seed, path);
        }
    for (size_t k = 0; k < FAMILIES; k++)
        for (uint64_t seed = 1; seed <= 3; seed++) {
            berth_problem problem;
            family_make(&families[k], 200, seed, &problem);
            print_auto(families[k].name, &problem, seed, 300000);
            print_exact(families[k].name, &problem, seed, path);
            family_free(&problem);
        }
    return 0;
}
