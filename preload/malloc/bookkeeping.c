/* The heap of Berth's own bookkeeping, in place of src/base/heap.c, whose door is the C heap: that is us. It also serves
 * what is asked for before we are ready, and what the C library allocates while a thread is inside Berth.
 *
 * Plain and small: powers of two cut from pages that are never given back, larger blocks a mapping each. Every block has a
 * head in front that tells it from all others. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/lock.h"
#include "preload/malloc/malloc.h"

enum { BOOK_LEAST_SHIFT = 6, BOOK_MOST_SHIFT = 16, BOOK_CLASSES = BOOK_MOST_SHIFT - BOOK_LEAST_SHIFT + 1 };
#define BOOK_PIECE ((size_t)256 << 10)
#define BOOK_MAGIC UINT64_C(0x6b6f6f4268747242)

typedef struct book_head {
    uint64_t check;      /* BOOK_MAGIC ^ the block's address while it is in use */
    void *raw;           /* where its memory starts */
    size_t size_bytes;   /* from the block on */
    size_t mapped_bytes; /* of a mapping of its own; else 0 */
} book_head;

typedef struct book_spare {
    struct book_spare *next;
} book_spare;

/* By its holder's address of a thread-local; the holder may take it again, as the C library may allocate around a fork. */
static _Atomic uintptr_t lock_holder;
static uint32_t lock_depth; /* guard: the lock */
static book_spare *spares[BOOK_CLASSES];
static char *piece, *piece_end;
static _Atomic uint64_t mapped_bytes;

static _Thread_local char here;

static void book_lock(void)
{
    uintptr_t me = (uintptr_t)&here, nobody = 0;
    if (atomic_load_explicit(&lock_holder, memory_order_relaxed) != me) {
        for (unsigned turn = 1; !atomic_compare_exchange_weak_explicit(
                 &lock_holder, &nobody, me, memory_order_acquire, memory_order_relaxed);
             turn++) {
            nobody = 0;
            if (turn % 64 == 0)
                sched_yield();
            else
                berth__pause();
        }
    }
    lock_depth++;
}
static void book_unlock(void)
{
    if (--lock_depth == 0)
        atomic_store_explicit(&lock_holder, 0, memory_order_release);
}

/* ---- Memory ------------------------------------------------------------------------------------------- */

static void *book_map(size_t size_bytes)
{
    void *p = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    atomic_fetch_add_explicit(&mapped_bytes, size_bytes, memory_order_relaxed);
    return p;
}

static unsigned class_for(size_t bytes)
{
    unsigned shift = BOOK_LEAST_SHIFT;
    while (((size_t)1 << shift) < bytes)
        shift++;
    return shift - BOOK_LEAST_SHIFT;
}

/* A spare one of its class, or cut from the piece; what is left of a piece that is too short is lost. */
static void *raw_of_class(unsigned class)
{
    size_t bytes = (size_t)1 << (class + BOOK_LEAST_SHIFT);
    book_lock();
    void *raw = spares[class];
    if (raw) {
        spares[class] = spares[class]->next;
    } else {
        if ((size_t)(piece_end - piece) < bytes) {
            piece = book_map(BOOK_PIECE);
            piece_end = piece ? piece + BOOK_PIECE : NULL;
        }
        raw = piece;
        piece = piece ? piece + bytes : NULL;
    }
    book_unlock();
    return raw;
}

static book_head *head_of(const void *p)
{
    return (book_head *)p - 1;
}

void *book_alloc(size_t size_bytes, size_t alignment)
{
    if (alignment < sizeof(book_head))
        alignment = sizeof(book_head);
    size_t bytes;
    if (__builtin_add_overflow(size_bytes, sizeof(book_head) + alignment, &bytes) ||
        bytes > PTRDIFF_MAX - 4096)
        return NULL;
    size_t mapped = bytes > (size_t)1 << BOOK_MOST_SHIFT ? berth__align_up(bytes, 4096) : 0;
    unsigned class = mapped ? 0 : class_for(bytes);
    char *raw = mapped ? book_map(mapped) : raw_of_class(class);
    if (!raw)
        return NULL;
    char *p = raw + (berth__align_up((uintptr_t)raw + sizeof(book_head), alignment) - (uintptr_t)raw);
    char *end = raw + (mapped ? mapped : (size_t)1 << (class + BOOK_LEAST_SHIFT));
    *head_of(p) = (book_head){BOOK_MAGIC ^ (uintptr_t)p, raw, (size_t)(end - p), mapped};
    return p;
}

bool book_owns(const void *p)
{
    return (uintptr_t)p % sizeof(book_head) == 0 && head_of(p)->check == (BOOK_MAGIC ^ (uintptr_t)p);
}

size_t book_size(const void *p)
{
    return head_of(p)->size_bytes;
}

void book_free(void *p)
{
    if (!p)
        return;
    book_head head = *head_of(p);
    head_of(p)->check = 0;
    if (head.mapped_bytes) {
        munmap(head.raw, head.mapped_bytes);
        atomic_fetch_sub_explicit(&mapped_bytes, head.mapped_bytes, memory_order_relaxed);
        return;
    }
    unsigned class = class_for((size_t)((char *)p - (char *)head.raw) + head.size_bytes);
    book_spare *spare = head.raw;
    book_lock();
    spare->next = spares[class];
    spares[class] = spare;
    book_unlock();
}

uint64_t book_mapped_bytes(void)
{
    return atomic_load_explicit(&mapped_bytes, memory_order_relaxed);
}

void book_before_fork(void)
{
    book_lock();
}
void book_after_fork(void)
{
    book_unlock();
}

/* ---- In place of src/base/heap.c ---------------------------------------------------------------------- */

void *berth__heap_alloc(size_t size_bytes)
{
    return book_alloc(size_bytes, 16);
}

void *berth__heap_zalloc(size_t count, size_t element_bytes)
{
    size_t bytes;
    return __builtin_mul_overflow(count, element_bytes, &bytes) ? NULL : berth__heap_zaligned(bytes, 16);
}

void *berth__heap_aligned(size_t size_bytes, size_t alignment)
{
    return book_alloc(size_bytes, alignment);
}

void *berth__heap_zaligned(size_t size_bytes, size_t alignment)
{
    void *p = book_alloc(size_bytes, alignment);
    if (p && !head_of(p)->mapped_bytes) /* mapped pages are zero */
        memset(p, 0, size_bytes);
    return p;
}

void *berth__heap_realloc(void *p, size_t size_bytes)
{
    if (p && book_size(p) >= size_bytes)
        return p;
    void *moved = book_alloc(size_bytes, 16);
    if (moved && p) {
        memcpy(moved, p, book_size(p));
        book_free(p);
    }
    return moved;
}

void berth__heap_free(void *p)
{
    book_free(p);
}
