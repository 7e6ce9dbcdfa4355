/* Upstreams: a pool and a host cache over every kind of allocator. What is taken is given back, to the byte; what an
 * upstream refuses is refused in its words; nothing else is taken for granted of it. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random.h"
#include "berth/berth.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* ---- A user's heap that watches itself ----------------------------------------------------------------------- */

enum { NOTED_MAX = 4096 };

/* Malloc underneath. Every block is noted, so that a free with another size, or of another pointer, fails the test. */
struct heap {
    pthread_mutex_t lock;
    struct {
        void *p;
        size_t bytes;
    } noted[NOTED_MAX];
    uint64_t allocations, frees, calls, refusals, retries_allowed;
    uint64_t bytes, most_bytes;
    uint64_t limit_bytes;  /* 0: none */
    uint64_t fails_at;     /* the allocation of this number fails; 0: none */
    uint64_t refuse_frees; /* so many frees are refused */
    size_t granularity;    /* 0: not told */
    size_t skew_bytes;     /* what it gives is misaligned by so much */
    bool destroyed;
    berth_device device; /* zero: the CPU */
};

static berth_status heap_refuse(struct heap *h, berth_status status, const char *words)
{
    h->refusals++;
    pthread_mutex_unlock(&h->lock);
    return berth_fail(status, "%s", words);
}

static berth_status heap_allocate(void *self, size_t size_bytes, size_t alignment,
                                  const berth_request *request, void **out)
{
    struct heap *h = self;
    pthread_mutex_lock(&h->lock);
    h->calls++;
    h->retries_allowed += !(request->flags & BERTH_NO_RETRY);
    assert_non_null(request->label);
    assert_null(request->stream);
    assert_int_equal(size_bytes % (h->granularity ? h->granularity : 1), 0);
    if (h->fails_at && h->calls == h->fails_at)
        return heap_refuse(h, BERTH_OUT_OF_HOST_MEMORY, "the heap fails now");
    if (h->limit_bytes && h->bytes + size_bytes > h->limit_bytes)
        return heap_refuse(h, BERTH_OVER_BUDGET, "the heap has no more than that");
    void *p = NULL;
    assert_int_equal(posix_memalign(&p, alignment < 64 ? 64 : alignment, size_bytes + h->skew_bytes), 0);
    size_t i = 0;
    while (i < NOTED_MAX && h->noted[i].p)
        i++;
    assert_true(i < NOTED_MAX);
    h->noted[i].p = p;
    h->noted[i].bytes = size_bytes;
    h->allocations++;
    h->bytes += size_bytes;
    h->most_bytes = h->bytes > h->most_bytes ? h->bytes : h->most_bytes;
    *out = (char *)p + h->skew_bytes;
    pthread_mutex_unlock(&h->lock);
    return BERTH_OK;
}

static berth_status heap_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    struct heap *h = self;
    pthread_mutex_lock(&h->lock);
    assert_null(stream);
    if (h->refuse_frees) {
        h->refuse_frees--;
        return heap_refuse(h, BERTH_DEVICE_ERROR, "the heap takes nothing back");
    }
    p = (char *)p - h->skew_bytes;
    size_t i = 0;
    while (i < NOTED_MAX && h->noted[i].p != p)
        i++;
    assert_true(i < NOTED_MAX); /* given before, and not given back twice */
    assert_int_equal(h->noted[i].bytes, size_bytes);
    h->noted[i].p = NULL;
    h->frees++;
    h->bytes -= size_bytes;
    free(p);
    pthread_mutex_unlock(&h->lock);
    return BERTH_OK;
}

static void heap_destroy(void *self)
{
    ((struct heap *)self)->destroyed = true;
}

static const char *heap_name(void *self)
{
    (void)self;
    return "own heap";
}

static size_t heap_granularity(void *self)
{
    return ((struct heap *)self)->granularity;
}

static berth_device heap_device(void *self)
{
    const struct heap *h = self;
    return h->device.kind == BERTH_DEVICE_UNKNOWN ? berth_device_cpu() : h->device;
}

static berth_allocator *heap_create(struct heap *h)
{
    const berth_allocator_ops ops = {.struct_size = sizeof ops,
                                     .allocate = heap_allocate,
                                     .deallocate = heap_deallocate,
                                     .destroy = heap_destroy,
                                     .name = heap_name,
                                     .device = heap_device,
                                     .granularity = heap_granularity};
    memset(h, 0, sizeof *h);
    pthread_mutex_init(&h->lock, NULL);
    berth_allocator *a = NULL;
    assert_int_equal(berth_allocator_create(&ops, h, &a), BERTH_OK);
    return a;
}

static void heap_is_whole(struct heap *h)
{
    assert_int_equal(h->allocations, h->frees);
    assert_int_equal(h->bytes, 0);
    assert_true(h->destroyed);
    pthread_mutex_destroy(&h->lock);
}

/* ---- Above it ------------------------------------------------------------------------------------------------ */

static berth_status pool_over(berth_allocator *upstream, berth_allocator **out)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.upstream = upstream;
    return berth_pool_create(&options, out);
}

static berth_status cache_over(berth_allocator *upstream, berth_allocator **out)
{
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.upstream = upstream;
    return berth_host_cache_create(&options, out);
}

static const struct kind {
    const char *name;
    berth_status (*over)(berth_allocator *upstream, berth_allocator **out);
} kinds[] = {{"pool", pool_over}, {"host cache", cache_over}};

enum { KINDS = sizeof kinds / sizeof *kinds };

/* Takes the caller's reference to the upstream over. */
static berth_allocator *stack(const struct kind *kind, berth_allocator *upstream)
{
    berth_allocator *a = NULL;
    assert_int_equal(kind->over(upstream, &a), BERTH_OK);
    berth_allocator_release(upstream);
    return a;
}

static void *take(berth_allocator *a, size_t size_bytes)
{
    void *p = NULL;
    assert_int_equal(berth_allocate(a, size_bytes, BERTH_ALIGNMENT, NULL, &p), BERTH_OK);
    return p;
}

static void give(berth_allocator *a, void *p)
{
    assert_int_equal(berth_deallocate(a, p, 0, NULL), BERTH_OK);
}

static uint64_t in_use(berth_allocator *a)
{
    berth_stats stats = BERTH_STATS_INIT;
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    return stats.bytes_in_use;
}

/* A byte here and there: enough to see that a block is nobody else's, and few pages to touch. */
static void mark_block(unsigned char *p, size_t bytes, unsigned char mark)
{
    p[0] = p[bytes / 2] = p[bytes - 1] = mark;
}

static void check_block(const unsigned char *p, size_t bytes, unsigned char mark)
{
    assert_int_equal(p[0], mark);
    assert_int_equal(p[bytes / 2], mark);
    assert_int_equal(p[bytes - 1], mark);
}

/* Random blocks, each marked and looked at again. */
static void churn(berth_allocator *a, uint64_t seed, size_t most_bytes, int rounds)
{
    enum { SLOTS = 24 };
    struct {
        void *p;
        size_t bytes;
    } slots[SLOTS] = {0};
    uint64_t random = seed;
    for (int i = 0; i < rounds; i++) {
        size_t k = berth__random(&random) % SLOTS;
        unsigned char mark = (unsigned char)(k + 1);
        if (slots[k].p) {
            check_block(slots[k].p, slots[k].bytes, mark);
            give(a, slots[k].p);
            slots[k].p = NULL;
            continue;
        }
        slots[k].bytes = 1 + berth__random(&random) % most_bytes;
        if (berth_allocate(a, slots[k].bytes, BERTH_ALIGNMENT, NULL, &slots[k].p) == BERTH_OK)
            mark_block(slots[k].p, slots[k].bytes, mark);
    }
    for (size_t k = 0; k < SLOTS; k++)
        if (slots[k].p)
            give(a, slots[k].p);
}

/* ---- Giving back --------------------------------------------------------------------------------------------- */

static void what_was_taken_is_given_back_to_the_byte(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        struct heap h;
        berth_allocator *a = stack(&kinds[k], heap_create(&h));
        churn(a, 7, 3 * MIB, 600);
        assert_true(h.allocations > 0);
        assert_int_equal(in_use(a), 0);
        size_t released = 0;
        uint64_t held = h.bytes;
        assert_int_equal(berth_trim(a, 0, &released), BERTH_OK);
        assert_int_equal(released, held);
        assert_int_equal(h.bytes, 0);
        churn(a, 8, 64 * KIB, 500);
        berth_allocator_release(a);
        heap_is_whole(&h);
    }
}

static void figures_tell_what_the_upstream_gave(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        struct heap h;
        berth_allocator *a = stack(&kinds[k], heap_create(&h));
        void *p = take(a, 5 * MIB), *q = take(a, 100);
        berth_stats stats = BERTH_STATS_INIT;
        assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
        assert_int_equal(stats.bytes_reserved, h.bytes);
        give(a, p);
        give(a, q);
        berth_allocator_release(a);
        heap_is_whole(&h);
    }
}

static void the_upstream_lives_as_long_as_blocks_do(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        struct heap h;
        berth_allocator *a = stack(&kinds[k], heap_create(&h));
        void *p = take(a, MIB);
        berth_allocator_release(a);
        assert_false(h.destroyed);
        memset(p, 1, MIB);
        give(a, p);
        heap_is_whole(&h);
    }
}

static void *churn_in_thread(void *context)
{
    berth_allocator *a = context;
    static _Atomic uint64_t seed;
    churn(a, ++seed, 256 * KIB, 400);
    return NULL;
}

static void churn_in_threads(berth_allocator *a)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn_in_thread, a), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

static void threads_leave_nothing_behind(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        struct heap h;
        berth_allocator *a = stack(&kinds[k], heap_create(&h));
        churn_in_threads(a);
        berth_allocator_release(a);
        heap_is_whole(&h);
    }
}

/* ---- Refusals ------------------------------------------------------------------------------------------------ */

/* The nth call fails, for every n: the request is served with less, or refused in the heap's words; and whatever was
 * taken before goes back. */
static void an_upstream_may_fail_on_any_call(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (uint64_t n = 1; n <= 12; n++) {
            struct heap h;
            berth_allocator *a = stack(&kinds[k], heap_create(&h));
            h.fails_at = n;
            void *blocks[8] = {0};
            for (int i = 0; i < 8; i++)
                if (berth_allocate(a, (size_t)(i + 1) * 4 * MIB, BERTH_ALIGNMENT, NULL, &blocks[i]) !=
                    BERTH_OK)
                    assert_non_null(strstr(berth_last_error()->message, "the heap fails now"));
            for (int i = 0; i < 8; i++)
                give(a, blocks[i]);
            assert_int_equal(in_use(a), 0);
            berth_allocator_release(a);
            heap_is_whole(&h);
        }
}

static void an_upstream_with_nothing_is_heard(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        struct heap h;
        berth_allocator *a = stack(&kinds[k], heap_create(&h));
        h.limit_bytes = 1;
        void *p = NULL;
        assert_int_equal(berth_allocate(a, 100, BERTH_ALIGNMENT, NULL, &p), BERTH_OVER_BUDGET);
        assert_null(p);
        assert_non_null(strstr(berth_last_error()->message, "the heap has no more than that"));
        berth_allocator_release(a);
        heap_is_whole(&h);
    }
}

/* Segments shrink to what is left: blocks are refused only when their own size does not fit. */
static void a_limit_below_is_used_up(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        struct heap h;
        berth_allocator *a = stack(&kinds[k], heap_create(&h));
        h.limit_bytes = 10 * MIB;
        void *blocks[10] = {0};
        for (int i = 0; i < 10; i++)
            blocks[i] = take(a, MIB);
        void *more = NULL;
        assert_int_equal(berth_allocate(a, MIB, BERTH_ALIGNMENT, NULL, &more), BERTH_OVER_BUDGET);
        assert_true(h.most_bytes <= 10 * MIB);
        give(a, blocks[3]);
        blocks[3] = take(a, MIB); /* from what came back */
        /* What is idle goes back before a larger block is refused. */
        for (int i = 0; i < 10; i++)
            give(a, blocks[i]);
        void *large = take(a, 10 * MIB);
        assert_true(h.most_bytes <= 10 * MIB);
        give(a, large);
        berth_allocator_release(a);
        heap_is_whole(&h);
    }
}

/* Only the smallest segment that would do may make an upstream wait or call back. */
static void only_the_last_attempt_lets_the_upstream_retry(void **state)
{
    (void)state;
    struct heap h;
    berth_allocator *a = stack(&kinds[0], heap_create(&h));
    h.limit_bytes = 2 * MIB;
    give(a, take(a, MIB));
    assert_true(h.calls > 1);
    assert_int_equal(h.retries_allowed, h.refusals && h.bytes > MIB ? 0 : 1);
    void *p = NULL;
    h.retries_allowed = 0;
    assert_int_equal(berth_allocate(a, 4 * MIB, BERTH_ALIGNMENT, NULL, &p), BERTH_OVER_BUDGET);
    assert_true(h.retries_allowed > 0);
    berth_allocator_release(a);
    heap_is_whole(&h);
}

/* The pool keeps what the upstream did not take, and tries again. */
static void an_upstream_that_takes_nothing_back_is_asked_again(void **state)
{
    (void)state;
    struct heap h;
    berth_log_set(NULL, NULL, BERTH_LOG_NONE);
    berth_allocator *a = stack(&kinds[0], heap_create(&h));
    give(a, take(a, 30 * MIB));
    h.refuse_frees = 1;
    size_t released = 1;
    assert_int_equal(berth_trim(a, 0, &released), BERTH_OK);
    assert_int_equal(released, 0);
    assert_int_equal(h.bytes, 30 * MIB);
    assert_int_equal(berth_trim(a, 0, &released), BERTH_OK);
    assert_int_equal(released, 30 * MIB);
    berth_allocator_release(a);
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    heap_is_whole(&h);
}

static void a_misaligned_block_is_not_used(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        struct heap h;
        berth_allocator *a = stack(&kinds[k], heap_create(&h));
        h.skew_bytes = 8;
        void *p = NULL;
        assert_int_equal(berth_allocate(a, 100, BERTH_ALIGNMENT, NULL, &p), BERTH_INTERNAL);
        assert_non_null(strstr(berth_last_error()->message, "own heap"));
        berth_allocator_release(a);
        heap_is_whole(&h);
    }
}

static void what_does_not_fit_is_refused_at_creation(void **state)
{
    (void)state;
    struct heap h;
    berth_allocator *heap = heap_create(&h), *a = (berth_allocator *)&h;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    options.upstream = heap;
    options.device = (berth_device){BERTH_DEVICE_VIRTUAL, 0};
    assert_int_equal(berth_pool_create(&options, &a), BERTH_INVALID_ARGUMENT);
    assert_null(a);
    assert_non_null(strstr(berth_last_error()->message, "another device"));
    berth_host_cache_options cache = BERTH_HOST_CACHE_OPTIONS_INIT;
    cache.upstream = heap;
    cache.device = options.device;
    assert_int_equal(berth_host_cache_create(&cache, &a), BERTH_INVALID_ARGUMENT);
    /* Both named and the same is no contradiction. */
    options.device = berth_device_cpu();
    assert_int_equal(berth_pool_create(&options, &a), BERTH_OK);
    berth_allocator_release(a);
    berth_allocator_release(heap);
    heap_is_whole(&h);
}

/* An options struct from before there was an upstream: the rest of it is not read. */
static void older_options_have_no_upstream(void **state)
{
    (void)state;
    struct {
        berth_pool_options options;
    } old = {BERTH_POOL_OPTIONS_INIT};
    berth_allocator *a = NULL;
    old.options.struct_size = offsetof(berth_pool_options, upstream);
    old.options.upstream = (berth_allocator *)(uintptr_t)16;
    assert_int_equal(berth_pool_create(&old.options, &a), BERTH_OK);
    give(a, take(a, 100));
    berth_allocator_release(a);
    old.options.struct_size--;
    assert_int_equal(berth_pool_create(&old.options, &a), BERTH_INVALID_ARGUMENT);
    berth_host_cache_options cache = BERTH_HOST_CACHE_OPTIONS_INIT;
    cache.struct_size = offsetof(berth_host_cache_options, upstream);
    cache.upstream = (berth_allocator *)(uintptr_t)16;
    assert_int_equal(berth_host_cache_create(&cache, &a), BERTH_OK);
    give(a, take(a, 100));
    berth_allocator_release(a);
}

/* ---- Granularity --------------------------------------------------------------------------------------------- */

static void segments_are_whole_units_of_the_upstream(void **state)
{
    (void)state;
    struct heap h;
    berth_allocator *heap = heap_create(&h);
    h.granularity = 2 * MIB; /* the heap's own assertion sees every size */
    berth_allocator *a = stack(&kinds[0], heap);
    churn(a, 11, 5 * MIB, 300);
    h.limit_bytes = h.bytes + 3 * MIB;
    churn(a, 12, 9 * MIB, 200);
    berth_allocator_release(a);
    heap_is_whole(&h);
}

static void units_are_told_and_forwarded(void **state)
{
    (void)state;
    struct heap h;
    berth_allocator *heap = heap_create(&h), *wrapped = NULL, *mapped = NULL;
    assert_int_equal(berth_allocator_granularity(NULL), 1);
    assert_int_equal(berth_allocator_granularity(heap), 1);
    h.granularity = 48; /* no unit */
    assert_int_equal(berth_allocator_granularity(heap), 1);
    h.granularity = 4096;
    const berth_allocator_ops nothing = {.struct_size = sizeof nothing};
    assert_int_equal(berth_wrapper_create(heap, &nothing, NULL, &wrapped), BERTH_OK);
    assert_int_equal(berth_allocator_granularity(wrapped), 4096);
    berth_allocator_release(wrapped);
    const berth_allocator_ops own = {.struct_size = sizeof own, .granularity = heap_granularity};
    struct heap other = {.granularity = 64 * KIB};
    assert_int_equal(berth_wrapper_create(heap, &own, &other, &wrapped), BERTH_OK);
    assert_int_equal(berth_allocator_granularity(wrapped), 64 * KIB);
    berth_allocator_release(wrapped);
    berth_mapped_options options = BERTH_MAPPED_OPTIONS_INIT;
    options.huge_pages = true;
    assert_int_equal(berth_mapped_allocator_create(&options, &mapped), BERTH_OK);
    assert_int_equal(berth_allocator_granularity(mapped), 2 * MIB);
    berth_allocator_release(mapped);
    berth_allocator_release(heap);
    heap_is_whole(&h);
}

/* ---- Streams ------------------------------------------------------------------------------------------------- */

/* Nothing goes back to the upstream while a stream may use it. */
static void streams_hold_what_they_use(void **state)
{
    (void)state;
    berth_device device;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    for (int k = 0; k < KINDS; k++) {
        struct heap h;
        berth_allocator *heap = heap_create(&h);
        h.device = device;
        berth_allocator *a = stack(&kinds[k], heap);
        berth_stream *stream = NULL;
        assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
        void *p = take(a, 30 * MIB);
        assert_int_equal(berth_zero(device, p, 64, stream, false), BERTH_OK);
        assert_int_equal(berth_deallocate(a, p, 0, stream), BERTH_OK);
        size_t released = 1;
        assert_int_equal(berth_trim(a, 0, &released), BERTH_OK);
        assert_int_equal(released, 0);
        assert_true(h.bytes >= 30 * MIB);
        assert_int_equal(berth_virtual_run(stream), BERTH_OK);
        assert_int_equal(berth_trim(a, 0, &released), BERTH_OK);
        assert_int_equal(h.bytes, 0);
        berth_allocator_release(a);
        berth_stream_destroy(stream);
        heap_is_whole(&h);
    }
    berth_virtual_destroy(device);
}

/* ---- Other grounds ------------------------------------------------------------------------------------------- */

static void over_a_fixed_region(void **state)
{
    (void)state;
    static _Alignas(4096) char region[4 * MIB];
    for (int k = 0; k < KINDS; k++) {
        berth_allocator *fixed = NULL;
        assert_int_equal(berth_fixed_allocator_create(region, sizeof region, &fixed), BERTH_OK);
        berth_allocator *a = NULL;
        assert_int_equal(kinds[k].over(fixed, &a), BERTH_OK);
        churn(a, 21, 300 * KIB, 500);
        char *p = take(a, 100);
        assert_true(p >= region && p < region + sizeof region);
        give(a, p);
        void *large = NULL;
        assert_int_not_equal(berth_allocate(a, 5 * MIB, BERTH_ALIGNMENT, NULL, &large), BERTH_OK);
        assert_int_equal(berth_trim(a, 0, NULL), BERTH_OK);
        assert_int_equal(in_use(fixed), 0);
        berth_allocator_release(a);
        berth_allocator_release(fixed);
    }
}

static void over_mapped_pages(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        berth_mapped_options options = BERTH_MAPPED_OPTIONS_INIT;
        options.huge_pages = true;
        berth_allocator *mapped = NULL, *a = NULL;
        assert_int_equal(berth_mapped_allocator_create(&options, &mapped), BERTH_OK);
        assert_int_equal(kinds[k].over(mapped, &a), BERTH_OK);
        churn(a, 22, MIB, 300);
        berth_stats above = BERTH_STATS_INIT;
        assert_int_equal(berth_stats_get(a, &above), BERTH_OK);
        assert_int_equal(above.bytes_reserved, in_use(mapped)); /* nothing is lost to rounding */
        assert_int_equal(berth_trim(a, 0, NULL), BERTH_OK);
        assert_int_equal(in_use(mapped), 0);
        berth_allocator_release(a);
        berth_allocator_release(mapped);
    }
}

static void over_each_other(void **state)
{
    (void)state;
    for (int above = 0; above < KINDS; above++)
        for (int below = 0; below < KINDS; below++) {
            struct heap h;
            berth_allocator *lower = stack(&kinds[below], heap_create(&h)), *a = NULL;
            assert_int_equal(kinds[above].over(lower, &a), BERTH_OK);
            churn(a, 23, MIB, 300);
            churn_in_threads(a);
            assert_true(in_use(lower) > 0);
            assert_int_equal(berth_trim(a, 0, NULL), BERTH_OK);
            assert_int_equal(in_use(lower), 0);
            berth_allocator_release(a);
            berth_allocator_release(lower);
            heap_is_whole(&h);
        }
}

static void over_a_limit_with_its_words(void **state)
{
    (void)state;
    for (int k = 0; k < KINDS; k++) {
        struct heap h;
        berth_allocator *heap = heap_create(&h), *limit = NULL;
        berth_budget *budget = NULL;
        assert_int_equal(berth_budget_create(8 * MIB, &budget), BERTH_OK);
        assert_int_equal(berth_limit_create(heap, budget, &limit), BERTH_OK);
        berth_allocator_release(heap);
        berth_allocator *a = stack(&kinds[k], limit);
        churn(a, 24, 2 * MIB, 500);
        void *p = NULL;
        assert_int_equal(berth_allocate(a, 9 * MIB, BERTH_ALIGNMENT, NULL, &p), BERTH_OVER_BUDGET);
        /* The limit keeps the sizes of a heap that does not, in front of its blocks. */
        assert_true(h.most_bytes <= 8 * MIB + h.allocations * 4 * KIB);
        berth_allocator_release(a);
        berth_budget_release(budget);
        heap_is_whole(&h);
    }
}

/* A pool over addresses without memory: what a program would reserve is learned without the bytes. */
static void a_pool_over_a_dry_run(void **state)
{
    (void)state;
    berth_allocator *dry = NULL, *a = NULL;
    assert_int_equal(berth_dry_run_allocator_create((uint64_t)1 << 40, &dry), BERTH_OK);
    assert_int_equal(pool_over(dry, &a), BERTH_OK);
    berth_request zeroed = BERTH_REQUEST_INIT;
    zeroed.flags = BERTH_ZEROED;
    void *p = NULL, *q = NULL;
    assert_int_equal(berth_allocate(a, (size_t)3 << 30, BERTH_ALIGNMENT, &zeroed, &p), BERTH_OK);
    assert_int_equal(berth_allocate(a, (size_t)3 << 30, BERTH_ALIGNMENT, NULL, &q), BERTH_OK);
    give(a, p);
    p = take(a, (size_t)2 << 30); /* in the hole */
    berth_stats stats = BERTH_STATS_INIT;
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    assert_int_equal(stats.max_bytes_reserved, (uint64_t)6 << 30);
    give(a, p);
    give(a, q);
    berth_allocator_release(a);
    /* Its host cannot touch them. */
    assert_int_not_equal(cache_over(dry, &a), BERTH_OK);
    berth_allocator_release(dry);
}

/* The registry finds an upstream by what it can do, and what stands on it is registered as able to do the same. */
static void found_by_attributes(void **state)
{
    (void)state;
    struct heap h;
    berth_allocator *heap = heap_create(&h), *found = NULL, *a = NULL;
    berth_registration r = BERTH_REGISTRATION_INIT;
    r.name = "for the network card";
    r.priority = 5;
    r.attributes = BERTH_ON_HOST | BERTH_NIC_COMPATIBLE;
    r.allocator = heap;
    assert_int_equal(berth_registry_add(&r), BERTH_OK);
    assert_int_equal(berth_registry_best_for(BERTH_NIC_COMPATIBLE, &found), BERTH_OK);
    assert_ptr_equal(found, heap);
    assert_int_equal(pool_over(found, &a), BERTH_OK);
    r.name = "pool for the network card";
    r.priority = 6;
    r.attributes |= BERTH_TRACK_SIZES;
    r.allocator = a;
    assert_int_equal(berth_registry_add(&r), BERTH_OK);
    assert_int_equal(berth_registry_best_for(BERTH_NIC_COMPATIBLE, &found), BERTH_OK);
    assert_ptr_equal(found, a);
    give(found, take(found, MIB));
    assert_true(h.allocations > 0);
    assert_int_equal(berth_registry_remove("pool for the network card", 6), BERTH_OK);
    assert_int_equal(berth_registry_remove("for the network card", 5), BERTH_OK);
    berth_allocator_release(a);
    berth_allocator_release(heap);
    heap_is_whole(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_taken_is_given_back_to_the_byte),
        cmocka_unit_test(figures_tell_what_the_upstream_gave),
        cmocka_unit_test(the_upstream_lives_as_long_as_blocks_do),
        cmocka_unit_test(threads_leave_nothing_behind),
        cmocka_unit_test(an_upstream_may_fail_on_any_call),
        cmocka_unit_test(an_upstream_with_nothing_is_heard),
        cmocka_unit_test(a_limit_below_is_used_up),
        cmocka_unit_test(only_the_last_attempt_lets_the_upstream_retry),
        cmocka_unit_test(an_upstream_that_takes_nothing_back_is_asked_again),
        cmocka_unit_test(a_misaligned_block_is_not_used),
        cmocka_unit_test(what_does_not_fit_is_refused_at_creation),
        cmocka_unit_test(older_options_have_no_upstream),
        cmocka_unit_test(segments_are_whole_units_of_the_upstream),
        cmocka_unit_test(units_are_told_and_forwarded),
        cmocka_unit_test(streams_hold_what_they_use),
        cmocka_unit_test(over_a_fixed_region),
        cmocka_unit_test(over_mapped_pages),
        cmocka_unit_test(over_each_other),
        cmocka_unit_test(over_a_limit_with_its_words),
        cmocka_unit_test(a_pool_over_a_dry_run),
        cmocka_unit_test(found_by_attributes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
