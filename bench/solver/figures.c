/* The planner's figures, one line each: what was reached, what is to be reached.
 *
 *     build-bench/bench/solver_figures [--data FOLDER] [--seeds N] [--first-seed S] [--large N] [--plot FILE.svg] [--check]
 *                                      [PART...]
 *
 * Parts: hard, real, max, programs, large, budget, tilings, growth, phases; all without. With --check the exit status is 1 if
 * real, max, programs or budget misses what is to be reached. FOLDER (or BERTH_DATA) holds the planner instances
 * as planner/minimalloc/A.1048576.csv and so on; without it hard, real and max are left out, and it is said. Times
 * are of the process's processor time, without reading files, so that a busy machine disturbs them less. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "berth/problem_file.h"
#include "plan_families.h"
#include "planner/exact/exact.h"

static const char *data_folder;
static unsigned seeds = 10;
static uint64_t first_seed = 1;
static size_t large = 1000000;
static unsigned missed;

/* What to say behind a figure, and counts it. */
static const char *judge(bool is_reached)
{
    missed += !is_reached;
    return is_reached ? "" : ", MISSED";
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct outcome {
    double seconds, ratio;
    double near_seconds; /* until the plan was within 1.001 of the bound; 0: it never was */
    long memory_mib;
    bool optimal, fits, valid;
    char phase[32];
} outcome;

typedef struct watch {
    double start, end, near_seconds;
} watch;

static berth_stop until(void *context, const berth_progress *progress)
{
    watch *w = context;
    const double time = now();
    if (w->near_seconds == 0 && progress->best_bytes != UINT64_MAX &&
        (double)progress->best_bytes <= 1.001 * (double)progress->lower_bound_bytes)
        w->near_seconds = time - w->start;
    return time > w->end ? BERTH_STOP_CLOCK : BERTH_STOP_DONE;
}

/* Plans once; `budget` seconds at most, 0: as the effort says. */
static outcome plan_once(const berth_problem *problem, uint64_t seed, berth_effort effort, double budget)
{
    uint64_t *offsets = malloc((problem->buffer_count + 1) * sizeof *offsets);
    const double start = now();
    watch w = {.start = start, .end = start + budget};
    berth_solve_options options = {.struct_size = sizeof options, .seed = seed, .effort = effort};
    if (budget > 0) {
        options.progress = until;
        options.context = &w;
    }
    berth_certificate c = {.struct_size = sizeof c};
    outcome o = {0};
    if (berth_solve(problem, &options, offsets, &c) == BERTH_OK) {
        struct rusage usage;
        o.seconds = now() - start;
        getrusage(RUSAGE_SELF, &usage);
        o.memory_mib = usage.ru_maxrss / 1024;
        o.ratio = c.lower_bound_bytes ? (double)c.peak_bytes / (double)c.lower_bound_bytes : 1.0;
        o.near_seconds = w.near_seconds > 0 ? w.near_seconds : o.ratio <= 1.001 ? o.seconds : 0;
        o.optimal = c.proven_optimal;
        o.fits = c.fits == BERTH_FITS_YES;
        o.valid = berth_problem_check(problem, offsets, NULL) == BERTH_OK;
        snprintf(o.phase, sizeof o.phase, "%s", c.solver);
    }
    free(offsets);
    return o;
}

/* ---- MiniMalloc's hard instances ---- */

typedef struct hard {
    const char *file;
    uint64_t capacity;
    double mean_at_most, worst_at_most;
} hard;

static bool read_problem(const char *path, berth_problem_file **file)
{
    if (berth_problem_file_read(path, file) == BERTH_OK)
        return true;
    printf("  %s: %s\n", path, berth_last_error()->message);
    return false;
}

static double plan_hard(const hard *h)
{
    char path[512];
    snprintf(path, sizeof path, "%s/planner/minimalloc/%s", data_folder, h->file);
    berth_problem_file *file;
    if (!read_problem(path, &file))
        return 0;
    berth_problem problem = *berth_problem_file_problem(file);
    problem.capacity_bytes = h->capacity;
    double sum = 0, worst = 0;
    unsigned fit = 0;
    for (unsigned seed = 1; seed <= seeds; seed++) {
        outcome o = plan_once(&problem, seed, BERTH_EFFORT_MAX, 60);
        fit += o.fits && o.valid;
        sum += o.seconds;
        worst = o.seconds > worst ? o.seconds : worst;
    }
    printf("  %-16s at %8llu: %2u of %u seeds, mean %8.4f s (to reach: %g), worst %8.4f s (%g)\n", h->file,
           (unsigned long long)h->capacity, fit, seeds, sum / seeds, h->mean_at_most, worst,
           h->worst_at_most);
    berth_problem_file_destroy(file);
    return sum / seeds;
}

/* The exact search alone on the baseline path, as a multiple of the best path. */
static void compare_paths(void)
{
    double seconds[2] = {0, 0};
    static const char letters[] = "ACDEGJ";
    for (const char *l = letters; *l; l++) {
        char path[512];
        snprintf(path, sizeof path, "%s/planner/minimalloc/%c.1048576.csv", data_folder, *l);
        berth_problem_file *file;
        if (!read_problem(path, &file))
            return;
        berth__prepared prepared;
        if (berth__prepared_init(&prepared, berth_problem_file_problem(file)) == BERTH_OK) {
            uint64_t *offsets = malloc(prepared.item_count * sizeof *offsets);
            for (int k = 0; k < 2; k++) {
                berth__exact *exact;
                berth__exact_answer answer;
                berth__search search = {
                    .prepared = &prepared, .step_budget = UINT64_MAX, .best_peak = UINT64_MAX};
                double start = now();
                if (berth__exact_create(&prepared, 1, k ? BERTH__EXACT_BASELINE : BERTH__EXACT_BEST,
                                        &exact) == BERTH_OK)
                    berth__exact_run(exact, &search, 1048576 / prepared.unit_bytes, UINT64_MAX, offsets,
                                     &answer);
                seconds[k] += now() - start;
                berth__exact_destroy(exact);
            }
            free(offsets);
            berth__prepared_finish(&prepared);
        }
        berth_problem_file_destroy(file);
    }
    printf("  baseline path: %.2f times the best path (to reach: 4)\n", seconds[1] / seconds[0]);
}

static void part_hard(void)
{
    static const hard all[] = {
        {"A.1048576.csv", 1048576, 0.15, 1}, {"C.1048576.csv", 1048576, 0.15, 1},
        {"D.1048576.csv", 1048576, 0.15, 1}, {"E.1048576.csv", 1048576, 0.15, 1},
        {"G.1048576.csv", 1048576, 0.15, 1}, {"J.1048576.csv", 1048576, 0.15, 1},
    };
    /* Their lower bounds; J's was not known to be reachable. */
    static const hard tight[] = {{"C.1048576.csv", 1039360, 0.01, 0.01},
                                 {"D.1048576.csv", 986112, 60, 60},
                                 {"J.1048576.csv", 989184, 60, 60}};
    printf("hard: MiniMalloc's challenging set\n");
    double together = 0;
    for (size_t k = 0; k < BERTH_COUNT_OF(all); k++)
        together += plan_hard(&all[k]);
    printf("  the six together %.4f s (to reach: 0.3)\n", together);
    compare_paths();
    for (size_t k = 0; k < BERTH_COUNT_OF(tight); k++)
        plan_hard(&tight[k]);
}

/* ---- Real traces, models and graphs ---- */

/* Calls `look` for every instance of the folders. */
static void visit(const char *const *folders, size_t count,
                  void (*look)(const char *name, const berth_problem *problem))
{
    unsigned looked_at = 0;
    for (size_t k = 0; k < count; k++) {
        char folder[512];
        snprintf(folder, sizeof folder, "%s/planner/%s", data_folder, folders[k]);
        DIR *dir = opendir(folder);
        for (struct dirent *entry; dir && (entry = readdir(dir));) {
            if (!strstr(entry->d_name, ".csv"))
                continue;
            char path[1024];
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            berth_problem_file *file;
            if (!read_problem(path, &file))
                continue;
            looked_at++;
            look(entry->d_name, berth_problem_file_problem(file));
            berth_problem_file_destroy(file);
        }
        if (dir)
            closedir(dir);
    }
    if (!looked_at)
        printf("  no instances in %s/planner%s\n", data_folder, judge(false));
}

static void look_real(const char *name, const berth_problem *problem)
{
    outcome best = {.seconds = 1e9};
    for (int round = 0; round < 5; round++) {
        outcome o = plan_once(problem, 1, BERTH_EFFORT_DEFAULT, 0);
        best = o.seconds < best.seconds ? o : best;
    }
    printf("  %-56s %.5f of the bound in %7.2f ms, by %s%s\n", name, best.ratio, best.seconds * 1e3,
           best.phase, judge(best.optimal && best.valid));
}

static void part_real(void)
{
    static const char *const folders[] = {"traces", "models", "graphs"};
    printf("real: traces, models and graphs, each proven at the bound; most within 20 ms\n");
    visit(folders, BERTH_COUNT_OF(folders), look_real);
}

static void look_max(const char *name, const berth_problem *problem)
{
    const outcome usual = plan_once(problem, 1, BERTH_EFFORT_DEFAULT, 0),
                  most = plan_once(problem, 1, BERTH_EFFORT_MAX, 0);
    printf("  %-56s %.5f in %7.3f s, by default %.5f in %7.3f s%s\n", name, most.ratio, most.seconds,
           usual.ratio, usual.seconds, judge(most.valid && most.ratio <= usual.ratio && most.seconds <= 60));
}

static void part_max(void)
{
    static const char *const folders[] = {"traces", "models", "graphs", "minimalloc"};
    printf("max: --effort max, never worse than the default and within 60 s\n");
    visit(folders, BERTH_COUNT_OF(folders), look_max);
}

/* ---- Generated families, each in a process of its own so that its memory can be told ---- */

static outcome plan_apart(const family *which, size_t count, uint64_t seed, berth_effort effort,
                          double budget)
{
    int ends[2];
    outcome o = {0};
    fflush(stdout);
    if (pipe(ends))
        return o;
    pid_t child = fork();
    if (child == 0) {
        berth_problem problem;
        family_make(which, count, seed, &problem);
        o = plan_once(&problem, seed, effort, budget);
        _exit(write(ends[1], &o, sizeof o) == sizeof o ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], &o, sizeof o) != sizeof o)
        o.valid = false;
    close(ends[0]);
    waitpid(child, NULL, 0);
    return o;
}

/* A budget of several seconds is one that somebody has asked for, and then there is no other. */
static void show(const family *which, size_t count, double budget, const char *aim)
{
    outcome o = plan_apart(which, count, 1, budget > 2 ? BERTH_EFFORT_MAX : BERTH_EFFORT_DEFAULT, budget);
    printf("  %-10s %8zu buffers: %.6f of the bound in %6.3f s, %4ld MiB, by %s%s", which->name, count,
           o.ratio, o.seconds, o.memory_mib, o.phase, o.valid ? "" : ", INVALID");
    if (o.near_seconds > 0)
        printf(", 1.001 after %.3f s", o.near_seconds);
    printf("%s\n", aim);
}

/* What large real programs look like, in sizes beyond those of the phases' table: mean and worst of the seeds. */
static void part_programs(void)
{
    static const size_t counts[] = {20000, 80000, 150000};
    printf(
        "programs: within 1.001 of the bound in 1 s each, decode at the bound in 0.5 s; %u seeds from %llu\n",
        seeds, (unsigned long long)first_seed);
    for (size_t k = 0; k < PROGRAMS; k++)
        for (size_t c = 0; c < BERTH_COUNT_OF(counts); c++) {
            double ratio = 0, worst = 0, seconds = 0, slowest = 0;
            unsigned invalid = 0;
            for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++) {
                const outcome o = plan_apart(&programs[k], counts[c], seed, BERTH_EFFORT_DEFAULT, 0);
                ratio += o.ratio / seeds;
                seconds += o.seconds / seeds;
                worst = o.ratio > worst ? o.ratio : worst;
                slowest = o.seconds > slowest ? o.seconds : slowest;
                invalid += !o.valid;
            }
            const bool is_reached = strncmp(programs[k].name, "decode", 6) == 0
                                        ? worst <= 1 && slowest <= 0.5
                                        : worst <= 1.001 && slowest <= 1;
            printf("  %-13s %6zu buffers: mean %.6f in %.3f s, worst %.6f, slowest %.3f s%s%s\n",
                   programs[k].name, counts[c], ratio, seconds, worst, slowest, invalid ? ", INVALID" : "",
                   judge(is_reached && !invalid));
        }
}

static void part_large(void)
{
    printf("large: within 1 s each for %zu, 0.1 s for %zu\n", large, large / 10);
    for (size_t k = 0; k < FAMILIES; k++) {
        const bool is_cut =
            strcmp(families[k].name, "tiling") == 0 || strcmp(families[k].name, "mosaic") == 0;
        show(&families[k], large, is_cut ? 5 : 1,
             k < 3    ? " (to reach: 1.001)"
             : is_cut ? " (1.12 in 5 s)"
                      : "");
        if (k < 3)
            show(&families[k], large / 10, 0.1, " (to reach: 1.001)");
    }
}

/* What a budget is kept above: nobody can stop preparing. */
static double seconds_to_prepare(const berth_problem *problem)
{
    berth__prepared prepared;
    const double start = now();
    if (berth__prepared_init(&prepared, problem) == BERTH_OK)
        berth__prepared_finish(&prepared);
    return now() - start;
}

static void part_budget(void)
{
    static const double budgets[] = {0.05, 0.1, 0.5, 2};
    const size_t counts[] = {large / 10, large};
    printf("budget: seconds beyond it and beyond preparing, at most 5 %% of it or 20 ms\n");
    for (size_t k = 0; k < 3; k++)
        for (size_t c = 0; c < BERTH_COUNT_OF(counts); c++) {
            berth_problem problem;
            family_make(&families[k], counts[c], first_seed, &problem);
            const double preparing = seconds_to_prepare(&problem);
            printf("  %-10s %8zu buffers, prepared in %.3f s:", families[k].name, counts[c], preparing);
            bool is_kept = true;
            for (size_t b = 0; b < BERTH_COUNT_OF(budgets); b++) {
                const outcome o = plan_once(&problem, 1, BERTH_EFFORT_MAX, budgets[b]);
                const double over = o.seconds - preparing - budgets[b];
                is_kept &= o.valid && over <= (budgets[b] > 0.4 ? budgets[b] / 20 : 0.02);
                printf(" %g s %+.3f at %.5f%s", budgets[b], over, o.ratio, b < 3 ? "," : "");
            }
            printf("%s\n", judge(is_kept));
            family_free(&problem);
        }
}

static void part_tilings(void)
{
    static const struct {
        size_t count;
        double seconds;
    } sizes[] = {{100, 0.05}, {400, 0.05}, {700, 2}, {1000, 2}};
    printf("tilings: perfect ones, exact; mosaics beside them, which are harder\n");
    for (size_t f = 3; f < 5; f++)
        for (size_t k = 0; k < BERTH_COUNT_OF(sizes); k++) {
            unsigned exact = 0;
            double sum = 0, ratio = 0;
            for (unsigned seed = 1; seed <= seeds; seed++) {
                berth_problem problem;
                family_make(&families[f], sizes[k].count, seed, &problem);
                outcome o = plan_once(&problem, seed, BERTH_EFFORT_MAX, 2);
                exact += o.optimal && o.valid;
                sum += o.seconds;
                ratio += o.ratio;
                family_free(&problem);
            }
            printf("  %-8s %5zu buffers: %2u of %u exact, mean %.4f s (to reach: %g), mean ratio %.4f\n",
                   families[f].name, sizes[k].count, exact, seeds, sum / seeds, sizes[k].seconds,
                   ratio / seeds);
        }
}

/* ---- Growth ---- */

enum { GROWTH = 4, GROWING = FAMILIES + PROGRAMS };

static const family *growing(int k)
{
    return k < FAMILIES ? &families[k] : &programs[k - FAMILIES];
}

/* The slope of the straight line through the logarithms of both. */
static double exponent_of(const size_t *counts, const double *seconds)
{
    double x = 0, y = 0, xx = 0, xy = 0;
    for (int k = 0; k < GROWTH; k++) {
        const double lx = log((double)counts[k]), ly = log(seconds[k]);
        x += lx;
        y += ly;
        xx += lx * lx;
        xy += lx * ly;
    }
    return (GROWTH * xy - x * y) / (GROWTH * xx - x * x);
}

static double seconds_to(const family *which, size_t count)
{
    double least = 1e9;
    for (int round = 0; round < (count < 1000000 ? 3 : 1); round++) {
        const outcome o = plan_apart(which, count, first_seed, BERTH_EFFORT_DEFAULT, 100);
        const double taken = o.near_seconds > 0 ? o.near_seconds : o.seconds;
        least = taken < least ? taken : least;
    }
    return least > 1e-6 ? least : 1e-6;
}

/* A line each on logarithmic axes, 10^-5 to 10 s; the last number is the exponent. */
static void draw_growth(FILE *out, const size_t *counts, double seconds[GROWING][GROWTH])
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 520 300\" font-family=\"sans-serif\" "
            "font-size=\"11\">\n<rect width=\"520\" height=\"300\" fill=\"white\"/>\n"
            "<text x=\"10\" y=\"16\">seconds, 10^-5 to 10, over buffers, 10^3 to 10^6</text>\n");
    for (int f = 0; f < GROWING; f++) {
        fprintf(out, "<polyline fill=\"none\" stroke=\"hsl(%d,70%%,40%%)\" stroke-width=\"2\" points=\"",
                f * 360 / GROWING);
        for (int k = 0; k < GROWTH; k++)
            fprintf(out, "%d,%.1f ", 40 + 100 * k, 70 - 40 * log10(seconds[f][k]));
        fprintf(out, "\"/>\n<text x=\"380\" y=\"%d\" fill=\"hsl(%d,70%%,40%%)\">%s %.2f</text>\n",
                40 + 14 * f, f * 360 / GROWING, growing(f)->name, exponent_of(counts, seconds[f]));
    }
    fprintf(out, "</svg>\n");
}

static void part_growth(const char *svg)
{
    static const size_t counts[GROWTH] = {1000, 10000, 100000, 1000000};
    double seconds[GROWING][GROWTH];
    printf("growth: processor seconds until the plan is within 1.001 of the bound, or all steps are used\n"
           "  %-14s",
           "buffers");
    for (int k = 0; k < GROWTH; k++)
        printf(" %9zu", counts[k]);
    printf("\n");
    for (int f = 0; f < GROWING; f++) {
        printf("  %-14s", growing(f)->name);
        for (int k = 0; k < GROWTH; k++) {
            seconds[f][k] = seconds_to(growing(f), counts[k]);
            printf(" %9.5f", seconds[f][k]);
            fflush(stdout);
        }
        printf("  exponent %.2f\n", exponent_of(counts, seconds[f]));
    }
    FILE *out = svg ? fopen(svg, "w") : NULL;
    if (out) {
        draw_growth(out, counts, seconds);
        fclose(out);
        printf("  drawn in %s\n", svg);
    }
}

/* What each phase is worth: every family of programs without it, as a table for docs/planner.md. */
static void part_phases(void)
{
    enum { MOST = 80000 };
    const unsigned each = seeds < 3 ? seeds : 3;
    static const struct {
        const family *which;
        size_t count;
    } types[] = {{&families[4], 20000}, {&families[5], 20000}, {&programs[0], 20000},
                 {&programs[4], 20000}, {&programs[1], MOST},  {&programs[2], MOST},
                 {&programs[3], MOST},  {&programs[5], MOST},  {&programs[6], MOST}};
    enum { TYPES = BERTH_COUNT_OF(types) };
    printf("phases: peak over bound and processor seconds without a phase, mean of %u\n\n| without |", each);
    for (int f = 0; f < TYPES; f++)
        printf(" %s, %zu |", types[f].which->name, types[f].count);
    printf("\n|---");
    for (int f = 0; f < TYPES; f++)
        printf("|---");
    printf("|\n");
    for (size_t k = 0; k == 0 || berth_phase_name(k - 1); k++) {
        const char *without = k ? berth_phase_name(k - 1) : NULL;
        bool is_known = false;
        for (size_t j = 0; without && j + 1 < k; j++)
            is_known |= strcmp(berth_phase_name(j), without) == 0;
        if (is_known)
            continue;
        printf("| %s |", without ? without : "(nothing)");
        for (int f = 0; f < TYPES; f++) {
            double ratio = 0, seconds = 0;
            for (uint64_t seed = first_seed; seed < first_seed + each; seed++) {
                berth_problem problem;
                uint64_t *offsets = malloc(MOST * sizeof *offsets);
                berth_certificate c = {.struct_size = sizeof c};
                berth_solve_options options = {.struct_size = sizeof options, .without = without};
                family_make(types[f].which, types[f].count, seed, &problem);
                const double start = now();
                if (berth_solve(&problem, &options, offsets, &c) == BERTH_OK && c.lower_bound_bytes)
                    ratio += (double)c.peak_bytes / (double)c.lower_bound_bytes / each;
                seconds += (now() - start) / each;
                free(offsets);
                family_free(&problem);
            }
            printf(" %.4f %.2f |", ratio, seconds);
            fflush(stdout);
        }
        printf("\n");
    }
}

/* The parts in the order in which they run; growth draws in `svg`. */
static void run_part(const char *name, const char *svg)
{
    static const struct {
        const char *name;
        void (*run)(void);
        bool needs_data;
    } parts[] = {{"hard", part_hard, true},        {"real", part_real, true},
                 {"max", part_max, true},          {"programs", part_programs, false},
                 {"large", part_large, false},     {"budget", part_budget, false},
                 {"tilings", part_tilings, false}, {"phases", part_phases, false}};
    if (strcmp(name, "growth") == 0)
        part_growth(svg);
    for (size_t k = 0; k < BERTH_COUNT_OF(parts); k++)
        if (strcmp(name, parts[k].name) == 0 && parts[k].needs_data && !data_folder)
            printf("%s: left out, there are no instances; name their folder with --data or BERTH_DATA\n",
                   name);
        else if (strcmp(name, parts[k].name) == 0)
            parts[k].run();
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const char *svg = NULL, *parts[9];
    int part_count = 0;
    bool is_checked = false;
    data_folder = getenv("BERTH_DATA");
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int k = 1; k < argc; k++) {
        const char *value = k + 1 < argc ? argv[k + 1] : NULL;
        if (strcmp(argv[k], "--data") == 0 && value)
            data_folder = argv[++k];
        else if (strcmp(argv[k], "--seeds") == 0 && value)
            seeds = (unsigned)strtoul(argv[++k], NULL, 10);
        else if (strcmp(argv[k], "--first-seed") == 0 && value)
            first_seed = strtoull(argv[++k], NULL, 10);
        else if (strcmp(argv[k], "--large") == 0 && value)
            large = strtoull(argv[++k], NULL, 10);
        else if (strcmp(argv[k], "--plot") == 0 && value)
            svg = argv[++k];
        else if (strcmp(argv[k], "--check") == 0)
            is_checked = true;
        else if (part_count < 9)
            parts[part_count++] = argv[k];
    }
    static const char *const names[] = {"hard",   "real",    "max",    "programs", "large",
                                        "budget", "tilings", "growth", "phases"};
    for (size_t k = 0; k < BERTH_COUNT_OF(names); k++) {
        bool wanted = part_count == 0;
        for (int p = 0; p < part_count; p++)
            wanted |= strcmp(parts[p], names[k]) == 0;
        if (wanted)
            run_part(names[k], svg);
    }
    for (int p = 0; p < part_count; p++) {
        bool is_known = false;
        for (size_t k = 0; k < BERTH_COUNT_OF(names); k++)
            is_known |= strcmp(parts[p], names[k]) == 0;
        if (!is_known) {
            fprintf(stderr, "there is no part '%s'\n", parts[p]);
            return 2;
        }
    }
    if (is_checked)
        printf("missed: %u\n", missed);
    return is_checked && missed ? 1 : 0;
}
