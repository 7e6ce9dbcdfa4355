/* Vulkan when the driver says no: every call of it fails once, the device is lost in the middle of work, allocations run
 * out, and the process forks. On tests/vulkan/shim.c, which stands before the real loader. */
#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernel.h"

#include "gate.h"
#include "shim.h"

static const shim_controls *shim;

static berth_status register_device(void)
{
    berth_device_kind kind;
    berth_status status = berth_vulkan_register(&kind);
    device = (berth_device){(int32_t)kind, 0};
    return status;
}

static void note(void *context)
{
    ++*(int *)context;
}

/* Everything once, on a device that is new. What is not given back at the end is told by the shim. */
static berth_status scene(void)
{
    static char src[5000], dst[5000];
    berth_stream *stream = NULL, *other = NULL;
    berth_event *event = NULL;
    void *p = NULL, *pinned = NULL;
    int ran = 0;
    memset(src, 7, sizeof src);
    memset(dst, 0, sizeof dst);
    assert_int_equal(register_device(), BERTH_OK);
#define STEP(expression)    \
    if (status == BERTH_OK) \
        status = (expression);
    berth_status status = berth_stream_create(device, &stream);
    STEP(berth_stream_create(device, &other))
    STEP(berth_event_create(device, &event))
    STEP(berth_device_allocate(device, BERTH_MEMORY_DEVICE, sizeof src, 4096, NULL, &p))
    STEP(berth_device_allocate(device, BERTH_MEMORY_PINNED, sizeof src, 64, NULL, &pinned))
    if (status == BERTH_OK)
        memset(pinned, 3, sizeof src);
    STEP(berth_copy(device, p, pinned, sizeof src, BERTH_COPY_INFER, stream, false))
    STEP(berth_event_record(event, stream))
    STEP(berth_stream_wait_event(other, event))
    STEP(berth_stream_call(other, note, &ran))
    STEP(berth_copy(device, (char *)p + 1, src, sizeof src - 1, BERTH_COPY_HOST_TO_DEVICE, other, false))
    STEP(berth_zero(device, p, 3, other, false))
    STEP(berth_copy(device, (char *)p + 2, p, 100, BERTH_COPY_DEVICE_TO_DEVICE, other, false))
    STEP(berth_copy(device, dst, p, sizeof dst, BERTH_COPY_DEVICE_TO_HOST, other, false))
    STEP(berth_event_record(event, other))
    STEP(berth_event_wait(event))
    STEP(berth_stream_synchronize(other))
#undef STEP
    if (status == BERTH_OK) {
        assert_int_equal(ran, 1);
        assert_true(dst[0] == 0 && dst[2] == 0 && dst[4] == 0 && dst[5] == 7 && dst[4999] == 7);
    }
    shim->fail_at(0, 0);
    /* What could not be given to the queue later is told once. */
    if (other && berth_stream_synchronize(other) != BERTH_OK)
        assert_int_equal(berth_stream_synchronize(other), BERTH_OK);
    if (stream)
        assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    if (p)
        assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, sizeof src, NULL), BERTH_OK);
    if (pinned)
        assert_int_equal(berth_device_release(device, BERTH_MEMORY_PINNED, pinned, sizeof src, NULL),
                         BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(stream);
    berth_stream_destroy(other);
    assert_int_equal(berth_device_unregister((berth_device_kind)device.kind), BERTH_OK);
    return status;
}

static void every_call_of_the_driver_may_fail(void **state)
{
    (void)state;
    int calls = 0, told = 0;
    for (;;) {
        shim->fail_at(++calls, VK_ERROR_OUT_OF_DEVICE_MEMORY);
        berth_status status = scene();
        if (!shim->failed()) {
            assert_int_equal(status, BERTH_OK);
            break;
        }
        /* Told, or repeated: the scene has looked at what was copied. */
        assert_true(status == BERTH_OK ? shim->failed() == 2 : berth_last_error()->message[0] != 0);
        told += status != BERTH_OK;
        if (shim->live() != 0)
            fail_msg("after call %d failed, %d things of the driver's are left", calls, shim->live());
    }
    print_message("%d calls, %d failures told\n", calls - 1, told);
    assert_true(told > 20);
    assert_int_equal(shim->live(), 0);
    assert_int_equal(shim->misuses(), 0);
}

/* ---- Waits and questions that fail ----------------------------------------------------------------------- */

/* The device's queue stands still until queue_open is called. */
static VkSemaphore queue_hold(void)
{
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    const uint64_t one = 1;
    VkSemaphore held = VK_NULL_HANDLE;
    assert_int_equal(call.vkCreateSemaphore(vk.device, &info, NULL, &held), VK_SUCCESS);
    const VkTimelineSemaphoreSubmitInfo timeline = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                                    .waitSemaphoreValueCount = 1,
                                                    .pWaitSemaphoreValues = &one};
    const VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                 .pNext = &timeline,
                                 .waitSemaphoreCount = 1,
                                 .pWaitSemaphores = &held,
                                 .pWaitDstStageMask = &stage};
    assert_int_equal(call.vkQueueSubmit(vk.queue, 1, &submit, VK_NULL_HANDLE), VK_SUCCESS);
    return held;
}

static void queue_open(VkSemaphore held)
{
    const VkSemaphoreSignalInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = held, .value = 1};
    assert_int_equal(call.vkSignalSemaphore(vk.device, &info), VK_SUCCESS);
}

enum { PIECE = 4096 };

/* Two blocks of the device, and two that are pinned and full of 1s and of 2s. */
typedef struct pieces {
    berth_stream *stream;
    char *to[2], *from[2];
} pieces;

static void pieces_make(pieces *of)
{
    assert_int_equal(set_up_kernel(NULL), 0);
    assert_int_equal(berth_stream_create(device, &of->stream), BERTH_OK);
    for (int i = 0; i < 2; i++) {
        void *p = NULL, *pinned = NULL;
        assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, PIECE, 64, NULL, &p), BERTH_OK);
        assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_PINNED, PIECE, 64, NULL, &pinned),
                         BERTH_OK);
        memset(pinned, i + 1, PIECE);
        of->to[i] = p;
        of->from[i] = pinned;
    }
}

static void pieces_free(pieces *of)
{
    for (int i = 0; i < 2; i++) {
        (void)berth_device_release(device, BERTH_MEMORY_DEVICE, of->to[i], PIECE, NULL);
        (void)berth_device_release(device, BERTH_MEMORY_PINNED, of->from[i], PIECE, NULL);
    }
    berth_stream_destroy(of->stream);
    assert_int_equal(tear_down_kernel(NULL), 0);
    assert_int_equal(shim->live(), 0);
}

static berth_status copy_piece(const pieces *of, int i)
{
    return berth_copy(device, of->to[i], of->from[i], PIECE, BERTH_COPY_INFER, of->stream, false);
}

static void check_piece(const pieces *of, int i)
{
    static char back[PIECE];
    assert_int_equal(berth_copy(device, back, of->to[i], PIECE, BERTH_COPY_INFER, NULL, false), BERTH_OK);
    for (int k = 0; k < PIECE; k++)
        assert_int_equal(back[k], i + 1);
}

static void note_run(void *context)
{
    atomic_store((_Atomic int *)context, 1);
}

/* A function behind work that the queue still has: it does not run before that because a wait has failed. */
static void a_wait_that_failed_is_not_over(void **state)
{
    (void)state;
    static char host[PIECE];
    static _Atomic int ran;
    pieces of;
    pieces_make(&of);
    atomic_store(&ran, 0);
    VkSemaphore held = queue_hold();
    assert_int_equal(copy_piece(&of, 0), BERTH_OK);
    shim->fail_asking(1, 1);
    assert_int_equal(berth_stream_call(of.stream, note_run, &ran), BERTH_OK);
    while (!atomic_load(&ran) && shim->waits() < 2)
        sched_yield();
    assert_int_equal(atomic_load(&ran), 0);
    assert_int_equal(berth_stream_query(of.stream), BERTH_NOT_READY);
    queue_open(held);
    assert_int_equal(berth_stream_synchronize(of.stream), BERTH_OK);
    assert_int_equal(atomic_load(&ran), 1);
    check_piece(&of, 0);
    /* Nor does a copy come back before it is done. */
    memset(host, 2, sizeof host);
    shim->fail_asking(3, 2);
    assert_int_equal(berth_copy(device, of.to[1], host, PIECE, BERTH_COPY_INFER, NULL, false), BERTH_OK);
    shim->fail_asking(0, 0);
    check_piece(&of, 1);
    call.vkDestroySemaphore(vk.device, held, NULL);
    pieces_free(&of);
}

/* A stream that was told to wait, and nothing else, has not come to its end before what it waits for. */
static void a_wait_alone_is_work(void **state)
{
    (void)state;
    pieces of;
    berth_stream *other = NULL;
    berth_event *before = NULL, *after = NULL;
    pieces_make(&of);
    VkSemaphore held = queue_hold();
    assert_int_equal(berth_stream_create(device, &other), BERTH_OK);
    assert_int_equal(berth_event_create(device, &before), BERTH_OK);
    assert_int_equal(berth_event_create(device, &after), BERTH_OK);
    assert_int_equal(copy_piece(&of, 0), BERTH_OK);
    assert_int_equal(berth_event_record(before, of.stream), BERTH_OK);
    assert_int_equal(berth_stream_wait_event(other, before), BERTH_OK);
    assert_int_equal(berth_event_record(after, other), BERTH_OK);
    assert_int_equal(berth_event_query(after), BERTH_NOT_READY);
    assert_int_equal(berth_stream_query(other), BERTH_NOT_READY);
    queue_open(held);
    assert_int_equal(berth_event_wait(after), BERTH_OK);
    assert_int_equal(berth_event_query(before), BERTH_OK);
    berth_event_destroy(before);
    berth_event_destroy(after);
    berth_stream_destroy(other);
    assert_int_equal(berth_stream_synchronize(of.stream), BERTH_OK);
    call.vkDestroySemaphore(vk.device, held, NULL);
    pieces_free(&of);
}

/* Commands that the queue may still have are not recorded anew. */
static void a_question_that_failed_frees_no_commands(void **state)
{
    (void)state;
    pieces of;
    pieces_make(&of);
    VkSemaphore held = queue_hold();
    assert_int_equal(copy_piece(&of, 0), BERTH_OK);
    shim->fail_asking(0, 1);
    assert_int_equal(copy_piece(&of, 1), BERTH_OK);
    queue_open(held);
    assert_int_equal(berth_stream_synchronize(of.stream), BERTH_OK);
    check_piece(&of, 0);
    check_piece(&of, 1);
    call.vkDestroySemaphore(vk.device, held, NULL);
    pieces_free(&of);
}

/* Nobody hangs where waiting fails for good, and nobody takes it for done: the device is lost. */
static void waits_that_always_fail_lose_the_device(void **state)
{
    (void)state;
    pieces of;
    VkSemaphore timeline;
    uint64_t end;
    pieces_make(&of);
    assert_int_equal(copy_piece(&of, 0), BERTH_OK);
    assert_int_equal(berth_vulkan_point(of.stream, &timeline, &end), BERTH_OK);
    shim->fail_asking(INT_MAX, INT_MAX);
    assert_int_equal(berth_stream_synchronize(of.stream), BERTH_DEVICE_LOST);
    assert_int_equal(berth_last_error()->driver_code, VK_ERROR_OUT_OF_HOST_MEMORY);
    shim->fail_asking(0, 0);
    assert_int_equal(berth_stream_query(of.stream), BERTH_DEVICE_LOST);
    assert_int_equal(copy_piece(&of, 1), BERTH_DEVICE_LOST);
    const VkSemaphoreWaitInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &timeline,
                                      .pValues = &end};
    /* Only so that the queue has nothing when it goes. */
    assert_int_equal(call.vkWaitSemaphores(vk.device, &info, UINT64_MAX), VK_SUCCESS);
    pieces_free(&of);
}

/* ---- What there is little of, and what goes ---------------------------------------------------------------- */

/* Small blocks from a pool need few of the driver's allocations; blocks of the device run out of them. */
static void allocations_are_few(void **state)
{
    (void)state;
    const char *modes = getenv("BERTH_VK_SHIM");
    if (!modes || !strstr(modes, "few"))
        return;
    enum { BLOCKS = 2000 };
    static void *blocks[BLOCKS];
    void *own[16];
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *pool = NULL;
    size_t taken = 0;
    assert_int_equal(register_device(), BERTH_OK);
    options.device = device;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    for (int i = 0; i < BLOCKS; i++)
        assert_int_equal(berth_allocate(pool, 10000, 256, NULL, &blocks[i]), BERTH_OK);
    assert_true(shim->most_live_memory() <= 8);
    berth_status status = BERTH_OK;
    while (taken < 16 && (status = berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL,
                                                         &own[taken])) == BERTH_OK)
        taken++;
    assert_int_equal(status, BERTH_OUT_OF_DEVICE_MEMORY);
    assert_non_null(strstr(berth_last_error()->message, "pool"));
    assert_true(taken < 8 && shim->most_live_memory() <= 8);
    while (taken > 0)
        assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, own[--taken], 64, NULL), BERTH_OK);
    for (int i = 0; i < BLOCKS; i++)
        assert_int_equal(berth_deallocate(pool, blocks[i], 10000, NULL), BERTH_OK);
    berth_allocator_release(pool);
    assert_int_equal(berth_device_unregister((berth_device_kind)device.kind), BERTH_OK);
}

/* Nothing of the driver's works in the child; nothing there hangs either. */
static void the_child_of_a_fork_is_told(void **state)
{
    (void)state;
    berth_stream *stream = NULL;
    berth_event *event = NULL;
    void *p = NULL;
    gate g = GATE_INIT;
    int result = 0;
    assert_int_equal(register_device(), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    assert_int_equal(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_event_record(event, stream), BERTH_OK);
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        bool told = berth_event_query(event) == BERTH_DEVICE_LOST &&
                    berth_event_wait(event) == BERTH_DEVICE_LOST &&
                    berth_stream_synchronize(stream) == BERTH_DEVICE_LOST &&
                    berth_zero(device, p, 64, stream, false) == BERTH_DEVICE_LOST &&
                    berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, NULL) == BERTH_DEVICE_LOST;
        berth_event_destroy(event);
        berth_stream_destroy(stream);
        told = told && berth_device_unregister((berth_device_kind)device.kind) == BERTH_OK;
        _exit(told ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_int_equal(result, 0);
    gate_open(&g);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(stream);
    assert_int_equal(berth_device_release(device, BERTH_MEMORY_DEVICE, p, 64, NULL), BERTH_OK);
    assert_int_equal(berth_device_unregister((berth_device_kind)device.kind), BERTH_OK);
    assert_int_equal(shim->live(), 0);
}

/* Last, since it stays lost. Pool, host cache and replay pass it on; what waits ends; everything can be given back. */
static void a_lost_device_is_passed_on(void **state)
{
    (void)state;
    static char host[4096];
    berth_pool_options pool_options = BERTH_POOL_OPTIONS_INIT;
    berth_host_cache_options cache_options = BERTH_HOST_CACHE_OPTIONS_INIT;
    berth_request request = BERTH_REQUEST_INIT;
    berth_allocator *pool = NULL, *cache = NULL, *planned = NULL;
    berth_plan *plan = NULL;
    berth_stream *stream = NULL, *behind = NULL;
    berth_event *event = NULL;
    void *p = NULL, *pinned = NULL, *q = NULL;
    gate g = GATE_INIT;
    int ran = 0;
    assert_int_equal(register_device(), BERTH_OK);
    pool_options.device = cache_options.device = device;
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &behind), BERTH_OK);
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    assert_int_equal(berth_pool_create(&pool_options, &pool), BERTH_OK);
    assert_int_equal(berth_host_cache_create(&cache_options, &cache), BERTH_OK);
    request.stream = stream;
    assert_int_equal(berth_allocate(pool, 5000, 64, &request, &p), BERTH_OK);
    assert_int_equal(berth_allocate(cache, 5000, 64, NULL, &pinned), BERTH_OK);
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_planned_create(pool, plan, &planned), BERTH_OK);
    assert_int_equal(berth_record_begin(planned, NULL), BERTH_OK);
    assert_int_equal(berth_allocate(planned, 3000, 64, NULL, &q), BERTH_OK);
    assert_int_equal(berth_deallocate(planned, q, 3000, NULL), BERTH_OK);
    assert_int_equal(berth_record_end(planned), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    assert_int_equal(berth_copy(device, p, host, 4096, BERTH_COPY_INFER, stream, false), BERTH_OK);
    assert_int_equal(berth_event_record(event, stream), BERTH_OK);
    assert_int_equal(berth_stream_wait_event(behind, event), BERTH_OK);
    assert_int_equal(berth_stream_call(behind, note, &ran), BERTH_OK);
    assert_int_equal(berth_record_use(cache, pinned, stream), BERTH_OK);
    gate_wait_reached(&g);
    shim->lose();
    gate_open(&g);
    assert_int_equal(berth_event_wait(event), BERTH_DEVICE_LOST);
    assert_int_equal(berth_event_query(event), BERTH_DEVICE_LOST);
    assert_int_equal(berth_stream_synchronize(behind), BERTH_DEVICE_LOST);
    assert_int_equal(berth_zero(device, p, 64, stream, true), BERTH_DEVICE_LOST);
    assert_int_equal(berth_last_error()->driver_code, VK_ERROR_DEVICE_LOST);
    (void)berth_deallocate(pool, p, 5000, stream);
    (void)berth_deallocate(cache, pinned, 5000, stream);
    assert_int_equal(berth_allocate(pool, (size_t)1 << 28, 64, NULL, &p), BERTH_DEVICE_LOST);
    assert_int_equal(berth_allocate(cache, (size_t)1 << 27, 64, NULL, &p), BERTH_DEVICE_LOST);
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.stream = stream;
    (void)berth_replay_begin(planned, &options); /* whatever it says, it does not hang */
    (void)berth_replay_end(planned, NULL);
    berth_stream_destroy(stream);
    berth_stream_destroy(behind);
    berth_event_destroy(event);
    berth_allocator_release(planned);
    berth_plan_release(plan);
    berth_allocator_release(pool);
    berth_allocator_release(cache);
    if (berth_device_unregister((berth_device_kind)device.kind) != BERTH_OK)
        fail_msg("%s", berth_last_error()->message);
    assert_int_equal(ran, 1); /* unregistering has waited for it */
    assert_int_equal(shim->live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_of_the_driver_may_fail),
        cmocka_unit_test(a_wait_that_failed_is_not_over),
        cmocka_unit_test(a_wait_alone_is_work),
        cmocka_unit_test(a_question_that_failed_frees_no_commands),
        cmocka_unit_test(waits_that_always_fail_lose_the_device),
        cmocka_unit_test(allocations_are_few),
        cmocka_unit_test(the_child_of_a_fork_is_told),
        cmocka_unit_test(a_lost_device_is_passed_on),
    };
    const char *path = getenv("BERTH_VULKAN_LIBRARY");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    const shim_controls *(*control)(void) = NULL;
    if (library)
        *(void **)&control = dlsym(library, "shim_control");
    if (!control) {
        fprintf(stderr, "BERTH_VULKAN_LIBRARY must name the shim\n");
        return 1;
    }
    int absent = look_for_vulkan();
    if (absent)
        return absent;
    berth_device_unregister(berth_device_kind_find("vulkan"));
    shim = control();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
