/* A storm of forks while other threads are inside every call: each child goes on with the same objects, and
 * an alarm ends one that hangs. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "berth/berth.h"

/* The thread sanitizer's own heap stays locked in a child when another thread was in malloc: there a child only passes
 * our fork handlers, and the threads beside it are watched. */
#ifdef __SANITIZE_THREAD__
enum { CHILD_ROUNDS = 0 };
#else
enum { CHILD_ROUNDS = 30 };
#endif
enum { THREADS = 3, FORKS = 60, CHILD_SECONDS = 60 };

typedef void (*work_fn)(void *context, unsigned round);

struct storm {
    work_fn work;
    void *context;
    _Atomic bool over;
    _Atomic unsigned started;
};

static void *rage(void *argument)
{
    struct storm *storm = argument;
    atomic_fetch_add(&storm->started, 1);
    for (unsigned round = 0; !atomic_load(&storm->over); round++)
        storm->work(storm->context, round);
    return NULL;
}

static void fork_once(struct storm *storm)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(CHILD_SECONDS);
        for (int round = 0; round < CHILD_ROUNDS; round++)
            storm->work(storm->context, (unsigned)round);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        fail_msg("a child ended by signal %d%s", WTERMSIG(status),
                 WTERMSIG(status) == SIGALRM ? ": it hung" : "");
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void run_storm(work_fn work, void *context)
{
    static struct storm storm; /* a failed assertion leaves while the threads still run */
    storm = (struct storm){.work = work, .context = context};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, rage, &storm), 0);
    while (atomic_load(&storm.started) < THREADS)
        ;
    for (int i = 0; i < FORKS; i++)
        fork_once(&storm);
    atomic_store(&storm.over, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

/* ---- Allocators ------------------------------------------------------------------------------------ */

static bool see_block(void *context, const berth_block *block)
{
    (void)block;
    return ++*(size_t *)context < 100;
}

static void expect(bool holds)
{
    if (!holds) /* in a child too, where an assertion of cmocka would go astray */
        abort();
}

static void use_allocator(void *context, unsigned round)
{
    berth_allocator *a = context;
    void *p[8] = {0};
    berth_request request = BERTH_REQUEST_INIT;
    request.label = round % 2 ? "odd" : "even";
    request.flags = BERTH_NO_RETRY;
    for (size_t i = 0; i < BERTH_COUNT_OF(p); i++) {
        berth_status status = berth_allocate(a, 100 + 700 * i, 64, i % 2 ? &request : NULL, &p[i]);
        expect(status == BERTH_OK || status == BERTH_OVER_BUDGET || status == BERTH_OUT_OF_HOST_MEMORY);
    }
    size_t size = 0, seen = 0;
    uint64_t id = 0;
    for (size_t i = 0; i < BERTH_COUNT_OF(p); i++)
        if (p[i]) {
            (void)berth_requested_size(a, p[i], &size);
            (void)berth_allocation_id(a, p[i], &id);
            expect(berth_allocator_owns(a, p[i]) != BERTH_NOT_FOUND);
        }
    berth_stats stats = {.struct_size = sizeof stats};
    (void)berth_stats_get(a, &stats);
    if (round % 8 == 0) {
        (void)berth_snapshot(a, see_block, &seen);
        (void)berth_trim(a, 0, &size);
        (void)berth_stats_clear(a);
    }
    for (size_t i = 0; i < BERTH_COUNT_OF(p); i++)
        expect(berth_deallocate(a, p[i], 100 + 700 * i, NULL) == BERTH_OK);
}

static void storm_and_release(berth_allocator *a)
{
    assert_non_null(a);
    run_storm(use_allocator, a);
    berth_allocator_release(a);
}

static berth_allocator *new_system(void)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_cpu_allocator_create(NULL, &a), BERTH_OK);
    return a;
}

static berth_allocator *around(berth_status status, berth_allocator *inner, berth_allocator *outer)
{
    assert_int_equal(status, BERTH_OK);
    berth_allocator_release(inner);
    return outer;
}

static void system_source(void **state)
{
    (void)state;
    storm_and_release(new_system());
}

static void adapter(void **state)
{
    (void)state;
    berth_malloc_family family = {
        .struct_size = sizeof family, .name = "libc", .malloc = malloc, .free = free};
    berth_allocator *a = NULL;
    assert_int_equal(berth_adapter_create(&family, &a), BERTH_OK);
    storm_and_release(a);
}

static void fixed(void **state)
{
    (void)state;
    static _Alignas(64) char region[1 << 20];
    berth_allocator *a = NULL;
    assert_int_equal(berth_fixed_allocator_create(region, sizeof region, &a), BERTH_OK);
    storm_and_release(a);
}

static void mapped(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(berth_mapped_allocator_create(NULL, &a), BERTH_OK);
    storm_and_release(a);
}

static void dry_run(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(berth_dry_run_allocator_create(0, &a), BERTH_OK);
    storm_and_release(a);
}

static void device_source(void **state)
{
    (void)state;
    berth_allocator *a = NULL;
    assert_int_equal(berth_device_allocator_create(berth_device_cpu(), BERTH_MEMORY_DEVICE, &a), BERTH_OK);
    storm_and_release(a);
}

static void guard(void **state)
{
    (void)state;
    berth_guard_options options = BERTH_GUARD_OPTIONS_INIT;
    options.quarantine_bytes = 64 << 10;
    berth_allocator *inner = new_system(), *a = NULL;
    berth_status status = berth_guard_create(inner, &options, &a);
    storm_and_release(around(status, inner, a));
}

static void limit_and_retry(void **state)
{
    (void)state;
    berth_budget *budget = NULL;
    assert_int_equal(berth_budget_create(40000, &budget), BERTH_OK);
    berth_allocator *inner = new_system(), *limit = NULL, *retry = NULL;
    berth_status status = berth_limit_create(inner, budget, &limit);
    limit = around(status, inner, limit);
    berth_retry_options options = BERTH_RETRY_OPTIONS_INIT;
    options.deadline_ns = 1000000;
    status = berth_retry_create(limit, &options, &retry);
    retry = around(status, limit, retry);
    berth_budget_release(budget);
    storm_and_release(retry);
}

static void discard_line(void *context, const char *line, size_t length)
{
    (void)context, (void)line, (void)length;
}

static void log_callback_and_explain(void **state)
{
    (void)state;
    berth_event_log_options options = BERTH_EVENT_LOG_OPTIONS_INIT;
    options.write = discard_line;
    berth_allocator *inner = new_system(), *logged = NULL, *called = NULL, *explained = NULL;
    berth_status status = berth_event_log_create(inner, &options, &logged);
    logged = around(status, inner, logged);
    status = berth_failure_callback_create(logged, NULL, NULL, &called);
    called = around(status, logged, called);
    status = berth_explain_create(called, &explained);
    storm_and_release(around(status, called, explained));
}

static void tracking(void **state)
{
    (void)state;
    for (uint32_t depth = 0; depth <= 4; depth += 4) {
        berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
        options.track_sizes = true;
        options.stack_depth = depth;
        berth_allocator *inner = new_system(), *a = NULL;
        berth_status status = berth_tracking_create(inner, &options, &a);
        storm_and_release(around(status, inner, a));
    }
}

static void scope_meter(void **state)
{
    (void)state;
    berth_allocator *inner = new_system(), *a = NULL;
    berth_status status = berth_scope_meter_create(inner, &a);
    storm_and_release(around(status, inner, a));
}

/* ---- The rest -------------------------------------------------------------------------------------- */

static berth_status make_system(void *context, berth_allocator **out)
{
    (void)context;
    return berth_cpu_allocator_create(NULL, out);
}

static bool see_registration(void *context, const berth_registration *registration)
{
    (void)registration;
    return ++*(size_t *)context < 100;
}

static void use_registry(void *context, unsigned round)
{
    (void)context;
    berth_allocator *a = NULL;
    size_t seen = 0;
    int32_t priority = (int32_t)(round % 4);
    (void)berth_registry_remove("storm", priority); /* others may have been faster, at both */
    berth_registration r = {.struct_size = sizeof r,
                            .name = "storm",
                            .priority = priority,
                            .attributes = BERTH_ON_HOST,
                            .factory = make_system};
    (void)berth_registry_add(&r);
    (void)berth_registry_get("storm", priority, &a);
    expect(berth_registry_best(&a) == BERTH_OK || berth_last_error()->status == BERTH_NOT_FOUND);
    expect(berth_registry_best_for(BERTH_ON_HOST, &a) == BERTH_OK ||
           berth_last_error()->status == BERTH_NOT_FOUND);
    expect(berth_registry_visit(see_registration, &seen) == BERTH_OK && seen > 0);
}

static void registry(void **state)
{
    (void)state;
    run_storm(use_registry, NULL);
    for (int32_t i = 0; i < 4; i++)
        (void)berth_registry_remove("storm", i);
}

static berth_buffer *lazy;

static void use_buffers(void *context, unsigned round)
{
    (void)round;
    berth_buffer *buffer = NULL;
    expect(berth_buffer_create(context, 1000, 64, true, &buffer) == BERTH_OK);
    expect(berth_buffer_data(buffer) != NULL && berth_buffer_data(lazy) != NULL);
    expect(berth_buffer_zero(buffer, NULL, false) == BERTH_OK);
    berth_buffer_release(buffer);
}

static void buffers(void **state)
{
    (void)state;
    berth_allocator *a = new_system();
    assert_int_equal(berth_buffer_create(a, 1000, 64, true, &lazy), BERTH_OK);
    run_storm(use_buffers, a);
    berth_buffer_release(lazy);
    berth_allocator_release(a);
}

static void hear(void *context, berth_log_level level, const char *line)
{
    (void)context, (void)level, (void)line;
}

static void use_log(void *context, unsigned round)
{
    (void)context;
    berth_log_set(hear, NULL, round % 2 ? BERTH_LOG_DEBUG : BERTH_LOG_INFO);
    berth__log(BERTH_LOG_WARNING, "round %u", round);
}

static void log_lines(void **state)
{
    (void)state;
    run_storm(use_log, NULL);
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
}

/* A stream of before the fork answers that it stayed behind, and does not wait. */
static void use_streams(void *context, unsigned round)
{
    berth_stream *stream = context;
    char from[64] = {0}, to[64];
    berth_event *event = NULL;
    expect(berth_event_create(berth_device_cpu(), &event) == BERTH_OK);
    berth_status status = berth_copy(berth_device_cpu(), to, from, sizeof to, BERTH_COPY_INFER, stream, true);
    expect(status == BERTH_OK || status == BERTH_DEVICE_LOST);
    expect(berth_event_record(event, stream) == status && berth_event_wait(event) == BERTH_OK);
    berth_event_destroy(event);
    if (round % 16 == 0 && status == BERTH_OK) {
        expect(berth_stream_create(berth_device_cpu(), &stream) == BERTH_OK);
        expect(berth_copy(berth_device_cpu(), to, from, sizeof to, BERTH_COPY_INFER, stream, true) ==
               BERTH_OK);
        berth_stream_destroy(stream);
    }
}

static void streams(void **state)
{
    (void)state;
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    run_storm(use_streams, stream);
    berth_stream_destroy(stream);
}

/* Numbers come and go with threads. */
static void *take_number(void *context)
{
    use_allocator(context, 1);
    return NULL;
}

static void use_threads(void *context, unsigned round)
{
    (void)round;
    pthread_t thread;
    expect(pthread_create(&thread, NULL, take_number, context) == 0);
    pthread_join(thread, NULL);
}

static void thread_numbers(void **state)
{
    (void)state;
    berth_allocator *inner = new_system(), *a = NULL;
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    options.track_sizes = true;
    berth_status status = berth_tracking_create(inner, &options, &a);
    a = around(status, inner, a);
    run_storm(use_threads, a);
    berth_allocator_release(a);
}

/* A child that forks in its turn finds nothing of the first one's threads in the way. */
static void grandchildren(void **state)
{
    (void)state;
    static _Alignas(64) char region[1 << 20];
    berth_allocator *a = NULL;
    assert_int_equal(berth_fixed_allocator_create(region, sizeof region, &a), BERTH_OK);
    static struct storm storm;
    storm = (struct storm){.work = use_allocator, .context = a};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, rage, &storm), 0);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(CHILD_SECONDS);
            fork_once(&storm);
            if (CHILD_ROUNDS > 0)
                use_allocator(a, 0);
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    atomic_store(&storm.over, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    berth_allocator_release(a);
}

/* ---- Caches over caches ------------------------------------------------------------------------------ */

static void use_planned(void *context, unsigned round)
{
    use_allocator(context, round);
    berth_report report = BERTH_REPORT_INIT;
    BERTH_REPLAY(context, &report)
    {
        use_allocator(context, 1);
    }
}

/* A planned allocator over a host cache over a pool over the system: each holds something when the one below is asked. Who
 * takes part in forks first depends on which came first in the process. */
static void storm_in_a_stack(bool cache_came_first)
{
    berth_allocator *earlier = NULL, *planned = NULL;
    berth_host_cache_options cache = BERTH_HOST_CACHE_OPTIONS_INIT;
    berth_pool_options pool = BERTH_POOL_OPTIONS_INIT;
    berth_plan *plan = NULL;
    if (cache_came_first)
        expect(berth_host_cache_create(NULL, &earlier) == BERTH_OK);
    pool.upstream = new_system();
    expect(berth_pool_create(&pool, &cache.upstream) == BERTH_OK);
    berth_allocator *inner = NULL;
    expect(berth_host_cache_create(&cache, &inner) == BERTH_OK && berth_plan_create(&plan) == BERTH_OK);
    expect(berth_planned_create(inner, plan, &planned) == BERTH_OK);
    BERTH_RECORD(planned)
    {
        use_allocator(planned, 1);
    }
    run_storm(use_planned, planned);
    berth_allocator_release(planned);
    berth_plan_release(plan);
    berth_allocator_release(inner);
    berth_allocator_release(cache.upstream);
    berth_allocator_release(pool.upstream);
    berth_allocator_release(earlier);
}

static const char *const came_first[] = {"pool", "cache"};

/* In a process of its own, since what is registered for forks stays. */
static void run_stack(const char *first)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl("/proc/self/exe", "storm", "--stack", first, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void planned_over_cache_over_pool(void **state)
{
    (void)state;
    run_stack(came_first[0]);
    run_stack(came_first[1]);
}

int main(int count, char **arguments)
{
    if (count > 2 && strcmp(arguments[1], "--stack") == 0) {
        storm_in_a_stack(strcmp(arguments[2], came_first[1]) == 0);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(system_source),
        cmocka_unit_test(adapter),
        cmocka_unit_test(fixed),
        cmocka_unit_test(mapped),
        cmocka_unit_test(dry_run),
        cmocka_unit_test(device_source),
        cmocka_unit_test(guard),
        cmocka_unit_test(limit_and_retry),
        cmocka_unit_test(log_callback_and_explain),
        cmocka_unit_test(tracking),
        cmocka_unit_test(scope_meter),
        cmocka_unit_test(registry),
        cmocka_unit_test(buffers),
        cmocka_unit_test(log_lines),
        cmocka_unit_test(streams),
        cmocka_unit_test(thread_numbers),
        cmocka_unit_test(grandchildren),
        cmocka_unit_test(planned_over_cache_over_pool),
    };
    if (count > 1) /* one of them alone */
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
