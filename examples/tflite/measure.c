/* The process of its own: the same program, told by its first argument. */
#include "measure.h"

#include <berth_tflite.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "program.h"

#define ONE "--one-model"
#define RESULT_FORMAT "%llu %llu %llu %llu %llu %llu %llu"

static unsigned long long resident_kib(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "VmRSS: %llu", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return kib;
}

/* Processor time: models run on one thread, and other programs do not count. */
static unsigned long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec;
}

/* Where they are: a copy would be resident memory too. */
static void hash_outputs(const lite_calls *lite, const lite_model *model, unsigned long long *hash)
{
    for (int32_t i = 0; i < lite->InterpreterGetOutputTensorCount(model->interpreter); i++) {
        const lite_tensor *tensor = lite->InterpreterGetOutputTensor(model->interpreter, i);
        for (size_t at = 0; at < tensor->bytes; at++)
            *hash = (*hash ^ (unsigned char)tensor->data[at]) * 0x100000001b3u;
    }
}

static void must(bool fine, const char *what)
{
    if (fine)
        return;
    fprintf(stderr, "%s: %s\n", what, berth_last_error()->message);
    exit(1);
}

static berth_tflite *place_tensors(const lite_calls *lite, const lite_model *model, measure_way way)
{
    berth_tflite_options options = BERTH_TFLITE_OPTIONS_INIT;
    options.library = lite->path;
    options.watch = way == MEASURE_WATCH;
    options.reuse_inputs = way == MEASURE_REUSED;
    berth_tflite *berth = NULL;
    must(berth_tflite_create(&options, &berth) == BERTH_OK, "creating the delegate");
    must(berth_tflite_apply(berth, model->interpreter) == BERTH_OK, "applying it");
    return berth;
}

static void tell_figures(berth_tflite *berth, const char *plan_file, measure_result *result)
{
    berth_tflite_figures figures = BERTH_TFLITE_FIGURES_INIT;
    berth_plan *plan = NULL;
    must(berth_tflite_figures_get(berth, 0, &figures) == BERTH_OK, "figures");
    result->arena_bytes = figures.arena_bytes;
    result->bound_bytes = figures.bound_bytes;
    result->interpreter_bytes = figures.interpreter_bytes;
    if (!plan_file)
        return;
    must(berth_tflite_plan_get(berth, 0, &plan) == BERTH_OK, "the plan");
    must(berth_plan_save(plan, plan_file) == BERTH_OK, plan_file);
    berth_plan_release(plan);
}

static void run_one(const char *folder, const char *path, measure_way way, int runs, const char *plan_file)
{
    lite_calls lite;
    lite_model model;
    berth_tflite *berth = NULL;
    measure_result result = {.outputs = 0xcbf29ce484222325u, .run_ns = UINT64_MAX};
    must(lite_load(folder, &lite) && lite_open(&lite, path, &model), path);
    unsigned long long before_kib = resident_kib();
    if (way != MEASURE_OWN)
        berth = place_tensors(&lite, &model, way);
    must(lite.InterpreterAllocateTensors(model.interpreter) == LITE_OK, "allocating tensors");
    for (int run = 0; run < runs; run++) {
        lite_fill(&lite, &model, (uint32_t)run);
        unsigned long long began = now_ns();
        bool fine = lite.InterpreterInvoke(model.interpreter) == LITE_OK;
        unsigned long long took = now_ns() - began;
        must(fine, "running");
        hash_outputs(&lite, &model, &result.outputs);
        result.run_ns = took < result.run_ns ? took : result.run_ns;
    }
    result.process_kib = resident_kib();
    result.tensors_kib = result.process_kib - before_kib;
    if (berth)
        tell_figures(berth, plan_file, &result);
    lite_close(&lite, &model);
    berth_tflite_destroy(berth);
    printf(RESULT_FORMAT "\n", result.arena_bytes, result.bound_bytes, result.interpreter_bytes,
           result.tensors_kib, result.process_kib, result.outputs, result.run_ns);
}

void measure_main(int argc, char **argv)
{
    if (argc < 6 || strcmp(argv[1], ONE) != 0)
        return;
    run_one(argv[2], argv[3], (measure_way)atoi(argv[4]), atoi(argv[5]), argc > 6 ? argv[6] : NULL);
    exit(0);
}

bool measure_run(const char *folder, const char *model, measure_way way, int runs, const char *plan_file,
                 measure_result *out)
{
    int ends[2];
    char way_word[16], runs_word[16];
    snprintf(way_word, sizeof way_word, "%d", (int)way);
    snprintf(runs_word, sizeof runs_word, "%d", runs);
    if (pipe(ends) != 0)
        return false;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execl("/proc/self/exe", "measure", ONE, folder, model, way_word, runs_word, plan_file, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *answer = fdopen(ends[0], "r");
    int fields = child > 0 && answer ? fscanf(answer, RESULT_FORMAT, &out->arena_bytes, &out->bound_bytes,
                                              &out->interpreter_bytes, &out->tensors_kib, &out->process_kib,
                                              &out->outputs, &out->run_ns)
                                     : 0;
    if (answer)
        fclose(answer);
    else
        close(ends[0]);
    int status = 1;
    if (child > 0)
        waitpid(child, &status, 0);
    return fields == 7 && status == 0;
}
