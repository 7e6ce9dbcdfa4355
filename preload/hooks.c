/* malloc and its family, C++'s new and delete, and anonymous mappings: each calls the one behind it and tells the
 * recorder. A free is told before it is done and an allocation after: an address that wanders from one thread to
 * another is never told twice at once. */
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <unistd.h>

#include "preload/recorder.h"

#ifndef MREMAP_DONTUNMAP /* glibc before 2.32 */
#define MREMAP_DONTUNMAP 4
#endif

#define HOOK __attribute__((visibility("default")))

/* ---- What stands behind us --------------------------------------------------------------------------- */

static struct {
    void *(*malloc)(size_t);
    void (*free)(void *);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*memalign)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    size_t (*malloc_usable_size)(void *);
    void *(*mmap)(void *, size_t, int, int, int, off_t);
    int (*munmap)(void *, size_t);
    void *(*mremap)(void *, size_t, size_t, int, ...);
    int (*dlclose)(void *);
    _Atomic bool ready;
} next;

/* While the functions behind us are looked for, the loader itself may allocate: from here, and never given back. */
static struct {
    _Alignas(64) char bytes[65536];
    _Atomic size_t used;
} early;

static void *early_alloc(size_t size_bytes)
{
    size_t rounded = (size_bytes + 31) & ~(size_t)15;
    size_t at = atomic_fetch_add(&early.used, rounded);
    if (rounded < size_bytes || at + rounded > sizeof early.bytes)
        return NULL;
    *(size_t *)(void *)&early.bytes[at] = size_bytes;
    return &early.bytes[at + 16];
}
static bool is_early(const void *p)
{
    return (const char *)p >= early.bytes && (const char *)p < early.bytes + sizeof early.bytes;
}

#define FIND(name) *(void **)&next.name = dlsym(RTLD_NEXT, #name)

static __attribute__((noinline, cold)) bool hooks_find(void)
{
    static _Thread_local bool looking;
    if (looking)
        return false;
    looking = true;
    FIND(malloc), FIND(free), FIND(calloc), FIND(realloc), FIND(memalign), FIND(posix_memalign);
    FIND(aligned_alloc), FIND(valloc), FIND(pvalloc), FIND(malloc_usable_size);
    FIND(mmap), FIND(munmap), FIND(mremap), FIND(dlclose);
    atomic_store_explicit(&next.ready, true, memory_order_release);
    looking = false;
    return true;
}
static inline bool hooks_ready(void)
{
    return BERTH_LIKELY(atomic_load_explicit(&next.ready, memory_order_acquire)) || hooks_find();
}

/* ---- Telling ----------------------------------------------------------------------------------------- */

static inline bool wanted(void)
{
    return recorder_here.inside == 0 && recorder_is_on();
}

/* Whether a block takes as much as is to be told: of the same blocks the free is told, where nobody knows what was asked for. */
static inline bool takes_enough(const void *p)
{
    return next.malloc_usable_size((void *)p) >= recorder_options.min_bytes;
}

/* Inline for certain: what is asked for the return address is the hook. */
BERTH__INLINE void tell_alloc(const void *p, size_t size_bytes)
{
    if (!p || (size_bytes < recorder_options.min_bytes && !takes_enough(p)) || !wanted())
        return;
    int saved = errno;
    recorder_here.inside++;
    recorder_alloc(p, size_bytes, berth__trace_tick(),
                   recorder_options.stack_depth ? recorder_stack(__builtin_return_address(0)) : 0);
    recorder_here.inside--;
    errno = saved;
}

/* A NULL is told as what it is, wherever malloc gives it: to the program, or to an operator that will throw. realloc(p, 0)
 * refuses nothing. */
BERTH__INLINE void tell_result(const void *p, size_t size_bytes)
{
    if (BERTH_LIKELY(p != NULL)) {
        tell_alloc(p, size_bytes);
        return;
    }
    if (!size_bytes || size_bytes < recorder_options.min_bytes ||
        recorder_here.inside != recorder_here.in_operator || !recorder_is_on())
        return;
    int saved = errno;
    recorder_here.inside++;
    recorder_fail(size_bytes, recorder_options.stack_depth ? recorder_stack(__builtin_return_address(0)) : 0);
    recorder_here.inside--;
    errno = saved;
}

static inline bool tells_free(const void *p)
{
    return p && (!recorder_options.min_bytes || takes_enough(p)) && wanted();
}
static inline void tell_free(const void *p)
{
    if (!tells_free(p))
        return;
    recorder_here.inside++;
    recorder_free(p, berth__trace_tick());
    recorder_here.inside--;
}

/* ---- malloc and its family --------------------------------------------------------------------------- */

HOOK void *malloc(size_t size)
{
    if (!hooks_ready())
        return early_alloc(size);
    void *p = next.malloc(size);
    tell_result(p, size);
    return p;
}

HOOK void free(void *p)
{
    if (!p || is_early(p) || !hooks_ready())
        return;
    tell_free(p);
    next.free(p);
}

HOOK void *calloc(size_t count, size_t size)
{
    if (!hooks_ready())
        return size && count > sizeof early.bytes / size ? NULL : early_alloc(count * size);
    void *p = next.calloc(count, size);
    size_t bytes;
    tell_result(p, __builtin_mul_overflow(count, size, &bytes) ? SIZE_MAX : bytes);
    return p;
}

/* A block from before the functions behind us were known moves to one of theirs. */
static void *realloc_early(const void *p, size_t size)
{
    void *moved = malloc(size);
    size_t had = *(const size_t *)(const void *)((const char *)p - 16);
    if (moved)
        memcpy(moved, p, had < size ? had : size);
    return moved;
}

/* The old block's end is told for the moment before the call, since its address may be another's when it returns. */
HOOK void *realloc(void *p, size_t size)
{
    if (is_early(p))
        return realloc_early(p, size);
    if (!hooks_ready())
        return early_alloc(size);
    bool tells = tells_free(p);
    uint64_t before = tells ? berth__trace_tick() : 0;
    void *moved = next.realloc(p, size);
    if (tells && (moved || !size)) {
        recorder_here.inside++;
        recorder_free(p, before);
        recorder_here.inside--;
    }
    tell_result(moved, size);
    return moved;
}

HOOK void *reallocarray(void *p, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        tell_result(NULL, SIZE_MAX);
        return NULL;
    }
    return realloc(p, bytes);
}

HOOK int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (!hooks_ready())
        return ENOMEM;
    int code = next.posix_memalign(out, alignment, size);
    if (code == 0 || code == ENOMEM)
        tell_result(code ? NULL : *out, size);
    return code;
}

#define ALIGNED(name)                              \
    HOOK void *name(size_t alignment, size_t size) \
    {                                              \
        if (!hooks_ready())                        \
            return NULL;                           \
        void *p = next.name(alignment, size);      \
        tell_result(p, size);                      \
        return p;                                  \
    }
ALIGNED(aligned_alloc)
ALIGNED(memalign)

#define PAGED(name)                \
    HOOK void *name(size_t size)   \
    {                              \
        if (!hooks_ready())        \
            return NULL;           \
        void *p = next.name(size); \
        tell_result(p, size);      \
        return p;                  \
    }
PAGED(valloc)
PAGED(pvalloc)

/* ---- C++ ---------------------------------------------------------------------------------------------- */

/* Operators usually end in malloc and free, which are hooks too: what they call is inside of them. An allocator that
 * brings its own operators (tcmalloc, jemalloc) is told the same way. */

/* A program without C++ of its own may load a library that has some (Python and its modules): the operators that came with that
 * library are where RTLD_NEXT does not look. They are found by who calls, and stay loaded, since all callers get them then.
 * A caller that is no help (one operator jumps into another) gets the C++ library that is there. */
static void *find_in(const char *library, const char *symbol)
{
    Dl_info owner, ours;
    void *from = library ? dlopen(library, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    void *found = from ? dlsym(from, symbol) : NULL;
    if (found && (!dladdr(found, &owner) || !dladdr(&next, &ours) || owner.dli_fbase == ours.dli_fbase))
        found = NULL;
    void *kept = found ? dlopen(owner.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) : NULL;
    if (kept)
        dlclose(kept);
    if (from)
        dlclose(from);
    return found;
}
static __attribute__((noinline, cold)) void *find_operator(const char *symbol, const void *site)
{
    Dl_info caller;
    recorder_here.inside++;
    void *found = dlsym(RTLD_NEXT, symbol);
    if (!found) {
        const char *libraries[] = {dladdr(site, &caller) ? caller.dli_fname : NULL, "libstdc++.so.6",
                                   "libc++.so.1", "libc++abi.so.1"};
        for (size_t i = 0; !found && i < BERTH_COUNT_OF(libraries); i++)
            found = find_in(libraries[i], symbol);
        (void)dlerror(); /* what was not found is no news for the program */
    }
    recorder_here.inside--;
    return found;
}

#define OPERATOR_NEW(symbol, parameters, arguments)                                  \
    HOOK void *symbol parameters;                                                    \
    HOOK void *symbol parameters                                                     \
    {                                                                                \
        static void *(*behind)parameters;                                            \
        if (BERTH_UNLIKELY(!behind))                                                 \
            *(void **)&behind = find_operator(#symbol, __builtin_return_address(0)); \
        struct unwinder_keeper keeper __attribute__((cleanup(leave))) = {1};         \
        recorder_here.inside++;                                                      \
        recorder_here.in_operator++;                                                 \
        void *p = behind arguments;                                                  \
        keeper.inside = 0;                                                           \
        recorder_here.inside--;                                                      \
        recorder_here.in_operator--;                                                 \
        tell_alloc(p, size);                                                         \
        return p;                                                                    \
    }
/* Operators throw: on the way out the mark must go too. */
struct unwinder_keeper {
    uint32_t inside;
};
static void leave(struct unwinder_keeper *keeper)
{
    recorder_here.inside -= keeper->inside;
    recorder_here.in_operator -= keeper->inside;
}

OPERATOR_NEW(_Znwm, (size_t size), (size))
OPERATOR_NEW(_Znam, (size_t size), (size))
OPERATOR_NEW(_ZnwmRKSt9nothrow_t, (size_t size, const void *nothrow), (size, nothrow))
OPERATOR_NEW(_ZnamRKSt9nothrow_t, (size_t size, const void *nothrow), (size, nothrow))
OPERATOR_NEW(_ZnwmSt11align_val_t, (size_t size, size_t alignment), (size, alignment))
OPERATOR_NEW(_ZnamSt11align_val_t, (size_t size, size_t alignment), (size, alignment))
OPERATOR_NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, (size_t size, size_t alignment, const void *nothrow),
             (size, alignment, nothrow))
OPERATOR_NEW(_ZnamSt11align_val_tRKSt9nothrow_t, (size_t size, size_t alignment, const void *nothrow),
             (size, alignment, nothrow))

#define OPERATOR_DELETE(symbol, parameters, arguments)                               \
    HOOK void symbol parameters;                                                     \
    HOOK void symbol parameters                                                      \
    {                                                                                \
        static void(*behind) parameters;                                             \
        if (BERTH_UNLIKELY(!behind))                                                 \
            *(void **)&behind = find_operator(#symbol, __builtin_return_address(0)); \
        tell_free(p);                                                                \
        recorder_here.inside++;                                                      \
        behind arguments;                                                            \
        recorder_here.inside--;                                                      \
    }
OPERATOR_DELETE(_ZdlPv, (void *p), (p))
OPERATOR_DELETE(_ZdaPv, (void *p), (p))
OPERATOR_DELETE(_ZdlPvm, (void *p, size_t size), (p, size))
OPERATOR_DELETE(_ZdaPvm, (void *p, size_t size), (p, size))
OPERATOR_DELETE(_ZdlPvRKSt9nothrow_t, (void *p, const void *nothrow), (p, nothrow))
OPERATOR_DELETE(_ZdaPvRKSt9nothrow_t, (void *p, const void *nothrow), (p, nothrow))
OPERATOR_DELETE(_ZdlPvSt11align_val_t, (void *p, size_t alignment), (p, alignment))
OPERATOR_DELETE(_ZdaPvSt11align_val_t, (void *p, size_t alignment), (p, alignment))
OPERATOR_DELETE(_ZdlPvmSt11align_val_t, (void *p, size_t size, size_t alignment), (p, size, alignment))
OPERATOR_DELETE(_ZdaPvmSt11align_val_t, (void *p, size_t size, size_t alignment), (p, size, alignment))

/* ---- Mappings ---------------------------------------------------------------------------------------- */

BERTH__INLINE void tell_map(const void *p, size_t size_bytes)
{
    int saved = errno;
    recorder_here.inside++;
    recorder_map(p, size_bytes,
                 recorder_options.stack_depth ? recorder_stack(__builtin_return_address(0)) : 0);
    recorder_here.inside--;
    errno = saved;
}
/* The system takes whole pages, however much was asked for. */
static inline void tell_unmap(const void *p, size_t size_bytes, uint64_t tick)
{
    int saved = errno;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    recorder_here.inside++;
    recorder_unmap(p, (size_bytes + page - 1) & ~(page - 1), tick);
    recorder_here.inside--;
    errno = saved;
}

/* Memory of nobody else: neither a file's nor address space that is only reserved. */
static bool is_memory(int protection, int flags)
{
    return (flags & MAP_ANONYMOUS) && (protection & PROT_WRITE);
}

HOOK void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset)
{
    if (!hooks_ready() || !next.mmap) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    uint64_t before = flags & MAP_FIXED ? berth__trace_tick() : 0;
    void *p = next.mmap(address, length, protection, flags, file, offset);
    if (p == MAP_FAILED || !wanted())
        return p;
    if (flags & MAP_FIXED) /* what was there is no more, whatever came instead */
        tell_unmap(p, length, before);
    if (is_memory(protection, flags))
        tell_map(p, length);
    return p;
}
#undef mmap64 /* a macro where both are one */
HOOK void *mmap64(void *address, size_t length, int protection, int flags, int file, off_t offset)
    __attribute__((alias("mmap")));

HOOK int munmap(void *address, size_t length)
{
    if (!hooks_ready() || !next.munmap) {
        errno = EINVAL;
        return -1;
    }
    uint64_t before = berth__trace_tick(); /* as in realloc; what is refused has ended nothing */
    int code = next.munmap(address, length);
    if (code == 0 && wanted())
        tell_unmap(address, length, before);
    return code;
}

HOOK void *mremap(void *address, size_t old_length, size_t length, int flags, ...)
{
    void *fixed = NULL;
    if (flags & MREMAP_FIXED) {
        va_list arguments;
        va_start(arguments, flags);
        /* NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): va_start stands above */
        fixed = va_arg(arguments, void *);
        va_end(arguments);
    }
    if (!hooks_ready() || !next.mremap) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    uint64_t before = berth__trace_tick(); /* as in realloc */
    void *p = next.mremap(address, old_length, length, flags, fixed);
    if (p != MAP_FAILED && wanted()) {
        if (!(flags & MREMAP_DONTUNMAP))
            tell_unmap(address, old_length, before);
        if (flags & MREMAP_FIXED)
            tell_unmap(fixed, length, before);
        tell_map(p, length);
    }
    return p;
}

/* ---- Libraries ---------------------------------------------------------------------------------------- */

/* dlopen asks who calls it, so nothing can stand in front of it; what comes is no matter where nothing has gone. */
HOOK int dlclose(void *library)
{
    if (!hooks_ready() || !next.dlclose)
        return -1;
    int code = next.dlclose(library);
    recorder_stacks_unloaded();
    return code;
}
