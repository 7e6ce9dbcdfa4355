/* The report's text for people: every kind of deviation has words and figures, and a short buffer is enough to learn how
 * long it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "replay/replay.h"

static void expect_text(const berth_report *report, const char *words)
{
    char text[4096];
    size_t length = berth_report_text(report, text, sizeof text);
    assert_int_equal(length, strlen(text));
    if (!strstr(text, words))
        fail_msg("'%s' is not in:\n%s", words, text);
}

static void test_every_deviation_has_words(void **state)
{
    (void)state;
    static const struct {
        berth_deviation_reason reason;
        const char *words;
    } cases[] = {
        {BERTH_DEVIATION_NONE, "allocation 3 (x): as planned\n"},
        {BERTH_DEVIATION_SIZE, "allocation 3 (x): not the planned size: expected 10 bytes, got 20\n"},
        {BERTH_DEVIATION_ALIGNMENT, "a stricter alignment than planned: expected 10, got 20\n"},
        {BERTH_DEVIATION_HELD, "freed later than planned: by allocation 20\n"},
        {BERTH_DEVIATION_PAST_END, "past the end of the plan: the plan has 10 allocations, got 20 bytes\n"},
        {BERTH_DEVIATION_BAD_FREE, "a free of what is not live: at offset 20\n"},
        {BERTH_DEVIATION_EARLY_FREE, "freed earlier than planned: before allocation 20, planned before 10\n"},
        {BERTH_DEVIATION_LABEL, "another label than planned: 20 bytes\n"},
        {BERTH_DEVIATION_MISSING, "not asked for before the scope ended: the plan has 10 allocations\n"},
        {BERTH_DEVIATION_STRAGGLER,
         "still live at the end of the scope: planned to be freed before allocation 10\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        berth_report report = BERTH_REPORT_INIT;
        berth__report_note(&report, cases[i].reason, 3, 10, 20, "x");
        expect_text(&report, cases[i].words);
    }
    assert_string_equal(berth_deviation_words((berth_deviation_reason)77), "unknown");
}

static void test_what_is_too_much_is_counted(void **state)
{
    (void)state;
    berth_report report = BERTH_REPORT_INIT;
    for (uint64_t i = 0; i < BERTH_REPORT_DEVIATIONS + 5; i++)
        berth__report_note(&report, BERTH_DEVIATION_SIZE, i, 1, 2, NULL);
    assert_int_equal(report.deviation_count, BERTH_REPORT_DEVIATIONS + 5);
    expect_text(&report, "  allocation 0: not the planned size");
    expect_text(&report, "  and 5 more\n");
}

static void test_the_heading_says_how_it_went(void **state)
{
    (void)state;
    berth_report report = BERTH_REPORT_INIT;
    report.strict = report.stale = true;
    report.planned = 5;
    report.from_plan = 4;
    expect_text(&report, "4 of 5 planned allocations served from the plan, strict, stale plan\n");
    report.status = BERTH_BUSY;
    expect_text(&report, "not replayed: ");
    expect_text(&report, berth_status_words(BERTH_BUSY));
}

/* As snprintf: what all of it takes, whatever the room; never a byte beyond it. */
static void test_a_short_buffer_gets_what_fits(void **state)
{
    (void)state;
    berth_report report = BERTH_REPORT_INIT;
    berth__report_note(&report, BERTH_DEVIATION_SIZE, 3, 10, 20, "label");
    char whole[2048];
    size_t length = berth_report_text(&report, whole, sizeof whole);
    assert_int_equal(berth_report_text(&report, NULL, 0), length);
    for (size_t room = 1; room <= length + 1; room += 7) {
        char *part = malloc(room);
        assert_non_null(part);
        assert_int_equal(berth_report_text(&report, part, room), length);
        assert_int_equal(strlen(part), room - 1);
        assert_memory_equal(part, whole, room - 1);
        free(part);
    }
    report.struct_size = 4;
    assert_int_equal(berth_report_text(&report, whole, sizeof whole), 0);
    assert_string_equal(whole, "");
    assert_int_equal(berth_report_text(NULL, whole, sizeof whole), 0);
}

/* A caller that was compiled with a shorter struct gets the part that it knows. */
static void test_an_older_caller_gets_its_part(void **state)
{
    (void)state;
    berth_report report = BERTH_REPORT_INIT, out;
    report.planned = 5;
    memset(&out, 0xAA, sizeof out);
    out.struct_size = offsetof(berth_report, planned) + sizeof out.planned;
    berth__report_give(&report, &out);
    assert_int_equal(out.planned, 5);
    assert_int_equal(out.struct_size, offsetof(berth_report, planned) + sizeof out.planned);
    unsigned char after;
    memcpy(&after, (const char *)&out + out.struct_size, 1);
    assert_int_equal(after, 0xAA);
    berth__report_give(&report, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_deviation_has_words),
        cmocka_unit_test(test_what_is_too_much_is_counted),
        cmocka_unit_test(test_the_heading_says_how_it_went),
        cmocka_unit_test(test_a_short_buffer_gets_what_fits),
        cmocka_unit_test(test_an_older_caller_gets_its_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
