/* Who writes, what readers are told, and seals; with other handles and with other processes. */
#include <sched.h>

#include "shared_test.h"

static void test_one_handle_owns(void **state)
{
    (void)state;
    berth_shared *s = usual_arena();
    berth_shared *other = again(s, BERTH_SHARED_WRITE), *reader = again(s, BERTH_SHARED_READ);
    assert_true(info_of(s).mine && info_of(s).owned && info_of(other).owned && !info_of(other).mine);
    assert_int_equal(berth_shared_own(s), BERTH_OK);
    assert_int_equal(berth_shared_own(other), BERTH_BUSY);
    assert_int_equal(berth_shared_own(reader), BERTH_UNSUPPORTED);
    assert_int_equal(berth_shared_write_begin(other), BERTH_BUSY);
    assert_int_equal(berth_shared_publish(other, NULL), BERTH_BUSY);
    assert_int_equal(berth_shared_retire(other), BERTH_BUSY);
    assert_int_equal(berth_shared_seal(other, BERTH_SHARED_SEAL_WRITERS), BERTH_BUSY);
    assert_int_equal(berth_shared_disown(other), BERTH_NOT_FOUND);
    assert_int_equal(berth_shared_disown(s), BERTH_BUSY); /* it is still being written */
    assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
    assert_int_equal(berth_shared_disown(s), BERTH_OK);
    assert_false(info_of(reader).owned);
    assert_int_equal(berth_shared_own(other), BERTH_OK);
    assert_int_equal(berth_shared_own(s), BERTH_BUSY);
    berth_shared_release(other); /* lets go */
    assert_int_equal(berth_shared_own(s), BERTH_OK);
    berth_shared_release(reader);
    berth_shared_release(s);
}

static void test_generations_are_told(void **state)
{
    (void)state;
    berth_shared *s = usual_arena(), *reader = again(s, BERTH_SHARED_READ);
    uint64_t generation = 77;
    assert_int_equal(berth_shared_generation(reader, &generation), BERTH_NOT_READY);
    assert_int_equal(berth_shared_read_begin(reader, NULL), BERTH_NOT_READY);
    assert_int_equal(generation, 77);
    assert_int_equal(berth_shared_publish(s, &generation), BERTH_OK);
    assert_int_equal(generation, 1);
    assert_int_equal(berth_shared_publish(s, NULL), BERTH_BUSY);
    assert_int_equal(berth_shared_generation(reader, &generation), BERTH_OK);
    assert_int_equal(berth_shared_check(reader, 1), BERTH_OK);
    assert_int_equal(berth_shared_check(reader, 2), BERTH_MISMATCH);
    assert_int_equal(berth_shared_write_begin(s), BERTH_OK);
    assert_int_equal(berth_shared_write_begin(s), BERTH_OK);
    assert_int_equal(berth_shared_check(reader, 1), BERTH_MISMATCH);
    assert_int_equal(berth_shared_generation(reader, &generation), BERTH_NOT_READY);
    assert_true(info_of(reader).writing && info_of(reader).generation == 1);
    assert_int_equal(berth_shared_publish(s, &generation), BERTH_OK);
    assert_int_equal(generation, 2);
    assert_int_equal(berth_shared_check(reader, 1), BERTH_MISMATCH);
    assert_int_equal(berth_shared_check(reader, 2), BERTH_OK);
    berth_shared_release(reader);
    berth_shared_release(s);
}

static void test_a_hold_keeps_the_owner_from_writing(void **state)
{
    (void)state;
    berth_shared *s = usual_arena(), *reader = again(s, BERTH_SHARED_READ);
    uint64_t generation = 0;
    assert_int_equal(berth_shared_read_end(reader), BERTH_NOT_FOUND);
    assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
    assert_int_equal(berth_shared_read_begin(reader, &generation), BERTH_OK);
    assert_int_equal(generation, 1);
    assert_int_equal(berth_shared_read_begin(reader, NULL), BERTH_OK);
    assert_int_equal(berth_shared_write_begin(s), BERTH_BUSY);
    assert_int_equal(berth_shared_read_end(reader), BERTH_OK);
    assert_int_equal(berth_shared_write_begin(s), BERTH_BUSY);
    assert_int_equal(berth_shared_read_end(reader), BERTH_OK);
    assert_int_equal(berth_shared_read_begin(s, NULL), BERTH_OK); /* the owner's own */
    assert_int_equal(berth_shared_write_begin(s), BERTH_BUSY);
    assert_int_equal(berth_shared_read_end(s), BERTH_OK);
    assert_int_equal(berth_shared_write_begin(s), BERTH_OK);
    assert_int_equal(berth_shared_read_begin(s, NULL), BERTH_NOT_READY);
    assert_int_equal(berth_shared_read_begin(reader, NULL), BERTH_NOT_READY);
    assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
    assert_int_equal(berth_shared_read_begin(reader, NULL), BERTH_OK);
    berth_shared_release(reader); /* and with the handle goes the hold */
    assert_int_equal(berth_shared_write_begin(s), BERTH_OK);
    berth_shared_release(s);
}

/* ---- Who may touch what ------------------------------------------------------------------------------ */

typedef struct touch {
    char *at;
} touch;

static bool write_there(void *context)
{
    *((touch *)context)->at = 1;
    return true;
}

/* Whether writing there ends a child by SIGSEGV; its handles are readers, so the map is made anew by `prepare`. */
static void expect_signal(child_fn run, void *context)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL); /* not a sanitizer's report */
        signal(SIGBUS, SIG_DFL);
        _exit(run(context) ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static bool write_unowned(void *context)
{
    berth_shared *s = attached(*(int *)context, BERTH_SHARED_WRITE);
    return s && write_there(&(touch){data_of(s, 0)});
}

static bool write_disowned(void *context)
{
    berth_shared *s = attached(*(int *)context, BERTH_SHARED_WRITE);
    if (!s || berth_shared_own(s) != BERTH_OK)
        return false;
    *data_of(s, 0) = 2;
    return berth_shared_disown(s) == BERTH_OK && write_there(&(touch){data_of(s, 0)});
}

static bool reader_cannot_be_made_writable(void *context)
{
    berth_shared *s = attached(*(int *)context, BERTH_SHARED_READ);
    char *page = s ? (char *)((uintptr_t)data_of(s, 0) & ~(uintptr_t)65535) : NULL;
    return s && mprotect(page, 4096, PROT_READ | PROT_WRITE) != 0;
}

static void test_only_the_owner_can_write(void **state)
{
    (void)state;
    berth_shared *s = usual_arena();
    int descriptor = descriptor_of(s, BERTH_SHARED_WRITE);
    expect_signal(write_unowned, &descriptor);
    expect_signal(write_there, &(touch){data_of(s, 0)}); /* the child of an owner */
    expect_good(start_child(reader_cannot_be_made_writable, &descriptor));
    assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
    assert_int_equal(berth_shared_disown(s), BERTH_OK);
    expect_signal(write_disowned, &descriptor);
    assert_int_equal(*data_of(s, 0), 2);
    close(descriptor);
    berth_shared_release(s);
}

/* The descriptor is one for writing; the memory is not theirs. */
static bool write_as_another_user(void *context)
{
    berth_shared *s = NULL;
    berth_shared_attach_options o = BERTH_SHARED_ATTACH_OPTIONS_INIT;
    enum { NOBODY = 65534 };
    if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
        return errno == EINVAL; /* a namespace of one user: there is nobody else */
    o.access = BERTH_SHARED_WRITE;
    if (berth_shared_attach(*(int *)context, &o, &s) != BERTH_UNSUPPORTED || s ||
        !strstr(berth_last_error()->message, "another user"))
        return false;
    s = attached(*(int *)context, BERTH_SHARED_READ);
    bool good = s && *data_of(s, 0) == 6;
    berth_shared_release(s);
    return good;
}

static void test_another_user_only_reads(void **state)
{
    (void)state;
    berth_shared *s = usual_arena();
    int descriptor = descriptor_of(s, BERTH_SHARED_WRITE);
    *data_of(s, 0) = 6;
    assert_int_equal(fchmod(descriptor, 0444),
                     0); /* as it is to others, also where the tests are not root's */
    expect_good(start_child(write_as_another_user, &descriptor));
    close(descriptor);
    berth_shared_release(s);
}

/* ---- Seals ------------------------------------------------------------------------------------------- */

static void test_content_is_sealed_for_good(void **state)
{
    (void)state;
    berth_shared *s = usual_arena(), *reader = again(s, BERTH_SHARED_READ), *other = NULL;
    int descriptor = descriptor_of(s, BERTH_SHARED_WRITE);
    char *data = data_of(s, 0);
    memset(data, 7, 1000);
    assert_int_equal(berth_shared_seal(s, BERTH_SHARED_SEAL_SIZE), BERTH_OK);
    assert_int_equal(berth_shared_seal(s, BERTH_SHARED_SEAL_CONTENT), BERTH_BUSY); /* not published */
    assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
    other = again(s, BERTH_SHARED_WRITE);
    assert_int_equal(berth_shared_seal(s, BERTH_SHARED_SEAL_CONTENT), BERTH_BUSY); /* another writer */
    assert_true(info_of(s).mine);
    *data = 8; /* and nothing has changed */
    berth_shared_release(other);
    assert_int_equal(berth_shared_seal(s, BERTH_SHARED_SEAL_CONTENT), BERTH_OK);
    assert_int_equal(berth_shared_seal(s, BERTH_SHARED_SEAL_CONTENT), BERTH_OK);
    assert_int_equal(berth_shared_seal(reader, BERTH_SHARED_SEAL_WRITERS), BERTH_OK);
    assert_ptr_equal(data, data_of(s, 0));
    assert_int_equal(data[0], 8);
    assert_int_equal(data[999], 7);
    assert_int_equal(data_of(reader, 0)[0], 8);
    expect_signal(write_there, &(touch){data});
    berth_shared_info info = info_of(s);
    assert_true(!info.mine && !info.owned && info.access == BERTH_SHARED_READ &&
                info.seals == BERTH_SHARED_SEAL_CONTENT);
    assert_int_equal(berth_shared_own(s), BERTH_UNSUPPORTED);
    assert_int_equal(pwrite(descriptor, "x", 1, 0), -1);
    assert_null(attached(descriptor, BERTH_SHARED_WRITE));
    berth_shared_attach_options o = BERTH_SHARED_ATTACH_OPTIONS_INIT;
    o.seals = BERTH_SHARED_SEAL_CONTENT;
    assert_int_equal(berth_shared_attach(descriptor, &o, &other), BERTH_OK);
    uint64_t generation = 0;
    assert_int_equal(berth_shared_read_begin(other, &generation), BERTH_OK);
    assert_int_equal(generation, 1);
    assert_int_equal(berth_shared_read_end(other), BERTH_OK);
    assert_int_equal(berth_shared_wait(other, 1, BERTH_SHARED_FOREVER, NULL), BERTH_CANCELLED);
    close(descriptor);
    berth_shared_release(other);
    berth_shared_release(reader);
    berth_shared_release(s);
}

static void test_writers_are_sealed_out(void **state)
{
    (void)state;
    berth_shared *s = usual_arena(), *before = again(s, BERTH_SHARED_WRITE), *other = NULL;
    int descriptor = descriptor_of(s, BERTH_SHARED_WRITE);
    assert_int_equal(berth_shared_seal(s, BERTH_SHARED_SEAL_WRITERS), BERTH_OK);
    assert_null(attached(descriptor, BERTH_SHARED_WRITE));
    assert_int_equal(berth_last_error()->status, BERTH_UNSUPPORTED);
    assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0), MAP_FAILED);
    berth_shared_attach_options o = BERTH_SHARED_ATTACH_OPTIONS_INIT;
    o.seals = BERTH_SHARED_SEAL_WRITERS;
    assert_int_equal(berth_shared_attach(descriptor, &o, &other), BERTH_OK);
    *data_of(s, 0) = 3; /* who was there goes on, in turns */
    assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
    assert_int_equal(berth_shared_disown(s), BERTH_OK);
    assert_int_equal(berth_shared_own(before), BERTH_OK);
    *data_of(before, 0) = 4;
    assert_int_equal(*data_of(other, 0), 4);
    berth_shared_release(s);
    assert_int_equal(berth_shared_seal(before, BERTH_SHARED_SEAL_CONTENT), BERTH_OK);
    close(descriptor);
    berth_shared_release(other);
    berth_shared_release(before);
}

/* A program that maps the arena by itself is not asked by locks: the seal is refused, and the owner goes on. */
static void test_a_stranger_in_the_way_of_the_seal(void **state)
{
    (void)state;
    berth_shared *s = usual_arena();
    int descriptor = descriptor_of(s, BERTH_SHARED_WRITE);
    void *stranger = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    assert_ptr_not_equal(stranger, MAP_FAILED);
    assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
    assert_int_equal(berth_shared_seal(s, BERTH_SHARED_SEAL_CONTENT), BERTH_BUSY);
    assert_true(info_of(s).mine);
    *data_of(s, 0) = 3;
    assert_int_equal(berth_shared_write_begin(s), BERTH_OK);
    assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
    munmap(stranger, 4096);
    assert_int_equal(berth_shared_seal(s, BERTH_SHARED_SEAL_CONTENT), BERTH_OK);
    close(descriptor);
    berth_shared_release(s);
}

static void test_a_retired_arena_is_over(void **state)
{
    (void)state;
    berth_shared *s = usual_arena(), *reader = again(s, BERTH_SHARED_READ);
    assert_int_equal(berth_shared_retire(s), BERTH_BUSY); /* being written */
    assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
    assert_int_equal(berth_shared_retire(s), BERTH_OK);
    assert_int_equal(berth_shared_check(reader, 1), BERTH_OK); /* what is there may be read */
    assert_int_equal(berth_shared_read_begin(reader, NULL), BERTH_OK);
    assert_int_equal(berth_shared_wait(reader, 0, 0, NULL), BERTH_OK);
    assert_int_equal(berth_shared_wait(reader, 1, BERTH_SHARED_FOREVER, NULL), BERTH_CANCELLED);
    assert_int_equal(berth_shared_write_begin(s), BERTH_CANCELLED);
    assert_true(info_of(reader).retired);
    berth_shared_release(reader);
    berth_shared_release(s);
}

/* ---- Other processes --------------------------------------------------------------------------------- */

static void test_waiting_has_an_end(void **state)
{
    (void)state;
    berth_shared *s = usual_arena(), *reader = again(s, BERTH_SHARED_READ);
    uint64_t generation = 0;
    assert_int_equal(berth_shared_wait(reader, 0, 0, NULL), BERTH_TIMED_OUT);
    assert_int_equal(berth_shared_wait(reader, 0, 1000, NULL), BERTH_TIMED_OUT);
    assert_int_equal(berth_shared_wait(s, 0, 1000, NULL), BERTH_TIMED_OUT); /* the owner counts itself */
    assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
    assert_int_equal(berth_shared_wait(reader, 0, 0, &generation), BERTH_OK);
    assert_int_equal(generation, 1);
    berth_shared_release(s);
    assert_int_equal(berth_shared_wait(reader, 0, BERTH_SHARED_FOREVER, NULL), BERTH_OK);
    assert_int_equal(berth_shared_wait(reader, 1, BERTH_SHARED_FOREVER, NULL), BERTH_NOT_FOUND);
    berth_shared_release(reader);
}

enum { GENERATIONS = 50, CONSUMERS = 3 };

static bool all_are(const char *data, size_t count, char value)
{
    for (size_t i = 0; i < count; i++)
        if (data[i] != value)
            return false;
    return true;
}

/* Sees generations only whole and only rising, once by holding and once by copying. */
static bool consume(void *context)
{
    berth_shared *s = attached(*(int *)context, BERTH_SHARED_READ);
    uint64_t last = 0, now = 0;
    static char copy[70000];
    while (s && last < GENERATIONS) {
        berth_status status = berth_shared_wait(s, last, BERTH_SHARED_FOREVER, &now);
        if (status != BERTH_OK || now <= last)
            return false;
        if (berth_shared_read_begin(s, &now) == BERTH_OK) {
            if (!all_are(data_of(s, 1), 70000, (char)now) || berth_shared_read_end(s) != BERTH_OK)
                return false;
            last = now;
        }
        if (berth_shared_generation(s, &now) != BERTH_OK)
            continue;
        memcpy(copy, data_of(s, 1), sizeof copy);
        if (berth_shared_check(s, now) == BERTH_OK && !all_are(copy, sizeof copy, (char)now))
            return false;
    }
    berth_shared_release(s);
    return s != NULL;
}

static bool waits_for_a_dead_owner(void *context)
{
    berth_shared *s = attached(*(int *)context, BERTH_SHARED_WRITE);
    return s && berth_shared_wait(s, GENERATIONS, BERTH_SHARED_FOREVER, NULL) == BERTH_NOT_FOUND &&
           info_of(s).writing && berth_shared_own(s) == BERTH_OK && berth_shared_write_begin(s) == BERTH_OK &&
           berth_shared_publish(s, NULL) == BERTH_OK;
}

/* The producer begins one generation more when it is told, and stays until it is killed, in the middle of writing. */
static bool produce(void *context)
{
    const int *descriptors = context;
    char byte;
    berth_shared *s = attached(descriptors[0], BERTH_SHARED_WRITE);
    if (!s || berth_shared_own(s) != BERTH_OK)
        return false;
    for (int i = 1; i <= GENERATIONS + 1; i++) {
        berth_status status;
        if (i > GENERATIONS && read(descriptors[1], &byte, 1) != 1)
            return false;
        while ((status = berth_shared_write_begin(s)) == BERTH_BUSY)
            sched_yield();
        if (status != BERTH_OK)
            return false;
        memset(data_of(s, 1), i, 70000);
        if (i <= GENERATIONS && berth_shared_publish(s, NULL) != BERTH_OK)
            return false;
    }
    for (;;)
        pause();
}

static void test_producer_and_consumers(void **state)
{
    (void)state;
    berth_shared *s = usual_arena();
    int descriptor = descriptor_of(s, BERTH_SHARED_WRITE), watch = watch_memory(descriptor);
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    berth_shared_release(s); /* never published: the producer takes over */
    pid_t producer = start_child(produce, (int[]){descriptor, pipes[0]}), consumers[CONSUMERS];
    s = attached(descriptor, BERTH_SHARED_READ);
    assert_non_null(s);
    while (!info_of(s).owned)
        sched_yield();
    for (int i = 0; i < CONSUMERS; i++)
        consumers[i] = start_child(consume, &descriptor);
    for (int i = 0; i < CONSUMERS; i++)
        expect_good(consumers[i]);
    assert_int_equal(write(pipes[1], "x", 1), 1);
    berth_shared_info info;
    do /* it has begun what it does not finish */
        info = info_of(s);
    while (!info.writing || info.generation != GENERATIONS);
    pid_t heir = start_child(waits_for_a_dead_owner, &descriptor);
    kill_child(producer);
    expect_good(heir);
    assert_int_equal(info_of(s).generation, GENERATIONS + 1);
    close(descriptor), close(pipes[0]), close(pipes[1]);
    berth_shared_release(s);
    assert_true(has_gone(watch, GONE_MS));
    close(watch);
}

/* ---- Forks ------------------------------------------------------------------------------------------- */

typedef struct family {
    int socket, go_on; /* of a socket to the test, and of a pipe that ends with the test */
} family;

static bool wait_for_the_end(int go_on)
{
    char byte;
    return read(go_on, &byte, 1) == 0;
}

/* An owner with a child that outlives it. */
static bool own_and_fork(void *context)
{
    const family *f = context;
    berth_plan *plan = NULL;
    berth_shared *s = NULL;
    if (berth_plan_create(&plan) != BERTH_OK ||
        berth_plan_set(plan, usual_buffers, USUAL_COUNT, NULL) != BERTH_OK ||
        berth_shared_create(plan, NULL, &s) != BERTH_OK)
        return false;
    *data_of(s, 0) = 5;
    pid_t child = fork();
    if (child == 0) { /* it reads, and has nothing else of the parent's */
        berth_shared_info info = BERTH_SHARED_INFO_INIT;
        bool good = *data_of(s, 0) == 5 && berth_shared_info_get(s, &info) == BERTH_OK && info.owned &&
                    !info.mine && info.access == BERTH_SHARED_READ &&
                    berth_shared_own(s) == BERTH_UNSUPPORTED && berth_shared_read_end(s) == BERTH_NOT_FOUND;
        good = write(f->socket, good ? "y" : "n", 1) == 1 && good;
        alarm(CHILD_SECONDS);
        _exit(wait_for_the_end(f->go_on) && good ? 0 : 1);
    }
    if (child < 0 || berth_shared_publish(s, NULL) != BERTH_OK ||
        berth_shared_send(s, f->socket, BERTH_SHARED_WRITE) != BERTH_OK)
        return false;
    for (;;)
        pause();
}

static void test_a_child_does_not_keep_its_dead_parents_ownership(void **state)
{
    (void)state;
    int sockets[2], pipes[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    assert_int_equal(pipe(pipes), 0);
    family f = {sockets[1], pipes[0]};
    pid_t owner = fork();
    if (owner == 0) {
        close(pipes[1]);
        alarm(CHILD_SECONDS);
        _exit(own_and_fork(&f) ? 0 : 1);
    }
    close(sockets[1]);
    berth_shared_attach_options o = BERTH_SHARED_ATTACH_OPTIONS_INIT;
    o.access = BERTH_SHARED_WRITE;
    berth_shared *s = NULL;
    char answer = 0;
    for (int messages = 0; messages < 2; messages++) { /* in either order */
        char first = 0;
        assert_true(recv(sockets[0], &first, 1, MSG_PEEK) == 1);
        if (first == 'y' || first == 'n')
            assert_int_equal(recv(sockets[0], &answer, 1, 0), 1);
        else
            assert_int_equal(berth_shared_receive(sockets[0], &o, &s), BERTH_OK);
    }
    assert_int_equal(answer, 'y');
    assert_int_equal(berth_shared_own(s), BERTH_BUSY);
    kill_child(owner);
    assert_int_equal(berth_shared_own(s), BERTH_OK); /* the grandchild still lives, and maps the arena */
    assert_int_equal(berth_shared_seal(s, BERTH_SHARED_SEAL_CONTENT), BERTH_OK);
    close(pipes[0]), close(pipes[1]), close(sockets[0]);
    berth_shared_release(s);
}

static bool child_lets_go(void *context)
{
    berth_shared *s = context;
    berth_shared_release(s);
    return true;
}

static void test_a_child_that_releases_takes_nothing_from_its_parent(void **state)
{
    (void)state;
    berth_shared *s = usual_arena(), *reader = again(s, BERTH_SHARED_READ);
    assert_int_equal(berth_shared_publish(s, NULL), BERTH_OK);
    assert_int_equal(berth_shared_read_begin(reader, NULL), BERTH_OK);
    expect_good(start_child(child_lets_go, s));
    expect_good(start_child(child_lets_go, reader));
    assert_int_equal(berth_shared_write_begin(s), BERTH_BUSY); /* the hold holds */
    assert_int_equal(berth_shared_read_end(reader), BERTH_OK);
    assert_int_equal(berth_shared_write_begin(s), BERTH_OK);
    *data_of(s, 0) = 1;
    berth_shared_release(reader);
    berth_shared_release(s);
}

/* Whoever has a descriptor for writing can ask the kernel for the seal: what an owner has left half written is then for ever. */
static void test_sealed_by_another_half_written_is_not_ready(void **state)
{
    (void)state;
    berth_shared *s = usual_arena(), *reader = again(s, BERTH_SHARED_READ);
    int descriptor = descriptor_of(s, BERTH_SHARED_WRITE);
    uint64_t generation = 7;
    berth_shared_release(s); /* never published */
    assert_int_equal(fcntl(descriptor, F_ADD_SEALS, F_SEAL_WRITE), 0);
    assert_int_equal(info_of(reader).seals, BERTH_SHARED_SEAL_CONTENT);
    assert_int_equal(berth_shared_generation(reader, &generation), BERTH_NOT_READY);
    assert_int_equal(berth_shared_read_begin(reader, &generation), BERTH_NOT_READY);
    assert_int_equal(generation, 7);
    assert_int_equal(berth_shared_read_end(reader), BERTH_NOT_FOUND);
    assert_int_equal(berth_shared_wait(reader, 0, BERTH_SHARED_FOREVER, NULL), BERTH_CANCELLED);
    close(descriptor);
    berth_shared_release(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_handle_owns),
        cmocka_unit_test(test_generations_are_told),
        cmocka_unit_test(test_a_hold_keeps_the_owner_from_writing),
        cmocka_unit_test(test_only_the_owner_can_write),
        cmocka_unit_test(test_another_user_only_reads),
        cmocka_unit_test(test_content_is_sealed_for_good),
        cmocka_unit_test(test_writers_are_sealed_out),
        cmocka_unit_test(test_a_stranger_in_the_way_of_the_seal),
        cmocka_unit_test(test_a_retired_arena_is_over),
        cmocka_unit_test(test_waiting_has_an_end),
        cmocka_unit_test(test_producer_and_consumers),
        cmocka_unit_test(test_a_child_does_not_keep_its_dead_parents_ownership),
        cmocka_unit_test(test_a_child_that_releases_takes_nothing_from_its_parent),
        cmocka_unit_test(test_sealed_by_another_half_written_is_not_ready),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
