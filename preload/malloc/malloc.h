/* libberth_malloc.so: malloc and its family over Berth's pool, for programs as they are.
 *
 *     hooks.c         malloc, free and their family
 *     small.h, .c     up to 4 KiB: slabs of 64 KiB, each one thread's, cut from the pool
 *     large.c         the rest: blocks of the pool, or of the stack that the settings ask for
 *     bookkeeping.c   what Berth itself needs, from pages of its own; and what comes before we are ready
 *     forks.c         the order of things around a fork
 *     start.c         settings and the start
 *     report.c        figures, and the report at exit
 *
 * Berth never comes back into itself: its bookkeeping has its own heap, and what the C library allocates while a thread
 * is inside Berth (stdio, thread-specific data) is served from there too. */
#ifndef BERTH_PRELOAD_MALLOC_H
#define BERTH_PRELOAD_MALLOC_H

#include "base/base.h"
#include "berth/allocator.h"

/* ---- bookkeeping.c ---- */

/* A block from pages of our own, at an alignment, all zero if it is fresh. NULL: the system has no memory. Any thread,
 * also inside of all others, and around a fork. */
void *book_alloc(size_t size_bytes, size_t alignment);
void book_free(void *p);
/* Whether `p` is one of these, and what it holds. `p` may be anything that malloc's family gave out. */
bool book_owns(const void *p);
size_t book_size(const void *p);
/* How much is mapped for it. */
uint64_t book_mapped_bytes(void);

/* ---- large.c ---- */

typedef struct large_settings {
    uint64_t limit_bytes; /* of memory taken from the system; 0: none */
    const char *stack;    /* settings of a stack around the pool that serves every size, "": none */
} large_settings;

/* Makes the pool, and the stack. BERTH_OK, or why not: then everything comes from the bookkeeping's heap. */
berth_status large_start(const large_settings *settings);
bool large_is_ready(void);
/* Whether a stack serves every size, so that nothing is cut into slabs. */
bool large_is_stack(void);

/* NULL with errno ENOMEM. An alignment is a power of two. */
void *large_alloc(size_t size_bytes, size_t alignment);
void *large_zalloc(size_t size_bytes);
/* A block that no other file knows: of the pool, of the stack, of the bookkeeping, or a mistake, which is reported. */
void large_free(void *p);
/* What may be used of it; 0: it is no block of ours. */
size_t large_usable(const void *p);
/* Whether a pointer is where slabs and blocks of the pool lie; false for the few of a pool in a small address space. */
bool large_has(const void *p);

/* Slabs: at a multiple of their size. NULL: no memory; errno is as it was. */
void *large_slab_take(size_t size_bytes);
void large_slab_give(void *slab, size_t size_bytes);

berth_allocator *large_pool(void);
berth_allocator *large_stack(void);
size_t large_trim(size_t keep_bytes);
void large_stats(berth_stats *out);

/* Whether the calling thread is inside Berth, or forks: it then gets bookkeeping, and what it frees is put off. */
bool large_is_busy(void);
/* Around a fork, on the thread that forks. */
void large_before_fork(void);
void large_after_fork(void);

/* ---- forks.c, report.c, start.c ---- */

/* Before everything of Berth's, and after everything. */
void forks_watch_bookkeeping(void);
void forks_watch_all(void);
void book_before_fork(void);
void book_after_fork(void);

/* What a program has done. Exact when no call is under way. */
typedef struct malloc_figures {
    uint64_t num_allocs, num_failures;
    uint64_t bytes_in_use;    /* of blocks, as they were rounded */
    uint64_t pool_in_use;     /* slabs count whole */
    uint64_t max_pool_in_use; /* the same at most */
    uint64_t bytes_reserved, max_bytes_reserved, bytes_limit;
    uint64_t small_allocs, small_bytes, slabs;
    uint64_t book_bytes;
} malloc_figures;
void report_read(malloc_figures *out);
/* Where it goes at exit: NULL or "" nowhere, "-" stderr, else a file that it is added to. */
void report_at_exit(const char *where);
/* The same at once, to stderr. */
void report_show(void);
/* A line to stderr, without anything that might allocate. */
void report_line(const char *format, ...) BERTH_PRINTF(1, 2);

#endif
