/* The stand-in's memory: every block is known while it lives and for a while after, so that use after free
 * and wrong frees are seen; address space is mapped in pieces with the same suspicion. */
#include "fake_memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BLOCKS = 4096, KEPT_FREED = 64, ALIGNMENT = 256 };

/* guard for everything here: the lock of fake_gpu.c */
typedef struct block {
    char *p; /* NULL: an empty place in the table */
    size_t size_bytes;
    int device;
    fake_kind kind;
    bool freed; /* kept, poisoned, until KEPT_FREED later ones have been freed */
} block;

static block blocks[BLOCKS];
static int blocks_end; /* none is used from here on */
static block *kept[KEPT_FREED];
static unsigned kept_next;
static uint64_t limit_bytes = (uint64_t)1 << 30, used_bytes[FAKE_DEVICES], used_host_bytes;

static uint64_t *account(int device, fake_kind kind)
{
    return kind == FAKE_HOST_BLOCK ? &used_host_bytes : &used_bytes[device];
}

static bool charge(int device, fake_kind kind, size_t size_bytes)
{
    uint64_t *used = account(device, kind);
    if (size_bytes > limit_bytes || *used > limit_bytes - size_bytes)
        return false;
    *used += size_bytes;
    return true;
}

static block *find_block(const void *p)
{
    for (int i = 0; i < blocks_end; i++)
        if (blocks[i].p && blocks[i].p == (const char *)p && !blocks[i].freed)
            return &blocks[i];
    return NULL;
}

static block *empty_place(void)
{
    for (int i = 0; i < blocks_end; i++)
        if (!blocks[i].p)
            return &blocks[i];
    return blocks_end < BLOCKS ? &blocks[blocks_end++] : NULL;
}

int fake_take(int device, fake_kind kind, size_t size_bytes, void *stream, void **out)
{
    (void)stream;
    int code = FAKE_OUT_OF_MEMORY;
    *out = NULL;
    fake_lock();
    block *b = empty_place();
    if (b && charge(device, kind, size_bytes)) {
        void *p = NULL;
        if (posix_memalign(&p, ALIGNMENT, size_bytes ? size_bytes : 1) == 0) {
            memset(p, 0xc7, size_bytes); /* nothing may rely on fresh memory being zero */
            *b = (block){p, size_bytes, device, kind, false};
            fake_count_live(1);
            *out = p;
            code = FAKE_OK;
        } else {
            *account(device, kind) -= size_bytes;
        }
    }
    fake_unlock();
    return code;
}

int fake_free_block(void *p, bool host, bool async)
{
    block *b = find_block(p);
    if (!b)
        return fake_misuse(FAKE_INVALID_VALUE, "a block is freed that is not alive");
    if (host != (b->kind == FAKE_HOST_BLOCK))
        return fake_misuse(FAKE_INVALID_VALUE, "a block is freed by the wrong function");
    if (async && b->kind != FAKE_ASYNC_BLOCK)
        return fake_misuse(FAKE_INVALID_VALUE, "a block that is not stream-ordered is freed on a stream");
    *account(b->device, b->kind) -= b->size_bytes;
    memset(b->p, 0xdd, b->size_bytes);
    b->freed = true;
    fake_count_live(-1);
    block *oldest = kept[kept_next];
    if (oldest) {
        free(oldest->p);
        oldest->p = NULL;
        while (blocks_end > 0 && !blocks[blocks_end - 1].p)
            blocks_end--;
    }
    kept[kept_next] = b;
    kept_next = (kept_next + 1) % KEPT_FREED;
    return FAKE_OK;
}

void fake_check_range(const void *p, size_t size_bytes)
{
    const char *first = p;
    for (int i = 0; i < blocks_end; i++) {
        const block *b = &blocks[i];
        if (!b->p || first < b->p || first >= b->p + b->size_bytes)
            continue;
        if (b->freed)
            (void)fake_misuse(0, "an operation runs on a block that has been freed");
        else if (size_bytes > (size_t)(b->p + b->size_bytes - first))
            (void)fake_misuse(0, "an operation runs over the end of its block");
    }
}

bool fake_is_block(const void *p)
{
    for (int i = 0; i < blocks_end; i++)
        if (blocks[i].p && !blocks[i].freed && (const char *)p >= blocks[i].p &&
            (const char *)p < blocks[i].p + blocks[i].size_bytes)
            return true;
    return false;
}

bool fake_same_block(const void *p, const void *beginning)
{
    const block *b = find_block(beginning);
    return b && (const char *)p >= b->p && (const char *)p < b->p + b->size_bytes;
}

bool fake_is_host_block(const void *p)
{
    const block *b = find_block(p);
    return b && b->kind == FAKE_HOST_BLOCK;
}

void fake_gpu_limit(uint64_t bytes_a_device)
{
    fake_lock();
    limit_bytes = bytes_a_device;
    fake_unlock();
}

uint64_t fake_gpu_bytes(void)
{
    fake_lock();
    uint64_t sum = used_host_bytes;
    for (int i = 0; i < FAKE_DEVICES; i++)
        sum += used_bytes[i];
    fake_unlock();
    return sum;
}

/* ---- Address space ----------------------------------------------------------------------------------- */

enum { MAPPINGS = 256, RESERVATIONS = 32 };

typedef struct physical {
    int device;
    size_t size_bytes;
    int references; /* the user's, and mappings */
} physical;

typedef struct mapping {
    char *p;
    size_t size_bytes;
    physical *memory;
} mapping;

static mapping mappings[MAPPINGS];
static struct {
    char *p;
    size_t size_bytes;
} reservations[RESERVATIONS];

static void drop_physical(physical *memory)
{
    if (--memory->references > 0)
        return;
    *account(memory->device, FAKE_DEVICE_BLOCK) -= memory->size_bytes;
    fake_count_live(-1);
    free(memory);
}

int fake_reserve(size_t size_bytes, size_t alignment, void **out)
{
    int code = FAKE_OUT_OF_MEMORY;
    *out = NULL;
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
    return code;
}

int fake_unreserve(void *base, size_t size_bytes)
{
    fake_lock();
    int code = FAKE_INVALID_VALUE;
    for (int i = 0; i < RESERVATIONS && code != FAKE_OK; i++)
        if (reservations[i].p == base && reservations[i].size_bytes == size_bytes) {
            code = FAKE_OK;
            reservations[i].p = NULL;
        }
    if (code != FAKE_OK)
        (void)fake_misuse(code, "address space is given back that was not reserved so");
    for (int i = 0; i < MAPPINGS; i++)
        if (mappings[i].p && mappings[i].p >= (char *)base && mappings[i].p < (char *)base + size_bytes)
            code =
                fake_misuse(FAKE_INVALID_VALUE, "address space is given back while memory is mapped in it");
    if (code == FAKE_OK) {
        fake_count_live(-1);
        munmap(base, size_bytes);
    }
    fake_unlock();
    return code;
}

int fake_create(int device, size_t size_bytes, void **handle)
{
    *handle = NULL;
    if (size_bytes == 0 || size_bytes % FAKE_PIECE != 0)
        return FAKE_INVALID_VALUE;
    physical *memory = malloc(sizeof *memory);
    fake_lock();
    bool fits = memory && charge(device, FAKE_DEVICE_BLOCK, size_bytes);
    if (fits) {
        *memory = (physical){device, size_bytes, 1};
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

int fake_map(void *at, size_t size_bytes, void *handle)
{
    char *p = at;
    physical *memory = handle;
    mapping *place = NULL;
    int code = FAKE_OK;
    fake_lock();
    if (!in_reservation(p, size_bytes) || (uintptr_t)p % FAKE_PIECE != 0 || memory->size_bytes != size_bytes)
        code =
            fake_misuse(FAKE_INVALID_VALUE, "memory is mapped outside of a reservation, or in wrong steps");
    for (int i = 0; i < MAPPINGS; i++) {
        if (mappings[i].p && p < mappings[i].p + mappings[i].size_bytes && mappings[i].p < p + size_bytes)
            code = fake_misuse(FAKE_INVALID_VALUE, "memory is mapped where some is mapped already");
        if (!mappings[i].p && !place)
            place = &mappings[i];
    }
    if (code == FAKE_OK && place) {
        *place = (mapping){p, size_bytes, memory};
        memory->references++;
    }
    fake_unlock();
    return code;
}

int fake_set_access(void *p, size_t size_bytes)
{
    return mprotect(p, size_bytes, PROT_READ | PROT_WRITE) == 0 ? FAKE_OK : FAKE_OUT_OF_MEMORY;
}

int fake_unmap(void *p, size_t size_bytes)
{
    bool found = false;
    fake_lock();
    for (int i = 0; i < MAPPINGS; i++)
        if (mappings[i].p == p && mappings[i].size_bytes == size_bytes) {
            drop_physical(mappings[i].memory);
            mappings[i].p = NULL;
            found = true;
        }
    int code =
        found ? FAKE_OK : fake_misuse(FAKE_INVALID_VALUE, "memory is unmapped otherwise than it was mapped");
    if (found)
        (void)mmap(p, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    fake_unlock();
    return code;
}
