/* Blocks put together by label and by call site. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/holders.h"
#include "format/site.h"

static uint32_t text(format_history *h, const char *words)
{
    return format_history_text(h, words, strlen(words));
}

static uint32_t frame(format_history *h, uint32_t caller, const char *function, const char *file,
                      uint32_t line, uint64_t address)
{
    return format_history_frame(h, &(format_frame){.caller = caller,
                                                   .function = text(h, function),
                                                   .file = text(h, file),
                                                   .line = line,
                                                   .address = address});
}

static void alloc(format_history *h, uint64_t address, uint64_t size, uint32_t stack, const char *label)
{
    format_history_alloc(
        h, &(format_block){.address = address, .size_bytes = size, .stack = stack, .label = text(h, label)});
}

/* Two stacks through allocators' frames to one line, at two addresses; one elsewhere; a block without anything. */
static void make_history(format_history *h)
{
    assert_true(format_history_init(h, "test"));
    uint32_t outer = frame(h, 0, "main", "/src/app.c", 9, 100);
    uint32_t here = frame(h, outer, "parse(char const*)", "/src/parse.cc", 31, 200);
    uint32_t again = frame(h, outer, "parse(char const*)", "/src/parse.cc", 31, 260);
    uint32_t vector = frame(h, here, "void std::vector<int>::resize<int>(int)", "vector", 5, 300);
    uint32_t by_new = frame(h, vector, "operator new(unsigned long)", "", 0, 400);
    uint32_t by_malloc = frame(h, again, "malloc", "", 0, 500);
    alloc(h, 16, 100, by_new, "tokens");
    alloc(h, 256, 50, by_malloc, "tokens");
    alloc(h, 512, 1000, outer, "");
    format_history_free(h, 0, 0, 512, 3);
    alloc(h, 1024, 7, 0, "tail");
    format_history_close(h);
}

static void test_frames_of_allocators_are_passed_over(void **state)
{
    (void)state;
    format_history h;
    holders by;
    char name[HOLDERS_NAME_ROOM];
    make_history(&h);
    assert_true(holders_init(&by, &h, FORMAT_ANY_DEVICE, HOLDERS_AT_END, HOLDERS_BY_SITE));
    assert_int_equal(by.count, 3);
    assert_string_equal(holders_name(&h, &by, &by.items[0], name), "parse(char const*) (parse.cc:31)");
    assert_int_equal(by.items[0].live_bytes, 150);
    assert_int_equal(by.items[0].live_blocks, 2);
    assert_int_equal(by.items[0].allocations, 2);
    assert_string_equal(holders_name(&h, &by, &by.items[1], name), "no call stack");
    assert_string_equal(holders_name(&h, &by, &by.items[2], name), "main (app.c:9)");
    assert_int_equal(by.items[2].live_bytes, 0);
    assert_int_equal(by.items[2].total_bytes, 1000);
    for (uint32_t i = 0; i < h.block_count; i++)
        assert_in_range(holders_of_block(&by, &h.blocks[i]), 0, 2);
    assert_int_equal(holders_of_block(&by, &h.blocks[0]), holders_of_block(&by, &h.blocks[1]));
    holders_finish(&by);
    format_history_finish(&h);
}

static void test_labels_at_the_peak(void **state)
{
    (void)state;
    format_history h;
    holders by;
    char name[HOLDERS_NAME_ROOM];
    make_history(&h);
    format_peak peak = format_history_peak(&h, FORMAT_ANY_DEVICE);
    assert_true(holders_init(&by, &h, 0, peak.event, HOLDERS_BY_LABEL));
    assert_int_equal(by.count, 3);
    assert_string_equal(holders_name(&h, &by, &by.items[0], name), "no label");
    assert_int_equal(by.items[0].live_bytes, 1000);
    assert_string_equal(holders_name(&h, &by, &by.items[1], name), "tokens");
    assert_string_equal(holders_name(&h, &by, &by.items[2], name), "tail");
    assert_int_equal(by.items[2].live_bytes, 0);
    holders_finish(&by);
    format_history_finish(&h);
}

static void test_a_stack_of_allocators_alone_has_its_outermost_frame(void **state)
{
    (void)state;
    format_history h;
    assert_true(format_history_init(&h, "test"));
    uint32_t outer = frame(&h, 0, "std::vector<int>::reserve(unsigned long)", "", 0, 8);
    uint32_t inner = frame(&h, outer, "operator new(unsigned long)", "", 0, 9);
    assert_int_equal(holders_site(&h, inner), outer);
    assert_int_equal(holders_site(&h, 0), 0);
    format_history_finish(&h);
}

static void test_wrappers_of_malloc_are_passed_over(void **state)
{
    (void)state;
    static const char *const wrappers[] = {"png_malloc", "av_mallocz",
                                           "xrealloc",   "Arena::allocate(unsigned long)",
                                           "g_strdup",   "void* pool_alloc<int>(int)",
                                           "MyAlloc"};
    static const char *const others[] = {"alloc_tensor", "allocator_init", "deallocated", "parse(Allocator)",
                                         "f<alloc>()"};
    format_history h;
    assert_true(format_history_init(&h, "test"));
    uint32_t outer = frame(&h, 0, "main", "", 0, 8);
    for (size_t i = 0; i < sizeof wrappers / sizeof wrappers[0]; i++)
        assert_int_equal(holders_site(&h, frame(&h, outer, wrappers[i], "", 0, 9)), outer);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_int_not_equal(holders_site(&h, frame(&h, outer, others[i], "", 0, 9)), outer);
    format_history_finish(&h);
}

static void test_places_without_symbols_are_offsets(void **state)
{
    (void)state;
    format_history h;
    char name[HOLDERS_NAME_ROOM];
    assert_true(format_history_init(&h, "test"));
    uint32_t f = format_history_frame(&h, &(format_frame){.module = text(&h, "/opt/libx.so"),
                                                          .address = 0x7f0000001f30,
                                                          .base = 0x7f0000000000});
    assert_string_equal(holders_frame_name(&h, f, name), "libx.so+0x1f30");
    assert_int_equal(format_site_result_length("void f<int>(int)"), 5);
    assert_int_equal(format_site_result_length("operator new(unsigned long)"), 0);
    assert_int_equal(format_site_result_length("(anonymous namespace)::f(int)"), 0);
    format_history_finish(&h);
}

static void test_nothing_at_all(void **state)
{
    (void)state;
    format_history h;
    holders by;
    assert_true(format_history_init(&h, "test"));
    format_history_close(&h);
    assert_true(holders_init(&by, &h, FORMAT_ANY_DEVICE, FORMAT_ALIVE, HOLDERS_BY_SITE));
    assert_int_equal(by.count, 0);
    holders_finish(&by);
    format_history_finish(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_of_allocators_are_passed_over),
        cmocka_unit_test(test_labels_at_the_peak),
        cmocka_unit_test(test_a_stack_of_allocators_alone_has_its_outermost_frame),
        cmocka_unit_test(test_wrappers_of_malloc_are_passed_over),
        cmocka_unit_test(test_places_without_symbols_are_offsets),
        cmocka_unit_test(test_nothing_at_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
