/* Captures, stores and names call stacks.
 *
 * Unwinding by tables takes microseconds, frame pointers are usually left out, so neither can run for every
 * allocation. But a program allocates from few places: a thread remembers, for the place it was called from
 * and the stack pointer there, where on the stack the return addresses lay and what they were. If all of them
 * are still there the stack is the same, and a dozen loads have proven it. Only else it is unwound.
 *
 *      stack pointer                                             older frames
 *      |  ...  [return address 1] ... [return address 2] ...
 *      |<----- offset 1 -------->|
 *      |<----------- offset 2 --------------------->|
 *
 * Where return addresses do not lie at a known place of the frame (not x86-64) every stack is unwound. The
 * unwinder comes from the compiler's run-time library, loaded when first needed, since libberth.so is linked
 * with nothing but the C library. Stacks and caches are mapped, not taken from our heap: they are kept for
 * the life of the process or the thread, and no operation depends on them. */
#include "base/stack.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/lock.h"
#include "base/symbol.h"

struct unwind_context; /* the unwinder's */
typedef int (*frame_fn)(struct unwind_context *context, void *argument);

static int (*unwind_backtrace)(frame_fn each, void *argument);
static uintptr_t (*unwind_ip)(struct unwind_context *context);
static uintptr_t (*unwind_cfa)(struct unwind_context *context);
static bool can_unwind; /* written by `once` */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t cache_key;

/* ---- The depot ----------------------------------------------------------------------------------- */

enum { DEPOT_BUCKETS = 4096, CHUNK_BYTES = 256 << 10, CHUNKS_MAX = 64 };

static berth__spin depot_lock;
static berth__stack *depot[DEPOT_BUCKETS]; /* guard: depot_lock */
static char *chunk;                        /* guard: depot_lock */
static size_t chunk_left;                  /* guard: depot_lock */
static uint32_t chunks;                    /* guard: depot_lock */

static void *map_memory(size_t size_bytes)
{
    void *p = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* With the lock held. NULL: the depot is full. */
static berth__stack *new_stack(uint32_t depth)
{
    size_t size = sizeof(berth__stack) + depth * sizeof(void *);
    if (chunk_left < size) {
        char *fresh = chunks < CHUNKS_MAX ? map_memory(CHUNK_BYTES) : NULL;
        if (!fresh)
            return NULL;
        chunks++;
        chunk = fresh;
        chunk_left = CHUNK_BYTES;
    }
    berth__stack *stack = (berth__stack *)(void *)chunk;
    chunk += size;
    chunk_left -= size;
    return stack;
}

static uint64_t hash_frames(void *const *frames, uint32_t depth)
{
    uint64_t hash = depth;
    for (uint32_t i = 0; i < depth; i++)
        hash = (hash ^ (uintptr_t)frames[i]) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 31;
}

static const berth__stack *stack_intern(void *const *frames, uint32_t depth)
{
    uint64_t hash = hash_frames(frames, depth);
    berth__spin_lock(&depot_lock, BERTH__RANK_THREADS);
    berth__stack **bucket = &depot[hash % DEPOT_BUCKETS], *stack = *bucket;
    while (stack && (stack->hash != hash || stack->depth != depth ||
                     memcmp(stack->frames, frames, depth * sizeof *frames) != 0))
        stack = stack->next;
    if (!stack && (stack = new_stack(depth)) != NULL) {
        stack->hash = hash;
        stack->depth = depth;
        memcpy(stack->frames, frames, depth * sizeof *frames);
        stack->next = *bucket;
        *bucket = stack;
    }
    berth__spin_unlock(&depot_lock, BERTH__RANK_THREADS);
    return stack;
}

/* ---- Unwinding ----------------------------------------------------------------------------------- */

static void *find_unwinder(void *library, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    return found || !library ? found : dlsym(library, name);
}

static void drop_cache(void *cache);

static void load_unwinder(void)
{
    /* Kept open for ever: a stack may be wanted at any time. */
    berth__fork_enter(BERTH__RANK_LOADING); /* a fork waits: see berth__library_open */
    void *library = dlopen("libgcc_s.so.1", RTLD_NOW | RTLD_LOCAL);
    berth__fork_leave(BERTH__RANK_LOADING);
    /* ISO C has no conversion from an object pointer to a function pointer; dlsym's users copy the bits. */
    void *symbols[3] = {find_unwinder(library, "_Unwind_Backtrace"), find_unwinder(library, "_Unwind_GetIP"),
                        find_unwinder(library, "_Unwind_GetCFA")};
    memcpy(&unwind_backtrace, &symbols[0], sizeof symbols[0]);
    memcpy(&unwind_ip, &symbols[1], sizeof symbols[1]);
    memcpy(&unwind_cfa, &symbols[2], sizeof symbols[2]);
    can_unwind = symbols[0] && symbols[1] && symbols[2] && pthread_key_create(&cache_key, drop_cache) == 0;
}

void berth__stack_prepare(void)
{
    pthread_once(&once, load_unwinder);
}

struct walk {
    uint32_t depth;
    uint32_t seen;
    void *frames[BERTH__STACK_DEPTH];
    uintptr_t slots[BERTH__STACK_DEPTH]; /* where on the stack each return address lies */
};

static int note_frame(struct unwind_context *context, void *argument)
{
    struct walk *walk = argument;
    uintptr_t ip = unwind_ip(context);
    if (ip == 0)
        return 5; /* _URC_END_OF_STACK */
    if (walk->seen++ == 0)
        return 0; /* ourselves */
    walk->frames[walk->depth] = (void *)ip;
    walk->slots[walk->depth] = unwind_cfa(context) - sizeof(void *);
    return ++walk->depth < BERTH__STACK_DEPTH ? 0 : 5;
}

/* ---- What a thread remembers --------------------------------------------------------------------- */

#if defined(__x86_64__)
enum { CACHE_ENTRIES = 128 };

struct remembered {
    uintptr_t place; /* the return address of berth__stack_here */
    uintptr_t base;  /* its frame */
    const berth__stack *stack;
    uint32_t offsets[BERTH__STACK_DEPTH];
};

static _Thread_local struct remembered *cache;

static void drop_cache(void *memory)
{
    cache = NULL;
    munmap(memory, CACHE_ENTRIES * sizeof(struct remembered));
}

static struct remembered *entry_for(uintptr_t place, uintptr_t base)
{
    if (BERTH_UNLIKELY(!cache)) {
        cache = map_memory(CACHE_ENTRIES * sizeof(struct remembered));
        if (cache && pthread_setspecific(cache_key, cache) != 0)
            drop_cache(cache);
        if (!cache)
            return NULL;
    }
    return &cache[((place ^ base >> 4) * 0x9e3779b97f4a7c15u) >> 57];
}

/* The slots are our own stack's, but no variables of ours. */
__attribute__((no_sanitize("address", "thread"))) static bool is_unchanged(const struct remembered *entry)
{
    const berth__stack *stack = entry->stack;
    for (uint32_t i = 0; i < stack->depth; i++)
        if (*(void **)(entry->base + entry->offsets[i]) != stack->frames[i])
            return false;
    return true;
}

/* A stack whose slots are not where we think is not remembered (a signal frame, hand-written code). */
__attribute__((no_sanitize("address", "thread"))) static void remember(struct remembered *entry,
                                                                       uintptr_t place, uintptr_t base,
                                                                       const struct walk *walk,
                                                                       const berth__stack *stack)
{
    entry->place = 0;
    for (uint32_t i = 0; i < walk->depth; i++) {
        uintptr_t slot = walk->slots[i];
        if (slot < base || slot - base > UINT32_MAX || *(void **)slot != walk->frames[i])
            return;
        entry->offsets[i] = (uint32_t)(slot - base);
    }
    entry->base = base;
    entry->stack = stack;
    entry->place = place;
}

__attribute__((noinline)) const berth__stack *berth__stack_here(void)
{
    uintptr_t place = (uintptr_t)__builtin_return_address(0), base = (uintptr_t)__builtin_frame_address(0);
    berth__stack_prepare();
    struct remembered *entry = can_unwind ? entry_for(place, base) : NULL;
    if (BERTH_LIKELY(entry && entry->place == place && entry->base == base && is_unchanged(entry)))
        return entry->stack;
    if (!can_unwind)
        return NULL;
    struct walk walk = {.depth = 0};
    unwind_backtrace(note_frame, &walk);
    const berth__stack *stack = stack_intern(walk.frames, walk.depth);
    if (entry && stack)
        remember(entry, place, base, &walk, stack);
    return stack;
}

#else

static void drop_cache(void *memory)
{
    (void)memory;
}

__attribute__((noinline)) const berth__stack *berth__stack_here(void)
{
    berth__stack_prepare();
    if (!can_unwind)
        return NULL;
    struct walk walk = {.depth = 0};
    unwind_backtrace(note_frame, &walk);
    return stack_intern(walk.frames, walk.depth);
}

#endif

/* ---- For people ---------------------------------------------------------------------------------- */

void berth__stack_format(const berth__stack *stack, char *text, size_t capacity)
{
    size_t length = 0;
    snprintf(text, capacity, "unknown");
    for (uint32_t i = 0; stack && i < stack->depth; i++) {
        char frame[192];
        berth__symbol_format(stack->frames[i], frame, sizeof frame);
        int more = snprintf(text + length, capacity - length, "%s%s", i ? " < " : "", frame);
        if (more < 0 || (size_t)more >= capacity - length)
            return;
        length += (size_t)more;
    }
}
