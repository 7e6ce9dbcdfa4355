/* OpenCL devices without shared memory: addresses that stand for buffers, the buffers and parts of them that kernels
 * get, and what is refused. On PoCL, through the shim. */
#include "vendors.h"

#include <signal.h>

enum { BYTES = 1 << 20 };

static berth_device_place place_of(const void *p)
{
    berth_device_place place = {.struct_size = sizeof place};
    assert_int_equal(berth_device_locate(device, p, &place), BERTH_OK);
    return place;
}

static size_t ask_size(cl_mem buffer, cl_mem_info question)
{
    size_t answer = 0;
    assert_int_equal(clGetMemObjectInfo(buffer, question, sizeof answer, &answer, NULL), CL_SUCCESS);
    return answer;
}

static cl_mem part_at(berth_device on, const void *p, size_t size_bytes)
{
    cl_mem part = NULL;
    assert_int_equal(berth_opencl_buffer(on, p, size_bytes, (void **)&part), BERTH_OK);
    assert_int_equal(ask_size(part, CL_MEM_SIZE), size_bytes);
    return part;
}

/* ---- Addresses ----------------------------------------------------------------------------------- */

static void addresses_stand_for_buffers(void **state)
{
    (void)state;
    berth_device_info info = {.struct_size = sizeof info};
    berth_opencl_memory_model model;
    berth_device_place place = {.struct_size = sizeof place};
    cl_context context = NULL, theirs = NULL;
    void *pinned = NULL, *managed = NULL;
    char *p = take(BYTES);
    assert_int_equal(berth_device_describe(device, &info), BERTH_OK);
    assert_true(info.memory_kinds == (1u << BERTH_MEMORY_DEVICE | 1u << BERTH_MEMORY_PINNED));
    assert_false(info.host_accessible);
    assert_true(info.offset_alignment >= 128);
    assert_int_equal(berth_opencl_memory(device, &model), BERTH_OK);
    assert_int_equal(model, BERTH_OPENCL_NO_POINTERS);
    place = place_of(p + 100);
    cl_mem buffer = (cl_mem)(uintptr_t)place.handle;
    assert_int_equal(place.offset_bytes, 100);
    assert_int_equal(place.size_bytes, BYTES);
    assert_int_equal(ask_size(buffer, CL_MEM_SIZE), BYTES);
    assert_int_equal(berth_device_native(device, (void **)&context), BERTH_OK);
    assert_int_equal(clGetMemObjectInfo(buffer, CL_MEM_CONTEXT, sizeof theirs, &theirs, NULL), CL_SUCCESS);
    assert_ptr_equal(context, theirs);
    assert_true(place_of(p + BYTES - 1).handle == place.handle);
    assert_int_equal(berth_device_locate(device, p + BYTES, &place), BERTH_NOT_FOUND);
    assert_int_equal(berth_device_locate(device, &info, &place), BERTH_NOT_FOUND);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_PINNED, 64, 64, NULL, &pinned), BERTH_OK);
    assert_int_equal(berth_device_locate(device, pinned, &place),
                     BERTH_NOT_FOUND); /* no kernel may have it */
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_PINNED, pinned, 64, NULL), BERTH_OK);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_MANAGED, 64, 64, NULL, &managed),
                     BERTH_UNSUPPORTED);
    give(p, BYTES);
    assert_int_equal(berth_device_locate(device, p, &place), BERTH_NOT_FOUND);
}

/* What is not there faults, rather than being somebody else's memory. */
static void the_host_cannot_touch_them(void **state)
{
    (void)state;
    fflush(NULL);
    void *p = take(64);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile char *)p = 1;
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    give(p, 64);
}

/* ---- What kernels get ---------------------------------------------------------------------------- */

static void parts_of_a_block(void **state)
{
    (void)state;
    enum { AT = 4096, PART = 1000 };
    static unsigned char there[PART], back[PART];
    unsigned char *p = take(BYTES);
    cl_mem whole = part_at(device, p, BYTES), part = part_at(device, p + AT, PART), above = NULL;
    void *none = &none;
    assert_ptr_equal(whole, (cl_mem)(uintptr_t)place_of(p).handle);
    assert_int_equal(clGetMemObjectInfo(part, CL_MEM_ASSOCIATED_MEMOBJECT, sizeof above, &above, NULL),
                     CL_SUCCESS);
    assert_ptr_equal(above, whole);
    assert_int_equal(ask_size(part, CL_MEM_OFFSET), AT);
    for (size_t i = 0; i < PART; i++)
        there[i] = pattern(i, 3);
    assert_int_equal(berth_copy(device, p + AT, there, PART, BERTH_COPY_HOST_TO_DEVICE, NULL, false),
                     BERTH_OK);
    berth_stream *stream = new_stream(); /* a queue for the program's own command */
    assert_int_equal(
        clEnqueueReadBuffer(berth_stream_native(stream), part, CL_TRUE, 0, PART, back, 0, NULL, NULL),
        CL_SUCCESS);
    assert_memory_equal(back, there, PART);
    assert_int_equal(clReleaseMemObject(part), CL_SUCCESS);
    assert_int_equal(clReleaseMemObject(whole), CL_SUCCESS);
    assert_int_equal(berth_opencl_buffer(device, p + 1, 64, &none), BERTH_INVALID_ARGUMENT);
    assert_non_null(strstr(berth_last_error()->message, "alignment of"));
    assert_null(none);
    assert_int_equal(berth_opencl_buffer(device, p + AT, BYTES, &none), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_opencl_buffer(device, p, 0, &none), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_opencl_buffer(device, NULL, 1, &none), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_opencl_buffer(device, p, 1, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_opencl_buffer(device, there, 1, &none), BERTH_NOT_FOUND);
    assert_int_equal(berth_opencl_buffer(berth_device_cpu(), p, 1, &none), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_opencl_buffer(in_new_context(), p, 1, &none), BERTH_NOT_FOUND);
    shim.shim_fail("clCreateSubBuffer", 1, 1, CL_OUT_OF_HOST_MEMORY);
    assert_int_equal(berth_opencl_buffer(device, p, 64, &none), BERTH_OUT_OF_HOST_MEMORY);
    shim.shim_fail("clRetainMemObject", 1, 1, CL_OUT_OF_RESOURCES);
    assert_int_equal(berth_opencl_buffer(device, p, BYTES, &none), BERTH_DEVICE_ERROR);
    assert_null(none);
    berth_stream_destroy(stream);
    give(p, BYTES);
}

/* The program's part outlives the block that it was taken of. */
static void a_part_keeps_its_memory(void **state)
{
    (void)state;
    char there[64] = "still here", back[64] = "";
    long blocks = shim.shim_blocks();
    char *p = take(BYTES);
    berth_stream *stream = new_stream();
    cl_mem part = part_at(device, p, sizeof there);
    assert_int_equal(berth_copy(device, p, there, sizeof there, BERTH_COPY_HOST_TO_DEVICE, NULL, false),
                     BERTH_OK);
    give(p, BYTES);
    assert_int_equal(shim.shim_blocks(), blocks);
    assert_int_equal(
        clEnqueueReadBuffer(berth_stream_native(stream), part, CL_TRUE, 0, sizeof back, back, 0, NULL, NULL),
        CL_SUCCESS);
    assert_string_equal(back, there);
    assert_int_equal(clReleaseMemObject(part), CL_SUCCESS);
    berth_stream_destroy(stream);
}

enum { HELD = 64 };
typedef struct holding {
    char *p;
    size_t size_bytes;
} holding;

/* Sizes and alignments that suit nobody; each block can be bound, and no two of them share a byte. */
static void hold_and_bind(berth_allocator *a, berth_device on)
{
    static holding held[HELD];
    uint64_t random = 11;
    for (size_t i = 0; i < HELD; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        held[i].size_bytes = 1 + (size_t)(random >> 40) % 30000;
        assert_int_equal(
            berth_allocate(a, held[i].size_bytes, (size_t)1 << (i % 7), NULL, (void **)&held[i].p), BERTH_OK);
        clReleaseMemObject(part_at(on, held[i].p, held[i].size_bytes));
        for (size_t k = 0; k < i; k++)
            assert_true(held[i].p + held[i].size_bytes <= held[k].p ||
                        held[k].p + held[k].size_bytes <= held[i].p);
        if (i % 3 == 0) { /* so that places are used again */
            assert_int_equal(berth_deallocate(a, held[i].p, held[i].size_bytes, NULL), BERTH_OK);
            held[i] = (holding){NULL, 0};
        }
    }
    for (size_t i = 0; i < HELD; i++)
        if (held[i].p)
            assert_int_equal(berth_deallocate(a, held[i].p, held[i].size_bytes, NULL), BERTH_OK);
}

static void replay_and_bind(berth_allocator *inner, berth_device on)
{
    berth_allocator *planned = NULL;
    berth_plan *plan = NULL;
    berth_report report = BERTH_REPORT_INIT;
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_planned_create(inner, plan, &planned), BERTH_OK);
    assert_int_equal(berth_record_begin(planned, NULL), BERTH_OK);
    hold_and_bind(planned, on);
    assert_int_equal(berth_record_end(planned), BERTH_OK);
    assert_int_equal(berth_replay_begin(planned, NULL), BERTH_OK);
    hold_and_bind(planned, on);
    assert_int_equal(berth_replay_end(planned, &report), BERTH_OK);
    assert_int_equal(report.from_plan, HELD);
    berth_allocator_release(planned);
    berth_plan_release(plan);
}

/* Parts of 128 bytes as here, and of 4096 as on no driver that we know. */
static void every_block_can_be_bound(void **state)
{
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        set(wide ? "align=4096" : "");
        berth_device on = in_new_context();
        berth_device_info info = {.struct_size = sizeof info};
        berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
        berth_allocator *source = NULL, *pool = NULL;
        assert_int_equal(berth_device_describe(on, &info), BERTH_OK);
        assert_int_equal(info.offset_alignment, wide ? 4096 : 128);
        options.device = on;
        assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
        assert_int_equal(berth_device_allocator_create(on, BERTH_MEMORY_DEVICE, &source), BERTH_OK);
        hold_and_bind(pool, on);
        hold_and_bind(pool, on); /* from the thread's own cache, too */
        hold_and_bind(source, on);
        replay_and_bind(pool, on);
        replay_and_bind(source, on);
        berth_allocator_release(source);
        berth_allocator_release(pool);
    }
}

/* ---- Streams ------------------------------------------------------------------------------------- */

typedef struct use {
    char *p;
    berth_status zero, release;
} use;

static void use_it(void *context)
{
    use *u = context;
    u->zero = berth_zero(device, u->p, 64, NULL, false);
    u->release = berth_device_release(device, BERTH_MEMORY_DEVICE, u->p, BYTES, NULL);
}

/* A block freed on a stream is there for what the stream has to do before, functions of the host too. */
static void a_block_stays_until_its_stream_has_passed(void **state)
{
    (void)state;
    berth_stream *stream = new_stream();
    berth_device_place place = {.struct_size = sizeof place};
    gate g = GATE_INIT;
    long blocks = shim.shim_blocks();
    use u = {take(BYTES), BERTH_INTERNAL, BERTH_INTERNAL};
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, use_it, &u), BERTH_OK);
    gate_wait_reached(&g);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, u.p, BYTES, stream), BERTH_OK);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, u.p, BYTES, NULL), BERTH_NOT_FOUND);
    assert_int_equal(berth_device_locate(device, u.p, &place), BERTH_OK);
    gate_open(&g);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_int_equal(u.zero, BERTH_OK);
    assert_int_equal(u.release, BERTH_NOT_FOUND); /* it is freed already, if not gone */
    while (shim.shim_blocks() != blocks)          /* else the test's time limit ends it */
        sched_yield();
    assert_int_equal(berth_device_locate(device, u.p, &place), BERTH_NOT_FOUND);
    berth_stream_destroy(stream);
}

/* When the queue cannot be waited for, the block is still the caller's. */
static void a_refused_release_changes_nothing(void **state)
{
    (void)state;
    berth_stream *stream = new_stream();
    char *p = take(BYTES);
    shim.shim_fail("clEnqueueMarkerWithWaitList", 1, 1, CL_OUT_OF_RESOURCES);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, BYTES, stream), BERTH_DEVICE_ERROR);
    assert_int_equal(berth_zero(device, p, BYTES, stream, true), BERTH_OK);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, BYTES, stream), BERTH_OK);
    berth_stream_destroy(stream);
}

/* Pinned memory is the host's: what is done there on a stream keeps the stream's order all the same. */
static void pinned_memory_in_the_streams_order(void **state)
{
    (void)state;
    enum { ROUNDS = 20, SOME = 5000 };
    unsigned char *pinned = NULL, *other = NULL, *p = take(SOME);
    set("slow");
    berth_stream *streams[] = {new_stream(), new_wild_stream()};
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_PINNED, SOME, 64, NULL, (void **)&pinned),
                     BERTH_OK);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_PINNED, SOME, 64, NULL, (void **)&other),
                     BERTH_OK);
    for (int round = 0; round < ROUNDS; round++) {
        berth_stream *stream = streams[round % 2];
        for (size_t i = 0; i < SOME; i++)
            pinned[i] = pattern(i, (unsigned)round);
        memset(other, 0xff, SOME);
        assert_int_equal(berth_copy(device, p, pinned, SOME, BERTH_COPY_INFER, stream, false), BERTH_OK);
        assert_int_equal(berth_zero(device, pinned, SOME, stream, false), BERTH_OK);
        assert_int_equal(berth_copy(device, other, pinned, 64, BERTH_COPY_INFER, stream, false), BERTH_OK);
        assert_int_equal(berth_copy(device, pinned, p, SOME, BERTH_COPY_INFER, stream, true), BERTH_OK);
        for (size_t i = 0; i < SOME; i++)
            assert_int_equal(pinned[i], pattern(i, (unsigned)round));
        for (size_t i = 0; i < 65; i++)
            assert_int_equal(other[i], i < 64 ? 0 : 0xff);
    }
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_PINNED, pinned, SOME, streams[0]), BERTH_OK);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_PINNED, other, SOME, NULL), BERTH_OK);
    berth_stream_destroy(streams[0]);
    berth_stream_destroy(streams[1]);
    give(p, SOME);
}

/* ---- What is refused ----------------------------------------------------------------------------- */

static void what_is_not_the_devices_is_refused(void **state)
{
    (void)state;
    char host[64] = "", *p = take(64), *gone = take(64);
    berth_device other = in_new_context();
    void *theirs = NULL;
    assert_int_equal(berth_device_allocate(other, BERTH_MEMORY_DEVICE, 64, 64, NULL, &theirs), BERTH_OK);
    give(gone, 64);
    berth_stream *streams[] = {NULL, new_stream()};
    for (int i = 0; i < 2; i++) {
        berth_stream *on = streams[i];
        assert_int_equal(berth_copy(device, host, p, 64, BERTH_COPY_HOST_TO_DEVICE, on, false),
                         BERTH_INVALID_ARGUMENT);
        assert_int_equal(berth_copy(device, p, host, 64, BERTH_COPY_DEVICE_TO_HOST, on, false),
                         BERTH_INVALID_ARGUMENT);
        assert_int_equal(berth_copy(device, gone, host, 64, BERTH_COPY_HOST_TO_DEVICE, on, false),
                         BERTH_INVALID_ARGUMENT);
        assert_int_equal(berth_copy(device, p + 1, host, 64, BERTH_COPY_INFER, on, false),
                         BERTH_INVALID_ARGUMENT);
        assert_non_null(strstr(berth_last_error()->message, "past the end"));
        assert_int_equal(berth_copy(device, p, theirs, 64, BERTH_COPY_INFER, on, false),
                         BERTH_INVALID_ARGUMENT);
        assert_non_null(strstr(berth_last_error()->message, "another context"));
        assert_int_equal(berth_zero(device, host, 64, on, false), BERTH_INVALID_ARGUMENT);
        assert_int_equal(berth_zero(device, p + 60, 5, on, false), BERTH_INVALID_ARGUMENT);
    }
    assert_int_equal(berth_device_release(other, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_NOT_FOUND);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p + 1, 63, NULL), BERTH_NOT_FOUND);
    assert_int_equal(berth_device_release(other, BERTH_MEMORY_DEVICE, theirs, 64, NULL), BERTH_OK);
    berth_stream_destroy(streams[1]);
    give(p, 64);
}

/* From one context to another, through the host. */
static void buffers_of_two_contexts(void **state)
{
    (void)state;
    enum { SOME = 3 << 20 };
    static unsigned char there[SOME], back[SOME];
    berth_allocator *a = NULL, *b = NULL;
    berth_buffer *from = NULL, *to = NULL, *in = NULL, *out = NULL;
    for (size_t i = 0; i < SOME; i++)
        there[i] = pattern(i, 1);
    assert_int_equal(berth_device_allocator_create(device, BERTH_MEMORY_DEVICE, &a), BERTH_OK);
    assert_int_equal(berth_device_allocator_create(in_new_context(), BERTH_MEMORY_DEVICE, &b), BERTH_OK);
    assert_int_equal(berth_buffer_create(a, SOME, 64, false, &from), BERTH_OK);
    assert_int_equal(berth_buffer_create(b, SOME, 64, false, &to), BERTH_OK);
    assert_int_equal(berth_buffer_view(there, SOME, berth_device_cpu(), &in), BERTH_OK);
    assert_int_equal(berth_buffer_view(back, SOME, berth_device_cpu(), &out), BERTH_OK);
    assert_int_equal(berth_buffer_copy(from, in, NULL, false), BERTH_OK);
    assert_int_equal(berth_buffer_copy(to, from, NULL, false), BERTH_OK);
    assert_int_equal(berth_buffer_copy(out, to, NULL, false), BERTH_OK);
    assert_memory_equal(back, there, SOME);
    berth_buffer_release(from);
    berth_buffer_release(to);
    berth_buffer_release(in);
    berth_buffer_release(out);
    berth_allocator_release(a);
    berth_allocator_release(b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(addresses_stand_for_buffers),
        TEST(the_host_cannot_touch_them),
        TEST(parts_of_a_block),
        TEST(a_part_keeps_its_memory),
        TEST(every_block_can_be_bound),
        TEST(a_block_stays_until_its_stream_has_passed),
        TEST(a_refused_release_changes_nothing),
        TEST(pinned_memory_in_the_streams_order),
        TEST(what_is_not_the_devices_is_refused),
        TEST(buffers_of_two_contexts),
    };
    int code;
    if (!vendors_begin(argc, argv, &code))
        return code;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
