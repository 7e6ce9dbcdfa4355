/* The one door to the C heap for our own bookkeeping, with a switch that makes the nth request fail. */
#include "base/base.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t fail_countdown; /* 0: never */
static _Atomic bool fail_persists;
static _Atomic uint64_t live_blocks;

void berth__heap_fail_at(uint64_t n, bool persist)
{
    atomic_store(&fail_persists, persist);
    atomic_store(&fail_countdown, n);
}

uint64_t berth__heap_fail_left(void)
{
    return atomic_load(&fail_countdown);
}

uint64_t berth__heap_live(void)
{
    return atomic_load(&live_blocks);
}

static bool refuse(void)
{
    if (BERTH_LIKELY(atomic_load_explicit(&fail_countdown, memory_order_relaxed) == 0))
        return false;
    uint64_t left = atomic_load(&fail_countdown);
    while (left > 1)
        if (atomic_compare_exchange_weak(&fail_countdown, &left, left - 1))
            return false;
    if (left == 1 && !atomic_load(&fail_persists))
        atomic_store(&fail_countdown, 0);
    return left == 1;
}

static void *counted(void *p)
{
    if (p)
        atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    return p;
}

void *berth__heap_alloc(size_t size_bytes)
{
    return refuse() ? NULL : counted(malloc(size_bytes ? size_bytes : 1));
}

void *berth__heap_zalloc(size_t count, size_t element_bytes)
{
    return refuse() ? NULL : counted(calloc(count ? count : 1, element_bytes ? element_bytes : 1));
}

void *berth__heap_realloc(void *p, size_t size_bytes)
{
    if (refuse())
        return NULL;
    void *moved = realloc(p, size_bytes ? size_bytes : 1);
    return p ? moved : counted(moved);
}

void *berth__heap_aligned(size_t size_bytes, size_t alignment)
{
    void *p = NULL;
    if (refuse() || posix_memalign(&p, alignment < sizeof(void *) ? sizeof(void *) : alignment,
                                   size_bytes ? size_bytes : 1) != 0)
        return NULL;
    return counted(p);
}

void *berth__heap_zaligned(size_t size_bytes, size_t alignment)
{
    void *p = berth__heap_aligned(size_bytes, alignment);
    return p ? memset(p, 0, size_bytes) : NULL;
}

void berth__heap_free(void *p)
{
    if (!p)
        return;
    atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
    free(p);
}
