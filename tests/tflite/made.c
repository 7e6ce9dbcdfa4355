/* Made models (make_models.py) on the real library: sizes that change, states, control flow, two interpreters at once, any
 * order of ending, and an allocator that refuses. Each is compared bit for bit with an interpreter that Berth never saw.
 *
 * usage: tflite_made FOLDER MODELS    what tools/runtimes tflite printed; 77 where it is absent */
#include <berth/berth.h>
#include <berth_tflite.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../examples/tflite/program.h"

enum { RUNS = 4, THREADS = 4, TURNS = 40, DRAWN = 150 };

static lite_calls lite;
static const char *models;

static void model_open(const char *name, lite_model *out)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.tflite", models, name);
    assert_true(lite_open(&lite, path, out));
}

static berth_tflite *placer_new(berth_allocator *allocator)
{
    berth_tflite_options options = BERTH_TFLITE_OPTIONS_INIT;
    berth_tflite *berth = NULL;
    options.library = lite.path;
    options.allocator = allocator;
    assert_int_equal(berth_tflite_create(&options, &berth), BERTH_OK);
    return berth;
}

static berth_tflite_figures figures_of(berth_tflite *berth, size_t index)
{
    berth_tflite_figures figures = BERTH_TFLITE_FIGURES_INIT;
    assert_int_equal(berth_tflite_figures_get(berth, index, &figures), BERTH_OK);
    return figures;
}

/* Not cmocka's asserts: threads call it. */
static bool runs_equal(const lite_model *a, const lite_model *b, uint32_t seed)
{
    size_t a_bytes = 0, b_bytes = 0;
    char *expected = lite_run(&lite, a, seed, &a_bytes), *got = lite_run(&lite, b, seed, &b_bytes);
    bool equal = expected && got && a_bytes == b_bytes && memcmp(expected, got, a_bytes) == 0;
    free(expected);
    free(got);
    return equal;
}

static bool model_resize(const lite_model *model, int size)
{
    return lite.InterpreterResizeInputTensor(model->interpreter, 0, &size, 1) == LITE_OK &&
           lite.InterpreterAllocateTensors(model->interpreter) == LITE_OK;
}

static void opened_and_placed(const char *name, berth_tflite *berth, lite_model *plain, lite_model *placed)
{
    model_open(name, plain);
    model_open(name, placed);
    assert_int_equal(lite.InterpreterAllocateTensors(plain->interpreter), LITE_OK);
    assert_int_equal(berth_tflite_apply(berth, placed->interpreter), BERTH_OK);
    assert_int_equal(lite.InterpreterAllocateTensors(placed->interpreter), LITE_OK);
}

static void equal_with_graphs(const char *name, size_t graphs)
{
    lite_model plain, placed;
    berth_tflite *berth = placer_new(NULL);
    berth_tflite_figures none = BERTH_TFLITE_FIGURES_INIT;
    opened_and_placed(name, berth, &plain, &placed);
    for (size_t i = 0; i < graphs; i++) {
        berth_tflite_figures figures = figures_of(berth, i);
        assert_true(figures.placed);
        assert_int_equal(figures.arena_bytes, figures.bound_bytes);
        assert_int_equal(figures.interpreter_bytes, 0);
    }
    assert_int_equal(berth_tflite_figures_get(berth, graphs, &none), BERTH_NOT_FOUND);
    for (uint32_t seed = 0; seed < RUNS; seed++)
        assert_true(runs_equal(&plain, &placed, seed));
    lite_close(&lite, &plain);
    lite_close(&lite, &placed);
    assert_int_equal(berth_tflite_figures_get(berth, 0, &none), BERTH_NOT_FOUND);
    berth_tflite_destroy(berth);
}

static void outputs_read_again(void **state)
{
    (void)state;
    equal_with_graphs("branch", 1);
}

/* Graphs drawn at random: equal, and never larger than the interpreter's arena. All are planned at their bound but the one whose bound no
 * search has reached, not with the steps of `--effort max` either: it is 1.6 % above. Steps are counted, so that this is so at any speed. */
static void drawn_graphs(void **state)
{
    (void)state;
    int at_bound = 0, smaller = 0, reusing = 0;
    for (int i = 0; i < DRAWN; i++) {
        lite_model own, placed, reused;
        char name[32];
        berth_tflite_options options = BERTH_TFLITE_OPTIONS_INIT;
        berth_tflite *watcher = NULL, *berth = placer_new(NULL), *reuser = NULL;
        options.library = lite.path;
        options.reuse_inputs = true;
        assert_int_equal(berth_tflite_create(&options, &reuser), BERTH_OK);
        options.watch = true;
        assert_int_equal(berth_tflite_create(&options, &watcher), BERTH_OK);
        snprintf(name, sizeof name, "random_%d", i);
        model_open(name, &own);
        model_open(name, &placed);
        model_open(name, &reused);
        assert_int_equal(berth_tflite_apply(watcher, own.interpreter), BERTH_OK);
        assert_int_equal(berth_tflite_apply(berth, placed.interpreter), BERTH_OK);
        assert_int_equal(berth_tflite_apply(reuser, reused.interpreter), BERTH_OK);
        berth_tflite_figures before = figures_of(watcher, 0), after = figures_of(berth, 0);
        assert_string_equal(before.words, "only watched, as the options ask");
        assert_true(after.arena_bytes <= before.interpreter_bytes);
        assert_true(figures_of(reuser, 0).arena_bytes <= after.arena_bytes);
        reusing += figures_of(reuser, 0).arena_bytes < after.arena_bytes;
        assert_true(after.arena_bytes <= after.bound_bytes + after.bound_bytes / 50);
        at_bound += after.arena_bytes == after.bound_bytes;
        smaller += after.arena_bytes * 11 <= before.interpreter_bytes * 10;
        for (uint32_t seed = 0; seed < 2; seed++)
            assert_true(runs_equal(&own, &placed, seed) && runs_equal(&own, &reused, seed));
        lite_close(&lite, &own);
        lite_close(&lite, &placed);
        lite_close(&lite, &reused);
        berth_tflite_destroy(watcher);
        berth_tflite_destroy(berth);
        berth_tflite_destroy(reuser);
    }
    printf("%d graphs: %d at the bound, %d at least 1.1 times smaller than the interpreter's arena\n", DRAWN,
           at_bound, smaller);
    assert_true(smaller > 0 && reusing > 0 && at_bound >= DRAWN - 1);
}

static void one_operator(void **state)
{
    (void)state;
    equal_with_graphs("single", 1);
}

static void control_flow(void **state)
{
    (void)state;
    equal_with_graphs("loop", 3);
    equal_with_graphs("carried", 3);
    equal_with_graphs("choice", 3);
}

/* The program fills the inputs of the graph that it invokes. Those of graphs that an operator calls are read again after a run: a loop
 * takes its values from the inputs of its condition, and hands on what its body leaves as it is. */
static void inputs_of_called_graphs_are_kept(void **state)
{
    (void)state;
    static const char *const names[] = {"loop", "carried", "choice"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        lite_model plain, reused;
        berth_tflite *berth = NULL;
        berth_tflite_options options = BERTH_TFLITE_OPTIONS_INIT;
        options.library = lite.path;
        options.reuse_inputs = true;
        assert_int_equal(berth_tflite_create(&options, &berth), BERTH_OK);
        opened_and_placed(names[i], berth, &plain, &reused);
        for (uint32_t seed = 0; seed < RUNS; seed++)
            assert_true(runs_equal(&plain, &reused, seed));
        lite_close(&lite, &plain);
        lite_close(&lite, &reused);
        berth_tflite_destroy(berth);
    }
}

/* An input that is an output too belongs to the program until the end, after it was resized as well. */
static void inputs_that_are_handed_out_are_kept(void **state)
{
    (void)state;
    lite_model plain, reused;
    berth_tflite *berth = NULL;
    berth_tflite_options options = BERTH_TFLITE_OPTIONS_INIT;
    options.library = lite.path;
    options.reuse_inputs = true;
    assert_int_equal(berth_tflite_create(&options, &berth), BERTH_OK);
    opened_and_placed("passed", berth, &plain, &reused);
    assert_true(runs_equal(&plain, &reused, 1));
    assert_true(model_resize(&plain, 200) && model_resize(&reused, 200));
    assert_true(figures_of(berth, 0).placed);
    assert_true(runs_equal(&plain, &reused, 2));
    lite_close(&lite, &plain);
    lite_close(&lite, &reused);
    berth_tflite_destroy(berth);
}

/* Kept from run to run, and reset when the program asks: the interpreter does not reset memory that is not its own. */
static void variables(void **state)
{
    (void)state;
    lite_model plain, placed;
    berth_tflite *berth = placer_new(NULL);
    opened_and_placed("state", berth, &plain, &placed);
    assert_true(figures_of(berth, 0).persistent_tensors > 0);
    for (uint32_t seed = 0; seed < RUNS; seed++)
        assert_true(runs_equal(&plain, &placed, seed));
    assert_int_equal(lite.InterpreterResetVariableTensors(plain.interpreter), LITE_OK);
    assert_int_equal(lite.InterpreterResetVariableTensors(placed.interpreter), LITE_OK);
    for (uint32_t seed = 0; seed < RUNS; seed++)
        assert_true(runs_equal(&plain, &placed, seed));
    lite_close(&lite, &plain);
    lite_close(&lite, &placed);
    berth_tflite_destroy(berth);
}

/* A run on inputs that were filled for the one before. */
static void inputs_are_kept(void **state)
{
    (void)state;
    lite_model plain, placed;
    size_t first_bytes, bytes;
    berth_tflite *berth = placer_new(NULL);
    opened_and_placed("branch", berth, &plain, &placed);
    char *first = lite_run(&lite, &placed, 5, &first_bytes);
    assert_non_null(first);
    assert_int_equal(lite.InterpreterInvoke(placed.interpreter), LITE_OK);
    bytes = 0;
    for (int32_t i = 0; i < lite.InterpreterGetOutputTensorCount(placed.interpreter); i++) {
        const lite_tensor *tensor = lite.InterpreterGetOutputTensor(placed.interpreter, i);
        assert_memory_equal(tensor->data, first + bytes, tensor->bytes);
        bytes += tensor->bytes;
    }
    assert_int_equal(bytes, first_bytes);
    free(first);
    lite_close(&lite, &plain);
    lite_close(&lite, &placed);
    berth_tflite_destroy(berth);
}

static void resized(void **state)
{
    (void)state;
    static const int sizes[] = {1000, 1, 100000, 1000, 64};
    lite_model plain, placed;
    berth_tflite *berth = placer_new(NULL);
    opened_and_placed("branch", berth, &plain, &placed);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_true(model_resize(&plain, sizes[i]));
        assert_true(model_resize(&placed, sizes[i]));
        berth_tflite_figures figures = figures_of(berth, 0);
        assert_true(figures.placed);
        assert_int_equal(figures.interpreter_bytes, 0);
        assert_true(figures.arena_bytes >= (uint64_t)sizes[i] * sizeof(float) * 4);
        assert_int_equal(figures.arena_bytes, figures.bound_bytes);
        assert_true(runs_equal(&plain, &placed, (uint32_t)i));
    }
    lite_close(&lite, &plain);
    lite_close(&lite, &placed);
    berth_tflite_destroy(berth);
}

/* ---- Several at once, and their ends ------------------------------------------------------------------------- */

typedef struct worker {
    berth_tflite *berth;
    uint32_t seed;
    int wrong;
} worker;

static void *worker_run(void *argument)
{
    worker *w = argument;
    char path[1024];
    snprintf(path, sizeof path, "%s/branch.tflite", models);
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        lite_model plain, placed;
        uint32_t seed = w->seed * TURNS + turn;
        bool fine = lite_open(&lite, path, &plain) && lite_open(&lite, path, &placed) &&
                    berth_tflite_apply(w->berth, placed.interpreter) == BERTH_OK;
        for (int size = 1; fine && size < 1000; size = size * 7 + (int)w->seed)
            fine = model_resize(&plain, size) && model_resize(&placed, size) &&
                   runs_equal(&plain, &placed, seed);
        w->wrong += !fine;
        lite_close(&lite, &plain);
        lite_close(&lite, &placed);
    }
    return NULL;
}

static void several_at_once(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    worker workers[THREADS];
    berth_tflite *berth = placer_new(NULL);
    for (uint32_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){berth, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, worker_run, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].wrong, 0);
    }
    berth_tflite_destroy(berth);
}

static void any_order_of_ending(void **state)
{
    (void)state;
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        berth_allocator *allocator = NULL;
        assert_int_equal(berth_cpu_allocator_create(NULL, &allocator), BERTH_OK);
        berth_tflite *berth = placer_new(allocator);
        berth_allocator_release(allocator);
        lite_model plain, other, ones[2];
        opened_and_placed("branch", berth, &plain, &ones[0]);
        opened_and_placed("single", berth, &other, &ones[1]);
        for (int step = 0; step < 3; step++) {
            int which = orders[i][step];
            if (which == 2)
                berth_tflite_destroy(berth);
            else
                lite_close(&lite, &ones[which]);
            if (ones[0].interpreter)
                assert_true(model_resize(&plain, 10 + step) && model_resize(&ones[0], 10 + step) &&
                            runs_equal(&plain, &ones[0], 1));
            if (ones[1].interpreter)
                assert_true(runs_equal(&other, &ones[1], 2));
        }
        lite_close(&lite, &plain);
        lite_close(&lite, &other);
    }
}

/* ---- What does not go ---------------------------------------------------------------------------------------- */

static bool run_dynamic(const lite_model *model, char *out)
{
    lite_fill(&lite, model, 3);
    *(int32_t *)(void *)lite.InterpreterGetInputTensor(model->interpreter, 1)->data = 4;
    if (lite.InterpreterInvoke(model->interpreter) != LITE_OK)
        return false;
    memcpy(out, lite.InterpreterGetOutputTensor(model->interpreter, 0)->data, 4 * sizeof(float));
    return true;
}

static void sizes_known_too_late(void **state)
{
    (void)state;
    lite_model plain, refused;
    char expected[4 * sizeof(float)], got[4 * sizeof(float)];
    berth_tflite *berth = placer_new(NULL);
    model_open("dynamic", &plain);
    model_open("dynamic", &refused);
    assert_int_equal(berth_tflite_apply(berth, refused.interpreter), BERTH_UNSUPPORTED);
    assert_non_null(strstr(berth_last_error()->message, "known only while it runs"));
    assert_int_equal(lite.InterpreterAllocateTensors(plain.interpreter), LITE_OK);
    assert_int_equal(lite.InterpreterAllocateTensors(refused.interpreter), LITE_OK);
    assert_true(run_dynamic(&plain, expected));
    assert_true(run_dynamic(&refused, got));
    assert_memory_equal(expected, got, sizeof got);
    lite_close(&lite, &plain);
    lite_close(&lite, &refused);
    berth_tflite_destroy(berth);
}

static void applied_twice(void **state)
{
    (void)state;
    lite_model plain, placed;
    berth_tflite *berth = placer_new(NULL), *second = placer_new(NULL);
    opened_and_placed("branch", berth, &plain, &placed);
    assert_int_equal(berth_tflite_apply(berth, placed.interpreter), BERTH_OK);
    assert_true(figures_of(berth, 0).placed);
    assert_true(runs_equal(&plain, &placed, 1));
    assert_int_equal(berth_tflite_apply(second, placed.interpreter), BERTH_BUSY);
    assert_true(runs_equal(&plain, &placed, 2));
    lite_close(&lite, &plain);
    lite_close(&lite, &placed);
    berth_tflite_destroy(berth);
    berth_tflite_destroy(second);
}

static int other_prepare(lite_context *context, struct TfLiteDelegate *delegate)
{
    (void)context, (void)delegate;
    return LITE_OK;
}

/* A delegate may take operators, which changes how long tensors are needed: one that comes after Berth's sends them back. */
static void another_comes_after(void **state)
{
    (void)state;
    lite_model plain, placed;
    struct TfLiteDelegate other = {.prepare = other_prepare};
    berth_tflite *berth = placer_new(NULL);
    opened_and_placed("branch", berth, &plain, &placed);
    assert_int_equal(lite.InterpreterModifyGraphWithDelegate(placed.interpreter, &other), LITE_OK);
    berth_tflite_figures figures = figures_of(berth, 0);
    assert_false(figures.placed);
    assert_non_null(strstr(figures.words, "another delegate"));
    assert_true(figures.interpreter_bytes > 0);
    assert_true(runs_equal(&plain, &placed, 1));
    assert_true(model_resize(&plain, 100) && model_resize(&placed, 100));
    assert_false(figures_of(berth, 0).placed);
    assert_true(runs_equal(&plain, &placed, 2));
    lite_close(&lite, &plain);
    lite_close(&lite, &placed);
    berth_tflite_destroy(berth);
}

static void applied_after_a_run(void **state)
{
    (void)state;
    lite_model plain, placed;
    berth_tflite *berth = placer_new(NULL);
    model_open("branch", &plain);
    model_open("branch", &placed);
    assert_int_equal(lite.InterpreterAllocateTensors(plain.interpreter), LITE_OK);
    assert_int_equal(lite.InterpreterAllocateTensors(placed.interpreter), LITE_OK);
    assert_true(runs_equal(&plain, &placed, 1));
    assert_int_equal(berth_tflite_apply(berth, placed.interpreter), BERTH_OK);
    assert_true(figures_of(berth, 0).placed);
    assert_true(runs_equal(&plain, &placed, 2));
    lite_close(&lite, &plain);
    lite_close(&lite, &placed);
    berth_tflite_destroy(berth);
}

static void as_an_option(void **state)
{
    (void)state;
    lite_model plain, placed = {NULL, NULL};
    char path[1024];
    berth_tflite *berth = placer_new(NULL);
    model_open("branch", &plain);
    assert_int_equal(lite.InterpreterAllocateTensors(plain.interpreter), LITE_OK);
    snprintf(path, sizeof path, "%s/branch.tflite", models);
    placed.model = lite.ModelCreateFromFile(path);
    struct TfLiteInterpreterOptions *options = lite.InterpreterOptionsCreate();
    lite.InterpreterOptionsAddDelegate(options, berth_tflite_delegate(berth));
    placed.interpreter = lite.InterpreterCreate(placed.model, options);
    lite.InterpreterOptionsDelete(options);
    assert_non_null(placed.interpreter);
    assert_int_equal(lite.InterpreterAllocateTensors(placed.interpreter), LITE_OK);
    assert_true(figures_of(berth, 0).placed);
    assert_true(runs_equal(&plain, &placed, 1));
    lite_close(&lite, &plain);
    lite_close(&lite, &placed);
    berth_tflite_destroy(berth);
}

/* At first, and when inputs have grown: the answer is Berth's, nothing is leaked, and the interpreter has its own arena. */
static void over_budget(void **state)
{
    (void)state;
    berth_budget *budget = NULL;
    berth_allocator *limited = NULL;
    lite_model plain, placed;
    assert_int_equal(berth_budget_create(100, &budget), BERTH_OK);
    assert_int_equal(berth_limit_create(berth_cpu_allocator(), budget, &limited), BERTH_OK);
    berth_tflite *berth = placer_new(limited);
    model_open("branch", &plain);
    model_open("branch", &placed);
    assert_int_equal(lite.InterpreterAllocateTensors(plain.interpreter), LITE_OK);
    assert_int_equal(berth_tflite_apply(berth, placed.interpreter), BERTH_OVER_BUDGET);
    assert_false(figures_of(berth, 0).placed);
    assert_non_null(strstr(figures_of(berth, 0).words, "budget"));
    assert_int_equal(lite.InterpreterAllocateTensors(placed.interpreter), LITE_OK);
    assert_non_null(strstr(figures_of(berth, 0).words, "budget")); /* not that another delegate has come */
    assert_true(runs_equal(&plain, &placed, 1));

    assert_int_equal(berth_budget_set_limit(budget, 10000), BERTH_OK);
    assert_int_equal(berth_tflite_apply(berth, placed.interpreter), BERTH_OK);
    assert_true(figures_of(berth, 0).placed);
    assert_true(berth_budget_in_use(budget) >= figures_of(berth, 0).arena_bytes);
    assert_true(runs_equal(&plain, &placed, 2));
    assert_string_equal(figures_of(berth, 0).words, "");
    assert_false(model_resize(&placed, 100000));
    assert_int_equal(berth_budget_in_use(budget), 0);
    assert_true(model_resize(&placed, 64));
    assert_true(runs_equal(&plain, &placed, 3));
    lite_close(&lite, &plain);
    lite_close(&lite, &placed);
    berth_tflite_destroy(berth);
    assert_int_equal(berth_budget_in_use(budget), 0);
    berth_allocator_release(limited);
    berth_budget_release(budget);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    models = argv[2];
    if (!lite_load(argv[1], &lite))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_read_again),
        cmocka_unit_test(drawn_graphs),
        cmocka_unit_test(one_operator),
        cmocka_unit_test(control_flow),
        cmocka_unit_test(inputs_of_called_graphs_are_kept),
        cmocka_unit_test(inputs_that_are_handed_out_are_kept),
        cmocka_unit_test(variables),
        cmocka_unit_test(inputs_are_kept),
        cmocka_unit_test(resized),
        cmocka_unit_test(several_at_once),
        cmocka_unit_test(any_order_of_ending),
        cmocka_unit_test(sizes_known_too_late),
        cmocka_unit_test(applied_twice),
        cmocka_unit_test(another_comes_after),
        cmocka_unit_test(applied_after_a_run),
        cmocka_unit_test(as_an_option),
        cmocka_unit_test(over_budget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
