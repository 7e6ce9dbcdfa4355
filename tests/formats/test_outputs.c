/* Histories written and read back where a script cannot make the input: segments, marks, several devices and processes. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "berth/trace.h"
#include "format/inputs.h"
#include "format/outputs.h"
#include "format/repack.h"

static void make_path(char *path)
{
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
}

/* Pages are mapped, given back in part, and mapped and given back between two events; two devices and two processes share addresses. */
static void make_history(format_history *h)
{
    assert_true(format_history_init(h, "test"));
    uint16_t cuda = format_history_device(h, "cuda:1");
    h->devices[cuda].capacity_bytes = 1 << 20;
    uint32_t label = format_history_text(h, "w", 1);
    format_history_process(h, 0, format_history_text(h, "parent", 6));
    format_history_process(h, 1, format_history_text(h, "child", 5));
    format_history_thread(h, 1, 2, format_history_text(h, "io \"2\"", 6));
    format_history_thread(h, 0, 0, format_history_text(h, "main", 4));
    format_history_threads_sort(h);
    format_history_map(h,
                       &(format_segment){.address = 4096, .size_bytes = 8192, .begin_ns = 5, .device = cuda});
    format_history_alloc(
        h,
        &(format_block){.address = 4096, .size_bytes = 100, .begin_ns = 5, .device = cuda, .label = label});
    format_history_alloc(
        h, &(format_block){.address = 4096, .size_bytes = 50, .begin_ns = 5, .process = 1, .thread = 2});
    format_history_map(
        h, &(format_segment){.address = 65536, .size_bytes = 4096, .begin_ns = 6, .device = cuda});
    format_history_unmap(h, 0, cuda, 65536, 4096, 6);
    format_history_moment(h, &(format_moment){.time_ns = 6, .label = label, .device = cuda});
    format_history_alloc(h,
                         &(format_block){.address = 6000, .size_bytes = 200, .begin_ns = 6, .device = cuda});
    format_history_free(h, 1, 0, 4096, 6);
    format_history_unmap(h, 0, cuda, 8192, 4096, 7);
    format_history_free(h, 0, cuda, 4096, 9);
    format_history_moment(h, &(format_moment){.time_ns = 9, .size_bytes = 777, .device = cuda});
    format_history_close(h);
}

static void test_a_trace_keeps_everything_in_its_order(void **state)
{
    (void)state;
    char path[] = "/tmp/berth_outputs_XXXXXX";
    format_history h = {0}, back = {0};
    format_error error;
    make_path(path);
    make_history(&h);
    assert_int_equal(format_trace_write(&h, path, NULL, NULL, &error), BERTH_OK);
    assert_int_equal(format_trace_read(path, &back, NULL, NULL, &error), BERTH_OK);
    assert_int_equal(back.block_count, h.block_count);
    for (uint32_t i = 0; i < h.block_count; i++) {
        const format_block *a = &h.blocks[i], *b = &back.blocks[i];
        assert_int_equal(a->begin, b->begin);
        assert_int_equal(a->end, b->end);
        assert_int_equal(a->size_bytes, b->size_bytes);
        assert_int_equal(a->process, b->process);
        assert_int_equal(a->device, b->device);
        assert_string_equal(format_history_words(&h, a->label), format_history_words(&back, b->label));
    }
    assert_int_equal(back.segment_count, h.segment_count);
    for (uint32_t i = 0; i < h.segment_count; i++) {
        assert_int_equal(h.segments[i].address, back.segments[i].address);
        assert_int_equal(h.segments[i].size_bytes, back.segments[i].size_bytes);
        assert_int_equal(h.segments[i].begin, back.segments[i].begin);
        assert_int_equal(h.segments[i].end, back.segments[i].end);
    }
    assert_int_equal(back.moment_count, 2);
    assert_int_equal(back.moments[0].before, 2);
    assert_int_equal(back.moments[1].size_bytes, 777);
    assert_int_equal(back.devices[1].capacity_bytes, 1 << 20);
    assert_string_equal(format_history_words(&back, back.commands[1]), "child");
    assert_int_equal(back.named_count, 2);
    assert_string_equal(format_history_thread_name(&back, 0, 0), "main");
    assert_string_equal(format_history_thread_name(&back, 1, 2), "io \"2\"");
    assert_string_equal(format_history_thread_name(&back, 1, 1), "");
    assert_int_equal(back.unknown_frees + back.lost_frees, 0);
    format_history_finish(&back);
    assert_int_equal(format_trace_write(&h, "/nowhere/x", NULL, NULL, &error), BERTH_IO);
    format_history_finish(&h);
    unlink(path);
}

/* Segments hold what is alive in them, and PyTorch's number of a device stays. */
static void test_a_snapshot_comes_back(void **state)
{
    (void)state;
    char path[] = "/tmp/berth_outputs_XXXXXX";
    format_history h = {0}, back = {0};
    format_error error;
    make_path(path);
    make_history(&h);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(format_snapshot_write(&h, out, NULL, NULL, &error), BERTH_OK);
    fclose(out);
    assert_int_equal(format_history_read(path, &back, NULL, NULL, &error), BERTH_OK);
    uint16_t cuda = format_find_device(&back, "cuda:1");
    assert_int_not_equal(cuda, FORMAT_ANY_DEVICE);
    assert_int_equal(format_history_peak(&back, cuda).bytes, 300);
    assert_int_equal(back.block_count, h.block_count);
    uint32_t alive = 0;
    for (uint32_t i = 0; i < back.segment_count; i++)
        if (back.segments[i].end == FORMAT_ALIVE) {
            assert_int_equal(back.segments[i].address, 4096);
            assert_int_equal(back.segments[i].size_bytes, 4096);
            alive++;
        }
    assert_int_equal(alive, 1);
    format_history_finish(&back);
    FILE *full = fopen("/dev/full", "wb");
    assert_non_null(full);
    assert_int_equal(format_snapshot_write(&h, full, NULL, NULL, &error), BERTH_IO);
    assert_int_equal(format_chrome_write(&h, full, NULL, NULL, &error), BERTH_IO);
    fclose(full);
    format_history_finish(&h);
    unlink(path);
}

static void test_the_device_with_the_largest_peak(void **state)
{
    (void)state;
    format_history h = {0};
    make_history(&h);
    assert_int_equal(format_main_device(&h), 1);
    assert_int_equal(format_used_devices(&h), 2);
    assert_int_equal(format_find_device(&h, "host"), 0);
    assert_int_equal(format_find_device(&h, "cuda:1"), 1);
    assert_int_equal(format_find_device(&h, "cuda:2"), FORMAT_ANY_DEVICE);
    format_history_finish(&h);
}

/* The last bytes of a file are written when it is released: what it was made from must not go then. */
static void test_a_repacked_trace_is_whole_or_refused(void **state)
{
    (void)state;
    char from[] = "/tmp/berth_from_XXXXXX", to[] = "/tmp/berth_to_XXXXXX";
    make_path(from);
    make_path(to);
    berth_trace *t = NULL;
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.kind = BERTH_TRACE_ALLOC;
    assert_int_equal(berth_trace_create(from, NULL, &t), BERTH_OK);
    for (uint64_t i = 1; i <= 20000; i++) { /* numbers that do not pack */
        e.address = e.address * UINT64_C(6364136223846793005) + i;
        e.size_bytes = e.address >> 20;
        assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    }
    berth_trace_release(t);
    struct rlimit limit, was;
    format_repack_options options = {0};
    format_repacked figures;
    format_error error;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    limit = was;
    limit.rlim_cur = 20000;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    berth_status status = format_repack(from, to, &options, NULL, NULL, &figures, &error);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_equal(status, BERTH_IO);
    assert_int_equal(format_repack(from, to, &options, NULL, NULL, &figures, &error), BERTH_OK);
    assert_int_equal(figures.events, 20000);
    unlink(from);
    unlink(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_trace_keeps_everything_in_its_order),
        cmocka_unit_test(test_a_snapshot_comes_back),
        cmocka_unit_test(test_the_device_with_the_largest_peak),
        cmocka_unit_test(test_a_repacked_trace_is_whole_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
