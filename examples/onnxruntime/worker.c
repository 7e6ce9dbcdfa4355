/* A model in a process of its own. */
#include "worker.h"

#include <berth/pool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What a speech model takes as its 64-bit input; pictures have none. */
#define SAMPLES_A_SECOND 16000

static void end_with(const char *words)
{
    fprintf(stderr, "%s\n", words);
    exit(1);
}

static void send_all(int line, const void *bytes, size_t count)
{
    if (send(line, bytes, count, MSG_NOSIGNAL) != (ssize_t)count)
        end_with("the other process is gone");
}

static void receive_all(int line, void *bytes, size_t count)
{
    if (recv(line, bytes, count, MSG_WAITALL) != (ssize_t)count)
        end_with("the other process is gone");
}

/* ---- In the process ------------------------------------------------------------------------------------- */

typedef struct site {
    const OrtApi *api;
    OrtEnv *env;
    berth_allocator *pool;
    berth_ort *memory; /* NULL: ONNX Runtime alone */
    model m;
} site;

static double clock_ms(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static uint64_t resident_bytes(void)
{
    unsigned long long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%llu %llu", &all, &resident) != 2)
        resident = 0;
    if (file)
        fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void open_site(site *s, const worker_task *task)
{
    const OrtApiBase *base = NULL;
    memset(s, 0, sizeof *s);
    if (berth_ort_load(task->library, &base) != BERTH_OK)
        end_with(berth_last_error()->message);
    s->api = model_api(base);
    model_expect(s->api, s->api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "berth", &s->env), "an environment");
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    if (task->keeps_idle)
        options.decay_ns = 0;
    if (task->kind == MODEL_BERTH || task->kind == MODEL_BERTH_PLANNED)
        if (berth_pool_create(&options, &s->pool) != BERTH_OK ||
            berth_ort_create(base, s->pool, &s->memory) != BERTH_OK ||
            berth_ort_register(s->memory, s->env) != BERTH_OK)
            end_with(berth_last_error()->message);
    model_open(&s->m, s->api, s->env, task->file, 0, task->kind, s->memory, 1);
}

static uint64_t hash_outputs(const site *s, OrtValue *const *outputs)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < s->m.output_count; i++) {
        size_t bytes = 0;
        const unsigned char *data = model_bytes(s->api, outputs[i], &bytes);
        for (size_t k = 0; k < bytes; k++)
            hash = (hash ^ data[k]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static worker_run_answer run_once(const site *s, const worker_task *task, const model_shape *shapes)
{
    worker_run_answer answer = {0, 0, 0};
    OrtValue *inputs[MODEL_TENSORS], *outputs[MODEL_TENSORS];
    model_make_inputs(&s->m, shapes, 1, SAMPLES_A_SECOND, inputs);
    double began = clock_ms(CLOCK_MONOTONIC), cpu_began = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    model_run(&s->m, task->kind == MODEL_BERTH_PLANNED ? s->memory : NULL, inputs, outputs);
    answer.cpu_ms = clock_ms(CLOCK_PROCESS_CPUTIME_ID) - cpu_began;
    answer.ms = clock_ms(CLOCK_MONOTONIC) - began;
    answer.hash = hash_outputs(s, outputs);
    model_release(s->api, outputs, s->m.output_count);
    model_release(s->api, inputs, s->m.input_count);
    return answer;
}

static uint64_t peak_bytes(const site *s)
{
    berth_stats stats = BERTH_STATS_INIT;
    return s->pool && berth_stats_get(s->pool, &stats) == BERTH_OK ? stats.max_bytes_in_use : 0;
}

/* Of the pool, or what the session's own arena tells. */
static uint64_t held_bytes(const site *s)
{
    berth_stats stats = BERTH_STATS_INIT;
    if (s->pool)
        return berth_stats_get(s->pool, &stats) == BERTH_OK ? stats.bytes_reserved : 0;
    OrtMemoryInfo *info = NULL;
    OrtAllocator *arena = NULL;
    OrtKeyValuePairs *pairs = NULL;
    model_expect(s->api, s->api->CreateCpuMemoryInfo(ORT_ARENA_ALLOCATOR, ORT_MEMORY_DEFAULT, &info),
                 "CPU memory");
    model_expect(s->api, s->api->CreateAllocator(s->m.session, info, &arena), "the session's allocator");
    model_expect(s->api, s->api->AllocatorGetStats(arena, &pairs), "the arena's figures");
    const char *total = s->api->GetKeyValue(pairs, "TotalAllocated");
    uint64_t bytes = total ? strtoull(total, NULL, 10) : 0;
    s->api->ReleaseKeyValuePairs(pairs);
    s->api->ReleaseAllocator(arena);
    s->api->ReleaseMemoryInfo(info);
    return bytes;
}

static worker_figures finish_site(site *s, const worker_task *task)
{
    worker_figures figures = {.ort = BERTH_ORT_FIGURES_INIT};
    figures.held_bytes = held_bytes(s);
    figures.peak_bytes = peak_bytes(s);
    figures.resident_bytes = resident_bytes();
    berth_plan *plan = s->memory ? berth_ort_plan(s->memory) : NULL;
    if (plan && task->plan_output && berth_plan_save(plan, task->plan_output) != BERTH_OK)
        end_with(berth_last_error()->message);
    berth_plan_release(plan);
    if (s->memory) {
        (void)berth_ort_trim(s->memory, 0, NULL);
        (void)berth_ort_figures_get(s->memory, &figures.ort);
    }
    figures.trimmed_held_bytes = held_bytes(s);
    figures.trimmed_resident_bytes = resident_bytes();
    return figures;
}

/* A request is whether there is one, and the shapes to run with. */
typedef struct request {
    bool goes_on;
    model_shape shapes[MODEL_TENSORS];
} request;

static void serve(int line, const worker_task *task)
{
    site s;
    open_site(&s, task);
    for (;;) {
        request wanted;
        receive_all(line, &wanted, sizeof wanted);
        if (!wanted.goes_on) {
            worker_figures figures = finish_site(&s, task);
            send_all(line, &figures, sizeof figures);
            _exit(0);
        }
        worker_run_answer answer = run_once(&s, task, wanted.shapes);
        send_all(line, &answer, sizeof answer);
    }
}

/* ---- Outside -------------------------------------------------------------------------------------------- */

worker worker_start(const worker_task *task)
{
    int lines[2];
    worker w = {-1, -1};
    fflush(NULL);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, lines) != 0 || (w.process = fork()) < 0)
        end_with("no process could be made");
    if (w.process == 0) {
        close(lines[0]);
        serve(lines[1], task);
    }
    close(lines[1]);
    w.line = lines[0];
    return w;
}

worker_run_answer worker_run(worker *w, const model_shape *shapes)
{
    request wanted = {.goes_on = true};
    worker_run_answer answer;
    memcpy(wanted.shapes, shapes, sizeof wanted.shapes);
    send_all(w->line, &wanted, sizeof wanted);
    receive_all(w->line, &answer, sizeof answer);
    return answer;
}

worker_figures worker_finish(worker *w)
{
    request wanted = {.goes_on = false};
    worker_figures figures;
    send_all(w->line, &wanted, sizeof wanted);
    receive_all(w->line, &figures, sizeof figures);
    close(w->line);
    waitpid(w->process, NULL, 0);
    return figures;
}
