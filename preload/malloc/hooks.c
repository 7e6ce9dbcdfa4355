/* malloc and its family: the sizes divide between small and large, and mistakes get the answers that the standards ask
 * for. C++'s operators end in malloc and free. */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload/malloc/malloc.h"
#include "preload/malloc/small.h"

#define HOOK __attribute__((visibility("default")))

/* ---- Sizes ---------------------------------------------------------------------------------------------- */

/* What may be used of a block; 0 for what is none. */
static size_t usable(const void *p)
{
    if (small_may_be(p)) {
        const small_slab *slab = small_slab_of(p);
        return small_is(slab, p) ? slab->size_bytes : 0;
    }
    return large_usable(p);
}

static void *alloc_any(size_t size_bytes)
{
    if (BERTH_LIKELY(size_bytes <= SMALL_MOST)) {
        void *p = small_alloc(size_bytes);
        if (BERTH_LIKELY(p != NULL))
            return p;
    }
    return large_alloc(size_bytes, 16);
}

/* Small blocks whose size is a multiple of twice the alignment lie at multiples of it, up to 64. */
static void *alloc_aligned(size_t alignment, size_t size_bytes)
{
    if (alignment <= 16)
        return alloc_any(size_bytes);
    if (alignment <= 64 && size_bytes <= SMALL_MOST) {
        void *p = small_alloc(size_bytes ? berth__align_up(size_bytes, 2 * alignment) : 2 * alignment);
        if (p)
            return p;
    }
    return large_alloc(size_bytes, alignment);
}

/* ---- malloc and free ------------------------------------------------------------------------------------ */

HOOK void *malloc(size_t size)
{
    return alloc_any(size);
}

static BERTH__COLD void free_stranger(void *p)
{
    report_line("error: free(%p): no block starts there", p);
}

HOOK void free(void *p)
{
    if (BERTH_UNLIKELY(!small_may_be(p))) {
        if (p)
            large_free(p);
        return;
    }
    small_slab *slab = small_slab_of(p);
    if (BERTH_UNLIKELY(!small_is(slab, p)))
        free_stranger(p);
    else
        small_free(slab, p);
}

HOOK void *calloc(size_t count, size_t size)
{
    size_t bytes;
    if (BERTH_UNLIKELY(__builtin_mul_overflow(count, size, &bytes))) {
        errno = ENOMEM;
        return NULL;
    }
    if (bytes > SMALL_MOST)
        return large_zalloc(bytes);
    void *p = small_alloc(bytes);
    return BERTH_LIKELY(p != NULL) ? memset(p, 0, bytes) : large_zalloc(bytes);
}

/* In place while it fits and at least half of the block stays in use. Size 0 frees, as the C library's does. */
HOOK void *realloc(void *p, size_t size)
{
    if (!p)
        return malloc(size);
    if (size == 0) {
        free(p);
        return NULL;
    }
    size_t had = usable(p);
    if (BERTH_UNLIKELY(had == 0)) {
        report_line("error: realloc(%p): no block starts there", p);
        errno = ENOMEM;
        return NULL;
    }
    if (size <= had && size >= had / 2 && !large_is_stack())
        return p;
    void *moved = malloc(size);
    if (!moved)
        return NULL;
    memcpy(moved, p, had < size ? had : size);
    free(p);
    return moved;
}

HOOK void *reallocarray(void *p, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(p, bytes);
}

/* Old programs call it. */
HOOK void cfree(void *p);
HOOK void cfree(void *p)
{
    free(p);
}

/* ---- At an alignment ------------------------------------------------------------------------------------ */

HOOK int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (!berth__is_power_of_two(alignment) || alignment % sizeof(void *) != 0)
        return EINVAL;
    int saved = errno;
    void *p = alloc_aligned(alignment, size);
    errno = saved;
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

static void *alloc_checked(size_t alignment, size_t size)
{
    if (berth__is_power_of_two(alignment))
        return alloc_aligned(alignment, size);
    errno = EINVAL;
    return NULL;
}

HOOK void *aligned_alloc(size_t alignment, size_t size)
{
    return alloc_checked(alignment, size);
}

/* The C library's takes any alignment and rounds it up. */
HOOK void *memalign(size_t alignment, size_t size)
{
    size_t power = 16;
    if (alignment > SIZE_MAX / 2 + 1) {
        errno = EINVAL;
        return NULL;
    }
    while (power < alignment)
        power <<= 1;
    return alloc_aligned(power, size);
}

HOOK void *valloc(size_t size)
{
    return alloc_aligned((size_t)sysconf(_SC_PAGESIZE), size);
}

HOOK void *pvalloc(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (size > PTRDIFF_MAX) {
        errno = ENOMEM;
        return NULL;
    }
    return alloc_aligned(page, size ? berth__align_up(size, page) : page);
}

/* ---- Questions ------------------------------------------------------------------------------------------ */

HOOK size_t malloc_usable_size(void *p)
{
    return p ? usable(p) : 0;
}

HOOK int malloc_trim(size_t keep_bytes)
{
    small_collect();
    return large_trim(keep_bytes) != 0;
}

HOOK void malloc_stats(void)
{
    report_show();
}

/* Only glibc asks in this way, the second since its 2.33. */
#ifdef __GLIBC__
HOOK struct mallinfo mallinfo(void)
{
    malloc_figures f;
    report_read(&f);
    return (struct mallinfo){.arena = (int)f.bytes_reserved,
                             .uordblks = (int)f.bytes_in_use,
                             .fordblks = (int)(f.bytes_reserved - f.bytes_in_use)};
}

#if __GLIBC_PREREQ(2, 33)
HOOK struct mallinfo2 mallinfo2(void)
{
    malloc_figures f;
    report_read(&f);
    return (struct mallinfo2){
        .arena = f.bytes_reserved, .uordblks = f.bytes_in_use, .fordblks = f.bytes_reserved - f.bytes_in_use};
}
#endif
#endif
