/* Waiting for a word: the kernel's futex where there is one, else short naps. */
#include "base/park.h"

#include <limits.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The kernel's numbers, which are its ABI: not every libc brings linux/futex.h. */
enum { wait_private = 0 | 128, wake_private = 1 | 128, NAP_NS = 100000 };

void berth__park(_Atomic uint32_t *word, uint32_t seen, uint64_t at_most_ns)
{
    struct timespec for_at_most = {(time_t)(at_most_ns / 1000000000u), (long)(at_most_ns % 1000000000u)};
#ifdef SYS_futex
    (void)syscall(SYS_futex, word, wait_private, seen,
                  at_most_ns == BERTH__PARK_FOR_EVER ? NULL : &for_at_most, NULL, 0);
#else
    if (atomic_load(word) != seen)
        return;
    if (at_most_ns > NAP_NS)
        for_at_most = (struct timespec){0, NAP_NS};
    nanosleep(&for_at_most, NULL);
#endif
}

void berth__unpark_all(_Atomic uint32_t *word)
{
#ifdef SYS_futex
    (void)syscall(SYS_futex, word, wake_private, INT_MAX, NULL, NULL, 0);
#else
    (void)word;
#endif
}
