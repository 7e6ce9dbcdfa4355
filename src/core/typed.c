/* Typed helpers: checked element counts, and elements that bring init and fini. */
#include "core/allocator.h"

static berth_status type_bytes(const berth_type *type, size_t count, size_t *bytes)
{
    if (!type || type->struct_size < sizeof *type || type->size_bytes == 0)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the element type needs struct_size = sizeof(berth_type) and a size above 0");
    if (__builtin_mul_overflow(count, type->size_bytes, bytes))
        return berth__fail(BERTH_OVERFLOW, "%zu elements of %zu bytes (%s) are more than fits into a size",
                           count, type->size_bytes, type->name ? type->name : "unnamed type");
    return BERTH_OK;
}

static void fini_elements(const berth_type *type, char *first, size_t count)
{
    if (type->fini)
        for (size_t i = count; i-- > 0;)
            type->fini(first + i * type->size_bytes, type->context);
}

static berth_status init_elements(const berth_type *type, char *first, size_t count)
{
    if (!type->init)
        return BERTH_OK;
    for (size_t i = 0; i < count; i++) {
        berth_status status = type->init(first + i * type->size_bytes, type->context);
        if (status) {
            fini_elements(type, first, i);
            return status;
        }
    }
    return BERTH_OK;
}

berth_status berth_allocate_array(berth_allocator *a, const berth_type *type, size_t count,
                                  const berth_request *request, void **out)
{
    if (out)
        *out = NULL;
    size_t bytes = 0;
    berth_status status = type_bytes(type, count, &bytes);
    if (status)
        return status;
    void *p = NULL;
    status = berth_allocate(a, bytes, type->alignment ? type->alignment : BERTH_ALIGNMENT, request,
                            out ? &p : NULL);
    if (status || !p)
        return status;
    status = init_elements(type, p, count);
    if (status) {
        berth_deallocate(a, p, bytes, request ? request->stream : NULL);
        return status;
    }
    *out = p;
    return BERTH_OK;
}

berth_status berth_deallocate_array(berth_allocator *a, const berth_type *type, void *p, size_t count,
                                    berth_stream *stream)
{
    size_t bytes = 0;
    berth_status status = type_bytes(type, count, &bytes);
    if (status)
        return status;
    if (!a)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the allocator is NULL");
    if (!p)
        return BERTH_OK;
    fini_elements(type, p, count);
    return berth_deallocate(a, p, bytes, stream);
}

void *berth_new(berth_allocator *a, size_t count, size_t element_bytes)
{
    const berth_type plain = {.struct_size = sizeof plain, .size_bytes = element_bytes};
    void *p = NULL;
    return berth_allocate_array(a, &plain, count, NULL, &p) == BERTH_OK ? p : NULL;
}
