/* The cause that is named is the one that the test has made; what pins a hole, and who asked, are found. */
#include "berth/pool.h"
#include "berth/source.h"
#include "berth/virtual.h"
#include "unit/wrap/wrap_test.h"
#include "wrap/why.h"

enum { KIB = 1024, SEGMENT = 1024 * KIB };

static void *take_for(berth_allocator *a, size_t size_bytes, const char *label)
{
    berth_request request = BERTH_REQUEST_INIT;
    void *p = NULL;
    request.label = label;
    assert_int_equal(berth_allocate(a, size_bytes, 64, &request, &p), BERTH_OK);
    return p;
}

/* A pool of so many segments over addresses without memory. */
static berth_allocator *new_pool(unsigned segments)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *ground = NULL, *pool = NULL;
    assert_int_equal(berth_dry_run_allocator_create(0, &ground), BERTH_OK);
    options.upstream = ground;
    options.segment_bytes = SEGMENT;
    options.hard_limit_bytes = (uint64_t)segments * SEGMENT;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    berth_allocator_release(ground);
    return pool;
}

static berth_allocator *around(berth_allocator *inner)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_explain_create(inner, &a), BERTH_OK);
    berth_allocator_release(inner);
    return a;
}

static void a_pin_is_named(void **state)
{
    (void)state;
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    berth_allocator *pool = new_pool(1), *tracker = NULL;
    options.track_sizes = true;
    assert_int_equal(berth_tracking_create(pool, &options, &tracker), BERTH_OK);
    berth_allocator_release(pool);
    berth_allocator *a = around(tracker); /* which sees pieces through the tracker */
    void *left = take_for(a, 400 * KIB, "left"), *pin = take_for(a, 4 * KIB, "cache");
    void *right = take_for(a, 500 * KIB, "right"), *p = NULL;
    give(a, left);
    give(a, right);
    char text[2048];
    assert_int_equal(berth_explain(a, 700 * KIB, NULL, text, sizeof text, NULL), BERTH_OK);
    assert_non_null(strstr(text, "cause: fragmented, pinned by cache with 4 KiB (4096 bytes)\n"));
    assert_int_equal(berth_allocate(a, 700 * KIB, 64, NULL, &p), BERTH_OVER_BUDGET);
    assert_non_null(strstr(berth_last_error()->message, ": fragmented, pinned by cache with 4 KiB"));
    give(a, pin);
    p = take(a, 700 * KIB); /* it was the pin */
    give(a, p);
    berth_allocator_release(a);
}

/* ---- An allocator that shows what a test says ---- */

static const size_t shown_sizes[] = {200, 16, 200, 16, 200, 40, 300, /* the second piece: */ 500, 8, 500};

static berth_status shown_allocate(void *self, size_t size_bytes, size_t alignment,
                                   const berth_request *request, void **out)
{
    (void)self, (void)size_bytes, (void)alignment, (void)request, (void)out;
    return BERTH_OUT_OF_HOST_MEMORY;
}

static berth_status shown_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)p, (void)size_bytes, (void)stream;
    return BERTH_OK;
}

static void shown_destroy(void *self)
{
    (void)self;
}

/* Every other block is idle; `self` tells how many there are. The last come first: the order is nobody's promise. */
static berth_status shown_snapshot(void *self, berth_block_fn visit, void *context)
{
    size_t count = *(const size_t *)self, at = 1 << 20;
    for (size_t i = 0; i < count; i++)
        at += shown_sizes[i] * KIB;
    for (size_t i = count; i-- > 0;) {
        at -= shown_sizes[i] * KIB;
        berth_block block = BERTH_BLOCK_INIT;
        block.address = (const void *)at;
        block.size_bytes = shown_sizes[i] * KIB;
        block.segment = i < 7 ? 1 : 2;
        bool live = i < 7 ? i % 2 == 1 : i == 8;
        block.state = live ? BERTH_BLOCK_LIVE : BERTH_BLOCK_IDLE;
        block.label = i == 8 ? "second" : "first";
        if (!visit(context, &block))
            break;
    }
    return BERTH_OK;
}

/* Two blocks in the way of one hole, one of another: the fewest bytes are named, and never across pieces. */
static void the_cheapest_pins_are_named(void **state)
{
    (void)state;
    berth_allocator_ops ops = {.struct_size = sizeof ops,
                               .allocate = shown_allocate,
                               .deallocate = shown_deallocate,
                               .destroy = shown_destroy,
                               .snapshot = shown_snapshot};
    size_t count = 7;
    berth_allocator *a = NULL;
    assert_int_equal(berth_allocator_create(&ops, &count, &a), BERTH_OK);
    static const struct {
        size_t count, size, pins, bytes;
    } cases[] = {
        {7, 300, 0, 0},   /* it fits as it is */
        {7, 410, 1, 16},  /* a, b, c */
        {7, 500, 2, 32},  /* a to e; e, f, g would be 40 */
        {7, 640, 2, 56},  /* c to g */
        {7, 900, 3, 72},  /* all */
        {7, 1000, 0, 0},  /* never */
        {10, 640, 1, 8},  /* the second piece is cheaper */
        {10, 1100, 0, 0}, /* not both pieces together */
    };
    for (size_t i = 0; i < BERTH_COUNT_OF(cases); i++) {
        berth__picture picture;
        count = cases[i].count;
        berth__picture_take(a, cases[i].size * KIB, &picture);
        assert_int_equal(picture.pin_count, cases[i].pins);
        assert_int_equal(picture.pin_bytes, cases[i].bytes * KIB);
        if (cases[i].pins)
            assert_string_equal(picture.pin_label, cases[i].count == 10 ? "second" : "first");
        assert_int_equal(picture.idle_bytes, (count == 7 ? 900 : 1900) * KIB);
        assert_int_equal(picture.unused_bytes, 0);
    }
    berth_allocator_release(a);
}

static void streams_are_named(void **state)
{
    (void)state;
    berth_device device;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *pool = NULL;
    berth_stream *stream = NULL;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    options.device = device;
    options.hard_limit_bytes = SEGMENT;
    options.segment_bytes = SEGMENT;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    void *p = take_for(pool, 900 * KIB, "copied");
    assert_int_equal(berth_zero(device, p, 64, stream, false), BERTH_OK);
    assert_int_equal(berth_deallocate(pool, p, 0, stream), BERTH_OK); /* the work has not run */
    char text[2048];
    assert_int_equal(berth_explain(pool, 800 * KIB, NULL, text, sizeof text, NULL), BERTH_OK);
    assert_non_null(strstr(text, "cause: held by streams: 900 KiB"));
    assert_int_equal(berth_virtual_run_all(device), BERTH_OK);
    berth_stream_destroy(stream);
    berth_allocator_release(pool);
    assert_int_equal(berth_virtual_destroy(device), BERTH_OK);
}

__attribute__((noinline)) static void *forgetful(berth_allocator *a)
{
    void *p = take(a, 3000);
    __asm__ volatile("" ::: "memory"); /* no tail call: it stays on the stack */
    return p;
}

static void call_sites_are_named(void **state)
{
    (void)state;
#if defined(__GLIBC__)
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    berth_allocator *system = new_system(), *tracker = NULL;
    options.track_sizes = true;
    options.stack_depth = 8;
    assert_int_equal(berth_tracking_create(system, &options, &tracker), BERTH_OK);
    berth_allocator_release(system);
    berth_allocator *a = around(tracker);
    void *blocks[3] = {forgetful(a), forgetful(a), take(a, 100)};
    char text[4096];
    assert_int_equal(berth_explain(a, 1, NULL, text, sizeof text, NULL), BERTH_OK);
    assert_non_null(strstr(text, "largest call sites: "));
    for (int i = 0; i < 3; i++)
        give(a, blocks[i]);
    berth_allocator_release(a);
#else
    skip(); /* no call stacks there */
#endif
}

/* Each cause by the figures alone. */
static void causes_follow_from_figures(void **state)
{
    (void)state;
    berth__picture none = {0}, pieces = {.is_known = true, .idle_bytes = 100, .largest_bytes = 60};
    assert_int_equal(berth__find_cause(&none, 50, 60, 100), BERTH__TOO_MUCH_LIVE);
    assert_int_equal(berth__find_cause(&none, 50, 60, 0), BERTH__TOO_MUCH_LIVE);
    assert_int_equal(berth__find_cause(&none, 40, 60, 100), BERTH__CAUSE_NOT_KNOWN);
    assert_int_equal(berth__find_cause(&pieces, 80, 60, 0), BERTH__FRAGMENTED);
    assert_int_equal(berth__find_cause(&pieces, 60, 60, 0), BERTH__CAUSE_NOT_KNOWN);
    assert_int_equal(berth__find_cause(&pieces, 150, 60, 0), BERTH__TOO_MUCH_LIVE);
    assert_int_equal(berth__find_cause(&pieces, UINT64_MAX, 60, 100), BERTH__TOO_MUCH_LIVE);
    pieces.unused_bytes = 90;
    assert_int_equal(berth__find_cause(&pieces, 80, 60, 0), BERTH__HELD_BY_CACHE);
    pieces.waiting_bytes = 120;
    assert_int_equal(berth__find_cause(&pieces, 80, 60, 0), BERTH__HELD_BY_STREAMS);
    assert_int_equal(berth__find_cause(&pieces, 80, 60, 200), BERTH__HELD_BY_STREAMS);
    assert_string_equal(berth__cause_words(BERTH__HELD_BY_STREAMS), "held by streams");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pin_is_named),
        cmocka_unit_test(the_cheapest_pins_are_named),
        cmocka_unit_test(streams_are_named),
        cmocka_unit_test(call_sites_are_named),
        cmocka_unit_test(causes_follow_from_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
