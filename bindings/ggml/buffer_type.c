/* A ggml buffer type over an allocator of Berth's, and its buffers: a block each. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

enum { TYPE_NAME_MAX = 96, FILL_BYTES = 64 * 1024 };

/* Lives as long as the creator's reference and its buffers. `table` is what ggml sees. */
typedef struct type_state {
    struct ggml_backend_buffer_type table;
    berth_allocator *allocator;
    berth_device device;
    size_t alignment, max_bytes;
    bool is_host;
    char name[TYPE_NAME_MAX];
    atomic_size_t references;
    /* Figures; relaxed, each right by itself. */
    atomic_uint_fast64_t buffers, bytes, peak_bytes, total_buffers, refused, failed_copies;
} type_state;

static const char *type_name(struct ggml_backend_buffer_type *type);

static type_state *state_of(struct ggml_backend_buffer_type *type)
{
    return type->context;
}

static type_state *state_of_buffer(const struct ggml_backend_buffer *buffer)
{
    return state_of(buffer->buft);
}

static bool is_ours(const struct ggml_backend_buffer_type *type)
{
    return type && type->iface.get_name == type_name;
}

static void type_unref(type_state *state)
{
    if (atomic_fetch_sub_explicit(&state->references, 1, memory_order_acq_rel) != 1)
        return;
    berth_allocator_release(state->allocator);
    free(state);
}

/* ---- Buffers ---------------------------------------------------------------------------------------- */

/* ggml's calls that move bytes cannot fail, so what does goes to its log and is counted. */
static void copy_done(type_state *state, berth_status status, const char *what, size_t size)
{
    if (!status)
        return;
    atomic_fetch_add_explicit(&state->failed_copies, 1, memory_order_relaxed);
    bgg_ggml.ggml_log_internal(GGML_LOG_LEVEL_ERROR, "berth: %s %zu bytes of %s: %s\n", what, size,
                               state->name, berth_last_error()->message);
}

static berth_status copy_in(const type_state *state, void *dst, const void *src, size_t size)
{
    if (state->is_host) {
        memcpy(dst, src, size);
        return BERTH_OK;
    }
    return berth_copy(state->device, dst, src, size, BERTH_COPY_HOST_TO_DEVICE, NULL, true);
}

/* Devices can zero memory; another byte is copied in from a block of it. */
static berth_status fill_bytes(const type_state *state, char *dst, uint8_t value, size_t size)
{
    if (state->is_host) {
        memset(dst, value, size);
        return BERTH_OK;
    }
    if (value == 0)
        return berth_zero(state->device, dst, size, NULL, true);
    size_t step = size < FILL_BYTES ? size : FILL_BYTES;
    char *block = malloc(step + 1);
    berth_status status = block ? BERTH_OK : berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to fill from");
    if (block)
        memset(block, value, step);
    for (size_t done = 0; done < size && !status; done += step) {
        size_t part = size - done < step ? size - done : step;
        status = copy_in(state, dst + done, block, part);
    }
    free(block);
    return status;
}

static void buffer_free(struct ggml_backend_buffer *buffer)
{
    type_state *state = state_of_buffer(buffer);
    berth_status status = berth_deallocate(state->allocator, buffer->context, buffer->size, NULL);
    if (status)
        bgg_ggml.ggml_log_internal(GGML_LOG_LEVEL_ERROR, "berth: giving a buffer of %s back: %s\n",
                                   state->name, berth_last_error()->message);
    atomic_fetch_sub_explicit(&state->buffers, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&state->bytes, buffer->size, memory_order_relaxed);
    type_unref(state);
}

static void *buffer_base(struct ggml_backend_buffer *buffer)
{
    return buffer->context;
}

static void buffer_memset(struct ggml_backend_buffer *buffer, struct ggml_tensor *tensor, uint8_t value,
                          size_t offset, size_t size)
{
    type_state *state = state_of_buffer(buffer);
    copy_done(state, fill_bytes(state, (char *)tensor->data + offset, value, size), "filling", size);
}

static void buffer_set(struct ggml_backend_buffer *buffer, struct ggml_tensor *tensor, const void *data,
                       size_t offset, size_t size)
{
    type_state *state = state_of_buffer(buffer);
    copy_done(state, copy_in(state, (char *)tensor->data + offset, data, size), "writing", size);
}

static void buffer_get(struct ggml_backend_buffer *buffer, const struct ggml_tensor *tensor, void *data,
                       size_t offset, size_t size)
{
    type_state *state = state_of_buffer(buffer);
    const char *from = (const char *)tensor->data + offset;
    if (state->is_host)
        memcpy(data, from, size);
    else
        copy_done(state, berth_copy(state->device, data, from, size, BERTH_COPY_DEVICE_TO_HOST, NULL, true),
                  "reading", size);
}

/* From host memory, or from a buffer on the same device. ggml copies by way of the host where the answer is no. */
static bool buffer_cpy(struct ggml_backend_buffer *buffer, const struct ggml_tensor *src,
                       struct ggml_tensor *dst)
{
    type_state *state = state_of_buffer(buffer);
    size_t size = bgg_ggml.ggml_nbytes(src);
    struct ggml_backend_buffer *from = src->view_src ? src->view_src->buffer : src->buffer;
    if (bgg_ggml.ggml_backend_buffer_is_host(from))
        return copy_in(state, dst->data, src->data, size) == BERTH_OK;
    if (!is_ours(from->buft) || !berth_device_equal(state_of_buffer(from)->device, state->device))
        return false;
    return berth_copy(state->device, dst->data, src->data, size, BERTH_COPY_DEVICE_TO_DEVICE, NULL, true) ==
           BERTH_OK;
}

static void buffer_clear(struct ggml_backend_buffer *buffer, uint8_t value)
{
    type_state *state = state_of_buffer(buffer);
    copy_done(state, fill_bytes(state, buffer->context, value, buffer->size), "clearing", buffer->size);
}

static const struct ggml_backend_buffer_i buffer_table = {.free_buffer = buffer_free,
                                                          .get_base = buffer_base,
                                                          .memset_tensor = buffer_memset,
                                                          .set_tensor = buffer_set,
                                                          .get_tensor = buffer_get,
                                                          .cpy_tensor = buffer_cpy,
                                                          .clear = buffer_clear};

/* ---- The type --------------------------------------------------------------------------------------- */

static const char *type_name(struct ggml_backend_buffer_type *type)
{
    return state_of(type)->name;
}

static size_t type_alignment(struct ggml_backend_buffer_type *type)
{
    return state_of(type)->alignment;
}

static size_t type_max(struct ggml_backend_buffer_type *type)
{
    return state_of(type)->max_bytes;
}

static size_t type_alloc_size(struct ggml_backend_buffer_type *type, const struct ggml_tensor *tensor)
{
    (void)type; /* nothing here reads past a tensor's end */
    return bgg_ggml.ggml_nbytes(tensor);
}

static bool type_is_host(struct ggml_backend_buffer_type *type)
{
    return state_of(type)->is_host;
}

/* The allocator's words, with its figures where it keeps any. */
static berth_status fail_allocation(type_state *state, berth_status status, size_t size)
{
    berth_stats stats = BERTH_STATS_INIT;
    char words[sizeof berth_last_error()->message], held[96] = "";
    (void)snprintf(words, sizeof words, "%s", berth_last_error()->message);
    if (berth_stats_get(state->allocator, &stats) == BERTH_OK)
        (void)snprintf(held, sizeof held, ", which has %llu bytes in use,",
                       (unsigned long long)stats.bytes_in_use);
    return berth_fail(status, "ggml asks for a buffer of %zu bytes of %s; the allocator '%s'%s says: %s",
                      size, state->name, berth_allocator_name(state->allocator), held, words);
}

static struct ggml_backend_buffer *type_alloc(struct ggml_backend_buffer_type *type, size_t size)
{
    type_state *state = state_of(type);
    void *block = NULL;
    berth_status status;
    if (size > state->max_bytes)
        status = berth_fail(BERTH_OVER_BUDGET,
                            "ggml asks for a buffer of %zu bytes of %s, whose buffers have at most %zu", size,
                            state->name, state->max_bytes);
    else if ((status = berth_allocate(state->allocator, size, state->alignment, NULL, &block)))
        (void)fail_allocation(state, status, size);
    if (status) {
        atomic_fetch_add_explicit(&state->refused, 1, memory_order_relaxed);
        bgg_ggml.ggml_log_internal(GGML_LOG_LEVEL_ERROR, "berth: %s\n", berth_last_error()->message);
        return NULL;
    }
    atomic_fetch_add_explicit(&state->references, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&state->buffers, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&state->total_buffers, 1, memory_order_relaxed);
    uint_fast64_t now = atomic_fetch_add_explicit(&state->bytes, size, memory_order_relaxed) + size;
    uint_fast64_t peak = atomic_load_explicit(&state->peak_bytes, memory_order_relaxed);
    while (now > peak && !atomic_compare_exchange_weak_explicit(&state->peak_bytes, &peak, now,
                                                                memory_order_relaxed, memory_order_relaxed)) {
    }
    return bgg_ggml.ggml_backend_buffer_init(type, buffer_table, block, size);
}

static const struct ggml_backend_buffer_type_i type_table = {.get_name = type_name,
                                                             .alloc_buffer = type_alloc,
                                                             .get_alignment = type_alignment,
                                                             .get_max_size = type_max,
                                                             .get_alloc_size = type_alloc_size,
                                                             .is_host = type_is_host};

/* Write-combined memory can be touched by the host, but reading it is so slow that copies are better. */
static bool is_host_memory(berth_allocator *allocator)
{
    berth_device_info info = BERTH_DEVICE_INFO_INIT;
    switch (berth_allocator_memory_kind(allocator)) {
    case BERTH_MEMORY_DEVICE:
        return berth_device_describe(berth_allocator_device(allocator), &info) == BERTH_OK &&
               info.host_accessible;
    case BERTH_MEMORY_PINNED:
    case BERTH_MEMORY_MANAGED:
        return true;
    case BERTH_MEMORY_WRITE_COMBINED:
    default:
        return false;
    }
}

static berth_status check_options(berth_allocator *allocator, const berth_ggml_buffer_type_options *options)
{
    if (!allocator)
        return berth_fail(BERTH_INVALID_ARGUMENT, "a buffer type needs an allocator");
    if (options->struct_size != sizeof *options)
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "options of %zu bytes are not known; use BERTH_GGML_BUFFER_TYPE_OPTIONS_INIT",
                          options->struct_size);
    if (options->alignment & (options->alignment - 1) || options->alignment > BERTH_ALIGNMENT_MAX)
        return berth_fail(BERTH_INVALID_ARGUMENT, "an alignment is a power of two up to 1 GiB, not %zu",
                          options->alignment);
    return BERTH_OK;
}

berth_status berth_ggml_buffer_type_create(berth_allocator *allocator,
                                           const berth_ggml_buffer_type_options *options,
                                           struct ggml_backend_buffer_type **out)
{
    const berth_ggml_buffer_type_options usual = BERTH_GGML_BUFFER_TYPE_OPTIONS_INIT;
    berth_status status;
    if (!out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "a buffer type needs a place for the result");
    *out = NULL;
    if (!options)
        options = &usual;
    if ((status = check_options(allocator, options)) || (status = berth_ggml_load(NULL)))
        return status;
    type_state *state = calloc(1, sizeof *state);
    if (!state)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a buffer type");
    state->table.iface = type_table;
    state->table.device = options->device;
    state->table.context = state;
    state->allocator = berth_allocator_retain(allocator);
    state->device = berth_allocator_device(allocator);
    state->alignment = options->alignment ? options->alignment : BERTH_ALIGNMENT;
    state->max_bytes = options->max_bytes ? options->max_bytes : SIZE_MAX;
    state->is_host = is_host_memory(allocator);
    if (options->name)
        (void)snprintf(state->name, sizeof state->name, "%s", options->name);
    else
        (void)snprintf(state->name, sizeof state->name, "Berth %s", berth_allocator_name(allocator));
    atomic_store_explicit(&state->references, 1, memory_order_relaxed);
    *out = &state->table;
    return BERTH_OK;
}

void berth_ggml_buffer_type_release(struct ggml_backend_buffer_type *type)
{
    if (is_ours(type))
        type_unref(state_of(type));
}

berth_status berth_ggml_buffer_type_figures(struct ggml_backend_buffer_type *type,
                                            berth_ggml_buffer_figures *out)
{
    if (!type || !out || out->struct_size < sizeof *out)
        return berth_fail(BERTH_INVALID_ARGUMENT,
                          "figures need a buffer type and BERTH_GGML_BUFFER_FIGURES_INIT");
    if (!is_ours(type))
        return berth_fail(BERTH_NOT_FOUND, "this buffer type is not one of Berth's");
    type_state *state = state_of(type);
    out->buffers = atomic_load_explicit(&state->buffers, memory_order_relaxed);
    out->bytes = atomic_load_explicit(&state->bytes, memory_order_relaxed);
    out->max_bytes = atomic_load_explicit(&state->peak_bytes, memory_order_relaxed);
    out->total_buffers = atomic_load_explicit(&state->total_buffers, memory_order_relaxed);
    out->refused = atomic_load_explicit(&state->refused, memory_order_relaxed);
    out->failed_copies = atomic_load_explicit(&state->failed_copies, memory_order_relaxed);
    return BERTH_OK;
}
