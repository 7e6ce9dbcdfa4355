/* What is refused, and in which words: no library, another library, another version. Against fake.c, no ONNX Runtime needed. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <berth/berth.h>

#include <berth_onnxruntime.h>
#include <ort_api.h>

static void expect_refused(const char *path, const char *words)
{
    const OrtApiBase *base = (const OrtApiBase *)&base;
    assert_int_equal(berth_ort_load(path, &base), BERTH_UNSUPPORTED);
    assert_null(base);
    if (!strstr(berth_last_error()->message, words))
        fail_msg("expected '%s' in '%s'", words, berth_last_error()->message);
}

static const OrtApiBase *load_fake(const char *version, const char *fails)
{
    const OrtApiBase *base = NULL;
    setenv("FAKE_ORT_VERSION", version, 1);
    setenv("FAKE_ORT_FAILS", fails, 1);
    assert_int_equal(berth_ort_load(getenv("BERTH_ORT_FAKE"), &base), BERTH_OK);
    return base;
}

static void libraries_are_told_apart(void **state)
{
    (void)state;
    assert_int_equal(berth_ort_load(NULL, NULL), BERTH_INVALID_ARGUMENT);
    expect_refused("/nowhere/libonnxruntime.so.1", "/nowhere/libonnxruntime.so.1");
    expect_refused("/nowhere/libonnxruntime.so.1", "BERTH_ONNXRUNTIME_LIBRARY");
    expect_refused("libm.so.6", "is not ONNX Runtime");
    setenv("BERTH_ONNXRUNTIME_LIBRARY", "/elsewhere/onnx.so", 1);
    expect_refused(NULL, "/elsewhere/onnx.so");
    unsetenv("BERTH_ONNXRUNTIME_LIBRARY");
}

static void versions_are_told_apart(void **state)
{
    (void)state;
    const char *fake = getenv("BERTH_ORT_FAKE");
    setenv("FAKE_ORT_FAILS", "", 1);
    setenv("FAKE_ORT_VERSION", "1.16.3", 1);
    expect_refused(fake, "this is ONNX Runtime 1.16.3");
    setenv("FAKE_ORT_VERSION", "2.0.0", 1);
    expect_refused(fake, "this is ONNX Runtime 2.0.0");
    setenv("FAKE_ORT_VERSION", "next", 1);
    expect_refused(fake, "does not tell its version");
    unsetenv("FAKE_ORT_VERSION");
    expect_refused(fake, "does not tell its version");
    setenv("FAKE_ORT_VERSION", "1.30.0", 1);
    setenv("FAKE_ORT_FAILS", "api", 1);
    expect_refused(fake, "has no C interface of version 30");
    setenv("FAKE_ORT_FAILS", "base", 1);
    expect_refused(fake, "is not ONNX Runtime");
}

/* A library reads what its version has: less must not be set, since it may read on. */
static void the_table_has_what_the_version_has(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t version;
        bool reserve, stats, shrink;
    } cases[] = {{"1.17.0", 17, false, false, false},  {"1.18.1", 18, true, false, false},
                 {"1.22.0", 22, true, false, false},   {"1.23.2", 23, true, true, false},
                 {"1.25.0-dev", 25, true, true, true}, {"1.30.0", 30, true, true, true},
                 {"1.99.1", 30, true, true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berth_ort *memory = NULL;
        assert_int_equal(berth_ort_create(load_fake(cases[i].text, ""), berth_cpu_allocator(), &memory),
                         BERTH_OK);
        OrtAllocator *table = berth_ort_allocator(memory);
        assert_int_equal(table->version, cases[i].version);
        assert_true(table->Alloc && table->Free && table->Info && !table->AllocOnStream);
        assert_int_equal(table->Reserve != NULL, cases[i].reserve);
        assert_int_equal(table->GetStats != NULL, cases[i].stats);
        assert_int_equal(table->Shrink != NULL, cases[i].shrink);
        berth_ort_release(memory);
    }
}

/* An address that stands for memory would be written to by the first operator. */
static void memory_out_of_reach_is_refused(void **state)
{
    (void)state;
    berth_ort *memory = NULL;
    berth_allocator *dry = NULL;
    assert_int_equal(berth_dry_run_allocator_create(0, &dry), BERTH_OK);
    assert_int_equal(berth_ort_create(load_fake("1.30.0", ""), dry, &memory), BERTH_UNSUPPORTED);
    assert_null(memory);
    assert_non_null(strstr(berth_last_error()->message, "cannot use the memory of"));
    berth_allocator_release(dry);
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    const OrtApiBase *base = load_fake("1.30.0", "");
    berth_ort *memory = (berth_ort *)&memory;
    OrtEnv *env = (OrtEnv *)&memory;
    assert_int_equal(berth_ort_create(NULL, berth_cpu_allocator(), &memory), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ort_create(base, NULL, &memory), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ort_create(base, berth_cpu_allocator(), NULL), BERTH_INVALID_ARGUMENT);
    setenv("FAKE_ORT_FAILS", "info", 1);
    assert_int_equal(berth_ort_create(base, berth_cpu_allocator(), &memory), BERTH_DEVICE_ERROR);
    assert_null(memory);
    assert_non_null(strstr(berth_last_error()->message, "the fake refuses"));
    assert_int_equal(berth_last_error()->driver_code, ORT_INVALID_ARGUMENT);
    setenv("FAKE_ORT_FAILS", "register", 1);
    assert_int_equal(berth_ort_create(base, berth_cpu_allocator(), &memory), BERTH_OK);
    assert_int_equal(berth_ort_register(NULL, env), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ort_register(memory, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ort_register(memory, env), BERTH_DEVICE_ERROR);
    setenv("FAKE_ORT_FAILS", "", 1);
    assert_int_equal(berth_ort_unregister(memory, env), BERTH_NOT_FOUND);
    assert_int_equal(berth_ort_register(memory, env), BERTH_OK);
    assert_int_equal(berth_ort_unregister(memory, (OrtEnv *)&env), BERTH_NOT_FOUND);
    setenv("FAKE_ORT_FAILS", "unregister", 1);
    assert_int_equal(berth_ort_unregister(memory, env), BERTH_DEVICE_ERROR);
    setenv("FAKE_ORT_FAILS", "", 1);
    assert_int_equal(berth_ort_unregister(memory, env), BERTH_OK); /* it still was the registered one */
    assert_int_equal(berth_ort_unregister(memory, env), BERTH_NOT_FOUND);
    assert_int_equal(berth_ort_use(memory, NULL, true), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ort_begin(memory, NULL, 4), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ort_end(memory, false, NULL), BERTH_NOT_FOUND);
    assert_int_equal(berth_ort_explain(memory, NULL, 0, NULL), BERTH_NOT_FOUND);
    assert_null(berth_ort_plan(memory));
    assert_null(berth_ort_allocator(NULL));
    berth_ort_release(memory);
    assert_int_equal(berth_ort_register(memory, env), BERTH_INVALID_ARGUMENT);
    berth_ort_release(NULL);
}

/* ---- Two registrations at once ------------------------------------------------------------------------------- */

static struct {
    berth_ort *second;
    pthread_t thread;
    bool is_joined;
} beside;
static void (**hook)(void);
static char an_env;

static void *register_second(void *context)
{
    (void)context;
    assert_int_equal(berth_ort_register(beside.second, (OrtEnv *)(void *)&an_env), BERTH_OK);
    return NULL;
}

/* The second has every chance to get in here, and none if registrations take turns: then it comes after the first, at any speed. */
static void start_second(void)
{
    struct timespec until;
    *hook = NULL;
    assert_int_equal(pthread_create(&beside.thread, NULL, register_second, NULL), 0);
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 20000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    beside.is_joined = pthread_timedjoin_np(beside.thread, NULL, &until) == 0;
}

/* The second comes when the runtime has the first: it is the one that is registered, and is known to be. */
static void registrations_take_turns(void **state)
{
    (void)state;
    berth_ort *first = NULL;
    OrtEnv *env = (OrtEnv *)(void *)&an_env;
    const OrtApiBase *base = load_fake("1.30.0", "");
    void *fake = dlopen(getenv("BERTH_ORT_FAKE"), RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(fake);
    hook = (void (**)(void))dlsym(fake, "fake_ort_registered");
    assert_int_equal(berth_ort_create(base, berth_cpu_allocator(), &first), BERTH_OK);
    assert_int_equal(berth_ort_create(base, berth_cpu_allocator(), &beside.second), BERTH_OK);
    *hook = start_second;
    assert_int_equal(berth_ort_register(first, env), BERTH_OK);
    if (!beside.is_joined)
        assert_int_equal(pthread_join(beside.thread, NULL), 0);
    assert_int_equal(berth_ort_unregister(first, env), BERTH_NOT_FOUND);
    assert_int_equal(berth_ort_unregister(beside.second, env), BERTH_OK);
    berth_ort_release(first);
    berth_ort_release(beside.second);
    dlclose(fake);
}

/* The allocator as a C program calls it: NULL where nothing is to be had, words beside it. */
static void the_table_is_an_allocator(void **state)
{
    (void)state;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.hard_limit_bytes = 8 << 20;
    berth_allocator *pool = NULL;
    berth_ort *memory = NULL;
    char words[2048];
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    assert_int_equal(berth_ort_create(load_fake("1.30.0", ""), pool, &memory), BERTH_OK);
    OrtAllocator *table = berth_ort_allocator(memory);
    assert_non_null(table->Info(table));
    assert_null(table->Alloc(table, 0));
    table->Free(table, NULL);
    void *small = table->Alloc(table, 1), *weights = table->Reserve(table, 100000);
    assert_true(small && weights && (uintptr_t)small % BERTH_ALIGNMENT == 0 &&
                (uintptr_t)weights % BERTH_ALIGNMENT == 0);
    assert_null(table->Alloc(table, (size_t)1 << 30));
    assert_null(table->Alloc(table, SIZE_MAX));
    assert_int_equal(berth_ort_explain(memory, words, sizeof words, NULL), BERTH_OK);
    berth_ort_figures figures = BERTH_ORT_FIGURES_INIT;
    assert_int_equal(berth_ort_figures_get(memory, &figures), BERTH_OK);
    assert_int_equal(figures.allocs, 2);
    assert_int_equal(figures.reserves, 1);
    assert_int_equal(figures.failures, 2);
    assert_int_equal(figures.live_blocks, 2);
    /* Blocks outlive the object; nothing new comes. */
    berth_ort_release(memory);
    memset(small, 1, 1), memset(weights, 1, 100000);
    assert_null(table->Alloc(table, 64));
    assert_non_null(strstr(berth_last_error()->message, "berth_ort_release"));
    table->Free(table, small), table->Free(table, weights);
    berth_stats stats = BERTH_STATS_INIT;
    assert_int_equal(berth_stats_get(pool, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_in_use, 0);
    assert_null(table->Alloc(table, 64));
    berth_allocator_release(pool);
}

/* Work under a key: recorded, replayed, forgotten where it failed, recorded anew where it has become another. */
static void work(OrtAllocator *table, size_t unit)
{
    void *blocks[8];
    for (int i = 0; i < 8; i++)
        assert_non_null(blocks[i] = table->Alloc(table, unit << i));
    for (int i = 0; i < 8; i++)
        table->Free(table, blocks[i]);
}

static void run_once(berth_ort *memory, size_t unit, bool failed, berth_report *report)
{
    assert_int_equal(berth_ort_begin(memory, "work", 4), BERTH_OK);
    work(berth_ort_allocator(memory), unit);
    assert_int_equal(berth_ort_end(memory, failed, report), BERTH_OK);
}

static void work_is_planned_by_key(void **state)
{
    (void)state;
    berth_ort *memory = NULL;
    berth_report report = BERTH_REPORT_INIT;
    berth_ort_figures figures = BERTH_ORT_FIGURES_INIT;
    assert_int_equal(berth_ort_create(load_fake("1.30.0", ""), berth_cpu_allocator(), &memory), BERTH_OK);
    run_once(memory, 1000, true, &report);
    assert_null(berth_ort_plan(memory));
    run_once(memory, 1000, false, &report);
    assert_int_equal(report.from_plan, 0);
    run_once(memory, 1000, false, &report);
    assert_int_equal(report.from_plan, 8);
    berth_plan *plan = berth_ort_plan(memory);
    assert_int_equal(berth_plan_count(plan), 8);
    berth_plan_release(plan);
    run_once(memory, 300000, false, &report); /* another program */
    assert_int_equal(report.by_fallback, 8);
    run_once(memory, 300000, false, NULL);
    run_once(memory, 300000, false, &report);
    assert_int_equal(report.from_plan, 8);
    assert_int_equal(berth_ort_figures_get(memory, &figures), BERTH_OK);
    assert_int_equal(figures.recorded, 2);
    assert_int_equal(figures.replayed, 3);
    assert_int_equal(figures.remade, 1);
    assert_int_equal(figures.plans, 1);
    assert_int_equal(figures.live_blocks, 0);
    assert_int_equal(berth_ort_begin(memory, "work", 4), BERTH_OK);
    assert_int_equal(berth_ort_begin(memory, "other", 5), BERTH_BUSY);
    assert_int_equal(berth_ort_end(memory, false, NULL), BERTH_OK);
    assert_int_equal(berth_ort_trim(memory, 0, NULL), BERTH_OK);
    berth_ort_release(memory);
}

/* ---- Released early ------------------------------------------------------------------------------------------ */

/* What a run needs is there until it ends: the last block that comes back is not the end while a run is open. */
static void released_in_the_midst_of_a_run(void **state)
{
    (void)state;
    for (int runs_before = 0; runs_before < 2; runs_before++) {
        berth_ort *memory = NULL;
        berth_report report = BERTH_REPORT_INIT;
        berth_ort_figures figures = BERTH_ORT_FIGURES_INIT;
        assert_int_equal(berth_ort_create(load_fake("1.30.0", ""), berth_cpu_allocator(), &memory), BERTH_OK);
        OrtAllocator *table = berth_ort_allocator(memory);
        for (int i = 0; i < runs_before; i++)
            run_once(memory, 1000, false, NULL);
        assert_int_equal(berth_ort_begin(memory, "work", 4), BERTH_OK);
        void *block = table->Alloc(table, 1000);
        assert_non_null(block);
        assert_int_equal(berth_ort_figures_get(memory, &figures), BERTH_OK);
        assert_int_equal(figures.live_blocks, 1);
        berth_ort_release(memory);
        assert_null(table->Alloc(table, 2000));
        table->Free(table, block);
        assert_int_equal(berth_ort_end(memory, false, &report), BERTH_OK);
        assert_int_equal(report.from_plan, runs_before);
        assert_int_equal(berth_ort_begin(memory, "work", 4), BERTH_INVALID_ARGUMENT);
        assert_null(table->Alloc(table, 1000));
    }
}

static void *allocate_until_refused(void *context)
{
    OrtAllocator *table = context;
    void *block;
    while ((block = table->Alloc(table, 100)) != NULL)
        table->Free(table, block);
    return NULL;
}

/* Requests that come when the last block goes: the allocators go once, and nobody has them any more. */
static void released_while_threads_allocate(void **state)
{
    enum { TURNS = 20, HANDS = 4 };
    (void)state;
    const OrtApiBase *base = load_fake("1.30.0", "");
    for (int turn = 0; turn < TURNS; turn++) {
        berth_ort *memory = NULL;
        berth_allocator *own = NULL;
        pthread_t threads[HANDS];
        assert_int_equal(berth_cpu_allocator_create(NULL, &own), BERTH_OK);
        assert_int_equal(berth_ort_create(base, own, &memory), BERTH_OK);
        berth_allocator_release(own);
        for (int i = 0; i < HANDS; i++)
            assert_int_equal(
                pthread_create(&threads[i], NULL, allocate_until_refused, berth_ort_allocator(memory)), 0);
        berth_ort_release(memory);
        for (int i = 0; i < HANDS; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
}

/* ---- A key that another thread records first ---------------------------------------------------------------- */

/* Over the C heap: a block that is given back starts another thread's run, once. */
struct meddler {
    berth_allocator *inner;
    berth_ort *memory;
    bool armed;
};

static void *run_beside(void *context)
{
    const struct meddler *m = context;
    run_once(m->memory, 7, false, NULL);
    return NULL;
}

static berth_status meddler_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    struct meddler *m = self;
    if (m->armed) {
        pthread_t thread;
        m->armed = false;
        assert_int_equal(pthread_create(&thread, NULL, run_beside, m), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    return berth_deallocate(m->inner, p, size_bytes, stream);
}

/* Between the look into the cache and the recording, idle blocks go back; the other thread's run comes there. */
static void a_key_that_another_thread_has_recorded(void **state)
{
    (void)state;
    struct meddler m = {.armed = false};
    berth_allocator_ops ops = BERTH_ALLOCATOR_OPS_INIT;
    berth_allocator *outer = NULL;
    berth_report report = BERTH_REPORT_INIT;
    berth_ort_figures figures = BERTH_ORT_FIGURES_INIT;
    ops.deallocate = meddler_deallocate;
    assert_int_equal(berth_cpu_allocator_create(NULL, &m.inner), BERTH_OK);
    assert_int_equal(berth_wrapper_create(m.inner, &ops, &m, &outer), BERTH_OK);
    assert_int_equal(berth_ort_create(load_fake("1.30.0", ""), outer, &m.memory), BERTH_OK);
    assert_int_equal(berth_ort_begin(m.memory, "first", 5), BERTH_OK);
    work(berth_ort_allocator(m.memory), 3);
    assert_int_equal(berth_ort_end(m.memory, false, NULL), BERTH_OK);
    assert_int_equal(berth_ort_begin(m.memory, "first", 5), BERTH_OK); /* makes the block */
    work(berth_ort_allocator(m.memory), 3);
    assert_int_equal(berth_ort_end(m.memory, false, NULL), BERTH_OK);
    m.armed = true;
    run_once(m.memory, 7, false, &report);
    assert_false(m.armed);
    assert_true(report.from_plan > 0);
    assert_int_equal(berth_ort_figures_get(m.memory, &figures), BERTH_OK);
    assert_int_equal(figures.recorded, 2);
    assert_int_equal(figures.replayed, 2);
    assert_int_equal(figures.plans, 2);
    berth_ort_release(m.memory);
    berth_allocator_release(outer);
    berth_allocator_release(m.inner);
}

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

enum { DRAWN = 60, PROGRAMS = 60 };

/* Tensors of sizes that are no multiple of the alignment, most of which live shortly. */
static void drawn_work(OrtAllocator *table, uint32_t seed)
{
    void *blocks[DRAWN];
    uint32_t ends[DRAWN];
    for (uint32_t i = 0; i < DRAWN; i++) {
        for (uint32_t j = 0; j < i; j++)
            if (ends[j] == i)
                table->Free(table, blocks[j]);
        size_t bytes = 1000 + 4000 * (size_t)draw(&seed, 40);
        bytes += 4 * draw(&seed, 64);
        assert_non_null(blocks[i] = table->Alloc(table, bytes));
        const uint32_t longest = draw(&seed, 4) ? 4 : 30;
        ends[i] = i + 1 + draw(&seed, longest);
    }
    for (uint32_t j = 0; j < DRAWN; j++)
        if (ends[j] >= DRAWN)
            table->Free(table, blocks[j]);
}

/* A run waits while its plan is made: no search goes on for the last bytes. */
static void planning_ends_near_the_bound(void **state)
{
    (void)state;
    berth_ort *memory = NULL;
    int ended_early = 0;
    assert_int_equal(berth_ort_create(load_fake("1.30.0", ""), berth_cpu_allocator(), &memory), BERTH_OK);
    for (uint32_t program = 0; program < PROGRAMS; program++) {
        berth_certificate certificate = BERTH_CERTIFICATE_INIT;
        berth_report report = BERTH_REPORT_INIT;
        for (int run = 0; run < 2; run++) {
            assert_int_equal(berth_ort_begin(memory, &program, sizeof program), BERTH_OK);
            drawn_work(berth_ort_allocator(memory), program);
            assert_int_equal(berth_ort_end(memory, false, &report), BERTH_OK);
        }
        assert_int_equal(report.from_plan, DRAWN);
        berth_plan *plan = berth_ort_plan(memory);
        assert_int_equal(berth_plan_certificate(plan, &certificate), BERTH_OK);
        berth_plan_release(plan);
        uint64_t above = certificate.peak_bytes - certificate.lower_bound_bytes;
        ended_early += certificate.stopped_by == BERTH_STOP_CANCELLED;
        if (above > 0 && above <= certificate.lower_bound_bytes / 256)
            assert_int_equal(certificate.stopped_by, BERTH_STOP_CANCELLED);
    }
    assert_true(ended_early > 0);
    berth_ort_release(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(libraries_are_told_apart),
        cmocka_unit_test(versions_are_told_apart),
        cmocka_unit_test(the_table_has_what_the_version_has),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(registrations_take_turns),
        cmocka_unit_test(the_table_is_an_allocator),
        cmocka_unit_test(work_is_planned_by_key),
        cmocka_unit_test(released_in_the_midst_of_a_run),
        cmocka_unit_test(released_while_threads_allocate),
        cmocka_unit_test(a_key_that_another_thread_has_recorded),
        cmocka_unit_test(planning_ends_near_the_bound),
        cmocka_unit_test(memory_out_of_reach_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
