/* The grammar of CSV: where fields begin and end, and what is kept of the text around them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "file/csv.h"

/* Reads all of `text` and writes it as [field|field][field]..., or the failure's first words. */
static const char *seen(const char *text)
{
    static char out[512];
    size_t used = 0, length = strlen(text);
    char *copy = malloc(length ? length : 1); /* no closing zero: a look past the end is seen */
    memcpy(copy, text, length);
    berth__csv csv;
    berth__csv_begin(&csv, copy, length);
    berth_status status;
    while (!(status = berth__csv_next(&csv))) {
        for (size_t i = 0; i < csv.count; i++) {
            char field[64];
            berth__csv_copy(&csv.fields[i], field, sizeof field);
            used += (size_t)snprintf(out + used, sizeof out - used, "%s%s", i ? "|" : "[", field);
        }
        used += (size_t)snprintf(out + used, sizeof out - used, "]");
    }
    if (status != BERTH_NOT_FOUND)
        snprintf(out + used, sizeof out - used, "!%.6s", berth_last_error()->message);
    out[used + (status != BERTH_NOT_FOUND ? 7 : 0)] = '\0';
    free(copy);
    return out;
}

static void records_are_cut_where_they_end(void **state)
{
    (void)state;
    assert_string_equal(seen(""), "");
    assert_string_equal(seen("\n\r\n  \n"), "");
    assert_string_equal(seen("a"), "[a]");
    assert_string_equal(seen("a,b\nc,d\n"), "[a|b][c|d]");
    assert_string_equal(seen("a,b\r\nc,d\r"), "[a|b][c|d]");
    assert_string_equal(seen("\xef\xbb\xbf"
                             "a,b"),
                        "[a|b]");
    assert_string_equal(seen(",\n,,"), "[|][||]");
    assert_string_equal(seen(" a b ,\tc "), "[a b|c]");
}

static void quotes_hold_anything(void **state)
{
    (void)state;
    assert_string_equal(seen("\"a,b\",\"c\"\"d\""), "[a,b|c\"d]");
    assert_string_equal(seen("\"a\nb\"\nc"), "[a\nb][c]");
    assert_string_equal(seen(" \" a \" ,b"), "[ a |b]");
    assert_string_equal(seen("\"\",\"\"\"\""), "[|\"]");
}

static void broken_quotes_are_named_by_line(void **state)
{
    (void)state;
    assert_string_equal(seen("a\n\"b"), "[a]!line 2");
    assert_string_equal(seen("a\n\nb\"c\""), "[a]!line 3");
    assert_string_equal(seen("\"a\n\"x"), "!line 2");
}

static void too_many_fields_are_an_error(void **state)
{
    (void)state;
    char text[2 * BERTH__CSV_COLUMNS + 1];
    memset(text, ',', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    assert_string_equal(seen(text), "!line 1");
}

/* raw is all between the separators, so that a record can be written again as it was. */
static void the_text_around_a_field_is_known(void **state)
{
    (void)state;
    const char *text = "a, \"b\" ,c\r\n";
    berth__csv csv;
    berth__csv_begin(&csv, text, strlen(text));
    assert_int_equal(berth__csv_next(&csv), BERTH_OK);
    assert_int_equal(csv.count, 3);
    assert_int_equal(csv.fields[1].raw_length, 5);
    assert_memory_equal(csv.fields[1].raw, " \"b\" ", 5);
    assert_int_equal(csv.record_end - csv.record, 9);
    assert_int_equal(berth__csv_next(&csv), BERTH_NOT_FOUND);
}

/* Whoever passes over records comes to the same ones as whoever reads them. */
static void a_record_is_skipped_as_it_is_read(void **state)
{
    (void)state;
    const char *text = "\xef\xbb\xbfid;a\r\n\n  \nb;\"c\n;\"\n\"d\"\"\";e\r\n;\n\r\nf\rg;h\n i ; j \nlast;k";
    berth__csv read, skipped;
    berth__csv_begin(&read, text, strlen(text));
    berth__csv_begin(&skipped, text, strlen(text));
    for (size_t records = 0;; records++) {
        berth_status status = berth__csv_next(&read);
        assert_int_equal(berth__csv_skip(&skipped), status);
        assert_ptr_equal(skipped.at, read.at);
        assert_int_equal(skipped.line, read.line);
        assert_ptr_equal(skipped.record, read.record);
        assert_ptr_equal(skipped.record_end, read.record_end);
        assert_int_equal(skipped.record_line, read.record_line);
        if (status) {
            assert_int_equal(records, 7);
            return;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_cut_where_they_end),
        cmocka_unit_test(quotes_hold_anything),
        cmocka_unit_test(broken_quotes_are_named_by_line),
        cmocka_unit_test(too_many_fields_are_an_error),
        cmocka_unit_test(the_text_around_a_field_is_known),
        cmocka_unit_test(a_record_is_skipped_as_it_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
