/* The explanation holds every fact that the allocator can tell, and a remedy that would work. */
#include "unit/wrap/wrap_test.h"

static void hear(void *context, berth_log_level level, const char *line)
{
    char *all = context;
    assert_int_equal(level, BERTH_LOG_WARNING);
    strncat(all, line, 8191 - strlen(all));
    strncat(all, "\n", 8191 - strlen(all));
}

static void *take_for(berth_allocator *a, size_t size_bytes, const char *label)
{
    berth_request request = BERTH_REQUEST_INIT;
    void *p = NULL;
    request.label = label;
    assert_int_equal(berth_allocate(a, size_bytes, 64, &request, &p), BERTH_OK);
    return p;
}

static const char *const labels[] = {"tiny", "conv1", "conv2", "dense", "cache", "bias", "weights"};
static const size_t sizes[] = {1, 500, 400, 300, 200, 100, 2000};
enum { BLOCKS = 7 };

static void a_failure_explains_itself(void **state)
{
    (void)state;
    berth_budget *budget = NULL;
    berth_allocator *tracker = new_tracker(), *limit = NULL, *a = NULL;
    assert_int_equal(berth_budget_create(4000, &budget), BERTH_OK);
    assert_int_equal(berth_limit_create(tracker, budget, &limit), BERTH_OK);
    assert_int_equal(berth_explain_create(limit, &a), BERTH_OK);
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = take_for(a, sizes[i], labels[i]);
    char log[8192] = "";
    berth_log_set(hear, log, BERTH_LOG_WARNING);
    void *p = NULL;
    BERTH_SCOPE("attention")
    assert_int_equal(berth_allocate(a, 1000, 64, NULL, &p), BERTH_OVER_BUDGET);
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    const char *message = berth_last_error()->message;
    const char *const facts[] = {
        "1000 bytes for attention", "limit 3.91 KiB (4000 bytes)", "in use 3.42 KiB (3501 bytes)",
        "weights 1.95 KiB (2000 bytes), conv1 500 bytes, conv2 400 bytes, dense 300 bytes, "
        "cache 200 bytes",
        "free 501 bytes (weights alone holds 1.95 KiB (2000 bytes)), or raise the limit to "
        "4.4 KiB (4501 bytes)"};
    for (size_t i = 0; i < BERTH_COUNT_OF(facts); i++)
        assert_non_null(strstr(message, facts[i]));
    assert_null(strstr(message, "bias"));
    assert_non_null(strstr(log, "out of memory: 1000 bytes for attention"));
    assert_non_null(strstr(log, "limit: 3.91 KiB (4000 bytes)"));
    assert_non_null(strstr(log, "in use: 3.42 KiB (3501 bytes)"));
    assert_non_null(strstr(log, "weights 1.95 KiB (2000 bytes)"));
    assert_non_null(strstr(log, "raise the limit to 4.4 KiB (4501 bytes)"));
    for (int i = 0; i < BLOCKS; i++)
        give(a, blocks[i]);
    berth_allocator_release(a);
    berth_allocator_release(limit);
    berth_allocator_release(tracker);
    berth_budget_release(budget);
}

/* The remedy is true: done as told, the allocation succeeds. */
static void the_remedy_helps(void **state)
{
    (void)state;
    berth_budget *budget = NULL;
    berth_allocator *system = new_system(), *limit = NULL;
    assert_int_equal(berth_budget_create(4000, &budget), BERTH_OK);
    assert_int_equal(berth_limit_create(system, budget, &limit), BERTH_OK);
    void *held = take(limit, 3501), *p = NULL;
    assert_int_equal(berth_allocate(limit, 1000, 64, NULL, &p), BERTH_OVER_BUDGET);
    const char *told = strstr(berth_last_error()->message, "raise the budget to ");
    assert_non_null(told);
    assert_non_null(told = strchr(told, '('));
    uint64_t enough = strtoull(told + 1, NULL, 10);
    assert_int_equal(berth_budget_set_limit(budget, enough - 1), BERTH_OK);
    assert_int_equal(berth_allocate(limit, 1000, 64, NULL, &p), BERTH_OVER_BUDGET);
    assert_int_equal(berth_budget_set_limit(budget, enough), BERTH_OK);
    p = take(limit, 1000);
    give(limit, p);
    give(limit, held);
    berth_allocator_release(limit);
    berth_allocator_release(system);
    berth_budget_release(budget);
}

/* Larger than all of it: no free would help, and none is asked for. */
static void no_free_is_asked_for_in_vain(void **state)
{
    (void)state;
    static _Alignas(64) char region[1 << 16];
    berth_budget *budget = NULL;
    berth_allocator *system = new_system(), *limit = NULL, *fixed = NULL;
    void *p = NULL;
    assert_int_equal(berth_budget_create(4000, &budget), BERTH_OK);
    assert_int_equal(berth_limit_create(system, budget, &limit), BERTH_OK);
    assert_int_equal(berth_allocate(limit, 5000, 64, NULL, &p), BERTH_OVER_BUDGET);
    assert_null(strstr(berth_last_error()->message, "free"));
    assert_non_null(strstr(berth_last_error()->message, "whole budget of 3.91 KiB (4000 bytes)"));
    assert_int_equal(berth_fixed_allocator_create(region, sizeof region, &fixed), BERTH_OK);
    assert_int_equal(berth_allocate(fixed, 1 << 20, 64, NULL, &p), BERTH_OUT_OF_HOST_MEMORY);
    assert_null(strstr(berth_last_error()->message, "free"));
    void *half = take(fixed, 40000);
    assert_int_equal(berth_allocate(fixed, 40000, 64, NULL, &p), BERTH_OUT_OF_HOST_MEMORY);
    assert_non_null(strstr(berth_last_error()->message, "free and not 39.1 KiB (40000 bytes)"));
    give(fixed, half);
    berth_allocator_release(fixed);
    berth_allocator_release(limit);
    berth_allocator_release(system);
    berth_budget_release(budget);
}

static void pieces_are_named_as_such(void **state)
{
    (void)state;
    static _Alignas(64) unsigned char region[16384];
    berth_allocator *a = NULL;
    assert_int_equal(berth_fixed_allocator_create(region, sizeof region, &a), BERTH_OK);
    void *blocks[64];
    int count = 0;
    while (count < 64 && berth_allocate(a, 900, 64, NULL, &blocks[count]) == BERTH_OK)
        count++;
    for (int i = 0; i < count; i += 2)
        give(a, blocks[i]);
    char text[2048];
    size_t needed = 0;
    assert_int_equal(berth_explain(a, 4000, NULL, text, sizeof text, &needed), BERTH_OK);
    assert_int_equal(needed, strlen(text) + 1);
    assert_non_null(strstr(text, "in pieces"));
    assert_non_null(strstr(text, "largest free block: "));
    char cut[20];
    assert_int_equal(berth_explain(a, 4000, NULL, cut, sizeof cut, &needed), BERTH_OK);
    assert_int_equal(strlen(cut), sizeof cut - 1);
    assert_int_equal(berth_explain(a, 4000, NULL, NULL, 0, &needed), BERTH_OK);
    assert_true(needed > sizeof cut);
    for (int i = 1; i < count; i += 2)
        give(a, blocks[i]);
    berth_allocator_release(a);
}

static void it_says_what_it_does_not_know(void **state)
{
    (void)state;
    berth_allocator *a = new_plain();
    char text[2048];
    assert_int_equal(berth_explain(a, 4000, NULL, text, sizeof text, NULL), BERTH_OK);
    assert_non_null(strstr(text, "limit: none"));
    assert_non_null(strstr(text, "keeps no figures"));
    assert_int_equal(berth_explain(NULL, 1, NULL, text, sizeof text, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_explain(a, 1, NULL, NULL, 5, NULL), BERTH_INVALID_ARGUMENT);
    berth_allocator_release(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failure_explains_itself),     cmocka_unit_test(the_remedy_helps),
        cmocka_unit_test(no_free_is_asked_for_in_vain),  cmocka_unit_test(pieces_are_named_as_such),
        cmocka_unit_test(it_says_what_it_does_not_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
