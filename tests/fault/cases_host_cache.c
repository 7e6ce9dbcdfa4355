/* The fault sweep over the host cache: creating, growing, noting uses, freeing, questions. */
#include "berth/virtual.h"
#include "fault.h"

enum { STREAM_SLOT = 1, OTHER_STREAM_SLOT = 2, BLOCK_SLOT = 3 };

static berth_device device;

static void set_up_streams(struct fault *f)
{
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    assert_int_equal(berth_stream_create(device, (berth_stream **)&f->more[STREAM_SLOT]), BERTH_OK);
    assert_int_equal(berth_stream_create(device, (berth_stream **)&f->more[OTHER_STREAM_SLOT]), BERTH_OK);
}

static void tear_down_streams(struct fault *f)
{
    berth_virtual_run_all(device);
    berth_allocator_release(f->a);
    berth_stream_destroy(f->more[STREAM_SLOT]);
    berth_stream_destroy(f->more[OTHER_STREAM_SLOT]);
    assert_int_equal(berth_virtual_bytes_in_use(device), 0);
    berth_virtual_destroy(device);
}

static berth_status create(void **out, uint32_t background_us)
{
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    options.device = device;
    options.background_us = background_us;
    return berth_host_cache_create(&options, (berth_allocator **)out);
}

static berth_status run_create(struct fault *f)
{
    return create(&f->result, 0);
}

static berth_status run_create_background(struct fault *f)
{
    return create(&f->result, 1000000);
}

static void undo_create(struct fault *f)
{
    berth_allocator_release(f->result);
}

static void set_up_cache(struct fault *f)
{
    set_up_streams(f);
    assert_int_equal(create((void **)&f->a, 0), BERTH_OK);
}

static berth_status run_allocate_small(struct fault *f)
{
    return berth_allocate(f->a, 100, 64, NULL, &f->result);
}

static berth_status run_allocate_large(struct fault *f)
{
    return berth_allocate(f->a, 40 << 20, 64, NULL, &f->result);
}

static void undo_allocate(struct fault *f)
{
    assert_int_equal(berth_deallocate(f->a, f->result, 0, NULL), BERTH_OK);
}

/* A cache with an idle block of 4 KiB. */
static void set_up_idle(struct fault *f)
{
    set_up_cache(f);
    assert_int_equal(berth_allocate(f->a, 4096, 64, NULL, &f->result), BERTH_OK);
    undo_allocate(f);
}

static berth_status run_allocate_on_stream(struct fault *f)
{
    berth_request request = BERTH_REQUEST_INIT;
    request.stream = f->more[STREAM_SLOT];
    return berth_allocate(f->a, 4096, 64, &request, &f->result);
}

/* And a live one. */
static void set_up_block(struct fault *f)
{
    set_up_cache(f);
    assert_int_equal(berth_allocate(f->a, 4096, 64, NULL, &f->more[BLOCK_SLOT]), BERTH_OK);
}

static void tear_down_block(struct fault *f)
{
    assert_int_equal(berth_deallocate(f->a, f->more[BLOCK_SLOT], 0, NULL), BERTH_OK);
    tear_down_streams(f);
}

static berth_status run_record_use(struct fault *f)
{
    return berth_record_use(f->a, f->more[BLOCK_SLOT], f->more[STREAM_SLOT]);
}

static void set_up_used_block(struct fault *f)
{
    set_up_block(f);
    assert_int_equal(run_record_use(f), BERTH_OK);
}

static berth_status run_record_second_use(struct fault *f)
{
    return berth_record_use(f->a, f->more[BLOCK_SLOT], f->more[OTHER_STREAM_SLOT]);
}

/* A free by a stream that is new to the cache: where that cannot be noted, the block stays live. */
static berth_status run_free_on_stream(struct fault *f)
{
    berth_status status =
        berth_deallocate(f->a, f->more[BLOCK_SLOT], 0, (berth_stream *)f->more[OTHER_STREAM_SLOT]);
    if (status == BERTH_OK)
        f->more[BLOCK_SLOT] = NULL;
    return status;
}

/* Events that cannot be made are done without. */
static berth_status run_free_used(struct fault *f)
{
    berth_status status = berth_deallocate(f->a, f->more[BLOCK_SLOT], 0, NULL);
    assert_int_equal(status, BERTH_OK);
    f->more[BLOCK_SLOT] = NULL;
    return status;
}

static berth_status run_collect(struct fault *f)
{
    return berth_host_cache_collect(f->a, NULL);
}

static berth_status run_empty(struct fault *f)
{
    return berth_host_cache_empty(f->a, NULL);
}

static bool see_block(void *context, const berth_block *block)
{
    (void)context;
    return block->size_bytes > 0;
}

static berth_status run_snapshot(struct fault *f)
{
    return berth_snapshot(f->a, see_block, NULL);
}

static void set_up_much_used_block(struct fault *f)
{
    set_up_block(f);
    for (int i = 0; i < 12; i++) {
        berth_stream *stream = NULL;
        assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
        assert_int_equal(berth_record_use(f->a, f->more[BLOCK_SLOT], stream), BERTH_OK);
        berth_stream_destroy(stream);
    }
}

static berth_status run_explain(struct fault *f)
{
    return berth_host_cache_explain(f->a, f->more[BLOCK_SLOT], 0, NULL, NULL, NULL);
}

static berth_status run_copy(struct fault *f)
{
    char local[16] = {0};
    return berth_host_cache_copy(f->a, f->more[BLOCK_SLOT], local, sizeof local, f->more[STREAM_SLOT], true);
}

static const fault_case cases[] = {
    {"berth_host_cache_create", set_up_streams, run_create, undo_create, tear_down_streams},
    {"berth_host_cache_create, background", set_up_streams, run_create_background, undo_create,
     tear_down_streams},
    {"berth_allocate, small", set_up_cache, run_allocate_small, undo_allocate, tear_down_streams},
    {"berth_allocate, large", set_up_cache, run_allocate_large, undo_allocate, tear_down_streams},
    {"berth_allocate, on a stream", set_up_idle, run_allocate_on_stream, undo_allocate, tear_down_streams},
    {"berth_record_use", set_up_block, run_record_use, NULL, tear_down_block},
    {"berth_record_use, second stream", set_up_used_block, run_record_second_use, NULL, tear_down_block},
    {"berth_deallocate, on a stream", set_up_used_block, run_free_on_stream, NULL, tear_down_block},
    {"berth_deallocate, used", set_up_used_block, run_free_used, NULL, tear_down_block},
    {"berth_host_cache_collect", set_up_used_block, run_collect, NULL, tear_down_block},
    {"berth_host_cache_empty", set_up_idle, run_empty, NULL, tear_down_streams},
    {"berth_snapshot", set_up_used_block, run_snapshot, NULL, tear_down_block},
    {"berth_host_cache_explain", set_up_much_used_block, run_explain, NULL, tear_down_block},
    {"berth_host_cache_copy", set_up_block, run_copy, NULL, tear_down_block},
};

FAULT_MAIN(cases)
