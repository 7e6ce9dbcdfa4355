/* What is promised of an allocator, one test a row: interface, typed helpers, attributes, requests, figures, the CPU
 * allocator, wrappers, trackers and the registry. Where a row holds for all of them it is asked of every allocator
 * that a program meets on the host. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "berth/config.h"
#include "berth/decorators.h"
#include "berth/log.h"
#include "berth/plan.h"
#include "berth/pool.h"
#include "berth/registry.h"
#include "berth/replay.h"
#include "berth/scope.h"
#include "berth/source.h"
#include "berth/tracking.h"

/* ---- The allocators of the host --------------------------------------------------------------------- */

static _Alignas(64) unsigned char region[1 << 20];

static berth_allocator *made(berth_status status, berth_allocator *a)
{
    assert_int_equal(status, BERTH_OK);
    return a;
}

static berth_allocator *make_best(void)
{
    return berth_allocator_retain(berth_cpu_allocator());
}

static berth_allocator *make_system(void)
{
    berth_allocator *a = NULL;
    berth_status status = berth_cpu_allocator_create(NULL, &a);
    return made(status, a);
}

static berth_allocator *make_full(void)
{
    berth_cpu_options options = BERTH_CPU_OPTIONS_INIT;
    options.stats = BERTH_STATS_FULL;
    berth_allocator *a = NULL;
    berth_status status = berth_cpu_allocator_create(&options, &a);
    return made(status, a);
}

static berth_allocator *make_fixed(void)
{
    berth_allocator *a = NULL;
    berth_status status = berth_fixed_allocator_create(region, sizeof region, &a);
    return made(status, a);
}

static berth_allocator *make_mapped(void)
{
    berth_allocator *a = NULL;
    berth_status status = berth_mapped_allocator_create(NULL, &a);
    return made(status, a);
}

static berth_allocator *make_adapter(void)
{
    berth_malloc_family family = {sizeof family, "libc", malloc, free, calloc, NULL};
    berth_allocator *a = NULL;
    berth_status status = berth_adapter_create(&family, &a);
    return made(status, a);
}

static berth_allocator *make_device(void)
{
    berth_allocator *a = NULL;
    berth_status status =
        berth_device_allocator_create((berth_device){BERTH_DEVICE_CPU, 0}, BERTH_MEMORY_DEVICE, &a);
    return made(status, a);
}

/* Around a new system allocator, which the wrapper keeps. */
static berth_allocator *around(const char *settings)
{
    berth_allocator *a = NULL;
    berth_status status = berth_stack_create(settings, NULL, &a);
    return made(status, a);
}

static berth_allocator *make_limited(void)
{
    return around("limit=64M");
}

static berth_allocator *make_guarded(void)
{
    return around("guard=yes");
}

static berth_allocator *make_planned(void)
{
    berth_allocator *inner = make_system(), *a = NULL;
    berth_plan *plan = NULL;
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    berth_status status = berth_planned_create(inner, plan, &a);
    berth_plan_release(plan);
    berth_allocator_release(inner);
    return made(status, a);
}

static berth_allocator *make_wrapper(void)
{
    berth_allocator *inner = make_best(), *a = NULL;
    berth_allocator_ops none = {.struct_size = sizeof none};
    berth_status status = berth_wrapper_create(inner, &none, NULL, &a);
    berth_allocator_release(inner);
    return made(status, a);
}

static const struct {
    const char *name;
    berth_allocator *(*make)(void);
} hosts[] = {
    {"the best", make_best}, {"system", make_system},   {"full", make_full},       {"fixed", make_fixed},
    {"mapped", make_mapped}, {"adapter", make_adapter}, {"device", make_device},   {"limit", make_limited},
    {"guard", make_guarded}, {"planned", make_planned}, {"wrapper", make_wrapper},
};

/* Runs `row` on each of them, so that a failure names the allocator. */
static void each(void (*row)(berth_allocator *a))
{
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        berth_allocator *a = hosts[i].make();
        print_message("    %s\n", hosts[i].name);
        row(a);
        berth_allocator_release(a);
    }
}

static void *taken(berth_allocator *a, size_t size_bytes, size_t alignment)
{
    void *p = NULL;
    assert_int_equal(berth_allocate(a, size_bytes, alignment, NULL, &p), BERTH_OK);
    assert_non_null(p);
    return p;
}

static void given(berth_allocator *a, void *p, size_t size_bytes)
{
    assert_int_equal(berth_deallocate(a, p, size_bytes, NULL), BERTH_OK);
}

static berth_stats figures(berth_allocator *a)
{
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    return stats;
}

/* ---- The interface ---------------------------------------------------------------------------------- */

static void blocks_are_aligned_and_the_callers(berth_allocator *a)
{
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2) {
        void *p = taken(a, 100, alignment);
        assert_int_equal((uintptr_t)p % alignment, 0);
        memset(p, 0x5a, 100);
        given(a, p, alignment % 3 == 1 ? 100 : 0); /* with its size, and without */
    }
    given(a, NULL, 0);
    given(a, NULL, 10);
}

static void empty_blocks(berth_allocator *a)
{
    void *p = &p, *q = &q;
    assert_int_equal(berth_allocate(a, 0, BERTH_ALIGNMENT, NULL, &p), BERTH_OK);
    assert_int_equal(berth_allocate(a, 0, BERTH_ALIGNMENT, NULL, &q), BERTH_OK);
    if (berth_allocator_allocates_empty(a)) {
        assert_non_null(p);
        assert_ptr_not_equal(p, q);
    } else {
        assert_null(p);
        assert_null(q);
    }
    given(a, p, 0);
    given(a, q, 0);
}

static void wrong_requests(berth_allocator *a)
{
    void *p = &p;
    assert_int_equal(berth_allocate(a, 8, 0, NULL, &p), BERTH_INVALID_ARGUMENT);
    assert_null(p);
    p = &p;
    assert_int_equal(berth_allocate(a, 8, 48, NULL, &p), BERTH_INVALID_ARGUMENT);
    assert_null(p);
    assert_int_equal(berth_allocate(a, 8, BERTH_ALIGNMENT_MAX * 2, NULL, &p), BERTH_INVALID_ARGUMENT);
    p = &p;
    assert_int_equal(berth_allocate(a, SIZE_MAX - 10, 64, NULL, &p), BERTH_OVERFLOW);
    assert_null(p);
    assert_int_equal(berth_allocate(a, 8, 8, NULL, NULL), BERTH_INVALID_ARGUMENT);
}

static void sizes_are_told_or_refused(berth_allocator *a)
{
    void *p = taken(a, 1000, 64);
    size_t asked = 7, got = 7, slow = 7;
    uint64_t id = 7;
    if (berth_allocator_tracks_sizes(a)) {
        assert_int_equal(berth_requested_size(a, p, &asked), BERTH_OK);
        assert_int_equal(asked, 1000);
        assert_int_equal(berth_allocated_size(a, p, &got), BERTH_OK);
        assert_true(got >= 1000);
        assert_int_equal(berth_allocated_size_slow(a, p, &slow), BERTH_OK);
        assert_int_equal(slow, got);
        assert_int_equal(berth_allocation_id(a, p, &id), BERTH_OK);
    } else {
        assert_int_equal(berth_requested_size(a, p, &asked), BERTH_UNSUPPORTED);
        assert_int_equal(berth_allocated_size(a, p, &got), BERTH_UNSUPPORTED);
        berth_status status = berth_allocated_size_slow(a, p, &slow);
        assert_true(status == BERTH_OK ? slow >= 1000 : status == BERTH_UNSUPPORTED);
        assert_int_equal(berth_allocation_id(a, p, &id), BERTH_OK);
        assert_int_equal(id, 0);
    }
    given(a, p, 1000);
}

static void a_block_grows_and_shrinks(berth_allocator *a)
{
    unsigned char *p = taken(a, 100, 64);
    for (int i = 0; i < 100; i++)
        p[i] = (unsigned char)i;
    void *q = NULL;
    assert_int_equal(berth_reallocate(a, p, 100, 5000, 64, NULL, &q), BERTH_OK);
    p = q;
    for (int i = 0; i < 100; i++)
        assert_int_equal(p[i], i);
    assert_int_equal(berth_reallocate(a, p, 5000, 50, 64, NULL, &q), BERTH_OK);
    p = q;
    for (int i = 0; i < 50; i++)
        assert_int_equal(p[i], i);
    assert_int_equal(berth_reallocate(a, p, 50, 0, 64, NULL, &q), BERTH_OK);
    assert_null(q);
    assert_int_equal(berth_reallocate(a, NULL, 0, 64, 64, NULL, &q), BERTH_OK);
    given(a, q, 64);
}

static void owning(berth_allocator *a)
{
    int elsewhere;
    char *p = taken(a, 1000, 64);
    berth_status mine = berth_allocator_owns(a, p);
    assert_true(mine == BERTH_OK || mine == BERTH_UNSUPPORTED);
    if (mine == BERTH_OK) {
        assert_int_equal(berth_allocator_owns(a, p + 999), BERTH_OK);
        assert_int_equal(berth_allocator_owns(a, &elsewhere), BERTH_NOT_FOUND);
    }
    given(a, p, 1000);
}

static void who_it_is(berth_allocator *a)
{
    assert_non_null(berth_allocator_name(a));
    assert_true(berth_allocator_name(a)[0] != 0);
    assert_int_equal(berth_allocator_device(a).kind, BERTH_DEVICE_CPU);
    size_t released = 7;
    assert_int_equal(berth_trim(a, 0, &released), BERTH_OK);
    assert_int_equal(berth_trim(a, 0, NULL), BERTH_OK);
}

static void zeroed_blocks(berth_allocator *a)
{
    berth_request request = BERTH_REQUEST_INIT;
    request.flags = BERTH_ZEROED;
    for (int round = 0; round < 3; round++) {
        for (size_t size = 1; size < 200000; size = size * 7 + 3) {
            unsigned char *p = NULL;
            assert_int_equal(berth_allocate(a, size, 64, &request, (void **)&p), BERTH_OK);
            for (size_t i = 0; i < size; i++)
                assert_int_equal(p[i], 0);
            memset(p, 0xff, size);
            given(a, p, size);
        }
    }
}

static bool count_labels(void *context, const berth_block *block)
{
    int *found = context;
    if (block->state == BERTH_BLOCK_LIVE && block->label && strcmp(block->label, "of the scope") == 0)
        found[0]++;
    if (block->state == BERTH_BLOCK_LIVE && block->label && strcmp(block->label, "of the request") == 0)
        found[1]++;
    return true;
}

static void labels(berth_allocator *a)
{
    berth_request request = BERTH_REQUEST_INIT;
    request.label = "of the request";
    void *p = NULL, *q = NULL;
    BERTH_SCOPE("of the scope")
    {
        p = taken(a, 100, 64);
        assert_int_equal(berth_allocate(a, 100, 64, &request, &q), BERTH_OK);
    }
    int found[2] = {0, 0};
    berth_status status = berth_snapshot(a, count_labels, found);
    assert_true(status == BERTH_OK || status == BERTH_UNSUPPORTED);
    assert_int_equal(found[0], found[1]); /* some keep no labels; none keeps one kind only */
    if (a == berth_cpu_allocator())
        assert_int_equal(found[0], 1);
    given(a, p, 100);
    given(a, q, 100);
}

/* ---- Figures ---------------------------------------------------------------------------------------- */

static void counts_bytes_and_peaks(berth_allocator *a)
{
    berth_stats probe = {.struct_size = sizeof probe};
    if (berth_stats_get(a, &probe) == BERTH_UNSUPPORTED)
        return;
    assert_int_equal(berth_stats_clear(a), BERTH_OK);
    berth_stats before = figures(a);
    assert_int_equal(before.num_allocs, 0);
    assert_int_equal(before.total_bytes, 0);
    assert_int_equal(before.num_failures, 0);
    assert_int_equal(before.max_bytes_in_use, before.bytes_in_use);
    void *p = taken(a, 3000, 64), *q = taken(a, 5000, 64);
    berth_stats both = figures(a);
    assert_int_equal(both.num_allocs, 2);
    assert_true(both.bytes_in_use >= before.bytes_in_use + 8000);
    assert_true(both.bytes_in_use <= before.bytes_in_use + 8000 + 3 * 4096);
    assert_int_equal(both.max_bytes_in_use, both.bytes_in_use);
    assert_true(both.max_alloc_size >= 5000);
    assert_true(both.total_bytes >= 8000);
    given(a, q, 5000);
    berth_stats one = figures(a);
    assert_int_equal(one.max_bytes_in_use, both.max_bytes_in_use);
    assert_true(one.bytes_in_use < both.bytes_in_use);
    assert_int_equal(berth_stats_clear(a), BERTH_OK);
    berth_stats cleared = figures(a);
    assert_int_equal(cleared.num_allocs, 0);
    assert_int_equal(cleared.bytes_in_use, one.bytes_in_use);
    assert_int_equal(cleared.max_bytes_in_use, one.bytes_in_use);
    given(a, p, 3000);
    berth_stats after = figures(a);
    assert_int_equal(after.bytes_in_use, before.bytes_in_use);
    assert_true(after.fragmentation >= 0 && after.fragmentation <= 1); /* also of nothing free: not 0/0 */
}

static void a_failure_is_no_allocation(berth_allocator *a)
{
    berth_stats probe = {.struct_size = sizeof probe};
    bool counts = berth_stats_get(a, &probe) == BERTH_OK;
    void *p = &p;
    berth_request request = BERTH_REQUEST_INIT;
    request.flags = BERTH_NO_RETRY;
    berth_status status = berth_allocate(a, (size_t)1 << 48, 64, &request, &p);
    assert_true(status == BERTH_OUT_OF_HOST_MEMORY || status == BERTH_OVER_BUDGET);
    assert_null(p);
    assert_true(berth_last_error()->message[0] != 0);
    if (!counts)
        return;
    berth_stats after = figures(a);
    assert_int_equal(after.num_allocs, probe.num_allocs);
    assert_int_equal(after.bytes_in_use, probe.bytes_in_use);
    assert_int_equal(after.max_bytes_in_use, probe.max_bytes_in_use);
    assert_int_equal(after.max_alloc_size, probe.max_alloc_size);
    assert_int_equal(after.total_bytes, probe.total_bytes);
    assert_int_equal(after.num_failures, probe.num_failures + 1);
}

#define EACH(row)                                  \
    static void test_##row(void **state)           \
    {                                              \
        (void)state;                               \
        berth_log_set(NULL, NULL, BERTH_LOG_NONE); \
        each(row);                                 \
    }
EACH(blocks_are_aligned_and_the_callers)
EACH(empty_blocks)
EACH(wrong_requests)
EACH(sizes_are_told_or_refused)
EACH(a_block_grows_and_shrinks)
EACH(owning)
EACH(who_it_is)
EACH(zeroed_blocks)
EACH(labels)
EACH(counts_bytes_and_peaks)
EACH(a_failure_is_no_allocation)

/* ---- Attributes ------------------------------------------------------------------------------------- */

static void test_attributes(void **state)
{
    (void)state;
    assert_int_equal(BERTH_ON_HOST, 1);
    assert_int_equal(BERTH_NIC_COMPATIBLE, 2);
    assert_int_equal(BERTH_GPU_COMPATIBLE, 4);
    assert_int_equal(BERTH_TRACK_SIZES, 8);
    assert_int_equal(BERTH_DEVICE_BITS, 0xff000000u);
    berth_attributes both = berth_attributes_merge(BERTH_ON_HOST, BERTH_GPU_COMPATIBLE);
    assert_int_equal(both, 5);
    assert_int_equal(berth_attributes_clear(both, BERTH_GPU_COMPATIBLE), BERTH_ON_HOST);
    assert_true(berth_attributes_within(BERTH_ON_HOST, both));
    assert_true(berth_attributes_within(both, both));
    assert_true(berth_attributes_within(0, 0));
    assert_false(berth_attributes_within(both, BERTH_ON_HOST));
}

/* ---- The CPU allocator ------------------------------------------------------------------------------ */

static void test_the_best_is_the_pool_however_linked(void **state)
{
    (void)state;
    berth_allocator *best = NULL;
    assert_ptr_equal(berth_cpu_allocator(), berth_cpu_allocator());
    assert_int_equal(berth_registry_best_for(BERTH_ON_HOST, &best), BERTH_OK);
    assert_ptr_equal(best, berth_cpu_allocator());
    assert_string_equal(berth_allocator_name(best), "pool");
    assert_int_equal(berth_registry_get("pool", 100, &best), BERTH_OK);
}

struct heard {
    int warnings;
    char line[512];
};

static void hear(void *context, berth_log_level level, const char *line)
{
    struct heard *heard = context;
    if (level != BERTH_LOG_WARNING)
        return;
    heard->warnings++;
    snprintf(heard->line, sizeof heard->line, "%s", line);
}

/* A tenth and a half of memory are made small, so that the test takes none. */
static void test_warnings_say_that_they_are_no_limit(void **state)
{
    (void)state;
    berth_cpu_options options = BERTH_CPU_OPTIONS_INIT;
    assert_true(options.large_warning_fraction > 0.0999 && options.large_warning_fraction < 0.1001);
    assert_true(options.total_warning_fraction > 0.4999 && options.total_warning_fraction < 0.5001);
    options.large_warning_fraction = 1e-9;
    options.total_warning_fraction = -1;
    berth_allocator *a = NULL;
    assert_int_equal(berth_cpu_allocator_create(&options, &a), BERTH_OK);
    struct heard heard = {0};
    berth_log_set(hear, &heard, BERTH_LOG_WARNING);
    for (int i = 0; i < 100; i++) {
        void *p = taken(a, 1 << 20, 64);
        given(a, p, 1 << 20);
    }
    assert_in_range(heard.warnings, 1, 10); /* rate limited */
    assert_non_null(strstr(heard.line, "warning"));
    assert_non_null(strstr(heard.line, "not a limit"));
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    berth_allocator_release(a);
}

static void switch_figures(berth_allocator *a)
{
    uint64_t before = figures(a).bytes_in_use;
    void *p = taken(a, 1000, 64);
    assert_int_equal(berth_cpu_allocator_set_stats(a, BERTH_STATS_OFF), BERTH_OK);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(a, &stats), BERTH_UNSUPPORTED);
    void *q = taken(a, 2000, 64);
    given(a, p, 1000);
    assert_int_equal(berth_cpu_allocator_set_stats(a, BERTH_STATS_BASIC), BERTH_OK);
    uint64_t live = figures(a).bytes_in_use - before;
    assert_true(live >= 2000 && live < 3000);
    given(a, q, 2000);
    assert_int_equal(figures(a).bytes_in_use, before);
}

static void test_figures_are_switched_in_mid_life(void **state)
{
    (void)state;
    berth_allocator *(*const makers[])(void) = {make_best, make_system, make_full};
    for (int i = 0; i < 3; i++) {
        berth_allocator *a = makers[i]();
        switch_figures(a);
        berth_allocator_release(a);
    }
}

/* ---- Typed helpers ---------------------------------------------------------------------------------- */

struct life {
    int begun, ended;
    int fails_at;
};

static berth_status element_init(void *element, void *context)
{
    struct life *life = context;
    if (life->begun == life->fails_at)
        return BERTH_OUT_OF_HOST_MEMORY;
    *(int *)element = ++life->begun;
    return BERTH_OK;
}

static void element_fini(void *element, void *context)
{
    struct life *life = context;
    assert_int_equal(*(int *)element, life->begun - life->ended);
    life->ended++;
}

static void test_elements_live_and_die(void **state)
{
    (void)state;
    struct life life = {.fails_at = -1};
    berth_type type = {sizeof type, "counted", sizeof(int), 0, element_init, element_fini, &life};
    void *p = NULL;
    berth_allocator *a = berth_cpu_allocator();
    assert_int_equal(berth_allocate_array(a, &type, 5, NULL, &p), BERTH_OK);
    assert_int_equal(life.begun, 5);
    assert_int_equal(berth_deallocate_array(a, &type, p, 5, NULL), BERTH_OK);
    assert_int_equal(life.ended, 5);
    life = (struct life){.fails_at = 3};
    uint64_t before = figures(a).bytes_in_use;
    assert_int_equal(berth_allocate_array(a, &type, 5, NULL, &p), BERTH_OUT_OF_HOST_MEMORY);
    assert_null(p);
    assert_int_equal(life.ended, 3);
    assert_int_equal(figures(a).bytes_in_use, before);
    p = &p;
    assert_int_equal(berth_allocate_array(a, &type, SIZE_MAX / 2, NULL, &p), BERTH_OVERFLOW);
    assert_null(p);
    assert_null(BERTH_NEW(a, double, SIZE_MAX / 4));
    double *plain = BERTH_NEW(a, double, 10);
    assert_non_null(plain);
    given(a, plain, 10 * sizeof *plain);
}

/* ---- Wrappers --------------------------------------------------------------------------------------- */

/* What a wrapper leaves out goes to the inner allocator: figures, clearing, trim and the size of a free too. */
static struct {
    size_t freed_bytes;
    int stats, clears, trims;
} seen;

static berth_status inner_allocate(void *self, size_t size_bytes, size_t alignment,
                                   const berth_request *request, void **out)
{
    (void)self, (void)alignment, (void)request;
    *out = malloc(size_bytes);
    return *out ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
}

static berth_status inner_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)stream;
    seen.freed_bytes = size_bytes;
    free(p);
    return BERTH_OK;
}

static void inner_destroy(void *self)
{
    (void)self;
}

static berth_status inner_stats(void *self, berth_stats *out)
{
    (void)self;
    out->num_allocs = 42;
    seen.stats++;
    return BERTH_OK;
}

static berth_status inner_clear(void *self)
{
    (void)self;
    seen.clears++;
    return BERTH_OK;
}

static berth_status inner_trim(void *self, size_t keep_bytes, size_t *released)
{
    (void)self;
    *released = keep_bytes + 1;
    seen.trims++;
    return BERTH_OK;
}

static void test_a_wrapper_forwards_everything(void **state)
{
    (void)state;
    berth_allocator_ops ops = {.struct_size = sizeof ops,
                               .allocate = inner_allocate,
                               .deallocate = inner_deallocate,
                               .destroy = inner_destroy,
                               .stats = inner_stats,
                               .clear_stats = inner_clear,
                               .trim = inner_trim};
    berth_allocator *inner = NULL, *outer = NULL;
    assert_int_equal(berth_allocator_create(&ops, NULL, &inner), BERTH_OK);
    berth_allocator_ops none = {.struct_size = sizeof none};
    assert_int_equal(berth_wrapper_create(inner, &none, NULL, &outer), BERTH_OK);
    berth_allocator_release(inner);
    void *p = taken(outer, 100, 8);
    given(outer, p, 100);
    assert_int_equal(seen.freed_bytes, 100);
    assert_int_equal(figures(outer).num_allocs, 42);
    assert_int_equal(berth_stats_clear(outer), BERTH_OK);
    size_t released = 0;
    assert_int_equal(berth_trim(outer, 6, &released), BERTH_OK);
    assert_int_equal(released, 7);
    assert_int_equal(seen.stats + seen.clears + seen.trims, 3);
    berth_allocator_release(outer);
}

/* ---- Registry --------------------------------------------------------------------------------------- */

static void test_the_registry(void **state)
{
    (void)state;
    berth_allocator *first = make_system(), *second = make_system(), *found = NULL;
    berth_registration one = {.struct_size = sizeof one,
                              .name = "promises",
                              .priority = 5000,
                              .attributes = BERTH_GPU_COMPATIBLE,
                              .allocator = first,
                              .file = "here.c",
                              .line = 11};
    assert_int_equal(berth_registry_best_for(BERTH_GPU_COMPATIBLE, &found), BERTH_UNSUPPORTED);
    assert_int_equal(berth_registry_add(&one), BERTH_OK);
    berth_registration two = one;
    two.allocator = second, two.file = "there.c", two.line = 22;
    assert_int_equal(berth_registry_add(&two), BERTH_ALREADY_EXISTS);
    assert_non_null(strstr(berth_last_error()->message, "here.c:11"));
    assert_non_null(strstr(berth_last_error()->message, "there.c:22"));
    two.name = "promises too"; /* a tie, which the first registered has */
    assert_int_equal(berth_registry_add(&two), BERTH_OK);
    assert_int_equal(berth_registry_best(&found), BERTH_OK);
    assert_ptr_equal(found, first);
    assert_int_equal(berth_registry_get("promises too", 5000, &found), BERTH_OK);
    assert_ptr_equal(found, second);
    assert_int_equal(berth_registry_best_for(BERTH_GPU_COMPATIBLE, &found), BERTH_OK);
    assert_ptr_equal(found, first);
    assert_int_equal(berth_registry_best_for(BERTH_NIC_COMPATIBLE, &found), BERTH_UNSUPPORTED);
    assert_non_null(strstr(berth_last_error()->message, "libberth_ucx")); /* who would */
    assert_null(found);
    two.name = "";
    assert_int_equal(berth_registry_add(&two), BERTH_INVALID_ARGUMENT);
    two.name = "x", two.priority = -1;
    assert_int_equal(berth_registry_add(&two), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_registry_remove("promises", 5000), BERTH_OK);
    assert_int_equal(berth_registry_best(&found), BERTH_OK);
    assert_ptr_equal(found, second);
    assert_int_equal(berth_registry_remove("promises too", 5000), BERTH_OK);
    assert_int_equal(berth_registry_remove("promises too", 5000), BERTH_NOT_FOUND);
    assert_int_equal(berth_registry_best(&found), BERTH_OK);
    assert_ptr_equal(found, berth_cpu_allocator());
    berth_allocator_release(first);
    berth_allocator_release(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_aligned_and_the_callers),
        cmocka_unit_test(test_empty_blocks),
        cmocka_unit_test(test_wrong_requests),
        cmocka_unit_test(test_sizes_are_told_or_refused),
        cmocka_unit_test(test_a_block_grows_and_shrinks),
        cmocka_unit_test(test_owning),
        cmocka_unit_test(test_who_it_is),
        cmocka_unit_test(test_zeroed_blocks),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_counts_bytes_and_peaks),
        cmocka_unit_test(test_a_failure_is_no_allocation),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_the_best_is_the_pool_however_linked),
        cmocka_unit_test(test_warnings_say_that_they_are_no_limit),
        cmocka_unit_test(test_figures_are_switched_in_mid_life),
        cmocka_unit_test(test_elements_live_and_die),
        cmocka_unit_test(test_a_wrapper_forwards_everything),
        cmocka_unit_test(test_the_registry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
