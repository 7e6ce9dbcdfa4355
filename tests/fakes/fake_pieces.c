/* Address space in pieces, with the drivers' rules: sizes in granules, memory mapped where some is reserved and nothing
 * is mapped yet, unmapped as it was mapped, and touched only by devices that were given access. The reserved addresses
 * are never accessible on the host. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fake_memory.h"

enum { MAPPINGS = 16384, RESERVATIONS = 32 };

typedef struct physical {
    int device;
    size_t size_bytes, offset;
    int references; /* the user's, and mappings */
} physical;

/* guard for everything here: the lock of fake_world.c */
static struct {
    char *p;
    size_t size_bytes;
    physical *memory;
    unsigned access; /* a bit for each device */
} mappings[MAPPINGS];
static int mappings_end; /* none is used from here on */
static struct {
    char *p;
    size_t size_bytes;
} reservations[RESERVATIONS];

size_t fake_granularity(void)
{
    const char *told = getenv("FAKE_GPU_GRANULARITY");
    return told ? (size_t)strtoull(told, NULL, 10) : (size_t)2 << 20;
}

static bool is_whole(uintptr_t value)
{
    size_t step = fake_granularity();
    return step > 0 && value % step == 0;
}

static void drop_physical(physical *memory)
{
    if (--memory->references > 0)
        return;
    fake_refund(memory->device, FAKE_DEVICE_BLOCK, memory->size_bytes);
    fake_span_give(memory->device, memory->offset);
    fake_count_live(-1);
    free(memory);
}

int fake_reserve(size_t size_bytes, size_t alignment, void **out)
{
    int code = FAKE_OUT_OF_MEMORY;
    *out = NULL;
    if (size_bytes == 0 || !is_whole(size_bytes))
        return FAKE_INVALID_VALUE;
    char *p =
        mmap(NULL, size_bytes + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return code;
    size_t before = alignment ? (alignment - (uintptr_t)p % alignment) % alignment : 0;
    if (before)
        munmap(p, before);
    if (alignment > before)
        munmap(p + before + size_bytes, alignment - before);
    p += before;
    fake_lock();
    for (int i = 0; i < RESERVATIONS && code != FAKE_OK; i++)
        if (!reservations[i].p) {
            reservations[i].p = p;
            reservations[i].size_bytes = size_bytes;
            fake_count_live(1);
            *out = p;
            code = FAKE_OK;
        }
    fake_unlock();
    if (code != FAKE_OK)
        munmap(p, size_bytes);
    return code;
}

int fake_unreserve(void *base, size_t size_bytes)
{
    fake_lock();
    int found = -1, code = FAKE_OK;
    for (int i = 0; i < RESERVATIONS; i++)
        if (reservations[i].p && reservations[i].p == base && reservations[i].size_bytes == size_bytes)
            found = i;
    if (found < 0)
        code = fake_misuse(FAKE_INVALID_VALUE, "address space is given back that was not reserved so");
    for (int i = 0; i < mappings_end; i++)
        if (mappings[i].p && mappings[i].p >= (char *)base && mappings[i].p < (char *)base + size_bytes)
            code =
                fake_misuse(FAKE_INVALID_VALUE, "address space is given back while memory is mapped in it");
    if (code == FAKE_OK) {
        reservations[found].p = NULL;
        fake_count_live(-1);
        munmap(base, size_bytes);
    }
    fake_unlock();
    return code;
}

int fake_create(int device, size_t size_bytes, void **handle)
{
    *handle = NULL;
    if (size_bytes == 0 || !is_whole(size_bytes))
        return FAKE_INVALID_VALUE;
    physical *memory = calloc(1, sizeof *memory);
    fake_lock();
    bool fits = memory && fake_charge(device, FAKE_DEVICE_BLOCK, size_bytes);
    if (fits && !fake_span_take(device, size_bytes, 4096, &memory->offset)) {
        fake_refund(device, FAKE_DEVICE_BLOCK, size_bytes);
        fits = false;
    }
    if (fits) {
        memory->device = device;
        memory->size_bytes = size_bytes;
        memory->references = 1;
        memset(fake_span_memory(device, memory->offset), 0xc7, 4096); /* not zero, at least where it begins */
        fake_count_live(1);
        *handle = memory;
    }
    fake_unlock();
    if (!fits)
        free(memory);
    return fits ? FAKE_OK : FAKE_OUT_OF_MEMORY;
}

int fake_release(void *handle)
{
    fake_lock();
    drop_physical(handle);
    fake_unlock();
    return FAKE_OK;
}

static bool in_reservation(const char *p, size_t size_bytes)
{
    for (int i = 0; i < RESERVATIONS; i++)
        if (reservations[i].p && p >= reservations[i].p &&
            p + size_bytes <= reservations[i].p + reservations[i].size_bytes)
            return true;
    return false;
}

bool fake_is_reserved(const void *p)
{
    return in_reservation(p, 1);
}

int fake_map(void *at, size_t size_bytes, void *handle)
{
    char *p = at;
    physical *memory = handle;
    int place = -1, code = FAKE_OK;
    fake_lock();
    if (!in_reservation(p, size_bytes) || !is_whole((uintptr_t)p) || memory->size_bytes != size_bytes)
        code =
            fake_misuse(FAKE_INVALID_VALUE, "memory is mapped outside of a reservation, or in wrong steps");
    for (int i = 0; i < mappings_end; i++) {
        if (mappings[i].p && p < mappings[i].p + mappings[i].size_bytes && mappings[i].p < p + size_bytes)
            code = fake_misuse(FAKE_INVALID_VALUE, "memory is mapped where some is mapped already");
        if (!mappings[i].p && place < 0)
            place = i;
    }
    if (code == FAKE_OK && place < 0) {
        if (mappings_end < MAPPINGS)
            place = mappings_end++;
        else
            code = FAKE_OUT_OF_MEMORY; /* the table is full */
    }
    if (code == FAKE_OK) {
        mappings[place].p = p;
        mappings[place].size_bytes = size_bytes;
        mappings[place].memory = memory;
        mappings[place].access = 0;
        memory->references++;
    }
    fake_unlock();
    return code;
}

/* Calls `work` for the mappings that lie in the range; false if they do not cover it exactly. */
static bool covered(const char *p, size_t size_bytes)
{
    size_t sum = 0;
    for (int i = 0; i < mappings_end; i++)
        if (mappings[i].p && mappings[i].p >= p && mappings[i].p + mappings[i].size_bytes <= p + size_bytes)
            sum += mappings[i].size_bytes;
    return sum == size_bytes && size_bytes > 0;
}

int fake_set_access(void *at, size_t size_bytes, int device)
{
    char *p = at;
    int code = FAKE_OK;
    fake_lock();
    if (!covered(p, size_bytes))
        code = fake_misuse(FAKE_INVALID_VALUE, "access is asked for where memory is not mapped so");
    for (int i = 0; code == FAKE_OK && i < mappings_end; i++)
        if (mappings[i].p && mappings[i].p >= p && mappings[i].p < p + size_bytes)
            mappings[i].access |= 1u << device;
    fake_unlock();
    return code;
}

int fake_unmap(void *at, size_t size_bytes)
{
    char *p = at;
    int code = FAKE_OK;
    fake_lock();
    if (!covered(p, size_bytes))
        code = fake_misuse(FAKE_INVALID_VALUE, "memory is unmapped otherwise than it was mapped");
    for (int i = 0; code == FAKE_OK && i < mappings_end; i++)
        if (mappings[i].p && mappings[i].p >= p && mappings[i].p < p + size_bytes) {
            drop_physical(mappings[i].memory);
            mappings[i].p = NULL;
        }
    while (mappings_end > 0 && !mappings[mappings_end - 1].p)
        mappings_end--;
    fake_unlock();
    return code;
}

char *fake_reach_mapped(const void *p, size_t *run_bytes, int *device, bool *accessible, int by_device)
{
    const char *at = p;
    for (int i = 0; i < mappings_end; i++)
        if (mappings[i].p && at >= mappings[i].p && at < mappings[i].p + mappings[i].size_bytes) {
            size_t within = (size_t)(at - mappings[i].p);
            *run_bytes = mappings[i].size_bytes - within;
            *device = mappings[i].memory->device;
            *accessible = mappings[i].access >> by_device & 1;
            return fake_span_memory(mappings[i].memory->device, mappings[i].memory->offset + within);
        }
    return NULL;
}
