/* Programs with Vulkan commands of their own on Berth's memory and streams: order, waiting that holds nobody up, memory that
 * is not reused under a kernel, places of addresses, and memory of the host. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"

#include "gate.h"

enum { COUNT = 6400, BYTES = COUNT * sizeof(uint32_t) };

static berth_stream *new_stream(void)
{
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    return stream;
}

static void *take(berth_memory_kind kind)
{
    void *p = NULL;
    assert_int_equal(berth_device_allocate(device, kind, BYTES, 256, NULL, &p), BERTH_OK);
    return p;
}

static void give(berth_memory_kind kind, void *p)
{
    assert_int_equal(berth_device_release(device, kind, p, BYTES, NULL), BERTH_OK);
}

static void fill(uint32_t *numbers, uint32_t first)
{
    for (uint32_t i = 0; i < COUNT; i++)
        numbers[i] = first + 3 * i;
}

/* Each of `rounds` kernels has been applied to `first` and on. */
static void check(const uint32_t *numbers, uint32_t first, unsigned rounds)
{
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(numbers[i], ((first + 3 * i) << rounds) + ((1u << rounds) - 1));
}

/* Ours and the program's, one after the other; once at a standing gate, so that all of it waits on the host. */
static void commands_of_the_program_keep_their_place(void **state)
{
    (void)state;
    static uint32_t there[COUNT], back[COUNT];
    for (int held = 0; held < 2; held++) {
        enum { ROUNDS = 6 };
        berth_stream *stream = new_stream();
        gate g = GATE_INIT;
        void *x = take(BERTH_MEMORY_DEVICE), *y = take(BERTH_MEMORY_DEVICE);
        fill(there, 11);
        if (held)
            assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
        assert_int_equal(berth_copy(device, x, there, BYTES, BERTH_COPY_HOST_TO_DEVICE, stream, false),
                         BERTH_OK);
        for (int round = 0; round < ROUNDS; round++) {
            assert_int_equal(berth_zero(device, y, BYTES, stream, false), BERTH_OK);
            launch_kernel(stream, x, y, COUNT);
            assert_int_equal(berth_copy(device, x, y, BYTES, BERTH_COPY_DEVICE_TO_DEVICE, stream, false),
                             BERTH_OK);
        }
        assert_int_equal(berth_copy(device, back, x, BYTES, BERTH_COPY_DEVICE_TO_HOST, stream, false),
                         BERTH_OK);
        if (held) {
            gate_wait_reached(&g);
            assert_int_equal(berth_stream_query(stream), BERTH_NOT_READY);
            gate_open(&g);
        }
        assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
        check(back, 11, ROUNDS);
        berth_stream_destroy(stream);
        give(BERTH_MEMORY_DEVICE, x);
        give(BERTH_MEMORY_DEVICE, y);
    }
}

/* A stream that waits for what the program signals much later, and one behind it: a third goes on. */
static void waiting_holds_nobody_else_up(void **state)
{
    (void)state;
    static uint32_t there[COUNT], back[COUNT], other[COUNT];
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    VkSemaphore semaphore;
    assert_int_equal(call.vkCreateSemaphore(vk.device, &info, NULL, &semaphore), VK_SUCCESS);
    berth_stream *first = new_stream(), *second = new_stream(), *third = new_stream();
    berth_event *event = NULL;
    void *x = take(BERTH_MEMORY_DEVICE), *y = take(BERTH_MEMORY_DEVICE), *z = take(BERTH_MEMORY_DEVICE);
    assert_int_equal(berth_event_create(device, &event), BERTH_OK);
    fill(there, 5);
    assert_int_equal(berth_copy(device, x, there, BYTES, BERTH_COPY_HOST_TO_DEVICE, NULL, false), BERTH_OK);
    assert_int_equal(berth_vulkan_wait(first, semaphore, 7), BERTH_OK);
    launch_kernel(first, x, y, COUNT);
    assert_int_equal(berth_event_record(event, first), BERTH_OK);
    assert_int_equal(berth_stream_wait_event(second, event), BERTH_OK);
    assert_int_equal(berth_copy(device, back, y, BYTES, BERTH_COPY_DEVICE_TO_HOST, second, false), BERTH_OK);
    launch_kernel(third, x, z, COUNT);
    assert_int_equal(berth_copy(device, other, z, BYTES, BERTH_COPY_DEVICE_TO_HOST, third, true), BERTH_OK);
    check(other, 5, 1);
    assert_int_equal(berth_event_query(event), BERTH_NOT_READY);
    assert_int_equal(berth_stream_query(second), BERTH_NOT_READY);
    const VkSemaphoreSignalInfo signal = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_SIGNAL_INFO, .semaphore = semaphore, .value = 7};
    assert_int_equal(call.vkSignalSemaphore(vk.device, &signal), VK_SUCCESS);
    assert_int_equal(berth_stream_synchronize(second), BERTH_OK);
    check(back, 5, 1);
    assert_int_equal(berth_vulkan_wait(third, semaphore, 3), BERTH_OK); /* reached long ago */
    assert_int_equal(berth_stream_synchronize(third), BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(first);
    berth_stream_destroy(second);
    berth_stream_destroy(third);
    call.vkDestroySemaphore(vk.device, semaphore, NULL);
    give(BERTH_MEMORY_DEVICE, x);
    give(BERTH_MEMORY_DEVICE, y);
    give(BERTH_MEMORY_DEVICE, z);
}

/* A pool's block that a kernel reads is given back on the stream before the kernel runs, while another stream takes and
 * overwrites what it can get. */
static void what_a_kernel_holds_is_not_reused(void **state)
{
    (void)state;
    enum { OTHERS = 20 };
    static uint32_t there[COUNT], back[COUNT];
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_request on = BERTH_REQUEST_INIT, on_other = BERTH_REQUEST_INIT;
    berth_allocator *pool = NULL;
    berth_stream *stream = new_stream(), *other = new_stream();
    void *x = NULL, *others[OTHERS], *y = take(BERTH_MEMORY_PINNED);
    gate g = GATE_INIT;
    options.device = device;
    on.stream = stream;
    on_other.stream = other;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    assert_int_equal(berth_allocate(pool, BYTES, 256, &on, &x), BERTH_OK);
    fill(there, 7);
    assert_int_equal(berth_copy(device, x, there, BYTES, BERTH_COPY_HOST_TO_DEVICE, NULL, false), BERTH_OK);
    assert_int_equal(berth_stream_call(stream, gate_stop, &g), BERTH_OK);
    launch_kernel(stream, x, y, COUNT);
    assert_int_equal(berth_deallocate(pool, x, BYTES, stream), BERTH_OK);
    gate_wait_reached(&g);
    for (int i = 0; i < OTHERS; i++) {
        assert_int_equal(berth_allocate(pool, BYTES, 256, &on_other, &others[i]), BERTH_OK);
        assert_int_equal(berth_zero(device, others[i], BYTES, other, false), BERTH_OK);
    }
    assert_int_equal(berth_stream_synchronize(other), BERTH_OK);
    gate_open(&g);
    assert_int_equal(berth_copy(device, back, y, BYTES, BERTH_COPY_INFER, stream, true), BERTH_OK);
    check(back, 7, 1);
    check(y, 7, 1); /* pinned memory is the host's to read */
    for (int i = 0; i < OTHERS; i++)
        assert_int_equal(berth_deallocate(pool, others[i], BYTES, other), BERTH_OK);
    berth_stream_destroy(stream);
    berth_stream_destroy(other);
    berth_allocator_release(pool);
    give(BERTH_MEMORY_PINNED, y);
}

/* A submission of the program's own that waits for a stream. */
static void programs_wait_for_streams(void **state)
{
    (void)state;
    static uint32_t there[COUNT], back[COUNT];
    berth_stream *stream = new_stream(), *after = new_stream();
    void *x = take(BERTH_MEMORY_DEVICE), *y = take(BERTH_MEMORY_PINNED);
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    VkSemaphore semaphore, done;
    uint64_t value = 0, one = 1;
    assert_int_equal(call.vkCreateSemaphore(vk.device, &info, NULL, &done), VK_SUCCESS);
    fill(there, 23);
    assert_int_equal(berth_copy(device, x, there, BYTES, BERTH_COPY_HOST_TO_DEVICE, stream, false), BERTH_OK);
    assert_int_equal(berth_vulkan_point(stream, &semaphore, &value), BERTH_OK);
    assert_ptr_equal(berth_stream_native(stream), (void *)semaphore);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK); /* else it would hold the queue up */
    VkCommandBuffer commands = record_kernel(x, y, COUNT);
    const VkPipelineStageFlags stage = VK_PIPELINE_STAGE_ALL_COMMANDS_BIT;
    const VkTimelineSemaphoreSubmitInfo timeline = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                                    .waitSemaphoreValueCount = 1,
                                                    .pWaitSemaphoreValues = &value,
                                                    .signalSemaphoreValueCount = 1,
                                                    .pSignalSemaphoreValues = &one};
    const VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                 .pNext = &timeline,
                                 .waitSemaphoreCount = 1,
                                 .pWaitSemaphores = &semaphore,
                                 .pWaitDstStageMask = &stage,
                                 .commandBufferCount = 1,
                                 .pCommandBuffers = &commands,
                                 .signalSemaphoreCount = 1,
                                 .pSignalSemaphores = &done};
    assert_int_equal(call.vkQueueSubmit(vk.queue, 1, &submit, VK_NULL_HANDLE),
                     VK_SUCCESS); /* nobody else does */
    assert_int_equal(berth_vulkan_wait(after, done, 1), BERTH_OK);
    assert_int_equal(berth_copy(device, back, y, BYTES, BERTH_COPY_INFER, after, true), BERTH_OK);
    check(back, 23, 1);
    berth_stream_destroy(stream);
    berth_stream_destroy(after);
    call.vkDestroySemaphore(vk.device, done, NULL);
    give(BERTH_MEMORY_DEVICE, x);
    give(BERTH_MEMORY_PINNED, y);
}

static void addresses_have_places(void **state)
{
    (void)state;
    char *p = take(BERTH_MEMORY_DEVICE);
    berth_vulkan_place at = BERTH_VULKAN_PLACE_INIT, within = BERTH_VULKAN_PLACE_INIT;
    berth_device_place same = BERTH_DEVICE_PLACE_INIT;
    assert_int_equal(berth_vulkan_locate(device, p, &at), BERTH_OK);
    assert_int_equal(berth_vulkan_locate(device, p + 300, &within), BERTH_OK);
    assert_int_equal(berth_device_locate(device, p + 300, &same), BERTH_OK);
    assert_true(at.buffer == within.buffer && at.memory == within.memory && at.buffer && at.memory);
    assert_int_equal(within.offset_bytes, at.offset_bytes + 300);
    assert_true(same.handle == (uint64_t)(uintptr_t)at.buffer && same.offset_bytes == within.offset_bytes);
    assert_true(at.size_bytes >= BYTES);
    if (!is_adopted) /* there it was not switched on */
        assert_true(at.address != 0 && within.address == at.address + 300);
    assert_int_equal(berth_vulkan_locate(device, &at, &within), BERTH_NOT_FOUND);
    assert_int_equal(berth_vulkan_locate(berth_device_cpu(), p, &within), BERTH_NOT_FOUND);
    assert_int_equal(berth_vulkan_locate((berth_device){device.kind, 99}, p, &within), BERTH_NOT_FOUND);
    assert_int_equal(berth_vulkan_locate(device, p, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_copy(device, p + 8, p, BYTES, BERTH_COPY_INFER, NULL, false),
                     BERTH_INVALID_ARGUMENT);
    assert_non_null(strstr(berth_last_error()->message, "past the end"));
    assert_int_equal(berth_copy(device, &at, &within, 8, BERTH_COPY_DEVICE_TO_DEVICE, NULL, false),
                     BERTH_INVALID_ARGUMENT);
    give(BERTH_MEMORY_DEVICE, p);
}

/* However small the alignment that was asked for, kernels can bind a pool's blocks. */
static void blocks_of_a_pool_can_be_bound(void **state)
{
    (void)state;
    enum { BLOCKS = 40 };
    void *blocks[BLOCKS];
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_device_info about = BERTH_DEVICE_INFO_INIT;
    berth_allocator *pool = NULL;
    assert_int_equal(berth_device_describe(device, &about), BERTH_OK);
    assert_true(about.offset_alignment >= 1);
    options.device = device;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    for (size_t i = 0; i < BLOCKS; i++) {
        berth_vulkan_place place = {.struct_size = sizeof place};
        assert_int_equal(berth_allocate(pool, 3 + 7 * i, 1, NULL, &blocks[i]), BERTH_OK);
        assert_int_equal(berth_vulkan_locate(device, blocks[i], &place), BERTH_OK);
        assert_int_equal(place.offset_bytes % about.offset_alignment, 0);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        assert_int_equal(berth_deallocate(pool, blocks[i], 3 + 7 * i, NULL), BERTH_OK);
    berth_allocator_release(pool);
}

/* The program's memory, at an odd address, is read by the queue itself. */
static void memory_of_the_host_is_imported(void **state)
{
    (void)state;
    static uint32_t memory[2 * COUNT];
    uint32_t *there = memory + 5, *back = malloc(BYTES);
    berth_vulkan_place place = {.struct_size = sizeof place};
    berth_status status = berth_device_register_host(device, there, BYTES);
    if (status == BERTH_UNSUPPORTED) {
        free(back);
        if (is_adopted || getenv("BERTH_VK_SHIM")) /* where it was not switched on, or is hidden */
            return;
        fail_msg("%s", berth_last_error()->message);
    }
    assert_int_equal(status, BERTH_OK);
    assert_int_equal(berth_device_register_host(device, there + 5, 100), BERTH_ALREADY_EXISTS);
    assert_int_equal(berth_device_register_host(device, there - 2, 100), BERTH_ALREADY_EXISTS);
    assert_int_equal(berth_vulkan_locate(device, there, &place), BERTH_OK);
    berth_stream *stream = new_stream();
    void *x = take(BERTH_MEMORY_DEVICE), *y = take(BERTH_MEMORY_DEVICE);
    fill(there, 40);
    assert_int_equal(berth_copy(device, x, there, BYTES, BERTH_COPY_HOST_TO_DEVICE, stream, false), BERTH_OK);
    launch_kernel(stream, x, y, COUNT);
    assert_int_equal(berth_copy(device, there, y, BYTES, BERTH_COPY_DEVICE_TO_HOST, stream, true), BERTH_OK);
    check(there, 40, 1);
    assert_int_equal(berth_device_unregister_host(device, there + 1), BERTH_NOT_FOUND);
    assert_int_equal(berth_device_unregister_host(device, there), BERTH_OK);
    assert_int_equal(berth_vulkan_locate(device, there, &place), BERTH_NOT_FOUND);
    berth_stream_destroy(stream);
    give(BERTH_MEMORY_DEVICE, x);
    give(BERTH_MEMORY_DEVICE, y);
    free(back);
}

struct wrongly {
    void *p;
    _Atomic bool over;
};

static void *release_wrongly(void *context)
{
    struct wrongly *shared = context;
    intptr_t wrong = 0;
    while (!atomic_load(&shared->over))
        wrong +=
            berth_device_release(device, BERTH_MEMORY_DEVICE, shared->p, BYTES / 2, NULL) != BERTH_BAD_FREE;
    return (void *)wrong;
}

/* Not even for a moment: what another thread frees with a wrong size stays findable. */
static void a_wrong_release_takes_nothing_out(void **state)
{
    (void)state;
    struct wrongly shared = {.p = take(BERTH_MEMORY_DEVICE)};
    berth_vulkan_place place = {.struct_size = sizeof place};
    pthread_t thread;
    void *wrong = NULL;
    assert_int_equal(pthread_create(&thread, NULL, release_wrongly, &shared), 0);
    int lost = 0;
    for (int i = 0; i < 200000; i++)
        lost += berth_vulkan_locate(device, shared.p, &place) != BERTH_OK;
    atomic_store(&shared.over, true);
    assert_int_equal(pthread_join(thread, &wrong), 0);
    assert_null(wrong);
    assert_int_equal(lost, 0);
    give(BERTH_MEMORY_DEVICE, shared.p);
}

/* ---- Devices that come and go on two threads ---------------------------------------------------------------- */

static PFN_vkGetInstanceProcAddr real_find;
static pthread_barrier_t together;

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL find_first(VkInstance instance, const char *name)
{
    return real_find(instance, name);
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL find_second(VkInstance instance, const char *name)
{
    return real_find(instance, name);
}

/* Adopts the program's device again and again; `context` tells the adoptions of the threads apart. */
static void *adopt_and_release(void *context)
{
    berth_vulkan_adoption adoption = {.struct_size = sizeof adoption,
                                      .get_instance_proc_addr = context ? find_first : find_second,
                                      .instance = vk.instance,
                                      .physical_device = vk.physical_device,
                                      .device = vk.device,
                                      .queue = vk.queue,
                                      .queue_family = vk.queue_family};
    intptr_t wrong = 0;
    pthread_barrier_wait(&together);
    for (int i = 0; i < 100; i++) {
        berth_vulkan_handles handles = {.struct_size = sizeof handles};
        berth_device made;
        bool right = berth_vulkan_adopt(&adoption, &made) == BERTH_OK &&
                     berth_vulkan_handles_get(made, &handles) == BERTH_OK &&
                     handles.get_instance_proc_addr == adoption.get_instance_proc_addr &&
                     berth_vulkan_release(made) == BERTH_OK &&
                     berth_vulkan_handles_get(made, &handles) == BERTH_NOT_FOUND;
        wrong += !right;
    }
    return (void *)wrong;
}

static void devices_are_adopted_on_two_threads(void **state)
{
    (void)state;
    pthread_t threads[2];
    real_find = vk.get_instance_proc_addr;
    if (!is_adopted)
        return;
    assert_int_equal(pthread_barrier_init(&together, NULL, 2), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, adopt_and_release, i ? &real_find : NULL), 0);
    for (int i = 0; i < 2; i++) {
        void *wrong = NULL;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    pthread_barrier_destroy(&together);
}

static void bad_input_is_refused(void **state)
{
    (void)state;
    berth_stream *cpu = NULL, *stream = new_stream();
    berth_vulkan_adoption adoption = BERTH_VULKAN_ADOPTION_INIT;
    berth_vulkan_handles handles = {.struct_size = 3};
    berth_device made = {9, 9};
    VkSemaphore semaphore;
    uint64_t value;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &cpu), BERTH_OK);
    assert_int_equal(berth_vulkan_submit(cpu, VK_NULL_HANDLE), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_vulkan_submit(NULL, VK_NULL_HANDLE), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_vulkan_submit(stream, VK_NULL_HANDLE), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_vulkan_wait(stream, VK_NULL_HANDLE, 1), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_vulkan_point(cpu, &semaphore, &value), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_vulkan_point(stream, NULL, &value), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_vulkan_adopt(NULL, &made), BERTH_INVALID_ARGUMENT);
    assert_int_equal(made.kind, BERTH_DEVICE_UNKNOWN);
    assert_int_equal(berth_vulkan_adopt(&adoption, &made), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_vulkan_adopt(&adoption, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_vulkan_register(NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_vulkan_handles_get(device, &handles), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_vulkan_release(berth_device_cpu()), BERTH_NOT_FOUND);
    if (is_adopted) {
        assert_int_equal(berth_vulkan_release(device), BERTH_BUSY); /* a stream lives */
        assert_string_equal(berth_device_kind_name((berth_device_kind)device.kind), "vulkan-1");
    }
    berth_stream_destroy(cpu);
    berth_stream_destroy(stream);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_of_the_program_keep_their_place),
        cmocka_unit_test(waiting_holds_nobody_else_up),
        cmocka_unit_test(what_a_kernel_holds_is_not_reused),
        cmocka_unit_test(programs_wait_for_streams),
        cmocka_unit_test(addresses_have_places),
        cmocka_unit_test(blocks_of_a_pool_can_be_bound),
        cmocka_unit_test(memory_of_the_host_is_imported),
        cmocka_unit_test(a_wrong_release_takes_nothing_out),
        cmocka_unit_test(devices_are_adopted_on_two_threads),
        cmocka_unit_test(bad_input_is_refused),
    };
    is_adopted = argc > 1 && strcmp(argv[1], "adopted") == 0;
    int absent = look_for_vulkan();
    return absent ? absent : cmocka_run_group_tests(tests, set_up_kernel, tear_down_kernel);
}
