/* The fault sweep: runs an operation with its 1st, 2nd, … internal allocation failing until it succeeds.
 * After each failure the status is clear, there are words, no figure has changed and nothing is leaked.
 *
 *      static berth_status run_create(struct fault *f) { return berth_x_create(f->a, &f->result); }
 *      static void undo_create(struct fault *f) { berth_x_destroy(f->result); }
 *      static const fault_case cases[] = {{"berth_x_create", NULL, run_create, undo_create, NULL}};
 *      FAULT_MAIN(cases)
 */
#ifndef BERTH_TESTS_FAULT_H
#define BERTH_TESTS_FAULT_H

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/berth.h"

/* What an operation works on. `set_up` fills it anew for every failure. */
struct fault {
    berth_allocator *a; /* its figures must not change with a failure; NULL: none are looked at */
    void *result;
    void *more[4];
};

typedef struct fault_case {
    const char *name;
    void (*set_up)(struct fault *f);      /* may be NULL */
    berth_status (*run)(struct fault *f); /* the operation; its allocations fail one after another */
    void (*undo)(struct fault *f);        /* what follows a success; may be NULL */
    void (*tear_down)(struct fault *f);   /* what undoes set_up; may be NULL */
} fault_case;

/* Memory that another thread of ours gives back a little later counts as given back: up to ten seconds. */
static inline bool fault_heap_is_back(uint64_t live)
{
    time_t begun = time(NULL);
    while (berth__heap_live() != live && time(NULL) - begun < 10)
        sched_yield();
    return berth__heap_live() == live;
}

static inline berth_stats fault_figures(const struct fault *f)
{
    berth_stats stats = {.struct_size = sizeof stats};
    if (f->a)
        (void)berth_stats_get(f->a, &stats);
    stats.num_failures = 0; /* the one figure that a failure does change */
    return stats;
}

/* One turn: request number `n` fails, and all after it if `persist`. False: the operation makes fewer. */
static inline bool fault_turn(const fault_case *c, uint64_t n, bool persist)
{
    uint64_t at_first = berth__heap_live();
    struct fault f = {0};
    if (c->set_up)
        c->set_up(&f);
    berth_stats before = fault_figures(&f);
    berth_clear_last_error();
    berth__heap_fail_at(n, persist);
    berth_status status = c->run(&f);
    bool failed = persist ? berth__heap_fail_left() == 1 : berth__heap_fail_left() == 0;
    berth__heap_fail_at(0, false);
    if (status == BERTH_OK) { /* it needs no more, or could do without */
        if (c->undo)
            c->undo(&f);
    } else {
        if (status != BERTH_OUT_OF_HOST_MEMORY)
            fail_msg("%s, request %d: %s: %s", c->name, (int)n, berth_status_name(status),
                     berth_last_error()->message);
        assert_int_equal(berth_last_error()->status, status);
        assert_true(strlen(berth_last_error()->message) > 10);
        berth_stats after = fault_figures(&f);
        assert_memory_equal(&before, &after, sizeof before);
    }
    if (c->tear_down)
        c->tear_down(&f);
    if (!fault_heap_is_back(at_first))
        fail_msg("%s, request %d: %d blocks are left in the end", c->name, (int)n,
                 (int)(berth__heap_live() - at_first));
    return failed;
}

static inline void fault_sweep(void **state)
{
    const fault_case *c = *state;
    for (int persist = 0; persist < 2; persist++) {
        uint64_t n = 1;
        /* With `persist` the count stays at 1 once it has failed; an operation that makes none ends at once.
         */
        while (n < 10000 && fault_turn(c, n, persist != 0))
            n++;
        assert_true(n < 10000);
    }
}

static inline int fault_run(const char *name, const fault_case *cases, size_t count)
{
    struct CMUnitTest *tests = calloc(count, sizeof *tests);
    for (size_t i = 0; tests && i < count; i++)
        tests[i] = (struct CMUnitTest){cases[i].name, fault_sweep, NULL, NULL, (void *)(uintptr_t)&cases[i]};
    int failed = tests ? _cmocka_run_group_tests(name, tests, count, NULL, NULL) : 1;
    free(tests);
    return failed;
}

#define FAULT_MAIN(cases)                                                      \
    int main(void)                                                             \
    {                                                                          \
        return fault_run(__FILE__, cases, sizeof(cases) / sizeof((cases)[0])); \
    }

#endif
