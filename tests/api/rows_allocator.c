/* Rows of allocator.h, buffer.h, tracking.h, source.h and status.h. */
#include <limits.h>

#include "api.h"

static berth_status plain_allocate(void *self, size_t size_bytes, size_t alignment,
                                   const berth_request *request, void **out)
{
    (void)self, (void)size_bytes, (void)alignment, (void)request;
    *out = NULL;
    return BERTH_OUT_OF_HOST_MEMORY;
}

static berth_status plain_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)p, (void)size_bytes, (void)stream;
    return BERTH_BAD_FREE;
}

static void plain_destroy(void *self)
{
    (void)self;
}

static const berth_allocator_ops *pick_ops(void)
{
    static berth_allocator_ops ops;
    if (api_pick(2))
        return NULL;
    ops = (berth_allocator_ops){.struct_size = api_struct_size(sizeof ops)};
    ops.allocate = api_bool() ? plain_allocate : NULL;
    ops.deallocate = api_bool() ? plain_deallocate : NULL;
    ops.destroy = api_bool() ? plain_destroy : NULL;
    return &ops;
}

ROW(berth_allocator_create)
{
    const berth_allocator_ops *ops = pick_ops();
    GIVES(berth_allocator_create(ops, NULL, OUT(allocator)), berth_allocator_release(api_out.allocator));
}

ROW(berth_wrapper_create)
{
    const berth_allocator_ops *ops = pick_ops();
    GIVES(berth_wrapper_create(api_allocator(), ops, NULL, OUT(allocator)),
          berth_allocator_release(api_out.allocator));
}

ROW(berth_allocator_retain)
{
    berth_allocator *a = api_allocator();
    api_check(berth_allocator_retain(a) == a, "retain answers its argument");
    berth_allocator_release(a);
}

ROW(berth_allocator_release)
{
    berth_allocator_release(NULL);
}

ROW(berth_allocate)
{
    berth_allocator *a = api_allocator();
    size_t size = api_size(), alignment = api_alignment();
    GIVES(berth_allocate(a, size, alignment, api_request(), OUT(block)),
          api_answer(berth_deallocate(a, api_out.block, size, NULL)));
}

ROW(berth_deallocate)
{
    berth_allocator *a = api_allocator();
    void *p = api_pointer(a);
    berth_status status = berth_deallocate(a, p, api_size(), api_stream());
    api_answer(status);
    api_check(status != BERTH_OK || !p, "a pointer that is no block was freed");
}

ROW(berth_reallocate)
{
    berth_allocator *a = api_allocator();
    void *p = api_pointer(a);
    size_t new_bytes = api_size();
    GIVES(berth_reallocate(a, p, api_size(), new_bytes, api_alignment(), api_bool() ? api_request() : NULL,
                           OUT(block)),
          api_answer(berth_deallocate(a, api_out.block, new_bytes, NULL)));
}

ROW(berth_record_use)
{
    berth_allocator *a = api_allocator();
    api_answer(berth_record_use(a, api_pointer(a), api_stream()));
}

ROW(berth_allocator_name)
{
    api_check(berth_allocator_name(api_allocator()) != NULL, "everything has a name");
}

ROW(berth_allocator_device)
{
    (void)berth_allocator_device(api_allocator());
}

ROW(berth_allocator_memory_kind)
{
    (void)berth_allocator_memory_kind(api_allocator());
}

ROW(berth_allocator_owns)
{
    berth_allocator *a = api_allocator();
    api_answer(berth_allocator_owns(a, api_pointer(a)));
}

ROW(berth_allocator_tracks_sizes)
{
    (void)berth_allocator_tracks_sizes(api_allocator());
}

ROW(berth_allocator_allocates_empty)
{
    (void)berth_allocator_allocates_empty(api_allocator());
}

ROW(berth_allocator_granularity)
{
    (void)berth_allocator_granularity(api_allocator());
}

static size_t *pick_size_out(void)
{
    static size_t size;
    return api_bool() ? &size : NULL;
}

ROW(berth_requested_size)
{
    berth_allocator *a = api_allocator();
    api_answer(berth_requested_size(a, api_pointer(a), pick_size_out()));
}

ROW(berth_allocated_size)
{
    berth_allocator *a = api_allocator();
    api_answer(berth_allocated_size(a, api_pointer(a), pick_size_out()));
}

ROW(berth_allocated_size_slow)
{
    berth_allocator *a = api_allocator();
    api_answer(berth_allocated_size_slow(a, api_pointer(a), pick_size_out()));
}

ROW(berth_allocation_id)
{
    berth_allocator *a = api_allocator();
    uint64_t id;
    api_answer(berth_allocation_id(a, api_pointer(a), api_bool() ? &id : NULL));
}

ROW(berth_stats_get)
{
    berth_stats stats = {.struct_size = api_struct_size(sizeof stats)};
    api_answer(berth_stats_get(api_allocator(), api_bool() ? &stats : NULL));
}

ROW(berth_stats_clear)
{
    api_answer(berth_stats_clear(api_allocator()));
}

ROW(berth_trim)
{
    api_answer(berth_trim(api_allocator(), api_size(), pick_size_out()));
}

static bool see_block(void *context, const berth_block *block)
{
    (void)context;
    return block->address == NULL;
}

ROW(berth_snapshot)
{
    api_answer(berth_snapshot(api_allocator(), api_bool() ? see_block : NULL, NULL));
}

/* ---- Typed helpers ----------------------------------------------------------------------------------- */

static berth_status refuse_element(void *element, void *context)
{
    (void)element, (void)context;
    return BERTH_UNSUPPORTED;
}

static void end_element(void *element, void *context)
{
    (void)element, (void)context;
}

static const berth_type *pick_type(void)
{
    static berth_type type;
    if (api_pick(2))
        return NULL;
    size_t alignments[] = {0, 3, 64, SIZE_MAX};
    type = (berth_type){.struct_size = api_struct_size(sizeof type), .size_bytes = api_size()};
    type.alignment = PICK(alignments);
    type.init = api_bool() ? refuse_element : NULL;
    type.fini = api_bool() ? end_element : NULL;
    return &type;
}

ROW(berth_allocate_array)
{
    const berth_type *type = pick_type();
    berth_allocator *a = api_bool() ? api_system : NULL;
    size_t count = api_size();
    GIVES(berth_allocate_array(a, type, count, NULL, OUT(block)),
          api_answer(berth_deallocate_array(a, type, api_out.block, count, NULL)));
}

ROW(berth_deallocate_array)
{
    const berth_type *type = pick_type();
    /* An init or fini would be called on it, and a count that does not fit the block cannot be told. */
    void *p = type && type->fini ? NULL : api_pointer(api_system);
    api_answer(berth_deallocate_array(api_bool() ? api_system : NULL, type, p, api_size(), api_stream()));
}

ROW(berth_new)
{
    berth_allocator *a = api_allocator();
    size_t count = api_size(), each = api_size();
    void *p = berth_new(a, count, each);
    if (p)
        api_answer(berth_deallocate(a, p, count * each, NULL));
}

/* ---- Buffers ----------------------------------------------------------------------------------------- */

static berth_buffer *pick_buffer(void)
{
    berth_buffer *buffer = NULL;
    size_t choice = api_pick(5);
    if (choice == 1)
        berth_buffer_create(api_system, 64, 64, false, &buffer);
    else if (choice == 2)
        berth_buffer_create(api_system, (size_t)1 << 62, 64, true, &buffer);
    else if (choice == 3)
        berth_buffer_create(api_system, 0, 64, true, &buffer);
    else if (choice == 4)
        berth_buffer_view(api_memory, 64, berth_device_cpu(), &buffer);
    return buffer;
}

ROW(berth_buffer_create)
{
    GIVES(berth_buffer_create(api_allocator(), api_size(), api_alignment(), api_bool(), OUT(buffer)),
          berth_buffer_release(api_out.buffer));
}

ROW(berth_buffer_view)
{
    GIVES(berth_buffer_view(api_pointer(NULL), api_size(), api_device(), OUT(buffer)),
          berth_buffer_release(api_out.buffer));
}

static void forget(void *context, void *p, size_t size_bytes)
{
    (void)context, (void)p, (void)size_bytes;
}

ROW(berth_buffer_adopt)
{
    berth_buffer_deleter deleter = api_bool() ? forget : NULL;
    GIVES(berth_buffer_adopt(api_pointer(NULL), api_size(), api_device(), deleter, NULL, OUT(buffer)),
          berth_buffer_release(api_out.buffer));
}

ROW(berth_buffer_sub)
{
    berth_buffer *parent = pick_buffer();
    GIVES(berth_buffer_sub(parent, api_size(), api_size(), OUT(buffer)),
          berth_buffer_release(api_out.buffer));
    berth_buffer_release(parent);
}

ROW(berth_buffer_retain)
{
    berth_buffer *buffer = pick_buffer();
    api_check(berth_buffer_retain(buffer) == buffer, "retain answers its argument");
    berth_buffer_release(buffer);
    berth_buffer_release(buffer);
}

ROW(berth_buffer_release)
{
    berth_buffer_release(pick_buffer());
}

ROW(berth_buffer_allocate)
{
    berth_buffer *buffer = pick_buffer();
    api_answer(berth_buffer_allocate(buffer));
    api_answer(berth_buffer_allocate(buffer));
    berth_buffer_release(buffer);
}

ROW(berth_buffer_data)
{
    berth_buffer *buffer = pick_buffer();
    (void)berth_buffer_data(buffer);
    berth_buffer_release(buffer);
}

ROW(berth_buffer_size)
{
    berth_buffer *buffer = pick_buffer();
    api_check(buffer || berth_buffer_size(buffer) == 0, "no buffer has no bytes");
    (void)berth_buffer_size(buffer);
    berth_buffer_release(buffer);
}

ROW(berth_buffer_device)
{
    berth_buffer *buffer = pick_buffer();
    (void)berth_buffer_device(buffer);
    berth_buffer_release(buffer);
}

ROW(berth_buffer_allocator)
{
    berth_buffer *buffer = pick_buffer();
    (void)berth_buffer_allocator(buffer);
    berth_buffer_release(buffer);
}

ROW(berth_buffer_copy)
{
    berth_buffer *to = pick_buffer(), *from = pick_buffer();
    berth_stream *stream = api_stream();
    api_answer(berth_buffer_copy(to, from, stream, api_bool()));
    if (stream)
        berth_stream_synchronize(stream);
    berth_buffer_release(to);
    berth_buffer_release(from);
}

ROW(berth_buffer_copy_range)
{
    static const unsigned flags[] = {0, BERTH_RANGE_WAIT | BERTH_RANGE_CLIP, UINT_MAX};
    static const size_t offsets[] = {0, 1, SIZE_MAX};
    berth_buffer *to = pick_buffer(), *from = pick_buffer();
    berth_stream *stream = api_stream();
    size_t to_offset = PICK(offsets), from_offset = PICK(offsets), size = api_size(), copied;
    api_answer(berth_buffer_copy_range(to, to_offset, from, from_offset, size, PICK(flags), stream,
                                       api_bool() ? &copied : NULL));
    if (stream)
        berth_stream_synchronize(stream);
    berth_buffer_release(to);
    berth_buffer_release(from);
}

ROW(berth_buffer_zero)
{
    berth_buffer *buffer = pick_buffer();
    berth_stream *stream = api_stream();
    api_answer(berth_buffer_zero(buffer, stream, api_bool()));
    if (stream)
        berth_stream_synchronize(stream);
    berth_buffer_release(buffer);
}

/* ---- Tracking ---------------------------------------------------------------------------------------- */

ROW(berth_tracking_create)
{
    static const uint32_t depths[] = {0, 32, 33, UINT32_MAX};
    berth_tracking_options options = {api_struct_size(sizeof options), api_bool(), api_bool(), PICK(depths)};
    GIVES(berth_tracking_create(api_allocator(), api_bool() ? &options : NULL, OUT(allocator)),
          berth_allocator_release(api_out.allocator));
}

ROW(berth_tracking_get_sizes)
{
    berth_tracking_sizes sizes = {.struct_size = api_struct_size(sizeof sizes)};
    api_answer(berth_tracking_get_sizes(api_allocator(), api_bool() ? &sizes : NULL));
}

ROW(berth_tracking_get_sizes_and_unref)
{
    berth_allocator *a = berth_allocator_retain(api_allocator());
    berth_tracking_sizes sizes = {.struct_size = api_struct_size(sizeof sizes)};
    berth_status status = berth_tracking_get_sizes_and_unref(a, api_bool() ? &sizes : NULL);
    api_answer(status);
    if (status != BERTH_OK)
        berth_allocator_release(a);
}

ROW(berth_tracking_measures)
{
    (void)berth_tracking_measures(api_allocator());
}

static bool see_leak(void *context, const berth_leak *leak)
{
    (void)context;
    return leak->address == NULL;
}

ROW(berth_tracking_visit_leaks)
{
    api_answer(berth_tracking_visit_leaks(api_allocator(), api_bool() ? see_leak : NULL, NULL));
}

ROW(berth_tracking_report_leaks)
{
    api_answer(berth_tracking_report_leaks(api_allocator(), pick_size_out()));
}

/* ---- Sources ----------------------------------------------------------------------------------------- */

ROW(berth_cpu_allocator)
{
    api_check(berth_cpu_allocator() != NULL, "there is always one for the host");
}

static double pick_fraction(void)
{
    static const double fractions[] = {0.1, 0.0, -1.0, 1e308, -__builtin_inf(), __builtin_nan("")};
    return PICK(fractions);
}

ROW(berth_cpu_allocator_create)
{
    berth_cpu_options options = {api_struct_size(sizeof options), (berth_stats_mode)api_enum(), api_bool(),
                                 pick_fraction(), pick_fraction()};
    GIVES(berth_cpu_allocator_create(api_bool() ? &options : NULL, OUT(allocator)),
          berth_allocator_release(api_out.allocator));
}

ROW(berth_cpu_allocator_set_stats)
{
    api_answer(berth_cpu_allocator_set_stats(api_allocator(), (berth_stats_mode)api_enum()));
}

ROW(berth_fixed_allocator_create)
{
    /* A region that is longer than said cannot be told, one that wraps around can. */
    static const size_t sizes[] = {0, 1, 63, 64, 191};
    bool wraps = api_bool();
    char *region = wraps ? (char *)(UINTPTR_MAX - 63) : api_bool() ? api_memory + api_pick(3) : NULL;
    GIVES(berth_fixed_allocator_create(region, wraps ? SIZE_MAX : PICK(sizes), OUT(allocator)),
          berth_allocator_release(api_out.allocator));
}

static void *no_malloc(size_t size_bytes)
{
    (void)size_bytes;
    return NULL;
}

static void no_free(void *p)
{
    (void)p;
}

ROW(berth_adapter_create)
{
    berth_malloc_family family = {.struct_size = api_struct_size(sizeof family)};
    family.name = api_bool() ? "none" : NULL;
    family.malloc = api_bool() ? no_malloc : NULL;
    family.free = api_bool() ? no_free : NULL;
    berth_status status;
    void *p;
    GIVES(berth_adapter_create(api_bool() ? &family : NULL, OUT(allocator)), {
        status = berth_allocate(api_out.allocator, api_size(), 64, NULL, &p);
        api_answer(status);
        berth_allocator_release(api_out.allocator);
    });
}

ROW(berth_dry_run_allocator_create)
{
    GIVES(berth_dry_run_allocator_create(api_size(), OUT(allocator)),
          berth_allocator_release(api_out.allocator));
}

ROW(berth_mapped_allocator_create)
{
    berth_mapped_options options = {api_struct_size(sizeof options), api_bool(), api_enum(), api_bool(),
                                    api_bool()};
    GIVES(berth_mapped_allocator_create(api_bool() ? &options : NULL, OUT(allocator)),
          berth_allocator_release(api_out.allocator));
}

ROW(berth_device_allocator_create)
{
    GIVES(berth_device_allocator_create(api_device(), (berth_memory_kind)api_enum(), OUT(allocator)),
          berth_allocator_release(api_out.allocator));
}

/* ---- Statuses and the log ---------------------------------------------------------------------------- */

ROW(berth_status_name)
{
    api_check(berth_status_name((berth_status)api_enum()) != NULL, "every number has a name");
}

ROW(berth_version)
{
    api_check(berth_version()[0] != 0, "every library has a version");
}

ROW(berth_status_words)
{
    api_check(berth_status_words((berth_status)api_enum()) != NULL, "every number has words");
}

ROW(berth_last_error)
{
    api_check(berth_last_error() != NULL, "there is always a last error");
}

ROW(berth_fail)
{
    static const char *const formats[] = {NULL, "", "words"};
    const char *words = PICK(formats);
    berth_status status = (berth_status)api_enum();
    api_check((words ? berth_fail(status, "%s", words) : berth_fail(status, NULL)) == status,
              "its argument comes back");
}

ROW(berth_fail_driver)
{
    static const char *const formats[] = {NULL, "", "words"};
    const char *words = PICK(formats), *driver_words = PICK(formats);
    berth_status status = (berth_status)api_enum();
    api_check((words ? berth_fail_driver(status, -4, driver_words, "%s", words)
                     : berth_fail_driver(status, -4, driver_words, NULL)) == status,
              "its argument comes back");
}

ROW(berth_clear_last_error)
{
    berth_clear_last_error();
    api_check(berth_last_error()->status == BERTH_OK, "forgotten");
}

static void hear_line(void *context, berth_log_level level, const char *line)
{
    (void)context, (void)level, (void)line;
}

ROW(berth_log_set)
{
    berth_log_set(api_bool() ? hear_line : NULL, NULL, (berth_log_level)api_enum());
    berth_deallocate(api_system, (char *)4096, 0, NULL); /* may have something to say */
    berth_log_set(hear_line, NULL, BERTH_LOG_DEBUG);
}

/* ---- DLPack ------------------------------------------------------------------------------------------ */

static const berth_tensor *pick_tensor(berth_tensor *t)
{
    static const int32_t dims[] = {1, 0, -1, BERTH_DIMS_MAX, INT32_MAX};
    static const int64_t extents[] = {8, 0, -1, INT64_MAX};
    *t = (berth_tensor)BERTH_TENSOR_INIT;
    t->struct_size = api_struct_size(sizeof *t);
    t->buffer = pick_buffer();
    t->type = (berth_dl_type){0, api_bool() ? 32 : 0, 1};
    t->dims = PICK(dims);
    t->has_strides = api_bool();
    t->flags = api_bool() ? UINT32_MAX : 0;
    t->offset_bytes = api_size();
    int64_t extent = PICK(extents);
    for (int i = 0; i < BERTH_DIMS_MAX; i++)
        t->shape[i] = t->strides[i] = extent;
    return api_bool() ? t : NULL;
}

ROW(berth_dlpack_export)
{
    berth_tensor t;
    struct DLManagedTensorVersioned *out = NULL;
    const berth_tensor *given = pick_tensor(&t);
    api_answer(berth_dlpack_export(given, NULL, NULL, api_bool() ? &out : NULL));
    if (out)
        ((berth_dl_versioned *)out)->deleter(out);
    berth_buffer_release(t.buffer);
}

ROW(berth_dlpack_export_unversioned)
{
    berth_tensor t;
    struct DLManagedTensor *out = NULL;
    const berth_tensor *given = pick_tensor(&t);
    api_answer(berth_dlpack_export_unversioned(given, NULL, NULL, api_bool() ? &out : NULL));
    if (out)
        ((berth_dl_managed *)out)->deleter(out);
    berth_buffer_release(t.buffer);
}

static berth_dl_tensor pick_foreign_tensor(void)
{
    static int64_t shape[] = {8, 8}, large[] = {INT64_MAX, INT64_MAX};
    static const int32_t dims[] = {2, 0, -1, INT32_MAX};
    berth_dl_tensor t = {.data = api_bool() ? api_memory : NULL, .type = {2, 32, 1}};
    t.device_type = api_enum();
    t.dims = PICK(dims);
    t.shape = api_bool() ? (api_bool() ? shape : large) : NULL;
    t.strides = api_bool() ? shape : NULL;
    t.byte_offset = api_size();
    return t;
}

ROW(berth_dlpack_import)
{
    berth_dl_versioned v = {.major = api_bool() ? 1 : 7, .tensor = pick_foreign_tensor()};
    berth_tensor out = BERTH_TENSOR_INIT;
    out.struct_size = api_struct_size(sizeof out);
    api_answer(berth_dlpack_import(api_bool() ? (struct DLManagedTensorVersioned *)&v : NULL, &out));
    berth_buffer_release(out.buffer);
}

ROW(berth_dlpack_import_unversioned)
{
    berth_dl_managed m = {.tensor = pick_foreign_tensor()};
    berth_tensor out = BERTH_TENSOR_INIT;
    out.struct_size = api_struct_size(sizeof out);
    api_answer(berth_dlpack_import_unversioned(api_bool() ? (struct DLManagedTensor *)&m : NULL, &out));
    berth_buffer_release(out.buffer);
}
