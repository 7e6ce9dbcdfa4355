/* Valleys below pins: nothing is given up for a pin that is elsewhere, nor for one item that is too high. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/base.h"
#include "plan_families.h"
#include "plan_phase.h"
#include "planner/place/valley.h"

typedef struct row {
    uint64_t lower, upper, size, fixed;
} row;

enum { MOST = 8 };

static uint64_t peak_of(const row *rows, size_t count, unsigned variant)
{
    berth_problem_buffer buffers[MOST];
    uint64_t offsets[MOST], peak = 0;
    berth__prepared p;
    for (size_t i = 0; i < count; i++) {
        family_buffer(&buffers[i], rows[i].lower, rows[i].upper - rows[i].lower, rows[i].size);
        buffers[i].fixed_offset = rows[i].fixed;
    }
    const berth_problem problem = {.struct_size = sizeof problem, .buffers = buffers, .buffer_count = count};
    assert_int_equal(berth__prepared_init(&p, &problem), BERTH_OK);
    berth__search search = search_of(&p);
    assert_int_equal(berth__valley_run(&search, variant, UINT64_MAX, offsets, &peak), BERTH_OK);
    expect_valid(&problem, &p, offsets);
    peak *= p.unit_bytes;
    berth__prepared_finish(&p);
    return peak;
}

/* The high one begins at 0, since the low pin is over another part of the valley. */
static void test_a_pin_elsewhere_is_no_ceiling(void **state)
{
    (void)state;
    static const row rows[] = {{0, 8, 10, BERTH_NO_OFFSET}, {8, 9, 1, 4}, {8, 10, 3, BERTH_NO_OFFSET}};
    for (unsigned variant = 0; variant < BERTH__VALLEY_VARIANTS; variant++)
        assert_int_equal(peak_of(rows, 3, variant), 10);
}

/* All live together: the low one goes below the pin whichever is preferred, so that nothing is lost but a unit. */
static void test_one_that_is_too_high_makes_way(void **state)
{
    (void)state;
    static const row rows[] = {{0, 10, 10, BERTH_NO_OFFSET}, {0, 10, 1, 4}, {0, 10, 3, BERTH_NO_OFFSET}};
    for (unsigned variant = 0; variant < BERTH__VALLEY_VARIANTS; variant++)
        assert_int_equal(peak_of(rows, 3, variant), 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pin_elsewhere_is_no_ceiling),
        cmocka_unit_test(test_one_that_is_too_high_makes_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
