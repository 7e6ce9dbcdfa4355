/* The conformance suite's parts: sources and wrappers to be put together, and checks to run on every stack.
 */
#ifndef BERTH_TESTS_CONFORMANCE_H
#define BERTH_TESTS_CONFORMANCE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "berth/berth.h"
#include "scale.h"

/* ---- To add an allocator: a function, and a line in the table at the end of sources.c or wrappers.c ---- */

enum {
    NOT_ON_HOST = 1 << 0,       /* blocks are reached by berth_copy only */
    NOTICES_BAD_FREES = 1 << 1, /* a second free is BERTH_BAD_FREE, also under a wrapper that does not look */
    SMALL = 1 << 2,             /* holds 256 KiB at least, and not much more */
    SHOWS_ALL_LIVE = 1 << 3,    /* a snapshot has every live block */
    IS_SHARED = 1 << 6,         /* the process has one: others may have left something idle in it */
    NO_MEMORY = 1 << 5,         /* addresses only: nothing can be written or compared */
    TOTALS_ONLY = 1 << 4,       /* over an inner allocator without figures, bytes in use stay 0 */
    HIDES_SIZES =
        1 << 6, /* tracks none over one that does: what is above it keeps headers, and sees blocks move */
};

/* Makes a source with one reference; NULL: not possible on this machine, the stack is skipped. */
typedef struct source {
    const char *name;
    berth_allocator *(*make)(void);
    unsigned flags;
} source;

/* The device has neither streams nor pinned memory, and must say so where it is asked for them. */
extern bool memory_only;

/* Puts a wrapper around `inner`, which the caller still owns its reference of. NULL: it cannot stand there,
 * the stack goes on without it. */
typedef struct wrapper {
    const char *name;
    berth_allocator *(*wrap)(berth_allocator *inner);
    unsigned flags; /* added to the source's */
} wrapper;

extern const source sources[];
extern const size_t source_count;
/* The sources on the first device of a kind; NULL, with words on stderr, if there is none. */
const source *sources_on(const char *device_kind, size_t *count);
extern const wrapper wrappers[];
extern const size_t wrapper_count;
extern const size_t paired_wrapper_count; /* the first so many are tried two deep in every order */

/* ---- What a check gets --------------------------------------------------------------------------------- */

typedef struct subject {
    berth_allocator *a;
    unsigned flags;
} subject;

typedef struct check {
    const char *name;
    void (*run)(subject *s);
} check;

extern const check checks[];
extern const size_t check_count;
extern const check thread_checks[];
extern const size_t thread_check_count;

/* Writes and compares a block's bytes, wherever it lies. Thread safe; `same` does not assert. */
void fill(subject *s, void *p, size_t size_bytes, unsigned char with);
bool same(subject *s, const void *p, size_t size_bytes, unsigned char as);

/* Figures, and whether there are any. */
bool stats_of(subject *s, berth_stats *out);

void *get(subject *s, size_t size_bytes, size_t alignment);
void give(subject *s, void *p, size_t size_bytes);

/* The next of a row of numbers that are the same in every run. */
static inline uint64_t draw(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

#endif
