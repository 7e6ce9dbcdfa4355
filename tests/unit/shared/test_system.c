/* What the system refuses: descriptors, address space, a lock that another process has. Nothing is left behind, and words say why. */
#include "shared/shared.h"
#include "shared_test.h"

static void test_without_descriptors(void **state)
{
    (void)state;
    berth_plan *plan = usual_plan();
    berth_shared *s = usual_arena(), *other = s;
    int descriptor = descriptor_of(s, BERTH_SHARED_READ), new_one = -1;
    struct rlimit was = forbid_descriptors();
    assert_int_equal(berth_shared_create(plan, NULL, &other), BERTH_IO);
    assert_null(other);
    assert_non_null(strstr(berth_last_error()->message, strerror(EMFILE)));
    other = s;
    assert_int_equal(berth_shared_attach(descriptor, NULL, &other), BERTH_IO);
    assert_null(other);
    assert_int_equal(berth_shared_descriptor(s, BERTH_SHARED_READ, &new_one), BERTH_IO);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    close(descriptor);
    berth_shared_release(s);
    berth_plan_release(plan);
}

/* The largest that a file may have fits into no address space, whatever the machine. */
static void test_an_arena_larger_than_all_addresses(void **state)
{
    (void)state;
    static const uint64_t alignments[] = {64, UINT64_C(1) << 21};
    for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
        berth_plan *plan = NULL;
        berth_plan_allocation huge = BERTH_PLAN_ALLOCATION_INIT;
        huge.size_bytes = UINT64_C(1) << 58;
        huge.alignment = alignments[i];
        huge.freed_at = 1;
        assert_int_equal(berth_plan_create(&plan), BERTH_OK);
        assert_int_equal(berth_plan_set(plan, &huge, 1, NULL), BERTH_OK);
        berth_shared *s = NULL;
        int before = next_descriptor();
        assert_int_equal(berth_shared_create(plan, NULL, &s), BERTH_OUT_OF_HOST_MEMORY);
        assert_null(s);
        assert_non_null(strstr(berth_last_error()->message, "cannot be mapped"));
        assert_int_equal(next_descriptor(), before);
        berth_plan_release(plan);
    }
}

/* Between the lock and the seal nobody can come to write. */
static void test_who_comes_while_the_content_is_sealed(void **state)
{
    (void)state;
    berth_shared *s = usual_arena();
    int sealing = berth__shared_reopen(s->descriptor, true),
        for_writing = descriptor_of(s, BERTH_SHARED_WRITE);
    assert_true(sealing >= 0);
    assert_true(berth__shared_lock_set(s->descriptor, BERTH__SHARED_WRITERS, BERTH__SHARED_UNLOCK));
    assert_true(berth__shared_lock_set(sealing, BERTH__SHARED_WRITERS, BERTH__SHARED_LOCK_WRITE));
    berth_shared_attach_options options = BERTH_SHARED_ATTACH_OPTIONS_INIT;
    options.access = BERTH_SHARED_WRITE;
    berth_shared *other = NULL;
    int before = next_descriptor();
    assert_int_equal(berth_shared_attach(for_writing, &options, &other), BERTH_BUSY);
    assert_null(other);
    assert_int_equal(next_descriptor(), before);
    close(sealing);
    other = attached(for_writing, BERTH_SHARED_WRITE);
    assert_non_null(other);
    close(for_writing);
    berth_shared_release(other);
    berth_shared_release(s);
}

/* A child of a fork opens the arena anew for itself. Where it cannot, it still reads, never writes, and says what it lacks. */
static bool child_reads_without_descriptor(void *context)
{
    berth_shared *s = context;
    uint64_t generation = 0;
    int descriptor = -1;
    return *data_of(s, 0) == 42 && berth_shared_generation(s, &generation) == BERTH_OK && generation == 1 &&
           s->descriptor == -1 && berth_shared_own(s) == BERTH_UNSUPPORTED &&
           berth_shared_descriptor(s, BERTH_SHARED_READ, &descriptor) == BERTH_IO &&
           strstr(berth_last_error()->message, "lost its descriptor in a fork") &&
           berth_shared_read_begin(s, NULL) == BERTH_IO &&
           berth_shared_wait(s, 0, 0, NULL) == BERTH_OK && /* what is there can be seen */
           berth_shared_wait(s, 1, BERTH_SHARED_FOREVER, NULL) == BERTH_IO;
}

static bool child_writes_to_the_map(void *context)
{
    signal(SIGSEGV, SIG_DFL); /* cmocka's would go on with the next test */
    *data_of(context, 0) = 7;
    return true;
}

static void test_a_child_without_descriptors(void **state)
{
    (void)state;
    berth_shared *s = usual_arena();
    *data_of(s, 0) = 42;
    assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
    struct rlimit was = forbid_descriptors();
    pid_t reads = start_child(child_reads_without_descriptor, s);
    pid_t writes = start_child(child_writes_to_the_map, s);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    expect_good(reads);
    int status = 0;
    assert_int_equal(waitpid(writes, &status, 0), writes);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    assert_int_equal(*data_of(s, 0), 42);
    assert_true(info_of(s).mine);
    assert_int_equal(berth_shared_write_begin(s), BERTH_OK); /* the parent's is as it was */
    berth_shared_release(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_descriptors),
        cmocka_unit_test(test_an_arena_larger_than_all_addresses),
        cmocka_unit_test(test_who_comes_while_the_content_is_sealed),
        cmocka_unit_test(test_a_child_without_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
