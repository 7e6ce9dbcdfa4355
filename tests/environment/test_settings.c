/* Settings in words: what they make, and what is said of those that cannot be read. */
#include "unit/wrap/wrap_test.h"

#include "base/config.h"

static void expect_refused(const char *settings, const char *words)
{
    assert_int_equal(berth_config_check(settings), BERTH_INVALID_ARGUMENT);
    if (!strstr(berth_last_error()->message, words))
        fail_msg("'%s': no '%s' in: %s", settings, words, berth_last_error()->message);
    berth_allocator *a = (void *)1;
    assert_int_equal(berth_stack_create(settings, NULL, &a), BERTH_INVALID_ARGUMENT);
    assert_null(a);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    expect_refused("limits=1", "did you mean 'limit'");
    expect_refused("zero_on_fre=yes", "did you mean 'zero_on_free'");
    expect_refused("explian=yes", "did you mean 'explain'");
    expect_refused("xyzzyxyzzy=1", "berth help environment");
    expect_refused("guard", "guard takes yes or no");
    expect_refused("guard=maybe", "not 'maybe'");
    expect_refused("limit=-5", "limit takes BYTES");
    expect_refused("limit=5X", "limit takes BYTES");
    expect_refused("limit=9999999999T", "limit takes BYTES");
    expect_refused("retry_ms=5K", "retry_ms takes NUMBER");
    expect_refused("stats=some", "off, basic or full");
    expect_refused("event_log=", "event_log takes FILE");
    expect_refused("limit=5;=3", "there is no setting ''");
    char long_one[5000];
    memset(long_one, ';', sizeof long_one - 1);
    long_one[sizeof long_one - 1] = 0;
    expect_refused(long_one, "longer than");
    assert_int_equal(berth_config_check(NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_config_visit(NULL, NULL), BERTH_INVALID_ARGUMENT);
}

static void values_are_read(void **state)
{
    (void)state;
    berth__config c;
    assert_int_equal(berth__config_read("", &c), BERTH_OK);
    assert_int_equal(c.numa_node, -1);
    assert_int_equal(c.quarantine_bytes, 1 << 20);
    assert_int_equal(berth__config_read("limit=3G; quarantine=0 ;guard=on;stats=full;numa_node=2", &c),
                     BERTH_OK);
    assert_int_equal(c.limit_bytes, (int64_t)3 << 30);
    assert_int_equal(c.quarantine_bytes, 0);
    assert_int_equal(c.guard, 1);
    assert_int_equal(c.stats, 2);
    assert_int_equal(c.numa_node, 2);
    assert_int_equal(berth__config_read("guard=off;limit=1T", &c), BERTH_OK);
    assert_int_equal(c.guard, 0);
    assert_int_equal(c.limit_bytes, (int64_t)1 << 40);
}

static void stacks_are_made(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    berth_allocator *a = NULL, *inner = new_system();
    void *p = NULL;
    assert_int_equal(berth_stack_create("limit=1000;guard=yes;scopes=yes;retry_ms=1;explain=1", inner, &a),
                     BERTH_OK);
    p = take(a, 900);
    give(a, p);
    assert_int_equal(berth_deallocate(a, (char *)p + 1, 0, NULL), BERTH_BAD_FREE);
    berth_allocator_release(a);
    berth_allocator_release(inner);
    assert_int_equal(berth_stack_create("prefault=yes;huge_pages=yes", NULL, &a), BERTH_OK);
    assert_string_equal(berth_allocator_name(a), "mapped");
    give(a, take(a, 100));
    berth_allocator_release(a);
    /* A pool over such pages, and over anything; one is enough. */
    assert_int_equal(berth_stack_create("prefault=yes;pool=yes;stats=full", NULL, &a), BERTH_OK);
    assert_string_equal(berth_allocator_name(a), "pool");
    p = take(a, 100);
    size_t size = 0;
    assert_int_equal(berth_allocated_size(a, p, &size), BERTH_OK);
    assert_true(size < 4096); /* not a mapping of its own */
    give(a, p);
    berth_allocator_release(a);
    assert_int_equal(berth_stack_create("pool=yes;stats=off", NULL, &a), BERTH_OK);
    berth_stats stats = BERTH_STATS_INIT;
    assert_int_equal(berth_stats_get(a, &stats), BERTH_UNSUPPORTED);
    inner = a;
    assert_int_equal(berth_stack_create("pool=yes", inner, &a), BERTH_OK);
    assert_ptr_equal(a, inner);
    berth_allocator_release(a);
    berth_allocator_release(inner);
    assert_int_equal(berth_stack_create("event_log=/no/such/folder/log", NULL, &a), BERTH_IO);
    assert_null(a);
    assert_int_equal(berth__heap_live(), live);
}

/* ---- Full figures -------------------------------------------------------------------------------------- */

static char heard[4096];

static void hear(void *context, berth_log_level level, const char *line)
{
    (void)context, (void)level;
    size_t length = strlen(heard);
    snprintf(heard + length, sizeof heard - length, "%s\n", line);
}

/* A stack with one live block is released: the log names the block, and not once nothing is live. */
static void expect_leaks_told(const char *settings, berth_allocator *inner)
{
    for (int leaks = 0; leaks < 2; leaks++) {
        berth_allocator *a = NULL;
        void *p = NULL;
        berth_request request = BERTH_REQUEST_INIT;
        request.label = "forgotten";
        heard[0] = '\0';
        berth_log_set(hear, NULL, BERTH_LOG_WARNING);
        assert_int_equal(berth_stack_create(settings, inner, &a), BERTH_OK);
        assert_int_equal(berth_allocate(a, 321, 64, &request, &p), BERTH_OK);
        uint64_t id = 0;
        assert_int_equal(berth_allocation_id(a, p, &id), BERTH_OK);
        assert_true(id > 0);
        if (!leaks)
            give(a, p);
        berth_allocator_release(a);
        berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
        bool told = strstr(heard, "live: 321 bytes") && strstr(heard, "forgotten");
        if (told != (leaks == 1))
            fail_msg("'%s' with %d leaks: the log has '%s'", settings, leaks, heard);
        if (leaks)
            assert_int_equal(berth_deallocate(inner, p, 0, NULL), BERTH_OK);
    }
}

static void full_figures_tell_leaks(void **state)
{
    (void)state;
    berth_allocator *inner = new_system();
    expect_leaks_told("stats=full", inner);
    expect_leaks_told("stats=full;scopes=yes;explain=yes", inner);
    berth_allocator_release(inner);
    /* Pages of another kind are no source with a tracker of its own. */
    berth_allocator *a = NULL;
    assert_int_equal(berth_stack_create("stats=full;prefault=yes", NULL, &a), BERTH_OK);
    assert_true(berth_tracking_measures(a));
    berth_allocator_release(a);
}

static void nothing_is_left_when_memory_runs_out(void **state)
{
    (void)state;
    berth_allocator *inner = new_system();
    for (uint64_t n = 1;; n++) {
        uint64_t live = berth__heap_live();
        berth_allocator *a = NULL;
        berth__heap_fail_at(n, true);
        berth_status status =
            berth_stack_create("stats=full;limit=1000;guard=yes;scopes=yes;retry_ms=1;explain=1", inner, &a);
        berth__heap_fail_at(0, false);
        assert_int_equal(a != NULL, status == BERTH_OK);
        berth_allocator_release(a);
        assert_int_equal(berth__heap_live(), live);
        if (status == BERTH_OK)
            break;
        assert_int_equal(status, BERTH_OUT_OF_HOST_MEMORY);
        assert_true(n < 1000);
    }
    berth_allocator_release(inner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(values_are_read),
        cmocka_unit_test(stacks_are_made),
        cmocka_unit_test(full_figures_tell_leaks),
        cmocka_unit_test(nothing_is_left_when_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
