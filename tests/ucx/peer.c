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
    assert_int_equal(berth_ucx_peer_open(b->peer, ticket, bytes, out), BERTH_OK);
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_busy_worker_times_out_too),
    };
    if (argc != 2)
        return 2;
    setenv("BERTH_UCX_LIBRARY", argv[1], 1);
    void *library = dlopen(argv[1], RTLD_NOW);
    fake = library ? dlsym(library, "fake_ucx") : NULL;
    return fake ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
