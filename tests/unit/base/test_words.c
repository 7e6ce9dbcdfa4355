/* Words of messages: sizes, text in pieces, and who holds the most. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/words.h"

static void sizes_read_well_and_exactly(void **state)
{
    (void)state;
    const struct {
        uint64_t bytes;
        const char *words;
    } cases[] = {
        {0, "0 bytes"},
        {1, "1 byte"},
        {1023, "1023 bytes"},
        {1024, "1 KiB (1024 bytes)"},
        {1536, "1.5 KiB (1536 bytes)"},
        {1000000, "977 KiB (1000000 bytes)"},
        {(uint64_t)1 << 20, "1 MiB (1048576 bytes)"},
        {((uint64_t)1 << 20) - 1, "1 MiB (1048575 bytes)"},
        {(uint64_t)10 << 30, "10 GiB (10737418240 bytes)"},
        {(uint64_t)100 << 30, "100 GiB (107374182400 bytes)"},
        {2469606195, "2.3 GiB (2469606195 bytes)"},
        {UINT64_MAX, "16 EiB (18446744073709551615 bytes)"},
    };
    for (size_t i = 0; i < BERTH_COUNT_OF(cases); i++)
        assert_string_equal(BERTH__SIZE(cases[i].bytes), cases[i].words);
}

static void text_is_cut_and_counted(void **state)
{
    (void)state;
    char room[8];
    berth__text text = {room, sizeof room, 0};
    berth__say(&text, "%s", "abcdef");
    berth__say(&text, "%s", "ghijkl");
    assert_string_equal(room, "abcdefg");
    assert_int_equal(text.length, 12);
    berth__text none = {NULL, 0, 0};
    berth__say(&none, "%d", 12345);
    assert_int_equal(none.length, 5);
}

static void the_largest_are_told(void **state)
{
    (void)state;
    static berth__holders holders;
    static char names[200][16];
    for (int i = 0; i < 200; i++) { /* more than are seen: small ones give way */
        snprintf(names[i], sizeof names[i], "l%d", i);
        berth__holders_add(&holders, names[i], (uint64_t)i + 1);
    }
    berth__holders_add(&holders, NULL, 1000);
    berth__holders_add(&holders, "l199", 800);
    char words[512] = "";
    berth__text text = {words, sizeof words, 0};
    berth__holders_say(&holders, &text);
    assert_string_equal(
        words, "l199 1000 bytes, no label 1000 bytes, l198 199 bytes, l197 198 bytes, l196 197 bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_read_well_and_exactly),
        cmocka_unit_test(text_is_cut_and_counted),
        cmocka_unit_test(the_largest_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
