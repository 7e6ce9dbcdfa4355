/* TensorFlow Lite with its own arena and with places of Berth's: fetched models, and large graphs drawn at random, in
 * which the arena is most of the process. Every way of running is a process of its own; ways take turns, and the
 * fastest run of each counts. Exits 1 if outputs differ or an arena grows; with --check also if a figure is missed.
 *
 * usage: runtimes_tflite [--check] FOLDER    what tools/runtimes tflite printed */
#include <libgen.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../examples/tflite/measure.h"
#include "../../../examples/tflite/program.h"
#include "../check.h"

#define DRAWN_FOLDER "drawn"
#define DRAWN_ELEMENTS "2097152" /* 8 MiB of input */

enum { RUNS = 3, TURNS = 3, DRAWN = 6, WAYS = 2 }; /* ways: places, and inputs reused */

#define TIME_AT_MOST 1.02
/* Berth's own code and records, beside what the arena has become smaller by. */
#define RESIDENT_ABOVE_MIB 1.0

typedef struct bench {
    const char *folder;
    int failures;
    int models, at_bound, drawn, drawn_at_bound; /* a way of a model each */
    double logs[WAYS];                           /* of times, Berth's over its own */
    double noise;                                /* how far its own time is from itself, summed over models */
    double worst_time, worst_resident_mib;
} bench;

static double ratio(unsigned long long a, unsigned long long b)
{
    return b ? (double)a / (double)b : 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Every way in turn, TURNS times: the smallest time and the smallest resident memory of each. The noise is how far the two best turns of
 * the interpreter alone are apart. */
static bool bench_measure(bench *b, const char *path, measure_result *results)
{
    double own[TURNS];
    for (int turn = 0; turn < TURNS; turn++)
        for (int way = 0; way < MEASURE_WAYS; way++) {
            measure_result now;
            if (!measure_run(b->folder, path, (measure_way)way, RUNS, NULL, &now))
                return false;
            measure_result *best = &results[way];
            if (way == MEASURE_OWN)
                own[turn] = (double)now.run_ns;
            if (turn > 0 && best->outputs != now.outputs)
                return false;
            if (turn > 0 && best->run_ns < now.run_ns)
                now.run_ns = best->run_ns;
            if (turn > 0 && best->process_kib < now.process_kib)
                now.process_kib = best->process_kib;
            if (turn > 0 && best->tensors_kib < now.tensors_kib)
                now.tensors_kib = best->tensors_kib;
            *best = now;
        }
    qsort(own, TURNS, sizeof *own, by_value);
    b->noise += own[1] / own[0] - 1;
    return true;
}

static void bench_count(bench *b, bool is_drawn, const measure_result *r, const measure_result *own,
                        unsigned long long arena)
{
    const double wanted =
                     (double)own->process_kib / 1024 - ((double)arena - (double)r->arena_bytes) / (1 << 20),
                 above = (double)r->process_kib / 1024 - wanted;
    b->worst_resident_mib = b->models == 1 ? above : fmax(b->worst_resident_mib, above);
    b->drawn += is_drawn;
    b->drawn_at_bound += is_drawn && r->arena_bytes == r->bound_bytes;
}

static bool bench_check(const bench *b)
{
    const double each = (double)b->models / WAYS;
    bool holds =
        check_at_most("time of a run, mean", exp(b->logs[0] / each), TIME_AT_MOST, b->noise / each, "x");
    holds &= check_at_most("time of a run with inputs reused, mean", exp(b->logs[1] / each), TIME_AT_MOST,
                           b->noise / each, "x");
    holds &= check_at_most("resident, above what the arena leaves", b->worst_resident_mib, RESIDENT_ABOVE_MIB,
                           0, "MiB");
    return holds & check_at_least("drawn graphs at the bound", b->drawn_at_bound, WAYS * DRAWN, "");
}

static void bench_row(const char *path, void *self)
{
    bench *b = self;
    char name[1024];
    measure_result results[MEASURE_WAYS];
    snprintf(name, sizeof name, "%s", path);
    if (!bench_measure(b, path, results)) {
        printf("%-40s could not be run the same way twice\n", basename(name));
        b->failures++;
        return;
    }
    const measure_result *own = &results[MEASURE_OWN];
    unsigned long long arena = results[MEASURE_WATCH].interpreter_bytes;
    printf("%-40s %10llu", basename(name), arena);
    for (int way = MEASURE_PLACED; way <= MEASURE_REUSED; way++) {
        const measure_result *r = &results[way];
        bool equal = r->outputs == own->outputs;
        double time = ratio(r->run_ns, own->run_ns);
        printf("  | %6.3f %-5s %6.3f %6.3f %6.3f %s", ratio(r->arena_bytes, arena),
               r->arena_bytes == r->bound_bytes ? "bound" : "", ratio(r->process_kib, own->process_kib),
               ratio(r->tensors_kib, own->tensors_kib), time, equal ? "=" : "DIFFERENT");
        b->failures += !equal || r->arena_bytes > arena;
        b->at_bound += r->arena_bytes == r->bound_bytes;
        b->worst_time = time > b->worst_time ? time : b->worst_time;
        b->logs[way - MEASURE_PLACED] += log(time);
        b->models++;
        bench_count(b, strncmp(basename(name), "random_", 7) == 0, r, own, arena);
    }
    printf("\n");
    fflush(stdout);
}

/* Writes the graphs beside the models, where they are found with them. */
static bool bench_draw(const bench *b)
{
    char folder[1024];
    snprintf(folder, sizeof folder, "%s/" DRAWN_FOLDER, b->folder);
    for (int i = 0; i < DRAWN; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        pid_t child = fork();
        if (child == 0) {
            execlp("python3", "python3", MAKE_MODELS, folder, number, DRAWN_ELEMENTS, (char *)NULL);
            _exit(127);
        }
        int status = 1;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            return false;
    }
    return true;
}

static void bench_forget_drawn(const bench *b)
{
    char path[1024];
    for (int i = 0; i < DRAWN; i++) {
        snprintf(path, sizeof path, "%s/" DRAWN_FOLDER "/random_%d.tflite", b->folder, i);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/" DRAWN_FOLDER, b->folder);
    rmdir(path);
}

int main(int argc, char **argv)
{
    measure_main(argc, argv);
    const bool checks = check_is_asked(&argc, argv);
    lite_calls lite;
    if (argc != 2 || !lite_load(argv[1], &lite)) {
        fprintf(stderr, "usage: runtimes_tflite [--check] FOLDER (what tools/runtimes tflite prints)\n");
        return 2;
    }
    bench b = {.folder = argv[1]};
    if (!bench_draw(&b))
        fprintf(stderr, "python3 could not write the drawn graphs: fetched models only\n");
    printf("TensorFlow Lite %s. Ratios of Berth's to its own: bytes of the arena; resident memory of the "
           "process, and of that "
           "what came with tensors and runs; processor time of a run\n",
           lite.Version());
    printf("%-40s %10s  | %-38s | %s\n", "model", "its arena", "Berth: arena, process, tensors, time",
           "Berth with inputs reused");
    if (!lite_each_model(&lite, b.folder, bench_row, &b))
        b.failures++;
    bench_forget_drawn(&b);
    printf("%d runs: %d plans at the bound; slowest %.3f; %d failures\n", b.models, b.at_bound, b.worst_time,
           b.failures);
    const bool holds = bench_check(&b);
    return b.failures || (checks && !holds) ? 1 : 0;
}
