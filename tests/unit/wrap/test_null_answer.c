/* A user's table that says BERTH_OK and gives no block: BERTH_INTERNAL from everything that stands on it. */
#include "berth/buffer.h"
#include "wrap_test.h"

static berth_status allocate_nothing(void *self, size_t size_bytes, size_t alignment,
                                     const berth_request *request, void **out)
{
    (void)self, (void)size_bytes, (void)alignment, (void)request;
    *out = NULL;
    return BERTH_OK;
}

static berth_status fail_silently(void *self, size_t size_bytes, size_t alignment,
                                  const berth_request *request, void **out)
{
    (void)self, (void)size_bytes, (void)alignment, (void)request;
    *out = NULL;
    return BERTH_OUT_OF_DEVICE_MEMORY;
}

static berth_status refuse_silently(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)self, (void)p, (void)size_bytes, (void)stream;
    return BERTH_BAD_FREE;
}

static const char *mine(void *self)
{
    (void)self;
    return "mine";
}

/* A failure of the same status stood there before; its words are not this one's. */
static void expect_own_words(berth_allocator *a)
{
    int block = 0;
    void *p = NULL;
    (void)berth_fail(BERTH_OUT_OF_DEVICE_MEMORY, "an old one");
    assert_int_equal(berth_allocate(a, 100, 64, NULL, &p), BERTH_OUT_OF_DEVICE_MEMORY);
    assert_string_equal(berth_last_error()->message, "mine failed to give 100 bytes: out of device memory");
    (void)berth_fail(BERTH_BAD_FREE, "an old one");
    assert_int_equal(berth_deallocate(a, &block, 4, NULL), BERTH_BAD_FREE);
    assert_non_null(strstr(berth_last_error()->message, "mine failed to take a block back"));
    berth_allocator_release(a);
}

static void silence_has_no_old_words(void **state)
{
    (void)state;
    static const berth_allocator_ops ops = {.struct_size = sizeof(berth_allocator_ops),
                                            .allocate = fail_silently,
                                            .deallocate = refuse_silently,
                                            .destroy = plain_destroy,
                                            .name = mine};
    berth_allocator *a = NULL, *inner = new_system();
    assert_int_equal(berth_allocator_create(&ops, NULL, &a), BERTH_OK);
    expect_own_words(a);
    assert_int_equal(berth_wrapper_create(inner, &ops, NULL, &a), BERTH_OK);
    berth_allocator_release(inner);
    expect_own_words(a);
}

static berth_status fail_with_pointer(void *self, size_t size_bytes, size_t alignment,
                                      const berth_request *request, void **out)
{
    (void)size_bytes, (void)alignment, (void)request;
    *out = self;
    return BERTH_OUT_OF_DEVICE_MEMORY;
}

static berth_status reallocate_nothing(void *self, void *p, size_t old_bytes, size_t new_bytes,
                                       size_t alignment, const berth_request *request, void **out)
{
    (void)p, (void)old_bytes;
    return allocate_nothing(self, new_bytes, alignment, request, out);
}

static berth_allocator *new_empty_handed(void)
{
    static const berth_allocator_ops ops = {.struct_size = sizeof(berth_allocator_ops),
                                            .allocate = allocate_nothing,
                                            .deallocate = plain_deallocate,
                                            .destroy = plain_destroy,
                                            .reallocate = reallocate_nothing};
    berth_allocator *a = NULL;
    assert_int_equal(berth_allocator_create(&ops, NULL, &a), BERTH_OK);
    return a;
}

static berth_status add_wrapper(berth_allocator *inner, berth_allocator **out)
{
    static const berth_allocator_ops ops = {.struct_size = sizeof(berth_allocator_ops),
                                            .allocate = allocate_nothing};
    berth_allocator *full = new_system();
    (void)inner; /* it has its own way to give nothing */
    berth_status status = berth_wrapper_create(full, &ops, NULL, out);
    berth_allocator_release(full);
    return status;
}

static berth_status add_limit(berth_allocator *inner, berth_allocator **out)
{
    berth_budget *budget = NULL;
    berth_status status = berth_budget_create(1 << 20, &budget);
    if (status == BERTH_OK)
        status = berth_limit_create(inner, budget, out);
    berth_budget_release(budget);
    return status;
}

static berth_status add_retry(berth_allocator *inner, berth_allocator **out)
{
    return berth_retry_create(inner, NULL, out);
}

static berth_status add_callback(berth_allocator *inner, berth_allocator **out)
{
    return berth_failure_callback_create(inner, NULL, NULL, out);
}

static void no_line(void *context, const char *line, size_t length)
{
    (void)context, (void)line, (void)length;
}

static berth_status add_log(berth_allocator *inner, berth_allocator **out)
{
    berth_event_log_options options = BERTH_EVENT_LOG_OPTIONS_INIT;
    options.write = no_line;
    return berth_event_log_create(inner, &options, out);
}

static berth_status add_totals(berth_allocator *inner, berth_allocator **out)
{
    return berth_tracking_create(inner, NULL, out);
}

static berth_status add_tracker(berth_allocator *inner, berth_allocator **out)
{
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    options.track_sizes = true;
    return berth_tracking_create(inner, &options, out);
}

static berth_status add_guard(berth_allocator *inner, berth_allocator **out)
{
    return berth_guard_create(inner, NULL, out);
}

static void everything_above_says_so(void **state)
{
    (void)state;
    static berth_status (*const layers[])(berth_allocator * inner, berth_allocator * *out) = {
        add_wrapper,          add_limit, add_retry,
        add_callback,         add_log,   add_totals,
        add_tracker,          add_guard, berth_scope_meter_create,
        berth_explain_create,
    };
    for (size_t i = 0; i < BERTH_COUNT_OF(layers); i++) {
        berth_allocator *inner = new_empty_handed(), *a = NULL;
        void *p = &a;
        assert_int_equal(layers[i](inner, &a), BERTH_OK);
        assert_int_equal(berth_allocate(a, 100, 64, NULL, &p), BERTH_INTERNAL);
        assert_null(p);
        assert_non_null(strstr(berth_last_error()->message, "without a block"));
        berth_stats stats = {.struct_size = sizeof stats};
        if (berth_stats_get(a, &stats) == BERTH_OK)
            assert_int_equal(stats.bytes_in_use, 0);
        berth_allocator_release(a);
        berth_allocator_release(inner);
    }
}

static void helpers_and_buffers_say_so(void **state)
{
    (void)state;
    berth_allocator *a = new_empty_handed();
    berth_buffer *buffer = NULL;
    void *p = &a;
    berth_type type = {.struct_size = sizeof type, .size_bytes = 8};
    assert_int_equal(berth_allocate(a, 1, 1, NULL, &p), BERTH_INTERNAL);
    assert_int_equal(berth_allocate_array(a, &type, 10, NULL, &p), BERTH_INTERNAL);
    assert_null(p);
    assert_null(BERTH_NEW(a, int, 10));
    assert_int_equal(berth_buffer_create(a, 100, 64, false, &buffer), BERTH_INTERNAL);
    assert_int_equal(berth_buffer_create(a, 100, 64, true, &buffer), BERTH_OK);
    assert_null(berth_buffer_data(buffer));
    berth_buffer_release(buffer);
    int block = 0;
    p = &a;
    assert_int_equal(berth_reallocate(a, &block, 4, 8, 8, NULL, &p), BERTH_INTERNAL);
    assert_null(p);
    assert_int_equal(berth_allocate(a, 0, 64, NULL, &p), BERTH_OK); /* nothing for nothing is right */
    berth_allocator_release(a);
}

static void a_failure_leaves_no_pointer(void **state)
{
    (void)state;
    const berth_allocator_ops ops = {.struct_size = sizeof ops,
                                     .allocate = fail_with_pointer,
                                     .deallocate = plain_deallocate,
                                     .destroy = plain_destroy};
    berth_allocator *a = NULL;
    void *p = &a;
    assert_int_equal(berth_allocator_create(&ops, &a, &a), BERTH_OK);
    assert_int_equal(berth_allocate(a, 100, 64, NULL, &p), BERTH_OUT_OF_DEVICE_MEMORY);
    assert_null(p);
    berth_allocator_release(a);
}

static void a_scope_without_a_place_does_not_begin(void **state)
{
    (void)state;
    berth_log_set(NULL, NULL, BERTH_LOG_WARNING);
    berth_scope_begin(NULL, "nowhere");
    assert_null(berth_scope_label());
    berth_scope_end(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_above_says_so),
        cmocka_unit_test(helpers_and_buffers_say_so),
        cmocka_unit_test(a_failure_leaves_no_pointer),
        cmocka_unit_test(a_scope_without_a_place_does_not_begin),
        cmocka_unit_test(silence_has_no_old_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
