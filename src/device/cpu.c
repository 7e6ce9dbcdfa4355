/* The CPU device: ordinary and page-locked memory, copies, and the table of all it can do. */
#include "device/cpu.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static size_t page_bytes(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static berth_status cpu_count(void *self, int32_t *count)
{
    (void)self;
    *count = 1;
    return BERTH_OK;
}

/* The processor's own name where the system tells, else what it is compatible with. */
static void read_name(char *name, size_t room)
{
    snprintf(name, room, "host processor");
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (!file)
        return;
    char line[256];
    while (fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(name, room, "%s", colon + 1 + strspn(colon + 1, " \t"));
        break;
    }
    fclose(file);
}

static berth_status cpu_describe(void *self, berth_device device, berth_device_info *info)
{
    (void)self, (void)device;
    long pages = sysconf(_SC_PHYS_PAGES);
    read_name(info->name, sizeof info->name);
    info->total_bytes = pages > 0 ? (uint64_t)pages * page_bytes() : 0;
    info->memory_kinds = 1u << BERTH_MEMORY_DEVICE | 1u << BERTH_MEMORY_PINNED | 1u << BERTH_MEMORY_MANAGED;
    info->host_accessible = true;
    info->virtual_memory = true;
    return BERTH_OK;
}

/* What the kernel thinks can be taken without swapping; that counts pages of files it would give up. */
static berth_status cpu_memory(void *self, berth_device device, uint64_t *free_bytes, uint64_t *total_bytes)
{
    (void)self, (void)device;
    unsigned long long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %llu kB", &kib) != 1)
        ;
    if (file)
        fclose(file);
    long pages = sysconf(_SC_PHYS_PAGES);
    if (kib == 0 || pages <= 0)
        return berth__fail(BERTH_UNSUPPORTED, "this system does not say how much memory is free");
    *free_bytes = (uint64_t)kib << 10;
    *total_bytes = (uint64_t)pages * page_bytes();
    return BERTH_OK;
}

/* ---- Memory -------------------------------------------------------------------------------------- */

static berth_status no_memory(size_t size_bytes, const char *what)
{
    return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "the system has no %zu bytes of %s memory", size_bytes,
                       what);
}

static void say_not_locked(int error)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    struct rlimit limit = {0};
    if (atomic_flag_test_and_set(&said))
        return;
    getrlimit(RLIMIT_MEMLOCK, &limit);
    berth__log(BERTH_LOG_INFO,
               "pinned memory is in use but not all of it is locked (%s; the limit is %llu bytes): it works, "
               "but may be paged out; raise RLIMIT_MEMLOCK (ulimit -l) to lock it",
               strerror(error), (unsigned long long)limit.rlim_cur);
}

/* Fresh pages at an alignment, MAP_FAILED if there are none: what is too much at both ends goes back. */
static void *map_aligned(size_t size_bytes, size_t alignment, int protection, int flags)
{
    size_t page = page_bytes();
    size_t extra = alignment > page ? alignment - page : 0;
    char *p = mmap(NULL, size_bytes + extra, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (p == MAP_FAILED || !extra)
        return p;
    size_t before = berth__align_up((uintptr_t)p, alignment) - (uintptr_t)p;
    if (before)
        munmap(p, before);
    if (extra > before)
        munmap(p + before + size_bytes, extra - before);
    return p + before;
}

static berth_status allocate_pinned(size_t size_bytes, size_t alignment, void **out)
{
    size_t size = berth__align_up(size_bytes, page_bytes());
    void *p = map_aligned(size, alignment, PROT_READ | PROT_WRITE, 0);
    if (p == MAP_FAILED)
        return no_memory(size_bytes, "pinned");
    if (mlock(p, size) != 0)
        say_not_locked(errno);
    *out = p;
    return BERTH_OK;
}

static berth_status cpu_allocate(void *self, berth_device device, berth_memory_kind kind, size_t size_bytes,
                                 size_t alignment, berth_stream *stream, void **out)
{
    (void)self, (void)device, (void)stream;
    if (kind == BERTH_MEMORY_PINNED)
        return allocate_pinned(size_bytes, alignment, out);
    void *p = NULL;
    if (posix_memalign(&p, alignment < sizeof(void *) ? sizeof(void *) : alignment, size_bytes) != 0)
        return no_memory(size_bytes, "host");
    *out = p;
    return BERTH_OK;
}

static berth_status cpu_release(void *self, berth_device device, berth_memory_kind kind, void *p,
                                size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)device, (void)stream;
    if (kind != BERTH_MEMORY_PINNED)
        free(p);
    else if (munmap(p, berth__align_up(size_bytes, page_bytes())) != 0)
        return berth__fail_driver(BERTH_BAD_FREE, errno, strerror(errno),
                                  "%p is not a pinned block of %zu bytes", p, size_bytes);
    return BERTH_OK;
}

/* ---- Copies -------------------------------------------------------------------------------------- */

static berth_status cpu_copy(void *self, berth_device device, void *dst, const void *src, size_t size_bytes,
                             berth_copy_kind kind, berth_stream *stream)
{
    (void)self, (void)device, (void)kind;
    if (!stream) {
        memmove(dst, src, size_bytes);
        return BERTH_OK;
    }
    cpu_task task = {.kind = CPU_COPY, .u.copy = {dst, src, size_bytes}};
    return berth__cpu_enqueue((cpu_stream *)stream, &task);
}

static berth_status cpu_zero(void *self, berth_device device, void *dst, size_t size_bytes,
                             berth_stream *stream)
{
    (void)self, (void)device;
    if (!stream) {
        memset(dst, 0, size_bytes);
        return BERTH_OK;
    }
    cpu_task task = {.kind = CPU_ZERO, .u.copy = {dst, NULL, size_bytes}};
    return berth__cpu_enqueue((cpu_stream *)stream, &task);
}

/* ---- Address space ------------------------------------------------------------------------------- */

static berth_status cpu_granularity(void *self, berth_device device, size_t *out)
{
    (void)self, (void)device;
    *out = page_bytes();
    return BERTH_OK;
}

/* At the start of a huge page: then huge pages fit, and a program's places in it do not vary from run to run. */
static berth_status cpu_reserve(void *self, berth_device device, size_t size_bytes, void **out)
{
    (void)self, (void)device;
    void *p = map_aligned(size_bytes, (size_t)2 << 20, PROT_NONE, MAP_NORESERVE);
    if (p == MAP_FAILED)
        return berth__fail_driver(BERTH_OUT_OF_HOST_MEMORY, errno, strerror(errno),
                                  "the system has no %zu bytes of address space", size_bytes);
    *out = p;
    return BERTH_OK;
}

static berth_status cpu_unreserve(void *self, berth_device device, void *base, size_t size_bytes)
{
    (void)self, (void)device;
    if (munmap(base, size_bytes) != 0)
        return berth__fail_driver(BERTH_BAD_FREE, errno, strerror(errno),
                                  "%p is not a reservation of %zu bytes", base, size_bytes);
    return BERTH_OK;
}

static berth_status cpu_map(void *self, berth_device device, void *p, size_t size_bytes)
{
    (void)self, (void)device;
    if (mprotect(p, size_bytes, PROT_READ | PROT_WRITE) != 0)
        return berth__fail_driver(BERTH_OUT_OF_HOST_MEMORY, errno, strerror(errno),
                                  "%zu bytes at %p could not be mapped", size_bytes, p);
    return BERTH_OK;
}

/* A fresh mapping in the same place gives the pages back and keeps the addresses. */
static berth_status cpu_unmap(void *self, berth_device device, void *p, size_t size_bytes)
{
    (void)self, (void)device;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    if (mmap(p, size_bytes, PROT_NONE, flags, -1, 0) == MAP_FAILED)
        return berth__fail_driver(BERTH_OUT_OF_HOST_MEMORY, errno, strerror(errno),
                                  "%zu bytes at %p could not be unmapped", size_bytes, p);
    return BERTH_OK;
}

const berth_device_ops berth__cpu_device_ops = {
    .struct_size = sizeof(berth_device_ops),
    .name = "cpu",
    .memory_kinds = 1u << BERTH_MEMORY_DEVICE | 1u << BERTH_MEMORY_PINNED | 1u << BERTH_MEMORY_MANAGED,
    .abilities = BERTH_DEVICE_CALLS_USE_DEVICE,
    .count = cpu_count,
    .describe = cpu_describe,
    .memory = cpu_memory,
    .allocate = cpu_allocate,
    .release = cpu_release,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .stream_create = berth__cpu_stream_create,
    .stream_destroy = berth__cpu_stream_destroy,
    .stream_query = berth__cpu_stream_query,
    .stream_synchronize = berth__cpu_stream_synchronize,
    .stream_wait_event = berth__cpu_stream_wait_event,
    .stream_call = berth__cpu_stream_call,
    .event_create = berth__cpu_event_create,
    .event_record = berth__cpu_event_record,
    .event_query = berth__cpu_event_query,
    .event_wait = berth__cpu_event_wait,
    .event_destroy = berth__cpu_event_destroy,
    .granularity = cpu_granularity,
    .reserve = cpu_reserve,
    .unreserve = cpu_unreserve,
    .map = cpu_map,
    .unmap = cpu_unmap,
};
