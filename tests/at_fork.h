/* For tests that fork while other threads work. AddressSanitizer's heap stays locked in the child when another
 * thread was in malloc at the moment of the fork, and the child's first allocation waits for ever. Under it these
 * tests fork alone: what the child does is still looked at, and the other builds have the threads. */
#ifndef BERTH_TESTS_AT_FORK_H
#define BERTH_TESTS_AT_FORK_H

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define AT_FORK_ALONE 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define AT_FORK_ALONE 1
#endif

/* How many of `wanted` threads may run while the test forks. */
static inline int at_fork_threads(int wanted)
{
#if defined(AT_FORK_ALONE)
    return 0 * wanted;
#else
    return wanted;
#endif
}

#endif
