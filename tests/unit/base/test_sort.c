/* Both sorts order by what they are told and keep equals as they were, at every length up to where they change their way. */
#include "base/sort.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { most = 300, values = 7, index_bits = 16 };

static uint64_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* A key in the upper bits, the place it came from below: stable means that both end up in order. */
static void test_keys(void **state)
{
    (void)state;
    uint64_t seed = 1, keys[most], scratch[most];
    for (size_t count = 0; count < most; count++)
        for (unsigned spread = 1; spread < 40; spread += 19) {
            for (size_t i = 0; i < count; i++)
                keys[i] = (draw(&seed) % values) << spread << index_bits | i;
            berth__sort_keys(keys, scratch, count, index_bits, index_bits + spread + 3);
            for (size_t i = 1; i < count; i++)
                assert_true(keys[i - 1] < keys[i]);
        }
}

/* Bits beside the field do not count. */
static void test_keys_by_a_field(void **state)
{
    (void)state;
    uint64_t keys[] = {0xF01, 0xE02, 0xD01, 0xC03, 0xB02}, scratch[5];
    const uint64_t sorted[] = {0xF01, 0xD01, 0xE02, 0xB02, 0xC03};
    berth__sort_keys(keys, scratch, 5, 0, 8);
    assert_memory_equal(keys, sorted, sizeof keys);
    berth__sort_keys(keys, scratch, 5, 8, 8);
    assert_memory_equal(keys, sorted, sizeof keys);
}

/* Enough for large digits. Of the field, bits in the middle and at both ends are the same in all keys; what stands
 * around it is not, and does not count. */
static void test_many_keys(void **state)
{
    (void)state;
    enum { many = 5000, low = 20, high = 60 };
    static uint64_t keys[many], scratch[many];
    uint64_t seed = 3;
    for (uint64_t varied = 0x3ffffff; varied; varied >>= 5) {
        for (size_t i = 0; i < many; i++)
            keys[i] = draw(&seed) << high | ((draw(&seed) & varied & 0x1f0f8) | 0x1000000000) << low | i;
        for (int again = 0; again < 2; again++) { /* the second time all is in order */
            berth__sort_keys(keys, scratch, many, low, high);
            for (size_t i = 1; i < many; i++)
                assert_true(keys[i - 1] << (64 - high) < keys[i] << (64 - high));
        }
    }
}

static int by_value(const void *context, uint32_t a, uint32_t b)
{
    const uint64_t *value = context;
    return (value[a] > value[b]) - (value[a] < value[b]);
}

static void test_indices(void **state)
{
    (void)state;
    uint64_t seed = 2, value[most] = {0};
    uint32_t indices[most], scratch[most];
    for (size_t count = 0; count < most; count++) {
        for (size_t i = 0; i < count; i++) {
            value[i] = draw(&seed) % values;
            indices[i] = (uint32_t)i;
        }
        berth__sort_indices(indices, scratch, count, by_value, value);
        for (size_t i = 1; i < count; i++) {
            uint32_t a = indices[i - 1], b = indices[i];
            assert_true(value[a] < value[b] || (value[a] == value[b] && a < b));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_keys_by_a_field),
        cmocka_unit_test(test_many_keys),
        cmocka_unit_test(test_indices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
