/* Rows of device.h, device_ops.h, virtual.h and opencl.h. */
#include <string.h>

#include "api.h"

ROW(berth_device_cpu)
{
    api_check(berth_device_cpu().kind == BERTH_DEVICE_CPU, "the CPU is a CPU");
}

ROW(berth_device_kind_name)
{
    api_check(berth_device_kind_name((berth_device_kind)api_enum()) != NULL, "every number has a name");
}

ROW(berth_device_count)
{
    static const int32_t kinds[] = {0, 1, 5, 6, -1, INT32_MAX, INT32_MIN};
    int32_t count;
    api_answer(berth_device_count((berth_device_kind)PICK(kinds), api_bool() ? &count : NULL));
}

ROW(berth_device_describe)
{
    berth_device_info info = {.struct_size = api_struct_size(sizeof info)};
    api_answer(berth_device_describe(api_device(), api_bool() ? &info : NULL));
}

ROW(berth_device_native)
{
    GIVES(berth_device_native(api_device(), OUT(any)), (void)0);
}

ROW(berth_device_allocate)
{
    berth_device device = api_device();
    berth_memory_kind kind = (berth_memory_kind)api_enum();
    size_t size = api_size();
    GIVES(berth_device_allocate(device, kind, size, api_alignment(), api_stream(), OUT(block)),
          api_answer(berth_device_release(device, kind, api_out.block, size, NULL)));
}

ROW(berth_device_release)
{
    /* Only no block at all: whether another pointer is one, the caller knows and not the device. */
    api_answer(
        berth_device_release(api_device(), (berth_memory_kind)api_enum(), NULL, api_size(), api_stream()));
}

/* Bytes there are at `p`, or for a pointer that can be refused, any number. */
static size_t bytes_at(const void *p, const void *q)
{
    return p && q ? api_pick(64) : api_size();
}

static void settle(berth_stream *stream)
{
    if (stream)
        berth_stream_synchronize(stream);
}

ROW(berth_copy)
{
    char *to = api_bool() ? api_memory : NULL, *from = api_bool() ? api_memory + 65 : NULL;
    berth_stream *stream = api_stream();
    size_t size = to && from ? 31 : api_size();
    api_answer(berth_copy(api_device(), to, from, size, (berth_copy_kind)api_enum(), stream, api_bool()));
    settle(stream);
}

ROW(berth_zero)
{
    char *to = api_bool() ? api_memory + 1 : NULL;
    berth_stream *stream = api_stream();
    api_answer(berth_zero(api_device(), to, bytes_at(to, to), stream, api_bool()));
    settle(stream);
}

ROW(berth_copy_between)
{
    char *to = api_bool() ? api_memory : NULL, *from = api_bool() ? api_memory + 65 : NULL;
    berth_stream *stream = api_stream();
    size_t size = to && from ? 31 : api_size();
    api_answer(berth_copy_between(api_device(), to, api_device(), from, size, stream, api_bool()));
    settle(stream);
}

ROW(berth_device_memory)
{
    uint64_t free_bytes, total_bytes;
    api_answer(
        berth_device_memory(api_device(), api_bool() ? &free_bytes : NULL, api_bool() ? &total_bytes : NULL));
}

ROW(berth_device_register_host)
{
    berth_device device = api_device();
    void *p = api_pointer(NULL);
    if (berth_device_register_host(device, p, api_size()) == BERTH_OK)
        berth_device_unregister_host(device, p);
}

ROW(berth_device_unregister_host)
{
    api_answer(berth_device_unregister_host(api_device(), api_pointer(NULL)));
}

ROW(berth_device_prefetch)
{
    berth_stream *stream = api_stream();
    api_answer(berth_device_prefetch(api_device(), api_pointer(NULL), api_size(), api_bool(), stream));
    settle(stream);
}

ROW(berth_device_advise)
{
    api_answer(berth_device_advise(api_device(), api_pointer(NULL), api_size(), (berth_advice)api_enum()));
}

static berth_shared_handle shared;

ROW(berth_device_share)
{
    api_answer(berth_device_share(api_device(), api_pointer(NULL), api_bool() ? &shared : NULL));
}

ROW(berth_device_open_shared)
{
    memset(&shared, api_bool() ? 0xff : 0, sizeof shared);
    berth_device device = api_device();
    GIVES(berth_device_open_shared(device, api_bool() ? &shared : NULL, OUT(block)),
          api_answer(berth_device_close_shared(device, api_out.block)));
}

ROW(berth_device_close_shared)
{
    api_answer(berth_device_close_shared(api_device(), api_pointer(NULL)));
}

/* ---- Streams and events ------------------------------------------------------------------------------ */

ROW(berth_stream_create)
{
    GIVES(berth_stream_create(api_device(), OUT(stream)), berth_stream_destroy(api_out.stream));
}

ROW(berth_stream_wrap)
{
    GIVES(berth_stream_wrap(api_device(), NULL, OUT(stream)), berth_stream_destroy(api_out.stream));
}

ROW(berth_stream_native)
{
    (void)berth_stream_native(api_stream());
}

ROW(berth_stream_device)
{
    (void)berth_stream_device(api_stream());
}

ROW(berth_stream_id)
{
    (void)berth_stream_id(api_stream());
}

ROW(berth_stream_destroy)
{
    berth_stream_destroy(NULL);
}

ROW(berth_stream_query)
{
    api_answer(berth_stream_query(api_stream()));
}

ROW(berth_stream_synchronize)
{
    api_answer(berth_stream_synchronize(api_stream()));
}

ROW(berth_stream_wait_event)
{
    api_answer(berth_stream_wait_event(api_stream(), api_event()));
}

static void do_nothing(void *context)
{
    (void)context;
}

ROW(berth_stream_call)
{
    berth_stream *stream = api_stream();
    api_answer(berth_stream_call(stream, api_bool() ? do_nothing : NULL, NULL));
    settle(stream);
}

ROW(berth_event_create)
{
    GIVES(berth_event_create(api_device(), OUT(event)), berth_event_destroy(api_out.event));
}

ROW(berth_event_record)
{
    berth_stream *stream = api_stream();
    api_answer(berth_event_record(api_event(), stream));
    settle(stream);
}

ROW(berth_event_query)
{
    api_answer(berth_event_query(api_event()));
}

ROW(berth_event_wait)
{
    api_answer(berth_event_wait(api_event()));
}

ROW(berth_event_destroy)
{
    berth_event_destroy(NULL);
}

/* ---- The virtual device ------------------------------------------------------------------------------ */

ROW(berth_virtual_create)
{
    berth_device device;
    bool place = api_bool();
    berth_status status = berth_virtual_create(place ? &device : NULL);
    api_answer(status);
    if (place && status == BERTH_OK)
        api_answer(berth_virtual_destroy(device));
}

ROW(berth_virtual_destroy)
{
    berth_device device = api_device();
    if (!berth_device_equal(device, api_virtual))
        api_answer(berth_virtual_destroy(device));
}

ROW(berth_virtual_reset)
{
    api_answer(berth_virtual_reset(api_device()));
}

ROW(berth_virtual_step)
{
    api_answer(berth_virtual_step(api_stream()));
}

ROW(berth_virtual_run)
{
    api_answer(berth_virtual_run(api_stream()));
}

ROW(berth_virtual_run_all)
{
    api_answer(berth_virtual_run_all(api_device()));
}

ROW(berth_virtual_pending)
{
    (void)berth_virtual_pending(api_stream());
}

ROW(berth_virtual_set_waits_run)
{
    api_answer(berth_virtual_set_waits_run(api_device(), api_bool()));
}

ROW(berth_virtual_set_late)
{
    api_answer(berth_virtual_set_late(api_stream(), api_bool()));
}

ROW(berth_virtual_deliver)
{
    api_answer(berth_virtual_deliver(api_stream()));
}

ROW(berth_virtual_lose_events)
{
    api_answer(berth_virtual_lose_events(api_stream(), api_size()));
}

ROW(berth_virtual_fail)
{
    api_answer(berth_virtual_fail(api_device(), (berth_virtual_call)api_enum(), api_size(),
                                  (berth_status)api_enum(), api_bool()));
    berth_virtual_reset(api_virtual);
}

ROW(berth_virtual_calls)
{
    (void)berth_virtual_calls(api_device(), (berth_virtual_call)api_enum());
}

ROW(berth_virtual_set_memory_limit)
{
    api_answer(berth_virtual_set_memory_limit(api_device(), api_size()));
}

ROW(berth_virtual_bytes_in_use)
{
    (void)berth_virtual_bytes_in_use(api_device());
}

ROW(berth_virtual_save)
{
    GIVES(berth_virtual_save(api_device(), OUT(state)), berth_virtual_state_destroy(api_out.state));
}

ROW(berth_virtual_restore)
{
    berth_virtual_state *state = NULL;
    if (api_bool())
        api_answer(berth_virtual_save(api_virtual, &state));
    api_answer(berth_virtual_restore(api_device(), state));
    berth_virtual_state_destroy(state);
}

ROW(berth_virtual_state_destroy)
{
    berth_virtual_state_destroy(NULL);
}

/* ---- OpenCL ------------------------------------------------------------------------------------------ */

ROW(berth_opencl_adopt)
{
    berth_device devices[2];
    static const int32_t rooms[] = {0, 2, -1, INT32_MIN};
    int32_t count;
    api_answer(
        berth_opencl_adopt(NULL, api_bool() ? devices : NULL, PICK(rooms), api_bool() ? &count : NULL));
}

ROW(berth_opencl_release)
{
    api_answer(berth_opencl_release(NULL)); /* any other pointer must be a context */
}

ROW(berth_opencl_device_find)
{
    berth_device device;
    api_answer(berth_opencl_device_find(api_pointer(NULL), api_bool() ? &device : NULL));
}

ROW(berth_opencl_device_id)
{
    GIVES(berth_opencl_device_id(api_device(), OUT(any)), (void)0);
}

ROW(berth_opencl_memory)
{
    berth_opencl_memory_model model;
    api_answer(berth_opencl_memory(api_device(), api_bool() ? &model : NULL));
}

ROW(berth_opencl_buffer)
{
    static const size_t sizes[] = {0, 1, 64, SIZE_MAX};
    GIVES(berth_opencl_buffer(api_device(), api_pointer(NULL), PICK(sizes), OUT(any)), (void)0);
}

/* ---- device_ops.h ---------------------------------------------------------------------------------- */

/* Good enough to be registered; nothing calls it. */
static berth_status ops_count(void *self, int32_t *count)
{
    (void)self;
    *count = 0;
    return BERTH_OK;
}
static berth_status ops_describe(void *self, berth_device device, berth_device_info *info)
{
    (void)self, (void)device, (void)info;
    return BERTH_UNSUPPORTED;
}
static berth_status ops_allocate(void *self, berth_device device, berth_memory_kind kind, size_t size_bytes,
                                 size_t alignment, berth_stream *stream, void **out)
{
    (void)self, (void)device, (void)kind, (void)size_bytes, (void)alignment, (void)stream, (void)out;
    return BERTH_UNSUPPORTED;
}
static berth_status ops_release(void *self, berth_device device, berth_memory_kind kind, void *p,
                                size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)device, (void)kind, (void)p, (void)size_bytes, (void)stream;
    return BERTH_UNSUPPORTED;
}
static berth_status ops_copy(void *self, berth_device device, void *dst, const void *src, size_t size_bytes,
                             berth_copy_kind kind, berth_stream *stream)
{
    (void)self, (void)device, (void)dst, (void)src, (void)size_bytes, (void)kind, (void)stream;
    return BERTH_UNSUPPORTED;
}
static berth_status ops_zero(void *self, berth_device device, void *dst, size_t size_bytes,
                             berth_stream *stream)
{
    (void)self, (void)device, (void)dst, (void)size_bytes, (void)stream;
    return BERTH_UNSUPPORTED;
}

ROW(berth_device_register)
{
    static const char *const names[] = {"row", NULL, "", "cpu", "A b"};
    berth_device_ops ops = {.struct_size = api_struct_size(sizeof ops),
                            .name = PICK(names),
                            .memory_kinds = api_bool() ? 1 : 0,
                            .abilities = api_bool() ? UINT64_MAX : 0,
                            .count = ops_count,
                            .describe = ops_describe,
                            .allocate = api_bool() ? ops_allocate : NULL,
                            .release = ops_release,
                            .copy = ops_copy,
                            .zero = ops_zero};
    berth_device_kind kind = BERTH_DEVICE_UNKNOWN;
    if (ops.struct_size > sizeof ops) /* it says that there is more: there must be */
        ops.struct_size = sizeof ops;
    api_answer(berth_device_register(api_bool() ? &ops : NULL, NULL, api_bool() ? &kind : NULL));
    if (kind != BERTH_DEVICE_UNKNOWN)
        api_answer(berth_device_unregister(kind));
}

ROW(berth_device_unregister)
{
    api_answer(berth_device_unregister((berth_device_kind)api_enum()));
}

ROW(berth_device_kind_find)
{
    static const char *const names[] = {NULL, "", "cpu", "nobody"};
    const char *name = PICK(names);
    bool is_cpu = name && strcmp(name, "cpu") == 0;
    api_check((berth_device_kind_find(name) == BERTH_DEVICE_CPU) == is_cpu, "the name finds its kind");
}

ROW(berth_device_kind_next)
{
    api_check((int32_t)berth_device_kind_next((berth_device_kind)api_enum()) >= 0, "a kind or none");
}

ROW(berth_device_locate)
{
    berth_device_place place = {.struct_size = api_struct_size(sizeof place)};
    api_answer(berth_device_locate(api_device(), api_bool() ? api_memory : NULL, api_bool() ? &place : NULL));
}

static void row_note(void *context)
{
    *(bool *)context = true;
}

ROW(berth_stream_run)
{
    bool ran = false, given = api_bool();
    berth_stream_run(api_stream(), given ? row_note : NULL, &ran);
    api_check(ran == given, "a function runs once, none does not");
}

ROW(berth_addresses_reserve)
{
    size_t size = api_size();
    GIVES(berth_addresses_reserve(size, api_alignment(), OUT(any)),
          berth_addresses_release(api_out.any, size));
}

ROW(berth_addresses_release)
{
    berth_addresses_release(NULL, api_size());
}
