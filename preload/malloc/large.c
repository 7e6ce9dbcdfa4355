/* The pool behind everything, and the stack that the settings may put around it. */
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "berth/config.h"
#include "berth/pool.h"
#include "pool/pool.h"
#include "preload/malloc/malloc.h"
#include "preload/malloc/small.h"

/* Zeros of this many bytes come from the system: fresh pages that are touched when they are used. */
#define ZEROS_FROM_SYSTEM ((size_t)256 << 10)

static berth_allocator *pool, *stack; /* written before any thread */
static _Atomic bool ready;
static const char *(*program_label)(void);

/* Above 0 the thread is inside Berth, or forks: what is allocated then is bookkeeping. */
static _Thread_local uint32_t inside;

/* The address space that the pool has reserved; written before any thread. */
static uintptr_t range_from;
static size_t range_bytes;

/* What the thread freed while it was inside or forking, linked through the blocks. */
static _Thread_local void *put_off;

bool large_is_ready(void)
{
    return atomic_load_explicit(&ready, memory_order_acquire);
}
bool large_is_stack(void)
{
    return stack != NULL;
}
berth_allocator *large_pool(void)
{
    return pool;
}
berth_allocator *large_stack(void)
{
    return stack;
}
bool large_is_busy(void)
{
    return inside != 0;
}

static inline bool from_book(void)
{
    return BERTH_UNLIKELY(inside != 0 || !large_is_ready());
}

static BERTH__COLD void free_put_off(void);
static inline void leave(void)
{
    inside--;
    if (BERTH_UNLIKELY(put_off != NULL))
        free_put_off();
}

/* ---- Allocating ---------------------------------------------------------------------------------------- */

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

static void *book_or_no_memory(size_t size_bytes, size_t alignment)
{
    void *p = book_alloc(size_bytes, alignment);
    return p ? p : no_memory();
}

/* Labels are those of the program's own Berth, where it has one. */
static void *alloc_from_stack(size_t size_bytes, size_t alignment)
{
    berth_request request = BERTH_REQUEST_INIT;
    if (program_label)
        request.label = program_label();
    void *p = NULL;
    (void)berth_allocate(stack, size_bytes, alignment, &request, &p);
    return p;
}

void *large_alloc(size_t size_bytes, size_t alignment)
{
    if (size_bytes > PTRDIFF_MAX)
        return no_memory();
    if (size_bytes == 0)
        size_bytes = 1;
    if (from_book())
        return book_or_no_memory(size_bytes, alignment);
    int saved = errno;
    void *p = NULL;
    inside++;
    if (stack)
        p = alloc_from_stack(size_bytes, alignment);
    else
        (void)berth_allocate(pool, size_bytes, alignment, NULL, &p);
    leave();
    errno = saved;
    return BERTH_LIKELY(p) ? p : no_memory();
}

/* Pages of the pool are private and anonymous: what the system is told to forget reads as zeros. */
static void fill_with_zeros(void *p, size_t size_bytes)
{
    const size_t page = 65536; /* a multiple of every page size that there is */
    uintptr_t from = berth__align_up((uintptr_t)p, page),
              to = ((uintptr_t)p + size_bytes) & ~(uintptr_t)(page - 1);
    int saved = errno;
    if (size_bytes < ZEROS_FROM_SYSTEM || stack || to <= from ||
        madvise((char *)p + (from - (uintptr_t)p), to - from, MADV_DONTNEED) != 0) {
        memset(p, 0, size_bytes);
    } else {
        memset(p, 0, from - (uintptr_t)p);
        memset((char *)p + (to - (uintptr_t)p), 0, (uintptr_t)p + size_bytes - to);
    }
    errno = saved;
}

void *large_zalloc(size_t size_bytes)
{
    void *p = large_alloc(size_bytes, 16);
    if (p)
        fill_with_zeros(p, size_bytes);
    return p;
}

/* ---- Freeing ------------------------------------------------------------------------------------------- */

static void bad_free(const void *p)
{
    report_line("error: free(%p): %s", p, berth_last_error()->message);
}

static void free_now(void *p)
{
    int saved = errno;
    inside++;
    if (berth_deallocate(stack ? stack : pool, p, 0, NULL) != BERTH_OK)
        bad_free(p);
    leave();
    errno = saved;
}

static void free_put_off(void)
{
    while (put_off && !large_is_busy()) {
        void *p = put_off;
        put_off = *(void **)p;
        free_now(p);
    }
}

bool large_has(const void *p)
{
    return (uintptr_t)p - range_from < range_bytes;
}

/* In a small address space the pool takes segments from the bookkeeping, and its first block there has the same address. */
static bool is_of_segment(const void *p)
{
    if (from_book() || (uintptr_t)p % BERTH__POOL_GRAIN != 0)
        return false;
    inside++;
    bool owns = berth_allocator_owns(pool, p) == BERTH_OK;
    leave();
    return owns;
}

/* Not in the pool's own range, and with the head of a block of the bookkeeping. */
static bool is_book(const void *p)
{
    return !large_has(p) && book_owns(p) && !is_of_segment(p);
}

void large_free(void *p)
{
    if (BERTH_LIKELY(inside == 0 && large_has(p))) {
        free_now(p);
        return;
    }
    if (is_book(p)) {
        book_free(p);
    } else if (!large_is_ready()) {
        report_line("error: free(%p): nothing was allocated there", p);
    } else if (BERTH_UNLIKELY(inside != 0)) {
        *(void **)p = put_off;
        put_off = p;
    } else {
        free_now(p);
    }
}

size_t large_usable(const void *p)
{
    if (is_book(p))
        return book_size(p);
    if (!large_is_ready())
        return 0;
    int saved = errno;
    size_t size = 0;
    inside++;
    berth_status status =
        stack ? berth_requested_size(stack, p, &size) : berth_allocated_size(pool, p, &size);
    leave();
    errno = saved;
    return !status ? size : 0;
}

/* ---- Slabs ---------------------------------------------------------------------------------------------- */

/* Only where pointers tell that they lie in one. */
void *large_slab_take(size_t size_bytes)
{
    int saved = errno;
    void *slab = from_book() ? NULL : large_alloc(size_bytes, size_bytes);
    if (slab && !large_has(slab)) {
        free_now(slab);
        slab = NULL;
    }
    errno = saved;
    return slab;
}

void large_slab_give(void *slab, size_t size_bytes)
{
    (void)size_bytes;
    large_free(slab);
}

size_t large_trim(size_t keep_bytes)
{
    size_t released = 0;
    if (from_book())
        return 0;
    int saved = errno;
    inside++;
    (void)berth_trim(pool, keep_bytes, &released);
    leave();
    errno = saved;
    return released;
}

void large_stats(berth_stats *out)
{
    if (from_book())
        return;
    int saved = errno;
    inside++;
    (void)berth_stats_get(pool, out);
    leave();
    errno = saved;
}

/* ---- Forks and the start --------------------------------------------------------------------------------- */

void large_before_fork(void)
{
    inside++;
}

void large_after_fork(void)
{
    leave();
}

static berth_status make_pool(const large_settings *settings)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.hard_limit_bytes = settings->limit_bytes;
    return berth_pool_create(&options, &pool);
}

berth_status large_start(const large_settings *settings)
{
    inside++;
    berth_status status = make_pool(settings);
    if (!status && settings->stack[0]) {
        status = berth_stack_create(settings->stack, pool, &stack);
        *(void **)&program_label = dlsym(RTLD_DEFAULT, "berth_scope_label");
    }
    inside--;
    if (status)
        return status;
    const berth__pool *inner = pool->self;
    range_from = inner->main->address;
    range_bytes = inner->main->size_bytes;
    if (!stack)
        small_start(range_from, range_bytes);
    atomic_store_explicit(&ready, true, memory_order_release);
    return BERTH_OK;
}
