/* runtimes_onnxruntime [--check] FOLDER [ROUNDS]: memory and time of models in ONNX Runtime, alone and on Berth. Ways take turns run by run,
 * each in a process of its own with one thread; times are the processor's, the best of a few rounds for each run, and compared as ratios.
 * Fails if outputs differ or memory exceeds its figure; with --check also if times do. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <worker.h>

#include "../check.h"

#define LIBRARY "onnxruntime-node/bin/napi-v6/linux/x64/libonnxruntime.so.1"
#define MIB 1048576.0

#define RETAINED_AT_MOST 0.70
#define TRIMMED_AT_MOST_MIB 20.0
#define TIME_AT_MOST 1.02
#define REPLAY_AT_MOST 1.00
/* Berth's own code and records. */
#define RESIDENT_ABOVE_MIB 3.0

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
    /* Known to be above the common figures, README.md says why: most of what the recogniser's arena holds is in use at once; a run of
     * speech takes half a millisecond, beside which planning a new shape shows. */
    double retained_at_most, recorded_at_most;
} models[] = {
    {"OCR detector", "ocr-models/assets/ch_PP-OCRv4_det_infer.onnx", detector_shapes, RETAINED_AT_MOST,
     TIME_AT_MOST},
    {"OCR recogniser", "ocr-models/assets/ch_PP-OCRv4_rec_infer.onnx", recogniser_shapes, 0.80, TIME_AT_MOST},
    {"OCR classifier", "ocr-models/assets/ch_ppocr_mobile_v2.0_cls_infer.onnx", classifier_shapes,
     RETAINED_AT_MOST, TIME_AT_MOST},
    {"speech", "vad-web/dist/silero_vad_v5.onnx", speech_shapes, RETAINED_AT_MOST, 1.15}};

typedef struct result {
    double changing_ms[WAYS][SIZES];            /* the best of all rounds */
    double again_ms[WAYS][ROUNDS_MOST * AGAIN]; /* all of them */
    int again_count;
    double noise, again_noise; /* how far the arena is from itself, in the round where it is farthest */
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

static double apart(double a, double b)
{
    return fabs(1 - a / b);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const double *values, int count)
{
    double sorted[ROUNDS_MOST * AGAIN];
    memcpy(sorted, values, (size_t)count * sizeof *values);
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    return sorted[count / 2];
}

static void measure_round(const char *library, const char *file, shapes_fn shapes_of, int round, result *r)
{
    worker workers[WAYS];
    model_shape shapes[MODEL_TENSORS];
    double ms[WAYS], whole[WAYS] = {0};
    memset(shapes, 0, sizeof shapes);
    for (int w = 0; w < WAYS; w++) {
        worker_task task = {library, file, kinds[w], true, NULL};
        workers[w] = worker_start(&task);
    }
    for (int i = 0; i < SIZES; i++) {
        shapes_of(i, shapes);
        take_turns(workers, i + round, shapes, ms, r);
        for (int w = 0; w < WAYS; w++)
            r->changing_ms[w][i] = lesser(r->changing_ms[w][i], ms[w]), whole[w] += ms[w];
    }
    r->noise = fmax(r->noise, apart(whole[ARENA_TOO], whole[ARENA]));
    take_turns(workers, 0, shapes, ms, r); /* plan and pattern are made */
    for (int i = 0; i < AGAIN; i++, r->again_count++) {
        take_turns(workers, i, shapes, ms, r);
        for (int w = 0; w < WAYS; w++)
            r->again_ms[w][r->again_count] = ms[w];
    }
    const int began = r->again_count - AGAIN;
    r->again_noise = fmax(r->again_noise, apart(median_of(r->again_ms[ARENA_TOO] + began, AGAIN),
                                                median_of(r->again_ms[ARENA] + began, AGAIN)));
    for (int w = 0; w < WAYS; w++)
        r->figures[w] = worker_finish(&workers[w]);
}

static double sum(const double *values)
{
    double all = 0;
    for (int i = 0; i < SIZES; i++)
        all += values[i];
    return all;
}

static double median_again(const result *r, int way)
{
    return median_of(r->again_ms[way], r->again_count);
}

static bool print_retained(const result *r, int way, const char *what, double at_most)
{
    const worker_figures *f = &r->figures[way];
    double arena = (double)r->figures[ARENA].held_bytes,
           least = (double)f->peak_bytes * RETAINED_ABOVE_PEAK / arena;
    return check_at_most(what, (double)f->held_bytes / arena, fmax(least, at_most), 0, "x");
}

static bool print_resident(const worker_figures *f, int way, const char *what)
{
    return check_at_most(what, ((double)f[way].resident_bytes - (double)f[ARENA].resident_bytes) / MIB,
                         RESIDENT_ABOVE_MIB, 0, "MiB");
}

static bool print_memory(const char *name, const result *r, double retained_at_most)
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
    bool holds = r->is_equal & print_retained(r, POOL, "retained, pool", retained_at_most);
    holds &= print_retained(r, PLANNED, "retained, plans and pool", retained_at_most);
    holds &= print_resident(f, POOL, "resident above the arena's, pool");
    holds &= print_resident(f, PLANNED, "resident above the arena's, plans and pool");
    holds &= check_at_most("after trim, pool", (double)f[POOL].trimmed_held_bytes / MIB, TRIMMED_AT_MOST_MIB,
                           0, "MiB");
    return holds & check_at_most("after trim, plans and pool", (double)f[PLANNED].trimmed_held_bytes / MIB,
                                 TRIMMED_AT_MOST_MIB, 0, "MiB");
}

static bool print_times(const result *r, double recorded_at_most)
{
    const double time = sum(r->changing_ms[ARENA]);
    bool holds = check_at_most("time at changing sizes, pool", sum(r->changing_ms[POOL]) / time, TIME_AT_MOST,
                               r->noise, "x");
    holds &= check_at_most("time at changing sizes, recorded", sum(r->changing_ms[PLANNED]) / time,
                           recorded_at_most, r->noise, "x");
    return holds & check_at_most("time of a replay, against its memory pattern",
                                 median_again(r, PLANNED) / median_again(r, ARENA), REPLAY_AT_MOST,
                                 r->again_noise, "x");
}

int main(int argc, char **argv)
{
    char library[4096], file[4096];
    bool holds = true, in_time = true;
    const bool checks = check_is_asked(&argc, argv);
    if (argc < 2) {
        fprintf(stderr, "usage: %s [--check] FOLDER [ROUNDS]; tools/runtimes onnxruntime prints it\n",
                argv[0]);
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
        holds &= print_memory(models[m].name, &r, models[m].retained_at_most);
        in_time &= print_times(&r, models[m].recorded_at_most);
        fflush(stdout);
    }
    return holds && (in_time || !checks) ? 0 : 1;
}
