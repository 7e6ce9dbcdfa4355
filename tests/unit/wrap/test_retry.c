/* Retry waits for frees and no longer than its deadline; no-retry does not wait. */
#include "unit/wrap/wrap_test.h"

#include <unistd.h>

struct stack {
    berth_budget *budget;
    berth_allocator *a;
};

static struct stack new_stack(uint64_t limit, uint64_t deadline_ns)
{
    struct stack s = {NULL, NULL};
    berth_allocator *system = new_system(), *limit_of = NULL;
    assert_int_equal(berth_budget_create(limit, &s.budget), BERTH_OK);
    assert_int_equal(berth_limit_create(system, s.budget, &limit_of), BERTH_OK);
    berth_retry_options options = BERTH_RETRY_OPTIONS_INIT;
    options.deadline_ns = deadline_ns;
    assert_int_equal(berth_retry_create(limit_of, &options, &s.a), BERTH_OK);
    berth_allocator_release(system);
    berth_allocator_release(limit_of);
    return s;
}

static void drop_stack(struct stack *s)
{
    berth_allocator_release(s->a);
    berth_budget_release(s->budget);
}

struct freer {
    berth_allocator *a;
    void *p;
};

/* Frees once the other thread is known to wait: its first failure has been counted. */
static void *free_when_waited_for(void *context)
{
    struct freer *f = context;
    berth_stats stats = {.struct_size = sizeof stats};
    do {
        usleep(200);
        berth_stats_get(f->a, &stats);
    } while (stats.num_retries == 0);
    berth_deallocate(f->a, f->p, 0, NULL);
    return NULL;
}

static void waits_for_a_free(void **state)
{
    (void)state;
    struct stack s = new_stack(1000, UINT64_C(60000000000));
    struct freer f = {s.a, take(s.a, 1000)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_when_waited_for, &f), 0);
    void *p = take(s.a, 1000);
    pthread_join(thread, NULL);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(s.a, &stats), BERTH_OK);
    assert_int_equal(stats.num_retries, 1);
    give(s.a, p);
    drop_stack(&s);
}

static void *raise_when_waited_for(void *context)
{
    struct stack *s = context;
    berth_stats stats = {.struct_size = sizeof stats};
    do {
        usleep(200);
        berth_stats_get(s->a, &stats);
    } while (stats.num_retries == 0);
    berth_budget_set_limit(s->budget, 2000);
    return NULL;
}

/* Room may come by ways that no free of ours announces. */
static void looks_again_without_a_free(void **state)
{
    (void)state;
    struct stack s = new_stack(1000, UINT64_C(60000000000));
    void *held = take(s.a, 1000);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, raise_when_waited_for, &s), 0);
    void *p = take(s.a, 1000);
    pthread_join(thread, NULL);
    give(s.a, p);
    give(s.a, held);
    drop_stack(&s);
}

static void gives_up_at_the_deadline(void **state)
{
    (void)state;
    struct stack s = new_stack(1000, 3000000);
    void *held = take(s.a, 1000), *p = (void *)1;
    assert_int_equal(berth_allocate(s.a, 1, 1, NULL, &p), BERTH_OVER_BUDGET);
    assert_null(p);
    assert_non_null(strstr(berth_last_error()->message, "in vain"));
    assert_non_null(strstr(berth_last_error()->message, "budget of 1000"));
    give(s.a, held);
    drop_stack(&s);
}

static void no_retry_fails_at_once(void **state)
{
    (void)state;
    struct stack s = new_stack(1000, UINT64_C(3600000000000)); /* an hour: a wait would be noticed */
    void *held = take(s.a, 1000), *p = NULL;
    berth_request request = BERTH_REQUEST_INIT;
    request.flags = BERTH_NO_RETRY;
    assert_int_equal(berth_allocate(s.a, 1, 1, &request, &p), BERTH_OVER_BUDGET);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(s.a, &stats), BERTH_OK);
    assert_int_equal(stats.num_retries, 0);
    give(s.a, held);
    drop_stack(&s);
}

static void other_failures_do_not_wait(void **state)
{
    (void)state;
    struct stack s = new_stack(1000, UINT64_C(3600000000000));
    void *p = NULL;
    assert_int_equal(berth_allocate(s.a, 8, 3, NULL, &p), BERTH_INVALID_ARGUMENT);
    berth_retry_options options = BERTH_RETRY_OPTIONS_INIT;
    options.struct_size = 4;
    berth_allocator *a = NULL;
    assert_int_equal(berth_retry_create(s.a, &options, &a), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_retry_create(NULL, NULL, &a), BERTH_INVALID_ARGUMENT);
    drop_stack(&s);
}

/* What the driver said of the last try is kept beside the words of the wait. */
static berth_status refuse_allocation(void *self, size_t size_bytes, size_t alignment,
                                      const berth_request *request, void **out)
{
    (void)self, (void)size_bytes, (void)alignment, (void)request, (void)out;
    return berth_fail_driver(BERTH_OUT_OF_DEVICE_MEMORY, -4, "CL_NO", "the driver has none");
}

static berth_status take_anything(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)p, (void)size_bytes, (void)stream;
    return BERTH_OK;
}

static void destroy_nothing(void *self)
{
    (void)self;
}

static void the_drivers_words_are_kept(void **state)
{
    (void)state;
    const berth_allocator_ops ops = {.struct_size = sizeof ops,
                                     .allocate = refuse_allocation,
                                     .deallocate = take_anything,
                                     .destroy = destroy_nothing};
    berth_allocator *inner = NULL, *a = NULL;
    void *p = NULL;
    assert_int_equal(berth_allocator_create(&ops, NULL, &inner), BERTH_OK);
    berth_retry_options options = BERTH_RETRY_OPTIONS_INIT;
    options.deadline_ns = 0;
    assert_int_equal(berth_retry_create(inner, &options, &a), BERTH_OK);
    assert_int_equal(berth_allocate(a, 8, 8, NULL, &p), BERTH_OUT_OF_DEVICE_MEMORY);
    assert_int_equal(berth_last_error()->driver_code, -4);
    assert_string_equal(berth_last_error()->driver_words, "CL_NO");
    assert_non_null(strstr(berth_last_error()->message, "in vain: the driver has none"));
    berth_allocator_release(a);
    berth_allocator_release(inner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_for_a_free),           cmocka_unit_test(looks_again_without_a_free),
        cmocka_unit_test(gives_up_at_the_deadline),   cmocka_unit_test(no_retry_fails_at_once),
        cmocka_unit_test(other_failures_do_not_wait), cmocka_unit_test(the_drivers_words_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
