/* OpenCL as drivers behave that are not here: slow, failing, with less memory, without fine-grained memory;
 * and the rules of the specification. On PoCL, through the shim. */
#include "vendors.h"

/* ---- Order --------------------------------------------------------------------------------------- */

/* Nothing but us orders the halves of an overlapping copy, and the end of the block between. */
static void overlapping_copies_on_an_out_of_order_queue(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20, SHIFT = 4096, ROUNDS = 20 };
    static unsigned char there[BYTES], back[BYTES];
    set("slow");
    berth_stream *stream = new_wild_stream();
    unsigned char *p = take(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        there[i] = pattern(i, 5);
    long blocks = shim.shim_blocks();
    assert_int_equal(berth_copy(device, p, there, BYTES, BERTH_COPY_HOST_TO_DEVICE, stream, false), BERTH_OK);
    for (int round = 0; round < ROUNDS; round++)
        assert_int_equal(
            berth_copy(device, p + SHIFT, p, BYTES - SHIFT, BERTH_COPY_DEVICE_TO_DEVICE, stream, false),
            BERTH_OK);
    assert_int_equal(berth_copy(device, back, p, BYTES, BERTH_COPY_DEVICE_TO_HOST, stream, true), BERTH_OK);
    for (size_t i = 0; i < BYTES; i++) {
        size_t from = i < (size_t)ROUNDS * SHIFT ? i % SHIFT : i - (size_t)ROUNDS * SHIFT;
        if (back[i] != there[from])
            fail_msg("byte %zu is %d, not %d", i, back[i], there[from]);
    }
    while (shim.shim_blocks() != blocks) /* those between go later; else the time limit ends it */
        sched_yield();
    berth_stream_destroy(stream);
    give(p, BYTES);
}

/* When the second half is refused, the first may still run: the block between goes on the queue. When the first
 * is, nobody has the block, and it goes at once. (A buffer goes as soon as the stream's function is through.) */
static void a_half_enqueued_copy_keeps_its_block(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    berth_stream *stream = new_stream();
    unsigned char *p = take(BYTES);
    long blocks = shim.shim_blocks();
    for (long half = 1; half <= 2; half++) {
        gate g = GATE_INIT;
        assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
        gate_wait_reached(&g);
        const char *copy = call_for("clEnqueueSVMMemcpy", "clEnqueueCopyBuffer", "clEnqueueMemcpyINTEL");
        const char *end = call_for("clSVMFree", "clReleaseMemObject", "clMemBlockingFreeINTEL");
        long now = shim.shim_calls(end), later = shim.shim_calls("clEnqueueSVMFree"),
             gone = shim.shim_calls("clReleaseMemObject");
        shim.shim_fail(copy, half, 1, CL_INVALID_OPERATION);
        assert_int_equal(
            berth_copy(device, p + 64, p, BYTES - 64, BERTH_COPY_DEVICE_TO_DEVICE, stream, false),
            BERTH_DEVICE_ERROR);
        assert_int_equal(berth_last_error()->driver_code, CL_INVALID_OPERATION);
        if (!has_buffers()) {
            assert_int_equal(shim.shim_calls(end), now + (half == 1));
            assert_int_equal(shim.shim_calls("clEnqueueSVMFree"), later + (half == 2 && !has_usm()));
        }
        assert_int_equal(shim.shim_calls("clReleaseMemObject"), gone); /* a user event is unset */
        gate_open(&g);
        assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
        while (shim.shim_blocks() != blocks) /* else the test's time limit ends it */
            sched_yield();
        assert_int_equal(shim.shim_blocks(), blocks);
    }
    berth_stream_destroy(stream);
    give(p, BYTES);
}

static void copy_onto_itself(void *context)
{
    char *p = ((void **)context)[0];
    berth_stream *stream = ((void **)context)[1];
    berth_status *status = ((void **)context)[2];
    *status = berth_copy(device, p + 1, p, 1000, BERTH_COPY_DEVICE_TO_DEVICE, stream, false);
    if (*status == BERTH_OK)
        *status = berth_device_release(device, BERTH_MEMORY_DEVICE, p, 4096, stream);
}

/* A stream's own function copies and frees on it, also when the queue refuses the free: nothing waits there. */
static void a_streams_function_does_not_hang(void **state)
{
    (void)state;
    berth_stream *stream = new_stream();
    long blocks = shim.shim_blocks();
    for (long refused = 0; refused < 3; refused++) { /* buffers have no such command */
        berth_status status = BERTH_INTERNAL;
        void *context[] = {take(4096), stream, &status};
        shim.shim_fail("clEnqueueSVMFree", 1, refused, CL_OUT_OF_RESOURCES);
        assert_int_equal(berth_stream_call(stream, copy_onto_itself, context), BERTH_OK);
        assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
        assert_int_equal(status, BERTH_OK);
    }
    while (shim.shim_blocks() != blocks) /* else the test's time limit ends it */
        sched_yield();
    berth_stream_destroy(stream);
}

/* ---- Questions ----------------------------------------------------------------------------------- */

/* Markers that take longer than a question does: an idle stream is still seen to be idle, also one whose queue
 * the program has as well. */
static void questions_come_to_an_end(void **state)
{
    (void)state;
    enum { MOST_QUESTIONS = 100000 };
    set("late=1000");
    for (int shared = 0; shared < 2; shared++) {
        berth_stream *stream = new_stream();
        char *p = take(64);
        if (shared)
            assert_non_null(berth_stream_native(stream));
        assert_int_equal(berth_zero(device, p, 64, stream, false), BERTH_OK);
        int questions = 1;
        while (berth_stream_query(stream) != BERTH_OK && questions < MOST_QUESTIONS)
            questions++;
        assert_in_range(questions, 1, MOST_QUESTIONS - 1);
        berth_stream_destroy(stream);
        give(p, 64);
    }
}

typedef struct asker {
    berth_stream *stream;
    _Atomic int *answered;
} asker;

static void *ask_until_ok(void *context)
{
    asker *a = context;
    for (int i = 0; i < 1000000 && berth_stream_query(a->stream) != BERTH_OK; i++)
        ;
    ++*a->answered;
    return NULL;
}

/* Several threads ask one stream: no pending marker is thrown away, so that all get their answer. */
static void threads_ask_together(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    set("late=200");
    berth_stream *stream = new_stream();
    char *p = take(64);
    pthread_t threads[THREADS];
    _Atomic int answered = 0;
    asker a = {stream, &answered};
    long markers = shim.shim_calls("clEnqueueMarkerWithWaitList");
    assert_int_equal(berth_zero(device, p, 64, stream, false), BERTH_OK);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_until_ok, &a), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(berth_stream_query(stream), BERTH_OK);
    assert_int_equal(answered, THREADS);
    assert_in_range(shim.shim_calls("clEnqueueMarkerWithWaitList") - markers, 1, THREADS);
    berth_stream_destroy(stream);
    give(p, 64);
}

/* ---- Failed commands ----------------------------------------------------------------------------- */

/* What failed is over: it is said once, with the driver's words, and then the point has been passed. */
static void a_failed_command_is_final(void **state)
{
    (void)state;
    berth_stream *stream = new_stream();
    berth_event *event = NULL;
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    for (int way = 0; way < 2; way++) {
        shim.shim_fail_marker(CL_INVALID_OPERATION);
        assert_int_equal(berth_event_record(event, stream), BERTH_OK);
        berth_status status;
        if (way == 0)
            while ((status = berth_event_query(event)) == BERTH_NOT_READY)
                ;
        else
            status = berth_event_wait(event);
        assert_int_equal(status, BERTH_DEVICE_ERROR);
        assert_int_equal(berth_last_error()->driver_code, CL_INVALID_OPERATION);
        assert_string_equal(berth_last_error()->driver_words, "CL_INVALID_OPERATION");
        assert_int_equal(berth_event_query(event), BERTH_OK);
        assert_int_equal(berth_event_wait(event), BERTH_OK);
    }
    berth_event_destroy(event);
    berth_stream_destroy(stream);
}

/* The same for a pool: the block that waits for the stream comes free. */
static void a_failed_command_does_not_hold_the_pool(void **state)
{
    (void)state;
    enum { BYTES = 1 << 20 };
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *pool = NULL;
    berth_stream *stream = new_stream();
    void *p = NULL;
    options.device = device;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    assert_int_equal(berth_allocate(pool, BYTES, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_record_use(pool, p, stream), BERTH_OK);
    shim.shim_fail_marker(CL_OUT_OF_RESOURCES);
    assert_int_equal(berth_deallocate(pool, p, BYTES, stream), BERTH_OK);
    shim.shim_fail_marker(CL_SUCCESS);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    berth_stats stats = {.struct_size = sizeof stats};
    for (int i = 0; i < 2; i++) /* the first hears of the failure */
        assert_int_equal(berth_trim(pool, 0, NULL), BERTH_OK);
    assert_int_equal(berth_stats_get(pool, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_reserved, 0);
    berth_allocator_release(pool);
    berth_stream_destroy(stream);
}

/* ---- Limits -------------------------------------------------------------------------------------- */

/* Segments of 20 MiB where 8 MiB are the most: what the device says beforehand is not even asked for. */
static void small_requests_where_segments_are_refused(void **state)
{
    (void)state;
    enum { SMALL = 1 << 20 };
    const size_t most = (8 << 20) - (has_buffers() ? 0 : 4096 /* its alignment may need some */);
    const char *ask = call_for("clSVMAlloc", "clCreateBuffer", "clDeviceMemAllocINTEL");
    const char *end = call_for("clSVMFree", "clReleaseMemObject", "clMemBlockingFreeINTEL");
    for (int honest = 0; honest < 2; honest++) {
        set(honest ? "most=8388608,honest" : "most=8388608");
        berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
        berth_allocator *pool = NULL;
        void *p = NULL, *q = NULL;
        options.device = in_new_context();
        assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
        long asked = shim.shim_calls(ask), freed = shim.shim_calls(end);
        assert_int_equal(berth_allocate(pool, SMALL, 64, NULL, &p), BERTH_OK);
        if (honest) /* once more where the first was not aligned */
            assert_int_equal(shim.shim_calls(ask) - asked, 1 + shim.shim_calls(end) - freed);
        assert_int_equal(berth_allocate(pool, most, 64, NULL, &q), BERTH_OK);
        assert_int_equal(berth_deallocate(pool, p, SMALL, NULL), BERTH_OK);
        assert_int_equal(berth_deallocate(pool, q, most, NULL), BERTH_OK);
        berth_allocator_release(pool);
    }
}

enum { ALIVE = 8, PLACE = 300000 };

/* Fills some blocks that are alive together, and reads them again, on the stream. */
static void use_together(berth_allocator *a, berth_device on, berth_stream *stream, unsigned seed)
{
    static unsigned char there[ALIVE][PLACE], back[ALIVE][PLACE];
    void *p[ALIVE];
    for (size_t i = 0; i < ALIVE; i++) {
        memset(there[i], (int)(seed + i), PLACE);
        assert_int_equal(berth_allocate(a, PLACE, 64, NULL, &p[i]), BERTH_OK);
        assert_int_equal(berth_copy(on, p[i], there[i], PLACE, BERTH_COPY_HOST_TO_DEVICE, stream, false),
                         BERTH_OK);
        void *part = NULL;
        if (has_buffers()) { /* each place is in one buffer */
            assert_int_equal(berth_opencl_buffer(on, p[i], PLACE, &part), BERTH_OK);
            clReleaseMemObject(part);
        }
    }
    for (size_t i = 0; i < ALIVE; i++) {
        assert_int_equal(berth_copy(on, back[i], p[i], PLACE, BERTH_COPY_DEVICE_TO_HOST, stream, false),
                         BERTH_OK);
        assert_int_equal(berth_deallocate(a, p[i], PLACE, stream), BERTH_OK);
    }
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_memory_equal(back, there, sizeof there);
}

/* A plan of 2.4 MB where 1 MiB is the most: several blocks, over the device itself and over a pool. */
static void plans_larger_than_any_block(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        set(way & 1 ? "most=1048576,honest" : "most=1048576");
        berth_device on = in_new_context();
        berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
        berth_allocator *inner = NULL, *planned = NULL;
        berth_plan *plan = NULL;
        berth_stream *stream = NULL;
        options.device = on;
        assert_int_equal(berth_stream_create(on, &stream), BERTH_OK);
        assert_int_equal(way & 2 ? berth_pool_create(&options, &inner)
                                 : berth_device_allocator_create(on, BERTH_MEMORY_DEVICE, &inner),
                         BERTH_OK);
        assert_int_equal(berth_plan_create(&plan), BERTH_OK);
        assert_int_equal(berth_planned_create(inner, plan, &planned), BERTH_OK);
        assert_int_equal(berth_record_begin(planned, NULL), BERTH_OK);
        use_together(planned, on, stream, 1);
        assert_int_equal(berth_record_end(planned), BERTH_OK);
        assert_true(berth_plan_total_bytes(plan) >= (uint64_t)ALIVE * PLACE);
        for (unsigned run = 2; run < 6; run++) {
            berth_run_options how = BERTH_RUN_OPTIONS_INIT;
            berth_report report = BERTH_REPORT_INIT;
            how.stream = stream;
            how.strict = true;
            assert_int_equal(berth_replay_begin(planned, &how), BERTH_OK);
            use_together(planned, on, stream, run * 16);
            assert_int_equal(berth_replay_end(planned, &report), BERTH_OK);
            assert_int_equal(report.from_plan, ALIVE);
        }
        berth_allocator_release(planned);
        berth_plan_release(plan);
        berth_allocator_release(inner);
        berth_stream_destroy(stream);
    }
}

/* ---- Rules --------------------------------------------------------------------------------------- */

/* A stream goes while another stands at a user event, and while its own function runs. The shim judges. */
static void nothing_is_released_while_a_user_event_is_unset(void **state)
{
    (void)state;
    berth_stream *stuck = new_stream(), *other = new_stream();
    gate g = GATE_INIT;
    assert_int_equal(berth_stream_call(stuck, gate_stop, &g), BERTH_OK);
    gate_wait_reached(&g);
    long released = shim.shim_calls("clReleaseCommandQueue");
    berth_stream_destroy(other);
    berth_stream_destroy(stuck);
    assert_int_equal(shim.shim_calls("clReleaseCommandQueue"), released);
    gate_open(&g);
    while (shim.shim_calls("clReleaseCommandQueue") < released + 2) /* else the test's time limit ends it */
        sched_yield();
}

static void what_streams_get_is_flushed(void **state)
{
    (void)state;
    char host[64] = "";
    berth_stream *stream = new_stream();
    cl_command_queue queue = berth_stream_native(stream);
    char *p = take(128), *q = take(64);
    assert_int_equal(berth_copy(device, p, host, 64, BERTH_COPY_HOST_TO_DEVICE, stream, false), BERTH_OK);
    assert_int_equal(shim.shim_unflushed(queue), 0);
    assert_int_equal(berth_copy(device, p + 8, p, 64, BERTH_COPY_DEVICE_TO_DEVICE, stream, false), BERTH_OK);
    assert_int_equal(shim.shim_unflushed(queue), 0);
    assert_int_equal(berth_zero(device, p, 64, stream, false), BERTH_OK);
    assert_int_equal(shim.shim_unflushed(queue), 0);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, q, 64, stream), BERTH_OK);
    assert_int_equal(shim.shim_unflushed(queue), 0);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    berth_stream_destroy(stream);
    give(p, 128);
}

/* ---- Amounts of work ----------------------------------------------------------------------------- */

static void zero_is_one_command(void **state)
{
    (void)state;
    enum { BYTES = 8 << 20 };
    char *p = take(BYTES);
    const char *copy = call_for("clEnqueueSVMMemcpy", "clEnqueueWriteBuffer", "clEnqueueMemcpyINTEL");
    const char *fill = call_for("clEnqueueSVMMemFill", "clEnqueueFillBuffer", "clEnqueueMemFillINTEL");
    long copies = shim.shim_calls(copy), fills = shim.shim_calls(fill);
    assert_int_equal(berth_zero(device, p, BYTES, NULL, false), BERTH_OK);
    assert_int_equal(shim.shim_calls(copy), copies);
    assert_int_equal(shim.shim_calls(fill), fills + 1);
    give(p, BYTES);
}

static void maps_for_writing_do_not_read(void **state)
{
    (void)state;
    if (has_buffers() || has_usm())
        return; /* nothing is mapped there */
    char host[64] = "", *p = take(64);
    assert_int_equal(berth_copy(device, p, host, 64, BERTH_COPY_HOST_TO_DEVICE, NULL, false), BERTH_OK);
    assert_int_equal(shim.shim_map_flags(), CL_MAP_WRITE_INVALIDATE_REGION);
    assert_int_equal(berth_copy(device, host, p, 64, BERTH_COPY_DEVICE_TO_HOST, NULL, false), BERTH_OK);
    assert_int_equal(shim.shim_map_flags(), CL_MAP_READ);
    give(p, 64);
}

static void kinds_of_memory_by_what_there_is(void **state)
{
    (void)state;
    const bool managed = strcmp(mode, "full") == 0 || has_usm();
    berth_device_info info = {.struct_size = sizeof info};
    berth_opencl_memory_model model;
    assert_int_equal(berth_device_describe(device, &info), BERTH_OK);
    assert_int_equal(info.memory_kinds, managed ? 7 : 3);
    assert_int_equal(info.stream_ordered, !has_usm()); /* the extension has no free on a queue */
    assert_int_equal(berth_opencl_memory(device, &model), BERTH_OK);
    assert_int_equal(model, has_usm()       ? BERTH_OPENCL_USM
                            : has_buffers() ? BERTH_OPENCL_NO_POINTERS
                                            : BERTH_OPENCL_SVM);
}

/* ---- Contexts that come and go --------------------------------------------------------------------- */

enum { COMINGS = 100 };

struct coming {
    cl_context contexts[2];
    _Atomic bool over;
};

static void *come_and_go(void *context)
{
    struct coming *coming = context;
    intptr_t wrong = 0;
    for (int i = 0; i < COMINGS; i++) {
        berth_device device_of = {0};
        int32_t count = 0;
        berth_status released = BERTH_BUSY;
        wrong += berth_opencl_adopt(coming->contexts[i % 2], &device_of, 1, &count) != BERTH_OK;
        while (released == BERTH_BUSY) { /* the other thread may just be using it */
            sched_yield();
            released = berth_opencl_release(coming->contexts[i % 2]);
        }
        wrong += released != BERTH_OK;
    }
    atomic_store(&coming->over, true);
    return (void *)wrong;
}

/* What the device of that ordinal says: it is there, in a context of the program's, or it went. `use`: and does. */
static void look_at(berth_device at, const struct coming *coming, bool use)
{
    berth_device_info info = {.struct_size = sizeof info};
    berth_opencl_memory_model model;
    berth_stream *stream = NULL;
    void *id = NULL, *native = NULL, *p = NULL;
    berth_status status = berth_device_describe(at, &info);
    assert_true(status == BERTH_OK ? info.name[0] != 0 : status == BERTH_DEVICE_LOST);
    status = berth_opencl_device_id(at, &id);
    assert_true(status == BERTH_OK ? id != NULL : status == BERTH_NOT_FOUND);
    status = berth_opencl_memory(at, &model);
    assert_true(status == BERTH_OK || status == BERTH_NOT_FOUND);
    status = berth_device_native(at, &native);
    assert_true(status == BERTH_OK ? native == coming->contexts[0] || native == coming->contexts[1]
                                   : status == BERTH_DEVICE_LOST);
    if (!use)
        return;
    status = berth_stream_create(at, &stream);
    assert_true(status == BERTH_OK || status == BERTH_DEVICE_LOST);
    berth_stream_destroy(stream);
    status = berth_device_allocate(at, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p);
    assert_true(status == BERTH_OK || status == BERTH_DEVICE_LOST);
    if (p)
        assert_int_equal(berth_device_release(at, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_OK);
}

/* A place is given to another context while a thread looks at all ordinals that it knows. */
static void a_place_is_whole_before_it_is_there(void **state)
{
    (void)state;
    struct coming coming = {0};
    pthread_t thread;
    void *wrong = NULL;
    int32_t count = 0;
    const berth_device of_first = in_new_context(), of_second = in_new_context();
    assert_int_equal(berth_device_native(of_first, (void **)&coming.contexts[0]), BERTH_OK);
    assert_int_equal(berth_device_native(of_second, (void **)&coming.contexts[1]), BERTH_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(clRetainContext(coming.contexts[i]), CL_SUCCESS);
        assert_int_equal(berth_opencl_release(coming.contexts[i]), BERTH_OK);
    }
    assert_int_equal(pthread_create(&thread, NULL, come_and_go, &coming), 0);
    for (unsigned i = 0; !atomic_load(&coming.over); i++) {
        assert_int_equal(berth_device_count(BERTH_DEVICE_OPENCL, &count), BERTH_OK);
        look_at(of_first, &coming, i % 8 == 0);
        look_at(of_second, &coming, false);
        sched_yield();
    }
    assert_int_equal(pthread_join(thread, &wrong), 0);
    assert_null(wrong);
    for (int i = 0; i < 2; i++)
        assert_int_equal(clReleaseContext(coming.contexts[i]), CL_SUCCESS);
}

/* ---- Tensors -------------------------------------------------------------------------------------- */

/* To a consumer of DLPack kDLOpenCL says that data is a cl_mem: so it is, or the tensor is not lent. */
static void tensors_leave_as_buffers_or_not_at_all(void **state)
{
    (void)state;
    enum { BLOCK = 4096, AT = 1024 };
    for (int kind = BERTH_MEMORY_DEVICE; kind <= BERTH_MEMORY_PINNED; kind++) {
        berth_allocator *a = NULL;
        berth_tensor t = BERTH_TENSOR_INIT;
        struct DLManagedTensorVersioned *out = NULL;
        assert_int_equal(berth_device_allocator_create(device, (berth_memory_kind)kind, &a), BERTH_OK);
        assert_int_equal(berth_buffer_create(a, BLOCK, 64, false, &t.buffer), BERTH_OK);
        t.type = (berth_dl_type){BERTH_DL_UINT, 8, 1};
        t.dims = 1;
        t.shape[0] = 100;
        t.offset_bytes = AT;
        berth_status status = berth_dlpack_export(&t, NULL, NULL, &out);
        if (kind == BERTH_MEMORY_DEVICE && !has_buffers()) {
            assert_int_equal(status, BERTH_UNSUPPORTED);
            assert_non_null(strstr(berth_last_error()->message, "buffers alone"));
            assert_null(out);
            berth_buffer_release(t.buffer);
            berth_allocator_release(a);
            continue;
        }
        assert_int_equal(status, BERTH_OK);
        berth_dl_tensor *lent = &((berth_dl_versioned *)out)->tensor;
        char *data = berth_buffer_data(t.buffer);
        if (kind == BERTH_MEMORY_PINNED) {
            assert_int_equal(lent->device_type, BERTH_DL_CPU);
            assert_ptr_equal(lent->data, data + AT);
            assert_int_equal(lent->byte_offset, 0);
        } else {
            berth_device_place place = {.struct_size = sizeof place};
            size_t bytes = 0;
            assert_int_equal(berth_device_locate(device, data, &place), BERTH_OK);
            assert_int_equal(lent->device_type, BERTH_DL_OPENCL);
            assert_int_equal(clGetMemObjectInfo(lent->data, CL_MEM_SIZE, sizeof bytes, &bytes, NULL),
                             CL_SUCCESS);
            assert_true((uintptr_t)lent->data == place.handle && bytes >= BLOCK);
            assert_int_equal(lent->byte_offset, place.offset_bytes + AT);
        }
        struct DLManagedTensorVersioned *empty = NULL;
        t.shape[0] = 0;
        t.offset_bytes = BLOCK; /* no element, and no byte of the buffer */
        assert_int_equal(berth_dlpack_export(&t, NULL, NULL, &empty), BERTH_OK);
        ((berth_dl_versioned *)empty)->deleter(empty);
        ((berth_dl_versioned *)out)->deleter(out);
        berth_buffer_release(t.buffer);
        berth_allocator_release(a);
    }
}

/* A driver of OpenCL 1.1. */
static void too_old_a_driver_is_said(void **state)
{
    (void)state;
    berth_device_info info = {.struct_size = sizeof info};
    void *p = NULL;
    char host[8] = "";
    berth_stream *stream = NULL;
    berth_event *event = NULL;
    berth_allocator *a = NULL;
    assert_int_equal(berth_device_describe(device, &info), BERTH_OK);
    assert_int_equal(info.memory_kinds, 0);
    for (int kind = BERTH_MEMORY_DEVICE; kind <= BERTH_MEMORY_MANAGED; kind++)
        assert_int_equal(berth_device_allocate(device, (berth_memory_kind)kind, 64, 64, NULL, &p),
                         BERTH_UNSUPPORTED);
    assert_non_null(strstr(berth_last_error()->message, "OpenCL 1.2"));
    assert_int_equal(berth_stream_create(device, &stream), BERTH_UNSUPPORTED);
    assert_int_equal(berth_event_create(device, &event), BERTH_UNSUPPORTED);
    assert_int_equal(berth_copy(device, host, host + 4, 4, BERTH_COPY_INFER, NULL, false), BERTH_UNSUPPORTED);
    assert_int_equal(berth_zero(device, host, 4, NULL, false), BERTH_UNSUPPORTED);
    assert_int_equal(berth_device_allocator_create(device, BERTH_MEMORY_DEVICE, &a), BERTH_UNSUPPORTED);
    assert_int_equal(berth_opencl_buffer(device, &p, 1, &p), BERTH_UNSUPPORTED);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest without[] = {TEST(too_old_a_driver_is_said)};
    const struct CMUnitTest with[] = {
        TEST(overlapping_copies_on_an_out_of_order_queue),
        TEST(a_half_enqueued_copy_keeps_its_block),
        TEST(a_streams_function_does_not_hang),
        TEST(questions_come_to_an_end),
        TEST(threads_ask_together),
        TEST(a_failed_command_is_final),
        TEST(a_failed_command_does_not_hold_the_pool),
        TEST(small_requests_where_segments_are_refused),
        TEST(plans_larger_than_any_block),
        TEST(nothing_is_released_while_a_user_event_is_unset),
        TEST(what_streams_get_is_flushed),
        TEST(zero_is_one_command),
        TEST(maps_for_writing_do_not_read),
        TEST(kinds_of_memory_by_what_there_is),
        TEST(a_place_is_whole_before_it_is_there),
        TEST(tensors_leave_as_buffers_or_not_at_all),
    };
    int code;
    if (!vendors_begin(argc, argv, &code))
        return code;
    return strcmp(mode, "old") == 0 ? cmocka_run_group_tests(without, NULL, NULL)
                                    : cmocka_run_group_tests(with, NULL, NULL);
}
