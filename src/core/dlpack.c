/* DLPack out and in: a counted buffer becomes a producer's tensor, and a producer's tensor a counted buffer. */
#include <stddef.h>
#include <string.h>

#include "base/base.h"
#include "berth/dlpack.h"
#include "device/device.h"

/* ---- Where the elements lie ---------------------------------------------------------------------------------- */

/* The bytes that the elements take, from the first element: `below` of them before it, `above` from it on. */
struct reach {
    uint64_t below, above;
};

static berth_status too_large(void)
{
    return berth__fail(BERTH_OVERFLOW, "the tensor is larger than memory can be");
}

static berth_status check_type(const berth_tensor *t, uint64_t *element_bits)
{
    if (t->type.bits == 0 || t->type.lanes == 0)
        return berth__fail(BERTH_INVALID_ARGUMENT, "elements of %u bits in %u lanes are no type",
                           t->type.bits, t->type.lanes);
    uint64_t bits = (uint64_t)t->type.bits * t->type.lanes;
    *element_bits = t->flags & BERTH_DL_SUB_BYTE_PADDED ? (bits + 7) / 8 * 8 : bits;
    return BERTH_OK;
}

static bool is_empty(const berth_tensor *t)
{
    for (int32_t i = 0; i < t->dims; i++)
        if (t->shape[i] == 0)
            return true;
    return false;
}

/* Fills in the strides of rows that lie one after the other. */
static berth_status fill_strides(berth_tensor *t)
{
    int64_t next = 1;
    for (int32_t i = t->dims - 1; i >= 0; i--) {
        t->strides[i] = next;
        int64_t extent = t->shape[i] > 0 ? t->shape[i] : 1; /* nothing lies anywhere */
        if (!__builtin_mul_overflow(next, extent, &next))
            continue;
        if (!is_empty(t))
            return too_large();
        next = 1;
    }
    return BERTH_OK;
}

/* In elements, of a tensor that has some. */
static berth_status walk_strides(const berth_tensor *t, int64_t *lowest, int64_t *highest)
{
    *lowest = *highest = 0;
    for (int32_t i = 0; i < t->dims; i++) {
        int64_t way = 0;
        if (__builtin_mul_overflow(t->shape[i] - 1, t->strides[i], &way))
            return too_large();
        int64_t *side = way < 0 ? lowest : highest;
        if (__builtin_add_overflow(*side, way, side))
            return too_large();
    }
    return BERTH_OK;
}

/* Checks dims, shape, type and strides, and says what they reach. */
static berth_status dlpack_measure(const berth_tensor *t, struct reach *out)
{
    *out = (struct reach){0, 0};
    uint64_t bits = 0;
    berth_status status = check_type(t, &bits);
    for (int32_t i = 0; !status && i < t->dims; i++)
        if (t->shape[i] < 0)
            status = berth__fail(BERTH_INVALID_ARGUMENT, "dimension %d has %lld elements", (int)i,
                                 (long long)t->shape[i]);
    if (status || is_empty(t))
        return status;
    int64_t lowest = 0, highest = 0;
    status = walk_strides(t, &lowest, &highest);
    if (status)
        return status;
    uint64_t below = 0, above = 0;
    if (__builtin_mul_overflow(0 - (uint64_t)lowest, bits, &below) ||
        __builtin_mul_overflow((uint64_t)highest + 1, bits, &above) || below > INT64_MAX || above > INT64_MAX)
        return too_large();
    *out = (struct reach){(below + 7) / 8, (above + 7) / 8};
    return BERTH_OK;
}

static bool is_dense(const berth_tensor *t)
{
    int64_t next = 1;
    for (int32_t i = t->dims - 1; i >= 0; i--) {
        if (t->shape[i] != 1 && t->strides[i] != next)
            return false;
        next *= t->shape[i]; /* was walked without an overflow */
    }
    return true;
}

/* ---- Devices ------------------------------------------------------------------------------------------------- */

/* What DLPack calls a place in memory. The address goes into `data`, byte_offset stays 0: PyTorch 1.13 does not look at
 * it. Only where `data` is a handle does byte_offset lead from there. */
struct dl_place {
    void *data;
    uint64_t byte_offset;
    int32_t device_type, device_id;
};

/* kDLOpenCL's `data` is a cl_mem. Memory that the host may touch is named as the host's; of shared virtual memory, and of
 * the extension's, there is no cl_mem. */
static berth_status place_opencl(berth_device device, berth_memory_kind kind, char *data, struct dl_place *at)
{
    berth_device_place place = {.struct_size = sizeof place};
    if (kind != BERTH_MEMORY_DEVICE) {
        at->device_type = BERTH_DL_CPU;
        at->device_id = 0;
        return BERTH_OK;
    }
    at->device_type = BERTH_DL_OPENCL;
    if (!data)
        return BERTH_OK;
    berth_status status = berth_device_locate(device, data, &place);
    if (status == BERTH_UNSUPPORTED || status == BERTH_NOT_FOUND)
        return berth__fail(BERTH_UNSUPPORTED,
                           "DLPack knows memory of OpenCL as buffers alone, and %p lies in none: copy it to "
                           "pinned memory first",
                           (void *)data);
    if (status)
        return status;
    at->byte_offset = place.offset_bytes + (uint64_t)((char *)at->data - data);
    at->data = (void *)(uintptr_t)place.handle;
    return BERTH_OK;
}

/* `data` is the buffer's, `offset_bytes` leads to the first element. */
static berth_status dlpack_place(berth_device device, berth_memory_kind kind, char *data,
                                 uint64_t offset_bytes, struct dl_place *at)
{
    bool host = kind == BERTH_MEMORY_PINNED || kind == BERTH_MEMORY_WRITE_COMBINED;
    *at = (struct dl_place){.data = data ? data + offset_bytes : NULL, .device_id = device.ordinal};
    switch (device.kind) {
    case BERTH_DEVICE_CPU:
        at->device_type = BERTH_DL_CPU;
        at->device_id = 0;
        return BERTH_OK;
    case BERTH_DEVICE_CUDA:
        at->device_type = host                           ? BERTH_DL_CUDA_HOST
                          : kind == BERTH_MEMORY_MANAGED ? BERTH_DL_CUDA_MANAGED
                                                         : BERTH_DL_CUDA;
        return BERTH_OK;
    case BERTH_DEVICE_HIP:
        at->device_type = host ? BERTH_DL_ROCM_HOST : BERTH_DL_ROCM;
        return BERTH_OK;
    case BERTH_DEVICE_OPENCL:
        return place_opencl(device, kind, data, at);
    default:
        at->device_type = BERTH_DL_OTHER;
        return BERTH_OK;
    }
}

/* Pinned memory is the host's, whoever pinned it. */
static berth_status find_device(const berth_dl_tensor *from, berth_device *out)
{
    *out = berth_device_cpu();
    switch (from->device_type) {
    case BERTH_DL_CPU:
    case BERTH_DL_CUDA_HOST:
    case BERTH_DL_ROCM_HOST:
        return BERTH_OK;
    case BERTH_DL_CUDA:
    case BERTH_DL_CUDA_MANAGED:
        *out = (berth_device){BERTH_DEVICE_CUDA, from->device_id};
        return BERTH_OK;
    case BERTH_DL_ROCM:
        *out = (berth_device){BERTH_DEVICE_HIP, from->device_id};
        return BERTH_OK;
    case BERTH_DL_OPENCL:
        return berth__fail(BERTH_UNSUPPORTED,
                           "the tensor's memory is a buffer of OpenCL, which has no address here: let its "
                           "producer copy it to the host");
    default:
        return berth__fail(BERTH_UNSUPPORTED, "DLPack's device type %d is none of Berth's",
                           (int)from->device_type);
    }
}

/* ---- Out ----------------------------------------------------------------------------------------------------- */

/* One allocation: whichever form the consumer sees, what it points to, and the buffer that it keeps alive. */
struct lent {
    union {
        berth_dl_managed managed;
        berth_dl_versioned versioned;
    } as;
    berth_buffer *buffer;
    struct dl_place at;
    int64_t shape[BERTH_DIMS_MAX], strides[BERTH_DIMS_MAX];
};

static void give_back(struct lent *lent)
{
    berth_buffer_release(lent->buffer);
    berth__heap_free(lent);
}

static void delete_managed(struct DLManagedTensor *self)
{
    if (self)
        give_back(((berth_dl_managed *)self)->context);
}

static void delete_versioned(struct DLManagedTensorVersioned *self)
{
    if (self)
        give_back(((berth_dl_versioned *)self)->context);
}

static berth_status read_tensor(const berth_tensor *given, berth_tensor *t)
{
    if (!given || given->struct_size < sizeof *given || !given->buffer)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "a tensor has a buffer; start from BERTH_TENSOR_INIT, which sets struct_size");
    if (given->dims < 0 || given->dims > BERTH_DIMS_MAX)
        return berth__fail(BERTH_INVALID_ARGUMENT, "a tensor has 0 to %d dimensions, not %d", BERTH_DIMS_MAX,
                           (int)given->dims);
    *t = *given;
    struct reach reach;
    berth_status status = t->has_strides ? BERTH_OK : fill_strides(t);
    if (!status)
        status = dlpack_measure(t, &reach);
    if (status)
        return status;
    uint64_t size = berth_buffer_size(t->buffer);
    if (t->offset_bytes > size || reach.below > t->offset_bytes || reach.above > size - t->offset_bytes)
        return berth__fail(
            BERTH_INVALID_ARGUMENT,
            "the elements reach from %llu bytes below to %llu above byte %llu of a buffer of %llu",
            (unsigned long long)reach.below, (unsigned long long)reach.above,
            (unsigned long long)t->offset_bytes, (unsigned long long)size);
    return BERTH_OK;
}

/* What `from` has been given so far comes before what `to` is given from now on. */
static berth_status order_streams(berth_stream *from, berth_stream *to)
{
    if (!from || from == to)
        return BERTH_OK;
    if (!to)
        return berth_stream_synchronize(from);
    berth_event *event = NULL;
    berth_status status = berth_event_create(berth_stream_device(from), &event);
    if (!status)
        status = berth_event_record(event, from);
    if (!status)
        status = berth_stream_wait_event(to, event);
    berth_event_destroy(event);
    return status;
}

/* Allocators that never reuse a block early record nothing. */
static berth_status note_use(const berth_buffer *buffer, const void *data, berth_stream *to)
{
    berth_allocator *a = berth_buffer_allocator(buffer);
    if (!to || !a || !data)
        return BERTH_OK;
    berth_status status = berth_record_use(a, data, to);
    return status == BERTH_UNSUPPORTED ? BERTH_OK : status;
}

static void fill_tensor(struct lent *lent, const berth_tensor *t, berth_dl_tensor *to)
{
    memcpy(lent->shape, t->shape, (size_t)t->dims * sizeof *t->shape);
    memcpy(lent->strides, t->strides, (size_t)t->dims * sizeof *t->strides);
    *to = (berth_dl_tensor){.data = lent->at.data,
                            .device_type = lent->at.device_type,
                            .device_id = lent->at.device_id,
                            .dims = t->dims,
                            .type = t->type,
                            .shape = lent->shape,
                            .strides = lent->strides,
                            .byte_offset = lent->at.byte_offset};
}

/* Where the first element lies; allocates what was not allocated. */
static berth_status place_tensor(const berth_tensor *t, struct dl_place *at)
{
    berth_status status = berth_buffer_allocate(t->buffer);
    if (status)
        return status;
    berth_allocator *a = berth_buffer_allocator(t->buffer);
    return dlpack_place(berth_buffer_device(t->buffer),
                        a ? berth_allocator_memory_kind(a) : BERTH_MEMORY_DEVICE,
                        berth_buffer_data(t->buffer), t->offset_bytes, at);
}

/* Everything but the form. */
static berth_status dlpack_lend(const berth_tensor *given, berth_stream *from, berth_stream *to,
                                berth_tensor *t, struct lent **out)
{
    struct dl_place at;
    berth_status status = read_tensor(given, t);
    if (!status)
        status = place_tensor(t, &at);
    if (status)
        return status;
    struct lent *lent = berth__heap_zalloc(1, sizeof *lent);
    if (!lent)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a tensor's handle");
    status = order_streams(from, to);
    if (!status)
        status = note_use(t->buffer, berth_buffer_data(t->buffer), to);
    if (status) {
        berth__heap_free(lent);
        return status;
    }
    lent->buffer = berth_buffer_retain(t->buffer);
    lent->at = at;
    *out = lent;
    return BERTH_OK;
}

berth_status berth_dlpack_export(const berth_tensor *tensor, berth_stream *from, berth_stream *to,
                                 struct DLManagedTensorVersioned **out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "out is NULL");
    *out = NULL;
    berth_tensor t;
    struct lent *lent = NULL;
    berth_status status = dlpack_lend(tensor, from, to, &t, &lent);
    if (status)
        return status;
    berth_dl_versioned *form = &lent->as.versioned;
    form->major = BERTH_DL_MAJOR;
    form->minor = BERTH_DL_MINOR;
    form->context = lent;
    form->deleter = delete_versioned;
    form->flags = t.flags;
    fill_tensor(lent, &t, &form->tensor);
    *out = (struct DLManagedTensorVersioned *)form;
    return BERTH_OK;
}

berth_status berth_dlpack_export_unversioned(const berth_tensor *tensor, berth_stream *from, berth_stream *to,
                                             struct DLManagedTensor **out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "out is NULL");
    *out = NULL;
    if (tensor && tensor->struct_size >= sizeof *tensor && tensor->flags & ~(uint32_t)BERTH_DL_COPIED)
        return berth__fail(BERTH_UNSUPPORTED,
                           "DLPack before versions cannot say that a tensor is read-only or padded");
    berth_tensor t;
    struct lent *lent = NULL;
    berth_status status = dlpack_lend(tensor, from, to, &t, &lent);
    if (status)
        return status;
    berth_dl_managed *form = &lent->as.managed;
    form->context = lent;
    form->deleter = delete_managed;
    fill_tensor(lent, &t, &form->tensor);
    *out = (struct DLManagedTensor *)form;
    return BERTH_OK;
}

/* ---- In ------------------------------------------------------------------------------------------------------ */

static void return_managed(void *context, void *p, size_t size_bytes)
{
    (void)p, (void)size_bytes;
    berth_dl_managed *managed = context;
    if (managed->deleter)
        managed->deleter(context);
}

static void return_versioned(void *context, void *p, size_t size_bytes)
{
    (void)p, (void)size_bytes;
    berth_dl_versioned *managed = context;
    if (managed->deleter)
        managed->deleter(context);
}

/* Describes the producer's tensor in `t`, whose flags are set. */
static berth_status dlpack_describe(const berth_dl_tensor *from, berth_tensor *t, struct reach *reach)
{
    if (from->dims < 0 || (from->dims > 0 && !from->shape))
        return berth__fail(BERTH_INVALID_ARGUMENT, "a tensor of %d dimensions without a shape",
                           (int)from->dims);
    if (from->dims > BERTH_DIMS_MAX)
        return berth__fail(BERTH_UNSUPPORTED, "a tensor has at most %d dimensions here, not %d",
                           BERTH_DIMS_MAX, (int)from->dims);
    t->dims = from->dims;
    t->type = from->type;
    if (from->dims)
        memcpy(t->shape, from->shape, (size_t)from->dims * sizeof *t->shape);
    berth_status status = BERTH_OK;
    if (from->strides && from->dims)
        memcpy(t->strides, from->strides, (size_t)from->dims * sizeof *t->strides);
    else
        status = fill_strides(t);
    return !status ? dlpack_measure(t, reach) : status;
}

static berth_status take_over(const berth_dl_tensor *from, uint32_t flags, berth_buffer_deleter deleter,
                              void *context, berth_tensor *out)
{
    berth_tensor t = BERTH_TENSOR_INIT;
    struct reach reach;
    berth_device device;
    t.flags = flags;
    berth_status status = dlpack_describe(from, &t, &reach);
    if (!status)
        status = find_device(from, &device);
    if (status)
        return status;
    uintptr_t first = 0;
    uint64_t size = reach.below + reach.above;
    if (size && !from->data)
        return berth__fail(BERTH_INVALID_ARGUMENT, "a tensor of %llu bytes without memory",
                           (unsigned long long)size);
    if (__builtin_add_overflow((uintptr_t)from->data, from->byte_offset, &first) || reach.below > first)
        return too_large();
    t.has_strides = !is_empty(&t) && !is_dense(&t);
    t.offset_bytes = reach.below;
    status =
        berth_buffer_adopt((void *)(first - reach.below), (size_t)size, device, deleter, context, &t.buffer);
    if (!status)
        *out = t;
    return status;
}

static berth_status check_import(const void *managed, const berth_tensor *out)
{
    if (!managed || !out || out->struct_size < sizeof *out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s",
                           managed ? "start from BERTH_TENSOR_INIT: out, or its struct_size, is 0"
                                   : "the tensor is NULL");
    return BERTH_OK;
}

berth_status berth_dlpack_import(struct DLManagedTensorVersioned *managed, berth_tensor *out)
{
    berth_status status = check_import(managed, out);
    if (status)
        return status;
    const berth_dl_versioned *form = (const berth_dl_versioned *)managed;
    if (form->major != BERTH_DL_MAJOR)
        return berth__fail(BERTH_UNSUPPORTED, "the tensor is of DLPack %u.%u; only versions %d.x are known",
                           form->major, form->minor, BERTH_DL_MAJOR);
    return take_over(&form->tensor, (uint32_t)form->flags & 7u, return_versioned, managed, out);
}

berth_status berth_dlpack_import_unversioned(struct DLManagedTensor *managed, berth_tensor *out)
{
    berth_status status = check_import(managed, out);
    if (status)
        return status;
    return take_over(&((const berth_dl_managed *)managed)->tensor, 0, return_managed, managed, out);
}
