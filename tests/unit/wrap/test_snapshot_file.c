/* What a pool holds at a moment stands in the file: live blocks in the order of their ages, what waits, and the memory beneath. */
#include <unistd.h>

#include "berth/pool.h"
#include "berth/trace.h"
#include "berth/virtual.h"
#include "unit/wrap/wrap_test.h"

enum { KIB = 1024, SEGMENT = 1024 * KIB };

static char path[64];

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/berth_snapshot_XXXXXX");
    int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}
static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void *take_for(berth_allocator *a, size_t size_bytes, const char *label)
{
    berth_request request = BERTH_REQUEST_INIT;
    void *p = NULL;
    request.label = label;
    assert_int_equal(berth_allocate(a, size_bytes, 64, &request, &p), BERTH_OK);
    return p;
}

static void expect(berth_trace_reader *r, berth_trace_kind kind, const void *p, uint64_t size_bytes,
                   const char *label)
{
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    assert_int_equal(berth_trace_next(r, &e), BERTH_OK);
    assert_int_equal(e.kind, kind);
    if (p)
        assert_int_equal(e.address, (uintptr_t)p);
    assert_int_equal(e.size_bytes, size_bytes);
    assert_string_equal(berth_trace_text(r, e.label), label);
}

static berth_trace_reader *open_snapshot(berth_allocator *a)
{
    berth_trace_reader *r = NULL;
    assert_int_equal(berth_snapshot_write(a, path), BERTH_OK);
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
    return r;
}

static void all_of_a_pool_is_there(void **state)
{
    (void)state;
    berth_device device;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *pool = NULL;
    berth_stream *stream = NULL;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    options.device = device;
    options.hard_limit_bytes = 3 * (uint64_t)SEGMENT;
    options.segment_bytes = SEGMENT;
    assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &stream), BERTH_OK);
    void *weights = take_for(pool, 512 * KIB, "weights"), *copied = take_for(pool, 256 * KIB, "copied");
    void *gone = take_for(pool, 128 * KIB, "gone");
    assert_int_equal(berth_zero(device, copied, 64, stream, false), BERTH_OK);
    assert_int_equal(berth_deallocate(pool, copied, 0, stream), BERTH_OK); /* the work has not run */
    assert_int_equal(berth_deallocate(pool, gone, 0, NULL), BERTH_OK);

    berth_trace_reader *r = open_snapshot(pool);
    expect(r, BERTH_TRACE_CAPACITY, NULL, 3 * (uint64_t)SEGMENT, "");
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    assert_int_equal(berth_trace_next(r, &e), BERTH_OK);
    assert_int_equal(e.kind, BERTH_TRACE_MAP);
    assert_in_range(e.size_bytes, 896 * KIB, SEGMENT); /* as much as the pool has mapped of it */
    for (int i = 0; i < 2; i++) {                      /* their ages may be the same */
        assert_int_equal(berth_trace_next(r, &e), BERTH_OK);
        assert_int_equal(e.kind, BERTH_TRACE_ALLOC);
        bool waits = e.address == (uintptr_t)copied;
        assert_int_equal(e.address, (uintptr_t)(waits ? copied : weights));
        assert_int_equal(e.size_bytes, (waits ? 256 : 512) * KIB);
        assert_string_equal(berth_trace_text(r, e.label), waits ? "(freed, a stream uses it)" : "weights");
    }
    expect(r, BERTH_TRACE_MARK, NULL, 0, "the snapshot");
    assert_int_equal(berth_trace_next(r, &e), BERTH_NOT_FOUND);
    berth_trace_reader_destroy(r);

    assert_int_equal(berth_virtual_run_all(device), BERTH_OK);
    assert_int_equal(berth_deallocate(pool, weights, 0, NULL), BERTH_OK);
    berth_stream_destroy(stream);
    berth_allocator_release(pool);
    assert_int_equal(berth_virtual_destroy(device), BERTH_OK);
}

/* ---- Blocks as a test likes them ------------------------------------------------------------------------ */

static const struct shown {
    uintptr_t address;
    uint64_t size_bytes, segment, age_ns;
    const char *label;
    berth_block_state state;
} blocks[] = {
    {0x5000, 0x1000, 1, 100, "young", BERTH_BLOCK_LIVE}, /* behind a header */
    {0x3000, 0x1f00, 1, 900, "old", BERTH_BLOCK_LIVE},
    {0x1000, 0x1000, 1, 0, NULL, BERTH_BLOCK_LIVE}, /* far from the others */
    {0x9000, 0x1000, 2, 5000, "idle", BERTH_BLOCK_IDLE},
    {0xa000, 0x1000, 0, 300, "alone", BERTH_BLOCK_LIVE}, /* cut from nothing */
};

static berth_status show_blocks(void *self, berth_block_fn visit, void *context)
{
    (void)self;
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        berth_block b = BERTH_BLOCK_INIT;
        b.address = (const void *)blocks[i].address;
        b.size_bytes = blocks[i].size_bytes;
        b.segment = blocks[i].segment;
        b.age_ns = blocks[i].age_ns;
        b.label = blocks[i].label;
        b.state = blocks[i].state;
        if (!visit(context, &b))
            break;
    }
    return BERTH_OK;
}

static void ages_and_pieces_are_kept(void **state)
{
    (void)state;
    const berth_allocator_ops ops = {.struct_size = sizeof ops,
                                     .allocate = plain_allocate,
                                     .deallocate = plain_deallocate,
                                     .destroy = plain_destroy,
                                     .snapshot = show_blocks};
    berth_allocator *a = NULL;
    assert_int_equal(berth_allocator_create(&ops, NULL, &a), BERTH_OK);
    berth_trace_reader *r = open_snapshot(a);
    expect(r, BERTH_TRACE_MAP, (void *)0x1000, 0x1000, "");
    expect(r, BERTH_TRACE_MAP, (void *)0x3000, 0x3000, "");
    expect(r, BERTH_TRACE_MAP, (void *)0x9000, 0x1000, "");
    expect(r, BERTH_TRACE_ALLOC, (void *)0x1000, 0x1000, "");
    expect(r, BERTH_TRACE_ALLOC, (void *)0x3000, 0x1f00, "old");
    expect(r, BERTH_TRACE_ALLOC, (void *)0xa000, 0x1000, "alone");
    expect(r, BERTH_TRACE_ALLOC, (void *)0x5000, 0x1000, "young");
    expect(r, BERTH_TRACE_MARK, NULL, 0, "the snapshot");
    berth_trace_reader_destroy(r);
    berth_allocator_release(a);
}

static void what_cannot_be_is_said(void **state)
{
    (void)state;
    const berth_allocator_ops ops = {.struct_size = sizeof ops,
                                     .allocate = plain_allocate,
                                     .deallocate = plain_deallocate,
                                     .destroy = plain_destroy};
    berth_allocator *a = NULL;
    assert_int_equal(berth_allocator_create(&ops, NULL, &a), BERTH_OK);
    FILE *file = fopen(path, "w"); /* which stays as it is */
    assert_true(file && fputs("mine", file) >= 0 && fclose(file) == 0);
    assert_int_equal(berth_snapshot_write(a, path), BERTH_UNSUPPORTED);
    char kept[8] = "";
    file = fopen(path, "r");
    assert_true(file && fgets(kept, sizeof kept, file) && fclose(file) == 0);
    assert_string_equal(kept, "mine");
    assert_int_equal(berth_snapshot_write(a, NULL), BERTH_INVALID_ARGUMENT);
    assert_int_equal(berth_snapshot_write(NULL, path), BERTH_INVALID_ARGUMENT);
    berth_allocator_release(a);
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    assert_int_equal(berth_pool_create(&options, &a), BERTH_OK);
    assert_int_equal(berth_snapshot_write(a, "/nowhere/at/all"), BERTH_IO);
    assert_int_equal(berth_snapshot_write(a, path), BERTH_OK); /* nothing is in it */
    berth_allocator_release(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_of_a_pool_is_there, make_path, remove_path),
        cmocka_unit_test_setup_teardown(ages_and_pieces_are_kept, make_path, remove_path),
        cmocka_unit_test_setup_teardown(what_cannot_be_is_said, make_path, remove_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
