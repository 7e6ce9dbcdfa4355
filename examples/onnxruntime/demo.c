/* demo_onnxruntime FOLDER [PLAN.csv [SIZES]]: an OCR detector at twenty sizes of its input, then again and again at one, in ONNX Runtime
 * alone and on Berth: what is held, what a run takes, that outputs are the same, and the map of one plan. FOLDER is what
 * tools/runtimes prints. The lines that a program needs are in worker.c (open_site) and model.c (make_options, model_try). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "worker.h"

#define LIBRARY "onnxruntime-node/bin/napi-v6/linux/x64/libonnxruntime.so.1"
#define DETECTOR "ocr-models/assets/ch_PP-OCRv4_det_infer.onnx"
#define MIB 1048576.0

enum { SIZES = 20, AGAIN = 10 };

static const struct {
    const char *name;
    model_memory kind;
} ways[] = {{"its arena and memory pattern", MODEL_ARENA},
            {"its arena off", MODEL_HEAP},
            {"Berth's pool", MODEL_BERTH},
            {"Berth's plans, and the pool", MODEL_BERTH_PLANNED}};
enum { WAYS = sizeof ways / sizeof *ways };

typedef struct line {
    double changing_ms, again_ms; /* all sizes together; the best of one size */
    worker_figures figures;
} line;

/* Heights and widths come and go as pages do, between 320 and 960. */
static void size_of_run(int i, model_shape *shapes)
{
    const int64_t height = 320 + 32 * ((i * 7) % 21), width = 320 + 32 * ((i * 11) % 21);
    memset(shapes, 0, MODEL_TENSORS * sizeof *shapes);
    shapes[0] = (model_shape){4, {1, 3, height, width}};
}

static bool run_in_turns(worker *workers, const model_shape *shapes, double *ms)
{
    uint64_t hash = 0;
    bool is_equal = true;
    for (int w = 0; w < WAYS; w++) {
        worker_run_answer answer = worker_run(&workers[w], shapes);
        ms[w] = answer.ms;
        is_equal &= w == 0 || answer.hash == hash;
        hash = answer.hash;
    }
    return is_equal;
}

static bool measure(const char *library, const char *file, const char *plan_file, int sizes, line *lines)
{
    worker workers[WAYS];
    model_shape shapes[MODEL_TENSORS];
    double ms[WAYS];
    bool is_equal = true;
    for (int w = 0; w < WAYS; w++) {
        worker_task task = {library, file, ways[w].kind, false, plan_file};
        workers[w] = worker_start(&task);
    }
    for (int i = 0; i < sizes; i++) {
        size_of_run(i, shapes);
        is_equal &= run_in_turns(workers, shapes, ms);
        for (int w = 0; w < WAYS; w++)
            lines[w].changing_ms += ms[w];
    }
    for (int i = 0; i < AGAIN; i++) {
        is_equal &= run_in_turns(workers, shapes, ms);
        for (int w = 0; w < WAYS; w++)
            if (i == 0 || ms[w] < lines[w].again_ms)
                lines[w].again_ms = ms[w];
    }
    for (int w = 0; w < WAYS; w++)
        lines[w].figures = worker_finish(&workers[w]);
    return is_equal;
}

static void print_table(const line *lines)
{
    printf("%-30s %14s %12s %14s %12s %14s\n", "", "changing sizes", "one again", "allocator", "after trim",
           "process, after");
    for (int w = 0; w < WAYS; w++) {
        const worker_figures *f = &lines[w].figures;
        printf("%-30s %11.0f ms %9.1f ms", ways[w].name, lines[w].changing_ms, lines[w].again_ms);
        if (ways[w].kind == MODEL_HEAP)
            printf(" %14s %12s", "-", "-");
        else
            printf(" %10.1f MiB %8.1f MiB", (double)f->held_bytes / MIB, (double)f->trimmed_held_bytes / MIB);
        printf(" %5.0f, %3.0f MiB\n", (double)f->resident_bytes / MIB,
               (double)f->trimmed_resident_bytes / MIB);
    }
}

/* `berth show` is beside the folder of the examples. */
static void print_map(const char *program, const char *plan_file)
{
    char berth[4096];
    const char *slash = strrchr(program, '/');
    snprintf(berth, sizeof berth, "%.*s/../berth", slash ? (int)(slash - program) : 1, slash ? program : ".");
    printf("\nthe plan of the last size (%s), time across, addresses upward:\n", plan_file);
    fflush(NULL);
    pid_t process = fork();
    if (process == 0) {
        execl(berth, "berth", "show", plan_file, (char *)NULL);
        _exit(127);
    }
    int code = 0;
    if (process < 0 || waitpid(process, &code, 0) < 0 || code != 0)
        printf("berth show %s draws it\n", plan_file);
}

int main(int argc, char **argv)
{
    char library[4096], file[4096], plan_file[4096];
    line lines[WAYS];
    memset(lines, 0, sizeof lines);
    if (argc < 2) {
        fprintf(stderr,
                "usage: %s FOLDER [PLAN.csv [SIZES]]; tools/runtimes onnxruntime fetches one and prints its "
                "name\n",
                argv[0]);
        return 2;
    }
    snprintf(library, sizeof library, "%s/%s", argv[1], LIBRARY);
    snprintf(file, sizeof file, "%s/%s", argv[1], DETECTOR);
    snprintf(plan_file, sizeof plan_file, "%s", argc > 2 ? argv[2] : "build/onnxruntime.plan.csv");
    int sizes = argc > 3 && atoi(argv[3]) > 0 ? atoi(argv[3]) : SIZES;
    printf("an OCR detector in ONNX Runtime, %d runs at changing sizes, then one size %d times more; one "
           "thread\n\n",
           sizes, AGAIN);
    bool is_equal = measure(library, file, plan_file, sizes, lines);
    print_table(lines);
    printf("\noutputs are %s\n", is_equal ? "equal bit for bit" : "DIFFERENT");
    const berth_ort_figures *planned = &lines[WAYS - 1].figures.ort;
    printf("runs recorded: %llu, replayed: %llu; of their requests %llu from plans, %llu outputs, %llu "
           "otherwise\n",
           (unsigned long long)planned->recorded, (unsigned long long)planned->replayed,
           (unsigned long long)planned->from_plan, (unsigned long long)planned->outside_plan,
           (unsigned long long)planned->by_fallback);
    print_map(argv[0], plan_file);
    return is_equal ? 0 : 1;
}
