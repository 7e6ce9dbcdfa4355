/* The dry run: addresses that nobody has, with everything that is known of a real block. */
#include "berth/source.h"
#include "source/listed.h"

/* Above what user programs get on 64-bit machines (48 bits on x86-64 and arm64 unless asked for more), and
 * below the bits that pointer tags use: such an address is never mapped, and touching it faults. */
#define FIRST_ADDRESS ((uint64_t)1 << 48)
#define LAST_ADDRESS ((uint64_t)1 << 55)

struct dry_run {
    berth__listed base;
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

static berth_status refuse(struct dry_run *d, berth_status status, size_t size_bytes)
{
    berth_stats stats = {.struct_size = sizeof stats};
    berth__meter_count_failure(&d->base.meter);
    berth__meter_read(&d->base.meter, &stats);
    return berth__fail(
        status,
        "the dry run's %llu bytes do not hold %zu more: %llu are in use; it takes a machine with "
        "%llu",
        (unsigned long long)stats.bytes_limit, size_bytes, (unsigned long long)stats.bytes_in_use,
        (unsigned long long)(stats.bytes_in_use + size_bytes));
}

static berth_status dry_allocate(void *self, size_t size_bytes, size_t alignment,
                                 const berth_request *request, void **out)
{
    struct dry_run *d = self;
    berth__meter_answer claimed = berth__meter_claim(&d->base.meter, size_bytes);
    if (claimed == BERTH__METER_OVER)
        return refuse(d, BERTH_OVER_BUDGET, size_bytes);
    berth__listed_block *block = berth__heap_alloc(sizeof *block);
    uintptr_t address = take_address(d, size_bytes, alignment);
    if (!block || !address)
        goto unclaim;
    *block = (berth__listed_block){
        .entry.address = address,
        .size_bytes = size_bytes,
        .taken_bytes = size_bytes,
        .label = berth__request_label(request),
    };
    berth__listed_add(&d->base, block);
    berth__meter_commit(&d->base.meter, size_bytes, claimed);
    *out = (void *)address;
    return BERTH_OK;

unclaim:
    berth__heap_free(block);
    berth__meter_unclaim(&d->base.meter, size_bytes);
    berth__meter_count_failure(&d->base.meter);
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
    berth__meter_sub(&d->base.meter, block->size_bytes);
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
    if (status != BERTH_OK)
        return status;
    *out = moved;
    return dry_deallocate(self, p, old_bytes, NULL);
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

static void dry_destroy(void *self)
{
    struct dry_run *d = self;
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
    if (!berth__listed_init(&d->base, &ops)) {
        berth__heap_free(d);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a dry run's list");
    }
    atomic_init(&d->next, FIRST_ADDRESS);
    if (limit_bytes)
        berth__meter_set_limit(&d->base.meter, limit_bytes);
    *out = &d->base.base;
    return BERTH_OK;
}
