/* Every model that was fetched, run with the interpreter's own arena and with Berth's places: outputs equal bit for bit, the
 * plan at its bound, and nothing left in the interpreter's arena.
 *
 * usage: tflite_models FOLDER    what tools/runtimes tflite printed; 77 where it is absent */
#include <berth_tflite.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../examples/tflite/program.h"

enum { RUNS = 3 };

static lite_calls lite;
static const char *folder;

static berth_tflite *tflite_new(bool watch, bool reuse_inputs, struct TfLiteDelegate *inner)
{
    berth_tflite_options options = BERTH_TFLITE_OPTIONS_INIT;
    options.library = lite.path;
    options.watch = watch;
    options.reuse_inputs = reuse_inputs;
    options.inner = inner;
    berth_tflite *berth = NULL;
    assert_int_equal(berth_tflite_create(&options, &berth), BERTH_OK);
    return berth;
}

static berth_tflite_figures figures_of(berth_tflite *berth)
{
    berth_tflite_figures figures = BERTH_TFLITE_FIGURES_INIT;
    assert_int_equal(berth_tflite_figures_get(berth, 0, &figures), BERTH_OK);
    return figures;
}

static void run_both(const lite_model *plain, const lite_model *placed)
{
    for (uint32_t run = 0; run < RUNS; run++) {
        size_t plain_bytes, placed_bytes;
        char *expected = lite_run(&lite, plain, run, &plain_bytes);
        char *got = lite_run(&lite, placed, run, &placed_bytes);
        assert_non_null(expected);
        assert_non_null(got);
        assert_int_equal(plain_bytes, placed_bytes);
        assert_memory_equal(expected, got, plain_bytes);
        free(expected);
        free(got);
    }
}

static void check_model(const char *path, struct TfLiteDelegate *inner)
{
    lite_model plain, placed;
    assert_true(lite_open(&lite, path, &plain));
    assert_true(lite_open(&lite, path, &placed));
    struct TfLiteDelegate *other = inner ? lite.XNNPackDelegateCreate(NULL) : NULL;
    berth_tflite *watcher = tflite_new(true, false, other), *berth = tflite_new(false, false, inner);
    assert_int_equal(berth_tflite_apply(watcher, plain.interpreter), BERTH_OK);
    assert_int_equal(berth_tflite_apply(berth, placed.interpreter), BERTH_OK);
    assert_int_equal(lite.InterpreterAllocateTensors(plain.interpreter), LITE_OK);
    assert_int_equal(lite.InterpreterAllocateTensors(placed.interpreter), LITE_OK);

    berth_tflite_figures before = figures_of(watcher), after = figures_of(berth);
    assert_false(before.placed);
    assert_true(after.placed);
    assert_true(after.arena_bytes <= before.interpreter_bytes);
    assert_int_equal(after.arena_bytes, after.bound_bytes);
    assert_int_equal(after.interpreter_bytes, 0);
    assert_int_equal(after.persistent_bytes, before.persistent_bytes);
    run_both(&plain, &placed);
    printf("%-44s %s arena %9llu, Berth %9llu, persistent %llu\n", strrchr(path, '/') + 1,
           inner ? "XNNPACK" : "       ", (unsigned long long)before.interpreter_bytes,
           (unsigned long long)after.arena_bytes, (unsigned long long)after.persistent_bytes);
    lite_close(&lite, &plain);
    lite_close(&lite, &placed);
    berth_tflite_destroy(watcher);
    berth_tflite_destroy(berth);
    if (other)
        lite.XNNPackDelegateDelete(other);
}

/* Inputs that are filled for every run: what others have of their memory does not show in outputs. */
static void with_inputs_reused(const char *path, void *self)
{
    (void)self;
    lite_model plain, kept, reused;
    berth_tflite *keeper = tflite_new(false, false, NULL), *berth = tflite_new(false, true, NULL);
    assert_true(lite_open(&lite, path, &plain));
    assert_true(lite_open(&lite, path, &kept));
    assert_true(lite_open(&lite, path, &reused));
    assert_int_equal(lite.InterpreterAllocateTensors(plain.interpreter), LITE_OK);
    assert_int_equal(berth_tflite_apply(keeper, kept.interpreter), BERTH_OK);
    assert_int_equal(berth_tflite_apply(berth, reused.interpreter), BERTH_OK);
    berth_tflite_figures less = figures_of(berth);
    assert_true(less.arena_bytes <= figures_of(keeper).arena_bytes);
    assert_int_equal(less.arena_bytes, less.bound_bytes);
    run_both(&plain, &reused);
    printf("%-44s Berth with inputs reused %9llu\n", strrchr(path, '/') + 1,
           (unsigned long long)less.arena_bytes);
    lite_close(&lite, &plain);
    lite_close(&lite, &kept);
    lite_close(&lite, &reused);
    berth_tflite_destroy(keeper);
    berth_tflite_destroy(berth);
}

static void with_kernels(const char *path, void *self)
{
    (void)self;
    check_model(path, NULL);
}

static void with_xnnpack(const char *path, void *self)
{
    (void)self;
    struct TfLiteDelegate *xnnpack = lite.XNNPackDelegateCreate(NULL);
    check_model(path, xnnpack);
    lite.XNNPackDelegateDelete(xnnpack);
}

static void equal_and_at_the_bound(void **state)
{
    (void)state;
    assert_true(lite_each_model(&lite, folder, with_kernels, NULL));
}

static void equal_with_inputs_reused(void **state)
{
    (void)state;
    assert_true(lite_each_model(&lite, folder, with_inputs_reused, NULL));
}

static void equal_beside_another_delegate(void **state)
{
    (void)state;
    assert_true(lite_each_model(&lite, folder, with_xnnpack, NULL));
}

int main(int argc, char **argv)
{
    folder = argc > 1 ? argv[1] : "build-runtimes/tflite";
    if (!lite_load(folder, &lite))
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_and_at_the_bound),
        cmocka_unit_test(equal_with_inputs_reused),
        cmocka_unit_test(equal_beside_another_delegate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
