/* Traces: what is written is read, in order, by any number of threads, packed or not, after a kill and around damage. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "base/random.h"
#include "trace/reader.h"
#include "trace/writer.h"

static char path[64];

static uint64_t below(uint64_t *random, uint64_t end)
{
    return berth__random(random) % end;
}

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/berth_trace_XXXXXX");
    int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}
static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

/* A packer that is none of zstd's: halves zeros, so that sizes differ and the bytes must come back. */
static size_t pack(void *context, const void *from, size_t size_bytes, void *to, size_t room)
{
    (void)context;
    const unsigned char *in = from;
    unsigned char *out = to;
    size_t n = 0;
    for (size_t i = 0; i < size_bytes;) {
        size_t run = 0;
        while (i + run < size_bytes && run < 255 && in[i + run] == in[i])
            run++;
        if (n + 2 > room)
            return 0;
        out[n++] = (unsigned char)run;
        out[n++] = in[i];
        i += run;
    }
    return n;
}
static bool unpack(void *context, const void *from, size_t packed_bytes, void *to, size_t size_bytes)
{
    (void)context;
    const unsigned char *in = from;
    unsigned char *out = to;
    size_t n = 0;
    for (size_t i = 0; i + 1 < packed_bytes; i += 2)
        for (unsigned char run = in[i]; run; run--) {
            if (n == size_bytes)
                return false;
            out[n++] = in[i + 1];
        }
    return n == size_bytes;
}

static berth_trace_reader *open_trace(void)
{
    berth_trace_reader_options options = BERTH_TRACE_READER_OPTIONS_INIT;
    options.unpack = unpack;
    berth_trace_reader *r = NULL;
    assert_int_equal(berth_trace_reader_open(path, &options, &r), BERTH_OK);
    return r;
}

static bool same(const berth_trace_event *a, const berth_trace_event *b)
{
    return a->kind == b->kind && a->process == b->process && a->thread == b->thread &&
           a->device == b->device && a->stack == b->stack && a->label == b->label &&
           a->time_ns == b->time_ns && a->address == b->address && a->size_bytes == b->size_bytes &&
           a->stream == b->stream && a->id == b->id;
}

/* An event of any kind with numbers of any size; fields that its kind does not have are 0. */
static berth_trace_event random_event(uint64_t *random, uint64_t time_ns)
{
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    static uint64_t pool[64];
    uint64_t *place = &pool[below(random, 64)];
    if (!*place || below(random, 4) == 0)
        *place = berth__random(random) >> below(random, 60);
    e.kind = (berth_trace_kind)(1 + below(random, 8));
    e.thread = (uint32_t)below(random, 3);
    e.process = (uint32_t)below(random, 2);
    e.time_ns = time_ns;
    bool sized = e.kind == BERTH_TRACE_ALLOC || e.kind >= BERTH_TRACE_MAP;
    bool placed = e.kind <= BERTH_TRACE_UNMAP;
    bool stacked = e.kind == BERTH_TRACE_ALLOC || e.kind == BERTH_TRACE_MAP || e.kind == BERTH_TRACE_FAIL;
    e.address = placed ? *place : 0;
    if (sized && e.kind != BERTH_TRACE_MARK)
        e.size_bytes = berth__random(random) >> below(random, 64);
    if (stacked)
        e.stack = (uint32_t)below(random, 5);
    if (e.kind == BERTH_TRACE_ALLOC && below(random, 2))
        e.id = berth__random(random) >> below(random, 60);
    if (below(random, 5) == 0) {
        e.device = (uint32_t)below(random, 3);
        e.stream = berth__random(random) >> below(random, 64);
        e.label = (uint32_t)below(random, 3);
    }
    return e;
}

enum { RANDOM_EVENTS = 60000 };

static void random_round_trip(bool packed)
{
    berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
    options.times_given = true;
    options.pack = packed ? pack : NULL;
    berth_trace *t = NULL;
    assert_int_equal(berth_trace_create(path, &options, &t), BERTH_OK);
    berth_trace_event *events = calloc(RANDOM_EVENTS, sizeof *events);
    assert_non_null(events);
    uint64_t random = packed ? 7 : 8;
    uint64_t now = 5;
    for (size_t i = 0; i < RANDOM_EVENTS; i++) {
        now += 1 + (berth__random(&random) >> below(&random, 60) >> 24);
        events[i] = random_event(&random, now);
        assert_int_equal(berth_trace_write(t, &events[i]), BERTH_OK);
    }
    berth_trace_release(t);

    berth_trace_reader *r = open_trace();
    assert_int_equal(berth_trace_event_count(r), RANDOM_EVENTS);
    for (int round = 0; round < 2; round++) {
        berth_trace_event e = BERTH_TRACE_EVENT_INIT;
        for (size_t i = 0; i < RANDOM_EVENTS; i++) {
            assert_int_equal(berth_trace_next(r, &e), BERTH_OK);
            if (!same(&e, &events[i]))
                fail_msg("event %zu came back otherwise", i);
        }
        assert_int_equal(berth_trace_next(r, &e), BERTH_NOT_FOUND);
        berth_trace_rewind(r);
    }
    assert_null(berth_trace_damage(r, 0));
    berth_trace_reader_destroy(r);
    free(events);
}

static void test_any_event_comes_back_as_it_was(void **state)
{
    (void)state;
    random_round_trip(false);
}
static void test_any_event_comes_back_when_packed(void **state)
{
    (void)state;
    random_round_trip(true);
}

static void test_definitions_have_one_number_each(void **state)
{
    (void)state;
    berth_trace *t = NULL;
    assert_int_equal(berth_trace_create(path, NULL, &t), BERTH_OK);
    uint32_t conv, again, empty, device, frame, same_frame, module;
    assert_int_equal(berth_trace_define_text(t, "conv", 4, &conv), BERTH_OK);
    assert_int_equal(berth_trace_define_text(t, "convolve", 4, &again), BERTH_OK);
    assert_int_equal(conv, again);
    assert_int_equal(berth_trace_define_text(t, NULL, 0, &empty), BERTH_OK);
    assert_int_equal(empty, 0);
    char *long_text = malloc(10000);
    memset(long_text, 'x', 10000);
    uint32_t cut;
    assert_int_equal(berth_trace_define_text(t, long_text, 10000, &cut), BERTH_OK);
    free(long_text);
    berth_trace_device d = BERTH_TRACE_DEVICE_INIT;
    d.name = conv;
    d.ordinal = 3;
    assert_int_equal(berth_trace_define_device(t, &d, &device), BERTH_OK);
    berth_trace_frame f = BERTH_TRACE_FRAME_INIT;
    f.address = 0x1234;
    f.function = conv;
    assert_int_equal(berth_trace_define_frame(t, &f, &frame), BERTH_OK);
    assert_int_equal(berth_trace_define_frame(t, &f, &same_frame), BERTH_OK);
    assert_int_equal(frame, same_frame);
    berth_trace_module m = BERTH_TRACE_MODULE_INIT;
    m.base = UINT64_MAX;
    assert_int_equal(berth_trace_define_module(t, &m, &module), BERTH_OK);
    berth_trace_process p = BERTH_TRACE_PROCESS_INIT;
    p.pid = 77;
    assert_int_equal(berth_trace_define_process(t, 0, &p), BERTH_OK);
    berth_trace_release(t);

    berth_trace_reader *r = open_trace();
    assert_string_equal(berth_trace_text(r, conv), "conv");
    assert_int_equal(strlen(berth_trace_text(r, cut)), BERTH__TRACE_TEXT_MOST);
    assert_string_equal(berth_trace_text(r, 12345), "");
    assert_int_equal(berth_trace_text_count(r), 2);
    assert_int_equal(berth_trace_frame_count(r), 1);
    assert_int_equal(berth_trace_process_count(r), 1);
    berth_trace_frame got = BERTH_TRACE_FRAME_INIT;
    assert_int_equal(berth_trace_get_frame(r, frame, &got), BERTH_OK);
    assert_int_equal(got.address, 0x1234);
    assert_int_equal(got.function, conv);
    assert_int_equal(berth_trace_get_frame(r, 2, &got), BERTH_NOT_FOUND);
    berth_trace_module got_module = BERTH_TRACE_MODULE_INIT;
    assert_int_equal(berth_trace_get_module(r, module, &got_module), BERTH_OK);
    assert_true(got_module.base == UINT64_MAX);
    berth_trace_device got_device = BERTH_TRACE_DEVICE_INIT;
    assert_int_equal(berth_trace_get_device(r, device, &got_device), BERTH_OK);
    assert_int_equal(got_device.ordinal, 3);
    berth_trace_process got_process = BERTH_TRACE_PROCESS_INIT;
    assert_int_equal(berth_trace_get_process(r, 0, &got_process), BERTH_OK);
    assert_int_equal(got_process.pid, 77);
    berth_trace_reader_destroy(r);
}

/* ---- Threads ----------------------------------------------------------------------------------------- */

enum { THREADS = 4, PAIRS = 20000, TURNS = THREADS * PAIRS / 10 };

struct baton {
    berth_trace *trace;
    _Atomic uint32_t turn;
};

/* The threads take turns: each turn allocates and frees an address of its own after the turn before has freed its. */
static void *pass_baton(void *argument)
{
    struct baton *b = argument;
    static _Atomic uint32_t next_number;
    uint32_t number = atomic_fetch_add(&next_number, 1) % THREADS;
    for (uint32_t turn = number; turn < TURNS; turn += THREADS) {
        while (atomic_load(&b->turn) != turn)
            sched_yield();
        berth_trace_event e = BERTH_TRACE_EVENT_INIT;
        e.address = turn + 1;
        e.size_bytes = 16;
        berth_trace_write(b->trace, &e);
        e.kind = BERTH_TRACE_FREE;
        berth_trace_write(b->trace, &e);
        atomic_store(&b->turn, turn + 1);
    }
    return NULL;
}

static void *write_pairs(void *argument)
{
    struct baton *b = argument;
    for (uint64_t i = 0; i < PAIRS; i++) {
        berth_trace_event e = BERTH_TRACE_EVENT_INIT;
        e.address = (uintptr_t)&e + i * 16;
        e.size_bytes = i;
        berth_trace_write(b->trace, &e);
        e.kind = BERTH_TRACE_FREE;
        berth_trace_write(b->trace, &e);
    }
    return NULL;
}

static void run_threads(void *(*body)(void *), struct baton *b)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, body, b), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void test_threads_lose_nothing(void **state)
{
    (void)state;
    struct baton b = {0};
    assert_int_equal(berth_trace_create(path, NULL, &b.trace), BERTH_OK);
    run_threads(write_pairs, &b);
    berth_trace_release(b.trace);
    berth_trace_reader *r = open_trace();
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    uint64_t allocations = 0, frees = 0, bytes = 0, last = 0;
    while (berth_trace_next(r, &e) == BERTH_OK) {
        allocations += e.kind == BERTH_TRACE_ALLOC;
        frees += e.kind == BERTH_TRACE_FREE;
        bytes += e.size_bytes;
        assert_true(e.time_ns >= last);
        last = e.time_ns;
    }
    assert_int_equal(allocations, (uint64_t)THREADS * PAIRS);
    assert_int_equal(frees, (uint64_t)THREADS * PAIRS);
    assert_int_equal(bytes, (uint64_t)THREADS * PAIRS * (PAIRS - 1) / 2);
    assert_null(berth_trace_damage(r, 0));
    berth_trace_reader_destroy(r);
}

/* Two events within one step of the clock have no order in the file, and an emulator's step is a thousand times ours. What is
 * promised: time never runs against what happened, and the reader tells events in the order of time. */
static void test_threads_are_merged_in_order(void **state)
{
    (void)state;
    struct baton b = {0};
    assert_int_equal(berth_trace_create(path, NULL, &b.trace), BERTH_OK);
    run_threads(pass_baton, &b);
    berth_trace_release(b.trace);
    berth_trace_reader *r = open_trace();
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    static uint64_t at[TURNS][2];
    uint64_t last_ns = 0;
    for (uint64_t i = 0; i < 2 * (uint64_t)TURNS; i++) {
        assert_int_equal(berth_trace_next(r, &e), BERTH_OK);
        assert_in_range(e.address, 1, TURNS);
        assert_true(e.time_ns >= last_ns);
        at[e.address - 1][e.kind == BERTH_TRACE_FREE] = last_ns = e.time_ns;
    }
    assert_int_equal(berth_trace_next(r, &e), BERTH_NOT_FOUND);
    berth_trace_reader_destroy(r);
    for (uint64_t i = 0; i < TURNS; i++) {
        assert_true(at[i][0] > 0 && at[i][0] <= at[i][1]);
        assert_true(i == 0 || at[i - 1][1] <= at[i][0]);
    }
}

static unsigned char *read_all(size_t *size_bytes)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    struct stat s;
    assert_int_equal(fstat(fileno(f), &s), 0);
    unsigned char *bytes = malloc((size_t)s.st_size);
    *size_bytes = fread(bytes, 1, (size_t)s.st_size, f);
    fclose(f);
    return bytes;
}
static void write_all(const unsigned char *bytes, size_t size_bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size_bytes, f), size_bytes);
    fclose(f);
}

/* ---- Ends that are not ours -------------------------------------------------------------------------- */

static uint64_t count_events(berth_trace_reader *r)
{
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    uint64_t n = 0;
    while (berth_trace_next(r, &e) == BERTH_OK)
        n++;
    return n;
}

static void test_a_killed_process_leaves_all_it_wrote(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        berth_trace *t = NULL;
        berth_trace_event e = BERTH_TRACE_EVENT_INIT;
        if (berth_trace_create(path, NULL, &t) != BERTH_OK)
            _exit(1);
        for (uint64_t i = 0; i < 50000; i++) {
            e.address = i << 20;
            if (berth_trace_write(t, &e) != BERTH_OK)
                _exit(1);
        }
        kill(getpid(), SIGKILL);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how));
    berth_trace_reader *r = open_trace();
    assert_int_equal(count_events(r), 50000);
    assert_null(berth_trace_damage(r, 0));
    berth_trace_reader_destroy(r);
}

static void test_a_trace_can_be_read_while_it_is_written(void **state)
{
    (void)state;
    berth_trace *t = NULL;
    assert_int_equal(berth_trace_create(path, NULL, &t), BERTH_OK);
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    for (uint64_t i = 1; i <= 3; i++) {
        assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
        berth_trace_reader *r = open_trace();
        assert_int_equal(count_events(r), i);
        berth_trace_reader_destroy(r);
    }
    berth_trace_release(t);
}

static void test_a_pause_leaves_events_out(void **state)
{
    (void)state;
    berth_trace *t = NULL;
    assert_int_equal(berth_trace_create(path, NULL, &t), BERTH_OK);
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    assert_int_equal(berth_trace_pause(path, true), BERTH_OK);
    assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    assert_int_equal(berth_trace_pause(path, false), BERTH_OK);
    assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    berth_trace_release(t);
    berth_trace_reader *r = open_trace();
    assert_int_equal(count_events(r), 2);
    berth_trace_reader_destroy(r);
    assert_int_equal(berth_trace_pause(path, true), BERTH_BAD_DATA); /* it is finished, and says so */
    assert_int_equal(berth_trace_pause("/nowhere/x", true), BERTH_IO);
    write_all((const unsigned char *)"no trace", 8);
    assert_int_equal(berth_trace_pause(path, true), BERTH_BAD_DATA);
}

static void test_a_forked_child_writes_nothing(void **state)
{
    (void)state;
    berth_trace *t = NULL;
    assert_int_equal(berth_trace_create(path, NULL, &t), BERTH_OK);
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool ok = berth_trace_write(t, &e) == BERTH_OK;
        berth_trace_release(t);
        _exit(ok ? 0 : 1);
    }
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    berth_trace_reader *r = open_trace(); /* now: what the parent writes next would lie over it */
    assert_int_equal(count_events(r), 1);
    berth_trace_reader_destroy(r);
    assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    berth_trace_release(t);
    r = open_trace();
    assert_int_equal(count_events(r), 2);
    assert_null(berth_trace_damage(r, 0));
    berth_trace_reader_destroy(r);
}

static void test_a_closed_descriptor_is_opened_anew(void **state)
{
    (void)state;
    berth_trace *t = NULL;
    assert_int_equal(berth_trace_create(path, NULL, &t), BERTH_OK);
    assert_int_equal(close(t->live.file), 0);
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    for (int i = 0; i < 50000; i++)
        assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    berth_trace_release(t);
    berth_trace_reader *r = open_trace();
    assert_int_equal(count_events(r), 50000);
    berth_trace_reader_destroy(r);
}

/* ---- Damage ------------------------------------------------------------------------------------------ */

/* Five chunks of one thread. */
static void write_some(bool packed)
{
    berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
    options.times_given = true;
    options.pack = packed ? pack : NULL;
    berth_trace *t = NULL;
    assert_int_equal(berth_trace_create(path, &options, &t), BERTH_OK);
    uint64_t random = 3;
    for (uint64_t i = 0; i < 5 * 60000; i++) {
        berth_trace_event e = BERTH_TRACE_EVENT_INIT;
        e.thread = 0;
        e.time_ns = i;
        e.address = berth__random(&random) >> 20;
        assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    }
    berth_trace_release(t);
}

static void test_damage_is_named_and_passed_over(void **state)
{
    (void)state;
    write_some(false);
    size_t size_bytes;
    unsigned char *bytes = read_all(&size_bytes);
    berth_trace_reader *r = open_trace();
    uint64_t all = count_events(r);
    assert_null(berth_trace_damage(r, 0));
    berth_trace_reader_destroy(r);

    bytes[size_bytes / 2] ^= 4; /* in a payload: its chunk is lost */
    write_all(bytes, size_bytes);
    r = open_trace();
    assert_in_range(count_events(r), all / 2, all - 1);
    assert_non_null(strstr(berth_trace_damage(r, 0), "checksum"));
    berth_trace_reader_destroy(r);

    bytes[size_bytes / 2] ^= 4;
    bytes[sizeof(berth__trace_file_header) + 3] ^= 1; /* in a header: it is looked for again */
    write_all(bytes, size_bytes);
    r = open_trace();
    assert_in_range(count_events(r), all / 2, all - 1);
    assert_non_null(strstr(berth_trace_damage(r, 0), "no chunk that can be read"));
    assert_non_null(strstr(berth_trace_damage(r, 1),
                           "1 chunk of thread 0 in process 0 is missing before the one at byte "));
    berth_trace_reader_destroy(r);

    bytes[sizeof(berth__trace_file_header) + 3] ^= 1;
    write_all(bytes, size_bytes - 1000); /* cut off */
    r = open_trace();
    assert_in_range(count_events(r), all / 2, all - 1);
    assert_non_null(berth_trace_damage(r, 0));
    berth_trace_reader_destroy(r);
    free(bytes);
}

static void test_any_byte_may_be_wrong(void **state)
{
    (void)state;
    uint64_t random = 11;
    unsigned char *whole[2], *bytes = NULL;
    size_t whole_bytes[2];
    for (int packed = 0; packed < 2; packed++) {
        write_some(packed);
        whole[packed] = read_all(&whole_bytes[packed]);
    }
    for (int round = 0; round < 60; round++) {
        size_t size_bytes = whole_bytes[round % 2];
        assert_non_null(bytes = realloc(bytes, size_bytes));
        memcpy(bytes, whole[round % 2], size_bytes);
        for (int i = 0; i < 1 + round % 5; i++)
            bytes[below(&random, round % 3 ? size_bytes : 1000)] ^= (unsigned char)(1 + below(&random, 255));
        if (round % 7 == 0)
            size_bytes = below(&random, size_bytes);
        write_all(bytes, size_bytes);
        berth_trace_reader_options options = BERTH_TRACE_READER_OPTIONS_INIT;
        options.unpack = unpack;
        berth_trace_reader *r = NULL;
        if (berth_trace_reader_open(path, &options, &r) == BERTH_OK)
            assert_in_range(count_events(r), 0, 5 * 60000);
        berth_trace_reader_destroy(r);
    }
    free(bytes);
    free(whole[0]);
    free(whole[1]);
}

static void test_what_is_no_trace_is_refused(void **state)
{
    (void)state;
    berth_trace_reader *r = (void *)1;
    assert_int_equal(berth_trace_reader_open("/nowhere/x", NULL, &r), BERTH_IO);
    assert_null(r);
    write_all((const unsigned char *)"id,lower", 8);
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_BAD_DATA);
    assert_int_equal(berth_trace_reader_open("/tmp", NULL, &r), BERTH_IO);
    write_some(false);
    size_t size_bytes;
    unsigned char *bytes = read_all(&size_bytes);
    bytes[8] = 9;
    write_all(bytes, size_bytes);
    free(bytes);
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_BAD_DATA);
    assert_non_null(strstr(berth_last_error()->message, "version 9"));
    berth_trace *t = (void *)1;
    assert_int_equal(berth_trace_create("/nowhere/x", NULL, &t), BERTH_IO);
    assert_null(t);
}

static void test_packed_chunks_need_someone_to_unpack_them(void **state)
{
    (void)state;
    berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
    options.times_given = true;
    options.pack = pack;
    berth_trace *t = NULL;
    assert_int_equal(berth_trace_create(path, &options, &t), BERTH_OK);
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.thread = 0;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(berth_trace_write(t, &e), BERTH_OK);
    berth_trace_release(t);
    berth_trace_reader *r = NULL;
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
    assert_int_equal(count_events(r), 0);
    assert_non_null(strstr(berth_trace_damage(r, 0), "packed"));
    berth_trace_reader_destroy(r);
}

/* Every request for memory fails once, in writing and in reading. */
static void test_no_memory_is_a_status(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    for (uint64_t n = 1;; n++) {
        berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
        options.times_given = true;
        options.pack = pack;
        berth_trace *t = NULL;
        berth_trace_reader *r = NULL;
        berth__heap_fail_at(n, false);
        berth_status status = berth_trace_create(path, &options, &t);
        for (uint32_t i = 0; status == BERTH_OK && i < 20; i++) {
            berth_trace_event e = BERTH_TRACE_EVENT_INIT;
            e.thread = i;
            char name[16];
            int length = snprintf(name, sizeof name, "n%u", i);
            status = berth_trace_define_text(t, name, (size_t)length, &e.label);
            if (status == BERTH_OK)
                status = berth_trace_write(t, &e);
        }
        bool had = status == BERTH_OK;
        berth_trace_release(t);
        berth_trace_reader_options reader_options = BERTH_TRACE_READER_OPTIONS_INIT;
        reader_options.unpack = unpack;
        if (had)
            status = berth_trace_reader_open(path, &reader_options, &r);
        berth_trace_event e = BERTH_TRACE_EVENT_INIT;
        while (status == BERTH_OK)
            status = berth_trace_next(r, &e);
        berth_trace_reader_destroy(r);
        uint64_t left = berth__heap_fail_left();
        berth__heap_fail_at(0, false);
        assert_int_equal(berth__heap_live(), live);
        if (left) {
            assert_int_equal(status, BERTH_NOT_FOUND);
            assert_true(n > 20);
            return;
        }
    }
}

static void test_arguments_are_checked(void **state)
{
    (void)state;
    berth_trace *t = NULL;
    berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
    options.pack = pack;
    assert_int_equal(berth_trace_create(path, &options, &t), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_trace_create(NULL, NULL, &t), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_trace_create(path, NULL, &t), BERTH_OK);
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.kind = (berth_trace_kind)9;
    assert_int_equal(berth_trace_write(t, &e), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_trace_write(NULL, &e), BERTH_INVALID_ARGUMENT);
    assert_ptr_equal(berth_trace_retain(t), t);
    berth_trace_release(t);
    berth_trace_release(t);
    berth_trace_release(NULL);
    assert_int_equal(berth_trace_next(NULL, &e), BERTH_INVALID_ARGUMENT);
    berth_trace_reader_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_any_event_comes_back_as_it_was, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_any_event_comes_back_when_packed, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_definitions_have_one_number_each, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_threads_lose_nothing, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_threads_are_merged_in_order, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_a_killed_process_leaves_all_it_wrote, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_a_trace_can_be_read_while_it_is_written, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_a_forked_child_writes_nothing, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_a_pause_leaves_events_out, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_a_closed_descriptor_is_opened_anew, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_damage_is_named_and_passed_over, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_any_byte_may_be_wrong, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_what_is_no_trace_is_refused, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_packed_chunks_need_someone_to_unpack_them, make_path,
                                        remove_path),
        cmocka_unit_test_setup_teardown(test_no_memory_is_a_status, make_path, remove_path),
        cmocka_unit_test_setup_teardown(test_arguments_are_checked, make_path, remove_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
