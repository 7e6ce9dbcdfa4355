/* The binding inside ONNX Runtime itself, with real models and made ones: outputs are compared bit for bit with those of
 * ONNX Runtime alone. Skipped where tools/runtimes has not fetched them. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <berth/berth.h>

#include "made.h"
#include <model.h>

#define LIBRARY "onnxruntime/onnxruntime-node/bin/napi-v6/linux/x64/libonnxruntime.so.1"
#define DETECTOR "onnxruntime/ocr-models/assets/ch_PP-OCRv4_det_infer.onnx"
#define CLASSIFIER "onnxruntime/ocr-models/assets/ch_ppocr_mobile_v2.0_cls_infer.onnx"
#define SPEECH "onnxruntime/vad-web/dist/silero_vad_v5.onnx"
#define SAMPLES_A_SECOND 16000

static const OrtApiBase *base;
static const OrtApi *api;
static OrtEnv *env;

static const char *in_folder(const char *file)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("BERTH_RUNTIMES"), file);
    return path;
}

/* ---- A pool behind ONNX Runtime ------------------------------------------------------------------------------ */

struct behind {
    berth_allocator *pool;
    berth_ort *memory;
};

static struct behind begin_behind(uint64_t limit)
{
    struct behind b = {NULL, NULL};
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.hard_limit_bytes = limit;
    assert_int_equal(berth_pool_create(&options, &b.pool), BERTH_OK);
    assert_int_equal(berth_ort_create(base, b.pool, &b.memory), BERTH_OK);
    assert_int_equal(berth_ort_register(b.memory, env), BERTH_OK);
    return b;
}

static uint64_t in_use(const struct behind *b)
{
    berth_stats stats = BERTH_STATS_INIT;
    assert_int_equal(berth_stats_get(b->pool, &stats), BERTH_OK);
    return stats.bytes_in_use;
}

/* All that sessions and values took has come back. */
static void end_behind(struct behind *b)
{
    berth_ort_figures figures = BERTH_ORT_FIGURES_INIT;
    size_t released = 0;
    assert_int_equal(berth_ort_unregister(b->memory, env), BERTH_OK);
    assert_int_equal(berth_ort_figures_get(b->memory, &figures), BERTH_OK);
    assert_int_equal(figures.live_blocks, 0);
    assert_int_equal(berth_ort_trim(b->memory, 0, &released), BERTH_OK);
    assert_int_equal(in_use(b), 0);
    berth_ort_release(b->memory);
    berth_allocator_release(b->pool);
}

static berth_ort_figures figures_of(berth_ort *memory)
{
    berth_ort_figures figures = BERTH_ORT_FIGURES_INIT;
    assert_int_equal(berth_ort_figures_get(memory, &figures), BERTH_OK);
    return figures;
}

static void expect_equal(const model *m, OrtValue *const *got, OrtValue *const *expected)
{
    for (size_t i = 0; i < m->output_count; i++) {
        size_t got_bytes = 0, expected_bytes = 0;
        const void *a = model_bytes(api, got[i], &got_bytes),
                   *b = model_bytes(api, expected[i], &expected_bytes);
        assert_int_equal(got_bytes, expected_bytes);
        if (got_bytes)
            assert_memory_equal(a, b, got_bytes);
    }
}

/* ---- Outputs are what they are without Berth ------------------------------------------------------------------- */

struct task {
    const char *file; /* NULL: `made` */
    const unsigned char *made;
    size_t made_bytes;
    model_shape shapes[2][MODEL_TENSORS];
};

static void open_task(model *m, const struct task *t, model_memory kind, berth_ort *memory, int threads)
{
    model_open(m, api, env, t->file ? (const void *)in_folder(t->file) : t->made, t->file ? 0 : t->made_bytes,
               kind, memory, threads);
}

static void compare_task(const struct task *t, int threads)
{
    struct behind b = begin_behind(0);
    model alone, pooled, planned;
    open_task(&alone, t, MODEL_ARENA, NULL, threads);
    open_task(&pooled, t, MODEL_BERTH, b.memory, threads);
    open_task(&planned, t, MODEL_BERTH_PLANNED, b.memory, threads);
    for (unsigned round = 0; round < 8; round++) {
        OrtValue *inputs[MODEL_TENSORS], *expected[MODEL_TENSORS], *got[MODEL_TENSORS];
        model_make_inputs(&alone, t->shapes[round / 2 % 2], round, SAMPLES_A_SECOND, inputs);
        model_run(&alone, NULL, inputs, expected);
        model_run(&pooled, NULL, inputs, got);
        expect_equal(&alone, got, expected);
        model_release(api, got, alone.output_count);
        model_run(&planned, b.memory, inputs, got);
        expect_equal(&alone, got, expected);
        model_release(api, got, alone.output_count);
        model_release(api, expected, alone.output_count);
        model_release(api, inputs, alone.input_count);
    }
    berth_ort_figures figures = figures_of(b.memory);
    assert_int_equal(figures.recorded, 2);
    assert_int_equal(figures.replayed, 6);
    assert_int_equal(figures.plans, 2);
    assert_int_equal(figures.unplanned, 0);
    assert_true(figures.from_plan > 0);
    if (threads == 1)
        assert_int_equal(figures.by_fallback, 0);
    model_close(&alone), model_close(&pooled), model_close(&planned);
    end_behind(&b);
}

static void outputs_of_a_detector_are_equal(void **state)
{
    (void)state;
    static const struct task t = {.file = DETECTOR,
                                  .shapes = {{{4, {1, 3, 64, 96}}}, {{4, {1, 3, 96, 160}}}}};
    compare_task(&t, 1);
    compare_task(&t, 2);
}

static void outputs_of_a_classifier_are_equal(void **state)
{
    (void)state;
    static const struct task t = {.file = CLASSIFIER,
                                  .shapes = {{{4, {1, 3, 48, 192}}}, {{4, {3, 3, 48, 192}}}}};
    compare_task(&t, 1);
}

static void outputs_of_speech_are_equal(void **state)
{
    (void)state;
    static const struct task t = {
        .file = SPEECH,
        .shapes = {{{2, {1, 512}}, {3, {2, 1, 128}}, {0, {0}}}, {{2, {2, 512}}, {3, {2, 2, 128}}, {0, {0}}}}};
    compare_task(&t, 1);
}

static void outputs_of_a_made_model_are_equal(void **state)
{
    (void)state;
    static unsigned char made[MADE_MOST];
    struct task t = {
        .made = made, .made_bytes = made_chain(made, 6), .shapes = {{{2, {50, 70}}}, {{2, {300, 7}}}}};
    compare_task(&t, 1);
}

/* Sizes that depend on data, down to nothing: the plan is right or it is left. */
static void sizes_may_depend_on_data(void **state)
{
    (void)state;
    static unsigned char made[MADE_MOST];
    struct task t = {.made = made, .made_bytes = made_nonzero(made)};
    const model_shape shape = {2, {40, 25}};
    struct behind b = begin_behind(0);
    model alone, planned;
    open_task(&alone, &t, MODEL_ARENA, NULL, 1);
    open_task(&planned, &t, MODEL_BERTH_PLANNED, b.memory, 1);
    for (unsigned round = 0; round < 12; round++) {
        OrtValue *inputs[MODEL_TENSORS], *expected[MODEL_TENSORS], *got[MODEL_TENSORS];
        float *x = NULL;
        model_make_inputs(&alone, &shape, round, 0, inputs);
        assert_null(api->GetTensorMutableData(inputs[0], (void **)&x));
        for (unsigned i = 0; i < 1000; i++)
            x[i] = x[i] * 12 < (float)round - 1 ? 1.0f : -1.0f;
        model_run(&alone, NULL, inputs, expected);
        model_run(&planned, b.memory, inputs, got);
        expect_equal(&alone, got, expected);
        model_release(api, got, 1), model_release(api, expected, 1), model_release(api, inputs, 1);
    }
    model_close(&alone), model_close(&planned);
    end_behind(&b);
}

/* ---- Lives --------------------------------------------------------------------------------------------------- */

static const struct task small_detector = {.file = DETECTOR, .shapes = {{{4, {1, 3, 64, 96}}}}};

/* Outputs of planned runs stay what they are while later runs use the block again, and after session and allocator have gone. */
static void outputs_outlive_everything(void **state)
{
    (void)state;
    enum { RUNS = 5 };
    struct behind b = begin_behind(0);
    model alone, planned;
    OrtValue *inputs[RUNS][MODEL_TENSORS], *kept[RUNS][MODEL_TENSORS], *expected[MODEL_TENSORS];
    open_task(&alone, &small_detector, MODEL_ARENA, NULL, 1);
    open_task(&planned, &small_detector, MODEL_BERTH_PLANNED, b.memory, 1);
    for (unsigned i = 0; i < RUNS; i++) {
        model_make_inputs(&alone, small_detector.shapes[0], i, 0, inputs[i]);
        model_run(&planned, b.memory, inputs[i], kept[i]);
    }
    assert_int_equal(figures_of(b.memory).outside_plan, RUNS - 1);
    model_close(&planned);
    assert_int_equal(berth_ort_unregister(b.memory, env), BERTH_OK);
    assert_int_equal(figures_of(b.memory).live_blocks, RUNS);
    berth_ort_release(b.memory);
    for (unsigned i = 0; i < RUNS; i++) {
        model_run(&alone, NULL, inputs[i], expected);
        expect_equal(&alone, kept[i], expected);
        model_release(api, expected, 1), model_release(api, kept[i], 1), model_release(api, inputs[i], 1);
    }
    assert_int_equal(in_use(&b), 0);
    berth_allocator_release(b.pool);
    model_close(&alone);
}

/* A session may be released after its allocator; a run in between fails with words and without a crash. */
static void sessions_outlive_the_allocator(void **state)
{
    (void)state;
    struct behind b = begin_behind(0);
    model m;
    OrtValue *inputs[MODEL_TENSORS], *outputs[MODEL_TENSORS];
    open_task(&m, &small_detector, MODEL_BERTH_PLANNED, b.memory, 1);
    model_make_inputs(&m, small_detector.shapes[0], 1, 0, inputs);
    model_run(&m, b.memory, inputs, outputs);
    assert_int_equal(berth_ort_unregister(b.memory, env), BERTH_OK);
    berth_ort_release(b.memory);
    model_release(api, outputs, 1);
    OrtStatus *status = model_try(&m, b.memory, inputs, outputs);
    assert_non_null(status);
    assert_non_null(strstr(api->GetErrorMessage(status), "berth_ort_release"));
    api->ReleaseStatus(status);
    model_release(api, inputs, 1);
    model_close(&m);
    assert_int_equal(in_use(&b), 0);
    berth_allocator_release(b.pool);
}

/* The one registered last is used; the one before cannot take it away. */
static void environments_have_one_allocator(void **state)
{
    (void)state;
    struct behind b = begin_behind(0);
    berth_ort *second = NULL;
    model m;
    assert_int_equal(berth_ort_create(base, b.pool, &second), BERTH_OK);
    assert_int_equal(berth_ort_register(second, env), BERTH_OK);
    assert_int_equal(berth_ort_unregister(b.memory, env), BERTH_NOT_FOUND);
    open_task(&m, &small_detector, MODEL_BERTH, second, 1);
    assert_int_equal(figures_of(b.memory).allocs, 0);
    assert_true(figures_of(second).allocs > 0);
    model_close(&m);
    assert_int_equal(berth_ort_unregister(second, env), BERTH_OK);
    assert_int_equal(berth_ort_unregister(second, env), BERTH_NOT_FOUND);
    assert_int_equal(berth_ort_register(b.memory, env), BERTH_OK);
    assert_int_equal(berth_ort_register(b.memory, env), BERTH_OK);
    berth_ort_release(second);
    end_behind(&b);
}

/* ---- No memory ------------------------------------------------------------------------------------------------ */

/* What is too large fails with Berth's words in the OrtStatus; what is not goes on. */
static void failures_have_words(void **state)
{
    (void)state;
    static const model_shape sizes[] = {{4, {1, 3, 64, 96}}, {4, {1, 3, 960, 960}}};
    struct behind b = begin_behind(12 << 20);
    for (int planned = 0; planned < 2; planned++) {
        model m;
        berth_ort *memory = planned ? b.memory : NULL;
        open_task(&m, &small_detector, planned ? MODEL_BERTH_PLANNED : MODEL_BERTH, b.memory, 1);
        for (int round = 0; round < 6; round++) {
            OrtValue *inputs[MODEL_TENSORS], *outputs[MODEL_TENSORS];
            char words[4096];
            model_make_inputs(&m, &sizes[round % 2], 1, 0, inputs);
            OrtStatus *status = model_try(&m, memory, inputs, outputs);
            assert_int_equal(status != NULL, round % 2);
            if (status) {
                if (!strstr(api->GetErrorMessage(status), "limit"))
                    fail_msg("no words of Berth's in: %s", api->GetErrorMessage(status));
                api->ReleaseStatus(status);
                assert_int_equal(berth_ort_explain(b.memory, words, sizeof words, NULL), BERTH_OK);
                assert_non_null(strstr(words, "limit"));
            }
            model_release(api, outputs, 1), model_release(api, inputs, 1);
        }
        model_close(&m);
    }
    assert_int_equal(figures_of(b.memory).plans, 1);
    assert_int_equal(figures_of(b.memory).recorded, 1);
    assert_int_equal(figures_of(b.memory).failures, 6);
    end_behind(&b);
}

/* An allocator that refuses one request after the other, until all is served: no crash, no leak, at every place. */
struct refusing {
    berth_allocator *inner;
    long left;
};

static berth_status refusing_allocate(void *self, size_t bytes, size_t alignment,
                                      const berth_request *request, void **out)
{
    struct refusing *r = self;
    if (r->left-- == 0)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "refused on purpose");
    return berth_allocate(r->inner, bytes, alignment, request, out);
}

static OrtStatus *make_session(berth_ort *memory, const void *made, size_t bytes, OrtSession **out)
{
    OrtSessionOptions *options = NULL;
    model_expect(api, api->CreateSessionOptions(&options), "options");
    model_expect(api, api->SetIntraOpNumThreads(options, 1), "threads");
    assert_int_equal(berth_ort_use(memory, options, true), BERTH_OK);
    OrtStatus *status = api->CreateSessionFromArray(env, made, bytes, options, out);
    api->ReleaseSessionOptions(options);
    return status;
}

static void every_request_may_fail(void **state)
{
    (void)state;
    static unsigned char made[MADE_MOST];
    struct task t = {.made = made, .made_bytes = made_chain(made, 3), .shapes = {{{2, {50, 70}}}}};
    struct refusing r = {NULL, -1};
    struct behind b = {NULL, NULL};
    berth_allocator_ops ops = BERTH_ALLOCATOR_OPS_INIT;
    berth_allocator *refusing = NULL;
    OrtSession *probe = NULL;
    ops.allocate = refusing_allocate;
    assert_int_equal(berth_pool_create(NULL, &b.pool), BERTH_OK);
    r.inner = b.pool;
    assert_int_equal(berth_wrapper_create(b.pool, &ops, &r, &refusing), BERTH_OK);
    assert_int_equal(berth_ort_create(base, refusing, &b.memory), BERTH_OK);
    assert_int_equal(berth_ort_register(b.memory, env), BERTH_OK);
    long failed = 0;
    for (long nth = 0;; nth++) { /* the session itself */
        r.left = nth;
        OrtStatus *status = make_session(b.memory, made, t.made_bytes, &probe);
        if (!status)
            break;
        assert_non_null(strstr(api->GetErrorMessage(status), "refused on purpose"));
        api->ReleaseStatus(status);
        failed++;
    }
    api->ReleaseSession(probe);
    r.left = -1;
    model m;
    OrtValue *inputs[MODEL_TENSORS], *outputs[MODEL_TENSORS];
    open_task(&m, &t, MODEL_BERTH_PLANNED, b.memory, 1);
    model_make_inputs(&m, t.shapes[0], 1, 0, inputs);
    for (long nth = 0;; nth++) {
        r.left = nth;
        OrtStatus *status = model_try(&m, b.memory, inputs, outputs);
        model_release(api, outputs, 1);
        if (!status)
            break;
        assert_non_null(strstr(api->GetErrorMessage(status), "refused on purpose"));
        api->ReleaseStatus(status);
        failed++;
    }
    assert_true(failed > 3);
    /* Replays: the block may fail, which makes the run an ordinary one, and the output. */
    for (long nth = 0; nth < 4; nth++) {
        assert_int_equal(berth_ort_trim(b.memory, 0, NULL), BERTH_OK);
        r.left = nth;
        OrtStatus *status = model_try(&m, b.memory, inputs, outputs);
        if (status)
            api->ReleaseStatus(status);
        model_release(api, outputs, 1);
    }
    r.left = -1;
    model_release(api, inputs, 1);
    model_close(&m);
    end_behind(&b);
    berth_allocator_release(refusing);
}

/* ---- Threads ---------------------------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 12 };

struct runner {
    pthread_t thread;
    const model *m;
    berth_ort *memory;
    unsigned number;
    OrtValue *inputs[2][MODEL_TENSORS], *expected[2][MODEL_TENSORS];
    size_t differing;
};

static void *run_rounds(void *context)
{
    struct runner *r = context;
    OrtValue *kept[MODEL_TENSORS] = {NULL};
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned which = (round + r->number) % 2;
        OrtValue *got[MODEL_TENSORS];
        size_t bytes = 0, expected_bytes = 0;
        model_run(r->m, r->memory, r->inputs[which], got);
        const void *a = model_bytes(api, got[0], &bytes);
        const void *b = model_bytes(api, r->expected[which][0], &expected_bytes);
        r->differing += bytes != expected_bytes || memcmp(a, b, bytes) != 0;
        model_release(api, kept, 1); /* the output of the round before outlives this one */
        kept[0] = got[0];
    }
    model_release(api, kept, 1);
    return NULL;
}

static void threads_run_at_once(void **state)
{
    (void)state;
    static const model_shape sizes[] = {{4, {1, 3, 64, 96}}, {4, {1, 3, 96, 128}}};
    struct behind b = begin_behind(0);
    model alone, m;
    static struct runner runners[THREADS];
    open_task(&alone, &small_detector, MODEL_ARENA, NULL, 1);
    open_task(&m, &small_detector, MODEL_BERTH_PLANNED, b.memory, 1);
    for (unsigned i = 0; i < THREADS; i++) {
        struct runner *r = &runners[i];
        r->m = &m, r->memory = b.memory, r->number = i;
        for (unsigned s = 0; s < 2; s++) {
            model_make_inputs(&alone, &sizes[s], i, 0, r->inputs[s]);
            model_run(&alone, NULL, r->inputs[s], r->expected[s]);
        }
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&runners[i].thread, NULL, run_rounds, &runners[i]), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(runners[i].thread, NULL);
        assert_int_equal(runners[i].differing, 0);
        for (unsigned s = 0; s < 2; s++)
            model_release(api, runners[i].inputs[s], 1), model_release(api, runners[i].expected[s], 1);
    }
    berth_ort_figures figures = figures_of(b.memory);
    assert_int_equal(figures.recorded + figures.replayed + figures.unplanned, THREADS * ROUNDS);
    assert_int_equal(figures.plans, 2);
    assert_int_equal(figures.by_fallback, 0);
    model_close(&alone), model_close(&m);
    end_behind(&b);
}

/* ---- Figures, as ONNX Runtime's own functions ask for them ------------------------------------------------------- */

static void figures_reach_the_runtime(void **state)
{
    (void)state;
    struct behind b = begin_behind(0);
    model m;
    OrtValue *inputs[MODEL_TENSORS], *outputs[MODEL_TENSORS];
    OrtKeyValuePairs *pairs = NULL;
    open_task(&m, &small_detector, MODEL_BERTH_PLANNED, b.memory, 1);
    model_make_inputs(&m, small_detector.shapes[0], 1, 0, inputs);
    model_run(&m, b.memory, inputs, outputs);
    OrtAllocator *table = berth_ort_allocator(b.memory);
    model_expect(api, api->AllocatorGetStats(table, &pairs), "figures");
    char expected[32];
    snprintf(expected, sizeof expected, "%llu", (unsigned long long)in_use(&b));
    assert_string_equal(api->GetKeyValue(pairs, "InUse"), expected);
    assert_string_equal(api->GetKeyValue(pairs, "Limit"), "-1");
    assert_true(strtoll(api->GetKeyValue(pairs, "NumReserves"), NULL, 10) > 0);
    assert_true(strtoll(api->GetKeyValue(pairs, "TotalAllocated"), NULL, 10) >= (long long)in_use(&b));
    api->ReleaseKeyValuePairs(pairs);
    model_expect(api, table->Shrink(table), "shrinking");
    void *p = NULL;
    model_expect(api, api->AllocatorAlloc(table, 100, &p), "a block");
    assert_non_null(p);
    model_expect(api, api->AllocatorFree(table, p), "giving it back");
    model_release(api, outputs, 1), model_release(api, inputs, 1);
    model_close(&m);
    end_behind(&b);
}

static void libraries_have_the_version_looked_for(void **state)
{
    (void)state;
    assert_non_null(base->GetApi(BERTH_ORT_API_VERSION));
    assert_string_equal(base->GetVersionString(), "1.30.0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(libraries_have_the_version_looked_for),
        cmocka_unit_test(outputs_of_a_made_model_are_equal),
        cmocka_unit_test(outputs_of_a_detector_are_equal),
        cmocka_unit_test(outputs_of_a_classifier_are_equal),
        cmocka_unit_test(outputs_of_speech_are_equal),
        cmocka_unit_test(sizes_may_depend_on_data),
        cmocka_unit_test(outputs_outlive_everything),
        cmocka_unit_test(sessions_outlive_the_allocator),
        cmocka_unit_test(environments_have_one_allocator),
        cmocka_unit_test(failures_have_words),
        cmocka_unit_test(every_request_may_fail),
        cmocka_unit_test(threads_run_at_once),
        cmocka_unit_test(figures_reach_the_runtime),
    };
    if (!getenv("BERTH_RUNTIMES") || access(in_folder(LIBRARY), R_OK) != 0) {
        puts("ONNX Runtime is not there: tools/runtimes onnxruntime fetches it");
        return 77;
    }
    if (berth_ort_load(in_folder(LIBRARY), &base) != BERTH_OK) {
        puts(berth_last_error()->message);
        return 1;
    }
    api = model_api(base);
    model_expect(api, api->CreateEnv(ORT_LOGGING_LEVEL_FATAL, "berth", &env), "an environment");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    api->ReleaseEnv(env);
    return failed;
}
