/* The planning problem: buffers with lifetimes, each to be given a place in one arena. Numbers in, numbers
 * out: nothing here reads a file or a clock, takes a lock or keeps state. */
#ifndef BERTH_PROBLEM_H
#define BERTH_PROBLEM_H

#include <stdbool.h>

#include "berth/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BERTH_NO_OFFSET UINT64_MAX

/* A time [lower, upper) inside a buffer's life at which it is not live. */
typedef struct berth_gap {
    int64_t lower, upper;
} berth_gap;

/* One buffer, live during [lower, upper) but for its gaps. Its index in the problem is its name. */
typedef struct berth_problem_buffer {
    int64_t lower, upper;
    uint64_t size_bytes;
    uint64_t fixed_offset; /* BERTH_NO_OFFSET: the planner chooses */
    int64_t hint;          /* breaks ties between otherwise equal buffers, lower first */
    uint32_t alignment;    /* of the offset, any number from 1; 0 counts as 1 */
    uint32_t alias_group;  /* buffers with one number share one place; 0: none */
    uint32_t gap_first;    /* gaps[gap_first .. gap_first + gap_count) of the problem, ascending */
    uint32_t gap_count;
} berth_problem_buffer;

/* A problem is plain data that the caller owns; nothing here changes or keeps it. */
typedef struct berth_problem {
    size_t struct_size;
    const berth_problem_buffer *buffers;
    size_t buffer_count;
    const berth_gap *gaps;
    size_t gap_count;
    uint64_t capacity_bytes; /* 0: none */
    uint32_t alignment;      /* rounds every size and offset up to its multiples; 0 or 1: rounds nothing */
} berth_problem;

#define BERTH_PROBLEM_INIT                            \
    {                                                 \
        sizeof(berth_problem), NULL, 0, NULL, 0, 0, 0 \
    }

typedef enum berth_fits {
    BERTH_FITS_UNKNOWN = 0,
    BERTH_FITS_YES = 1,
    BERTH_FITS_NO = 2, /* proven */
} berth_fits;

/* Why a solver stopped. */
typedef enum berth_stop {
    BERTH_STOP_DONE = 0,       /* it has nothing more to try */
    BERTH_STOP_OPTIMAL = 1,    /* the plan is proven optimal */
    BERTH_STOP_FITS = 2,       /* it fits the capacity, and more was not asked for */
    BERTH_STOP_INFEASIBLE = 3, /* proven that nothing fits the capacity */
    BERTH_STOP_STEPS = 4,      /* the step budget is used up */
    BERTH_STOP_CLOCK = 5,      /* the caller's clock said so */
    BERTH_STOP_CANCELLED = 6,  /* the caller said so */
} berth_stop;

/* How good a plan is, and why that is known. */
typedef struct berth_certificate {
    size_t struct_size;
    uint64_t lower_bound_bytes; /* no plan is smaller */
    uint64_t max_live_bytes;    /* the largest number of bytes live at one time */
    uint64_t peak_bytes;        /* what this plan needs */
    uint64_t naive_bytes;       /* the sum of all sizes: separate blocks, never reused */
    int64_t binding_time;       /* the first time at which max_live_bytes are live */
    size_t binding_buffers;     /* how many are live then; berth_problem_live lists them */
    bool proven_optimal;
    berth_fits fits; /* the capacity; BERTH_FITS_YES without one */
    berth_stop stopped_by;
    uint64_t steps;
    uint64_t seed;
    uint64_t fingerprint; /* of the problem, see berth_problem_fingerprint */
    char solver[32];      /* what found the plan: for "auto" the phase */
} berth_certificate;

#define BERTH_CERTIFICATE_INIT                                                                               \
    {                                                                                                        \
        sizeof(berth_certificate), 0, 0, 0, 0, 0, 0, false, BERTH_FITS_UNKNOWN, BERTH_STOP_DONE, 0, 0, 0, "" \
    }

typedef struct berth_progress {
    size_t struct_size;
    const char *phase;
    uint64_t best_bytes; /* UINT64_MAX: no plan yet */
    uint64_t lower_bound_bytes;
    uint64_t steps;
} berth_progress;

#define BERTH_PROGRESS_INIT                   \
    {                                         \
        sizeof(berth_progress), NULL, 0, 0, 0 \
    }

/* Called now and then while solving, about every few thousand steps, on the solving thread. Returns
 * BERTH_STOP_DONE to go on, or BERTH_STOP_CLOCK or BERTH_STOP_CANCELLED to end with the best so far; anything else
 * counts as BERTH_STOP_CLOCK. */
typedef berth_stop (*berth_progress_fn)(void *context, const berth_progress *progress);

typedef enum berth_effort {
    BERTH_EFFORT_DEFAULT = 0,
    BERTH_EFFORT_FAST = 1,
    BERTH_EFFORT_MAX = 2,
} berth_effort;

typedef struct berth_solve_options {
    size_t struct_size;
    const char *solver;   /* a name from berth_solver_name; NULL: "auto" */
    berth_effort effort;  /* a step budget by size */
    uint64_t step_budget; /* overrides it; 0: by effort */
    uint64_t seed;
    bool minimise;              /* with a capacity: go on after the first plan that fits */
    berth_progress_fn progress; /* NULL: none */
    void *context;
    const char
        *without; /* phases of "auto" to leave out, as "weld,windows"; NULL: none. See berth_phase_name */
} berth_solve_options;

#define BERTH_SOLVE_OPTIONS_INIT                                                               \
    {                                                                                          \
        sizeof(berth_solve_options), NULL, BERTH_EFFORT_DEFAULT, 0, 0, false, NULL, NULL, NULL \
    }

/* Whether the numbers make sense: lower <= upper, gaps inside and ascending, the sum of all sizes and
 * paddings within 63 bits, pins aligned, members of an alias group not pinned to two places, no two pinned
 * buffers on top of each other. Words in berth_last_error name the buffer by index. Any thread.
 * BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OVERFLOW, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_problem_validate(const berth_problem *problem);

/* A number that is equal for equal problems whatever the order of their rows and the numbers of their alias
 * groups, and differs otherwise but for chance. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OVERFLOW,
 * BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_problem_fingerprint(const berth_problem *problem, uint64_t *out);

/* The largest number of bytes live at one time, and the first such time (`when` may be NULL). A fast bound.
 * Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OVERFLOW, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_problem_max_live(const berth_problem *problem, uint64_t *bytes, int64_t *when);

/* Writes the indices of buffers live at `time` to `indices`, the `room` largest of them, largest first;
 * `count` is how many there are. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OVERFLOW. */
BERTH_API berth_status berth_problem_live(const berth_problem *problem, int64_t time, size_t *indices,
                                          size_t room, size_t *count);

/* Gives every buffer an offset: offsets[i] for buffers[i], an array of the caller's with buffer_count places.
 * On BERTH_OK the offsets are a valid plan, also when it does not fit the capacity: see certificate->fits.
 * The same problem, seed and step budget give the same answer, on any machine and however many threads solve
 * at once; one search runs on the calling thread alone. The caller sets certificate->struct_size; both
 * pointers may be NULL but offsets not. Any thread; nothing is shared. BERTH_OK, BERTH_INVALID_ARGUMENT,
 * BERTH_OVERFLOW, BERTH_NOT_FOUND (no such solver or phase), BERTH_OUT_OF_HOST_MEMORY, BERTH_CANCELLED (stopped before
 * there was any plan), BERTH_INTERNAL (a fault of the planner's own: every plan is checked before it is handed
 * out, and this one was refused). */
BERTH_API berth_status berth_solve(const berth_problem *problem, const berth_solve_options *options,
                                   uint64_t *offsets, berth_certificate *certificate);

/* The solvers: name and one line about it for index 0, 1, ...; NULL past the last. "auto" is the first. */
BERTH_API const char *berth_solver_name(size_t index);
BERTH_API const char *berth_solver_about(size_t index);

/* The phases of "auto" in the order in which they run: name and one line about it for index 0, 1, ...; NULL
 * past the last. Some come several times, and not all apply to every problem. */
BERTH_API const char *berth_phase_name(size_t index);
BERTH_API const char *berth_phase_about(size_t index);

/* What is wrong with a plan. */
typedef struct berth_verdict {
    size_t struct_size;
    uint64_t peak_bytes;
    size_t first, second; /* the buffers at fault; second only for an overlap */
    int64_t time;         /* of the overlap */
    char words[256];
} berth_verdict;

#define BERTH_VERDICT_INIT                    \
    {                                         \
        sizeof(berth_verdict), 0, 0, 0, 0, "" \
    }

/* Proves from the problem and the offsets alone that no two buffers live together overlap, that every offset
 * keeps its alignment and its pin, that alias groups share their place, and that the peak is right. Knows
 * nothing of any solver. `verdict` may be NULL. BERTH_OK: proven; BERTH_MISMATCH: broken, the verdict says
 * where; BERTH_INVALID_ARGUMENT, BERTH_OVERFLOW, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_problem_check(const berth_problem *problem, const uint64_t *offsets,
                                           berth_verdict *verdict);

#ifdef __cplusplus
}
#endif
#endif
