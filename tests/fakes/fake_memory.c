/* The stand-in's memory. Device memory lies in a memory file that is mapped twice: where the program gets its addresses
 * from it cannot be touched, and the driver itself goes through the other mapping. So a program that reads device memory
 * on the host dies here as it does on hardware.
 *
 *      program:  shown + offset   (no access)
 *      driver:   real  + offset
 *
 * Every block is known while it lives and for a while after, so that use after free and wrong frees are seen. */
#include "fake_memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BLOCKS = 4096, SPANS = 16384, KEPT_FREED = 64, ALIGNMENT = 256 };
static const size_t FILE_BYTES = (size_t)64 << 30; /* sparse */

/* guard for everything here: the lock of fake_world.c */
typedef struct block {
    char *p; /* NULL: an empty place in the table */
    size_t size_bytes;
    int device;
    fake_kind kind;
    bool freed; /* kept, poisoned, until KEPT_FREED later ones have been freed */
} block;

typedef struct span {
    size_t offset, size_bytes;
} span;

static struct {
    char *shown, *real;
    span spans[SPANS]; /* in order of offset */
    int count;
} files[FAKE_DEVICES];

static block blocks[BLOCKS];
static int blocks_end; /* none is used from here on */
static block *kept[KEPT_FREED];
static unsigned kept_next;
static bool reuse_at_once;
static uint64_t limit_bytes = (uint64_t)1 << 30, used_bytes[FAKE_DEVICES], used_host_bytes;
static struct {
    char *p;
    size_t size_bytes;
} registered[64];

/* ---- Physical memory --------------------------------------------------------------------------------- */

static bool is_host(fake_kind kind)
{
    return kind == FAKE_HOST_BLOCK || kind == FAKE_MANAGED_BLOCK;
}

static uint64_t *account(int device, fake_kind kind)
{
    return kind == FAKE_HOST_BLOCK ? &used_host_bytes : &used_bytes[device];
}

bool fake_charge(int device, fake_kind kind, size_t size_bytes)
{
    uint64_t *used = account(device, kind);
    if (size_bytes > limit_bytes || *used > limit_bytes - size_bytes)
        return false;
    *used += size_bytes;
    return true;
}

void fake_refund(int device, fake_kind kind, size_t size_bytes)
{
    *account(device, kind) -= size_bytes;
}

static bool open_file(int device)
{
    if (files[device].real)
        return true;
    int fd = memfd_create("stand-in", MFD_CLOEXEC);
    if (fd < 0)
        return false;
    char *shown = MAP_FAILED, *real = MAP_FAILED;
    if (ftruncate(fd, (off_t)FILE_BYTES) == 0) {
        shown = mmap(NULL, FILE_BYTES, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
        real = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    }
    close(fd);
    if (shown == MAP_FAILED || real == MAP_FAILED)
        return false;
    (void)madvise(real, FILE_BYTES, MADV_DONTDUMP);
    (void)madvise(shown, FILE_BYTES, MADV_DONTDUMP);
    files[device].shown = shown;
    files[device].real = real;
    return true;
}

/* First fit: what was given back last is handed out first if it lies low. */
bool fake_span_take(int device, size_t size_bytes, size_t alignment, size_t *offset)
{
    if (!open_file(device) || files[device].count == SPANS)
        return false;
    span *spans = files[device].spans;
    size_t from = 0;
    int i = 0;
    for (; i < files[device].count; i++) {
        if (from + size_bytes <= spans[i].offset)
            break;
        size_t end = spans[i].offset + spans[i].size_bytes;
        from = (end + alignment - 1) / alignment * alignment;
    }
    if (from + size_bytes > FILE_BYTES)
        return false;
    memmove(&spans[i + 1], &spans[i], (size_t)(files[device].count - i) * sizeof *spans);
    spans[i] = (span){from, size_bytes ? size_bytes : 1};
    files[device].count++;
    *offset = from;
    return true;
}

void fake_span_give(int device, size_t offset)
{
    span *spans = files[device].spans;
    for (int i = 0; i < files[device].count; i++)
        if (spans[i].offset == offset) {
            if (spans[i].size_bytes >= 1 << 20) /* back to the system, so that tests may be large */
                (void)madvise(files[device].real + offset, spans[i].size_bytes, MADV_REMOVE);
            files[device].count--;
            memmove(&spans[i], &spans[i + 1], (size_t)(files[device].count - i) * sizeof *spans);
            return;
        }
}

char *fake_span_memory(int device, size_t offset)
{
    return files[device].real + offset;
}

/* The device in whose file `p` lies, -1 if in none. */
static int file_of(const void *p)
{
    for (int i = 0; i < FAKE_DEVICES; i++)
        if (files[i].shown && (const char *)p >= files[i].shown &&
            (const char *)p < files[i].shown + FILE_BYTES)
            return i;
    return -1;
}

/* ---- Blocks ------------------------------------------------------------------------------------------ */

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

static char *take_memory(int device, fake_kind kind, size_t size_bytes)
{
    void *p = NULL;
    size_t offset = 0;
    if (is_host(kind))
        return posix_memalign(&p, ALIGNMENT, size_bytes ? size_bytes : 1) == 0 ? p : NULL;
    return fake_span_take(device, size_bytes, ALIGNMENT, &offset) ? files[device].shown + offset : NULL;
}

static void give_memory(const block *b)
{
    int device = file_of(b->p);
    if (device < 0)
        free(b->p);
    else
        fake_span_give(device, (size_t)(b->p - files[device].shown));
}

static void poison(const block *b, int value)
{
    int device = file_of(b->p);
    memset(device < 0 ? b->p : files[device].real + (b->p - files[device].shown), value, b->size_bytes);
}

int fake_take(int device, fake_kind kind, size_t size_bytes, void *stream, void **out)
{
    (void)stream;
    int code = FAKE_OUT_OF_MEMORY;
    *out = NULL;
    fake_lock();
    block *b = empty_place();
    if (b && fake_charge(device, kind, size_bytes)) {
        char *p = take_memory(device, kind, size_bytes);
        if (p) {
            *b = (block){p, size_bytes, device, kind, false};
            poison(b, 0xc7); /* nothing may rely on fresh memory being zero */
            fake_count_live(1);
            *out = p;
            code = FAKE_OK;
        } else {
            fake_refund(device, kind, size_bytes);
        }
    }
    fake_unlock();
    return code;
}

static void forget(block *b)
{
    give_memory(b);
    b->p = NULL;
    while (blocks_end > 0 && !blocks[blocks_end - 1].p)
        blocks_end--;
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
    fake_refund(b->device, b->kind, b->size_bytes);
    poison(b, 0xdd);
    b->freed = true;
    fake_count_live(-1);
    if (reuse_at_once) {
        forget(b);
        return FAKE_OK;
    }
    if (kept[kept_next])
        forget(kept[kept_next]);
    kept[kept_next] = b;
    kept_next = (kept_next + 1) % KEPT_FREED;
    return FAKE_OK;
}

/* ---- Who may touch what ------------------------------------------------------------------------------ */

static const block *block_around(const void *p)
{
    for (int i = 0; i < blocks_end; i++) {
        const block *b = &blocks[i];
        if (b->p && (const char *)p >= b->p && (const char *)p < b->p + b->size_bytes)
            return b;
    }
    return NULL;
}

static void check_mapped(const char *p, size_t size_bytes, int device)
{
    for (size_t done = 0; done < size_bytes;) {
        size_t run = 0;
        int owner = 0;
        bool accessible = false;
        if (!fake_reach_mapped(p + done, &run, &owner, &accessible, device)) {
            (void)fake_misuse(0, "an operation runs on address space where nothing is mapped");
            return;
        }
        if (!accessible) {
            (void)fake_misuse(0, "an operation runs on memory that its device was given no access to");
            return;
        }
        done += run;
    }
}

void fake_check_range(const void *p, size_t size_bytes, int device)
{
    if (fake_is_reserved(p)) {
        check_mapped(p, size_bytes, device);
        return;
    }
    const block *b = block_around(p);
    if (!b && file_of(p) >= 0)
        (void)fake_misuse(0, "an operation runs where no block is");
    if (!b)
        return; /* the program's own memory */
    if (b->freed)
        (void)fake_misuse(0, "an operation runs on a block that has been freed");
    else if (size_bytes > (size_t)(b->p + b->size_bytes - (const char *)p))
        (void)fake_misuse(0, "an operation runs over the end of its block");
}

int fake_owner(const void *p)
{
    size_t run;
    int device = -1;
    bool accessible;
    if (fake_reach_mapped(p, &run, &device, &accessible, 0))
        return device;
    const block *b = block_around(p);
    return b && !is_host(b->kind) ? b->device : -1;
}

char *fake_reach(const void *p, size_t *run_bytes)
{
    int device = file_of(p);
    bool accessible;
    *run_bytes = SIZE_MAX;
    if (device >= 0)
        return files[device].real + ((const char *)p - files[device].shown);
    char *mapped = fake_reach_mapped(p, run_bytes, &device, &accessible, 0);
    if (!mapped)
        *run_bytes = SIZE_MAX;
    return mapped ? mapped : (char *)(uintptr_t)p;
}

/* ---- The program's own memory, registered --------------------------------------------------------------- */

int fake_register(void *p, size_t size_bytes)
{
    int code = FAKE_OUT_OF_MEMORY;
    fake_lock();
    for (size_t i = 0; i < sizeof registered / sizeof *registered; i++) {
        if (registered[i].p && (char *)p < registered[i].p + registered[i].size_bytes &&
            registered[i].p < (char *)p + size_bytes) {
            code = 712; /* already registered */
            break;
        }
        if (!registered[i].p && code != FAKE_OK) {
            registered[i].p = p;
            registered[i].size_bytes = size_bytes;
            fake_count_live(1);
            code = FAKE_OK;
            break;
        }
    }
    fake_unlock();
    return code;
}

int fake_unregister(void *p)
{
    int code = 713; /* not registered */
    fake_lock();
    for (size_t i = 0; i < sizeof registered / sizeof *registered; i++)
        if (registered[i].p == p && p) {
            registered[i].p = NULL;
            fake_count_live(-1);
            code = FAKE_OK;
        }
    fake_unlock();
    return code;
}

/* ---- Sharing and moving ------------------------------------------------------------------------------- */

bool fake_is_managed(const void *p)
{
    fake_lock();
    const block *b = block_around(p);
    bool managed = b && !b->freed && b->kind == FAKE_MANAGED_BLOCK;
    fake_unlock();
    return managed;
}

/* A handle is the file's offset and the block's size: good in this process and, as the memory file is shared, in its
 * children. */
typedef struct shared {
    uint64_t magic, device, offset, size_bytes;
} shared;

enum { SHARED_MAGIC = 0x5a5a1234 };

int fake_share(void *p, char bytes[64])
{
    fake_lock();
    const block *b = find_block(p);
    int device = file_of(p);
    int code = b && device >= 0 && b->kind == FAKE_DEVICE_BLOCK ? FAKE_OK : FAKE_INVALID_VALUE;
    if (code == FAKE_OK) {
        shared handle = {SHARED_MAGIC, (uint64_t)device, (uint64_t)(b->p - files[device].shown),
                         b->size_bytes};
        memcpy(bytes, &handle, sizeof handle);
    }
    fake_unlock();
    return code;
}

int fake_open_shared(const char bytes[64], void **out)
{
    shared handle;
    memcpy(&handle, bytes, sizeof handle);
    if (handle.magic != SHARED_MAGIC || handle.device >= FAKE_DEVICES)
        return FAKE_INVALID_HANDLE;
    fake_lock();
    *out = files[handle.device].shown + handle.offset;
    fake_count_live(1);
    fake_unlock();
    return FAKE_OK;
}

int fake_close_shared(void *p)
{
    fake_lock();
    int code = file_of(p) >= 0 ? FAKE_OK : FAKE_INVALID_VALUE;
    if (code == FAKE_OK)
        fake_count_live(-1);
    fake_unlock();
    return code;
}

/* ---- For tests --------------------------------------------------------------------------------------- */

void fake_memory_info(int device, size_t *free_bytes, size_t *total_bytes)
{
    fake_lock();
    *total_bytes = (size_t)limit_bytes;
    *free_bytes = (size_t)(limit_bytes > used_bytes[device] ? limit_bytes - used_bytes[device] : 0);
    fake_unlock();
}

void fake_gpu_limit(uint64_t bytes_a_device)
{
    fake_lock();
    limit_bytes = bytes_a_device;
    fake_unlock();
}

void fake_gpu_reuse(bool at_once)
{
    fake_lock();
    reuse_at_once = at_once;
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

bool fake_gpu_peek(const void *p, void *out, size_t size_bytes)
{
    fake_lock();
    bool ours = fake_owner(p) >= 0;
    for (size_t done = 0; ours && done < size_bytes;) {
        size_t run = 0;
        const char *from = fake_reach((const char *)p + done, &run);
        size_t part = run < size_bytes - done ? run : size_bytes - done;
        memcpy((char *)out + done, from, part);
        done += part;
    }
    fake_unlock();
    return ours;
}
