/* Figures with limits, for the programs here. A limit is widened by the noise that the run has measured of itself, never by a guess.
 * What is missed is printed always; --check makes it the exit code. */
#ifndef BERTH_BENCH_RUNTIMES_CHECK_H
#define BERTH_BENCH_RUNTIMES_CHECK_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Takes --check out of the arguments. */
static inline bool check_is_asked(int *argc, char **argv)
{
    int kept = 0;
    bool asked = false;
    for (int i = 0; i < *argc; i++) {
        if (i > 0 && strcmp(argv[i], "--check") == 0)
            asked = true;
        else
            argv[kept++] = argv[i];
    }
    *argc = kept;
    return asked;
}

static inline bool check_print(const char *what, double value, const char *unit, const char *side,
                               double limit, double noise, bool holds)
{
    printf("  %-52s %8.3f %-4s %s %.2f", what, value, unit, side, limit);
    if (noise > 0)
        printf(", noise %.3f", noise);
    printf(": %s\n", holds ? "holds" : "MISSED");
    return holds;
}

static inline bool check_at_most(const char *what, double value, double limit, double noise, const char *unit)
{
    return check_print(what, value, unit, "at most", limit, noise, value <= limit + noise);
}

static inline bool check_at_least(const char *what, double value, double limit, const char *unit)
{
    return check_print(what, value, unit, "at least", limit, 0, value >= limit);
}

#endif
