/* What the compiler and the code under test call: the functions of TSan's interface, those of pthread and the kernel
 * that berth uses, and berth's heap, whose addresses are the same in every run and whose freed blocks are not used
 * again, so that a late access shows. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "base/base.h"
#include "base/header.h"
#include "inside.h"
#define HOOKS_THEMSELVES
#include "hooks.h"

enum { HEAP_BYTES = 64 << 20, BLOCKS_MAX = 4096, MUTEXES_MAX = 64 };

typedef struct heap_block {
    uintptr_t begin, end;
    bool freed;
} heap_block;

typedef struct mutex_state {
    const void *mutex;
    int owner; /* -1: nobody */
} mutex_state;

static struct hooks {
    char *heap;
    size_t used;
    heap_block blocks[BLOCKS_MAX]; /* by rising address */
    uint32_t block_count;
    mutex_state mutexes[MUTEXES_MAX];
    uint32_t mutex_count;
    bool membarrier_refused;
    void (*at_exit)(void *);
} * h;

void hooks_begin(void)
{
    if (!h) {
        h = calloc(1, sizeof *h);
        h->heap = mmap(NULL, HEAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    memset(h->heap, 0, h->used);
    h->used = 0;
    h->block_count = h->mutex_count = 0;
    h->at_exit = NULL;
    h->membarrier_refused = false;
}

/* ---- The heap ------------------------------------------------------------------------------------------------- */

void *berth__heap_aligned(size_t size_bytes, size_t alignment)
{
    size_t begin = berth__align_up(h->used, alignment < 16 ? 16 : alignment);
    if (begin + size_bytes + 16 > HEAP_BYTES || h->block_count == BLOCKS_MAX) {
        fprintf(stderr, "explore: the program needs too much of the heap\n");
        exit(1);
    }
    h->used = begin + size_bytes + 16; /* a gap, in which an access beyond the end is in no block */
    uintptr_t address = (uintptr_t)h->heap + begin;
    h->blocks[h->block_count++] = (heap_block){address, address + size_bytes, false};
    return (void *)address;
}

void *berth__heap_alloc(size_t size_bytes)
{
    return berth__heap_aligned(size_bytes, 16);
}

void *berth__heap_zalloc(size_t count, size_t element_bytes)
{
    return berth__heap_aligned(count * element_bytes, 16); /* fresh memory is zero */
}

void *berth__heap_zaligned(size_t size_bytes, size_t alignment)
{
    return berth__heap_aligned(size_bytes, alignment);
}

static heap_block *block_at(uintptr_t address)
{
    uint32_t low = 0, high = h->block_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (h->blocks[middle].begin <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &h->blocks[low - 1] : NULL;
}

void berth__heap_free(void *p)
{
    if (!p)
        return;
    heap_block *b = block_at((uintptr_t)p);
    if (!b || b->begin != (uintptr_t)p || b->freed) {
        explore_fail("the heap is given back %p, which it has not handed out or has back already", p);
        return;
    }
    /* Freeing is a write to all of it: whoever touches it unordered is a race even if it comes first. */
    for (uintptr_t at = b->begin; at + 8 <= b->end && at < b->begin + 4096; at += 8)
        memory_plain(__builtin_return_address(0), (void *)at, 8, true);
    b->freed = true;
}

void *berth__heap_realloc(void *p, size_t size_bytes)
{
    void *fresh = berth__heap_alloc(size_bytes);
    if (p) {
        heap_block *b = block_at((uintptr_t)p);
        size_t had = b->end - b->begin;
        memcpy(fresh, p, had < size_bytes ? had : size_bytes);
        berth__heap_free(p);
    }
    return fresh;
}

void berth__heap_fail_at(uint64_t n, bool persist)
{
    (void)n, (void)persist;
}
uint64_t berth__heap_live(void)
{
    return 0;
}
uint64_t berth__heap_fail_left(void)
{
    return 0;
}

void hooks_check_live(const void *pc, const void *address)
{
    uintptr_t at = (uintptr_t)address;
    if (!h || at < (uintptr_t)h->heap || at >= (uintptr_t)h->heap + h->used)
        return;
    const heap_block *b = block_at(at);
    if (b && !b->freed && at < b->end)
        return;
    explore_note(pc, "touches %p", address);
    explore_fail("%p is touched %s", address, b && b->freed ? "after it was freed" : "beyond its block");
}

/* ---- Failing, as berth's own files see it: a broken assertion is a fault -------------------------------------- */

bool berth__assert_failed(const char *what, const char *why, const char *file, int line)
{
    explore_fail("%s: %s, at %s:%d", why, what, file, line);
    return false;
}

extern uint64_t berth__failure_count;
uint64_t berth__failure_count; /* core/answer.h reads it; 0, as berth__failures */

uint64_t berth__failures(void)
{
    return 0;
}

berth_status berth__fail_unless_said(berth_status status, uint64_t before, const char *name, const char *what)
{
    (void)before, (void)name, (void)what;
    return status;
}

berth_status(berth__fail)(berth_status status, const char *format, ...)
{
    (void)format;
    return status;
}

berth_status(berth__fail_driver)(berth_status status, int64_t driver_code, const char *driver_words,
                                 const char *format, ...)
{
    (void)driver_code, (void)driver_words, (void)format;
    return status;
}

void berth__log(berth_log_level level, const char *format, ...)
{
    (void)level, (void)format;
}

/* Blocks with headers come from the sources, and no source is modelled. Their map would ask for locks before main. */
bool berth__far_read(const void *block, berth__header *out)
{
    (void)block, (void)out;
    return hooks_not_modelled("berth__far_read");
}

const berth_error *berth_last_error(void)
{
    static berth_error none = {.struct_size = sizeof none};
    return &none;
}

/* ---- pthread and the kernel ----------------------------------------------------------------------------------- */

int hooks_yield(void)
{
    explore_yield();
    return 0;
}

long hooks_syscall(long number, ...)
{
    if (number != SYS_membarrier) {
        errno = ENOSYS;
        return -1;
    }
    if (h->membarrier_refused) {
        errno = EPERM;
        return -1;
    }
    memory_barrier_everywhere(__builtin_return_address(0));
    return 0;
}

void explore_refuse_membarrier(void)
{
    h->membarrier_refused = true;
}

/* Every thread has a processor of its own; who comes to run there makes it pass a fence. */
int hooks_getaffinity(pid_t pid, size_t bytes, cpu_set_t *set)
{
    (void)pid, (void)bytes;
    CPU_ZERO(set);
    for (size_t t = 0; t < EXPLORE_THREADS; t++)
        CPU_SET(t, set);
    return 0;
}

int hooks_setaffinity(pid_t pid, size_t bytes, const cpu_set_t *set)
{
    (void)pid, (void)bytes;
    if (CPU_COUNT(set) == 1)
        for (int t = 0; t < EXPLORE_THREADS; t++)
            if (CPU_ISSET((size_t)t, set))
                memory_barrier_of(__builtin_return_address(0), t);
    return 0;
}

long hooks_sysconf(int name)
{
    return name == _SC_NPROCESSORS_CONF ? EXPLORE_THREADS : (sysconf)(name);
}

static mutex_state *state_of(const void *mutex)
{
    for (uint32_t i = 0; i < h->mutex_count; i++)
        if (h->mutexes[i].mutex == mutex)
            return &h->mutexes[i];
    if (h->mutex_count == MUTEXES_MAX)
        abort();
    h->mutexes[h->mutex_count] = (mutex_state){mutex, -1};
    return &h->mutexes[h->mutex_count++];
}

int hooks_mutex_trylock(pthread_mutex_t *mutex)
{
    explore_step();
    mutex_state *state = state_of(mutex);
    if (state->owner >= 0)
        return EBUSY;
    state->owner = explore_thread();
    memory_lock_taken(mutex);
    explore_note(__builtin_return_address(0), "takes the lock %p", (void *)mutex);
    return 0;
}

int hooks_mutex_lock(pthread_mutex_t *mutex)
{
    while (hooks_mutex_trylock(mutex) != 0)
        explore_block(mutex);
    return 0;
}

int hooks_mutex_unlock(pthread_mutex_t *mutex)
{
    explore_step();
    memory_lock_given(mutex);
    state_of(mutex)->owner = -1;
    explore_wake(mutex);
    explore_note(__builtin_return_address(0), "gives the lock %p", (void *)mutex);
    return 0;
}

int hooks_once(pthread_once_t *once, void (*function)(void))
{
    enum { UNDER_WAY = PTHREAD_ONCE_INIT + 1, DONE };
    while (*once == UNDER_WAY)
        explore_block(once);
    if (*once == PTHREAD_ONCE_INIT) {
        *once = UNDER_WAY;
        function();
        *once = DONE;
        memory_lock_given(once);
        explore_wake(once);
    }
    memory_lock_taken(once);
    return 0;
}

int hooks_key_create(pthread_key_t *key, void (*at_exit)(void *))
{
    *key = 1;
    h->at_exit = at_exit;
    return 0;
}

int hooks_setspecific(pthread_key_t key, const void *value)
{
    (void)key;
    explore_at_exit(h->at_exit, (void *)value);
    return 0;
}

int hooks_atfork(void (*before)(void), void (*parent)(void), void (*child)(void))
{
    (void)before, (void)parent, (void)child;
    return 0;
}

int hooks_not_modelled(const char *what, ...)
{
    fprintf(stderr, "explore: the code under test calls %s, which is not modelled\n", what);
    abort();
}

/* ---- What the compiler calls ---------------------------------------------------------------------------------- */

#define PC __builtin_return_address(0)

static uint64_t change_set(uint64_t old, uint64_t operand)
{
    (void)old;
    return operand;
}
static uint64_t change_add(uint64_t old, uint64_t operand)
{
    return old + operand;
}
static uint64_t change_sub(uint64_t old, uint64_t operand)
{
    return old - operand;
}
static uint64_t change_and(uint64_t old, uint64_t operand)
{
    return old & operand;
}
static uint64_t change_or(uint64_t old, uint64_t operand)
{
    return old | operand;
}
static uint64_t change_xor(uint64_t old, uint64_t operand)
{
    return old ^ operand;
}

#define MODIFY(bits, name, change)                                                                  \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile void *p, uint##bits##_t value, int order); \
    uint##bits##_t __tsan_atomic##bits##_##name(volatile void *p, uint##bits##_t value, int order)  \
    {                                                                                               \
        return (uint##bits##_t)memory_modify(PC, (void *)p, bits / 8, change, value, order);        \
    }

#define COMPARE(bits, kind)                                                                         \
    int __tsan_atomic##bits##_compare_exchange_##kind(volatile void *p, void *expected,             \
                                                      uint##bits##_t value, int order, int failed); \
    int __tsan_atomic##bits##_compare_exchange_##kind(volatile void *p, void *expected,             \
                                                      uint##bits##_t value, int order, int failed)  \
    {                                                                                               \
        uint##bits##_t seen;                                                                        \
        memcpy(&seen, expected, sizeof seen);                                                       \
        uint64_t wide = seen;                                                                       \
        bool same = memory_compare_exchange(PC, (void *)p, bits / 8, &wide, value, order, failed);  \
        seen = (uint##bits##_t)wide;                                                                \
        memcpy(expected, &seen, sizeof seen);                                                       \
        return same;                                                                                \
    }

/* Clang's form, which answers with what it found. */
#define COMPARE_VALUE(bits)                                                                                 \
    uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(volatile void *p, uint##bits##_t expected,    \
                                                              uint##bits##_t value, int order, int failed); \
    uint##bits##_t __tsan_atomic##bits##_compare_exchange_val(volatile void *p, uint##bits##_t expected,    \
                                                              uint##bits##_t value, int order, int failed)  \
    {                                                                                                       \
        uint64_t wide = expected;                                                                           \
        (void)memory_compare_exchange(PC, (void *)p, bits / 8, &wide, value, order, failed);                \
        return (uint##bits##_t)wide;                                                                        \
    }

#define ATOMICS(bits)                                                                    \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile void *p, int order);        \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile void *p, int order)         \
    {                                                                                    \
        return (uint##bits##_t)memory_load(PC, (void *)p, bits / 8, order);              \
    }                                                                                    \
    void __tsan_atomic##bits##_store(volatile void *p, uint##bits##_t value, int order); \
    void __tsan_atomic##bits##_store(volatile void *p, uint##bits##_t value, int order)  \
    {                                                                                    \
        memory_store(PC, (void *)p, bits / 8, value, order);                             \
    }                                                                                    \
    MODIFY(bits, exchange, change_set)                                                   \
    MODIFY(bits, fetch_add, change_add)                                                  \
    MODIFY(bits, fetch_sub, change_sub)                                                  \
    MODIFY(bits, fetch_and, change_and)                                                  \
    MODIFY(bits, fetch_or, change_or)                                                    \
    MODIFY(bits, fetch_xor, change_xor)                                                  \
    COMPARE(bits, strong)                                                                \
    COMPARE(bits, weak) COMPARE_VALUE(bits)

ATOMICS(8)
ATOMICS(16)
ATOMICS(32)
ATOMICS(64)

#define PLAIN(name, bytes, write)          \
    void __tsan_##name(void *p);           \
    void __tsan_##name(void *p)            \
    {                                      \
        memory_plain(PC, p, bytes, write); \
    }

PLAIN(read1, 1, false)
PLAIN(read2, 2, false)
PLAIN(read4, 4, false)
PLAIN(read8, 8, false)
PLAIN(read16, 16, false)
PLAIN(write1, 1, true)
PLAIN(write2, 2, true)
PLAIN(write4, 4, true)
PLAIN(write8, 8, true)
PLAIN(write16, 16, true)
PLAIN(unaligned_read2, 2, false)
PLAIN(unaligned_read4, 4, false)
PLAIN(unaligned_read8, 8, false)
PLAIN(unaligned_read16, 16, false)
PLAIN(unaligned_write2, 2, true)
PLAIN(unaligned_write4, 4, true)
PLAIN(unaligned_write8, 8, true)
PLAIN(unaligned_write16, 16, true)

#define DECLARED(...) \
    __VA_ARGS__;      \
    __VA_ARGS__

DECLARED(void __tsan_read_range(void *p, size_t bytes))
{
    memory_plain(PC, p, bytes, false);
}
DECLARED(void __tsan_write_range(void *p, size_t bytes))
{
    memory_plain(PC, p, bytes, true);
}
DECLARED(void __tsan_atomic_thread_fence(int order))
{
    memory_fence(PC, order);
}
DECLARED(void __tsan_atomic_signal_fence(int order))
{
    (void)order;
}
DECLARED(void __tsan_init(void))
{
}
DECLARED(void __tsan_func_entry(void *caller))
{
    (void)caller;
}
DECLARED(void __tsan_func_exit(void))
{
}
