/* Typed helpers: n x size is checked; init and fini run on each element, and a failing init is undone. */
#include "unit/core/recorder.h"

#include "base/base.h"

struct life {
    int inits, finis, fail_at;
    size_t last_fini;
    char *first;
};

static berth_status life_init(void *element, void *context)
{
    struct life *life = context;
    if (!life->first)
        life->first = element;
    if (++life->inits == life->fail_at)
        return BERTH_IO;
    *(uint32_t *)element = 0xabcd;
    return BERTH_OK;
}

static void life_fini(void *element, void *context)
{
    struct life *life = context;
    assert_int_equal(*(uint32_t *)element, 0xabcd);
    life->finis++;
    life->last_fini = (size_t)((char *)element - life->first) / sizeof(uint32_t);
}

static berth_type life_type(struct life *life)
{
    return (berth_type){.struct_size = sizeof(berth_type),
                        .name = "handle",
                        .size_bytes = sizeof(uint32_t),
                        .init = life_init,
                        .fini = life_fini,
                        .context = life};
}

static void init_and_fini_run_on_each(void **state)
{
    (void)state;
    struct recorder r = {0};
    berth_allocator *a = recorder_create(&r);
    struct life life = {0};
    berth_type type = life_type(&life);
    void *p = NULL;
    assert_int_equal(berth_allocate_array(a, &type, 10, NULL, &p), BERTH_OK);
    assert_int_equal(life.inits, 10);
    assert_int_equal((uintptr_t)p % BERTH_ALIGNMENT, 0);
    assert_int_equal(berth_deallocate_array(a, &type, p, 10, NULL), BERTH_OK);
    assert_int_equal(life.finis, 10);
    assert_int_equal(life.last_fini, 0); /* in reverse */
    assert_int_equal(r.frees, 1);
    assert_int_equal(berth_deallocate_array(a, &type, NULL, 10, NULL), BERTH_OK);
    assert_int_equal(life.finis, 10);
    berth_allocator_release(a);
}

static void a_failing_init_is_undone(void **state)
{
    (void)state;
    struct recorder r = {0};
    berth_allocator *a = recorder_create(&r);
    struct life life = {.fail_at = 4};
    berth_type type = life_type(&life);
    void *p = &r;
    assert_int_equal(berth_allocate_array(a, &type, 10, NULL, &p), BERTH_IO);
    assert_null(p);
    assert_int_equal(life.finis, 3);
    assert_int_equal(r.allocations, 1);
    assert_int_equal(r.frees, 1);
    berth_allocator_release(a);
}

static void overflow_is_null_and_a_status(void **state)
{
    (void)state;
    struct recorder r = {0};
    berth_allocator *a = recorder_create(&r);
    struct life life = {0};
    berth_type type = life_type(&life);
    void *p = &r;
    assert_int_equal(berth_allocate_array(a, &type, SIZE_MAX / 2, NULL, &p), BERTH_OVERFLOW);
    assert_null(p);
    assert_non_null(strstr(berth_last_error()->message, "handle"));
    assert_null(BERTH_NEW(a, double, SIZE_MAX / 4));
    assert_int_equal(r.allocations, 0);
    assert_int_equal(berth_allocate_array(a, &type, 0, NULL, &p), BERTH_OK);
    assert_null(p);
    assert_int_equal(life.inits, 0);
    type.size_bytes = 0;
    assert_int_equal(berth_allocate_array(a, &type, 1, NULL, &p), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_allocate_array(a, NULL, 1, NULL, &p), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_allocate_array(NULL, &type, 1, NULL, &p), BERTH_INVALID_ARGUMENT);
    berth_allocator_release(a);
}

static void plain_types_run_neither(void **state)
{
    (void)state;
    struct recorder r = {0};
    berth_allocator *a = recorder_create(&r);
    float *x = BERTH_NEW(a, float, 7);
    assert_non_null(x);
    assert_int_equal(r.last_size, 28);
    assert_int_equal(berth_deallocate(a, x, 28, NULL), BERTH_OK);
    berth_allocator_release(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(init_and_fini_run_on_each),
        cmocka_unit_test(a_failing_init_is_undone),
        cmocka_unit_test(overflow_is_null_and_a_status),
        cmocka_unit_test(plain_types_run_neither),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
