/* The front of address space: memory mapped in pieces, and addresses for memory that has none. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/device.h"

static berth_status ask_granularity(const berth__device_type *type, berth_device device, size_t *out)
{
    uint64_t before = berth__device_before(type);
    berth_status status = type->ops.granularity(type->self, device, out);
    if (status)
        return berth__device_answer(type, status, before, "say in what steps it maps memory");
    if (!berth__is_power_of_two(*out))
        return berth__fail(BERTH_DEVICE_ERROR, "the %s device maps in steps of %zu bytes, no power of two",
                           type->name, *out);
    return BERTH_OK;
}

static berth_status check_steps(size_t granularity, const void *p, size_t size_bytes)
{
    if (size_bytes == 0 || size_bytes % granularity != 0 || (uintptr_t)p % granularity != 0)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%zu bytes at %p are not a piece in steps of %zu bytes",
                           size_bytes, p, granularity);
    return BERTH_OK;
}

static berth_status check_pieces(berth_device device, const void *p, size_t size_bytes,
                                 const berth__device_type **type, size_t *granularity)
{
    berth_status status = berth__device_find(device, NULL, type);
    if (!status)
        status = ask_granularity(*type, device, granularity);
    return !status ? check_steps(*granularity, p, size_bytes) : status;
}

/* For what goes back: a device that is lost, or cannot say its steps at the moment, is given it all the same. */
static berth_status check_given(berth_device device, const void *p, size_t size_bytes,
                                const berth__device_type **type)
{
    size_t granularity = 0;
    berth_status status = berth__device_find_to_give_back(device, NULL, type);
    if (status || ask_granularity(*type, device, &granularity) != BERTH_OK)
        return status;
    return check_steps(granularity, p, size_bytes);
}

berth_status berth__device_granularity(berth_device device, size_t *out)
{
    const berth__device_type *type;
    berth_status status = berth__device_find(device, NULL, &type);
    return !status ? ask_granularity(type, device, out) : status;
}

berth_status berth__device_reserve(berth_device device, size_t size_bytes, void **out)
{
    *out = NULL;
    const berth__device_type *type;
    size_t granularity = 0;
    berth_status status = check_pieces(device, NULL, size_bytes, &type, &granularity);
    if (status)
        return status;
    uint64_t before = berth__device_before(type);
    void *base = NULL;
    status = type->ops.reserve(type->self, device, size_bytes, &base);
    if (status)
        return berth__device_answer(type, status, before, "reserve address space");
    if (!base)
        return berth__fail(BERTH_DEVICE_ERROR, "the %s device reserved nothing", type->name);
    if ((uintptr_t)base % granularity != 0) {
        (void)type->ops.unreserve(type->self, device, base, size_bytes);
        return berth__fail(BERTH_DEVICE_ERROR,
                           "the %s device reserved addresses from %p, in steps of %zu bytes", type->name,
                           base, granularity);
    }
    *out = base;
    berth__device_lives(type, BERTH__DEVICE_BLOCKS, 1);
    return BERTH_OK;
}

berth_status berth__device_unreserve(berth_device device, void *base, size_t size_bytes)
{
    const berth__device_type *type;
    berth_status status = check_given(device, base, size_bytes, &type);
    if (status)
        return status;
    uint64_t before = berth__device_before(type);
    status = type->ops.unreserve(type->self, device, base, size_bytes);
    status = berth__device_answer(type, status, before, "give back address space");
    if (!status || status == BERTH_DEVICE_LOST)
        berth__device_lives(type, BERTH__DEVICE_BLOCKS, -1);
    return status;
}

berth_status berth__device_map(berth_device device, void *p, size_t size_bytes)
{
    const berth__device_type *type;
    size_t granularity = 0;
    berth_status status = check_pieces(device, p, size_bytes, &type, &granularity);
    if (status)
        return status;
    uint64_t before = berth__device_before(type);
    return berth__device_answer(type, type->ops.map(type->self, device, p, size_bytes), before, "map memory");
}

berth_status berth__device_unmap(berth_device device, void *p, size_t size_bytes)
{
    const berth__device_type *type;
    berth_status status = check_given(device, p, size_bytes, &type);
    if (status)
        return status;
    uint64_t before = berth__device_before(type);
    return berth__device_answer(type, type->ops.unmap(type->self, device, p, size_bytes), before,
                                "unmap memory");
}

/* ---- Addresses that stand for memory ------------------------------------------------------------- */

berth_status berth_addresses_reserve(size_t size_bytes, size_t alignment, void **out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "out is NULL");
    *out = NULL;
    if (size_bytes == 0 || !berth__is_power_of_two(alignment) || alignment > BERTH__DEVICE_ALIGNMENT_MAX)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%zu bytes of addresses at an alignment of %zu",
                           size_bytes, alignment);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (size_bytes > (size_t)PTRDIFF_MAX - page - alignment)
        return berth__fail(BERTH_OVERFLOW, "%zu bytes do not fit into the address space", size_bytes);
    size_t size = berth__align_up(size_bytes, page), extra = alignment > page ? alignment - page : 0;
    char *p = mmap(NULL, size + extra, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return berth__fail_driver(BERTH_OUT_OF_HOST_MEMORY, errno, strerror(errno),
                                  "the system has no %zu bytes of address space", size_bytes);
    size_t before = berth__align_up((uintptr_t)p, alignment) - (uintptr_t)p;
    if (before)
        munmap(p, before);
    if (extra > before)
        munmap(p + before + size, extra - before);
    *out = p + before;
    return BERTH_OK;
}

void berth_addresses_release(void *p, size_t size_bytes)
{
    if (p && size_bytes)
        munmap(p, berth__align_up(size_bytes, (size_t)sysconf(_SC_PAGESIZE)));
}
