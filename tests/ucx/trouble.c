/* UCX that is absent, too old, incomplete, or says no at every call in turn. On fake.c; argv: the whole fake, an old one, one
 * without a call. */
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

static const char *fake_whole, *fake_old, *fake_part;
static fake_ucx_controls *fake;

static berth_status create_with(const char *library)
{
    berth_ucx *ucx = NULL;
    setenv("BERTH_UCX_LIBRARY", library, 1);
    berth_status status = berth_ucx_create(NULL, &ucx);
    assert_true(status == BERTH_OK || !ucx);
    assert_int_equal(berth_ucx_destroy(ucx), BERTH_OK);
    return status;
}

/* First: once a good one is loaded it stays. */
static void test_libraries_that_will_not_do(void **state)
{
    berth_allocator *found = NULL;
    (void)state;
    assert_int_equal(create_with("/nowhere/libucp.so.0"), BERTH_UNSUPPORTED);
    assert_non_null(strstr(berth_last_error()->message, "libucx0"));
    assert_int_equal(berth_registry_best_for(BERTH_NIC_COMPATIBLE, &found), BERTH_UNSUPPORTED);
    assert_non_null(strstr(berth_last_error()->message, "/nowhere/libucp.so.0"));
    assert_null(found);
    assert_int_equal(create_with("libc.so.6"), BERTH_UNSUPPORTED);
    assert_non_null(strstr(berth_last_error()->message, "not UCX's libucp"));
    assert_int_equal(create_with(fake_old), BERTH_UNSUPPORTED);
    assert_non_null(strstr(berth_last_error()->message, "is UCX 1.2.0, this binding needs 1."));
    assert_int_equal(create_with(fake_part), BERTH_UNSUPPORTED);
    assert_non_null(strstr(berth_last_error()->message, "ucp_rkey_pack"));
    assert_int_equal(create_with(fake_whole), BERTH_OK);
    void *library = dlopen(fake_whole, RTLD_NOW);
    fake = library ? dlsym(library, "fake_ucx") : NULL;
    assert_non_null(fake);
}

static berth_status use_pool(berth_allocator *pool)
{
    char ticket[1024];
    size_t bytes = sizeof ticket;
    void *p = NULL;
    berth_status status = berth_allocate(pool, 5000, 64, NULL, &p);
    if (status != BERTH_OK)
        return status;
    status = berth_ucx_publish(pool, p, 0, 5000, ticket, &bytes);
    assert_int_equal(berth_deallocate(pool, p, 5000, NULL), BERTH_OK);
    return status;
}

/* Everything once; on failure nothing is left. */
static berth_status scene(void)
{
    berth_ucx *ucx = NULL;
    berth_allocator *pool = NULL;
    berth_status status = berth_ucx_create(NULL, &ucx);
    if (status == BERTH_OK)
        status = berth_ucx_pool_create(ucx, NULL, &pool);
    if (status == BERTH_OK)
        status = use_pool(pool);
    berth_allocator_release(pool);
    assert_int_equal(berth_ucx_destroy(ucx), BERTH_OK);
    assert_int_equal(fake->contexts + fake->configs + fake->memories + fake->keys, 0);
    return status;
}

static void test_every_call_fails_once(void **state)
{
    int failures = 0, n = 1;
    (void)state;
    for (;; n++) {
        fake->calls = 0;
        fake->fail_at = n;
        berth_clear_last_error();
        berth_status status = scene();
        if (fake->calls < n)
            break;
        if (status == BERTH_OK)
            continue; /* the pool asked again, for less */
        failures++;
        assert_true(status == BERTH_OUT_OF_HOST_MEMORY || status == BERTH_DEVICE_ERROR);
        assert_non_null(strstr(berth_last_error()->message, "(fake)"));
    }
    assert_true(failures >= 4 && n > 7);
    fake->fail_at = 0;
    assert_int_equal(scene(), BERTH_OK);
}

static void test_ucp_init_fails_for_the_registry(void **state)
{
    berth_allocator *found = NULL;
    (void)state;
    fake->calls = 0;
    fake->fail_at = 3; /* after the settings */
    assert_int_equal(berth_registry_best_for(BERTH_NIC_COMPATIBLE, &found), BERTH_DEVICE_ERROR);
    assert_null(found);
    assert_non_null(strstr(berth_last_error()->message, "ucp_init"));
    assert_non_null(strstr(berth_last_error()->message, "Input/output error (fake)"));
    assert_int_equal(berth_last_error()->driver_code, UCS_ERR_IO_ERROR);
    fake->fail_at = 0;
    assert_int_equal(berth_registry_best_for(BERTH_NIC_COMPATIBLE, &found), BERTH_OK);
    assert_int_equal(berth_registry_remove("ucx", 0), BERTH_OK);
}

/* As where RLIMIT_MEMLOCK is small: slabs get smaller while that helps, and then it is told. */
static void test_registrations_that_are_refused(void **state)
{
    berth_ucx *ucx = NULL;
    berth_allocator *pool = NULL;
    void *p = NULL;
    (void)state;
    fake->max_bytes = (size_t)1 << 20;
    assert_int_equal(berth_ucx_create(NULL, &ucx), BERTH_OK);
    assert_int_equal(berth_ucx_pool_create(ucx, NULL, &pool), BERTH_OK);
    assert_int_equal(berth_allocate(pool, 100000, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_deallocate(pool, p, 100000, NULL), BERTH_OK);
    assert_int_equal(berth_allocate(pool, (size_t)2 << 20, 64, NULL, &p), BERTH_OUT_OF_HOST_MEMORY);
    assert_null(p);
    assert_int_equal(berth_allocate(berth_ucx_source(ucx), (size_t)2 << 20, 64, NULL, &p),
                     BERTH_OUT_OF_HOST_MEMORY);
    assert_non_null(strstr(berth_last_error()->message, "RLIMIT_MEMLOCK"));
    assert_non_null(strstr(berth_last_error()->message, "(fake)"));
    berth_allocator_release(pool);
    assert_int_equal(berth_ucx_destroy(ucx), BERTH_OK);
    fake->max_bytes = 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_libraries_that_will_not_do),
        cmocka_unit_test(test_every_call_fails_once),
        cmocka_unit_test(test_registrations_that_are_refused),
        cmocka_unit_test(test_ucp_init_fails_for_the_registry),
    };
    if (argc != 4)
        return 2;
    fake_whole = argv[1], fake_old = argv[2], fake_part = argv[3];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
