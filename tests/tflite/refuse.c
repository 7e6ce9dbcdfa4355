/* Refusals, which need no TensorFlow Lite: no library, another one, another version, and what is wrong with arguments.
 *
 * usage: tflite_refuse OTHER_VERSION.so REFUSING.so    made of fake.c */
#include <berth/berth.h>
#include <berth_tflite.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *other_version, *refusing;

static void refused(const char *library, const char *words)
{
    berth_tflite_options options = BERTH_TFLITE_OPTIONS_INIT;
    berth_tflite *berth = (berth_tflite *)&options;
    options.library = library;
    assert_int_equal(berth_tflite_create(&options, &berth), BERTH_UNSUPPORTED);
    assert_null(berth);
    assert_non_null(strstr(berth_last_error()->message, words));
}

static void no_library(void **state)
{
    (void)state;
    refused("/nowhere/libtensorflowlite_c.so", "BERTH_TFLITE_LIBRARY");
    refused("libm.so.6", "libm.so.6 has no TfLiteVersion");
    setenv("BERTH_TFLITE_LIBRARY", "/nowhere/else.so", 1);
    refused(NULL, "/nowhere/else.so");
    setenv("BERTH_TFLITE_LIBRARY", other_version, 1);
    refused(NULL, other_version);
    unsetenv("BERTH_TFLITE_LIBRARY");
}

static void another_version(void **state)
{
    (void)state;
    refused(other_version, "is TensorFlow Lite 2.90.1; this binding knows the tables of version 2.9.x only");
}

/* An address that stands for memory would be written to by the first operator. */
static void memory_out_of_reach(void **state)
{
    (void)state;
    berth_tflite *berth = NULL;
    berth_tflite_options options = BERTH_TFLITE_OPTIONS_INIT;
    options.library = refusing;
    assert_int_equal(berth_dry_run_allocator_create(0, &options.allocator), BERTH_OK);
    assert_int_equal(berth_tflite_create(&options, &berth), BERTH_UNSUPPORTED);
    assert_null(berth);
    assert_non_null(strstr(berth_last_error()->message, "which the host does not reach"));
    options.watch = true; /* takes no memory */
    assert_int_equal(berth_tflite_create(&options, &berth), BERTH_OK);
    berth_tflite_destroy(berth);
    berth_allocator_release(options.allocator);
}

static void arguments(void **state)
{
    (void)state;
    berth_tflite *berth = NULL;
    berth_plan *plan = NULL;
    berth_tflite_options options = BERTH_TFLITE_OPTIONS_INIT;
    berth_tflite_figures figures = BERTH_TFLITE_FIGURES_INIT;
    options.library = refusing;
    assert_int_equal(berth_tflite_create(&options, NULL), BERTH_INVALID_ARGUMENT);
    options.struct_size = 8;
    assert_int_equal(berth_tflite_create(&options, &berth), BERTH_INVALID_ARGUMENT);
    options.struct_size = sizeof options;
    assert_int_equal(berth_tflite_create(&options, &berth), BERTH_OK);
    assert_non_null(berth_tflite_delegate(berth));
    assert_null(berth_tflite_delegate(NULL));
    assert_int_equal(berth_tflite_apply(NULL, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_tflite_apply(berth, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_tflite_figures_get(berth, 0, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_tflite_figures_get(NULL, 0, &figures), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_tflite_figures_get(berth, 0, &figures), BERTH_NOT_FOUND);
    figures.struct_size = 1;
    assert_int_equal(berth_tflite_figures_get(berth, 0, &figures), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_tflite_plan_get(berth, 0, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_tflite_plan_get(berth, 0, &plan), BERTH_NOT_FOUND);
    /* The fake's interpreters are no more than addresses, and it refuses every delegate. */
    assert_int_equal(berth_tflite_apply(berth, (struct TfLiteInterpreter *)&figures), BERTH_UNSUPPORTED);
    assert_non_null(strstr(berth_last_error()->message, "status is 7"));
    berth_tflite_destroy(berth);
    berth_tflite_destroy(NULL);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    other_version = argv[1];
    refusing = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_library),
        cmocka_unit_test(another_version),
        cmocka_unit_test(memory_out_of_reach),
        cmocka_unit_test(arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
