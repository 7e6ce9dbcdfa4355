/* Wrappers forward everything and change one thing; a reallocate never passes an own allocate by. */
#include "unit/core/recorder.h"

#include "base/base.h"

/* An inner allocator that answers every operation, so that each forwarded call can be told. */
struct full {
    struct recorder recorder;
    const char *called;
    int32_t ordinal;
};

#define NOTE(f, what) (((struct full *)(f))->called = (what))

static berth_status full_reallocate(void *self, void *p, size_t old_bytes, size_t new_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    (void)old_bytes, (void)alignment, (void)request;
    NOTE(self, "reallocate");
    *out = realloc(p, new_bytes);
    return BERTH_OK;
}
static berth_status full_record_use(void *self, const void *p, berth_stream *stream)
{
    (void)p, (void)stream;
    NOTE(self, "record_use");
    return BERTH_NOT_FOUND;
}
static const char *full_name(void *self)
{
    (void)self;
    return "full";
}
static berth_device full_device(void *self)
{
    return (berth_device){BERTH_DEVICE_CPU, ((struct full *)self)->ordinal};
}
static berth_memory_kind full_memory_kind(void *self)
{
    (void)self;
    return BERTH_MEMORY_PINNED;
}
static berth_status full_owns(void *self, const void *p)
{
    (void)p;
    NOTE(self, "owns");
    return BERTH_OK;
}
static bool full_yes(void *self)
{
    (void)self;
    return true;
}
static berth_status full_requested(void *self, const void *p, size_t *out)
{
    (void)self, (void)p;
    *out = 11;
    return BERTH_OK;
}
static berth_status full_allocated(void *self, const void *p, size_t *out)
{
    (void)self, (void)p;
    *out = 12;
    return BERTH_OK;
}
static berth_status full_allocated_slow(void *self, const void *p, size_t *out)
{
    (void)self, (void)p;
    *out = 13;
    return BERTH_OK;
}
static berth_status full_id(void *self, const void *p, uint64_t *out)
{
    (void)self, (void)p;
    *out = 14;
    return BERTH_OK;
}
static berth_status full_stats(void *self, berth_stats *out)
{
    (void)self;
    out->num_allocs = 15;
    return BERTH_OK;
}
static berth_status full_clear(void *self)
{
    NOTE(self, "clear");
    return BERTH_OK;
}
static berth_status full_trim(void *self, size_t keep_bytes, size_t *released)
{
    (void)self;
    *released = keep_bytes + 1;
    return BERTH_OK;
}
static berth_status full_snapshot(void *self, berth_block_fn visit, void *context)
{
    (void)visit, (void)context;
    NOTE(self, "snapshot");
    return BERTH_OK;
}

static const berth_allocator_ops full_ops = {
    .struct_size = sizeof(berth_allocator_ops),
    .allocate = recorder_allocate,
    .deallocate = recorder_deallocate,
    .destroy = recorder_destroy,
    .reallocate = full_reallocate,
    .record_use = full_record_use,
    .name = full_name,
    .device = full_device,
    .memory_kind = full_memory_kind,
    .owns = full_owns,
    .tracks_sizes = full_yes,
    .allocates_empty = full_yes,
    .requested_size = full_requested,
    .allocated_size = full_allocated,
    .allocated_size_slow = full_allocated_slow,
    .allocation_id = full_id,
    .stats = full_stats,
    .clear_stats = full_clear,
    .trim = full_trim,
    .snapshot = full_snapshot,
};

static bool visit_nothing(void *context, const berth_block *block)
{
    (void)context, (void)block;
    return true;
}

static void expect_all_answers(berth_allocator *a, struct full *full)
{
    char block = 0;
    size_t size = 0;
    uint64_t id = 0;
    berth_stats stats = {.struct_size = sizeof stats};
    assert_string_equal(berth_allocator_name(a), "full");
    assert_int_equal(berth_allocator_device(a).ordinal, 7);
    assert_int_equal(berth_allocator_memory_kind(a), BERTH_MEMORY_PINNED);
    assert_true(berth_allocator_tracks_sizes(a));
    assert_true(berth_allocator_allocates_empty(a));
    assert_int_equal(berth_allocator_owns(a, &block), BERTH_OK);
    assert_string_equal(full->called, "owns");
    assert_int_equal(berth_record_use(a, &block, (berth_stream *)&block), BERTH_NOT_FOUND);
    assert_string_equal(full->called, "record_use");
    assert_int_equal(berth_requested_size(a, &block, &size), BERTH_OK);
    assert_int_equal(size, 11);
    assert_int_equal(berth_allocated_size(a, &block, &size), BERTH_OK);
    assert_int_equal(size, 12);
    assert_int_equal(berth_allocated_size_slow(a, &block, &size), BERTH_OK);
    assert_int_equal(size, 13);
    assert_int_equal(berth_allocation_id(a, &block, &id), BERTH_OK);
    assert_int_equal(id, 14);
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    assert_int_equal(stats.num_allocs, 15);
    assert_int_equal(berth_stats_clear(a), BERTH_OK);
    assert_string_equal(full->called, "clear");
    assert_int_equal(berth_trim(a, 41, &size), BERTH_OK);
    assert_int_equal(size, 42);
    assert_int_equal(berth_snapshot(a, visit_nothing, NULL), BERTH_OK);
    assert_string_equal(full->called, "snapshot");
}

static void a_wrapper_forwards_everything(void **state)
{
    (void)state;
    struct full full = {.ordinal = 7};
    berth_allocator *inner = NULL, *outer = NULL, *outermost = NULL;
    assert_int_equal(berth_allocator_create(&full_ops, &full, &inner), BERTH_OK);
    const berth_allocator_ops nothing = {.struct_size = sizeof nothing};
    assert_int_equal(berth_wrapper_create(inner, &nothing, NULL, &outer), BERTH_OK);
    assert_int_equal(berth_wrapper_create(outer, &full_ops, &full, &outermost), BERTH_OK);
    berth_allocator_release(inner); /* the wrapper holds its own */
    expect_all_answers(outer, &full);
    expect_all_answers(outermost, &full);

    void *p = NULL;
    berth_request request = BERTH_REQUEST_INIT;
    request.label = "l";
    assert_int_equal(berth_allocate(outer, 5, 32, &request, &p), BERTH_OK);
    assert_int_equal(full.recorder.last_size, 5);
    assert_int_equal(full.recorder.last_alignment, 32);
    assert_string_equal(full.recorder.last_request.label, "l");
    assert_int_equal(berth_reallocate(outer, p, 5, 9, 32, NULL, &p), BERTH_OK);
    assert_string_equal(full.called, "reallocate");
    assert_int_equal(berth_deallocate(outer, p, 9, (berth_stream *)&full), BERTH_OK);
    assert_int_equal(full.recorder.last_freed_size, 9);
    assert_ptr_equal(full.recorder.last_stream, &full);

    berth_allocator_release(outer);
    assert_int_equal(full.recorder.destroyed, 0);
    berth_allocator_release(outermost);
    assert_int_equal(full.recorder.destroyed, 2); /* its own destroy, then the inner allocator's */
}

static void reallocate_does_not_pass_an_own_allocate_by(void **state)
{
    (void)state;
    struct full full = {0};
    struct recorder own = {0};
    berth_allocator *inner = NULL, *outer = NULL;
    assert_int_equal(berth_allocator_create(&full_ops, &full, &inner), BERTH_OK);
    assert_int_equal(berth_wrapper_create(inner, &recorder_ops, &own, &outer), BERTH_OK);
    berth_allocator_release(inner);
    void *p = NULL;
    assert_int_equal(berth_allocate(outer, 16, 64, NULL, &p), BERTH_OK);
    memset(p, 7, 16);
    assert_int_equal(berth_reallocate(outer, p, 16, 64, 64, NULL, &p), BERTH_OK);
    assert_int_equal(((char *)p)[15], 7);
    assert_int_equal(own.allocations, 2);
    assert_int_equal(own.frees, 1);
    assert_null(full.called);
    berth_deallocate(outer, p, 64, NULL);
    berth_allocator_release(outer);
    assert_int_equal(own.destroyed, 1);
    assert_int_equal(full.recorder.destroyed, 1);
}

/* A wrapper with a reallocate of its own, and nothing else of its own, gets its own self. */
static void an_own_reallocate_is_called(void **state)
{
    (void)state;
    struct full inside = {.ordinal = 7}, own = {.ordinal = 8};
    const berth_allocator_ops ops = {.struct_size = sizeof ops, .reallocate = full_reallocate};
    berth_allocator *inner = NULL, *outer = NULL;
    assert_int_equal(berth_allocator_create(&full_ops, &inside, &inner), BERTH_OK);
    assert_int_equal(berth_wrapper_create(inner, &ops, &own, &outer), BERTH_OK);
    berth_allocator_release(inner);
    void *p = NULL;
    assert_int_equal(berth_allocate(outer, 16, 64, NULL, &p), BERTH_OK);
    assert_int_equal(inside.recorder.allocations, 1);
    memset(p, 7, 16);
    assert_int_equal(berth_reallocate(outer, p, 16, 64, 16, NULL, &p), BERTH_OK);
    assert_int_equal(((char *)p)[15], 7);
    assert_string_equal(own.called, "reallocate");
    assert_null(inside.called);
    assert_int_equal(berth_deallocate(outer, p, 64, NULL), BERTH_OK);
    assert_int_equal(inside.recorder.frees, 1);
    berth_allocator_release(outer);
    assert_int_equal(inside.recorder.destroyed, 1);
}

static void bad_input_is_refused(void **state)
{
    (void)state;
    struct recorder r = {0};
    berth_allocator *inner = recorder_create(&r), *out = NULL;
    const berth_allocator_ops empty = {0};
    assert_int_equal(berth_wrapper_create(NULL, &recorder_ops, &r, &out), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_wrapper_create(inner, NULL, &r, &out), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_wrapper_create(inner, &empty, &r, &out), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_wrapper_create(inner, &recorder_ops, &r, NULL), BERTH_INVALID_ARGUMENT);
    berth__heap_fail_at(1, false);
    assert_int_equal(berth_wrapper_create(inner, &recorder_ops, &r, &out), BERTH_OUT_OF_HOST_MEMORY);
    assert_null(out);
    berth__heap_fail_at(0, false);
    berth_allocator_release(inner);
    assert_int_equal(r.destroyed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wrapper_forwards_everything),
        cmocka_unit_test(reallocate_does_not_pass_an_own_allocate_by),
        cmocka_unit_test(an_own_reallocate_is_called),
        cmocka_unit_test(bad_input_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
