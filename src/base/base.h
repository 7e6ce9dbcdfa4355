/* What every file of berth may use: failing with words, assertions, and memory for our own bookkeeping. */
#ifndef BERTH_BASE_BASE_H
#define BERTH_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "berth/log.h"
#include "berth/status.h"

#define BERTH_LIKELY(x) __builtin_expect(!!(x), 1)
#define BERTH_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* For the few functions on every allocation's way, where a call would be a good part of the cost. */
#define BERTH__INLINE static inline __attribute__((always_inline))
/* And the ones whose cost is promised in nanoseconds: a cache line of their own is worth half of one. */
#define BERTH_HOT __attribute__((hot, aligned(64)))
/* And for what they call when something is out of the ordinary, to keep it out of their way. */
#define BERTH__COLD __attribute__((noinline, cold))
#define BERTH_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Keeps `status` and the words for berth_last_error and returns `status`:
 *     return berth__fail(BERTH_INVALID_ARGUMENT, "alignment %zu is not a power of two", alignment); */
berth_status berth__fail(berth_status status, const char *format, ...) BERTH_PRINTF(2, 3);
/* How many failures with words the calling thread has had, and words for a failure of a user's code that has kept
 * none since `before`: what stands there is another failure's. "pool" "free a block" */
uint64_t berth__failures(void);
berth_status berth__fail_unless_said(berth_status status, uint64_t before, const char *name,
                                     const char *what);
/* The analyzer sees one file at a time, and would fear that a failure answers BERTH_OK. */
#ifdef __clang_analyzer__
#define berth__fail(status, ...) ((void)berth__fail(status, __VA_ARGS__), (status))
#endif
/* The same with the driver's code and words. */
berth_status berth__fail_driver(berth_status status, int64_t driver_code, const char *driver_words,
                                const char *format, ...) BERTH_PRINTF(4, 5);
#ifdef __clang_analyzer__
#define berth__fail_driver(status, ...) ((void)berth__fail_driver(status, __VA_ARGS__), (status))
#endif

void berth__log(berth_log_level level, const char *format, ...) BERTH_PRINTF(2, 3);

/* BERTH_ASSERT is cheap and stays in release builds, where a failure logs and the caller answers
 * BERTH_INTERNAL; debug builds abort. BERTH_DCHECK exists in debug builds only.
 *     if (!BERTH_ASSERT(taken > 0, "[B1] a lock is given back by its taker")) return BERTH_INTERNAL; */
bool berth__assert_failed(const char *what, const char *why, const char *file, int line);
#define BERTH_ASSERT(condition, why) \
    (BERTH_LIKELY(condition) || berth__assert_failed(#condition, why, __FILE__, __LINE__))
#ifdef NDEBUG
#define BERTH_DCHECK(condition, why) ((void)0)
#else
#define BERTH_DCHECK(condition, why) ((void)BERTH_ASSERT(condition, why))
#endif

/* Memory for our own bookkeeping, never for users' blocks: one door, so that tests can make the nth request
 * fail. NULL on exhaustion; no words are kept, the caller says what it was for. */
void *berth__heap_alloc(size_t size_bytes);
void *berth__heap_zalloc(size_t count, size_t element_bytes);
void *berth__heap_realloc(void *p, size_t size_bytes);
void *berth__heap_aligned(size_t size_bytes, size_t alignment);
void *berth__heap_zaligned(size_t size_bytes, size_t alignment); /* all zero */
void berth__heap_free(void *p);

/* From begin to end the calling thread's large blocks are kept when they are freed, and given to its next requests of
 * about their size: fresh pages cost more than what is done with them. What is in use and what is kept are together
 * never more than was in use at once. `trim` frees what the innermost scope keeps beyond so many bytes. */
enum { BERTH__HEAP_KEPT = 32 };
typedef struct berth__heap_scope {
    void *kept[BERTH__HEAP_KEPT];
    size_t kept_count, kept_bytes;
    size_t used_bytes, most_bytes; /* in large blocks; the most that were ever used */
    struct berth__heap_scope *outer;
} berth__heap_scope;
void berth__heap_scope_begin(berth__heap_scope *scope);
void berth__heap_scope_trim(size_t kept_bytes);
void berth__heap_scope_end(berth__heap_scope *scope);

/* Tests only: the request number `n` from now (1: the next) fails, and all after it if `persist`; 0 turns it
 * off. Live counts what is handed out and not freed. */
void berth__heap_fail_at(uint64_t n, bool persist);
uint64_t berth__heap_live(void);
/* How many requests are still to come before one fails; 0: it has failed, or none is to. */
uint64_t berth__heap_fail_left(void);

/* Sizes, marks and hashes count on words of 64 bits. */
_Static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8, "berth needs a machine with 64-bit pointers");

/* An address without the tag that ARM's top-byte-ignore lets a pointer carry (MTE, HWASan). */
static inline uintptr_t berth__untag(uintptr_t address)
{
#if defined(__aarch64__)
    return address & (UINTPTR_MAX >> 8);
#else
    return address;
#endif
}
/* How far `p` lies behind `start`, both with or without tags; huge if it lies before it. */
static inline uintptr_t berth__distance(const void *p, uintptr_t start)
{
    return berth__untag((uintptr_t)p) - berth__untag(start);
}

static inline bool berth__is_power_of_two(size_t n)
{
    return n != 0 && (n & (n - 1)) == 0;
}
static inline bool berth__add_overflows(uint64_t a, uint64_t b, uint64_t *sum)
{
    return __builtin_add_overflow(a, b, sum);
}
static inline bool berth__mul_overflows(uint64_t a, uint64_t b, uint64_t *product)
{
    return __builtin_mul_overflow(a, b, product);
}

/* `n` up to the next multiple of `alignment`, a power of two. The caller knows that it does not wrap. */
static inline size_t berth__align_up(size_t n, size_t alignment)
{
    return (n + alignment - 1) & ~(alignment - 1);
}

#endif
