/* Buffers: lazy blocks, views, parts that keep the whole alive, copies that keep both ends alive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/buffer.h"
#include "device/device.h"
#include "gate.h"

static const berth_device cpu = {BERTH_DEVICE_CPU, 0};

/* An allocator that counts, and fails when told to. */
typedef struct counting {
    _Atomic int allocated, freed;
    _Atomic bool fails;
    bool destroyed;
} counting;

static berth_status counting_allocate(void *self, size_t size_bytes, size_t alignment,
                                      const berth_request *request, void **out)
{
    counting *c = self;
    (void)request;
    if (atomic_load(&c->fails) || posix_memalign(out, alignment < 8 ? 8 : alignment, size_bytes) != 0)
        return berth__fail(BERTH_OVER_BUDGET, "told to fail");
    atomic_fetch_add(&c->allocated, 1);
    return BERTH_OK;
}

static berth_status counting_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    counting *c = self;
    (void)size_bytes, (void)stream;
    free(p);
    atomic_fetch_add(&c->freed, 1);
    return BERTH_OK;
}

static void counting_destroy(void *self)
{
    ((counting *)self)->destroyed = true;
}

static berth_allocator *counting_create(counting *c)
{
    const berth_allocator_ops ops = {.struct_size = sizeof ops,
                                     .allocate = counting_allocate,
                                     .deallocate = counting_deallocate,
                                     .destroy = counting_destroy};
    berth_allocator *a = NULL;
    memset(c, 0, sizeof *c);
    assert_int_equal(berth_allocator_create(&ops, c, &a), BERTH_OK);
    return a;
}

static berth_buffer *new_buffer(berth_allocator *a, size_t size_bytes, bool lazy)
{
    berth_buffer *buffer = NULL;
    assert_int_equal(berth_buffer_create(a, size_bytes, 64, lazy, &buffer), BERTH_OK);
    return buffer;
}

static void an_owner_frees_once(void **state)
{
    (void)state;
    counting c;
    berth_allocator *a = counting_create(&c);
    berth_buffer *buffer = new_buffer(a, 100, false);
    assert_int_equal(c.allocated, 1);
    void *data = berth_buffer_data(buffer);
    assert_non_null(data);
    assert_int_equal(berth_buffer_allocate(buffer), BERTH_OK); /* twice does not leak */
    assert_ptr_equal(berth_buffer_data(buffer), data);
    assert_int_equal(c.allocated, 1);
    assert_int_equal(berth_buffer_size(buffer), 100);
    assert_true(berth_device_equal(berth_buffer_device(buffer), cpu));
    assert_ptr_equal(berth_buffer_allocator(buffer), a);
    berth_allocator_release(a); /* the buffer keeps it */
    assert_false(c.destroyed);
    assert_ptr_equal(berth_buffer_retain(buffer), buffer);
    berth_buffer_release(buffer);
    assert_int_equal(c.freed, 0);
    berth_buffer_release(buffer);
    assert_int_equal(c.freed, 1);
    assert_true(c.destroyed);
    berth_buffer_release(NULL);
}

static void lazy_means_on_first_use(void **state)
{
    (void)state;
    counting c;
    berth_allocator *a = counting_create(&c);
    berth_buffer *never = new_buffer(a, 100, true), *later = new_buffer(a, 100, true);
    assert_int_equal(c.allocated, 0);
    assert_non_null(berth_buffer_data(later));
    assert_int_equal(c.allocated, 1);
    berth_buffer_release(never);
    berth_buffer_release(later);
    assert_int_equal(c.freed, 1);
    /* A failure is no end: the next attempt may succeed. */
    berth_buffer *unlucky = new_buffer(a, 100, true);
    atomic_store(&c.fails, true);
    assert_int_equal(berth_buffer_allocate(unlucky), BERTH_OVER_BUDGET);
    assert_null(berth_buffer_data(unlucky));
    berth_buffer *part = (berth_buffer *)1;
    assert_int_equal(berth_buffer_sub(unlucky, 0, 10, &part), BERTH_OVER_BUDGET);
    assert_null(part);
    berth_buffer *eager = (berth_buffer *)1;
    assert_int_equal(berth_buffer_create(a, 100, 64, false, &eager), BERTH_OVER_BUDGET);
    assert_null(eager);
    atomic_store(&c.fails, false);
    assert_non_null(berth_buffer_data(unlucky));
    berth_buffer_release(unlucky);
    assert_int_equal(c.freed, 2);
    /* Empty ones never allocate. */
    berth_buffer *empty = new_buffer(a, 0, false);
    assert_null(berth_buffer_data(empty));
    assert_int_equal(berth_buffer_allocate(empty), BERTH_OK);
    berth_buffer_release(empty);
    assert_int_equal(c.allocated, 2);
    berth_allocator_release(a);
    assert_true(c.destroyed);
}

static void views_and_parts(void **state)
{
    (void)state;
    counting c;
    berth_allocator *a = counting_create(&c);
    char text[16] = "0123456789";
    berth_buffer *view, *part, *part_of_part, *empty;
    assert_int_equal(berth_buffer_view(text, 10, cpu, &view), BERTH_OK);
    assert_ptr_equal(berth_buffer_data(view), text);
    assert_null(berth_buffer_allocator(view));
    assert_int_equal(berth_buffer_sub(view, 2, 8, &part), BERTH_OK);
    assert_int_equal(berth_buffer_sub(part, 3, 5, &part_of_part), BERTH_OK);
    assert_ptr_equal(berth_buffer_data(part_of_part), text + 5);
    assert_int_equal(berth_buffer_sub(part, 8, 0, &empty), BERTH_OK);
    assert_null(berth_buffer_data(empty));
    berth_buffer_release(empty);
    assert_int_equal(berth_buffer_sub(part, 4, 5, &empty), BERTH_INVALID_ARGUMENT);
    berth_buffer_release(view);
    berth_buffer_release(part);
    berth_buffer_release(part_of_part);
    assert_string_equal(text, "0123456789");
    /* A part keeps the whole alive, and takes a lazy parent's block. */
    berth_buffer *whole = new_buffer(a, 100, true);
    assert_int_equal(berth_buffer_sub(whole, 90, 10, &part), BERTH_OK);
    assert_int_equal(berth_buffer_sub(part, 0, 1, &part_of_part), BERTH_OK);
    assert_ptr_equal(berth_buffer_allocator(part), a);
    assert_ptr_equal(berth_buffer_allocator(part_of_part), a);
    berth_buffer_release(part_of_part);
    assert_int_equal(c.allocated, 1);
    berth_buffer_release(whole);
    assert_int_equal(c.freed, 0);
    memset(berth_buffer_data(part), 1, 10);
    berth_buffer_release(part);
    assert_int_equal(c.freed, 1);
    berth_allocator_release(a);
}

typedef struct given_back {
    void *p;
    size_t size_bytes;
    _Atomic int times;
} given_back;

static void give_back(void *context, void *p, size_t size_bytes)
{
    given_back *g = context;
    g->p = p;
    g->size_bytes = size_bytes;
    atomic_fetch_add(&g->times, 1);
    free(p);
}

static void adopted_memory_goes_back_once(void **state)
{
    (void)state;
    given_back g = {0};
    berth_buffer *buffer, *part;
    char *p = malloc(10);
    assert_non_null(p);
    assert_int_equal(berth_buffer_adopt(p, 10, cpu, NULL, &g, &buffer), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_adopt(NULL, 10, cpu, give_back, &g, &buffer), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_adopt(p, 10, (berth_device){BERTH_DEVICE_CPU, 7}, give_back, &g, &buffer),
                     BERTH_INVALID_ARGUMENT);
    assert_null(buffer);
    assert_int_equal(g.times, 0);
    assert_int_equal(berth_buffer_adopt(p, 10, cpu, give_back, &g, &buffer), BERTH_OK);
    assert_ptr_equal(berth_buffer_data(buffer), p);
    assert_null(berth_buffer_allocator(buffer));
    assert_int_equal(berth_buffer_sub(buffer, 1, 2, &part), BERTH_OK);
    berth_buffer_release(buffer);
    assert_int_equal(g.times, 0);
    berth_buffer_release(part);
    assert_int_equal(g.times, 1);
    assert_ptr_equal(g.p, p);
    assert_int_equal(g.size_bytes, 10);
}

static void ranges_are_copied(void **state)
{
    (void)state;
    char from[11] = "0123456789", to[6] = ".....";
    berth_buffer *src, *dst;
    size_t copied = 99;
    assert_int_equal(berth_buffer_view(from, 10, cpu, &src), BERTH_OK);
    assert_int_equal(berth_buffer_view(to, 5, cpu, &dst), BERTH_OK);
    assert_int_equal(berth_buffer_copy_range(dst, 1, src, 7, 2, 0, NULL, &copied), BERTH_OK);
    assert_string_equal(to, ".78..");
    assert_int_equal(copied, 2);
    /* Past an end is an error, or cut where asked for. */
    assert_int_equal(berth_buffer_copy_range(dst, 3, src, 0, 3, 0, NULL, &copied), BERTH_INVALID_ARGUMENT);
    assert_int_equal(copied, 0);
    assert_int_equal(berth_buffer_copy_range(dst, 0, src, 8, 3, 0, NULL, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_copy_range(dst, 6, src, 0, 0, BERTH_RANGE_CLIP, NULL, NULL),
                     BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_copy_range(dst, 0, src, 0, 1, 4, NULL, NULL), BERTH_INVALID_ARGUMENT);
    assert_string_equal(to, ".78..");
    assert_int_equal(berth_buffer_copy_range(dst, 3, src, 0, SIZE_MAX, BERTH_RANGE_CLIP, NULL, &copied),
                     BERTH_OK);
    assert_string_equal(to, ".7801");
    assert_int_equal(copied, 2);
    assert_int_equal(berth_buffer_copy_range(dst, 5, src, 0, 9, BERTH_RANGE_CLIP, NULL, &copied), BERTH_OK);
    assert_int_equal(copied, 0);
    /* Within one buffer, over itself, and on a stream that is waited for. */
    berth_stream *stream;
    assert_int_equal(berth_stream_create(cpu, &stream), BERTH_OK);
    assert_int_equal(berth_buffer_copy_range(src, 1, src, 0, 9, BERTH_RANGE_WAIT, stream, &copied), BERTH_OK);
    assert_string_equal(from, "0012345678");
    assert_int_equal(copied, 9);
    berth_stream_destroy(stream);
    berth_buffer_release(src);
    berth_buffer_release(dst);
}

static void bad_input_changes_nothing(void **state)
{
    (void)state;
    counting c;
    berth_allocator *a = counting_create(&c);
    berth_buffer *b = new_buffer(a, 10, false), *small = new_buffer(a, 5, false), *out = b;
    uint64_t live = berth__heap_live();
    memset(berth_buffer_data(b), 'b', 10);
    memset(berth_buffer_data(small), 's', 5);
    assert_int_equal(berth_buffer_create(NULL, 10, 64, false, &out), BERTH_INVALID_ARGUMENT);
    assert_null(out);
    assert_int_equal(berth_buffer_create(a, 10, 0, true, &out), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_create(a, 10, 3, true, &out), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_create(a, 10, (size_t)1 << 40, true, &out), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_create(a, 10, 64, true, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_view(NULL, 1, cpu, &out), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_view(&c, SIZE_MAX, cpu, &out), BERTH_OVERFLOW);
    assert_int_equal(berth_buffer_view(&c, 1, (berth_device){0, 0}, &out), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_view(&c, 1, (berth_device){BERTH_DEVICE_CPU, 3}, &out),
                     BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_sub(NULL, 0, 0, &out), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_sub(b, 11, 0, &out), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_sub(b, 5, SIZE_MAX, &out), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_sub(b, SIZE_MAX, 2, &out), BERTH_INVALID_ARGUMENT);
    assert_null(out);
    assert_int_equal(berth_buffer_copy(b, NULL, NULL, false), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_copy(NULL, b, NULL, false), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_copy(small, b, NULL, false), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_zero(NULL, NULL, false), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_buffer_allocate(NULL), BERTH_INVALID_ARGUMENT);
    assert_null(berth_buffer_data(NULL));
    assert_null(berth_buffer_retain(NULL));
    assert_memory_equal(berth_buffer_data(b), "bbbbbbbbbb", 10);
    assert_memory_equal(berth_buffer_data(small), "sssss", 5);
    assert_true(berth__heap_live() == live);
    assert_int_equal(berth_buffer_copy(b, small, NULL, false), BERTH_OK);
    assert_memory_equal(berth_buffer_data(b), "sssssbbbbb", 10);
    assert_int_equal(berth_buffer_zero(small, NULL, false), BERTH_OK);
    assert_memory_equal(berth_buffer_data(small), "\0\0\0\0\0", 5);
    berth_buffer_release(b);
    berth_buffer_release(small);
    berth_allocator_release(a);
}

static void a_copy_on_a_stream_keeps_both_ends(void **state)
{
    (void)state;
    counting c;
    berth_allocator *a = counting_create(&c);
    berth_stream *stream;
    gate g = GATE_INIT;
    char text[8] = ".......";
    assert_int_equal(berth_stream_create(cpu, &stream), BERTH_OK);
    berth_buffer *src = new_buffer(a, 4, false), *middle = new_buffer(a, 4, true), *view;
    assert_int_equal(berth_buffer_view(text, 8, cpu, &view), BERTH_OK);
    memcpy(berth_buffer_data(src), "abc", 4);
    berth_stream_call(stream, gate_stop, &g);
    assert_int_equal(berth_buffer_copy(middle, src, stream, false), BERTH_OK);
    assert_int_equal(berth_buffer_copy(view, middle, stream, false), BERTH_OK);
    assert_int_equal(berth_buffer_zero(src, stream, false), BERTH_OK);
    berth_buffer_release(src);
    berth_buffer_release(middle);
    berth_buffer_release(view);
    gate_wait_reached(&g);
    assert_int_equal(c.freed, 0);
    assert_string_equal(text, ".......");
    gate_open(&g);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    assert_memory_equal(text, "abc\0...", 8);
    assert_int_equal(c.freed, 2);
    berth_stream_destroy(stream);
    berth_allocator_release(a);
    assert_true(c.destroyed);
}

static void *take_block(void *context)
{
    return berth_buffer_data(context);
}

static void many_threads_take_one_lazy_block(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        counting c;
        berth_allocator *a = counting_create(&c);
        berth_buffer *buffer = new_buffer(a, 100, true);
        pthread_t threads[4];
        void *seen[4];
        for (int i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, take_block, buffer), 0);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], &seen[i]);
        for (int i = 0; i < 4; i++)
            assert_ptr_equal(seen[i], berth_buffer_data(buffer));
        assert_int_equal(c.allocated, 1);
        berth_buffer_release(buffer);
        assert_int_equal(c.freed, 1);
        berth_allocator_release(a);
    }
}

static berth_status whole_scene(berth_allocator *a, berth_stream *stream, char *text)
{
    berth_buffer *src = NULL, *dst = NULL, *part = NULL;
    berth_status status = berth_buffer_view(text, 8, cpu, &src);
    if (status == BERTH_OK)
        status = berth_buffer_create(a, 8, 64, true, &dst);
    if (status == BERTH_OK)
        status = berth_buffer_sub(dst, 4, 4, &part);
    if (status == BERTH_OK)
        status = berth_buffer_copy(dst, src, stream, false);
    if (status == BERTH_OK)
        status = berth_buffer_zero(part, stream, true);
    if (status == BERTH_OK)
        status = berth_buffer_copy(src, dst, stream, true);
    berth_buffer_release(src);
    berth_buffer_release(dst);
    berth_buffer_release(part);
    return status;
}

static void every_internal_allocation_may_fail(void **state)
{
    (void)state;
    int failures = 0;
    for (uint64_t n = 1;; n++) {
        uint64_t live = berth__heap_live();
        counting c;
        berth_stream *stream;
        char text[9] = "abcdefgh";
        berth_allocator *a = counting_create(&c);
        assert_int_equal(berth_stream_create(cpu, &stream), BERTH_OK);
        berth__heap_fail_at(n, false);
        berth_status status = whole_scene(a, stream, text);
        berth__heap_fail_at(0, false);
        assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
        berth_stream_destroy(stream);
        berth_allocator_release(a);
        assert_int_equal(c.allocated, c.freed);
        assert_true(c.destroyed);
        assert_true(berth__heap_live() == live);
        if (status == BERTH_OK) {
            assert_memory_equal(text, "abcd\0\0\0\0", 8);
            break;
        }
        failures++;
        assert_int_equal(status, BERTH_OUT_OF_HOST_MEMORY);
        assert_string_equal(text, "abcdefgh");
    }
    assert_true(failures >= 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_owner_frees_once),
        cmocka_unit_test(lazy_means_on_first_use),
        cmocka_unit_test(views_and_parts),
        cmocka_unit_test(adopted_memory_goes_back_once),
        cmocka_unit_test(ranges_are_copied),
        cmocka_unit_test(bad_input_changes_nothing),
        cmocka_unit_test(a_copy_on_a_stream_keeps_both_ends),
        cmocka_unit_test(many_threads_take_one_lazy_block),
        cmocka_unit_test(every_internal_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
