/* The table of names: found again after growing, told apart when their hashes agree, numbers by a bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "file/names.h"

enum { MANY = 20000 };
static char texts[MANY][12];

static berth__csv_field field_of(const char *text)
{
    return (berth__csv_field){.text = text, .length = strlen(text)};
}

static bool same(void *context, uint32_t value, const berth__csv_field *field)
{
    ++*(size_t *)context;
    return strlen(texts[value]) == field->length && memcmp(texts[value], field->text, field->length) == 0;
}

static void names_are_found_again(void **state)
{
    (void)state;
    berth__names names = {0};
    size_t asked = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t found;
        snprintf(texts[i], sizeof texts[i], "n%u", i);
        berth__csv_field field = field_of(texts[i]);
        assert_int_equal(berth__names_find(&names, &field, same, &asked), BERTH__NO_NAME);
        assert_int_equal(berth__names_add(&names, &field, i, same, &asked, &found), BERTH_OK);
        assert_int_equal(found, BERTH__NO_NAME);
    }
    assert_true(asked < 100); /* texts are compared only where hashes agree */
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t found;
        berth__csv_field field = field_of(texts[i]);
        assert_int_equal(berth__names_find(&names, &field, same, &asked), i);
        assert_int_equal(berth__names_add(&names, &field, 7, same, &asked, &found), BERTH_OK);
        assert_int_equal(found, i);
    }
    berth__names_finish(&names);
    assert_int_equal(berth__heap_live(), 0);
}

static void numbers_take_a_bit(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool taken;
    } cases[] = {{"0", true},   {"7", true},   {"99999999", true}, {"100000000", false}, {"07", false},
                 {"-7", false}, {"7x", false}, {"", false},        {"1023", true},       {"1024", true}};
    berth__names names = {0};
    for (int round = 0; round < 2; round++)
        for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
            bool taken, twice = false;
            berth__csv_field field = field_of(cases[k].text);
            assert_int_equal(berth__names_add_number(&names, &field, &taken, &twice), BERTH_OK);
            assert_int_equal(taken, cases[k].taken);
            assert_int_equal(twice, taken && round == 1);
        }
    berth__names_finish(&names);
    assert_int_equal(berth__heap_live(), 0);
}

/* The first number past the bits that there are. */
static void a_bit_is_there_for_every_number(void **state)
{
    (void)state;
    berth__names names = {0};
    for (uint32_t n = 1; n <= 1 << 20; n *= 2) {
        char text[12];
        bool taken, twice = false;
        snprintf(text, sizeof text, "%u", n);
        const berth__csv_field field = field_of(text);
        assert_int_equal(berth__names_add_number(&names, &field, &taken, &twice), BERTH_OK);
        assert_true(taken && !twice && names.bit_count > n);
    }
    berth__names_finish(&names);
}

/* The letters in front of the first name's number are those of most. */
static void numbers_behind_letters_take_a_bit(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool taken;
    } cases[] = {{"t_12", true},  {"t_7", true},          {"t_0", true},       {"t_", false}, {"t_07", false},
                 {"7", false},    {"t_100000000", false}, {"", false},         {"t", false},  {"u_7", false},
                 {"t_7x", false}, {"t__7", false},        {"t_99999999", true}};
    berth__names names = {0};
    for (int round = 0; round < 2; round++)
        for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
            bool taken, twice = false;
            berth__csv_field field = field_of(cases[k].text);
            assert_int_equal(berth__names_add_number(&names, &field, &taken, &twice), BERTH_OK);
            assert_int_equal(taken, cases[k].taken);
            assert_int_equal(twice, taken && round == 1);
        }
    berth__names_finish(&names);
    static const char *const unfit[] = {"a_prefix_of_more_than_31_letters_17", "a\"17"};
    for (size_t k = 0; k < 2; k++) { /* then plain numbers are the usual form */
        bool taken, twice = false;
        berth__csv_field first = field_of(unfit[k]), number = field_of("17");
        assert_int_equal(berth__names_add_number(&names, &first, &taken, &twice), BERTH_OK);
        assert_false(taken);
        assert_int_equal(berth__names_add_number(&names, &number, &taken, &twice), BERTH_OK);
        assert_true(taken);
        assert_false(twice);
        berth__names_finish(&names);
    }
    assert_int_equal(berth__heap_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found_again),
        cmocka_unit_test(numbers_take_a_bit),
        cmocka_unit_test(a_bit_is_there_for_every_number),
        cmocka_unit_test(numbers_behind_letters_take_a_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
