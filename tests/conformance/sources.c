/* The sources that the suite runs on. */
#include "conformance.h"

static berth_allocator *make_system(void)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_cpu_allocator_create(NULL, &a), BERTH_OK);
    return a;
}

static berth_allocator *make_system_with(berth_stats_mode mode, bool exact)
{
    berth_allocator *a = NULL;
    berth_cpu_options options = BERTH_CPU_OPTIONS_INIT;
    options.stats = mode;
    options.exact_peak = exact;
    assert_int_equal(berth_cpu_allocator_create(&options, &a), BERTH_OK);
    return a;
}

static berth_allocator *make_system_exact(void)
{
    return make_system_with(BERTH_STATS_BASIC, true);
}

static berth_allocator *make_system_off(void)
{
    return make_system_with(BERTH_STATS_OFF, false);
}

static berth_allocator *make_system_full(void)
{
    return make_system_with(BERTH_STATS_FULL, false);
}

static berth_allocator *make_fixed(void)
{
    static _Alignas(64) char region[600 * 1024];
    berth_allocator *a = NULL;
    memset(region, 0x5c, sizeof region);
    assert_int_equal(berth_fixed_allocator_create(region, sizeof region, &a), BERTH_OK);
    return a;
}

static berth_allocator *make_best_for_host(void)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_registry_best_for(BERTH_ON_HOST, &a), BERTH_OK);
    return berth_allocator_retain(a);
}

static berth_allocator *make_pool(void)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_pool_create(NULL, &a), BERTH_OK);
    return a;
}

static berth_allocator *make_pool_compacting(void)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.compacting = true;
    berth_allocator *a = NULL;
    assert_int_equal(berth_pool_create(&options, &a), BERTH_OK);
    return a;
}

static berth_allocator *make_host_cache(void)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_host_cache_create(NULL, &a), BERTH_OK);
    return a;
}

/* The slow path of everything: limits, exact figures, a clock. */
static uint64_t some_time(void *context)
{
    static _Atomic uint64_t now;
    (void)context;
    return ++now;
}

static berth_allocator *make_host_cache_limited(void)
{
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.soft_limit_bytes = 1 << 20;
    options.hard_limit_bytes = 1 << 30;
    options.exact_peak = true;
    options.clock_ns = some_time;
    berth_allocator *a = NULL;
    assert_int_equal(berth_host_cache_create(&options, &a), BERTH_OK);
    return a;
}

/* ---- A user's allocator that brings the three required operations and nothing else -----------------------
 */

static berth_status user_allocate(void *self, size_t size_bytes, size_t alignment,
                                  const berth_request *request, void **out)
{
    (void)self;
    if (size_bytes > (size_t)1 << 32 ||
        posix_memalign(out, alignment < sizeof(void *) ? sizeof(void *) : alignment, size_bytes) != 0)
        return BERTH_OUT_OF_HOST_MEMORY;
    if (request->flags & BERTH_ZEROED)
        memset(*out, 0, size_bytes);
    return BERTH_OK;
}

static berth_status user_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)size_bytes, (void)stream;
    free(p);
    return BERTH_OK;
}

static void user_destroy(void *self)
{
    (void)self;
}

static berth_allocator *make_user(void)
{
    const berth_allocator_ops ops = {.struct_size = sizeof ops,
                                     .allocate = user_allocate,
                                     .deallocate = user_deallocate,
                                     .destroy = user_destroy};
    berth_allocator *a = NULL;
    assert_int_equal(berth_allocator_create(&ops, NULL, &a), BERTH_OK);
    return a;
}

/* ---- Sources for particular needs ------------------------------------------------------------------------
 */

static berth_allocator *make_adapter(void)
{
    const berth_malloc_family family = {
        .struct_size = sizeof family, .name = "c heap", .malloc = malloc, .free = free};
    berth_allocator *a = NULL;
    assert_int_equal(berth_adapter_create(&family, &a), BERTH_OK);
    return a;
}

static berth_allocator *make_mapped(void)
{
    berth_mapped_options options = BERTH_MAPPED_OPTIONS_INIT;
    options.huge_pages = true;
    berth_allocator *a = NULL;
    assert_int_equal(berth_mapped_allocator_create(&options, &a), BERTH_OK);
    return a;
}

static berth_allocator *make_dry_run(void)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_dry_run_allocator_create(0, &a), BERTH_OK);
    return a;
}

/* ---- Pools and caches over other allocators ------------------------------------------------------- */

/* Takes the caller's reference over. */
static berth_allocator *make_pool_over(berth_allocator *upstream)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.upstream = upstream;
    berth_allocator *a = NULL;
    assert_int_equal(berth_pool_create(&options, &a), BERTH_OK);
    berth_allocator_release(upstream);
    return a;
}

static berth_allocator *make_cache_over(berth_allocator *upstream)
{
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.upstream = upstream;
    berth_allocator *a = NULL;
    assert_int_equal(berth_host_cache_create(&options, &a), BERTH_OK);
    berth_allocator_release(upstream);
    return a;
}

static berth_allocator *make_pool_over_fixed(void)
{
    return make_pool_over(make_fixed());
}

static berth_allocator *make_pool_over_mapped(void)
{
    return make_pool_over(make_mapped());
}

static berth_allocator *make_pool_over_user(void)
{
    return make_pool_over(make_user());
}

static berth_allocator *make_pool_over_pool(void)
{
    return make_pool_over(make_pool());
}

static berth_allocator *make_pool_over_dry_run(void)
{
    return make_pool_over(make_dry_run());
}

static berth_allocator *make_cache_over_mapped(void)
{
    return make_cache_over(make_mapped());
}

static berth_allocator *make_cache_over_user(void)
{
    return make_cache_over(make_user());
}

static berth_allocator *make_cache_over_pool(void)
{
    return make_cache_over(make_pool());
}

/* ---- The table: one line each -----------------------------------------------------------------------------
 */

const source sources[] = {
    {"system", make_system, NOTICES_BAD_FREES},
    {"system exact", make_system_exact, NOTICES_BAD_FREES},
    {"system off", make_system_off, NOTICES_BAD_FREES},
    {"system full", make_system_full, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"fixed", make_fixed, NOTICES_BAD_FREES | SMALL | SHOWS_ALL_LIVE},
    {"best for host", make_best_for_host, IS_SHARED},
    {"pool", make_pool, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"pool compacting", make_pool_compacting, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"host cache", make_host_cache, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"host cache limited", make_host_cache_limited, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"user's", make_user, 0},
    {"adapter", make_adapter, NOTICES_BAD_FREES},
    {"mapped", make_mapped, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"dry run", make_dry_run, NOTICES_BAD_FREES | SHOWS_ALL_LIVE | NO_MEMORY},
    {"pool over fixed", make_pool_over_fixed, NOTICES_BAD_FREES | SMALL | SHOWS_ALL_LIVE},
    {"pool over mapped", make_pool_over_mapped, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"pool over user's", make_pool_over_user, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"pool over pool", make_pool_over_pool, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"pool over dry run", make_pool_over_dry_run, NOTICES_BAD_FREES | SHOWS_ALL_LIVE | NO_MEMORY},
    {"host cache over mapped", make_cache_over_mapped, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"host cache over user's", make_cache_over_user, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
    {"host cache over pool", make_cache_over_pool, NOTICES_BAD_FREES | SHOWS_ALL_LIVE},
};
const size_t source_count = sizeof sources / sizeof sources[0];
