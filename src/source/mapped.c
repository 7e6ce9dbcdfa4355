/* The mapped source: host memory straight from the kernel, where the caller has a say in which pages it is.
 *
 * These are the options of the system source that malloc cannot honour: huge pages, a NUMA node, prefault and
 * locking are properties of mappings, and setting them on pages of the C heap would reach other blocks too.
 * So each block is a mapping of its own, and the C heap stays as it is. */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/lock.h"
#include "berth/source.h"
#include "source/listed.h"

#define HUGE_PAGE ((size_t)2 << 20)

/* The kernel's number (since Linux 5.14), which older headers lack. */
enum { populate_write = 23 };

struct mapped {
    berth__listed base;
    berth_mapped_options options;
    size_t page_bytes;
};

/* ---- NUMA ---------------------------------------------------------------------------------------- */

static int (*numa_available)(void);
static int (*numa_max_node)(void);
static void (*numa_tonode_memory)(void *start, size_t size_bytes, int node);
static bool has_numa; /* written by `once` */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load_numa(void)
{
    berth__fork_enter(BERTH__RANK_LOADING); /* a fork waits: see berth__library_open */
    void *library = dlopen("libnuma.so.1", RTLD_NOW | RTLD_LOCAL);
    berth__fork_leave(BERTH__RANK_LOADING);
    if (!library)
        return;
    void *symbols[3] = {dlsym(library, "numa_available"), dlsym(library, "numa_max_node"),
                        dlsym(library, "numa_tonode_memory")};
    if (!symbols[0] || !symbols[1] || !symbols[2]) {
        dlclose(library);
        return;
    }
    /* ISO C has no conversion from an object pointer to a function pointer; dlsym's users copy the bits. */
    memcpy(&numa_available, &symbols[0], sizeof symbols[0]);
    memcpy(&numa_max_node, &symbols[1], sizeof symbols[1]);
    memcpy(&numa_tonode_memory, &symbols[2], sizeof symbols[2]);
    has_numa = numa_available() >= 0;
}

static berth_status check_node(int32_t node)
{
    if (node == BERTH_ANY_NODE)
        return BERTH_OK;
    if (node < 0)
        return berth__fail(BERTH_INVALID_ARGUMENT, "NUMA node %d: nodes count from 0, BERTH_ANY_NODE is none",
                           node);
    pthread_once(&once, load_numa);
    if (!has_numa)
        return berth__fail(BERTH_UNSUPPORTED,
                           "NUMA node %d cannot be chosen: libnuma.so.1 is not installed, "
                           "or the kernel has no NUMA support",
                           node);
    if (node > numa_max_node())
        return berth__fail(BERTH_NOT_FOUND, "there is no NUMA node %d: the machine's last is %d", node,
                           numa_max_node());
    return BERTH_OK;
}

/* ---- Mappings ------------------------------------------------------------------------------------ */

/* `size_bytes` (whole pages) at a multiple of `alignment`: more is mapped, and the ends are given back. */
static void *map_aligned(const struct mapped *m, size_t size_bytes, size_t alignment)
{
    size_t slack = alignment > m->page_bytes ? alignment : 0;
    char *raw = mmap(NULL, size_bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    if (!slack)
        return raw;
    char *start = (char *)(((uintptr_t)raw + alignment - 1) & ~(uintptr_t)(alignment - 1));
    if (start != raw)
        munmap(raw, (size_t)(start - raw));
    if (start + size_bytes != raw + size_bytes + slack)
        munmap(start + size_bytes, (size_t)(raw + slack - start));
    return start;
}

/* Touches every page; where the kernel cannot do it at once, one write each. The pages are zero already. */
static void mapped_prefault(const struct mapped *m, char *start, size_t size_bytes)
{
    if (madvise(start, size_bytes, populate_write) == 0)
        return;
    for (size_t at = 0; at < size_bytes; at += m->page_bytes)
        ((volatile char *)start)[at] = 0;
}

/* In this order: the node before the first page comes, and locking last, since it brings them all. */
static berth_status mapped_prepare(const struct mapped *m, char *start, size_t size_bytes)
{
    if (m->options.huge_pages && size_bytes >= HUGE_PAGE)
        (void)madvise(start, size_bytes,
                      MADV_HUGEPAGE); /* advice: a kernel without them serves small pages */
    if (m->options.numa_node != BERTH_ANY_NODE)
        numa_tonode_memory(start, size_bytes, m->options.numa_node);
    if (m->options.prefault)
        mapped_prefault(m, start, size_bytes);
    if (m->options.lock_pages && mlock(start, size_bytes) != 0)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY,
                           "%zu bytes cannot be locked in memory: %s; raise RLIMIT_MEMLOCK (ulimit -l)",
                           size_bytes, strerror(errno));
    return BERTH_OK;
}

static berth_status mapped_allocate(void *self, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    struct mapped *m = self; /* BERTH_ZEROED needs nothing: fresh pages are zero */
    size_t bytes = berth__align_up(size_bytes ? size_bytes : 1, m->page_bytes);
    if (m->options.huge_pages && bytes >= HUGE_PAGE && alignment < HUGE_PAGE)
        alignment = HUGE_PAGE;
    berth_status status = BERTH_OUT_OF_HOST_MEMORY;
    berth__listed_block *block = berth__heap_alloc(sizeof *block);
    char *start = block ? map_aligned(m, bytes, alignment) : NULL;
    if (!start) {
        status = berth__fail(status, "the kernel maps no %zu bytes at alignment %zu: %s", bytes, alignment,
                             block ? strerror(errno) : "no memory to keep note of them");
        goto free_block;
    }
    status = mapped_prepare(m, start, bytes);
    if (status)
        goto unmap;
    *block = (berth__listed_block){
        .entry.address = (uintptr_t)start,
        .size_bytes = size_bytes,
        .taken_bytes = bytes,
        .label = berth__request_label(request),
    };
    berth__listed_add(&m->base, block);
    berth__meter_take(&m->base.meter, bytes);
    *out = start;
    return BERTH_OK;

unmap:
    munmap(start, bytes);
free_block:
    berth__heap_free(block);
    berth__slots_count_failure(&m->base.meter.slots);
    return status;
}

static berth_status mapped_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)size_bytes, (void)stream;
    struct mapped *m = self;
    berth__listed_block *block = berth__listed_take(&m->base, p);
    if (!block)
        return BERTH_BAD_FREE;
    munmap(p, (size_t)block->taken_bytes);
    berth__meter_give(&m->base.meter, block->taken_bytes);
    berth__heap_free(block);
    return BERTH_OK;
}

static const char *mapped_name(void *self)
{
    (void)self;
    return "mapped";
}

static size_t mapped_granularity(void *self)
{
    const struct mapped *m = self;
    return m->options.huge_pages ? HUGE_PAGE : m->page_bytes; /* less than a huge page gets small ones */
}

static void mapped_destroy(void *self)
{
    struct mapped *m = self;
    berth__listed_finish(&m->base);
    berth__heap_free(m);
}

berth_status berth_mapped_allocator_create(const berth_mapped_options *options, berth_allocator **out)
{
    static const berth_mapped_options defaults = BERTH_MAPPED_OPTIONS_INIT;
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no place for the allocator: out is NULL");
    *out = NULL;
    if (!options)
        options = &defaults;
    if (options->struct_size < sizeof *options)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the options' struct_size is %zu: start from BERTH_MAPPED_OPTIONS_INIT",
                           options->struct_size);
    berth_status status = check_node(options->numa_node);
    if (status)
        return status;
    struct mapped *m = berth__heap_aligned(sizeof *m, 64);
    if (!m)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a mapped allocator's handle");
    berth_allocator_ops ops = berth__listed_ops;
    ops.allocate = mapped_allocate;
    ops.deallocate = mapped_deallocate;
    ops.destroy = mapped_destroy;
    ops.name = mapped_name;
    ops.granularity = mapped_granularity;
    if (!berth__listed_init(&m->base, &ops)) {
        berth__heap_free(m);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a mapped allocator's list");
    }
    m->options = *options;
    m->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    *out = &m->base.base;
    return BERTH_OK;
}
