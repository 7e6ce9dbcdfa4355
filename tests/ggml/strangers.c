/* What the binding says where ggml is absent or is not the one it knows. Needs no ggml: stranger.c stands in for wrong ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
/* setjmp, stdarg and stddef stand before it, as it asks. */
#include <cmocka.h>

#include <berth/source.h>

#include <berth_ggml.h>

static const char *bare_path, *whole_path;

static void expect_refused(const char *path, const char *mode, berth_status status, const char *words)
{
    assert_int_equal(setenv("GGML_STRANGER", mode, 1), 0);
    assert_int_equal(berth_ggml_load(path), status);
    if (!strstr(berth_last_error()->message, words))
        fail_msg("'%s' is not in '%s'", words, berth_last_error()->message);
    assert_string_equal(berth_ggml_version(), "");
}

static void test_an_absent_library_is_told(void **state)
{
    (void)state;
    expect_refused("/nowhere/libggml-base.so", "", BERTH_UNSUPPORTED,
                   "ggml cannot be loaded: /nowhere/libggml-base.so");
    expect_refused("/", "", BERTH_UNSUPPORTED, "BERTH_GGML_LIBRARY");
}

static void test_another_version_is_refused(void **state)
{
    (void)state;
    expect_refused(bare_path, "old", BERTH_UNSUPPORTED,
                   "is ggml 0.4.2; this binding knows 0.9.7 (llama.cpp b8390)");
}

static void test_a_library_without_the_functions_is_refused(void **state)
{
    (void)state;
    expect_refused(bare_path, "bare", BERTH_UNSUPPORTED, "has no ggml_commit: it is not ggml 0.9.7");
}

static void test_another_layout_is_refused(void **state)
{
    (void)state;
    expect_refused(whole_path, "tensors", BERTH_UNSUPPORTED, "its tensors are laid out otherwise");
    expect_refused(whole_path, "poor", BERTH_OUT_OF_HOST_MEMORY, "cannot make a context");
}

/* The calls that load by themselves say the same, by the variable. */
static void test_calls_need_the_library(void **state)
{
    struct ggml_backend_buffer_type *type, *some = (struct ggml_backend_buffer_type *)(void *)&type;
    berth_ggml_graph *graph;
    (void)state;
    assert_int_equal(setenv("BERTH_GGML_LIBRARY", bare_path, 1), 0);
    assert_int_equal(setenv("GGML_STRANGER", "old", 1), 0);
    assert_int_equal(berth_ggml_buffer_type_create(berth_cpu_allocator(), NULL, &type), BERTH_UNSUPPORTED);
    assert_null(type);
    assert_non_null(strstr(berth_last_error()->message, "0.4.2"));
    assert_int_equal(berth_ggml_graph_create(&some, 1, NULL, &graph), BERTH_UNSUPPORTED);
    assert_null(graph);
    assert_int_equal(berth_ggml_buffer_type_create(NULL, NULL, &type), BERTH_INVALID_ARGUMENT);
    berth_ggml_buffer_type_release(NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_absent_library_is_told),
        cmocka_unit_test(test_another_version_is_refused),
        cmocka_unit_test(test_a_library_without_the_functions_is_refused),
        cmocka_unit_test(test_another_layout_is_refused),
        cmocka_unit_test(test_calls_need_the_library),
    };
    if (argc < 3)
        return 2;
    bare_path = argv[1];
    whole_path = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
