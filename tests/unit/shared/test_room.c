/* How much memory is left, read from files as the kernel writes them. */
#include "shared/shared.h"
#include "shared_test.h"

static char folder[64];

static void write_file(const char *path, const char *text)
{
    char whole[400], *slash = whole;
    snprintf(whole, sizeof whole, "%s%s", folder, path);
    while ((slash = strchr(slash + 1, '/')) != NULL) {
        *slash = '\0';
        (void)mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static int begin(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/berth_room_XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void test_a_system_without_groups(void **state)
{
    (void)state;
    assert_true(berth__shared_room(folder) == UINT64_MAX); /* it says nothing at all */
    write_file("/proc/meminfo",
               "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable:     300 kB\nSwapFree:  50 kB\n");
    assert_int_equal(berth__shared_room(folder), 350 << 10);
    write_file("/proc/self/cgroup", "1:cpu:/\nnonsense\n0::/\n");
    assert_int_equal(berth__shared_room(folder), 350 << 10);
}

static void test_groups_of_version_2(void **state)
{
    (void)state;
    write_file("/proc/meminfo", "MemAvailable: 1000000 kB\n");
    write_file("/proc/self/cgroup", "0::/jobs/one\n");
    write_file("/sys/fs/cgroup/jobs/one/memory.max", "max\n");
    write_file("/sys/fs/cgroup/jobs/one/memory.current", "70000\n");
    assert_int_equal(berth__shared_room(folder), UINT64_C(1000000) << 10);
    write_file("/sys/fs/cgroup/jobs/memory.max", "100000\n"); /* the parent's */
    write_file("/sys/fs/cgroup/jobs/memory.current", "80000\n");
    write_file("/sys/fs/cgroup/jobs/memory.stat", "anon 5\ninactive_file 30000\nactive_file 7\n");
    assert_int_equal(berth__shared_room(folder), 50000);
    write_file("/sys/fs/cgroup/jobs/one/memory.max", "60000\n"); /* used up */
    assert_int_equal(berth__shared_room(folder), 0);
}

static void test_groups_of_version_1(void **state)
{
    (void)state;
    write_file("/proc/meminfo", "MemAvailable: 1000000 kB\n");
    write_file("/proc/self/cgroup", "5:memory:/not/seen/here\n4:cpuset:/x\n");
    write_file("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9000\n");
    write_file("/sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
    write_file("/sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 6000\n");
    assert_int_equal(berth__shared_room(folder), 9000);
    write_file("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file 1000\n");
    assert_int_equal(berth__shared_room(folder), 5000);
}

/* In a child with little time: asked for it the kernel would take all that there is. */
static bool reserve_too_much(void *context)
{
    berth_plan *plan = context;
    berth_shared_options options = BERTH_SHARED_OPTIONS_INIT;
    berth_shared *s = NULL;
    alarm(1);
    options.reserve = true;
    return berth_shared_create(plan, &options, &s) == BERTH_OUT_OF_HOST_MEMORY && !s &&
           strstr(berth_last_error()->message, "cannot be reserved");
}

static void test_more_than_there_is_cannot_be_reserved(void **state)
{
    (void)state;
    berth_plan_allocation one = BERTH_PLAN_ALLOCATION_INIT;
    berth_plan *plan = NULL;
    one.size_bytes = UINT64_C(1) << 44;
    one.freed_at = 1;
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_plan_set(plan, &one, 1, NULL), BERTH_OK);
    assert_true(berth__shared_room("") < one.size_bytes);
    expect_good(start_child(reserve_too_much, plan));
    berth_plan_release(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_system_without_groups, begin, end),
        cmocka_unit_test_setup_teardown(test_groups_of_version_2, begin, end),
        cmocka_unit_test_setup_teardown(test_groups_of_version_1, begin, end),
        cmocka_unit_test(test_more_than_there_is_cannot_be_reserved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
