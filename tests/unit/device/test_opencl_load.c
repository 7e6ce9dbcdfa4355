/* OpenCL's codes have their names, and each becomes the status that a caller can act on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "device/opencl.h"

static void test_codes_have_their_names(void **state)
{
    (void)state;
    static const struct {
        int32_t code;
        const char *name;
    } known[] = {
        {0, "CL_SUCCESS"},
        {-1, "CL_DEVICE_NOT_FOUND"},
        {-6, "CL_OUT_OF_HOST_MEMORY"},
        {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
        {-30, "CL_INVALID_VALUE"},
        {-34, "CL_INVALID_CONTEXT"},
        {-36, "CL_INVALID_COMMAND_QUEUE"},
        {-38, "CL_INVALID_MEM_OBJECT"},
        {-57, "CL_INVALID_EVENT_WAIT_LIST"},
        {-58, "CL_INVALID_EVENT"},
        {-59, "CL_INVALID_OPERATION"},
        {-61, "CL_INVALID_BUFFER_SIZE"},
        {-1001, "CL_PLATFORM_NOT_FOUND_KHR"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_string_equal(berth__ocl_words(known[i].code), known[i].name);
    /* Between and beyond there is a word too, never a read past the names. */
    for (int32_t code = 3; code > -1100; code--)
        assert_true(strlen(berth__ocl_words(code)) > 0);
    assert_string_equal(berth__ocl_words(-15), "an OpenCL error");
    assert_string_equal(berth__ocl_words(-29), "an OpenCL error");
    assert_string_equal(berth__ocl_words(-39), "an OpenCL error");
    assert_string_equal(berth__ocl_words(1), "an OpenCL error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes_have_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
