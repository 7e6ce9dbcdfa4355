/* Arenas over Unix sockets: between processes, and what may come instead of one. */
#include <netinet/in.h>

#include "shared_test.h"

static void new_pair(int type, int sockets[2])
{
    assert_int_equal(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, sockets), 0);
}

static size_t open_descriptors(void)
{
    size_t count = 0;
    for (int i = 0; i < 256; i++)
        count += fcntl(i, F_GETFD) >= 0;
    return count;
}

static bool receive_and_read(void *context)
{
    berth_shared *s = NULL;
    size_t id = 0;
    bool good = berth_shared_receive(*(int *)context, NULL, &s) == BERTH_OK &&
                berth_shared_find(s, "weights.1", &id) == BERTH_OK && data_of(s, id)[69999] == 42;
    berth_shared_release(s);
    return good;
}

static void test_an_arena_travels(void **state)
{
    (void)state;
    static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
    for (size_t i = 0; i < 3; i++) {
        int sockets[2];
        new_pair(types[i], sockets);
        pid_t reader = start_child(receive_and_read, &sockets[1]);
        berth_shared *s = usual_arena();
        memset(data_of(s, 1), 42, 70000);
        assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
        assert_int_equal(berth_shared_send(s, sockets[0], BERTH_SHARED_READ), BERTH_OK);
        expect_good(reader);
        berth_shared_release(s);
        close(sockets[0]), close(sockets[1]);
    }
}

static void test_access_is_what_was_sent(void **state)
{
    (void)state;
    int sockets[2];
    new_pair(SOCK_STREAM, sockets);
    berth_shared *s = usual_arena(), *other = NULL;
    berth_shared_attach_options o = BERTH_SHARED_ATTACH_OPTIONS_INIT;
    o.access = BERTH_SHARED_WRITE;
    assert_int_equal(berth_shared_send(s, sockets[0], BERTH_SHARED_READ), BERTH_OK);
    assert_int_equal(berth_shared_receive(sockets[1], &o, &other), BERTH_UNSUPPORTED);
    assert_null(other);
    assert_int_equal(berth_shared_send(s, sockets[0], BERTH_SHARED_WRITE), BERTH_OK);
    assert_int_equal(berth_shared_receive(sockets[1], &o, &other), BERTH_OK);
    berth_shared *reader = again(s, BERTH_SHARED_READ);
    assert_int_equal(berth_shared_send(reader, sockets[0], BERTH_SHARED_WRITE), BERTH_UNSUPPORTED);
    berth_shared_release(reader);
    berth_shared_release(other);
    berth_shared_release(s);
    close(sockets[0]), close(sockets[1]);
}

static void send_raw(int socket, const char *text, size_t bytes, const int *descriptors, size_t count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } control;
    memset(&control, 0, sizeof control);
    char copy[64];
    memcpy(copy, text, bytes);
    struct iovec part = {copy, bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *h = CMSG_FIRSTHDR(&message);
        h->cmsg_level = SOL_SOCKET, h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(h), descriptors, count * sizeof(int));
    }
    assert_int_equal(sendmsg(socket, &message, 0), (ssize_t)bytes);
}

static void expect_bad(const char *text, size_t bytes, const int *descriptors, size_t count)
{
    int sockets[2];
    berth_shared *s = NULL;
    new_pair(SOCK_SEQPACKET, sockets);
    send_raw(sockets[0], text, bytes, descriptors, count);
    size_t before = open_descriptors();
    assert_int_equal(berth_shared_receive(sockets[1], NULL, &s), BERTH_BAD_DATA);
    assert_null(s);
    assert_int_equal(open_descriptors(), before);
    close(sockets[0]), close(sockets[1]);
}

static void test_what_is_not_an_arena_is_closed_again(void **state)
{
    (void)state;
    berth_shared *s = usual_arena();
    int good = descriptor_of(s, BERTH_SHARED_READ), null = open("/dev/null", O_RDONLY);
    int many[8] = {good, good, good, good, good, good, good, good};
    expect_bad("berthsh1", 8, NULL, 0);
    expect_bad("berthsh2", 8, &good, 1);
    expect_bad("berthsh", 7, &good, 1);
    expect_bad("berthsh1 and more", 17, &good, 1);
    expect_bad("berthsh1", 8, many, 2);
    expect_bad("berthsh1", 8, many, 8);
    expect_bad("berthsh1", 8, &null, 1);
    close(good), close(null);
    berth_shared_release(s);
}

/* What was sent is an arena, and the words must not say otherwise. */
static void test_no_room_for_the_descriptor_that_came(void **state)
{
    (void)state;
    berth_shared *s = usual_arena(), *other = s;
    int sockets[2];
    new_pair(SOCK_STREAM, sockets);
    assert_int_equal(berth_shared_send(s, sockets[0], BERTH_SHARED_READ), BERTH_OK);
    struct rlimit was = forbid_descriptors();
    berth_status status = berth_shared_receive(sockets[1], NULL, &other);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    assert_int_equal(status, BERTH_IO);
    assert_null(other);
    assert_non_null(strstr(berth_last_error()->message, "ulimit -n"));
    assert_int_equal(berth_shared_send(s, sockets[0], BERTH_SHARED_READ), BERTH_OK);
    assert_int_equal(berth_shared_receive(sockets[1], NULL, &other), BERTH_OK);
    berth_shared_release(other);
    berth_shared_release(s);
    close(sockets[0]), close(sockets[1]);
}

static void test_sockets_that_do_not_work(void **state)
{
    (void)state;
    int sockets[2], pipes[2], network = socket(AF_INET, SOCK_STREAM, 0);
    berth_shared *s = usual_arena(), *other = NULL;
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(berth_shared_send(s, pipes[1], BERTH_SHARED_READ), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_shared_send(s, -1, BERTH_SHARED_READ), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_shared_receive(pipes[0], NULL, &other), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_shared_receive(-1, NULL, &other), BERTH_INVALID_ARGUMENT);
    if (network >= 0)
        assert_int_equal(berth_shared_send(s, network, BERTH_SHARED_READ), BERTH_INVALID_ARGUMENT);
    new_pair(SOCK_STREAM | SOCK_NONBLOCK, sockets);
    assert_int_equal(berth_shared_receive(sockets[0], NULL, &other), BERTH_NOT_READY);
    close(sockets[1]);
    assert_int_equal(berth_shared_send(s, sockets[0], BERTH_SHARED_READ), BERTH_IO); /* and no SIGPIPE */
    assert_int_equal(berth_shared_receive(sockets[0], NULL, &other), BERTH_IO);
    assert_null(other);
    close(sockets[0]), close(pipes[0]), close(pipes[1]), close(network);
    berth_shared_release(s);
}

static void test_a_message_in_a_full_socket_waits_or_says_so(void **state)
{
    (void)state;
    int sockets[2];
    new_pair(SOCK_DGRAM | SOCK_NONBLOCK, sockets);
    berth_shared *s = usual_arena(), *other = NULL;
    int sent = 0;
    berth_status status;
    while ((status = berth_shared_send(s, sockets[0], BERTH_SHARED_READ)) == BERTH_OK)
        sent++;
    assert_true(status == BERTH_NOT_READY ||
                status == BERTH_IO); /* also: too many descriptors on their way */
    for (int i = 0; i < sent; i++) {
        assert_int_equal(berth_shared_receive(sockets[1], NULL, &other), BERTH_OK);
        berth_shared_release(other);
    }
    close(sockets[0]), close(sockets[1]);
    berth_shared_release(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_arena_travels),
        cmocka_unit_test(test_access_is_what_was_sent),
        cmocka_unit_test(test_what_is_not_an_arena_is_closed_again),
        cmocka_unit_test(test_no_room_for_the_descriptor_that_came),
        cmocka_unit_test(test_sockets_that_do_not_work),
        cmocka_unit_test(test_a_message_in_a_full_socket_waits_or_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
