/* A process that is killed at every system call of every operation, before and after the kernel has done it: what it held is
 * free, what it left half written is told, and the memory goes with the last process.
 *
 * The kernel stops the child at each call (ptrace); between two calls it changes nothing that others see but the arena's live
 * words and contents. */
#include <sys/ptrace.h>

#include "shared_test.h"

typedef struct scene {
    int descriptor; /* of the arena, for writing */
    int socket;     /* to the test */
} scene;

/* Runs `life` in a child and kills it at the stop number `stop`; false: it ended before. */
static bool kill_at(unsigned stop, child_fn life, scene *s)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        alarm(CHILD_SECONDS);
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0 || raise(SIGSTOP) != 0)
            _exit(3);
        _exit(life(s) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3)
        skip(); /* processes may not be traced here */
    assert_true(WIFSTOPPED(status));
    assert_int_equal(ptrace(PTRACE_SETOPTIONS, child, NULL,
                            (void *)(uintptr_t)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)),
                     0);
    for (unsigned i = 0; i < stop; i++) {
        assert_int_equal(ptrace(PTRACE_SYSCALL, child, NULL, NULL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            return false;
        }
        assert_true(WIFSTOPPED(status));
    }
    kill_child(child);
    return true;
}

/* Nobody owns, writes or holds: the test can do all of it at once, and then the memory goes. */
static void expect_free(int descriptor)
{
    int watch = watch_memory(descriptor);
    berth_shared *s = attached(descriptor, BERTH_SHARED_WRITE);
    if (s) {
        assert_false(info_of(s).owned);
        assert_int_equal(berth_shared_own(s), BERTH_OK);
        assert_int_equal(berth_shared_write_begin(s), BERTH_OK);
        *data_of(s, 0) = 1;
        assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
        assert_int_equal(berth_shared_seal(s, BERTH_SHARED_SEAL_CONTENT), BERTH_OK);
    } else { /* the child came as far as to seal or retire it */
        assert_true(berth_last_error()->status == BERTH_UNSUPPORTED ||
                    berth_last_error()->status == BERTH_CANCELLED);
    }
    berth_shared_release(s);
    close(descriptor);
    assert_true(has_gone(watch, GONE_MS));
    close(watch);
}

/* The arena as the child finds it: published, or left half written by an owner that was killed. */
static int new_arena(bool half_written)
{
    berth_shared *s = usual_arena();
    if (!half_written)
        assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
    int descriptor = descriptor_of(s, BERTH_SHARED_WRITE);
    berth_shared_release(s);
    return descriptor;
}

static void kill_everywhere(child_fn life, bool half_written)
{
    unsigned stop = 0;
    bool killed = true;
    for (; killed; stop++) {
        scene s = {.descriptor = new_arena(half_written), .socket = -1};
        killed = kill_at(stop, life, &s);
        expect_free(s.descriptor);
    }
    assert_true(stop > 20); /* attaching alone has that many */
}

static bool live_as_owner(void *context)
{
    const scene *here = context;
    berth_shared *s = attached(here->descriptor, BERTH_SHARED_WRITE);
    bool good = s && berth_shared_own(s) == BERTH_OK && berth_shared_write_begin(s) == BERTH_OK;
    if (good)
        *data_of(s, 0) = 7;
    good = good && berth_shared_publish(s, NULL) == BERTH_OK && berth_shared_write_begin(s) == BERTH_OK &&
           berth_shared_publish(s, NULL) == BERTH_OK && berth_shared_disown(s) == BERTH_OK;
    berth_shared_release(s);
    return good;
}

static void test_an_owner_is_killed_at_every_step(void **state)
{
    (void)state;
    kill_everywhere(live_as_owner, false);
}

static void test_one_who_takes_over_is_killed_at_every_step(void **state)
{
    (void)state;
    kill_everywhere(live_as_owner, true);
}

static bool live_as_reader(void *context)
{
    const scene *here = context;
    berth_shared *s = attached(here->descriptor, BERTH_SHARED_READ);
    bool good = s && berth_shared_read_begin(s, NULL) == BERTH_OK && berth_shared_read_end(s) == BERTH_OK &&
                berth_shared_read_begin(s, NULL) == BERTH_OK &&
                berth_shared_wait(s, 0, BERTH_SHARED_FOREVER, NULL) == BERTH_OK;
    berth_shared_release(s);
    return good;
}

static void test_a_reader_is_killed_at_every_step(void **state)
{
    (void)state;
    kill_everywhere(live_as_reader, false);
}

static bool seal_and_go(void *context)
{
    const scene *here = context;
    berth_shared *s = attached(here->descriptor, BERTH_SHARED_WRITE);
    bool good = s && berth_shared_own(s) == BERTH_OK &&
                berth_shared_seal(s, BERTH_SHARED_SEAL_CONTENT) == BERTH_OK && *data_of(s, 0) == 0;
    berth_shared_release(s);
    return good;
}

static void test_one_who_seals_is_killed_at_every_step(void **state)
{
    (void)state;
    kill_everywhere(seal_and_go, false);
}

static bool retire_and_go(void *context)
{
    const scene *here = context;
    berth_shared *s = attached(here->descriptor, BERTH_SHARED_WRITE);
    bool good = s && berth_shared_own(s) == BERTH_OK && berth_shared_retire(s) == BERTH_OK;
    berth_shared_release(s);
    return good;
}

static void test_one_who_retires_is_killed_at_every_step(void **state)
{
    (void)state;
    kill_everywhere(retire_and_go, false);
}

/* ---- Making, sending, receiving ---------------------------------------------------------------------- */

static bool make_and_send(void *context)
{
    const scene *here = context;
    berth_plan *plan = NULL;
    berth_shared *s = NULL;
    bool good = berth_plan_create(&plan) == BERTH_OK &&
                berth_plan_set(plan, usual_buffers, USUAL_COUNT, NULL) == BERTH_OK &&
                berth_shared_create(plan, NULL, &s) == BERTH_OK &&
                berth_shared_send(s, here->socket, BERTH_SHARED_WRITE) == BERTH_OK &&
                berth_shared_publish(s, NULL) == BERTH_OK;
    berth_shared_release(s);
    return good;
}

/* Either nothing came, or a whole arena that is free. */
static void test_a_maker_is_killed_at_every_step(void **state)
{
    (void)state;
    unsigned came = 0, stop = 0;
    for (bool killed = true; killed; stop++) {
        int sockets[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
        scene s = {.descriptor = -1, .socket = sockets[1]};
        killed = kill_at(stop, make_and_send, &s);
        close(sockets[1]);
        berth_shared_attach_options o = BERTH_SHARED_ATTACH_OPTIONS_INIT;
        o.access = BERTH_SHARED_WRITE;
        berth_shared *received = NULL;
        berth_status status = berth_shared_receive(sockets[0], &o, &received);
        assert_true(status == BERTH_OK || status == BERTH_IO);
        if (received) {
            came++;
            int descriptor = descriptor_of(received, BERTH_SHARED_WRITE);
            berth_shared_release(received);
            expect_free(descriptor);
        }
        close(sockets[0]);
    }
    assert_true(came > 0 && came < stop);
}

static bool receive_and_go(void *context)
{
    const scene *here = context;
    berth_shared *s = NULL;
    bool good = berth_shared_receive(here->socket, NULL, &s) == BERTH_OK;
    berth_shared_release(s);
    return good;
}

static void test_a_receiver_is_killed_at_every_step(void **state)
{
    (void)state;
    for (unsigned stop = 0, killed = 1; killed; stop++) {
        int sockets[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
        int descriptor = new_arena(false);
        berth_shared *reader = attached(descriptor, BERTH_SHARED_READ);
        assert_int_equal(berth_shared_send(reader, sockets[0], BERTH_SHARED_READ), BERTH_OK);
        berth_shared_release(reader);
        scene s = {.descriptor = -1, .socket = sockets[1]};
        killed = kill_at(stop, receive_and_go, &s);
        close(sockets[0]), close(sockets[1]); /* with what was not received */
        expect_free(descriptor);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_owner_is_killed_at_every_step),
        cmocka_unit_test(test_one_who_takes_over_is_killed_at_every_step),
        cmocka_unit_test(test_a_reader_is_killed_at_every_step),
        cmocka_unit_test(test_one_who_seals_is_killed_at_every_step),
        cmocka_unit_test(test_one_who_retires_is_killed_at_every_step),
        cmocka_unit_test(test_a_maker_is_killed_at_every_step),
        cmocka_unit_test(test_a_receiver_is_killed_at_every_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
