/* The dry run: addresses that nobody has, with everything that is known of a real block. */
#include "berth/source.h"
#include "count/quota.h"
#include "source/listed.h"

/* Above what user programs get on 64-bit machines (48 bits on x86-64 and arm64 unless asked for more), and
 * below the bits that pointer tags use: such an address is never mapped, and touching it faults. */
#define FIRST_ADDRESS ((uint64_t)1 << 48)
#define LAST_ADDRESS ((uint64_t)1 << 55)

struct dry_run {
    berth__listed base;
    berth__quota limit;
    bool is_limited;
    _Atomic uint64_t next; /* addresses are not reused: a stale one is never a live block by accident */
};

/* NULL once every address was used: after 2^55 bytes. */
static uintptr_t take_address(struct dry_run *d, uint64_t size_bytes, uint64_t alignment)
{
    uint64_t next = atomic_load(&d->next), start;
    do {
        start = (next + alignment - 1) & ~(alignment - 1);
        if (size_bytes > LAST_ADDRESS - start)
            return 0;
    } while (!atomic_compare_exchange_weak(&d->next, &next, start + size_bytes));
    return (uintptr_t)start;
}

static uint64_t dry_limit(struct dry_run *d)
{
    return d->is_limited ? (uint64_t)atomic_load(&d->limit.cap) : 0;
}

static berth_status dry_run_refuse(struct dry_run *d, berth_status status, size_t size_bytes)
{
    uint64_t in_use = berth__meter_in_use(&d->base.meter);
    berth__slots_count_failure(&d->base.meter.slots);
    return berth__fail(
        status,
        "the dry run's %llu bytes do not hold %zu more: %llu are in use; it takes a machine with "
        "%llu",
        (unsigned long long)dry_limit(d), size_bytes, (unsigned long long)in_use,
        (unsigned long long)(in_use + size_bytes));
}

static berth_status dry_allocate(void *self, size_t size_bytes, size_t alignment,
                                 const berth_request *request, void **out)
{
    struct dry_run *d = self;
    if (d->is_limited && !berth__quota_take(&d->limit, size_bytes))
        return dry_run_refuse(d, BERTH_OVER_BUDGET, size_bytes);
    berth__listed_block *block = berth__heap_alloc(sizeof *block);
    uintptr_t address = take_address(d, size_bytes, alignment);
    if (!block || !address)
        goto give;
    *block = (berth__listed_block){
        .entry.address = address,
        .size_bytes = size_bytes,
        .taken_bytes = size_bytes,
        .label = berth__request_label(request),
    };
    berth__listed_add(&d->base, block);
    (void)berth__meter_take(&d->base.meter, size_bytes);
    *out = (void *)address;
    return BERTH_OK;

give:
    berth__heap_free(block);
    if (d->is_limited)
        berth__quota_give(&d->limit, size_bytes);
    berth__slots_count_failure(&d->base.meter.slots);
    return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "%s",
                       address ? "no memory for what a dry run keeps of a block"
                               : "the dry run has used up all addresses, or the block is larger than all");
}

static berth_status dry_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)size_bytes, (void)stream;
    struct dry_run *d = self;
    berth__listed_block *block = berth__listed_take(&d->base, p);
    if (!block)
        return BERTH_BAD_FREE;
    berth__meter_give(&d->base.meter, block->size_bytes);
    if (d->is_limited)
        berth__quota_give(&d->limit, block->size_bytes);
    berth__heap_free(block);
    return BERTH_OK;
}

/* There is nothing to copy, and the front's berth_copy would refuse to. */
static berth_status dry_reallocate(void *self, void *p, size_t old_bytes, size_t new_bytes, size_t alignment,
                                   const berth_request *request, void **out)
{
    struct dry_run *d = self;
    size_t held = 0;
    void *moved = NULL;
    if (d->base.base.ops.requested_size(self, p, &held) != BERTH_OK)
        return berth__fail(BERTH_BAD_FREE, "%p is not a live block of this dry run", p);
    berth_status status = dry_allocate(self, new_bytes, alignment, request, &moved);
    if (status)
        return status;
    return berth__finish_move(&d->base.base, p, old_bytes, moved, new_bytes, request, out);
}

static const char *dry_name(void *self)
{
    (void)self;
    return "dry run";
}

/* Kind 0: every operation that would touch memory refuses it. */
static berth_device dry_device(void *self)
{
    (void)self;
    return (berth_device){BERTH_DEVICE_UNKNOWN, 0};
}

static berth_status dry_stats(void *self, berth_stats *out)
{
    struct dry_run *d = self;
    berth_status status = berth__listed_ops.stats(self, out);
    out->bytes_limit = dry_limit(d);
    return status;
}

static void dry_destroy(void *self)
{
    struct dry_run *d = self;
    berth__quota_finish(&d->limit);
    berth__listed_finish(&d->base);
    berth__heap_free(d);
}

berth_status berth_dry_run_allocator_create(uint64_t limit_bytes, berth_allocator **out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no place for the allocator: out is NULL");
    *out = NULL;
    struct dry_run *d = berth__heap_aligned(sizeof *d, 64);
    if (!d)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a dry run's handle");
    berth_allocator_ops ops = berth__listed_ops;
    ops.allocate = dry_allocate;
    ops.deallocate = dry_deallocate;
    ops.reallocate = dry_reallocate;
    ops.destroy = dry_destroy;
    ops.name = dry_name;
    ops.device = dry_device;
    ops.stats = dry_stats;
    if (!berth__listed_init(&d->base, &ops)) {
        berth__heap_free(d);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a dry run's list");
    }
    atomic_init(&d->next, FIRST_ADDRESS);
    d->is_limited = limit_bytes != 0;
    berth__quota_init(&d->limit, limit_bytes > INT64_MAX / 2 ? INT64_MAX / 2 : (int64_t)limit_bytes);
    *out = &d->base.base;
    return BERTH_OK;
}
