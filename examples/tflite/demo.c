/* TensorFlow Lite's models with the interpreter's own arena and with places of Berth's, each in a process of its own, and
 * the map of one plan. The three lines that a program needs are in measure.c: create, apply, destroy.
 *
 * usage: demo_tflite FOLDER    what tools/runtimes tflite printed; ./dev demo tflite does both */
#include <berth_tflite.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"
#include "program.h"

enum { RUNS = 3 };

typedef struct demo {
    const char *folder;
    int different;        /* models whose outputs differ, or that could not be run */
    char map_model[1024]; /* the one that gains the most */
    double gain;
} demo;

static void demo_row(const char *path, void *self)
{
    demo *d = self;
    char name[1024];
    measure_result results[MEASURE_WAYS];
    bool fine = true, equal = true;
    snprintf(name, sizeof name, "%s", path);
    for (int way = 0; way < MEASURE_WAYS && fine; way++) {
        fine = measure_run(d->folder, path, (measure_way)way, RUNS, NULL, &results[way]);
        equal = equal && fine && results[way].outputs == results[MEASURE_OWN].outputs;
    }
    if (!fine || !equal)
        d->different++;
    if (!fine) {
        printf("%-40s could not be run\n", basename(name));
        return;
    }
    const measure_result *own = &results[MEASURE_WATCH], *placed = &results[MEASURE_PLACED],
                         *reused = &results[MEASURE_REUSED];
    double gain = (double)own->interpreter_bytes / (double)placed->arena_bytes;
    if (gain > d->gain) {
        d->gain = gain;
        snprintf(d->map_model, sizeof d->map_model, "%s", path);
    }
    printf("%-40s %10llu %10llu %10llu   %7llu %7llu %7llu   %s\n", basename(name), own->interpreter_bytes,
           placed->arena_bytes, reused->arena_bytes, results[MEASURE_OWN].process_kib, placed->process_kib,
           reused->process_kib, equal ? "equal" : "DIFFERENT");
    fflush(stdout);
}

/* `berth show` is beside the folder of the examples. */
static void demo_map(const demo *d, char *program)
{
    char plan_file[1024], name[1024], berth[1024];
    measure_result result;
    snprintf(plan_file, sizeof plan_file, "%s/demo.plan.csv", d->folder);
    snprintf(name, sizeof name, "%s", d->map_model);
    snprintf(berth, sizeof berth, "%s/../berth", dirname(program));
    if (!measure_run(d->folder, d->map_model, MEASURE_PLACED, 1, plan_file, &result))
        return;
    printf("\nthe plan of %s (%s), time across, addresses upward:\n", basename(name), plan_file);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl(berth, "berth", "show", plan_file, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    if (child > 0)
        waitpid(child, &status, 0);
    if (status != 0)
        printf("berth show %s draws it\n", plan_file);
}

int main(int argc, char **argv)
{
    measure_main(argc, argv);
    if (argc != 2) {
        fprintf(stderr, "usage: demo_tflite FOLDER (what tools/runtimes tflite prints)\n");
        return 2;
    }
    demo d = {.folder = argv[1]};
    lite_calls lite;
    if (!lite_load(d.folder, &lite))
        return 77;
    printf("TensorFlow Lite %s: bytes of the arena, and resident memory of the process in KiB\n",
           lite.Version());
    printf("%-40s %10s %10s %10s   %7s %7s %7s   %s\n", "", "arena", "", "and inputs", "resident", "",
           "and inp.", "");
    printf("%-40s %10s %10s %10s   %7s %7s %7s   %s\n", "model", "its own", "Berth", "reused", "its own",
           "Berth", "reused", "outputs");
    if (!lite_each_model(&lite, d.folder, demo_row, &d)) {
        fprintf(stderr, "no model in %s\n", d.folder);
        return 77;
    }
    if (d.map_model[0])
        demo_map(&d, argv[0]);
    return d.different ? 1 : 0;
}
