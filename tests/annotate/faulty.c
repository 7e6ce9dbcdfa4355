/* Makes memory faults on purpose: faulty ALLOCATOR FAULT, or `all` for every one. For check.sh.
 *
 * The guard's own reports are not the point here: its log is switched off. */
#include <berth/berth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 100 };

static volatile char sink;

static void require(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "faulty: %s: %s\n", what, berth_last_error()->message);
    exit(3);
}

static char *take(berth_allocator *a)
{
    void *p = NULL;
    require(berth_allocate(a, SIZE, BERTH_ALIGNMENT, NULL, &p) == BERTH_OK, "allocate");
    memset(p, 1, SIZE); /* all of it is the user's: no report */
    return p;
}

static void give(berth_allocator *a, char *p)
{
    berth_deallocate(a, p, SIZE, NULL); /* a guard may find the fault too and say so */
}

/* The fault itself, in a volatile access so that no compiler sees through it. */
static void make_fault(berth_allocator *a, const char *fault)
{
    char *p = take(a), *other = take(a);
    volatile char *touched = p;
    if (strcmp(fault, "overflow") == 0) {
        touched[SIZE] = 1;
        give(a, p);
    } else if (strcmp(fault, "use_after_free") == 0) {
        give(a, p);
        sink = touched[40];
    } else {
        give(a, p);
        char *again = take(a); /* the same bytes may come again, and are the user's again */
        give(a, again);
    }
    give(a, other);
}

static void in_guard(const char *fault)
{
    berth_allocator *a = NULL;
    require(berth_guard_create(berth_cpu_allocator(), NULL, &a) == BERTH_OK, "guard");
    make_fault(a, fault);
    berth_allocator_release(a);
}

static void in_fixed(const char *fault)
{
    static _Alignas(64) char region[1 << 16];
    berth_allocator *a = NULL;
    require(berth_fixed_allocator_create(region, sizeof region, &a) == BERTH_OK, "fixed");
    make_fault(a, fault);
    berth_allocator_release(a);
    memset(region, 2, sizeof region); /* the caller's again */
}

static void in_host_cache(const char *fault)
{
    berth_allocator *a = NULL;
    require(berth_host_cache_create(NULL, &a) == BERTH_OK, "host cache");
    make_fault(a, fault);
    berth_allocator_release(a);
}

static void in_planned(const char *fault)
{
    berth_plan *plan = NULL;
    berth_allocator *a = NULL;
    require(berth_plan_create(&plan) == BERTH_OK, "plan");
    require(berth_planned_create(berth_cpu_allocator(), plan, &a) == BERTH_OK, "planned");
    require(berth_record_begin(a, NULL) == BERTH_OK, "record");
    make_fault(a, "none");
    require(berth_record_end(a) == BERTH_OK, "end of record");
    for (int round = 0; round < 2; round++) { /* the second time in a block that was used before */
        require(berth_replay_begin(a, NULL) == BERTH_OK, "replay");
        make_fault(a, round ? fault : "none");
        require(berth_replay_end(a, NULL) == BERTH_OK, "end of replay");
    }
    berth_allocator_release(a);
    berth_plan_release(plan);
}

static void ignore(void *context, berth_log_level level, const char *line)
{
    (void)context, (void)level, (void)line;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const char *fault);
    } subjects[] = {
        {"guard", in_guard}, {"fixed", in_fixed}, {"host_cache", in_host_cache}, {"planned", in_planned}};
    static const char *const faults[] = {"none", "overflow", "use_after_free"};
    bool all = argc == 2 && strcmp(argv[1], "all") == 0;
    berth_log_set(ignore, NULL, BERTH_LOG_NONE);
    for (size_t s = 0; s < sizeof subjects / sizeof subjects[0]; s++)
        for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
            if (!all &&
                (argc < 3 || strcmp(argv[1], subjects[s].name) != 0 || strcmp(argv[2], faults[f]) != 0))
                continue;
            fprintf(stderr, "case %s %s\n", subjects[s].name, faults[f]);
            subjects[s].run(faults[f]);
        }
    fprintf(stderr, "case end\n");
    return 0;
}
