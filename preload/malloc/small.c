/* Small blocks: heaps and their slabs. The fast paths stand in small.h. */
#include "preload/malloc/small.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/auxv.h>

#include "preload/malloc/malloc.h"

_Thread_local small_heap *small_own;
uint8_t small_class_of[SMALL_MOST / 16 + 1];
uint16_t small_sizes[SMALL_CLASSES];
uintptr_t small_secret;
struct small_range small_range;

static small_slab no_slab; /* full for ever; never written */
static pthread_key_t exit_key;
static bool exit_key_works;

/* Guards the list of idle heaps, and whoever has an idle heap in hand. */
static pthread_mutex_t heaps_lock = PTHREAD_MUTEX_INITIALIZER;
static small_heap *idle_heaps;          /* guard: heaps_lock */
static _Atomic(small_heap *) all_heaps; /* grows at its head only */

static _Atomic uint64_t slabs_made;

/* What threads without a heap freed. */
static _Atomic int64_t heapless_bytes;

/* ---- Slabs ------------------------------------------------------------------------------------------- */

/* The first block's place, so that none starts at a multiple of 256, or as few as can be; those are left out. Sizes that
 * are multiples of 128 come to lie at multiples of 64, those of 64 at multiples of 32. */
static uint32_t first_place(uint32_t size_bytes)
{
    return size_bytes % 128 == 0 ? SLAB_HEAD + 64 : size_bytes % 64 == 0 ? SLAB_HEAD + 32 : SLAB_HEAD + 16;
}

static void slab_list(small_slab *slab)
{
    small_slab **head = &slab->heap->slabs[slab->class];
    slab->previous = NULL;
    slab->next = *head == &no_slab ? NULL : *head;
    if (slab->next)
        slab->next->previous = slab;
    *head = slab;
    slab->listed = true;
}
static void slab_unlist(small_slab *slab)
{
    small_slab **head = &slab->heap->slabs[slab->class];
    if (slab->previous)
        slab->previous->next = slab->next;
    else
        *head = slab->next ? slab->next : &no_slab;
    if (slab->next)
        slab->next->previous = slab->previous;
    slab->listed = false;
}

static void count_slabs(small_heap *heap, int64_t change)
{
    atomic_store_explicit(&heap->slab_count,
                          atomic_load_explicit(&heap->slab_count, memory_order_relaxed) + change,
                          memory_order_relaxed);
}

static small_slab *slab_make(small_heap *heap, uint16_t class)
{
    small_slab *slab = large_slab_take(SLAB_BYTES);
    if (!slab)
        return NULL;
    *slab = (small_slab){.heap = heap,
                         .check = (uintptr_t)slab ^ small_secret,
                         .size_bytes = small_sizes[class],
                         .cut_to = first_place(small_sizes[class]),
                         .first = first_place(small_sizes[class]),
                         .inverse =
                             (uint32_t)((((uint64_t)1 << 32) + small_sizes[class] - 1) / small_sizes[class]),
                         .class = class};
    count_slabs(heap, 1);
    atomic_fetch_add_explicit(&slabs_made, 1, memory_order_relaxed);
    slab_list(slab);
    return slab;
}

/* Nothing in it is in use. */
static void slab_give_back(small_slab *slab)
{
    BERTH_DCHECK(slab->used == 0 && !slab->listed, "an empty slab goes back");
    count_slabs(slab->heap, -1);
    slab->check = 0;
    large_slab_give(slab, SLAB_BYTES);
}

/* Cuts some more blocks, about a page of them at a time so that pages are touched as they are needed. False: it is full. */
static bool slab_cut(small_slab *slab)
{
    uint32_t size = slab->size_bytes, stop = slab->cut_to + (size > 2048 ? 2 * size : 4096);
    small_block **last = &slab->free;
    while (slab->cut_to < stop && slab->cut_to + size <= SLAB_BYTES) {
        uint32_t at = slab->cut_to;
        slab->cut_to += size;
        if (at % SMALL_GRAIN == 0)
            continue;
        small_block *block = (small_block *)(void *)((char *)slab + at);
        *last = block;
        last = &block->next;
        block->mark = small_mark(slab); /* it is free: so is told who frees a wild pointer */
    }
    *last = NULL;
    return slab->free != NULL;
}

/* ---- Frees ------------------------------------------------------------------------------------------- */

/* One empty slab a class is kept, so that a loop at the edge does not go to the pool at every turn. */
static void slab_emptied(small_slab *slab)
{
    bool alone = slab->listed && !slab->previous && !slab->next;
    if (alone)
        return;
    if (slab->listed)
        slab_unlist(slab);
    slab_give_back(slab);
}

void small_free_slow(small_slab *slab, small_block *block)
{
    (void)block;
    if (!slab->listed)
        slab_list(slab);
    if (slab->used == 0)
        slab_emptied(slab);
}

static void twice(const small_block *block)
{
    report_line("error: free(%p): it is not in use; freed twice? It stays as it is", (const void *)block);
}

/* Pushes a block of another heap's, or says that it is freed already. */
void small_free_remote(small_slab *slab, small_block *block)
{
    if (block->mark == small_mark(slab)) {
        twice(block);
        return;
    }
    if (small_own)
        small_count(small_own, 0, -(int64_t)slab->size_bytes);
    else
        atomic_fetch_sub_explicit(&heapless_bytes, slab->size_bytes, memory_order_relaxed);
    block->mark = small_mark(slab);
    /* Once the block is pushed the slab may be its owner's to give back, unless ours is the first on the list: then the
     * owner fetches it only after we have told it of the slab. */
    small_heap *heap = slab->heap;
    small_block *head = atomic_load_explicit(&slab->remote, memory_order_relaxed);
    do
        block->next = head;
    while (!atomic_compare_exchange_weak_explicit(&slab->remote, &head, block, memory_order_release,
                                                  memory_order_relaxed));
    if (head)
        return;
    small_slab *touched = atomic_load_explicit(&heap->touched, memory_order_relaxed);
    do
        slab->next_touched = touched;
    while (!atomic_compare_exchange_weak_explicit(&heap->touched, &touched, slab, memory_order_release,
                                                  memory_order_relaxed));
}

/* Takes in what others freed of a slab. */
static void slab_fetch(small_slab *slab)
{
    small_block *block = atomic_exchange_explicit(&slab->remote, NULL, memory_order_acquire);
    uint32_t count = 0;
    while (block) {
        small_block *next = block->next;
        block->next = slab->free;
        slab->free = block;
        block = next;
        count++;
    }
    slab->used -= count;
    small_free_slow(slab, NULL);
}

/* By who has the heap. */
static bool heap_fetch(small_heap *heap)
{
    if (!atomic_load_explicit(&heap->touched, memory_order_relaxed))
        return false;
    small_slab *slab = atomic_exchange_explicit(&heap->touched, NULL, memory_order_acquire);
    while (slab) {
        small_slab *next = slab->next_touched; /* first: from the fetch on it may be touched again, or gone */
        slab_fetch(slab);
        slab = next;
    }
    return true;
}

/* ---- Heaps ------------------------------------------------------------------------------------------- */

static void fetch_for_idle(void)
{
    pthread_mutex_lock(&heaps_lock);
    for (small_heap *heap = idle_heaps; heap; heap = heap->next_idle)
        heap_fetch(heap);
    pthread_mutex_unlock(&heaps_lock);
}

/* Slabs that are listed and empty, one a class at most. */
static void heap_give_empty(small_heap *heap)
{
    for (unsigned i = 0; i < SMALL_CLASSES; i++)
        for (small_slab *slab = heap->slabs[i], *next; slab && slab != &no_slab; slab = next) {
            next = slab->next;
            if (slab->used)
                continue;
            slab_unlist(slab);
            slab_give_back(slab);
        }
}

void small_collect(void)
{
    if (!small_range.size_bytes || large_is_busy())
        return;
    if (small_own) {
        heap_fetch(small_own);
        heap_give_empty(small_own);
    }
    fetch_for_idle();
}

/* A thread ends. What it frees afterwards goes to its heap as another's would. */
static void heap_leave(void *context)
{
    small_heap *heap = context;
    small_own = NULL;
    heap_fetch(heap);
    heap_give_empty(heap);
    pthread_mutex_lock(&heaps_lock);
    heap->next_idle = idle_heaps;
    idle_heaps = heap;
    pthread_mutex_unlock(&heaps_lock);
}

static small_heap *heap_make(void)
{
    small_heap *heap = book_alloc(sizeof *heap, _Alignof(small_heap));
    if (!heap)
        return NULL;
    *heap = (small_heap){0};
    for (unsigned i = 0; i < SMALL_CLASSES; i++)
        heap->slabs[i] = &no_slab;
    small_heap *head = atomic_load(&all_heaps);
    do
        heap->next = head;
    while (!atomic_compare_exchange_weak(&all_heaps, &head, heap));
    return heap;
}

/* A heap for the calling thread: one that another left, or a new one. */
static small_heap *heap_enter(void)
{
    if (!small_range.size_bytes || !exit_key_works || large_is_busy())
        return NULL;
    pthread_mutex_lock(&heaps_lock);
    small_heap *heap = idle_heaps;
    if (heap)
        idle_heaps = heap->next_idle;
    pthread_mutex_unlock(&heaps_lock);
    if (!heap)
        heap = heap_make();
    small_own = heap; /* first: the next line may allocate */
    if (heap)
        pthread_setspecific(exit_key, heap);
    return heap;
}

/* ---- Allocating -------------------------------------------------------------------------------------- */

/* A slab of the class with a block to hand out; those that are full leave the list. */
static small_slab *heap_find(small_heap *heap, uint16_t class)
{
    small_slab *slab;
    while ((slab = heap->slabs[class]) != &no_slab) {
        if (slab->free || slab_cut(slab))
            return slab;
        slab_unlist(slab);
    }
    return NULL;
}

void *small_alloc_slow(size_t size_bytes)
{
    small_heap *heap = small_own ? small_own : heap_enter();
    if (!heap)
        return NULL;
    uint16_t class = small_class_of[(size_bytes + 15) / 16];
    small_slab *slab = heap_find(heap, class);
    if (!slab && heap_fetch(heap))
        slab = heap_find(heap, class);
    if (!slab) {
        if (large_is_busy()) /* the locks on the way may be ours already */
            return NULL;
        fetch_for_idle();
        if (!slab_make(heap, class))
            return NULL;
        slab = heap_find(heap, class);
    }
    small_block *block = slab->free;
    slab->free = block->next;
    slab->used++;
    block->mark = 0;
    small_count(heap, 1, slab->size_bytes);
    return block;
}

/* ---- Figures, forks and the start --------------------------------------------------------------------- */

void small_read(uint64_t *num_allocs, int64_t *bytes, int64_t *slabs)
{
    *num_allocs = 0;
    *bytes = atomic_load(&heapless_bytes);
    *slabs = 0;
    for (small_heap *heap = atomic_load(&all_heaps); heap; heap = heap->next) {
        *num_allocs += atomic_load_explicit(&heap->num_allocs, memory_order_relaxed);
        *bytes += atomic_load_explicit(&heap->bytes, memory_order_relaxed);
        *slabs += atomic_load_explicit(&heap->slab_count, memory_order_relaxed);
    }
}

uint64_t small_slabs_made(void)
{
    return atomic_load(&slabs_made);
}

void small_before_fork(void)
{
    pthread_mutex_lock(&heaps_lock);
}
/* In a child heaps of threads that stayed behind are as they left them, in mid-step perhaps: nobody takes those up. What
 * is freed of them is pushed as ever, and kept. */
void small_after_fork(void)
{
    pthread_mutex_unlock(&heaps_lock);
}

/* 16 bytes apart up to 128, then four sizes for each doubling. */
static void make_classes(void)
{
    unsigned class = 0;
    size_t size = 0, step = 16;
    for (size_t i = 0; i <= SMALL_MOST / 16; i++) {
        while (size < i * 16 || size == 0) {
            if (size >= 128 && (size & (size - 1)) == 0)
                step = size / 4;
            size += step;
            small_sizes[class ++] = (uint16_t)size;
        }
        small_class_of[i] = (uint8_t)(class - 1);
    }
}

void small_start(uintptr_t from, size_t size_bytes)
{
    const uintptr_t *random = (const uintptr_t *)getauxval(AT_RANDOM); /* NOLINT(performance-no-int-to-ptr) */
    small_secret = random ? random[1] | 1 : (uintptr_t)0x9e3779b97f4a7c15;
    make_classes();
    exit_key_works = pthread_key_create(&exit_key, heap_leave) == 0;
    small_range = (struct small_range){from, size_bytes};
}
