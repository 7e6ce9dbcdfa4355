/* The UCX binding within one process: registrations, places, growth, trim, threads, forks, tickets and refusals. Runs on real
 * UCX, and on the stand-in fake.c where BERTH_UCX_LIBRARY names it. */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <berth/berth.h>
#include <berth_ucx.h>

enum { SLAB = 4 << 20, TICKET_ROOM = 1024 };

static berth_ucx *make_ucx(berth_allocator *memory)
{
    berth_ucx_options options = BERTH_UCX_OPTIONS_INIT;
    berth_ucx *ucx = NULL;
    options.slab_bytes = SLAB;
    options.memory = memory;
    assert_int_equal(berth_ucx_create(&options, &ucx), BERTH_OK);
    return ucx;
}

static berth_allocator *make_pool(berth_ucx *ucx)
{
    berth_allocator *pool = NULL;
    assert_int_equal(berth_ucx_pool_create(ucx, NULL, &pool), BERTH_OK);
    assert_string_equal(berth_allocator_name(pool), "ucx");
    return pool;
}

static berth_ucx_figures figures_of(berth_ucx *ucx)
{
    berth_ucx_figures figures = BERTH_UCX_FIGURES_INIT;
    assert_int_equal(berth_ucx_figures_get(ucx, &figures), BERTH_OK);
    return figures;
}

static void *take(berth_allocator *a, size_t size_bytes)
{
    void *p = NULL;
    assert_int_equal(berth_allocate(a, size_bytes, 64, NULL, &p), BERTH_OK);
    return p;
}

static berth_ucx_place place_of(const void *p)
{
    berth_ucx_place place = BERTH_UCX_PLACE_INIT;
    assert_int_equal(berth_ucx_locate(p, &place), BERTH_OK);
    return place;
}

static bool is_nowhere(const void *p)
{
    berth_ucx_place place = BERTH_UCX_PLACE_INIT;
    return berth_ucx_locate(p, &place) == BERTH_NOT_FOUND;
}

/* Or in a slab that happens to lie beside this one. */
static bool is_outside(const void *p, uint64_t slab)
{
    return is_nowhere(p) || place_of(p).slab != slab;
}

static void finish(berth_ucx *ucx, berth_allocator *pool)
{
    berth_allocator_release(pool);
    assert_int_equal(figures_of(ucx).slabs, 0);
    assert_int_equal(berth_ucx_destroy(ucx), BERTH_OK);
}

/* ---- Registrations and places --------------------------------------------------------------------------- */

static void test_1265_tensors_cost_one_registration(void **state)
{
    enum { TENSORS = 1265, BYTES = 3000 };
    berth_ucx *ucx = make_ucx(NULL);
    berth_allocator *pool = make_pool(ucx);
    char *tensors[TENSORS];
    (void)state;
    for (int i = 0; i < TENSORS; i++) {
        tensors[i] = take(pool, BYTES);
        memset(tensors[i], i, BYTES);
    }
    assert_int_equal(figures_of(ucx).registrations, 1);
    berth_ucx_place first = place_of(tensors[0]);
    assert_ptr_equal(first.ucx, ucx);
    for (int i = 0; i < TENSORS; i++) {
        berth_ucx_place inside = place_of(tensors[i] + BYTES - 1);
        assert_int_equal(inside.slab, first.slab);
        assert_ptr_equal((char *)inside.base + inside.offset_bytes, tensors[i] + BYTES - 1);
        assert_true(inside.key && inside.key_bytes > 0 && inside.memory &&
                    inside.offset_bytes < inside.size_bytes);
        assert_int_equal(berth_deallocate(pool, tensors[i], BYTES, NULL), BERTH_OK);
    }
    finish(ucx, pool);
}

static void test_the_registry_finds_it(void **state)
{
    berth_allocator *found = NULL, *best = NULL;
    berth_ucx *ucx = NULL;
    (void)state;
    assert_int_equal(berth_ucx_register(), BERTH_OK); /* was done when the library was loaded */
    assert_int_equal(berth_registry_best_for(BERTH_NIC_COMPATIBLE | BERTH_ON_HOST, &found), BERTH_OK);
    assert_string_equal(berth_allocator_name(found), "ucx");
    assert_int_equal(berth_registry_best(&best), BERTH_OK);
    assert_ptr_not_equal(best, found);
    assert_int_equal(berth_ucx_default(&ucx), BERTH_OK);
    char *p = take(found, 1000);
    assert_ptr_equal(place_of(p).ucx, ucx);
    assert_int_equal(berth_deallocate(found, p, 1000, NULL), BERTH_OK);
    assert_int_equal(berth_ucx_destroy(ucx), BERTH_BUSY); /* the registry's pool */
    assert_int_equal(berth_registry_best_for(BERTH_GPU_COMPATIBLE, &found), BERTH_UNSUPPORTED);
    assert_null(found);
}

static void test_a_request_may_be_larger_than_a_slab(void **state)
{
    berth_ucx *ucx = make_ucx(NULL);
    berth_allocator *pool = make_pool(ucx);
    (void)state;
    char *small = take(pool, 100), *large = take(pool, 3 * (size_t)SLAB + 1);
    memset(large, 1, 3 * (size_t)SLAB + 1);
    assert_int_equal(figures_of(ucx).registrations, 2);
    assert_true(place_of(large).size_bytes > 3 * (uint64_t)SLAB);
    assert_int_not_equal(place_of(large).slab, place_of(small).slab);
    assert_int_equal(berth_deallocate(pool, small, 0, NULL), BERTH_OK);
    assert_int_equal(berth_deallocate(pool, large, 0, NULL), BERTH_OK);
    finish(ucx, pool);
}

static void test_the_source_aligns_and_clears(void **state)
{
    enum { ALIGNMENT = 8 << 20 };
    berth_ucx *ucx = make_ucx(NULL);
    berth_allocator *source = berth_ucx_source(ucx);
    berth_request zeroed = BERTH_REQUEST_INIT;
    char *p = NULL;
    (void)state;
    zeroed.flags = BERTH_ZEROED;
    assert_int_equal(berth_allocate(source, 5000, ALIGNMENT, &zeroed, (void **)&p), BERTH_OK);
    assert_int_equal((uintptr_t)p % ALIGNMENT, 0);
    for (int i = 0; i < 5000; i++)
        assert_int_equal(p[i], 0);
    assert_ptr_equal((char *)place_of(p + 4999).base + place_of(p + 4999).offset_bytes, p + 4999);
    assert_int_equal(berth_allocator_owns(source, p + 1), BERTH_OK);
    assert_int_equal(berth_deallocate(source, p + 64, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_deallocate(source, p, 5000, NULL), BERTH_OK);
    assert_int_equal(berth_deallocate(source, p, 5000, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_allocate(source, SIZE_MAX / 2, 64, NULL, (void **)&p), BERTH_OVERFLOW);
    assert_int_equal(berth_ucx_destroy(ucx), BERTH_OK);
}

static void test_what_was_trimmed_has_no_key_and_its_place_stays_empty(void **state)
{
    enum { ROUNDS = 8 };
    berth_ucx *ucx = make_ucx(NULL);
    berth_allocator *pool = make_pool(ucx);
    char *old[ROUNDS];
    uint64_t numbers[ROUNDS];
    (void)state;
    for (int i = 0; i < ROUNDS; i++) {
        old[i] = take(pool, SLAB);
        numbers[i] = place_of(old[i]).slab;
        for (int j = 0; j < i; j++) {
            assert_int_not_equal(numbers[i], numbers[j]);
            assert_true(is_nowhere(old[j]));
            assert_true(old[i] + SLAB <= old[j] || old[i] >= old[j] + SLAB);
            old[j][0] = 1; /* as UCX's tcp does for a peer with an old key: nobody's memory, and no fault */
        }
        assert_int_equal(berth_deallocate(pool, old[i], SLAB, NULL), BERTH_OK);
        assert_int_equal(berth_trim(pool, 0, NULL), BERTH_OK);
        assert_int_equal(figures_of(ucx).slabs, 0);
    }
    assert_int_equal(figures_of(ucx).registrations, ROUNDS);
    assert_int_equal(figures_of(ucx).lost_bytes, 0);
    assert_true(figures_of(ucx).retired_bytes >= (uint64_t)ROUNDS * SLAB);
    finish(ucx, pool);
}

static void test_pointers_that_are_not_ours(void **state)
{
    int here = 0;
    berth_ucx_place place = BERTH_UCX_PLACE_INIT;
    berth_ucx *ucx = make_ucx(NULL);
    berth_allocator *pool = make_pool(ucx);
    (void)state;
    char *p = take(pool, 100);
    char *end = (char *)place_of(p).base + place_of(p).size_bytes;
    assert_true(is_nowhere(&here));
    assert_true(is_nowhere(NULL));
    const uint64_t slab = place_of(p).slab;
    assert_true(is_outside((char *)place_of(p).base - 1, slab));
    assert_false(is_outside(end - 1, slab));
    assert_true(is_outside(end, slab));
    assert_int_equal(berth_deallocate(pool, &here, 0, NULL), BERTH_BAD_FREE);
    assert_int_equal(berth_ucx_withdraw(&here), BERTH_NOT_FOUND);
    place.struct_size = 0;
    assert_int_equal(berth_ucx_locate(p, &place), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ucx_locate(p, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_deallocate(pool, p, 100, NULL), BERTH_OK);
    finish(ucx, pool);
}

/* ---- Life ------------------------------------------------------------------------------------------------ */

static void test_busy_while_something_lives(void **state)
{
    berth_ucx *ucx = make_ucx(NULL);
    berth_allocator *pool = make_pool(ucx);
    void *p = take(pool, 100);
    (void)state;
    assert_int_equal(berth_ucx_destroy(ucx), BERTH_BUSY);
    assert_non_null(strstr(berth_last_error()->message, "1 slabs"));
    assert_int_equal(berth_deallocate(pool, p, 100, NULL), BERTH_OK);
    assert_int_equal(berth_trim(pool, 0, NULL), BERTH_OK);
    assert_int_equal(berth_ucx_destroy(ucx), BERTH_BUSY);
    assert_non_null(strstr(berth_last_error()->message, "0 slabs with 0 bytes and 1 pools"));
    finish(ucx, pool);
    berth_ucx *second = make_ucx(NULL);
    berth_allocator *source = berth_allocator_retain(berth_ucx_source(second));
    void *slab = take(source, 100);
    assert_int_equal(berth_ucx_destroy(second), BERTH_BUSY);
    assert_int_equal(berth_deallocate(source, slab, 100, NULL), BERTH_OK);
    assert_int_equal(berth_ucx_destroy(second), BERTH_OK);
    assert_int_equal(berth_allocate(source, 100, 64, NULL, &slab), BERTH_DEVICE_LOST); /* and nothing worse */
    berth_allocator_release(source);
    assert_int_equal(berth_ucx_destroy(NULL), BERTH_OK);
}

static void test_bad_arguments(void **state)
{
    berth_ucx_options options = BERTH_UCX_OPTIONS_INIT;
    berth_pool_options pool_options = BERTH_POOL_OPTIONS_INIT;
    berth_ucx *ucx = make_ucx(NULL), *other = NULL;
    berth_allocator *pool = NULL;
    berth_ucx_peer *peer = NULL;
    (void)state;
    assert_int_equal(berth_ucx_create(NULL, NULL), BERTH_INVALID_ARGUMENT);
    options.struct_size = 1;
    assert_int_equal(berth_ucx_create(&options, &other), BERTH_INVALID_ARGUMENT);
    options.struct_size = sizeof options, options.slab_bytes = SIZE_MAX;
    assert_int_equal(berth_ucx_create(&options, &other), BERTH_OVERFLOW);
    assert_null(other);
    assert_int_equal(berth_ucx_pool_create(NULL, NULL, &pool), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ucx_pool_create(ucx, NULL, NULL), BERTH_INVALID_ARGUMENT);
    pool_options.upstream = berth_cpu_allocator();
    assert_int_equal(berth_ucx_pool_create(ucx, &pool_options, &pool), BERTH_INVALID_ARGUMENT);
    pool_options.struct_size = 8;
    assert_int_equal(berth_ucx_pool_create(ucx, &pool_options, &pool), BERTH_INVALID_ARGUMENT);
    assert_null(pool);
    assert_int_equal(berth_ucx_peer_create(NULL, NULL, &peer), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ucx_peer_destroy(NULL), BERTH_OK);
    assert_null(berth_ucx_source(NULL));
    assert_null(berth_ucx_context(NULL));
    assert_int_equal(berth_ucx_destroy(ucx), BERTH_OK);
}

static void test_a_context_of_the_programs_own(void **state)
{
    berth_ucx_options options = BERTH_UCX_OPTIONS_INIT;
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES, .features = UCP_FEATURE_RMA};
    berth_ucx *ucx = NULL;
    const char *path = getenv("BERTH_UCX_LIBRARY");
    (void)state;
    void *library = dlopen(path ? path : "libucp.so.0", RTLD_NOW);
    assert_non_null(library);
    __typeof__(ucp_init_version) *init = NULL;
    __typeof__(ucp_cleanup) *cleanup = NULL;
    *(void **)&init = dlsym(library, "ucp_init_version");
    *(void **)&cleanup = dlsym(library, "ucp_cleanup");
    assert_int_equal(init(UCP_API_MAJOR, UCP_API_MINOR, &params, NULL, &options.context), UCS_OK);
    assert_int_equal(berth_ucx_create(&options, &ucx), BERTH_OK);
    assert_ptr_equal(berth_ucx_context(ucx), options.context);
    berth_allocator *pool = make_pool(ucx);
    void *p = take(pool, 100);
    assert_ptr_equal(place_of(p).ucx, ucx);
    assert_int_equal(berth_deallocate(pool, p, 100, NULL), BERTH_OK);
    finish(ucx, pool);
    cleanup(options.context); /* still the program's */
    dlclose(library);
}

/* ---- Memory from elsewhere -------------------------------------------------------------------------------- */

static void test_memory_of_another_allocator(void **state)
{
    berth_allocator *pages = NULL;
    (void)state;
    assert_int_equal(berth_mapped_allocator_create(NULL, &pages), BERTH_OK);
    berth_ucx *ucx = make_ucx(pages);
    berth_allocator *pool = make_pool(ucx);
    char *p = take(pool, 10000);
    assert_int_equal(berth_allocator_owns(pages, p), BERTH_OK);
    assert_int_equal(place_of(p + 9999).offset_bytes, place_of(p).offset_bytes + 9999);
    assert_int_equal(berth_deallocate(pool, p, 10000, NULL), BERTH_OK);
    berth_allocator_release(pool);
    assert_int_equal(berth_ucx_destroy(ucx), BERTH_OK);
    assert_int_equal(berth_allocator_owns(pages, p), BERTH_NOT_FOUND);
    berth_allocator_release(pages);
}

static berth_device cuda_device(void *self)
{
    (void)self;
    return (berth_device){BERTH_DEVICE_CUDA, 0};
}

static void test_memory_that_ucx_cannot_reach(void **state)
{
    static const berth_allocator_ops as_cuda = {.struct_size = sizeof as_cuda, .device = cuda_device};
    berth_ucx_options options = BERTH_UCX_OPTIONS_INIT;
    berth_ucx *ucx = NULL;
    (void)state;
    assert_int_equal(berth_dry_run_allocator_create(0, &options.memory), BERTH_OK);
    assert_int_equal(berth_ucx_create(&options, &ucx), BERTH_UNSUPPORTED);
    assert_null(ucx);
    berth_allocator_release(options.memory);
    /* Neither Debian's UCX nor the stand-in knows CUDA. */
    assert_int_equal(berth_wrapper_create(berth_cpu_allocator(), &as_cuda, NULL, &options.memory), BERTH_OK);
    assert_int_equal(berth_ucx_create(&options, &ucx), BERTH_UNSUPPORTED);
    assert_non_null(strstr(berth_last_error()->message, "CUDA"));
    berth_allocator_release(options.memory);
}

/* ---- Threads and forks ------------------------------------------------------------------------------------ */

enum { THREADS = 4, STEPS = 300 };

static void *work(void *context)
{
    berth_allocator *pool = context;
    char ticket[TICKET_ROOM];
    for (int i = 0; i < STEPS; i++) {
        void *p = NULL;
        size_t bytes = sizeof ticket, size = 1000 + (size_t)i * 997 % 60000;
        if (berth_allocate(pool, size, 64, NULL, &p) != BERTH_OK || is_nowhere(p) ||
            (i % 3 == 0 && berth_ucx_publish(pool, p, 0, size, ticket, &bytes) != BERTH_OK) ||
            berth_deallocate(pool, p, size, NULL) != BERTH_OK)
            return context;
        if (i % 50 == 49 && berth_trim(pool, 0, NULL) != BERTH_OK)
            return context;
    }
    return NULL;
}

static void test_threads(void **state)
{
    berth_ucx *ucx = make_ucx(NULL);
    berth_allocator *pool = make_pool(ucx);
    pthread_t threads[THREADS];
    void *failed = NULL;
    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, pool), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(figures_of(ucx).tickets, 0);
    finish(ucx, pool);
}

static void *free_block(void *context)
{
    void **both = context;
    return berth_deallocate(both[0], both[1], 0, NULL) == BERTH_OK ? NULL : context;
}

static void test_freed_by_another_thread(void **state)
{
    berth_ucx *ucx = make_ucx(NULL);
    berth_allocator *pool = make_pool(ucx);
    char ticket[TICKET_ROOM];
    size_t bytes = sizeof ticket;
    void *both[2] = {pool, take(pool, 5000)}, *failed = NULL;
    pthread_t thread;
    (void)state;
    assert_int_equal(berth_ucx_publish(pool, both[1], 0, 5000, ticket, &bytes), BERTH_OK);
    assert_int_equal(pthread_create(&thread, NULL, free_block, both), 0);
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(figures_of(ucx).tickets, 0);
    finish(ucx, pool);
}

/* 0, or the number of the line that was not right. */
static int look_in_child(berth_ucx *ucx, berth_allocator *pool, void *p, const void *mine)
{
    char ticket[TICKET_ROOM];
    size_t bytes = sizeof ticket;
    void *other = NULL;
    berth_ucx_figures figures = BERTH_UCX_FIGURES_INIT;
#define IN_CHILD(condition) \
    if (!(condition))       \
        return __LINE__ & 0xff;
    IN_CHILD(berth_allocate(pool, 100, 64, NULL, &other) == BERTH_DEVICE_LOST)
    IN_CHILD(berth_allocate(berth_ucx_source(ucx), 100, 64, NULL, &other) == BERTH_DEVICE_LOST)
    IN_CHILD(is_nowhere(p))
    IN_CHILD(berth_ucx_publish(pool, p, 0, 10, ticket, &bytes) == BERTH_NOT_FOUND)
    IN_CHILD(berth_ucx_figures_get(ucx, &figures) == BERTH_DEVICE_LOST)
    IN_CHILD(berth_deallocate(pool, p, 0, NULL) == BERTH_OK)
    IN_CHILD(*(const int *)mine == 17)
    berth_allocator_release(pool);
    IN_CHILD(berth_ucx_destroy(ucx) == BERTH_OK)
#undef IN_CHILD
    return 0;
}

static void test_the_child_of_a_fork_has_none_of_it(void **state)
{
    berth_ucx *ucx = make_ucx(NULL);
    berth_allocator *pool = make_pool(ucx);
    char *p = take(pool, 5000), ticket[TICKET_ROOM];
    size_t bytes = sizeof ticket;
    int mine = 17, code = 0;
    (void)state;
    memset(p, 42, 5000);
    assert_int_equal(berth_ucx_publish(pool, p, 0, 5000, ticket, &bytes), BERTH_OK);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(look_in_child(ucx, pool, p, &mine));
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    assert_int_equal(p[4999], 42);
    assert_int_equal(figures_of(ucx).tickets, 1);
    assert_int_equal(place_of(p).ucx == ucx, 1);
    assert_int_equal(berth_deallocate(pool, p, 5000, NULL), BERTH_OK);
    finish(ucx, pool);
}

/* ---- Tickets ---------------------------------------------------------------------------------------------- */

static void test_tickets(void **state)
{
    enum { BLOCKS = 3000 };
    static void *blocks[BLOCKS];
    berth_ucx *ucx = make_ucx(NULL);
    berth_allocator *pool = make_pool(ucx), *plain = NULL;
    char ticket[TICKET_ROOM];
    size_t bytes = 0, has = sizeof ticket;
    (void)state;
    char *p = take(pool, 5000);
    assert_int_equal(berth_ucx_publish(pool, p, 0, 5000, NULL, &bytes), BERTH_OVERFLOW);
    assert_true(bytes > 0 && bytes <= sizeof ticket);
    assert_int_equal(berth_ucx_publish(pool, p, 0, 5000, ticket, &bytes), BERTH_OK);
    assert_int_equal(berth_ucx_publish(pool, p, 4000, 1000, ticket, &has), BERTH_OK);
    assert_int_equal(has, bytes);
    assert_int_equal(figures_of(ucx).tickets, 1); /* of one block */
    assert_int_equal(berth_ucx_publish(pool, p + 64, 0, 10, ticket, &has), BERTH_NOT_FOUND);
    assert_int_equal(berth_ucx_publish(pool, p, 4000, 100000, ticket, &has), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ucx_publish(pool, p, SIZE_MAX, 2, ticket, &has), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ucx_publish(NULL, p, 0, 1, ticket, &has), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_ucx_publish(pool, p, 0, 1, ticket, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_pool_create(NULL, &plain), BERTH_OK);
    assert_int_equal(berth_ucx_publish(plain, p, 0, 1, ticket, &has), BERTH_UNSUPPORTED);
    berth_allocator_release(plain);
    assert_int_equal(berth_ucx_withdraw(p), BERTH_OK);
    assert_int_equal(berth_ucx_withdraw(p), BERTH_NOT_FOUND);
    has = sizeof ticket;
    assert_int_equal(berth_ucx_publish(pool, p, 0, 5000, ticket, &has), BERTH_OK);
    assert_int_equal(berth_reallocate(pool, p, 5000, 9000, 64, NULL, (void **)&p), BERTH_OK);
    assert_int_equal(figures_of(ucx).tickets, 0);
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = take(pool, 64);
        has = sizeof ticket;
        assert_int_equal(berth_ucx_publish(pool, blocks[i], 0, 64, ticket, &has), BERTH_OK);
    }
    assert_int_equal(figures_of(ucx).tickets, BLOCKS);
    assert_int_equal(figures_of(ucx).registrations, 1);
    for (int i = 0; i < BLOCKS; i++)
        assert_int_equal(berth_deallocate(pool, blocks[i], 64, NULL), BERTH_OK);
    assert_int_equal(figures_of(ucx).tickets, 0);
    assert_int_equal(berth_deallocate(pool, p, 0, NULL), BERTH_OK);
    finish(ucx, pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_1265_tensors_cost_one_registration),
        cmocka_unit_test(test_the_registry_finds_it),
        cmocka_unit_test(test_a_request_may_be_larger_than_a_slab),
        cmocka_unit_test(test_the_source_aligns_and_clears),
        cmocka_unit_test(test_what_was_trimmed_has_no_key_and_its_place_stays_empty),
        cmocka_unit_test(test_pointers_that_are_not_ours),
        cmocka_unit_test(test_busy_while_something_lives),
        cmocka_unit_test(test_bad_arguments),
        cmocka_unit_test(test_a_context_of_the_programs_own),
        cmocka_unit_test(test_memory_of_another_allocator),
        cmocka_unit_test(test_memory_that_ucx_cannot_reach),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_freed_by_another_thread),
        cmocka_unit_test(test_the_child_of_a_fork_has_none_of_it),
        cmocka_unit_test(test_tickets),
    };
    alarm(120);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
