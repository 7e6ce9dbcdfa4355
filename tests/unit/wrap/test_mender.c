/* Decorators that act on failures, right above each other: each acts as if it had asked the one inside it. */
#include "unit/wrap/wrap_test.h"

/* What a failure callback holds back, and how often it was asked. */
struct spare {
    berth_allocator *owner;
    void *p;
    int asked;
};

static size_t give_spare(void *context, berth_allocator *inner, size_t size_bytes,
                         const berth_request *request)
{
    (void)inner, (void)size_bytes, (void)request;
    struct spare *spare = context;
    spare->asked++;
    if (!spare->p)
        return 0;
    give(spare->owner, spare->p);
    spare->p = NULL;
    return 600;
}

static void count_line(void *context, berth_log_level level, const char *line)
{
    (void)level;
    if (strstr(line, "out of memory"))
        ++*(int *)context;
}

struct stack {
    berth_budget *budget;
    berth_allocator *limit;
    berth_allocator *top; /* explain around retry around a callback around the limit */
    struct spare spare;
    int explained;
};

static berth_allocator *retrying(berth_allocator *inner)
{
    berth_retry_options options = BERTH_RETRY_OPTIONS_INIT;
    options.deadline_ns = 5000000;
    berth_allocator *a = NULL;
    assert_int_equal(berth_retry_create(inner, &options, &a), BERTH_OK);
    return a;
}

static void set_up(struct stack *s)
{
    berth_allocator *system = new_system(), *callback = NULL, *retry = NULL;
    memset(s, 0, sizeof *s);
    assert_int_equal(berth_budget_create(1000, &s->budget), BERTH_OK);
    assert_int_equal(berth_limit_create(system, s->budget, &s->limit), BERTH_OK);
    assert_int_equal(berth_failure_callback_create(s->limit, give_spare, &s->spare, &callback), BERTH_OK);
    retry = retrying(callback);
    assert_int_equal(berth_explain_create(retry, &s->top), BERTH_OK);
    s->spare.owner = s->limit;
    berth_allocator_release(retry);
    berth_allocator_release(callback);
    berth_allocator_release(system);
    berth_log_set(count_line, &s->explained, BERTH_LOG_WARNING);
}

static void tear_down(struct stack *s)
{
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    berth_allocator_release(s->top);
    berth_allocator_release(s->limit);
    assert_int_equal(berth_budget_in_use(s->budget), 0);
    berth_budget_release(s->budget);
}

static uint64_t retries_of(berth_allocator *a)
{
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    return stats.num_retries;
}

static void what_succeeds_asks_nobody(void **state)
{
    (void)state;
    struct stack s;
    set_up(&s);
    give(s.top, take(s.top, 1000));
    assert_int_equal(s.spare.asked, 0);
    assert_int_equal(s.explained, 0);
    assert_int_equal(retries_of(s.top), 0);
    tear_down(&s);
}

static void the_innermost_mends_first(void **state)
{
    (void)state;
    struct stack s;
    set_up(&s);
    s.spare.p = take(s.limit, 600);
    void *p = take(s.top, 700);
    assert_int_equal(s.spare.asked, 1);
    assert_int_equal(s.explained, 0);
    assert_int_equal(retries_of(s.top), 1); /* the callback's: retry itself did not have to wait */
    give(s.top, p);
    tear_down(&s);
}

static void all_are_asked_before_it_fails(void **state)
{
    (void)state;
    struct stack s;
    set_up(&s);
    void *p = take(s.top, 400), *q = (void *)1;
    assert_int_equal(berth_allocate(s.top, 700, 64, NULL, &q), BERTH_OVER_BUDGET);
    assert_null(q);
    assert_true(s.spare.asked >= 2); /* by itself, and again by whoever waits around it */
    assert_int_equal(s.explained, 1);
    assert_non_null(strstr(berth_last_error()->message, "to make it fit: free 100 bytes"));
    berth_request request = BERTH_REQUEST_INIT;
    request.flags = BERTH_NO_RETRY;
    int asked = s.spare.asked;
    assert_int_equal(berth_allocate(s.top, 700, 64, &request, &q), BERTH_OVER_BUDGET);
    assert_int_equal(s.spare.asked, asked);
    assert_int_equal(s.explained, 2); /* explaining is no retrying */
    give(s.top, p);
    tear_down(&s);
}

/* A decorator of another kind in between is not passed by: the outer limit holds too. */
static void others_in_between_are_asked(void **state)
{
    (void)state;
    struct stack s;
    set_up(&s);
    berth_budget *small = NULL;
    berth_allocator *limit = NULL, *top = NULL;
    assert_int_equal(berth_budget_create(500, &small), BERTH_OK);
    assert_int_equal(berth_limit_create(s.top, small, &limit), BERTH_OK);
    assert_int_equal(berth_explain_create(limit, &top), BERTH_OK);
    void *p = take(top, 500), *q = NULL;
    assert_int_equal(berth_budget_in_use(small), 500);
    assert_int_equal(berth_allocate(top, 1, 1, NULL, &q), BERTH_OVER_BUDGET);
    assert_int_equal(s.spare.asked, 0); /* the small budget refused, before anybody inside was asked */
    give(top, p);
    assert_int_equal(berth_budget_in_use(small), 0);
    berth_allocator_release(top);
    berth_allocator_release(limit);
    berth_budget_release(small);
    tear_down(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_succeeds_asks_nobody),
        cmocka_unit_test(the_innermost_mends_first),
        cmocka_unit_test(all_are_asked_before_it_fails),
        cmocka_unit_test(others_in_between_are_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
