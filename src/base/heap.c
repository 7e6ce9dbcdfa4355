/* The one door to the C heap for our own bookkeeping, with a switch that makes the nth request fail. */
#include "base/base.h"

#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t fail_countdown; /* 0: never */
static _Atomic bool fail_persists;
static _Atomic uint64_t live_blocks;

/* Smaller blocks are found in the C heap without fresh pages. */
enum { LARGE_BYTES = 1 << 20 };
static _Thread_local berth__heap_scope *heap_scope; /* NULL: none */

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

static bool heap_refuse(void)
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

/* ---- Scopes that keep large blocks ---------------------------------------------------------------- */

void berth__heap_scope_begin(berth__heap_scope *scope)
{
    *scope = (berth__heap_scope){.outer = heap_scope};
    heap_scope = scope;
}

/* Takes one out. */
static void *scope_take(berth__heap_scope *scope, size_t at)
{
    void *p = scope->kept[at];
    scope->kept[at] = scope->kept[--scope->kept_count];
    scope->kept_bytes -= malloc_usable_size(p);
    return p;
}

static void scope_trim(berth__heap_scope *scope, size_t kept_bytes)
{
    while (scope->kept_bytes > kept_bytes)
        free(scope_take(scope, scope->kept_count - 1));
}

void berth__heap_scope_trim(size_t kept_bytes)
{
    if (heap_scope)
        scope_trim(heap_scope, kept_bytes);
}

void berth__heap_scope_end(berth__heap_scope *scope)
{
    BERTH_DCHECK(heap_scope == scope, "scopes end in the order in which they began");
    scope_trim(scope, 0);
    heap_scope = scope->outer;
}

/* Counts a large block that is in use from now on; what is kept makes room for it. */
static void scope_use(berth__heap_scope *scope, const void *p)
{
    scope->used_bytes += malloc_usable_size((void *)(uintptr_t)p);
    if (scope->used_bytes > scope->most_bytes)
        scope->most_bytes = scope->used_bytes;
    scope_trim(scope, scope->most_bytes - scope->used_bytes);
}

/* The smallest kept block that holds so much and is not twice as large. */
static void *scope_find(berth__heap_scope *scope, size_t size_bytes)
{
    size_t best = SIZE_MAX, best_bytes = SIZE_MAX;
    for (size_t k = 0; k < scope->kept_count; k++) {
        const size_t bytes = malloc_usable_size(scope->kept[k]);
        if (bytes >= size_bytes && bytes / 2 < size_bytes && bytes < best_bytes) {
            best = k;
            best_bytes = bytes;
        }
    }
    return best == SIZE_MAX ? NULL : scope_take(scope, best);
}

static void *scope_alloc(berth__heap_scope *scope, size_t size_bytes)
{
    void *p = scope_find(scope, size_bytes);
    if (!p) { /* what is kept gives way before the block comes, not after */
        const size_t room = scope->most_bytes > scope->used_bytes ? scope->most_bytes - scope->used_bytes : 0;
        scope_trim(scope, room > size_bytes ? room - size_bytes : 0);
        p = malloc(size_bytes);
    }
    if (p)
        scope_use(scope, p);
    return p;
}

/* Whether the block is kept; else the caller frees it. */
static bool scope_keep(berth__heap_scope *scope, void *p)
{
    const size_t bytes = malloc_usable_size(p);
    if (bytes < LARGE_BYTES)
        return false;
    /* One from before the scope was never counted. */
    scope->used_bytes -= bytes < scope->used_bytes ? bytes : scope->used_bytes;
    if (scope->kept_count == BERTH__HEAP_KEPT ||
        scope->used_bytes + scope->kept_bytes + bytes > scope->most_bytes)
        return false;
    scope->kept[scope->kept_count++] = p;
    scope->kept_bytes += bytes;
    return true;
}

/* ---- The door ------------------------------------------------------------------------------------- */

void *berth__heap_alloc(size_t size_bytes)
{
    if (heap_refuse())
        return NULL;
    if (size_bytes >= LARGE_BYTES && heap_scope)
        return counted(scope_alloc(heap_scope, size_bytes));
    return counted(malloc(size_bytes ? size_bytes : 1));
}

void *berth__heap_zalloc(size_t count, size_t element_bytes)
{
    if (heap_refuse())
        return NULL;
    /* Zeroed pages that nobody touches cost nothing, so that these are fresh ones. */
    void *p = calloc(count ? count : 1, element_bytes ? element_bytes : 1);
    if (p && heap_scope && malloc_usable_size(p) >= LARGE_BYTES)
        scope_use(heap_scope, p);
    return counted(p);
}

void *berth__heap_realloc(void *p, size_t size_bytes)
{
    if (heap_refuse())
        return NULL;
    const size_t before = p && heap_scope ? malloc_usable_size(p) : 0;
    void *moved = realloc(p, size_bytes ? size_bytes : 1);
    if (moved && heap_scope) {
        if (before >= LARGE_BYTES)
            heap_scope->used_bytes -= before < heap_scope->used_bytes ? before : heap_scope->used_bytes;
        if (malloc_usable_size(moved) >= LARGE_BYTES)
            scope_use(heap_scope, moved);
    }
    return p ? moved : counted(moved);
}

void *berth__heap_aligned(size_t size_bytes, size_t alignment)
{
    void *p = NULL;
    if (heap_refuse() || posix_memalign(&p, alignment < sizeof(void *) ? sizeof(void *) : alignment,
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
    if (!heap_scope || !scope_keep(heap_scope, p))
        free(p);
}
