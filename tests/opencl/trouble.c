/* OpenCL when the device is lost, talks, stays behind at a fork, or refuses calls; pinned memory, and threads that
 * work without a stream. On PoCL, through the shim. */
#include "vendors.h"

/* ---- A device that is gone ------------------------------------------------------------------------ */

static int lost_lines;
static void count_lost(void *context, berth_log_level level, const char *line)
{
    (void)context;
    lost_lines += level == BERTH_LOG_ERROR && strstr(line, "is lost") != NULL;
}

/* What is over for good and what may pass. A code that can mean both is asked a second time. */
static void codes_that_mean_a_lost_device(void **state)
{
    (void)state;
    enum { ILLEGAL_ACCESS = -9999, TERMINATED = -1121 };
    static const struct {
        int32_t code;
        long times;
        berth_status status;
    } cases[] = {
        {CL_DEVICE_NOT_AVAILABLE, 1, BERTH_DEVICE_LOST},
        {ILLEGAL_ACCESS, 1, BERTH_DEVICE_LOST},
        {TERMINATED, 1, BERTH_DEVICE_LOST},
        {CL_OUT_OF_RESOURCES, 2, BERTH_DEVICE_LOST},
        {CL_INVALID_COMMAND_QUEUE, 2, BERTH_DEVICE_LOST},
        {CL_INVALID_CONTEXT, 2, BERTH_DEVICE_LOST},
        {CL_OUT_OF_RESOURCES, 1, BERTH_DEVICE_ERROR},
        {CL_INVALID_COMMAND_QUEUE, 1, BERTH_DEVICE_ERROR},
        {CL_INVALID_VALUE, 2, BERTH_DEVICE_ERROR},
        {CL_OUT_OF_HOST_MEMORY, 2, BERTH_OUT_OF_HOST_MEMORY},
    };
    berth_log_set(count_lost, NULL, BERTH_LOG_ERROR);
    for (size_t i = 0; i < BERTH_COUNT_OF(cases); i++) {
        berth_device mine = in_new_context();
        berth_stream *stream = NULL;
        void *p = NULL;
        bool lost = cases[i].status == BERTH_DEVICE_LOST;
        lost_lines = 0;
        assert_int_equal(berth_stream_create(mine, &stream), BERTH_OK);
        shim.shim_fail("clFinish", 1, cases[i].times, cases[i].code);
        assert_int_equal(berth_stream_synchronize(stream), cases[i].status);
        assert_int_equal(berth_last_error()->driver_code, cases[i].code);
        shim.shim_fail("clFinish", 1, 0, 0);
        assert_int_equal(berth_stream_synchronize(stream), lost ? BERTH_DEVICE_LOST : BERTH_OK);
        assert_int_equal(berth_device_allocate(mine, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p),
                         lost ? BERTH_DEVICE_LOST : BERTH_OK);
        assert_int_equal(lost_lines, lost);
        if (!lost)
            assert_int_equal(berth_device_release(mine, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_OK);
        berth_stream_destroy(stream);
    }
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    give(take(64), 64); /* the others go on */
}

/* A lost device answers for itself; the driver is not called any more. */
static void a_lost_device_is_left_alone(void **state)
{
    (void)state;
    berth_device mine = in_new_context();
    berth_stream *stream = NULL;
    berth_event *event = NULL;
    void *p = NULL;
    char host[8] = "";
    const char *copy = call_for("clEnqueueSVMMemcpy", "clEnqueueWriteBuffer", "clEnqueueMemcpyINTEL");
    assert_int_equal(berth_stream_create(mine, &stream), BERTH_OK);
    assert_int_equal(berth_event_create(mine, &event), BERTH_OK);
    berth_log_set(count_lost, NULL, BERTH_LOG_DEBUG);
    lost_lines = 0;
    shim.shim_fail("clFinish", 1, 1, CL_DEVICE_NOT_AVAILABLE);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_DEVICE_LOST);
    assert_int_equal(berth_last_error()->status, BERTH_DEVICE_LOST);
    long copies = shim.shim_calls(copy), markers = shim.shim_calls("clEnqueueMarkerWithWaitList");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(berth_device_allocate(mine, BERTH_MEMORY_DEVICE, 8, 8, NULL, &p), BERTH_DEVICE_LOST);
        assert_int_equal(berth_copy(mine, host, host + 4, 4, BERTH_COPY_INFER, stream, false),
                         BERTH_DEVICE_LOST);
        assert_int_equal(berth_zero(mine, host, 4, stream, false), BERTH_DEVICE_LOST);
        assert_int_equal(berth_event_record(event, stream), BERTH_DEVICE_LOST);
        assert_int_equal(berth_stream_query(stream), BERTH_DEVICE_LOST);
        assert_int_equal(berth_stream_call(stream, berth__heap_free, NULL), BERTH_DEVICE_LOST);
    }
    assert_int_equal(shim.shim_calls(copy), copies);
    assert_int_equal(shim.shim_calls("clEnqueueMarkerWithWaitList"), markers);
    assert_int_equal(lost_lines, 1);
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    berth_event_destroy(event);
    berth_stream_destroy(stream);
}

static char heard[256];
static void hear(void *context, berth_log_level level, const char *line)
{
    (void)context, (void)level;
    if (strstr(line, "says"))
        snprintf(heard, sizeof heard, "%s", line);
}

static void what_the_driver_says_is_heard(void **state)
{
    (void)state;
    void *context = NULL;
    assert_int_equal(berth_device_native(device, &context), BERTH_OK);
    berth_log_set(hear, NULL, BERTH_LOG_WARNING);
    shim.shim_notify("the fan has stopped");
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    assert_non_null(strstr(heard, "OpenCL device 0 says: the fan has stopped"));
}

/* Without fine-grained memory pinned memory is a buffer that the driver knows, mapped; it goes with its stream,
 * and not while a user event is unset (the shim judges). */
static void pinned_memory_is_the_drivers(void **state)
{
    (void)state;
    if (strcmp(mode, "full") == 0 || has_usm())
        return; /* there it is fine-grained memory: the device suite */
    enum { BYTES = 100000 };
    unsigned char *p = NULL, *d = take(BYTES);
    berth_stream *stream = new_stream();
    long made = shim.shim_calls("clCreateBuffer"), gone = shim.shim_calls("clReleaseMemObject");
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_PINNED, BYTES, 4096, NULL, (void **)&p),
                     BERTH_OK);
    assert_int_equal(shim.shim_calls("clCreateBuffer"), made + 1);
    assert_int_equal((uintptr_t)p % 4096, 0);
    for (size_t i = 0; i < BYTES; i++)
        p[i] = pattern(i, 9);
    gate g = GATE_INIT;
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_copy(device, d, p, BYTES, BERTH_COPY_HOST_TO_DEVICE, stream, false), BERTH_OK);
    gate_wait_reached(&g);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_PINNED, p, BYTES, stream), BERTH_OK);
    assert_int_equal(shim.shim_calls("clReleaseMemObject"), gone); /* the copy has not run */
    gate_open(&g);
    unsigned char *back = malloc(BYTES);
    assert_int_equal(berth_copy(device, back, d, BYTES, BERTH_COPY_DEVICE_TO_HOST, stream, true), BERTH_OK);
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(back[i], pattern(i, 9));
    while (shim.shim_calls("clReleaseMemObject") != gone + 1) /* else the test's time limit ends it */
        sched_yield();
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_PINNED, back, BYTES, NULL), BERTH_NOT_FOUND);
    free(back);
    shim.shim_fail("clCreateBuffer", 1, 1, CL_MEM_OBJECT_ALLOCATION_FAILURE);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_PINNED, BYTES, 64, NULL, (void **)&p),
                     BERTH_OUT_OF_HOST_MEMORY);
    shim.shim_fail("clEnqueueMapBuffer", 1, 1, CL_MAP_FAILURE);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_PINNED, BYTES, 64, NULL, (void **)&p),
                     BERTH_DEVICE_ERROR);
    assert_int_equal(shim.shim_calls("clReleaseMemObject"), gone + 2);
    berth_stream_destroy(stream);
    give(d, BYTES);
}

typedef struct copier {
    int rounds;
    bool ok;
} copier;

static void *copy_many(void *context)
{
    copier *c = context;
    char there[256], back[256];
    void *p = NULL;
    c->ok = berth_device_allocate(device, BERTH_MEMORY_DEVICE, sizeof there, 64, NULL, &p) == BERTH_OK;
    for (int i = 0; i < c->rounds && c->ok; i++) {
        memset(there, i, sizeof there);
        c->ok =
            berth_copy(device, p, there, sizeof there, BERTH_COPY_HOST_TO_DEVICE, NULL, false) == BERTH_OK &&
            berth_copy(device, back, p, sizeof back, BERTH_COPY_DEVICE_TO_HOST, NULL, false) == BERTH_OK &&
            memcmp(there, back, sizeof back) == 0 &&
            berth_zero(device, p, sizeof there, NULL, false) == BERTH_OK;
    }
    c->ok &= berth_device_release(device, BERTH_MEMORY_DEVICE, p, sizeof there, NULL) == BERTH_OK;
    return NULL;
}

/* Work without a stream, by several threads: as many queues as there are threads at most, and they are kept. */
static void threads_have_queues_of_their_own(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    copier copiers[THREADS];
    pthread_t threads[THREADS];
    long made = shim.shim_calls("clCreateCommandQueueWithProperties");
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < THREADS; i++) {
            copiers[i] = (copier){.rounds = 100};
            assert_int_equal(pthread_create(&threads[i], NULL, copy_many, &copiers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_true(copiers[i].ok);
        }
    }
    assert_in_range(shim.shim_calls("clCreateCommandQueueWithProperties") - made, 0, THREADS);
}

/* Nor does one that waits hold up another: a mapping that waits for work of the first thread's would. */
static void work_without_a_stream_waits_for_nobody(void **state)
{
    (void)state;
    berth_stream *stuck = new_stream();
    gate g = GATE_INIT;
    char host[64] = "", *p = take(64);
    assert_int_equal(berth_stream_call(stuck, gate_stop, &g), BERTH_OK);
    gate_wait_reached(&g);
    assert_int_equal(berth_copy(device, p, host, 64, BERTH_COPY_HOST_TO_DEVICE, NULL, false), BERTH_OK);
    gate_open(&g);
    assert_int_equal(berth_stream_synchronize(stuck), BERTH_OK);
    berth_stream_destroy(stuck);
    give(p, 64);
}

/* Returns the child's exit code. */
static int in_child(int (*test)(void))
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(test());
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* ---- Forks ---------------------------------------------------------------------------------------- */

static berth_stream *parents_stream;
static berth_event *parents_event;
static char *parents_block;

/* Everything in the child says that the device is lost, and nothing hangs. */
static int use_in_child(void)
{
    char host[64] = "";
    void *p = NULL;
    berth_stream *stream = NULL;
    berth_event *event = NULL;
    if (berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p) != BERTH_DEVICE_LOST)
        return 1;
    if (berth_copy(device, parents_block, host, 64, BERTH_COPY_HOST_TO_DEVICE, NULL, false) !=
        BERTH_DEVICE_LOST)
        return 2;
    if (berth_copy(device, parents_block, host, 64, BERTH_COPY_HOST_TO_DEVICE, parents_stream, true) !=
        BERTH_DEVICE_LOST)
        return 3;
    if (berth_zero(device, parents_block, 64, NULL, false) != BERTH_DEVICE_LOST)
        return 4;
    if (berth_stream_synchronize(parents_stream) != BERTH_DEVICE_LOST ||
        berth_stream_query(parents_stream) != BERTH_DEVICE_LOST)
        return 5;
    if (berth_event_wait(parents_event) != BERTH_DEVICE_LOST ||
        berth_event_query(parents_event) != BERTH_DEVICE_LOST)
        return 6;
    if (berth_stream_create(device, &stream) != BERTH_DEVICE_LOST ||
        berth_event_create(device, &event) != BERTH_DEVICE_LOST)
        return 7;
    if (berth_device_release(device, BERTH_MEMORY_DEVICE, parents_block, 64, NULL) != BERTH_DEVICE_LOST)
        return 8;
    if (!strstr(berth_last_error()->message, "fork"))
        return 9;
    berth_event_destroy(parents_event);
    berth_stream_destroy(parents_stream);
    return 0;
}

static void a_forked_child_is_told(void **state)
{
    (void)state;
    gate g = GATE_INIT;
    parents_stream = new_stream();
    parents_block = take(64);
    assert_int_equal(berth_event_create(device, &parents_event), BERTH_OK);
    assert_int_equal(berth_stream_call(parents_stream, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_event_record(parents_event, parents_stream), BERTH_OK);
    gate_wait_reached(&g);
    assert_int_equal(in_child(use_in_child), 0);
    gate_open(&g);
    assert_int_equal(berth_event_wait(parents_event), BERTH_OK); /* the parent goes on */
    assert_int_equal(berth_stream_synchronize(parents_stream), BERTH_OK);
    berth_event_destroy(parents_event);
    berth_stream_destroy(parents_stream);
    give(parents_block, 64);
}

/* ---- Failures everywhere ------------------------------------------------------------------------- */

/* A command that is enqueued is not told as refused because of a shortage that passes; one that does not pass is told, and
 * leaves nothing. */
static void a_refused_flush_is_repeated(void **state)
{
    (void)state;
    char host[64] = "", *p = take(64);
    berth_stream *stream = new_stream();
    berth_event *event = NULL;
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    long live = shim.shim_live();
    shim.shim_fail("clFlush", 1, 3, CL_OUT_OF_RESOURCES);
    assert_int_equal(berth_copy(device, p, host, 64, BERTH_COPY_HOST_TO_DEVICE, stream, false), BERTH_OK);
    shim.shim_fail("clFlush", 1, 1000, CL_OUT_OF_RESOURCES);
    assert_int_equal(berth_event_record(event, stream), BERTH_DEVICE_ERROR);
    assert_int_equal(berth_last_error()->driver_code, CL_OUT_OF_RESOURCES);
    shim.shim_fail("clFlush", 1, 0, 0);
    assert_int_equal(shim.shim_live(), live);
    assert_int_equal(berth_event_record(event, stream), BERTH_OK);
    assert_int_equal(berth_event_wait(event), BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(stream);
    give(p, 64);
}

/* A copy onto itself goes through a block between, which is given back when the copy has run, even if the driver does not
 * wait the first time; that it did not is said. */
static void a_refused_wait_is_said_and_leaves_nothing(void **state)
{
    (void)state;
    char *p = take(4096);
    long blocks = shim.shim_blocks();
    for (int round = 0; round < 16; round++) {
        bool is_odd = round % 2;
        int32_t code = is_odd ? CL_INVALID_OPERATION : CL_OUT_OF_HOST_MEMORY;
        shim.shim_fail("clFinish", 1, 1, code);
        assert_int_equal(berth_copy(device, p + 8, p, 4000, BERTH_COPY_DEVICE_TO_DEVICE, NULL, false),
                         is_odd ? BERTH_DEVICE_ERROR : BERTH_OUT_OF_HOST_MEMORY);
        assert_int_equal(berth_last_error()->driver_code, code);
    }
    /* The driver lets go of a buffer some time after its command has ended. An earlier test's may go only now; of 16 that
     * were lost some would stay, and the test's time limit would end it. */
    while (shim.shim_blocks() > blocks)
        sched_yield();
    assert_int_equal(berth_copy(device, p + 8, p, 4000, BERTH_COPY_DEVICE_TO_DEVICE, NULL, false), BERTH_OK);
    give(p, 4096);
}

static bool may_fail(berth_status status)
{
    int64_t code = berth_last_error()->driver_code;
    if (status != BERTH_OK) /* clSVMAlloc has no code of its own */
        assert_true(code == CL_OUT_OF_RESOURCES || code == CL_MEM_OBJECT_ALLOCATION_FAILURE);
    return status == BERTH_OK || status == BERTH_DEVICE_ERROR || status == BERTH_OUT_OF_DEVICE_MEMORY ||
           status == BERTH_OUT_OF_HOST_MEMORY;
}

static void count_call(void *context)
{
    ++*(_Atomic int *)context;
}

static void *take_in_the_end(size_t size_bytes)
{
    void *p = NULL;
    while (!p)
        assert_true(may_fail(berth_device_allocate(device, BERTH_MEMORY_DEVICE, size_bytes, 64, NULL, &p)));
    return p;
}

/* One of everything, where any call may be refused. What was accepted happens. Returns how much was refused. */
static int some_of_everything(berth_stream *stream, berth_event *event, _Atomic int *called, int *accepted)
{
    enum { BYTES = 4096 };
    static char host[BYTES];
    int refused = 0;
    /* q: for work without a stream, which is not ordered with the stream's. */
    char *p = take_in_the_end(BYTES), *q = take_in_the_end(BYTES), *pinned = NULL;
    assert_true(
        may_fail(berth_device_allocate(device, BERTH_MEMORY_PINNED, BYTES, 64, NULL, (void **)&pinned)));
    berth_status statuses[] = {
        berth_copy(device, q, host, BYTES, BERTH_COPY_HOST_TO_DEVICE, NULL, false),
        berth_copy(device, p, host, BYTES, BERTH_COPY_HOST_TO_DEVICE, stream, false),
        berth_copy(device, p + 8, p, BYTES - 8, BERTH_COPY_DEVICE_TO_DEVICE, stream, false),
        berth_copy(device, q, q + 8, BYTES - 8, BERTH_COPY_DEVICE_TO_DEVICE, NULL, false),
        berth_zero(device, p, BYTES, stream, false),
        berth_event_record(event, stream),
        berth_stream_wait_event(stream, event),
        berth_stream_call(stream, count_call, called),
        berth_event_wait(event),
    };
    *accepted += statuses[7] == BERTH_OK;
    for (size_t i = 0; i < BERTH_COUNT_OF(statuses); i++)
        refused += statuses[i] != BERTH_OK;
    berth_status asked;
    while ((asked = berth_stream_query(stream)) == BERTH_NOT_READY)
        ;
    assert_true(may_fail(asked));
    if (pinned) /* what is refused is still ours: again, without the stream */
        if (berth_device_release(device, BERTH_MEMORY_PINNED, pinned, BYTES, stream) != BERTH_OK)
            assert_int_equal(berth_device_release(device, BERTH_MEMORY_PINNED, pinned, BYTES, NULL),
                             BERTH_OK);
    while ((asked = berth_stream_synchronize(stream)) != BERTH_OK)
        assert_true(may_fail(asked));
    if (berth_device_release(device, BERTH_MEMORY_DEVICE, p, BYTES, stream) != BERTH_OK)
        give(p, BYTES);
    give(q, BYTES);
    return refused;
}

/* Every so many calls one is refused, at ever other places: what was accepted happens, the rest says so, and in
 * the end nothing is held and the device works. */
static void any_call_may_fail(void **state)
{
    (void)state;
    enum { ROUNDS = 60 };
    berth_stream *stream = new_stream();
    berth_event *event = NULL;
    _Atomic int called = 0;
    int accepted = 0, refused = 0;
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    long blocks = shim.shim_blocks();
    for (int every = 2; every <= 12; every++) {
        char words[32];
        snprintf(words, sizeof words, "failing=%d", every);
        set(words);
        for (int round = 0; round < ROUNDS; round++)
            refused += some_of_everything(stream, event, &called, &accepted);
    }
    set("");
    assert_true(refused > 0 && accepted > 0);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_int_equal(called, accepted);
    while (shim.shim_blocks() != blocks) /* else the test's time limit ends it */
        sched_yield();
    berth_event_destroy(event);
    berth_stream_destroy(stream);
    give(take(64), 64);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_refused_flush_is_repeated), /* first: what others give back late would be counted */
        TEST(codes_that_mean_a_lost_device),
        TEST(a_lost_device_is_left_alone),
        TEST(what_the_driver_says_is_heard),
        TEST(pinned_memory_is_the_drivers),
        TEST(threads_have_queues_of_their_own),
        TEST(work_without_a_stream_waits_for_nobody),
        TEST(a_forked_child_is_told),
        TEST(a_refused_wait_is_said_and_leaves_nothing),
        TEST(any_call_may_fail), /* last: what it gives back late would be counted by others */
    };
    int code;
    if (!vendors_begin(argc, argv, &code))
        return code;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
