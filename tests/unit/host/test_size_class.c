/* Size classes: the bound on waste holds for every size, and classes are in order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "host/host.h"
#include "host/size_class.h"

static void check_size(const berth__size_classes *classes, size_t size, double max_waste)
{
    uint32_t index = berth__class_of(classes, size);
    size_t block = berth__class_bytes(classes, index);
    assert_true(index < classes->count);
    assert_true(block >= size);
    assert_int_equal(block % 64, 0);
    /* The next smaller class would not hold it. */
    if (index > 0)
        assert_true(berth__class_bytes(classes, index - 1) < size);
    if (block - size >= 64)
        assert_true((double)(block - size) <= max_waste * (double)size);
}

static void test_waste_is_bounded(void **state)
{
    (void)state;
    static const double bounds[] = {1.0, 0.5, 0.3, 0.25, 0.125, 0.1, 1.0 / 16, 1.0 / 64};
    for (size_t i = 0; i < BERTH_COUNT_OF(bounds); i++) {
        berth__size_classes classes;
        assert_true(berth__size_classes_init(&classes, bounds[i]));
        for (size_t size = 1; size < 20000; size++)
            check_size(&classes, size, bounds[i]);
        for (uint32_t index = 0; index < classes.count; index++) {
            size_t block = berth__class_bytes(&classes, index);
            assert_int_equal(berth__class_of(&classes, block), index);
            check_size(&classes, block, bounds[i]);
            check_size(&classes, block - 1, bounds[i]);
            if (index + 1 < classes.count)
                check_size(&classes, block + 1, bounds[i]);
        }
    }
}

static void test_eight_classes_a_doubling(void **state)
{
    (void)state;
    berth__size_classes classes;
    assert_true(berth__size_classes_init(&classes, 0.125));
    for (size_t from = 1024; from <= (size_t)1 << 40; from *= 2)
        assert_int_equal(berth__class_of(&classes, 2 * from) - berth__class_of(&classes, from), 8);
    assert_int_equal(berth__class_bytes(&classes, berth__class_of(&classes, 1025)), 1152);
}

/* Blocks of a class below a page fill whole pages when 4096 / step of them lie side by side. */
static void test_steps_divide_pages(void **state)
{
    (void)state;
    for (uint32_t log2 = 0; log2 <= 6; log2++) {
        berth__size_classes classes;
        assert_true(berth__size_classes_init(&classes, 1.0 / (double)(1u << log2)));
        for (uint32_t index = 0; index < classes.count; index++) {
            size_t step = berth__class_step(&classes, index);
            assert_int_equal(berth__class_bytes(&classes, index) % step, 0);
            if (step < 4096)
                assert_int_equal(berth__class_bytes(&classes, index) * (4096 / step) % 4096, 0);
        }
    }
}

static void test_bounds_that_cannot_be(void **state)
{
    (void)state;
    berth__size_classes classes;
    assert_false(berth__size_classes_init(&classes, 0.0));
    assert_false(berth__size_classes_init(&classes, -0.1));
    assert_false(berth__size_classes_init(&classes, 0.01));
    assert_false(berth__size_classes_init(&classes, 1.01));
    assert_false(berth__size_classes_init(&classes, __builtin_nan("")));
}

/* The tables that a cache looks sizes up in say the same as the rule, on both sides of every step. */
static void test_tables_agree_with_the_rule(void **state)
{
    (void)state;
    static const double wastes[] = {1.0, 0.5, 0.125, 0.0625, 1.0 / 64};
    for (size_t i = 0; i < sizeof wastes / sizeof wastes[0]; i++) {
        berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
        berth_allocator *cache = NULL;
        options.max_waste = wastes[i];
        assert_int_equal(berth_host_cache_create(&options, &cache), BERTH_OK);
        const host_cache *c = berth__host_of(cache);
        for (uint32_t k = 0; k < c->classes.count; k++) {
            size_t bytes = berth__class_bytes(&c->classes, k);
            assert_int_equal(berth__host_class(c, bytes), k);
            assert_int_equal(berth__host_class(c, bytes - 63), k);
            if (bytes < BERTH__CLASS_BYTES_MAX)
                assert_int_equal(berth__host_class(c, bytes + 1), k + 1);
        }
        assert_int_equal(berth__host_class(c, BERTH__CLASS_BYTES_MAX + 1), HOST_NO_CLASS);
        berth_allocator_release(cache);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waste_is_bounded),           cmocka_unit_test(test_eight_classes_a_doubling),
        cmocka_unit_test(test_steps_divide_pages),         cmocka_unit_test(test_bounds_that_cannot_be),
        cmocka_unit_test(test_tables_agree_with_the_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
