/* What is said of buffers by number is told by id and line, and nothing else is changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "berth/problem_file.h"

static const char csv[] = "id,lower,upper,size\n"
                          "conv,0,2,8\n"
                          "\"two\nlines\",0,1,8\n"
                          "last,1,2,8\n";

static berth_problem_file *file;

static void expect(const char *words, const char *said)
{
    char text[200];
    assert_int_equal(berth_problem_file_words(file, words, text, sizeof text), strlen(said));
    assert_string_equal(text, said);
}

static void buffers_are_named(void **state)
{
    (void)state;
    assert_int_equal(berth_problem_file_parse(csv, sizeof csv - 1, &file), BERTH_OK);
    expect("buffer 0 is too large", "'conv' (line 2) is too large");
    expect("buffers 0 and 2 overlap: [0, 8) and [4, 12)",
           "'conv' (line 2) and 'last' (line 5) overlap: [0, 8) and [4, 12)");
    expect("at the end: buffer 1",
           "at the end: 'two?lines' (line 3)"); /* nothing that a terminal would obey */
    expect("", "");
    expect("nothing of them", "nothing of them");
    /* What is no buffer of the file's stays as it is. */
    expect("buffer 3", "buffer 3");
    expect("buffers 0 and 99999999999999999999999999 and buffer 2",
           "buffers 0 and 99999999999999999999999999 and 'last' (line 5)");
    expect("rebuffer 0, buffers 7", "rebuffer 0, buffers 7");
    expect("buffers 0 and", "buffers 0 and");
    char small[8] = "xxxxxxx";
    assert_int_equal(berth_problem_file_words(file, "buffer 0 x", small, 4), strlen("'conv' (line 2) x"));
    assert_string_equal(small, "'co");
    assert_int_equal(berth_problem_file_words(NULL, "buffer 0", NULL, 9), strlen("buffer 0"));
    berth_problem_file_destroy(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(buffers_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
