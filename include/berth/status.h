/* Statuses: the one answer of every call that can fail, and the words kept beside it. */
#ifndef BERTH_STATUS_H
#define BERTH_STATUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every function of the library that other modules may call is declared with this mark. */
#if defined(__GNUC__)
#define BERTH_API __attribute__((visibility("default")))
#define BERTH_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#else
#define BERTH_API
#define BERTH_PRINTF(format_index, first)
#endif

/* For functions that programs call all the time: a call of the shared library goes straight to the function's address
 * instead of by way of a stub that jumps there (0.4 ns a call). Linked statically it is an ordinary call. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__ELF__)
#define BERTH_DIRECT __attribute__((noplt))
#else
#define BERTH_DIRECT
#endif

/* X(name, value, words). Values are part of the ABI: append, never renumber.
 * Host memory, device memory and a budget are three statuses, because callers react differently. */
#define BERTH_STATUS_LIST(X)                                                \
    X(OK, 0, "ok")                                                          \
    X(INVALID_ARGUMENT, 1, "an argument is not valid")                      \
    X(OUT_OF_HOST_MEMORY, 2, "out of host memory")                          \
    X(OUT_OF_DEVICE_MEMORY, 3, "out of device memory")                      \
    X(OVER_BUDGET, 4, "the limit set for this allocator would be exceeded") \
    X(OVERFLOW, 5, "a size does not fit into its type")                     \
    X(UNSUPPORTED, 6, "this allocator or device cannot do that")            \
    X(NOT_FOUND, 7, "no such thing is known here")                          \
    X(ALREADY_EXISTS, 8, "that name is taken")                              \
    X(NOT_READY, 9, "not finished yet")                                     \
    X(TIMED_OUT, 10, "the deadline has passed")                             \
    X(BUSY, 11, "in use, or not allowed at this moment")                    \
    X(BAD_FREE, 12, "this pointer is not a live block of this allocator")   \
    X(MISMATCH, 13, "the run differs from the plan")                        \
    X(CORRUPT, 14, "memory around a block was overwritten")                 \
    X(BAD_DATA, 15, "the input is damaged or not of the expected form")     \
    X(IO, 16, "a file could not be read or written")                        \
    X(INFEASIBLE, 17, "no plan fits, and that is proven")                   \
    X(CANCELLED, 18, "stopped on request")                                  \
    X(DEVICE_LOST, 19, "the device is gone")                                \
    X(DEVICE_ERROR, 20, "the device's driver reports a failure")            \
    X(INTERNAL, 21, "a promise inside berth is broken; please report this")

typedef enum berth_status {
#define BERTH_STATUS_ENUM(name, value, words) BERTH_##name = value,
    BERTH_STATUS_LIST(BERTH_STATUS_ENUM)
#undef BERTH_STATUS_ENUM
} berth_status;

/* The status as it is written in code, "BERTH_NOT_FOUND"; "BERTH_?" for a number that is none.
 * A constant string. Any thread. */
BERTH_API const char *berth_status_name(berth_status status);

/* The status in words, "no such thing is known here". A constant string. Any thread. */
BERTH_API const char *berth_status_words(berth_status status);

/* What is known about the last failure on a thread beyond its status. */
typedef struct berth_error {
    size_t struct_size;
    berth_status status;
    int64_t driver_code;    /* the driver's own code, 0 where no driver was involved */
    char driver_words[128]; /* the driver's own words, "" likewise */
    char message[512];      /* what was asked, what is wrong, what to try */
} berth_error;

#define BERTH_ERROR_INIT                         \
    {                                            \
        sizeof(berth_error), BERTH_OK, 0, "", "" \
    }

/* The last failure of a berth call on the calling thread; status BERTH_OK if there was none. The object
 * belongs to the thread and changes with its next failure; success does not change it. Any thread. */
BERTH_API const berth_error *berth_last_error(void);

/* For allocators, devices and callbacks of your own: keeps why something failed, and answers `status`:
 *
 *     (void)berth_fail(BERTH_OUT_OF_DEVICE_MEMORY, "heap %d is full", 3);
 *
 * The caller of berth gets exactly these words. What fails without them is told by its name and status
 * alone: berth_last_error never shows an older failure's words. BERTH_OK keeps nothing; a NULL format is the
 * status in words. Any thread. */
BERTH_API berth_status berth_fail(berth_status status, const char *format, ...) BERTH_PRINTF(2, 3);

/* The same for devices, which have a driver's own code and words to keep beside; NULL words are "". A NULL format is the
 * status in words. Any thread. */
BERTH_API berth_status berth_fail_driver(berth_status status, int64_t driver_code, const char *driver_words,
                                         const char *format, ...) BERTH_PRINTF(4, 5);

/* Forgets the calling thread's last failure. Any thread. */
BERTH_API void berth_clear_last_error(void);

#if defined(__GNUC__)
/* What the block macros are made of (BERTH_SCOPE, BERTH_RECORD and their kin): the statement behind it runs exactly
 * once, which compilers can follow, so that a body that returns is the function's end (gcc not at -O0). Names carry
 * the line, so that blocks nest. */
#define BERTH_PASTE_(a, b) a##b
#define BERTH_NAME_(a, b) BERTH_PASTE_(a, b)
#define BERTH_ONCE_(done, ...)                        \
    for (__VA_ARGS__;; __extension__({ goto done; })) \
        if (0) {                                      \
        done:                                         \
            break;                                    \
        } else                                        \
            for (;; __extension__({ goto done; }))
#endif

#ifdef __cplusplus
}
#endif
#endif
