/* Events of one tick: an address is taken, given back and taken again in this order, whoever does it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/random.h"
#include "berth/trace.h"

static char path[64];

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/berth_ties_XXXXXX");
    int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}
static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static berth_trace *begin(void)
{
    berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
    berth_trace *t = NULL;
    options.times_given = true;
    options.tick_ns = 50;
    assert_int_equal(berth_trace_create(path, &options, &t), BERTH_OK);
    return t;
}

static void put(berth_trace *t, uint32_t thread, berth_trace_kind kind, uint64_t address, uint64_t time_ns)
{
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.kind = kind;
    e.thread = thread;
    e.address = address;
    e.size_bytes = kind == BERTH_TRACE_FREE ? 0 : 16;
    e.time_ns = time_ns;
    assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
}

/* Threads and kinds as they are read, "1+" for an allocation of thread 1, and the trace is gone. */
static void read_all(berth_trace *t, char *words, size_t room)
{
    berth_trace_reader *r = NULL;
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    size_t n = 0;
    berth_trace_release(t);
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
    while (berth_trace_next(r, &e) == BERTH_OK)
        n += (size_t)snprintf(words + n, room - n, "%u%c%llx ", e.thread,
                              e.kind == BERTH_TRACE_ALLOC || e.kind == BERTH_TRACE_MAP ? '+' : '-',
                              (unsigned long long)e.address);
    berth_trace_reader_destroy(r);
}

static void test_a_pair_comes_before_the_next_owner(void **state)
{
    (void)state;
    static const berth_trace_kind kinds[2][2] = {{BERTH_TRACE_ALLOC, BERTH_TRACE_FREE},
                                                 {BERTH_TRACE_MAP, BERTH_TRACE_UNMAP}};
    for (int i = 0; i < 2; i++) {
        char words[256];
        berth_trace *t = begin();
        put(t, 0, kinds[i][0], 0x900,
            0); /* the thread that comes up first goes first where nothing else tells */
        put(t, 1, kinds[i][0], 0x800, 1000);
        put(t, 1, kinds[i][0], 0x700, 1010);
        put(t, 1, kinds[i][1], 0x700, 1020);
        put(t, 0, kinds[i][0], 0x700, 1030);
        read_all(t, words, sizeof words);
        assert_string_equal(words, "0+900 1+800 1+700 1-700 0+700 ");
    }
}

static void test_threads_that_wait_for_each_other_go_on(void **state)
{
    (void)state;
    char words[256];
    berth_trace *t = begin();
    put(t, 0, BERTH_TRACE_ALLOC, 0x700, 1000);
    put(t, 0, BERTH_TRACE_FREE, 0x700, 1000);
    put(t, 1, BERTH_TRACE_ALLOC, 0x700, 1000);
    put(t, 1, BERTH_TRACE_FREE, 0x700, 1000);
    put(t, 0, BERTH_TRACE_ALLOC, 0x700, 1000);
    read_all(t, words, sizeof words);
    assert_string_equal(words, "0+700 0-700 1+700 1-700 0+700 ");
}

/* Any history of blocks that their own threads free, each event in some tick: no address is taken twice at once. */
static void test_no_address_twice_at_once(void **state)
{
    (void)state;
    enum { THREADS = 5, ADDRESSES = 4, EVENTS = 400 };
    uint64_t random = 7;
    for (int round = 0; round < 200; round++) {
        uint32_t owner[ADDRESSES] = {0}; /* + 1 */
        berth_trace *t = begin();
        for (int i = 0; i < EVENTS; i++) {
            uint32_t a = (uint32_t)(berth__random(&random) % ADDRESSES);
            uint32_t thread = owner[a] ? owner[a] - 1 : (uint32_t)(berth__random(&random) % THREADS);
            put(t, thread, owner[a] ? BERTH_TRACE_FREE : BERTH_TRACE_ALLOC, 4096 + a, (uint64_t)i * 17);
            owner[a] = owner[a] ? 0 : thread + 1;
        }
        berth_trace_release(t);
        berth_trace_reader *r = NULL;
        berth_trace_event e = BERTH_TRACE_EVENT_INIT;
        bool live[ADDRESSES] = {false};
        int count = 0;
        assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
        for (; berth_trace_next(r, &e) == BERTH_OK; count++) {
            assert_int_equal(live[e.address - 4096], e.kind == BERTH_TRACE_FREE);
            live[e.address - 4096] = e.kind == BERTH_TRACE_ALLOC;
        }
        assert_int_equal(count, EVENTS);
        berth_trace_reader_destroy(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_pair_comes_before_the_next_owner, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_threads_that_wait_for_each_other_go_on, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_no_address_twice_at_once, make_path, remove_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
