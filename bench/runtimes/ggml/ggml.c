/* runtimes_ggml [--check] FOLDER: graphs in ggml, placed by ggml_gallocr and by Berth: bytes, time of a run, time of a plan and of placing a
 * graph again. All are ratios within this run. Exits with 1 if Berth is above gallocr anywhere or an output differs; with --check
 * also if a figure is missed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <berth/source.h>
#include <berth_ggml.h>

#include "../check.h"
#include "tests/ggml/kit.h"

enum { SEEDS = 40, RUN_SEEDS = 4, RUNS = 48, AGAIN = 50 };
_Static_assert(RUNS % 4 == 0, "halves of the same length");

#define TIME_AT_MOST 1.02
/* How much more gallocr needs, on average, for U-Nets whose convolutions are operations of their own. */
#define DIRECT_UNETS "unet, direct"
#define DIRECT_AT_LEAST 1.15

static void *backend;
static struct ggml_backend_buffer_type *plain_type, *our_type;
static int failures;

static double clock_seconds(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double seconds(void)
{
    return clock_seconds(CLOCK_MONOTONIC);
}

static void must(berth_status status)
{
    if (!status)
        return;
    (void)fprintf(stderr, "%s\n", berth_last_error()->message);
    exit(1);
}

/* The same model twice, once for each allocator. */
typedef struct pair {
    kit_model plain, ours;
    void *galloc;
    berth_ggml_graph *graph;
    double plain_plan, our_plan; /* seconds */
} pair;

static void pair_init(pair *p, kit_family build, uint64_t seed)
{
    kit_model_init(&p->plain, build, seed, plain_type);
    kit_model_init(&p->ours, build, seed, plain_type);
    p->galloc = kit.ggml_gallocr_new_n(&plain_type, 1);
    must(berth_ggml_graph_create(&our_type, 1, NULL, &p->graph));
    double start = seconds();
    if (!kit.ggml_gallocr_reserve_n(p->galloc, p->plain.graph, NULL, NULL))
        exit(1);
    double middle = seconds();
    must(berth_ggml_graph_reserve(p->graph, p->ours.graph, NULL, NULL));
    p->plain_plan = middle - start;
    p->our_plan = seconds() - middle;
    if (!kit.ggml_gallocr_alloc_graph(p->galloc, p->plain.graph))
        exit(1);
    must(berth_ggml_graph_allocate(p->graph, p->ours.graph));
}

static void pair_finish(pair *p)
{
    berth_ggml_graph_destroy(p->graph);
    kit.ggml_gallocr_free(p->galloc);
    kit_model_finish(&p->plain);
    kit_model_finish(&p->ours);
}

/* In seconds of the processor's: everything runs on one thread, and other programs are not what is measured. */
static double run_once(kit_model *model)
{
    kit_model_set(model, 5);
    double start = clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
    (void)kit.ggml_backend_graph_compute(backend, model->graph);
    return clock_seconds(CLOCK_PROCESS_CPUTIME_ID) - start;
}

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare_numbers);
    return values[count / 2];
}

/* The medians of many runs, in turns and each side first every other time: what ran before leaves its memory in the caches. Two rounds
 * out of four are one half of gallocr's runs: how far it is from the other half is the noise. */
static void time_ratio(pair *p, double *ratio, double *noise)
{
    double ours[RUNS], plain[2][RUNS / 2], all[RUNS];
    for (int i = 0; i < RUNS; i++) {
        if (i % 2)
            ours[i] = run_once(&p->ours);
        all[i] = plain[i / 2 % 2][i / 4 * 2 + i % 2] = run_once(&p->plain);
        if (i % 2 == 0)
            ours[i] = run_once(&p->ours);
    }
    *ratio = median(ours, RUNS) / median(all, RUNS);
    *noise = fabs(1 - median(plain[0], RUNS / 2) / median(plain[1], RUNS / 2));
}

/* A graph as the next token's would be: tensors of their own, without places. Placing it is what is measured. */
static double again_ratio(pair *p)
{
    double plain = INFINITY, ours = INFINITY;
    for (int turn = 0; turn < AGAIN; turn++)
        for (int side = 0; side < 2; side++) {
            struct ggml_cgraph *graph = side ? p->ours.graph : p->plain.graph;
            struct ggml_backend_buffer *own = graph->nodes[graph->n_nodes - 1]->buffer;
            for (int i = 0; i < graph->n_leafs + graph->n_nodes; i++) {
                kit_tensor t = i < graph->n_leafs ? graph->leafs[i] : graph->nodes[i - graph->n_leafs];
                if (t->buffer == own)
                    t->buffer = NULL, t->data = NULL;
            }
            double start = seconds();
            if (side)
                must(berth_ggml_graph_allocate(p->graph, graph));
            else if (!kit.ggml_gallocr_alloc_graph(p->galloc, graph))
                exit(1);
            double took = seconds() - start;
            plain = side ? plain : fmin(plain, took);
            ours = side ? fmin(ours, took) : ours;
        }
    return ours / plain;
}

static void compare_outputs(pair *p, const char *name, uint64_t seed)
{
    size_t size, our_size;
    void *plain = kit_model_get(&p->plain, &size), *ours = kit_model_get(&p->ours, &our_size);
    if (size != our_size || memcmp(plain, ours, size) != 0) {
        printf("%s %d: outputs differ\n", name, (int)seed);
        failures++;
    }
    free(plain);
    free(ours);
}

typedef struct tally {
    double least, most, logs, time, noise, again, plan; /* time and what follows: sums over graphs */
    int at_bound, gallocr_at_bound;
} tally;

static void measure(const kit_named_family *family, uint64_t seed, tally *t)
{
    pair p;
    berth_ggml_graph_figures figures = BERTH_GGML_GRAPH_FIGURES_INIT;
    pair_init(&p, family->build, seed);
    must(berth_ggml_graph_figures_get(p.graph, 0, &figures));
    size_t bytes = kit.ggml_gallocr_get_buffer_size(p.galloc, 0);
    double ratio = (double)bytes / (double)figures.planned_bytes;
    t->least = fmin(t->least, ratio);
    t->most = fmax(t->most, ratio);
    t->logs += log(ratio);
    t->plan += log(p.our_plan / p.plain_plan);
    t->at_bound += figures.proven_optimal;
    t->gallocr_at_bound += ratio < 1.001;
    if (figures.planned_bytes > bytes) {
        printf("%s %d: %llu bytes, gallocr %zu\n", family->name, (int)seed,
               (unsigned long long)figures.planned_bytes, bytes);
        failures++;
    }
    if (seed < RUN_SEEDS) {
        double time, noise;
        time_ratio(&p, &time, &noise);
        t->time += log(time);
        t->noise += noise;
        compare_outputs(&p, family->name, seed);
    }
    t->again += log(again_ratio(&p));
    pair_finish(&p);
}

static bool check_family(const char *name, const tally *t)
{
    bool holds =
        check_at_most("time of a run", exp(t->time / RUN_SEEDS), TIME_AT_MOST, t->noise / RUN_SEEDS, "x");
    holds &= check_at_least("plans proven to be the least", t->at_bound, SEEDS, "");
    if (strcmp(name, DIRECT_UNETS) == 0)
        holds &=
            check_at_least("gallocr's bytes over Berth's, mean", exp(t->logs / SEEDS), DIRECT_AT_LEAST, "x");
    return holds;
}

int main(int argc, char **argv)
{
    const bool checks = check_is_asked(&argc, argv);
    bool holds = true;
    berth_ggml_buffer_type_options options = BERTH_GGML_BUFFER_TYPE_OPTIONS_INIT;
    if (!kit_open(kit_folder(argc, argv)))
        return 77;
    backend = kit_backend(1);
    plain_type = kit.ggml_backend_get_default_buffer_type(backend);
    options.alignment = kit.ggml_backend_buft_get_alignment(plain_type);
    must(berth_ggml_buffer_type_create(berth_cpu_allocator(), &options, &our_type));
    printf("ggml %s: %d graphs a family; bytes are gallocr's over Berth's (above 1: Berth needs less), times "
           "Berth's over\n"
           "gallocr's (below 1: Berth is faster); means are geometric\n\n",
           berth_ggml_version(), SEEDS);
    printf("%-14s %27s %12s %12s %8s %8s %8s\n", "", "bytes: least mean most", "proven least", "gallocr too",
           "run", "again", "plan");
    tally *tallies = calloc((size_t)kit_family_count, sizeof *tallies);
    if (!tallies)
        return 1;
    for (int i = 0; i < kit_family_count; i++) {
        tally t = {.least = INFINITY};
        for (uint64_t seed = 0; seed < SEEDS; seed++)
            measure(&kit_families[i], seed, &t);
        tallies[i] = t;
        printf("%-14s %12.3f %6.3f %7.3f %9d/%d %9d/%d %8.3f %8.2f %8.2f\n", kit_families[i].name, t.least,
               exp(t.logs / SEEDS), t.most, t.at_bound, SEEDS, t.gallocr_at_bound, SEEDS,
               exp(t.time / RUN_SEEDS), exp(t.again / SEEDS), exp(t.plan / SEEDS));
    }
    for (int i = 0; i < kit_family_count; i++) {
        printf("\n%s\n", kit_families[i].name);
        holds &= check_family(kit_families[i].name, &tallies[i]);
    }
    printf("\n%s\n", failures ? "FAILED" : "never above gallocr, outputs equal bit for bit");
    free(tallies);
    berth_ggml_buffer_type_release(our_type);
    kit.ggml_backend_free(backend);
    return failures > 0 || (checks && !holds);
}
