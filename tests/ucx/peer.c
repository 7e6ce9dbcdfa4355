/* The peer's side of tickets on fake.c, whose endpoint leads to this process itself: answers that never come, and blocks that go
 * between one step and the next. argv: the fake. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <berth/berth.h>
#include <berth_ucx.h>

#include "fake.h"

enum { BYTES = 5000, TICKET_ROOM = 1024, NEVER = 2000 };
static const uint64_t minute_ns = UINT64_C(60000000000);
static fake_ucx_controls *fake;

/* An owner and its peer, in one process. */
typedef struct both {
    berth_ucx *ucx;
    berth_allocator *pool;
    berth_ucx_peer *peer;
    unsigned char *block;
    berth_ucx_remote remote;
} both;

static void open_ticket(both *b, const void *block, berth_ucx_remote *out)
{
    char ticket[TICKET_ROOM];
    size_t bytes = sizeof ticket;
    assert_int_equal(berth_ucx_publish(b->pool, block, 0, BYTES, ticket, &bytes), BERTH_OK);
    *out = (berth_ucx_remote)BERTH_UCX_REMOTE_INIT;
    assert_int_equal(berth_ucx_peer_open(b->peer, ticket, bytes, minute_ns, out), BERTH_OK);
}

static void begin(both *b)
{
    char worker, endpoint; /* handles need only be addresses */
    *b = (both){0};
    fake->reaches = 1;
    assert_int_equal(berth_ucx_create(NULL, &b->ucx), BERTH_OK);
    assert_int_equal(berth_ucx_pool_create(b->ucx, NULL, &b->pool), BERTH_OK);
    assert_int_equal(
        berth_ucx_peer_create((ucp_worker_h)(void *)&worker, (ucp_ep_h)(void *)&endpoint, &b->peer),
        BERTH_OK);
    assert_int_equal(berth_allocate(b->pool, BYTES, 64, NULL, (void **)&b->block), BERTH_OK);
    memset(b->block, 3, BYTES);
    open_ticket(b, b->block, &b->remote);
}

static void end(both *b)
{
    assert_int_equal(berth_ucx_peer_destroy(b->peer), BERTH_OK);
    assert_int_equal(fake->rkeys + fake->requests, 0);
    if (b->block)
        assert_int_equal(berth_deallocate(b->pool, b->block, BYTES, NULL), BERTH_OK);
    berth_allocator_release(b->pool);
    assert_int_equal(berth_ucx_destroy(b->ucx), BERTH_OK);
}

/* ---- Waiting ----------------------------------------------------------------------------------------- */

/* A worker that always has something to do for others does not make a check wait for ever. */
static void test_a_busy_worker_times_out_too(void **state)
{
    both b;
    (void)state;
    begin(&b);
    for (fake->progress = 0; fake->progress < 2; fake->progress++) {
        fake->done_after = NEVER;
        assert_int_equal(berth_ucx_peer_check(b.peer, &b.remote, 0), BERTH_TIMED_OUT);
        assert_int_equal(berth_ucx_peer_destroy(b.peer), BERTH_BUSY);
        /* asked again, the old answer is waited for first */
        fake->done_after = 0;
        assert_int_equal(berth_ucx_peer_check(b.peer, &b.remote, minute_ns), BERTH_OK);
    }
    fake->progress = 0;
    end(&b);
}

/* ---- Gets and puts ------------------------------------------------------------------------------------- */

enum { PART = 1000, AT = 77 };

static berth_status get_part(both *b, unsigned char *part, uint64_t timeout_ns)
{
    return berth_ucx_peer_get(b->peer, &b->remote, AT, part, PART, timeout_ns);
}

static berth_status put_part(both *b, const unsigned char *part, uint64_t timeout_ns)
{
    return berth_ucx_peer_put(b->peer, &b->remote, AT, part, PART, timeout_ns);
}

static void test_bytes_of_a_ticket_that_holds(void **state)
{
    both b;
    unsigned char part[PART];
    (void)state;
    begin(&b);
    b.block[AT] = 9;
    assert_int_equal(get_part(&b, part, minute_ns), BERTH_OK);
    assert_true(part[0] == 9 && part[PART - 1] == 3);
    memset(part, 5, sizeof part);
    assert_int_equal(put_part(&b, part, minute_ns), BERTH_OK);
    assert_true(b.block[AT - 1] == 3 && b.block[AT] == 5 && b.block[AT + PART - 1] == 5);
    assert_int_equal(b.block[AT + PART], 3);
    assert_int_equal(berth_ucx_peer_put(b.peer, &b.remote, BYTES, NULL, 0, minute_ns), BERTH_OK);
    assert_int_equal(berth_ucx_peer_get(b.peer, &b.remote, BYTES, part, 1, 0), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ucx_peer_put(b.peer, &b.remote, UINT64_MAX, part, 2, 0), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ucx_peer_get(b.peer, &b.remote, 0, NULL, 2, 0), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ucx_peer_get(NULL, &b.remote, 0, part, 2, 0), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ucx_peer_put(b.peer, NULL, 0, part, 2, 0), BERTH_INVALID_ARGUMENT);
    end(&b);
}

static void test_an_old_ticket_moves_nothing(void **state)
{
    both b;
    unsigned char part[PART] = {1};
    (void)state;
    begin(&b);
    assert_int_equal(berth_ucx_withdraw(b.block), BERTH_OK);
    assert_int_equal(get_part(&b, part, minute_ns), BERTH_NOT_FOUND);
    assert_int_equal(part[0], 1);
    assert_int_equal(put_part(&b, part, minute_ns), BERTH_NOT_FOUND);
    assert_non_null(strstr(berth_last_error()->message, "the ticket is void"));
    assert_int_equal(b.block[AT], 3);
    end(&b);
}

static void free_block(void *context)
{
    both *b = context;
    if (b->block)
        assert_int_equal(berth_deallocate(b->pool, b->block, BYTES, NULL), BERTH_OK);
    b->block = NULL;
}

/* The owner frees the block when the bytes are there and the question behind them has not come yet. */
static void test_a_free_meanwhile_is_told(void **state)
{
    (void)state;
    for (int is_put = 0; is_put < 2; is_put++) {
        both b;
        unsigned char part[PART] = {0};
        begin(&b);
        fake->between_context = &b;
        fake->between = free_block;
        assert_int_equal(is_put ? put_part(&b, part, minute_ns) : get_part(&b, part, minute_ns),
                         BERTH_NOT_FOUND);
        assert_non_null(strstr(berth_last_error()->message, "while bytes were moved"));
        assert_null(b.block);
        fake->between = NULL;
        end(&b);
    }
}

static void never_done(void *context)
{
    (void)context;
    fake->done_after = NEVER;
}

static void test_bytes_that_do_not_come(void **state)
{
    (void)state;
    for (int is_put = 0; is_put < 2; is_put++) {
        both b;
        unsigned char part[PART] = {0};
        begin(&b);
        fake->between = never_done;
        assert_int_equal(is_put ? put_part(&b, part, 0) : get_part(&b, part, 0), BERTH_TIMED_OUT);
        fake->between = NULL;
        fake->done_after = 0;
        assert_int_equal(berth_ucx_peer_forget(b.peer, b.remote.slab), BERTH_BUSY);
        assert_int_equal(is_put ? put_part(&b, part, minute_ns) : get_part(&b, part, minute_ns), BERTH_OK);
        end(&b);
    }
}

static void test_what_ucx_refuses_is_told(void **state)
{
    both b;
    unsigned char part[PART] = {0};
    (void)state;
    begin(&b);
    for (int n = 1; n <= 4; n++) { /* ask, put, flush, ask */
        fake->calls = 0;
        fake->fail_at = n;
        assert_int_equal(put_part(&b, part, minute_ns), BERTH_DEVICE_ERROR);
        assert_non_null(strstr(berth_last_error()->message, "(fake)"));
        if (n < 4) {
            fake->calls = 0;
            assert_int_equal(get_part(&b, part, minute_ns), BERTH_DEVICE_ERROR);
        }
    }
    fake->fail_at = 0;
    end(&b);
}

/* ---- Opening ------------------------------------------------------------------------------------------- */

/* The first ticket of a slab is asked for before the slab's key is unpacked; those after it are not. */
static void test_a_ticket_that_is_void_is_not_opened(void **state)
{
    both b;
    char ticket[TICKET_ROOM];
    size_t bytes = sizeof ticket;
    berth_ucx_remote remote = BERTH_UCX_REMOTE_INIT;
    (void)state;
    begin(&b);
    assert_int_equal(berth_ucx_publish(b.pool, b.block, 0, BYTES, ticket, &bytes), BERTH_OK);
    assert_int_equal(berth_ucx_peer_forget(b.peer, b.remote.slab), BERTH_OK);
    assert_int_equal(fake->rkeys, 1); /* the table's */
    fake->done_after = NEVER;
    assert_int_equal(berth_ucx_peer_open(b.peer, ticket, bytes, 0, &remote), BERTH_TIMED_OUT);
    fake->done_after = 0;
    assert_int_equal(berth_ucx_withdraw(b.block), BERTH_OK);
    assert_int_equal(berth_ucx_peer_open(b.peer, ticket, bytes, minute_ns, &remote), BERTH_NOT_FOUND);
    assert_true(!remote.rkey && !remote.number_rkey);
    assert_int_equal(fake->rkeys, 1);
    open_ticket(&b, b.block, &b.remote);
    assert_int_equal(fake->rkeys, 2);
    assert_int_equal(berth_ucx_peer_open(b.peer, ticket, bytes, minute_ns, &remote), BERTH_OK);
    assert_int_equal(berth_ucx_peer_check(b.peer, &remote, minute_ns), BERTH_NOT_FOUND);
    end(&b);
}

/* ---- Frees that are refused ------------------------------------------------------------------------------- */

static void test_a_refused_free_voids_nothing(void **state)
{
    both b;
    berth_allocator *other = NULL;
    void *moved = NULL;
    (void)state;
    begin(&b);
    assert_int_equal(berth_ucx_pool_create(b.ucx, NULL, &other), BERTH_OK);
    assert_int_equal(berth_deallocate(other, b.block, BYTES, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_ucx_peer_check(b.peer, &b.remote, minute_ns), BERTH_OK);
    assert_int_not_equal(berth_reallocate(b.pool, b.block, BYTES, SIZE_MAX / 8, 64, NULL, &moved), BERTH_OK);
    assert_int_equal(berth_ucx_peer_check(b.peer, &b.remote, minute_ns), BERTH_OK);
    assert_int_equal(berth_deallocate(b.pool, b.block, BYTES, NULL), BERTH_OK);
    assert_int_equal(berth_ucx_peer_check(b.peer, &b.remote, minute_ns), BERTH_NOT_FOUND);
    b.block = NULL;
    berth_allocator_release(other);
    end(&b);
}

/* ---- Keys ------------------------------------------------------------------------------------------------ */

/* A peer that outlives many slabs keeps the keys of those that it has not forgotten. */
static void test_a_slab_is_forgotten(void **state)
{
    enum { SLABS = 20, LARGE = 70 << 20 }; /* more than a slab: each block is one's */
    both b;
    berth_ucx_remote remotes[2] = {BERTH_UCX_REMOTE_INIT, BERTH_UCX_REMOTE_INIT};
    void *large = NULL;
    (void)state;
    begin(&b);
    assert_int_equal(fake->rkeys, 2); /* the slab's and the table's */
    for (int i = 0; i < SLABS; i++) {
        assert_int_equal(berth_allocate(b.pool, LARGE, 64, NULL, &large), BERTH_OK);
        open_ticket(&b, large, &remotes[0]);
        open_ticket(&b, large, &remotes[1]);
        assert_ptr_equal(remotes[0].rkey, remotes[1].rkey);
        assert_int_equal(fake->rkeys, 3);
        assert_int_equal(berth_deallocate(b.pool, large, LARGE, NULL), BERTH_OK);
        assert_int_equal(berth_trim(b.pool, 0, NULL), BERTH_OK);
        assert_int_equal(berth_ucx_peer_forget(b.peer, remotes[0].slab), BERTH_OK);
        assert_int_equal(berth_ucx_peer_forget(b.peer, remotes[0].slab), BERTH_NOT_FOUND);
    }
    assert_int_equal(berth_ucx_peer_forget(NULL, 1), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ucx_peer_check(b.peer, &b.remote, minute_ns), BERTH_OK);
    assert_int_equal(berth_ucx_peer_forget(b.peer, b.remote.slab), BERTH_OK);
    open_ticket(&b, b.block, &b.remote); /* as a first one */
    assert_int_equal(berth_ucx_peer_check(b.peer, &b.remote, minute_ns), BERTH_OK);
    end(&b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_busy_worker_times_out_too),
        cmocka_unit_test(test_bytes_of_a_ticket_that_holds),
        cmocka_unit_test(test_an_old_ticket_moves_nothing),
        cmocka_unit_test(test_a_free_meanwhile_is_told),
        cmocka_unit_test(test_bytes_that_do_not_come),
        cmocka_unit_test(test_what_ucx_refuses_is_told),
        cmocka_unit_test(test_a_ticket_that_is_void_is_not_opened),
        cmocka_unit_test(test_a_refused_free_voids_nothing),
        cmocka_unit_test(test_a_slab_is_forgotten),
    };
    if (argc != 2)
        return 2;
    setenv("BERTH_UCX_LIBRARY", argv[1], 1);
    void *library = dlopen(argv[1], RTLD_NOW);
    fake = library ? dlsym(library, "fake_ucx") : NULL;
    return fake ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
