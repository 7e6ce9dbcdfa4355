/* The virtual-time device: the devices themselves, their memory, and calls that fail on demand. */
#include "device/virtual.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/lock.h"

enum { DEVICES = 4096 };

static berth__spin table_lock;
static virtual_device *table[DEVICES]; /* guard: table_lock for writing; NULL: free */
static _Atomic int32_t highest;        /* one more than the highest ordinal ever used */
static int32_t free_hint;              /* guard: table_lock; no ordinal below it is free */

/* ---- Devices ------------------------------------------------------------------------------------- */

berth_status berth_virtual_create(berth_device *out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "out is NULL");
    *out = (berth_device){BERTH_DEVICE_UNKNOWN, 0};
    virtual_device *device = berth__heap_zalloc(1, sizeof *device);
    if (!device)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a virtual device");
    device->waits_run = true;
    berth__spin_lock(&table_lock, BERTH__RANK_DEVICE);
    int32_t ordinal = free_hint;
    while (ordinal < DEVICES && table[ordinal])
        ordinal++;
    if (ordinal < DEVICES) {
        device->ordinal = ordinal;
        table[ordinal] = device;
        free_hint = ordinal + 1;
        if (ordinal >= atomic_load(&highest))
            atomic_store(&highest, ordinal + 1);
    }
    berth__spin_unlock(&table_lock, BERTH__RANK_DEVICE);
    if (ordinal == DEVICES) {
        berth__heap_free(device);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "%d virtual devices are alive already", DEVICES);
    }
    *out = (berth_device){BERTH_DEVICE_VIRTUAL, ordinal};
    return BERTH_OK;
}

static void free_device(virtual_device *device)
{
    berth__spin_lock(&table_lock, BERTH__RANK_DEVICE);
    table[device->ordinal] = NULL;
    if (device->ordinal < free_hint)
        free_hint = device->ordinal;
    berth__spin_unlock(&table_lock, BERTH__RANK_DEVICE);
    berth__heap_free(device);
}

void berth__virtual_leave(virtual_device *device)
{
    if (--device->members == 0 && device->ended)
        free_device(device);
}

/* The table's entry, ended or not; NULL if the ordinal is free. */
static virtual_device *entry(berth_device device)
{
    if (device.kind != BERTH_DEVICE_VIRTUAL || device.ordinal < 0 || device.ordinal >= DEVICES)
        return NULL;
    return table[device.ordinal];
}

virtual_device *berth__virtual_find(berth_device device)
{
    virtual_device *found = entry(device);
    if (found && !found->ended)
        return found;
    (void)berth__fail(BERTH_NOT_FOUND, "there is no virtual device %d", (int)device.ordinal);
    return NULL;
}

berth_status berth_virtual_destroy(berth_device device)
{
    virtual_device *found = berth__virtual_find(device);
    if (!found)
        return BERTH_NOT_FOUND;
    found->members++; /* the reset may free released streams, the last of all */
    berth__virtual_streams_reset(found);
    found->ended = true;
    berth__virtual_leave(found);
    return BERTH_OK;
}

berth_status berth_virtual_reset(berth_device device)
{
    virtual_device *found = berth__virtual_find(device);
    if (!found)
        return BERTH_NOT_FOUND;
    berth__virtual_streams_reset(found);
    memset(found->rules, 0, sizeof found->rules);
    for (int i = 0; i < VIRTUAL_CALLS; i++)
        atomic_store_explicit(&found->calls[i], 0, memory_order_relaxed);
    found->rules_set = false;
    found->waits_run = true;
    found->limit_bytes = 0;
    return BERTH_OK;
}

berth_status berth_virtual_set_waits_run(berth_device device, bool run)
{
    virtual_device *found = berth__virtual_find(device);
    if (!found)
        return BERTH_NOT_FOUND;
    found->waits_run = run;
    return BERTH_OK;
}

/* ---- Failing calls ------------------------------------------------------------------------------- */

static bool is_call(berth_virtual_call call)
{
    return (int)call >= 0 && (int)call < VIRTUAL_CALLS;
}

berth_status berth_virtual_fail(berth_device device, berth_virtual_call call, uint64_t n, berth_status status,
                                bool persist)
{
    virtual_device *found = berth__virtual_find(device);
    if (!found)
        return BERTH_NOT_FOUND;
    if (!is_call(call) || (n > 0 && !status))
        return berth__fail(BERTH_INVALID_ARGUMENT, "call sort %d cannot be made to answer %s", (int)call,
                           berth_status_name(status));
    found->rules[call] = (virtual_rule){n, status, persist};
    found->rules_set = false;
    for (int i = 0; i < VIRTUAL_CALLS; i++)
        found->rules_set |= found->rules[i].countdown > 0;
    return BERTH_OK;
}

uint64_t berth_virtual_calls(berth_device device, berth_virtual_call call)
{
    const virtual_device *found = berth__virtual_find(device);
    if (!found || !is_call(call))
        return 0;
    if (call != BERTH_VIRTUAL_ANY)
        return found->calls[call];
    uint64_t sum = 0;
    for (int i = 1; i < VIRTUAL_CALLS; i++)
        sum += found->calls[i];
    return sum;
}

/* Whether the rule strikes now. */
static bool strikes(virtual_rule *rule)
{
    if (rule->countdown == 0)
        return false;
    if (rule->countdown > 1) {
        rule->countdown--;
        return false;
    }
    if (!rule->persist)
        rule->countdown = 0;
    return true;
}

static berth_status apply_rules(virtual_device *device, berth_virtual_call call)
{
    const berth_virtual_call rules[] = {call, BERTH_VIRTUAL_ANY};
    berth_status status = BERTH_OK;
    for (int i = 0; i < 2; i++)
        if (strikes(&device->rules[rules[i]]) && !status)
            status = device->rules[rules[i]].status;
    if (!status)
        return BERTH_OK;
    return berth__fail_driver(status, call, "made to fail", "virtual device %d was told to fail this call",
                              (int)device->ordinal);
}

berth_status berth__virtual_allow(virtual_device *device, berth_virtual_call call)
{
    atomic_store_explicit(&device->calls[call],
                          atomic_load_explicit(&device->calls[call], memory_order_relaxed) + 1,
                          memory_order_relaxed);
    if (BERTH_UNLIKELY(device->ended))
        return berth__fail(BERTH_DEVICE_LOST, "virtual device %d has been ended", (int)device->ordinal);
    return BERTH_UNLIKELY(device->rules_set) ? apply_rules(device, call) : BERTH_OK;
}

/* ---- Description --------------------------------------------------------------------------------- */

static berth_status virtual_count(void *self, int32_t *count)
{
    (void)self;
    *count = atomic_load_explicit(&highest, memory_order_relaxed);
    return BERTH_OK;
}

static berth_status virtual_describe(void *self, berth_device device, berth_device_info *info)
{
    (void)self;
    const virtual_device *found = berth__virtual_find(device);
    if (!found)
        return BERTH_NOT_FOUND;
    snprintf(info->name, sizeof info->name, "virtual time");
    snprintf(info->driver, sizeof info->driver, "berth");
    info->total_bytes = found->limit_bytes;
    info->memory_kinds = 1u << BERTH_MEMORY_DEVICE | 1u << BERTH_MEMORY_PINNED | 1u << BERTH_MEMORY_MANAGED;
    info->host_accessible = true;
    info->virtual_memory = true;
    return BERTH_OK;
}

/* ---- Memory -------------------------------------------------------------------------------------- */

berth_status berth_virtual_set_memory_limit(berth_device device, uint64_t bytes)
{
    virtual_device *found = berth__virtual_find(device);
    if (!found)
        return BERTH_NOT_FOUND;
    found->limit_bytes = bytes;
    return BERTH_OK;
}

uint64_t berth_virtual_bytes_in_use(berth_device device)
{
    const virtual_device *found = berth__virtual_find(device);
    return found ? atomic_load(&found->bytes_in_use) : 0;
}

static berth_status charge(virtual_device *device, size_t size_bytes, berth_status when_full)
{
    uint64_t used = atomic_load(&device->bytes_in_use);
    if (device->limit_bytes && (used > device->limit_bytes || size_bytes > device->limit_bytes - used))
        return berth__fail(when_full, "%zu bytes exceed what is left of %llu on virtual device %d",
                           size_bytes, (unsigned long long)device->limit_bytes, (int)device->ordinal);
    atomic_fetch_add(&device->bytes_in_use, size_bytes);
    return BERTH_OK;
}

static berth_status virtual_allocate(void *self, berth_device device, berth_memory_kind kind,
                                     size_t size_bytes, size_t alignment, berth_stream *stream, void **out)
{
    (void)self, (void)stream;
    virtual_device *found = berth__virtual_find(device);
    if (!found)
        return BERTH_NOT_FOUND;
    berth_status full = kind == BERTH_MEMORY_PINNED ? BERTH_OUT_OF_HOST_MEMORY : BERTH_OUT_OF_DEVICE_MEMORY;
    berth_status status = berth__virtual_allow(found, BERTH_VIRTUAL_ALLOCATE);
    if (!status)
        status = charge(found, size_bytes, full);
    if (status)
        return status;
    if (posix_memalign(out, alignment < sizeof(void *) ? sizeof(void *) : alignment, size_bytes) != 0) {
        atomic_fetch_sub(&found->bytes_in_use, size_bytes);
        *out = NULL;
        return berth__fail(full, "the system has no %zu bytes for virtual device %d", size_bytes,
                           (int)device.ordinal);
    }
    return BERTH_OK;
}

/* Works on an ended device too: blocks must go somewhere. */
static berth_status virtual_release(void *self, berth_device device, berth_memory_kind kind, void *p,
                                    size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)kind, (void)stream;
    virtual_device *found = entry(device);
    if (found && !found->ended) {
        berth_status status = berth__virtual_allow(found, BERTH_VIRTUAL_RELEASE);
        if (status)
            return status;
        atomic_fetch_sub(&found->bytes_in_use, size_bytes);
    }
    free(p);
    return BERTH_OK;
}

/* ---- Copies -------------------------------------------------------------------------------------- */

static berth_status virtual_copy(void *self, berth_device device, void *dst, const void *src,
                                 size_t size_bytes, berth_copy_kind kind, berth_stream *stream)
{
    (void)self, (void)kind;
    virtual_device *found = stream ? ((virtual_stream *)stream)->device : berth__virtual_find(device);
    berth_status status = found ? berth__virtual_allow(found, BERTH_VIRTUAL_COPY) : BERTH_NOT_FOUND;
    if (status)
        return status;
    virtual_task task = {.kind = VIRTUAL_COPY, .u.copy = {dst, src, size_bytes}};
    if (stream)
        return berth__virtual_enqueue((virtual_stream *)stream, &task);
    memmove(dst, src, size_bytes);
    return BERTH_OK;
}

static berth_status virtual_zero(void *self, berth_device device, void *dst, size_t size_bytes,
                                 berth_stream *stream)
{
    (void)self;
    virtual_device *found = stream ? ((virtual_stream *)stream)->device : berth__virtual_find(device);
    berth_status status = found ? berth__virtual_allow(found, BERTH_VIRTUAL_ZERO) : BERTH_NOT_FOUND;
    if (status)
        return status;
    virtual_task task = {.kind = VIRTUAL_ZERO, .u.copy = {dst, NULL, size_bytes}};
    if (stream)
        return berth__virtual_enqueue((virtual_stream *)stream, &task);
    memset(dst, 0, size_bytes);
    return BERTH_OK;
}

/* ---- Address space: larger steps than the system's pages, as real devices have ------------------- */

enum { PIECE_BYTES = 64 << 10 };

static berth_status virtual_granularity(void *self, berth_device device, size_t *out)
{
    (void)self, (void)device;
    *out = PIECE_BYTES;
    return BERTH_OK;
}

static berth_status allow_map(berth_device device, virtual_device **found)
{
    *found = berth__virtual_find(device);
    return *found ? berth__virtual_allow(*found, BERTH_VIRTUAL_MAP) : BERTH_NOT_FOUND;
}

static berth_status virtual_reserve(void *self, berth_device device, size_t size_bytes, void **out)
{
    (void)self;
    virtual_device *found;
    berth_status status = allow_map(device, &found);
    if (status)
        return status;
    size_t whole = size_bytes + PIECE_BYTES;
    char *p = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return berth__fail_driver(BERTH_OUT_OF_HOST_MEMORY, errno, strerror(errno),
                                  "the system has no %zu bytes of address space", size_bytes);
    size_t before = berth__align_up((uintptr_t)p, PIECE_BYTES) - (uintptr_t)p;
    if (before)
        munmap(p, before);
    munmap(p + before + size_bytes, PIECE_BYTES - before);
    *out = p + before;
    return BERTH_OK;
}

static berth_status virtual_unreserve(void *self, berth_device device, void *base, size_t size_bytes)
{
    (void)self, (void)device;
    munmap(base, size_bytes);
    return BERTH_OK;
}

static berth_status virtual_map(void *self, berth_device device, void *p, size_t size_bytes)
{
    (void)self;
    virtual_device *found;
    berth_status status = allow_map(device, &found);
    if (!status)
        status = charge(found, size_bytes, BERTH_OUT_OF_DEVICE_MEMORY);
    if (status)
        return status;
    if (mprotect(p, size_bytes, PROT_READ | PROT_WRITE) == 0)
        return BERTH_OK;
    atomic_fetch_sub(&found->bytes_in_use, size_bytes);
    return berth__fail_driver(BERTH_OUT_OF_DEVICE_MEMORY, errno, strerror(errno),
                              "%zu bytes at %p could not be mapped", size_bytes, p);
}

static berth_status virtual_unmap(void *self, berth_device device, void *p, size_t size_bytes)
{
    (void)self;
    virtual_device *found;
    berth_status status = allow_map(device, &found);
    if (status)
        return status;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (mmap(p, size_bytes, PROT_NONE, flags, -1, 0) == MAP_FAILED)
        return berth__fail_driver(BERTH_DEVICE_ERROR, errno, strerror(errno),
                                  "%zu bytes at %p could not be unmapped", size_bytes, p);
    atomic_fetch_sub(&found->bytes_in_use, size_bytes);
    return BERTH_OK;
}

const berth_device_ops berth__virtual_device_ops = {
    .struct_size = sizeof(berth_device_ops),
    .name = "virtual",
    .memory_kinds = 1u << BERTH_MEMORY_DEVICE | 1u << BERTH_MEMORY_PINNED | 1u << BERTH_MEMORY_MANAGED,
    .abilities = BERTH_DEVICE_CALLS_USE_DEVICE,
    .count = virtual_count,
    .describe = virtual_describe,
    .allocate = virtual_allocate,
    .release = virtual_release,
    .copy = virtual_copy,
    .zero = virtual_zero,
    .stream_create = berth__virtual_stream_create,
    .stream_destroy = berth__virtual_stream_destroy,
    .stream_query = berth__virtual_stream_query,
    .stream_synchronize = berth__virtual_stream_synchronize,
    .stream_wait_event = berth__virtual_stream_wait_event,
    .stream_call = berth__virtual_stream_call,
    .event_create = berth__virtual_event_create,
    .event_record = berth__virtual_event_record,
    .event_query = berth__virtual_event_query,
    .event_wait = berth__virtual_event_wait,
    .event_destroy = berth__virtual_event_destroy,
    .granularity = virtual_granularity,
    .reserve = virtual_reserve,
    .unreserve = virtual_unreserve,
    .map = virtual_map,
    .unmap = virtual_unmap,
};
