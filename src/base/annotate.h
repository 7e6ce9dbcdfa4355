/* Tells AddressSanitizer and Valgrind which bytes of our memory are a user's: the one place that knows both.
 *
 *     hand a block out:    berth__annotate_undefined(p, size);   (berth__annotate_defined if it was zeroed)
 *     take it back:        berth__annotate_noaccess(p, size);
 *     look at it again:    berth__annotate_defined(p, size);     before our own code reads or fills it
 *     give the region back to where it came from: berth__annotate_defined over all of it
 *
 * AddressSanitizer counts in granules of 8 bytes from 8-aligned addresses: mark from a block's start (which
 * is aligned) to the end of its slot, then the user's part. Without AddressSanitizer it is one load and a branch that
 * is never taken outside of Valgrind; what is built does not depend on Valgrind being installed. On processors other
 * than x86-64 and arm64, and with -DBERTH_NO_ANNOTATIONS, it is nothing. */
#ifndef BERTH_BASE_ANNOTATE_H
#define BERTH_BASE_ANNOTATE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/base.h"

#if defined(__SANITIZE_ADDRESS__)
#define BERTH__ANNOTATE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define BERTH__ANNOTATE_ASAN 1
#endif
#endif

#if !defined(BERTH_NO_ANNOTATIONS) && !defined(BERTH__ANNOTATE_ASAN) && defined(__linux__) && \
    defined(__LP64__) && (defined(__x86_64__) || defined(__aarch64__))
#define BERTH__ANNOTATE_VALGRIND 1
#endif

#if defined(BERTH_NO_ANNOTATIONS)
#undef BERTH__ANNOTATE_ASAN
#endif

/* A function that reads bytes which are marked, such as a red zone or a header that a stray pointer may not
 * have, or of a block that was freed already: that is how a second free is found. */
#if defined(BERTH__ANNOTATE_ASAN)
#define BERTH__NO_ASAN __attribute__((no_sanitize("address")))
#elif defined(__SANITIZE_THREAD__)
#define BERTH__NO_ASAN __attribute__((no_sanitize("thread")))
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define BERTH__NO_ASAN __attribute__((no_sanitize("thread")))
#endif
#endif
#ifndef BERTH__NO_ASAN
#define BERTH__NO_ASAN
#endif

/* Whether anybody listens: for code that has to leave its fast path to say something. */
#if defined(BERTH__ANNOTATE_ASAN)
#define BERTH__ANNOTATES() true
#elif defined(BERTH__ANNOTATE_VALGRIND)
#define BERTH__ANNOTATES() BERTH_UNLIKELY(berth__runs_on_valgrind)
#else
#define BERTH__ANNOTATES() false
#endif

#if defined(BERTH__ANNOTATE_ASAN)

void __asan_poison_memory_region(void const volatile *address, size_t size_bytes);
void __asan_unpoison_memory_region(void const volatile *address, size_t size_bytes);

static inline void berth__annotate_noaccess(const void *p, size_t size_bytes)
{
    __asan_poison_memory_region(p, size_bytes);
}
static inline void berth__annotate_undefined(const void *p, size_t size_bytes)
{
    __asan_unpoison_memory_region(p, size_bytes);
}
static inline void berth__annotate_defined(const void *p, size_t size_bytes)
{
    __asan_unpoison_memory_region(p, size_bytes);
}

#elif defined(BERTH__ANNOTATE_VALGRIND)

/* The requests, by Valgrind's numbers: its core's own, then those of Memcheck ("MC" in the upper half). */
enum {
    BERTH__VALGRIND_RUNNING = 0x1001,
    BERTH__VALGRIND_NOACCESS = 0x4d430000,
    BERTH__VALGRIND_UNDEFINED = 0x4d430001,
    BERTH__VALGRIND_DEFINED = 0x4d430002,
};

/* Set once when the library is loaded: the client requests themselves cost a few nanoseconds each. */
extern __attribute__((visibility("hidden"))) bool berth__runs_on_valgrind;
void berth__valgrind_noaccess(const void *p, size_t size_bytes);
void berth__valgrind_undefined(const void *p, size_t size_bytes);
void berth__valgrind_defined(const void *p, size_t size_bytes);

static inline void berth__annotate_noaccess(const void *p, size_t size_bytes)
{
    if (BERTH_UNLIKELY(berth__runs_on_valgrind))
        berth__valgrind_noaccess(p, size_bytes);
}
static inline void berth__annotate_undefined(const void *p, size_t size_bytes)
{
    if (BERTH_UNLIKELY(berth__runs_on_valgrind))
        berth__valgrind_undefined(p, size_bytes);
}
static inline void berth__annotate_defined(const void *p, size_t size_bytes)
{
    if (BERTH_UNLIKELY(berth__runs_on_valgrind))
        berth__valgrind_defined(p, size_bytes);
}

#else

static inline void berth__annotate_noaccess(const void *p, size_t size_bytes)
{
    (void)p, (void)size_bytes;
}
static inline void berth__annotate_undefined(const void *p, size_t size_bytes)
{
    (void)p, (void)size_bytes;
}
static inline void berth__annotate_defined(const void *p, size_t size_bytes)
{
    (void)p, (void)size_bytes;
}

#endif
#endif
