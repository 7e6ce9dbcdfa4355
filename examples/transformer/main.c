/* Berth's main job, end to end: one run of a small decoder is recorded and planned, a second is validated, a
 * third is replayed from one block. The three must agree to the last bit; a table tells what it saved.
 *
 *     transformer [PLAN.csv]      keeps the plan there, for `berth show` */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "model.h"

typedef struct outcome {
    int tokens[TOKENS];
    tensor scores;
    long page_faults;
} outcome;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static long page_faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static outcome run_once(const run *r)
{
    outcome o;
    long before = page_faults();
    o.scores = model_run(r, o.tokens);
    o.page_faults = page_faults() - before;
    return o;
}

static bool same(const outcome *a, const outcome *b)
{
    size_t bytes = (size_t)a->scores.rows * (size_t)a->scores.columns * sizeof(float);
    return memcmp(a->tokens, b->tokens, sizeof a->tokens) == 0 &&
           memcmp(a->scores.data, b->scores.data, bytes) == 0;
}

/* The best of many runs that allocate and free but compute nothing. */
static double allocation_us(const run *r, bool replay)
{
    run dry = *r;
    dry.dry = true;
    double best = 1e12;
    for (int i = 0; i < 50; i++) {
        int tokens[TOKENS];
        double began = now_us();
        if (replay)
            expect_ok(berth_replay_begin(r->allocator, NULL), "replay");
        tensor scores = model_run(&dry, tokens);
        if (replay)
            expect_ok(berth_replay_end(r->allocator, NULL), "replay");
        double took = now_us() - began;
        best = took < best ? took : best;
        tensor_free(r->allocator, &scores);
    }
    return best;
}

static void tell_plan(const berth_plan *plan, double took_us)
{
    berth_certificate c = {.struct_size = sizeof c};
    expect_ok(berth_plan_certificate(plan, &c), "certificate");
    printf("recorded %zu allocations; planned in %.1f ms by %s: %" PRIu64 " bytes%s\n",
           berth_plan_count(plan), took_us / 1e3, c.solver, berth_plan_total_bytes(plan),
           c.proven_optimal ? ", proven to be the least" : "");
}

static void record(const run *r, berth_plan *plan, outcome *o)
{
    expect_ok(berth_record_begin(r->allocator, NULL), "record");
    *o = run_once(r);
    double began = now_us();
    expect_ok(berth_record_end(r->allocator), "plan");
    tell_plan(plan, now_us() - began);
}

static void validate(const run *r, outcome *o)
{
    berth_difference difference = BERTH_DIFFERENCE_INIT;
    BERTH_VALIDATE(r->allocator, &difference)
    {
        *o = run_once(r);
    }
    expect_ok(difference.status, difference.words);
    printf("validated: a second run allocates alike, to the byte and in the same order\n");
}

static berth_report replay(const run *r, outcome *o)
{
    berth_report report = BERTH_REPORT_INIT;
    for (int i = 0; i < 2; i++) { /* the first touches the block's pages for the first time */
        if (i)
            tensor_free(r->allocator, &o->scores);
        BERTH_REPLAY(r->allocator, &report)
        {
            *o = run_once(r);
        }
        expect_ok(report.status, "replay");
    }
    printf("replayed: %" PRIu64 " of %" PRIu64 " planned allocations from the block, %" PRIu64
           " outside the plan (the result), %" PRIu64 " by fallback\n",
           report.from_plan, report.planned, report.outside_plan, report.by_fallback);
    return report;
}

static void print_table(const berth_plan *plan, const berth_report *report, const double allocation[2],
                        const long faults[2])
{
    berth_certificate c = {.struct_size = sizeof c};
    expect_ok(berth_plan_certificate(plan, &c), "certificate");
    printf("\n  %-30s %14s %14s\n", "one run", "one by one", "planned");
    printf("  %-30s %14" PRIu64 " %14" PRIu64 "\n", "bytes, each place used once", c.naive_bytes,
           c.peak_bytes);
    printf("  %-30s %14" PRIu64 " %14" PRIu64 "\n", "peak bytes, with the result",
           report->peak_without_plan_bytes, report->peak_with_plan_bytes);
    printf("  %-30s %14s %14" PRIu64 "\n", "lower bound for the block", "", c.lower_bound_bytes);
    printf("  %-30s %14.1f %14.1f\n", "allocating and freeing, us", allocation[0], allocation[1]);
    printf("  %-30s %14ld %14ld\n", "page faults", faults[0], faults[1]);
}

int main(int argc, char **argv)
{
    berth_allocator *memory, *planned;
    berth_plan *plan;
    expect_ok(berth_cpu_allocator_create(NULL, &memory), "memory");
    expect_ok(berth_plan_create(&plan), "plan");
    expect_ok(berth_planned_create(memory, plan, &planned), "planned allocator");
    model m;
    model_create(&m, memory);
    run r = {.model = &m, .allocator = planned};
    printf("a decoder of %d layers, width %d, %d heads; %d tokens after a prompt of %d\n\n", LAYERS, WIDTH,
           HEADS, TOKENS - PROMPT, PROMPT);

    outcome first, second, third, plain;
    record(&r, plan, &first);
    validate(&r, &second);
    double allocation[2] = {allocation_us(&r, false), allocation_us(&r, true)};
    plain = run_once(&r); /* not in a scope: one by one; by now this has run twice, too */
    berth_report report = replay(&r, &third);
    bool alike = same(&first, &second) && same(&first, &third) && same(&first, &plain);
    printf("the outputs of all runs are %s\n", alike ? "identical to the last bit" : "NOT the same");
    print_table(plan, &report, allocation, (long[]){plain.page_faults, third.page_faults});
    if (argc > 1)
        expect_ok(berth_plan_save(plan, argv[1]), argv[1]);

    tensor *results[] = {&first.scores, &second.scores, &third.scores, &plain.scores};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        tensor_free(planned, results[i]);
    model_destroy(&m);
    berth_allocator_release(planned);
    berth_plan_release(plan);
    berth_allocator_release(memory);
    return alike ? 0 : 1;
}
