/* runtimes_onnxruntime FOLDER [ROUNDS]: memory and time of models in ONNX Runtime, alone and on Berth. Ways take turns run by run, each in a
 * process of its own with one thread; times are the processor's, the best of a few rounds for each run, and compared as ratios. Fails
 * if outputs differ or memory exceeds its figure; times of a busy machine are for people to judge. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <worker.h>

#define LIBRARY "onnxruntime-node/bin/napi-v6/linux/x64/libonnxruntime.so.1"
#define MIB 1048576.0

#define RETAINED_AT_MOST 0.70
#define TRIMMED_AT_MOST_MIB 20.0
#define TIME_AT_MOST 1.02
#define REPLAY_AT_MOST 1.00

/* Where what is alive at once is itself more, nothing can hold less: at most so much above that. */
#define RETAINED_ABOVE_PEAK 1.05

enum { SIZES = 20, AGAIN = 20, ROUNDS = 3, ROUNDS_MOST = 20 };
/* The arena twice: how far it is from itself tells what a ratio of times is worth. */
enum { ARENA, POOL, PLANNED, ARENA_TOO, WAYS };
static const model_memory kinds[WAYS] = {MODEL_ARENA, MODEL_BERTH, MODEL_BERTH_PLANNED, MODEL_ARENA};

/* Shapes of run `i`. */
typedef void (*shapes_fn)(int i, model_shape *shapes);

/* Pages: heights and widths that come and go. */
static void detector_shapes(int i, model_shape *shapes)
{
    shapes[0] = (model_shape){4, {1, 3, 320 + 32 * ((i * 7) % 21), 320 + 32 * ((i * 11 + 5) % 21)}};
}

/* Lines of text of any length, a few at a time. */
static void recogniser_shapes(int i, model_shape *shapes)
{
    shapes[0] = (model_shape){4, {1 + i % 3, 3, 48, 160 + 32 * ((i * 7) % 19)}};
}

static void classifier_shapes(int i, model_shape *shapes)
{
    shapes[0] = (model_shape){4, {1 + (i * 5) % 16, 3, 48, 192}};
}

static void speech_shapes(int i, model_shape *shapes)
{
    const int64_t batch = 1 + (i * 3) % 8;
    shapes[0] = (model_shape){2, {batch, 512}};
    shapes[1] = (model_shape){3, {2, batch, 128}};
}

static const struct {
    const char *name, *file;
    shapes_fn shapes;
} models[] = {{"OCR detector", "ocr-models/assets/ch_PP-OCRv4_det_infer.onnx", detector_shapes},
              {"OCR recogniser", "ocr-models/assets/ch_PP-OCRv4_rec_infer.onnx", recogniser_shapes},
              {"OCR classifier", "ocr-models/assets/ch_ppocr_mobile_v2.0_cls_infer.onnx", classifier_shapes},
              {"speech", "vad-web/dist/silero_vad_v5.onnx", speech_shapes}};

typedef struct result {
    double changing_ms[WAYS][SIZES];            /* the best of all rounds */
    double again_ms[WAYS][ROUNDS_MOST * AGAIN]; /* all of them */
    int again_count;
    worker_figures figures[WAYS];
    bool is_equal;
} result;

static double lesser(double old, double now)
{
    return old == 0 || now < old ? now : old;
}

/* Every way once, beginning with another one each time. */
static void take_turns(worker *workers, int turn, const model_shape *shapes, double *ms, result *r)
{
    uint64_t hashes[WAYS];
    for (int k = 0; k < WAYS; k++) {
        int w = (turn + k) % WAYS;
        worker_run_answer answer = worker_run(&workers[w], shapes);
        ms[w] = answer.cpu_ms;
        hashes[w] = answer.hash;
    }
    for (int w = 1; w < WAYS; w++)
        r->is_equal &= hashes[w] == hashes[0];
}

static void measure_round(const char *library, const char *file, shapes_fn shapes_of, int round, result *r)
{
    worker workers[WAYS];
    model_shape shapes[MODEL_TENSORS];
    double ms[WAYS];
    memset(shapes, 0, sizeof shapes);
    for (int w = 0; w < WAYS; w++) {
        worker_task task = {library, file, kinds[w], true, NULL};
        workers[w] = worker_start(&task);
    }
    for (int i = 0; i < SIZES; i++) {
        shapes_of(i, shapes);
        take_turns(workers, i + round, shapes, ms, r);
        for (int w = 0; w < WAYS; w++)
            r->changing_ms[w][i] = lesser(r->changing_ms[w][i], ms[w]);
    }
    take_turns(workers, 0, shapes, ms, r); /* plan and pattern are made */
    for (int i = 0; i < AGAIN; i++, r->again_count++) {
        take_turns(workers, i, shapes, ms, r);
        for (int w = 0; w < WAYS; w++)
            r->again_ms[w][r->again_count] = ms[w];
    }
    for (int w = 0; w < WAYS; w++)
        r->figures[w] = worker_finish(&workers[w]);
}

static bool print_figure(const char *what, double value, double at_most, const char *unit)
{
    bool holds = value <= at_most;
    printf("  %-52s %8.3f %-4s at most %.2f: %s\n", what, value, unit, at_most, holds ? "holds" : "MISSED");
    return holds;
}

static double sum(const double *values)
{
    double all = 0;
    for (int i = 0; i < SIZES; i++)
        all += values[i];
    return all;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_again(result *r, int way)
{
    qsort(r->again_ms[way], (size_t)r->again_count, sizeof(double), by_value);
    return r->again_ms[way][r->again_count / 2];
}

static bool print_retained(const result *r, int way, const char *what)
{
    const worker_figures *f = &r->figures[way];
    double arena = (double)r->figures[ARENA].held_bytes,
           least = (double)f->peak_bytes * RETAINED_ABOVE_PEAK / arena;
    return print_figure(what, (double)f->held_bytes / arena,
                        least > RETAINED_AT_MOST ? least : RETAINED_AT_MOST, "x");
}

static bool print_memory(const char *name, const result *r)
{
    const worker_figures *f = r->figures;
    printf("%s: %d runs at changing sizes; its arena holds %.1f MiB, Berth's pool %.1f (%.1f were in use at "
           "once), plans and pool "
           "%.1f\n",
           name, SIZES, (double)f[ARENA].held_bytes / MIB, (double)f[POOL].held_bytes / MIB,
           (double)f[POOL].peak_bytes / MIB, (double)f[PLANNED].held_bytes / MIB);
    printf("  resident %.0f MiB alone, %.0f with the pool (%.0f after trim), %.0f with plans (%.0f after "
           "trim); outputs %s\n",
           (double)f[ARENA].resident_bytes / MIB, (double)f[POOL].resident_bytes / MIB,
           (double)f[POOL].trimmed_resident_bytes / MIB, (double)f[PLANNED].resident_bytes / MIB,
           (double)f[PLANNED].trimmed_resident_bytes / MIB, r->is_equal ? "equal" : "DIFFERENT");
    bool holds = r->is_equal & print_retained(r, POOL, "retained, pool");
    holds &= print_retained(r, PLANNED, "retained, plans and pool");
    holds &= print_figure("after trim, pool", (double)f[POOL].trimmed_held_bytes / MIB, TRIMMED_AT_MOST_MIB,
                          "MiB");
    return holds & print_figure("after trim, plans and pool", (double)f[PLANNED].trimmed_held_bytes / MIB,
                                TRIMMED_AT_MOST_MIB, "MiB");
}

static void print_times(result *r)
{
    double time = sum(r->changing_ms[ARENA]), again = median_again(r, ARENA);
    (void)print_figure("time at changing sizes, pool", sum(r->changing_ms[POOL]) / time, TIME_AT_MOST, "x");
    (void)print_figure("time at changing sizes, recorded", sum(r->changing_ms[PLANNED]) / time, TIME_AT_MOST,
                       "x");
    printf("  %-52s %8.3f x\n", "  its arena against itself", sum(r->changing_ms[ARENA_TOO]) / time);
    (void)print_figure("time of a replay, against its memory pattern", median_again(r, PLANNED) / again,
                       REPLAY_AT_MOST, "x");
    printf("  %-52s %8.3f x\n", "  its memory pattern against itself", median_again(r, ARENA_TOO) / again);
}

int main(int argc, char **argv)
{
    char library[4096], file[4096];
    bool holds = true;
    if (argc < 2) {
        fprintf(stderr, "usage: %s FOLDER [ROUNDS]; tools/runtimes onnxruntime prints it\n", argv[0]);
        return 2;
    }
    int rounds = argc > 2 ? atoi(argv[2]) : ROUNDS;
    if (rounds < 1 || rounds > ROUNDS_MOST)
        rounds = ROUNDS;
    snprintf(library, sizeof library, "%s/%s", argv[1], LIBRARY);
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        static result r;
        memset(&r, 0, sizeof r);
        r.is_equal = true;
        snprintf(file, sizeof file, "%s/%s", argv[1], models[m].file);
        for (int round = 0; round < rounds; round++)
            measure_round(library, file, models[m].shapes, round, &r);
        holds &= print_memory(models[m].name, &r);
        print_times(&r);
    }
    return holds ? 0 : 1;
}
