/* Following a trace that is being written: every event comes once, those of a thread in their order, those of one address in
 * the order in which they happened, whatever chunk they are in by then. */
#include <pthread.h>
#include <sched.h>
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
#include "trace/reader.h"
#include "trace/writer.h"

enum { THREADS = 4, PAIRS = 40000 }; /* some chunks a thread */

static char path[64];

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/berth_follow_XXXXXX");
    int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}
static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

struct writers {
    berth_trace *trace;
    _Atomic uint32_t turn, started, done;
};

static berth_trace_reader *open_trace(void)
{
    berth_trace_reader *r = NULL;
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
    return r;
}

static void *write_numbered(void *argument)
{
    struct writers *w = argument;
    for (uint64_t i = 0; i < PAIRS; i++) {
        char text[32];
        berth_trace_event e = BERTH_TRACE_EVENT_INIT;
        if (i % 64 == 0)
            snprintf(text, sizeof text, "label %llu", (unsigned long long)i);
        if (i % 64 == 0 && berth_trace_define_text(w->trace, text, strlen(text), &e.label) != BERTH_OK)
            break;
        e.address = (uintptr_t)&e + i * 16;
        e.size_bytes = i;
        berth_trace_write(w->trace, &e);
        e.kind = BERTH_TRACE_FREE;
        berth_trace_write(w->trace, &e);
    }
    atomic_fetch_add(&w->done, 1);
    while (atomic_load(&w->done) < THREADS) /* one that ends gives its number to another */
        sched_yield();
    return NULL;
}

/* One address wanders from thread to thread. */
static void *pass_baton(void *argument)
{
    struct writers *w = argument;
    uint32_t number = atomic_fetch_add(&w->started, 1);
    for (uint32_t i = 0; i < PAIRS / 100; i++) {
        while (atomic_load(&w->turn) % THREADS != number)
            sched_yield();
        berth_trace_event e = BERTH_TRACE_EVENT_INIT;
        e.address = 0x1000;
        e.size_bytes = 8;
        berth_trace_write(w->trace, &e);
        e.kind = BERTH_TRACE_FREE;
        berth_trace_write(w->trace, &e);
        atomic_fetch_add(&w->turn, 1);
    }
    atomic_fetch_add(&w->done, 1);
    return NULL;
}

static void start(struct writers *w, void *(*body)(void *), pthread_t threads[THREADS])
{
    assert_int_equal(berth_trace_create(path, NULL, &w->trace), BERTH_OK);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, body, w), 0);
}

/* Follows until the writers are done, and once more. Calls `take` for every event. */
static uint64_t follow_all(struct writers *w, berth_trace_reader *r,
                           void (*take)(const berth_trace_reader *r, const berth_trace_event *e))
{
    uint64_t count = 0;
    bool done = false;
    while (!done) {
        done = atomic_load(&w->done) == THREADS;
        assert_int_equal(berth_trace_follow(r), BERTH_OK);
        berth_trace_event e = BERTH_TRACE_EVENT_INIT;
        berth_status status;
        while ((status = berth_trace_next(r, &e)) == BERTH_OK) {
            take(r, &e);
            count++;
        }
        assert_int_equal(status, BERTH_NOT_FOUND);
    }
    return count;
}

static uint64_t next_of[BERTH__THREADS_MAX];

static void take_numbered(const berth_trace_reader *r, const berth_trace_event *e)
{
    uint64_t n = next_of[e->thread]++;
    assert_int_equal(e->kind, n % 2 ? BERTH_TRACE_FREE : BERTH_TRACE_ALLOC);
    if (e->kind != BERTH_TRACE_ALLOC)
        return;
    assert_int_equal(e->size_bytes, n / 2);
    if (n / 2 % 64)
        return;
    char text[32];
    snprintf(text, sizeof text, "label %llu", (unsigned long long)(n / 2));
    assert_string_equal(berth_trace_text(r, e->label), text); /* known before the event that uses it */
}

static void test_every_event_comes_once(void **state)
{
    (void)state;
    struct writers w = {0};
    pthread_t threads[THREADS];
    memset(next_of, 0, sizeof next_of);
    start(&w, write_numbered, threads);
    berth_trace_reader *r = open_trace();
    uint64_t count = follow_all(&w, r, take_numbered);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(count, (uint64_t)THREADS * PAIRS * 2);
    assert_null(berth_trace_damage(r, 0));
    berth_trace_release(w.trace); /* finishes the chunks in their places: nothing of them is new */
    assert_int_equal(berth_trace_follow(r), BERTH_OK);
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    assert_int_equal(berth_trace_next(r, &e), BERTH_NOT_FOUND);
    berth_trace_rewind(r);
    uint64_t again = 0;
    while (berth_trace_next(r, &e) == BERTH_OK)
        again++;
    assert_int_equal(again, count);
    berth_trace_reader_destroy(r);
}

static bool is_held;

static void take_baton(const berth_trace_reader *r, const berth_trace_event *e)
{
    (void)r;
    assert_int_equal(e->kind, is_held ? BERTH_TRACE_FREE : BERTH_TRACE_ALLOC);
    is_held = !is_held;
}

static void test_an_address_is_never_taken_twice(void **state)
{
    (void)state;
    struct writers w = {0};
    pthread_t threads[THREADS];
    is_held = false;
    start(&w, pass_baton, threads);
    berth_trace_reader *r = open_trace();
    uint64_t count = follow_all(&w, r, take_baton);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(count, (uint64_t)THREADS * (PAIRS / 100) * 2);
    berth_trace_release(w.trace);
    berth_trace_reader_destroy(r);
}

/* What is written behind a round comes in the next, also where a reader stopped in the middle. */
static void test_rounds_go_on_where_they_were(void **state)
{
    (void)state;
    berth_trace *t = NULL;
    assert_int_equal(berth_trace_create(path, NULL, &t), BERTH_OK);
    berth_trace_reader *r = open_trace();
    berth_trace_event e = BERTH_TRACE_EVENT_INIT, got = BERTH_TRACE_EVENT_INIT;
    uint64_t written = 0, read = 0;
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 400; i++) {
            e.size_bytes = written++;
            e.address = e.size_bytes * 0x123456789;
            assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
        }
        assert_int_equal(berth_trace_follow(r), BERTH_OK);
        uint64_t stop = round % 3 == 0 ? read + 100 : UINT64_MAX;
        while (read < stop && berth_trace_next(r, &got) == BERTH_OK) {
            assert_int_equal(got.size_bytes, read);
            read++;
        }
        if (stop == UINT64_MAX)
            assert_int_equal(read, written);
    }
    berth_trace_release(t);
    berth_trace_reader_destroy(r);
}

static void write_sizes(berth_trace *t, uint64_t *written, uint64_t count)
{
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    for (uint64_t i = 0; i < count; i++) {
        e.size_bytes = (*written)++;
        e.address = e.size_bytes * 0x123456789;
        assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    }
}

/* From `read` on, in their order. How many were read then. */
static uint64_t read_sizes(berth_trace_reader *r, uint64_t read)
{
    berth_trace_event got = BERTH_TRACE_EVENT_INIT;
    for (; berth_trace_next(r, &got) == BERTH_OK; read++)
        assert_int_equal(got.size_bytes, read);
    return read;
}

/* Between the look at the file and the first event the thread fills its chunk and begins others in the same place: what stands
 * there now is not what was found. Who follows looks again; who does not gets it when he does. */
static void test_a_chunk_that_was_begun_anew_is_not_the_one_that_was_found(void **state)
{
    (void)state;
    enum { BEFORE = 10, BEHIND = 40000 }; /* some chunks */
    for (int follows = 0; follows < 2; follows++) {
        berth_trace *t = NULL;
        uint64_t written = 0, read;
        assert_int_equal(berth_trace_create(path, NULL, &t), BERTH_OK);
        write_sizes(t, &written, BEFORE);
        berth_trace_reader *r = open_trace();
        if (follows)
            assert_int_equal(berth_trace_follow(r), BERTH_OK);
        write_sizes(t, &written, BEHIND);
        read = read_sizes(r, 0);
        assert_in_range(read, follows ? BEFORE : 0, follows ? written : 0);
        assert_int_equal(berth_trace_follow(r), BERTH_OK);
        assert_int_equal(read_sizes(r, read), written);
        assert_null(berth_trace_damage(r, 0));
        berth_trace_release(t);
        berth_trace_reader_destroy(r);
    }
}

/* A finished trace, whose times are not of this machine's clock. */
static void test_a_finished_trace_stays_as_it_is(void **state)
{
    (void)state;
    berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
    options.times_given = true;
    berth_trace *t = NULL;
    assert_int_equal(berth_trace_create(path, &options, &t), BERTH_OK);
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.thread = 0;
    e.time_ns = UINT64_MAX / 2;
    assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    berth_trace_release(t);
    berth_trace_reader *r = open_trace();
    assert_int_equal(berth_trace_follow(r), BERTH_OK);
    assert_int_equal(berth_trace_next(r, &e), BERTH_OK);
    assert_int_equal(berth_trace_follow(r), BERTH_OK);
    assert_int_equal(berth_trace_next(r, &e), BERTH_NOT_FOUND);
    berth_trace_reader_destroy(r);
    assert_int_equal(berth_trace_follow(NULL), BERTH_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_event_comes_once, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_an_address_is_never_taken_twice, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_rounds_go_on_where_they_were, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_a_chunk_that_was_begun_anew_is_not_the_one_that_was_found,
                                        make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_a_finished_trace_stays_as_it_is, make_path, remove_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
