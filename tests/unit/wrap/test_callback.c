/* The failure callback is asked until it has nothing left, and never by its own allocations. */
#include "unit/wrap/wrap_test.h"

enum { CACHED = 3 };

struct cache {
    berth_allocator *a; /* the allocator with the callback */
    berth_allocator *inner;
    void *blocks[CACHED];
    int kept;
    int asked;
    bool allocates;
};

static size_t give_one(void *context, berth_allocator *inner, size_t size_bytes, const berth_request *request)
{
    struct cache *c = context;
    (void)size_bytes, (void)request;
    c->asked++;
    if (c->allocates) {
        void *p = NULL;
        assert_int_equal(berth_allocate(c->a, 500, 64, NULL, &p), BERTH_OVER_BUDGET);
    }
    if (c->kept == 0)
        return 0;
    assert_int_equal(berth_deallocate(inner, c->blocks[--c->kept], 0, NULL), BERTH_OK);
    return 100;
}

static void set_up_cache(struct cache *c, berth_budget **budget)
{
    berth_allocator *system = new_system();
    *c = (struct cache){.kept = 0};
    assert_int_equal(berth_budget_create(300, budget), BERTH_OK);
    assert_int_equal(berth_limit_create(system, *budget, &c->inner), BERTH_OK);
    assert_int_equal(berth_failure_callback_create(c->inner, give_one, c, &c->a), BERTH_OK);
    berth_allocator_release(system);
    for (int i = 0; i < CACHED; i++)
        c->blocks[c->kept++] = take(c->inner, 100);
}

static void drop_cache(struct cache *c, berth_budget *budget)
{
    while (c->kept)
        give(c->inner, c->blocks[--c->kept]);
    berth_allocator_release(c->a);
    berth_allocator_release(c->inner);
    berth_budget_release(budget);
}

static void gives_back_until_it_fits(void **state)
{
    (void)state;
    struct cache c;
    berth_budget *budget = NULL;
    set_up_cache(&c, &budget);
    void *p = take(c.a, 200);
    assert_int_equal(c.asked, 2);
    assert_int_equal(c.kept, 1);
    void *q = NULL;
    c.allocates = true;
    assert_int_equal(berth_allocate(c.a, 301, 64, NULL, &q), BERTH_OVER_BUDGET);
    assert_int_equal(c.asked, 4); /* once with something to give, once without */
    assert_non_null(strstr(berth_last_error()->message, "301 bytes"));
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(c.a, &stats), BERTH_OK);
    assert_int_equal(stats.num_retries, 2);
    give(c.a, p);
    drop_cache(&c, budget);
}

static void no_retry_does_not_ask(void **state)
{
    (void)state;
    struct cache c;
    berth_budget *budget = NULL;
    set_up_cache(&c, &budget);
    berth_request request = BERTH_REQUEST_INIT;
    request.flags = BERTH_NO_RETRY;
    void *p = NULL;
    assert_int_equal(berth_allocate(c.a, 100, 64, &request, &p), BERTH_OVER_BUDGET);
    assert_int_equal(c.asked, 0);
    drop_cache(&c, budget);
}

/* Without a function the inner allocator is trimmed; one that has nothing to give changes nothing. */
static void trims_by_itself(void **state)
{
    (void)state;
    struct cache c;
    berth_budget *budget = NULL;
    set_up_cache(&c, &budget);
    berth_allocator *a = NULL;
    assert_int_equal(berth_failure_callback_create(c.inner, NULL, NULL, &a), BERTH_OK);
    void *p = NULL;
    assert_int_equal(berth_allocate(a, 100, 64, NULL, &p), BERTH_OVER_BUDGET);
    berth_allocator_release(a);
    assert_int_equal(berth_failure_callback_create(NULL, NULL, NULL, &a), BERTH_INVALID_ARGUMENT);
    assert_null(a);
    drop_cache(&c, budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gives_back_until_it_fits),
        cmocka_unit_test(no_retry_does_not_ask),
        cmocka_unit_test(trims_by_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
