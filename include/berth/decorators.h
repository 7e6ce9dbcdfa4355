/* Decorators: allocators around an allocator that change one thing. They stack in any order; each holds a
 * reference to the one inside. */
#ifndef BERTH_DECORATORS_H
#define BERTH_DECORATORS_H

#include "berth/allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Limit: a hard budget -------------------------------------------------------------------------- */

/* A number of bytes that one or several allocators may have in use together. */
typedef struct berth_budget berth_budget;

/* The largest limit there is, for a budget that counts and does not limit (yet): figures of allocators around it
 * then say bytes_limit 0, none. */
#define BERTH_BUDGET_UNLIMITED (UINT64_MAX >> 2)

/* A budget of `limit_bytes`; 0 and more than BERTH_BUDGET_UNLIMITED are BERTH_INVALID_ARGUMENT. The caller owns one reference. Any thread.
 * BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_budget_create(uint64_t limit_bytes, berth_budget **out);

/* Counted references; every limit around an allocator holds one. Release accepts NULL. Any thread. */
BERTH_API berth_budget *berth_budget_retain(berth_budget *budget);
BERTH_API void berth_budget_release(berth_budget *budget);

/* Another limit from now on. What is in use above it stays, and nothing more is granted until enough is
 * freed. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_budget_set_limit(berth_budget *budget, uint64_t limit_bytes);

BERTH_API uint64_t berth_budget_limit(berth_budget *budget);
/* Exact whenever no call is in flight. Any thread. */
BERTH_API uint64_t berth_budget_in_use(berth_budget *budget);

/* Charges what is allocated through it to `budget`, by the bytes asked for: BERTH_OVER_BUDGET, without asking
 * `inner`, for what would exceed it. The budget is never exceeded, with any number of threads, and nothing is
 * refused that fits. Retains both. The caller owns one reference. Any thread. BERTH_OK,
 * BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_limit_create(berth_allocator *inner, berth_budget *budget,
                                          berth_allocator **out);

/* ---- Retry: waits for frees ------------------------------------------------------------------------ */

typedef struct berth_retry_options {
    size_t struct_size;
    uint64_t deadline_ns; /* how long one allocation may wait; default 10 s */
} berth_retry_options;

#define BERTH_RETRY_OPTIONS_INIT                           \
    {                                                      \
        sizeof(berth_retry_options), UINT64_C(10000000000) \
    }

/* An allocation that `inner` refuses for want of memory or budget is tried again whenever something is freed
 * through this decorator, and now and then besides (others may free too), until it succeeds or the deadline
 * has passed: then it answers as `inner` did last. BERTH_NO_RETRY in the request fails at once. Counts
 * num_retries in its figures: allocations that had to wait. `options` may be NULL. The caller owns one
 * reference. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_retry_create(berth_allocator *inner, const berth_retry_options *options,
                                          berth_allocator **out);

/* ---- Failure callback: lets a cache give memory back ------------------------------------------------ */

/* `inner` could not serve `size_bytes`. Gives memory back and returns how much, 0 if there is nothing (more)
 * to give. Called with no lock of berth held, on the allocating thread; it may call berth. Allocations that
 * it makes itself are not led back to it. */
typedef size_t (*berth_failure_fn)(void *context, berth_allocator *inner, size_t size_bytes,
                                   const berth_request *request);

/* An allocation that `inner` refuses for want of memory or budget is tried again after `fn` has given
 * something back, for as long as it does. `fn` NULL trims `inner` itself. BERTH_NO_RETRY in the request fails
 * at once. The caller owns one reference. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT,
 * BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_failure_callback_create(berth_allocator *inner, berth_failure_fn fn,
                                                     void *context, berth_allocator **out);

/* ---- Event log: one line of CSV an event ----------------------------------------------------------- */

/* Receives one line with its newline. Called with no lock held, by several threads at once. */
typedef void (*berth_event_line_fn)(void *context, const char *line, size_t length);

typedef struct berth_event_log_options {
    size_t struct_size;
    const char *path; /* a file that lines are added to; NULL: `write` gets them */
    berth_event_line_fn write;
    void *context;
} berth_event_log_options;

#define BERTH_EVENT_LOG_OPTIONS_INIT                      \
    {                                                     \
        sizeof(berth_event_log_options), NULL, NULL, NULL \
    }

/* The first line of a log. Times are of the monotonic clock; `label` is quoted where CSV needs it. */
#define BERTH_EVENT_LOG_HEADER "time_ns,thread,event,address,bytes,alignment,label,stream,status\n"

/* Writes a line for each allocate, free, reallocate and record_use, failures too; allocations that are marked
 * BERTH_WILL_BE_LOGGED are left to their caller. A free stands before it is done, since the address may be another thread's
 * at once, and so does the half of a resize that frees (reallocate_from, then reallocate); free_failed takes it back. A line is one write: lines of threads and processes do not
 * mix, and none is lost in a crash. The caller owns one reference. Any thread. BERTH_OK,
 * BERTH_INVALID_ARGUMENT, BERTH_IO, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_event_log_create(berth_allocator *inner, const berth_event_log_options *options,
                                              berth_allocator **out);

/* ---- Guard: finds writes where they do not belong --------------------------------------------------- */

typedef enum berth_guard_fault {
    BERTH_GUARD_OVERFLOW = 1,         /* bytes behind a block were written */
    BERTH_GUARD_UNDERFLOW = 2,        /* bytes in front of it */
    BERTH_GUARD_WRITE_AFTER_FREE = 3, /* a freed block was written */
    BERTH_GUARD_DOUBLE_FREE = 4,      /* a freed block was freed again */
    BERTH_GUARD_BAD_FREE = 5,         /* not a block, or freed so long ago that it is forgotten */
} berth_guard_fault;

/* What was found. Valid during the call only. */
typedef struct berth_guard_report {
    size_t struct_size;
    berth_guard_fault fault;
    const void *address;  /* the block; for a bad free the pointer itself */
    uint64_t size_bytes;  /* as it was asked for; 0 for a bad free */
    int64_t offset_bytes; /* of the first byte found changed, from the block's start */
    const char *label;    /* of its allocation; NULL: none */
    uint64_t allocation_id;
    void *const *allocated_by; /* call stack, innermost first; NULL: unknown */
    uint32_t allocated_depth;
    void *const *freed_by; /* the first free of a double one, the free before a late write */
    uint32_t freed_depth;
    const char *text; /* all of it for people, several lines */
} berth_guard_report;

#define BERTH_GUARD_REPORT_INIT                                                                       \
    {                                                                                                 \
        sizeof(berth_guard_report), BERTH_GUARD_OVERFLOW, NULL, 0, 0, NULL, 0, NULL, 0, NULL, 0, NULL \
    }

/* Called with no lock of berth held. */
typedef void (*berth_guard_fn)(void *context, const berth_guard_report *report);

typedef struct berth_guard_options {
    size_t struct_size;
    size_t redzone_bytes;    /* watched on each side; default 64, at most 64 KiB */
    size_t quarantine_bytes; /* freed blocks are kept back up to this total; default 1 MiB, 0: none */
    bool zero_on_free;       /* for secrets: freed blocks are wiped with zeros instead of a pattern */
    berth_guard_fn report;   /* NULL: the text goes to the log as an error */
    void *context;
} berth_guard_options;

#define BERTH_GUARD_OPTIONS_INIT                                            \
    {                                                                       \
        sizeof(berth_guard_options), 64, (size_t)1 << 20, false, NULL, NULL \
    }

/* Puts red zones around every block and keeps freed ones back, filled with a pattern. Overflow and underflow
 * are found when the block is freed (BERTH_CORRUPT, and it is freed all the same), writes after the free when
 * it leaves the quarantine, both also by berth_guard_check; a double or foreign free at once
 * (BERTH_BAD_FREE). It tracks sizes, ids and labels. On host-accessible memory only: BERTH_UNSUPPORTED
 * elsewhere. The caller owns one reference; live blocks keep it too. Any thread. BERTH_OK,
 * BERTH_INVALID_ARGUMENT, BERTH_UNSUPPORTED, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_guard_create(berth_allocator *inner, const berth_guard_options *options,
                                          berth_allocator **out);

/* Looks at every live and every kept block now, reports each fault once, and writes how many to `faults` (may
 * be NULL). No other thread may allocate or free through it meanwhile. BERTH_OK, BERTH_CORRUPT if there was
 * any, BERTH_INVALID_ARGUMENT if it is not a guard. */
BERTH_API berth_status berth_guard_check(berth_allocator *guard, size_t *faults);

/* ---- Explain: an out-of-memory message that helps --------------------------------------------------- */

/* Why `a` may not have been able to serve `size_bytes`, for people, in several lines: what was asked and by
 * whom, the cause, the limit, what is in use, the five largest labels and call sites, the largest free block, and what would make it
 * fit. The cause is what `berth explain-oom` would name from a recording: too much is alive; fragmented, with the label that pins the
 * cheapest hole; held by a cache; held by streams. Labels come from the allocator's snapshot where it has one, else from the scope
 * meters (berth/scope.h), call sites from a tracker that keeps stacks, pieces from the outermost allocator of the stack that shows
 * them. `request` may be NULL. Writes at most `capacity` bytes with the closing zero, and what all
 * of it takes to `needed` (may be NULL). Any thread; it walks the snapshot. BERTH_OK, BERTH_INVALID_ARGUMENT.
 */
BERTH_API berth_status berth_explain(berth_allocator *a, size_t size_bytes, const berth_request *request,
                                     char *text, size_t capacity, size_t *needed);

/* Around `inner`: a failure for want of memory or budget carries the explanation, shortened, in
 * berth_last_error, and in full goes to the log as a warning, rate limited. The status stays. The caller owns
 * one reference. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_explain_create(berth_allocator *inner, berth_allocator **out);

#ifdef __cplusplus
}
#endif
#endif
