/* The adapter: an allocator over the malloc and free of any heap, with alignment and figures added. */
#include "base/header.h"
#include "base/words.h"
#include "core/allocator.h"
#include "count/meter.h"

#include <string.h>

#include "berth/source.h"

struct adapter {
    berth_allocator base;
    berth__meter meter;
    berth_malloc_family family;
};

/* Room for the header; a heap that aligns to 8 bytes only is served too. */
static size_t room_for(size_t alignment)
{
    return alignment + sizeof(berth__header);
}

static void *get_raw(const struct adapter *a, size_t raw_bytes, bool zeroed)
{
    if ((uint64_t)raw_bytes >> BERTH__TAG_SHIFT) /* no heap has that much, and the header no room to say so */
        return NULL;
    if (zeroed && a->family.calloc)
        return a->family.calloc(1, raw_bytes);
    void *raw = a->family.malloc(raw_bytes);
    if (raw && zeroed)
        memset(raw, 0, raw_bytes);
    return raw;
}

static berth_status adapter_allocate(void *self, size_t size_bytes, size_t alignment,
                                     const berth_request *request, void **out)
{
    struct adapter *a = self;
    alignment = berth__header_alignment(size_bytes, alignment);
    char *raw = get_raw(a, size_bytes + room_for(alignment), (request->flags & BERTH_ZEROED) != 0);
    if (BERTH_UNLIKELY(!raw)) {
        berth__slots_count_failure(&a->meter.slots);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "%s has no %s at alignment %zu", a->family.name,
                           BERTH__SIZE(size_bytes), alignment);
    }
    uintptr_t block = ((uintptr_t)raw + sizeof(berth__header) + alignment - 1) & ~(uintptr_t)(alignment - 1);
    if (BERTH_UNLIKELY(!berth__header_put((void *)block, size_bytes, (uint32_t)(block - (uintptr_t)raw)))) {
        a->family.free(raw);
        berth__slots_count_failure(&a->meter.slots);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to keep track of a block of %s",
                           BERTH__SIZE(size_bytes));
    }
    berth__meter_take(&a->meter, size_bytes);
    *out = (void *)block;
    return BERTH_OK;
}

static berth_status bad_pointer(const struct adapter *a, berth_status status, const void *p)
{
    return berth__fail(status, "%p is not a live block of %s: freed twice, or not its own", p,
                       a->family.name);
}

static berth_status adapter_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)size_bytes, (void)stream;
    struct adapter *a = self;
    berth__header header;
    if (BERTH_UNLIKELY(!berth__header_take(p, &header)))
        return bad_pointer(a, BERTH_BAD_FREE, p);
    a->family.free((char *)p - header.offset);
    berth__meter_give(&a->meter, berth__size_of_word(header.size_and_tag));
    return BERTH_OK;
}

static berth_status adapter_size_slow(void *self, const void *p, size_t *out)
{
    struct adapter *a = self;
    berth__header header;
    if (!berth__header_read(p, &header))
        return bad_pointer(a, BERTH_NOT_FOUND, p);
    if (!a->family.usable_size)
        return berth__fail(BERTH_UNSUPPORTED, "%s cannot tell what it gave for a block", a->family.name);
    size_t usable = a->family.usable_size((char *)(uintptr_t)p - header.offset) - header.offset;
    size_t asked = (size_t)berth__size_of_word(header.size_and_tag);
    *out = usable > asked ? usable : asked;
    return BERTH_OK;
}

static const char *adapter_name(void *self)
{
    struct adapter *a = self;
    return a->family.name;
}

static berth_status adapter_stats(void *self, berth_stats *out)
{
    struct adapter *a = self;
    berth__meter_read(&a->meter, out);
    return BERTH_OK;
}

static berth_status adapter_clear_stats(void *self)
{
    struct adapter *a = self;
    berth__meter_clear(&a->meter);
    return BERTH_OK;
}

static void adapter_destroy(void *self)
{
    struct adapter *a = self;
    berth__meter_finish(&a->meter);
    berth__heap_free(a);
}

static const berth_allocator_ops adapter_ops = {
    .struct_size = sizeof(berth_allocator_ops),
    .allocate = adapter_allocate,
    .deallocate = adapter_deallocate,
    .destroy = adapter_destroy,
    .name = adapter_name,
    .allocated_size_slow = adapter_size_slow,
    .stats = adapter_stats,
    .clear_stats = adapter_clear_stats,
};

static berth_status check_family(const berth_malloc_family *family)
{
    if (!family || family->struct_size < sizeof *family)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "an adapter needs a family with struct_size sizeof(berth_malloc_family)");
    if (!family->name || !family->malloc || !family->free)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the family lacks its %s",
                           !family->name     ? "name"
                           : !family->malloc ? "malloc"
                                             : "free");
    return BERTH_OK;
}

berth_status berth_adapter_create(const berth_malloc_family *family, berth_allocator **out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no place for the allocator: out is NULL");
    *out = NULL;
    berth_status status = check_family(family);
    if (status)
        return status;
    struct adapter *a = berth__heap_aligned(sizeof *a, 64);
    if (!a)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an adapter's handle");
    berth__allocator_init(&a->base, &adapter_ops, a);
    a->base.knows_blocks = true;
    a->base.header = BERTH__HEADER_PLAIN;
    a->family = *family;
    berth__meter_init(&a->meter, false);
    *out = &a->base;
    return BERTH_OK;
}
