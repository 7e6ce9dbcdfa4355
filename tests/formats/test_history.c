/* A history is what was added: compared with a second, slow bookkeeping, and read back from a trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "berth/trace.h"
#include "format/inputs.h"
#include "format/pack.h"

enum { STEPS = 20000, PLACES = 300 };

static uint64_t below(uint64_t *random, uint64_t end)
{
    return berth__random(random) % end;
}

/* Random allocations and frees at few places: what is alive, the peak, and the lives are known at every step. */
static void test_random_events(void **state)
{
    (void)state;
    uint64_t random = 5;
    format_history h = {0};
    assert_true(format_history_init(&h, "test"));
    uint32_t block_at[PLACES], blocks = 0, events = 0;
    uint64_t size_at[PLACES], live = 0, peak = 0, lost = 0, unknown = 0;
    memset(block_at, 0xff, sizeof block_at);
    for (uint64_t now = 1; now <= STEPS; now++) {
        uint32_t place = (uint32_t)below(&random, PLACES);
        uint16_t process = (uint16_t)(place % 3), device = (uint16_t)(place % 2);
        uint64_t address = 0x1000 + (place / 6) * 64;
        if (below(&random, 2)) {
            if (block_at[place] != UINT32_MAX) {
                lost++;
                live -= size_at[place];
                events++;
            }
            block_at[place] = blocks++;
            size_at[place] = below(&random, 1000);
            live += size_at[place];
            events++;
            peak = live > peak ? live : peak;
            format_history_alloc(&h, &(format_block){.address = address,
                                                     .size_bytes = size_at[place],
                                                     .begin_ns = now,
                                                     .process = process,
                                                     .device = device});
            assert_int_equal(h.blocks[h.block_count - 1].begin, events - 1);
        } else {
            bool known = block_at[place] != UINT32_MAX;
            assert_int_equal(format_history_free(&h, process, device, address, now), known);
            unknown += !known;
            if (known) {
                events++;
                live -= size_at[place];
                assert_int_equal(h.blocks[block_at[place]].end, events - 1);
                assert_int_equal(h.blocks[block_at[place]].end_ns, now);
                block_at[place] = UINT32_MAX;
            }
        }
        assert_true((format_history_find(&h, process, device, address) != NULL) ==
                    (block_at[place] != UINT32_MAX));
    }
    format_history_close(&h);
    assert_false(h.no_memory);
    assert_int_equal(h.block_count, blocks);
    assert_int_equal(h.event_count, events);
    assert_int_equal(h.lost_frees, lost);
    assert_int_equal(h.unknown_frees, unknown);
    format_peak found = format_history_peak(&h, FORMAT_ANY_DEVICE);
    assert_int_equal(found.bytes, peak);
    uint64_t alive = 0;
    for (uint32_t i = 0; i < h.block_count; i++)
        if (format_block_is_alive(&h.blocks[i], found.event))
            alive += h.blocks[i].size_bytes;
    assert_int_equal(alive, peak);
    format_history_finish(&h);
}

static void test_texts_and_frames_are_kept_once(void **state)
{
    (void)state;
    format_history h = {0};
    assert_true(format_history_init(&h, "test"));
    uint32_t numbers[3000];
    for (int round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 3000; i++) {
            char name[16];
            int length = snprintf(name, sizeof name, "name %u", i);
            uint32_t text = format_history_text(&h, name, (size_t)length);
            uint32_t frame = format_history_frame(&h, &(format_frame){.function = text, .line = i});
            assert_string_equal(format_history_words(&h, text), name);
            if (round == 0)
                numbers[i] = frame;
            else
                assert_int_equal(numbers[i], frame);
        }
    assert_int_equal(h.text_count, 3001);
    assert_int_equal(h.frame_count, 3001);
    assert_int_equal(format_history_text(&h, "", 0), 0);
    uint16_t cuda = format_history_device(&h, "cuda:0");
    assert_int_equal(cuda, 1);
    assert_int_equal(format_history_device(&h, "cuda:0"), cuda);
    assert_int_equal(format_history_device(&h, ""), 0);
    format_history_finish(&h);
}

static void test_pages_are_given_back_in_parts(void **state)
{
    (void)state;
    format_history h = {0};
    assert_true(format_history_init(&h, "test"));
    format_history_map(&h, &(format_segment){.address = 1000, .size_bytes = 100, .begin_ns = 1});
    format_history_unmap(&h, 0, 0, 1040, 20, 2); /* the middle */
    assert_int_equal(h.segment_count, 3);
    assert_int_equal(h.segments[0].end_ns, 2);
    assert_int_equal(h.segments[1].address, 1000);
    assert_int_equal(h.segments[1].size_bytes, 40);
    assert_int_equal(h.segments[2].address, 1060);
    assert_int_equal(h.segments[2].size_bytes, 40);
    format_history_unmap(&h, 0, 0, 0, 5000, 3); /* all */
    assert_int_equal(h.segment_count, 3);
    assert_int_equal(h.segments[1].end_ns, 3);
    assert_int_equal(h.segments[2].end_ns, 3);
    format_history_unmap(&h, 0, 0, 0, 5000, 4); /* nothing is left */
    assert_int_equal(h.segments[2].end_ns, 3);
    format_history_finish(&h);
}

/* Pieces of one space that are mapped, byte by byte, beside what the history has open; overlaps too, which a damaged file may tell. */
static void test_mapped_bytes_are_those_of_a_second_count(void **state)
{
    enum { SPACES = 3, BYTES = 600 };
    static uint8_t mapped[SPACES][BYTES]; /* how many segments are there */
    (void)state;
    format_history h = {0};
    uint64_t random = 1;
    assert_true(format_history_init(&h, "test"));
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t space = (uint32_t)below(&random, SPACES), from = (uint32_t)below(&random, BYTES);
        uint32_t size = 1 + (uint32_t)below(&random, BYTES - from < 60 ? BYTES - from : 60);
        uint16_t process = (uint16_t)(space / 2), device = (uint16_t)(space % 2);
        bool maps = below(&random, 4) && mapped[space][from] < 100;
        if (maps)
            format_history_map(&h, &(format_segment){.address = 1000 + from,
                                                     .size_bytes = size,
                                                     .process = process,
                                                     .device = device,
                                                     .begin_ns = step});
        else
            format_history_unmap(&h, process, device, 1000 + from, size, step);
        for (uint32_t i = from; i < from + size; i++)
            mapped[space][i] = maps ? (uint8_t)(mapped[space][i] + 1) : 0;
        if (maps)
            assert_true(format_history_has_segment(&h, process, device, 1000 + from));
        else if (size > 1)
            assert_false(format_history_has_segment(&h, process, device, 1000 + from));
    }
    static uint8_t open[SPACES][BYTES];
    for (uint32_t i = 0; i < h.segment_count; i++) {
        const format_segment *g = &h.segments[i];
        for (uint64_t at = g->address; g->end == FORMAT_ALIVE && at < g->address + g->size_bytes; at++)
            open[g->process * 2 + g->device][at - 1000]++;
    }
    assert_memory_equal(open, mapped, sizeof open);
    format_history_finish(&h);
}

/* A trace, packed if this build can, comes back with names, stacks and lives. */
static void test_a_trace_is_a_history(void **state)
{
    (void)state;
    char path[] = "/tmp/berth_history_XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
    options.times_given = true;
    options.pack = format_can_pack() ? format_pack : NULL;
    berth_trace *t = NULL;
    assert_int_equal(berth_trace_create(path, &options, &t), BERTH_OK);
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    berth_trace_frame f = BERTH_TRACE_FRAME_INIT;
    berth_trace_device d = BERTH_TRACE_DEVICE_INIT;
    uint32_t outer;
    assert_int_equal(berth_trace_define_text(t, "main", 4, &f.function), BERTH_OK);
    assert_int_equal(berth_trace_define_frame(t, &f, &outer), BERTH_OK);
    f.caller = outer;
    assert_int_equal(berth_trace_define_text(t, "forward", 7, &f.function), BERTH_OK);
    assert_int_equal(berth_trace_define_frame(t, &f, &e.stack), BERTH_OK);
    assert_int_equal(berth_trace_define_text(t, "cuda:0", 6, &d.name), BERTH_OK);
    assert_int_equal(berth_trace_define_device(t, &d, &e.device), BERTH_OK);
    assert_int_equal(berth_trace_define_text(t, "weights", 7, &e.label), BERTH_OK);
    e.thread = 0;
    e.time_ns = 10;
    e.address = 4096;
    e.size_bytes = 77;
    assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    e.kind = BERTH_TRACE_CAPACITY;
    e.size_bytes = 1000;
    assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    e.kind = BERTH_TRACE_FREE;
    e.time_ns = 30;
    assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    berth_trace_release(t);

    format_history h = {0};
    format_error error;
    assert_int_equal(format_trace_read(path, &h, NULL, NULL, &error), BERTH_OK);
    assert_int_equal(h.block_count, 1);
    const format_block *b = &h.blocks[0];
    assert_int_equal(b->size_bytes, 77);
    assert_int_equal(b->begin_ns, 10);
    assert_int_equal(b->end_ns, 30);
    assert_string_equal(format_history_words(&h, b->label), "weights");
    assert_string_equal(format_history_words(&h, h.frames[b->stack].function), "forward");
    assert_string_equal(format_history_words(&h, h.frames[h.frames[b->stack].caller].function), "main");
    assert_string_equal(format_history_words(&h, h.devices[b->device].name), "cuda:0");
    assert_int_equal(h.devices[b->device].capacity_bytes, 1000);
    assert_int_equal(h.notice_count, 0);
    format_history_finish(&h);
    assert_int_equal(format_trace_read("/nowhere", &h, NULL, NULL, &error), BERTH_IO);
    assert_non_null(strstr(error.words, "/nowhere"));
    unlink(path);
}

static void write_text(const char *path, const char *text, size_t length)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, length, f), length);
    fclose(f);
}

static void test_files_are_recognised_by_what_is_in_them(void **state)
{
    (void)state;
    char path[] = "/tmp/berth_inputs_XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    format_history h = {0};
    format_error error;
    static const char plan[] =
        "id,lower,upper,size,offset,label\na,-2,3,10,0,x\nb,3,5,20,0,\nc,0,4,5,20,\nd,1,1,9,0,\n";
    write_text(path, plan, sizeof plan - 1);
    assert_int_equal(format_history_read(path, &h, NULL, NULL, &error), BERTH_OK);
    assert_string_equal(h.format, "plan");
    assert_true(h.has_addresses);
    assert_int_equal(h.block_count, 3);
    assert_int_equal(format_history_peak(&h, FORMAT_ANY_DEVICE).bytes, 25);
    assert_string_equal(format_history_words(&h, h.blocks[0].label), "x");
    assert_string_equal(format_history_words(&h, h.blocks[1].label), "c");
    assert_int_equal(h.blocks[1].address, 20);
    assert_int_equal(h.unknown_frees + h.lost_frees, 0);
    format_history_finish(&h);
    static const struct {
        const char *bytes;
        size_t length;
        const char *words;
    } strangers[] = {
        {"", 0, "empty"},
        {"\x1f\x8b\x08", 3, "gzip"},
        {"PK\x03\x04", 4, "zip"},
        {"{\"a\": 1}", 8, "JSON"},
        {"\x80\x04N.", 4, "pickle"},
        {"\x7f"
         "ELF\x02",
         5, "berth record"},
        {"hello\n", 6, "text"},
        {"\x00\x01\x02", 3, "binary"},
    };
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
        write_text(path, strangers[i].bytes, strangers[i].length);
        assert_int_equal(format_history_read(path, &h, NULL, NULL, &error), BERTH_BAD_DATA);
        if (!strstr(error.words, strangers[i].words) || !strstr(error.words, path))
            fail_msg("'%s' does not say '%s'", error.words, strangers[i].words);
    }
    unlink(path);
    assert_int_equal(format_history_read(path, &h, NULL, NULL, &error), BERTH_IO);
}

/* Two processes are never taken for one, however many there are. */
static void test_processes_beyond_the_most_are_left_out(void **state)
{
    (void)state;
    char path[] = "/tmp/berth_history_XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
    options.times_given = true;
    berth_trace *t = NULL;
    assert_int_equal(berth_trace_create(path, &options, &t), BERTH_OK);
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.address = 4096;
    e.thread = 0;
    for (uint32_t process = 0; process <= 1 << 16; process += 1 << 15, e.time_ns++) {
        e.process = process;
        e.size_bytes = process + 1;
        assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    }
    berth_trace_release(t);
    format_history h = {0};
    format_error error;
    assert_int_equal(format_trace_read(path, &h, NULL, NULL, &error), BERTH_OK);
    unlink(path);
    assert_int_equal(h.block_count, 2);
    assert_int_equal(h.blocks[0].end, FORMAT_ALIVE);
    assert_int_equal(h.blocks[1].size_bytes, (1 << 15) + 1);
    assert_int_equal(h.notice_count, 1);
    assert_non_null(strstr(h.notices[0].words, "behind the first 65535 nothing is told: 1 event"));
    format_history_finish(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_events),
        cmocka_unit_test(test_texts_and_frames_are_kept_once),
        cmocka_unit_test(test_pages_are_given_back_in_parts),
        cmocka_unit_test(test_mapped_bytes_are_those_of_a_second_count),
        cmocka_unit_test(test_a_trace_is_a_history),
        cmocka_unit_test(test_processes_beyond_the_most_are_left_out),
        cmocka_unit_test(test_files_are_recognised_by_what_is_in_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
