/* Names of threads, and definitions of kinds that a reader does not know. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cmocka.h>

#include "trace/reader.h"
#include "trace/writer.h"

static char path[64];

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/berth_names_XXXXXX");
    int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}
static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static berth_trace_reader *open_trace(void)
{
    berth_trace_reader *r = NULL;
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
    assert_null(berth_trace_damage(r, 0));
    return r;
}

static const char *name_of(const berth_trace_reader *r, uint32_t process, uint32_t thread)
{
    const char *name = NULL;
    for (uint32_t i = 0; i < berth_trace_thread_count(r); i++) {
        berth_trace_thread t = BERTH_TRACE_THREAD_INIT;
        assert_int_equal(berth_trace_get_thread(r, i, &t), BERTH_OK);
        if (t.process == process && t.thread == thread) {
            assert_null(name); /* each once */
            name = berth_trace_text(r, t.name);
        }
    }
    return name;
}

/* ---- Live ---------------------------------------------------------------------------------------------- */

static void write_events(berth_trace *t, unsigned count)
{
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    for (unsigned i = 0; i < count; i++) {
        e.address = 4096 + i * UINT64_C(0x123457);
        assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    }
}

struct worker {
    berth_trace *trace;
    const char *name;
    uint32_t thread;
};

static void *work(void *context)
{
    struct worker *w = context;
    prctl(PR_SET_NAME, w->name);
    w->thread = berth__thread();
    write_events(w->trace, 1);
    return NULL;
}

static void test_threads_are_named_as_the_system_has_them(void **state)
{
    (void)state;
    struct worker workers[] = {{NULL, "io \xff\n", 0}, {NULL, "fifteen letters", 0}};
    pthread_t threads[2];
    berth_trace *t = NULL;
    assert_int_equal(berth_trace_create(path, NULL, &t), BERTH_OK);
    uint32_t own_number = berth__thread(); /* before theirs are free again */
    for (int i = 0; i < 2; i++) {
        workers[i].trace = t;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        berth_trace_reader *r = open_trace();
        /* The second may have the number of the first, in whose chunk it goes on: then the name is still the first's. */
        bool again = i == 1 && workers[1].thread == workers[0].thread;
        assert_string_equal(name_of(r, 0, workers[i].thread), workers[again ? 0 : i].name);
        berth_trace_reader_destroy(r);
    }
    write_events(t, 1);
    berth_trace_release(t);
    berth_trace_reader *r = open_trace();
    char own[16];
    prctl(PR_GET_NAME, own);
    assert_string_equal(name_of(r, 0, own_number), own);
    berth_trace_reader_destroy(r);
}

/* The chunk in which names are told lies before its older copies in the file: the order of writing counts. */
static void test_the_last_name_counts(void **state)
{
    (void)state;
    char before[16], text[64];
    prctl(PR_GET_NAME, before);
    berth_trace *t = NULL;
    assert_int_equal(berth_trace_create(path, NULL, &t), BERTH_OK);
    for (int i = 0; i < 5; i++) {
        snprintf(text, sizeof text, "name %d", i);
        prctl(PR_SET_NAME, text);
        write_events(t, 20000); /* more than a chunk */
        for (int k = 0; k < 1500; k++) {
            uint32_t number;
            int length =
                snprintf(text, sizeof text, "a text that fills the chunk of definitions %d %d", i, k);
            assert_int_equal(berth_trace_define_text(t, text, (size_t)length, &number), BERTH_OK);
        }
    }
    prctl(PR_SET_NAME, "too late");
    write_events(t, 1); /* no chunk begins */
    berth_trace_reader *r = open_trace();
    assert_string_equal(name_of(r, 0, berth__thread()), "name 4");
    berth_trace_release(t);
    assert_int_equal(berth_trace_follow(r), BERTH_OK);
    assert_string_equal(name_of(r, 0, berth__thread()), "name 4");
    berth_trace_reader_destroy(r);
    r = open_trace();
    assert_string_equal(name_of(r, 0, berth__thread()), "name 4");
    berth_trace_reader_destroy(r);
    prctl(PR_SET_NAME, before);
}

/* ---- Given --------------------------------------------------------------------------------------------- */

static void write_given(void)
{
    berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
    berth_trace *t = NULL;
    options.times_given = true;
    assert_int_equal(berth_trace_create(path, &options, &t), BERTH_OK);
    static const struct {
        uint32_t process, thread;
        const char *name;
    } named[] = {{0, 0, "first"}, {0, 7, "seven"}, {1, 7, "other"}, {0, 0, "second"}, {UINT32_MAX, 3, "far"}};
    for (size_t i = 0; i < sizeof named / sizeof named[0]; i++) {
        berth_trace_thread thread = {sizeof thread, named[i].process, named[i].thread, 0};
        assert_int_equal(berth_trace_define_text(t, named[i].name, strlen(named[i].name), &thread.name),
                         BERTH_OK);
        assert_int_equal(berth_trace_define_thread(t, &thread), BERTH_OK);
    }
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.thread = 0;
    assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    berth_trace_thread small = {1, 0, 0, 0};
    assert_int_equal(berth_trace_define_thread(t, &small), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_trace_define_thread(t, NULL), BERTH_INVALID_ARGUMENT);
    berth_trace_release(t);
}

static void set_version(uint32_t version)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 8, SEEK_SET), 0);
    assert_int_equal(fwrite(&version, sizeof version, 1, f), 1);
    fclose(f);
}

/* A process whose number is larger than any file could have is damage, as for all definitions. */
static void test_names_that_are_given(void **state)
{
    (void)state;
    write_given();
    berth_trace_reader *r = NULL;
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
    assert_non_null(strstr(berth_trace_damage(r, 0), "break off"));
    assert_int_equal(berth_trace_thread_count(r), 3);
    assert_string_equal(name_of(r, 0, 0), "second");
    assert_string_equal(name_of(r, 0, 7), "seven");
    assert_string_equal(name_of(r, 1, 7), "other");
    berth_trace_thread got = BERTH_TRACE_THREAD_INIT;
    assert_int_equal(berth_trace_get_thread(r, 3, &got), BERTH_NOT_FOUND);
    assert_int_equal(berth_trace_get_thread(r, 0, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_trace_get_thread(NULL, 0, &got), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_trace_thread_count(NULL), 0);
    berth_trace_reader_destroy(r);
}

static void test_versions(void **state)
{
    (void)state;
    write_given();
    static const uint32_t known[] = {1, 2}, unknown[] = {0, 3};
    berth_trace_reader *r = NULL;
    for (int i = 0; i < 2; i++) {
        set_version(known[i]);
        assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
        berth_trace_reader_destroy(r);
        set_version(unknown[i]);
        assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_BAD_DATA);
        assert_non_null(strstr(berth_last_error()->message, "versions 1 to 2"));
    }
}

/* ---- How it stood at refusals --------------------------------------------------------------------------- */

enum { REFUSALS = 30000 }; /* several chunks */

/* Some tell how it stood, by their number, and some do not. */
static void write_refusals(berth_trace *t, bool times_given)
{
    for (unsigned i = 0; i < REFUSALS; i++) {
        berth_trace_picture p = {sizeof p, i, 2 * i, 3 * i, UINT64_MAX - i};
        berth_trace_event e = BERTH_TRACE_EVENT_INIT;
        e.kind = i % 3 ? BERTH_TRACE_FAIL : BERTH_TRACE_ALLOC;
        e.thread = times_given ? i % 5 : BERTH_TRACE_CALLER;
        e.process = times_given ? i % 2 : 0;
        e.time_ns = i;
        e.address = e.size_bytes = 4096 + i;
        e.picture = i % 3 == 1 ? &p : NULL;
        assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    }
}

static void check_refusals(berth_trace_reader *r)
{
    for (unsigned i = 0; i < REFUSALS; i++) {
        berth_trace_event e = BERTH_TRACE_EVENT_INIT;
        assert_int_equal(berth_trace_next(r, &e), BERTH_OK);
        uint64_t number = e.size_bytes - 4096;
        assert_int_equal(e.picture != NULL, number % 3 == 1);
        if (!e.picture)
            continue;
        assert_int_equal(e.picture->waiting_bytes, number);
        assert_int_equal(e.picture->free_bytes, 2 * number);
        assert_int_equal(e.picture->largest_bytes, 3 * number);
        assert_true(e.picture->unused_bytes == UINT64_MAX - number);
    }
}

static void test_each_refusal_has_its_own_picture(void **state)
{
    (void)state;
    for (int given = 0; given < 2; given++) {
        berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
        berth_trace *t = NULL;
        options.times_given = given;
        assert_int_equal(berth_trace_create(path, &options, &t), BERTH_OK);
        write_refusals(t, given);
        if (!given) { /* while it is written, too; then its chunk is taken more than once */
            berth_trace_reader *r = open_trace();
            check_refusals(r);
            assert_int_equal(berth_trace_follow(r), BERTH_OK);
            berth_trace_rewind(r);
            check_refusals(r);
            berth_trace_reader_destroy(r);
        }
        berth_trace_release(t);
        berth_trace_reader *r = open_trace();
        check_refusals(r);
        berth_trace_reader_destroy(r);
    }
}

/* Threads are refused at the same time, and somebody follows: each refusal has what its own thread has said. */
enum { REFUSED_THREADS = 4, REFUSED_TIMES = 400 };

static _Atomic int refused_threads;

static void *be_refused(void *context)
{
    uint64_t first = UINT64_C(1000) * (uint64_t)atomic_fetch_add(&refused_threads, 1);
    for (uint64_t i = 0; i < REFUSED_TIMES; i++) {
        berth_trace_picture p = {sizeof p, first + i, 0, 0, 0};
        berth_trace_event e = BERTH_TRACE_EVENT_INIT;
        e.kind = BERTH_TRACE_FAIL;
        e.size_bytes = first + i;
        e.picture = &p;
        assert_int_equal(berth_trace_write(context, &e), BERTH_OK);
    }
    return NULL;
}

static unsigned follow_refusals(berth_trace_reader *r)
{
    unsigned seen = 0;
    assert_int_equal(berth_trace_follow(r), BERTH_OK);
    for (berth_trace_event e = BERTH_TRACE_EVENT_INIT; berth_trace_next(r, &e) == BERTH_OK; seen++) {
        assert_non_null(e.picture);
        assert_int_equal(e.picture->waiting_bytes, e.size_bytes);
    }
    return seen;
}

static void test_threads_are_refused_at_once(void **state)
{
    (void)state;
    pthread_t threads[REFUSED_THREADS];
    berth_trace *t = NULL;
    unsigned seen = 0;
    assert_int_equal(berth_trace_create(path, NULL, &t), BERTH_OK);
    berth_trace_reader *r = open_trace();
    for (int i = 0; i < REFUSED_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, be_refused, t), 0);
    for (int i = 0; i < 20; i++)
        seen += follow_refusals(r);
    for (int i = 0; i < REFUSED_THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    berth_trace_release(t);
    seen += follow_refusals(r);
    assert_int_equal(seen, REFUSED_THREADS * REFUSED_TIMES);
    berth_trace_reader_destroy(r);
}

/* ---- Bytes --------------------------------------------------------------------------------------------- */

/* How many damages and names there are once these bytes were taken. */
static void take(const unsigned char *bytes, size_t size_bytes, uint32_t damages, uint32_t names)
{
    berth_trace_reader *r = NULL;
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
    unsigned char *exact = malloc(size_bytes); /* so that ASan sees a byte too many */
    memcpy(exact, bytes, size_bytes);
    assert_int_equal(berth__trace_take_definitions(r, 0, 0, exact, size_bytes), BERTH_OK);
    free(exact);
    assert_int_equal(r->damage_count, damages);
    assert_int_equal(berth_trace_thread_count(r), names);
    berth_trace_reader_destroy(r);
}

static void test_kinds_of_later_versions_are_passed_over(void **state)
{
    (void)state;
    berth_trace *t = NULL;
    assert_int_equal(berth_trace_create(path, NULL, &t), BERTH_OK);
    berth_trace_release(t);
    static const unsigned char thread[] = {6, 3, 0, 5, 1};
    static const unsigned char later[] = {200, 2, 255, 255, 201, 0, 6, 3, 0, 5, 1};
    static const unsigned char longer[] = {6, 5, 0, 5, 1, 99, 99, 6, 3, 0, 6, 1};
    static const unsigned char unknown[] = {0, 3, 0, 5, 1};
    static const unsigned char beyond[] = {6, 4, 0, 5, 1};
    static const unsigned char short_of_it[] = {6, 2, 0, 5, 1};
    static const unsigned char endless[] = {6, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0};
    static const unsigned char without[] = {6};
    static const unsigned char half[] = {6, 3, 0, 0x85, 0x81};
    take(thread, sizeof thread, 0, 1);
    take(later, sizeof later, 0, 1);
    take(longer, sizeof longer, 0, 2);
    take(unknown, sizeof unknown, 1, 0);
    take(beyond, sizeof beyond, 1, 0);
    take(short_of_it, sizeof short_of_it, 1, 0);
    take(endless, sizeof endless, 1, 0);
    take(without, sizeof without, 1, 0);
    take(half, sizeof half, 1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_threads_are_named_as_the_system_has_them, make_path,
                                        remove_path),
        cmocka_unit_test_setup_teardown(test_the_last_name_counts, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_names_that_are_given, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_versions, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_each_refusal_has_its_own_picture, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_threads_are_refused_at_once, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_kinds_of_later_versions_are_passed_over, make_path, remove_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
