/* What every allocator must do, on one thread. */
#include "conformance.h"

/* ---- Blocks -----------------------------------------------------------------------------------------------
 */

void fill(subject *s, void *p, size_t size_bytes, unsigned char with)
{
    if (s->flags & NO_MEMORY)
        return;
    if (!(s->flags & NOT_ON_HOST)) {
        memset(p, with, size_bytes);
        return;
    }
    unsigned char *host = malloc(size_bytes);
    assert_non_null(host);
    memset(host, with, size_bytes);
    assert_int_equal(
        berth_copy(berth_allocator_device(s->a), p, host, size_bytes, BERTH_COPY_HOST_TO_DEVICE, NULL, true),
        BERTH_OK);
    free(host);
}

bool same(subject *s, const void *p, size_t size_bytes, unsigned char as)
{
    const unsigned char *bytes = p;
    unsigned char *host = NULL;
    if (s->flags & NO_MEMORY)
        return true;
    if (s->flags & NOT_ON_HOST) {
        host = malloc(size_bytes);
        if (!host || berth_copy(berth_allocator_device(s->a), host, p, size_bytes, BERTH_COPY_DEVICE_TO_HOST,
                                NULL, true) != BERTH_OK) {
            free(host);
            return false;
        }
        bytes = host;
    }
    size_t i = 0;
    while (i < size_bytes && bytes[i] == as)
        i++;
    free(host);
    return i == size_bytes;
}

bool stats_of(subject *s, berth_stats *out)
{
    memset(out, 0, sizeof *out);
    out->struct_size = sizeof *out;
    berth_status status = berth_stats_get(s->a, out);
    assert_true(status == BERTH_OK || status == BERTH_UNSUPPORTED);
    return status == BERTH_OK;
}

void *get(subject *s, size_t size_bytes, size_t alignment)
{
    void *p = NULL;
    assert_int_equal(berth_allocate(s->a, size_bytes, alignment, NULL, &p), BERTH_OK);
    assert_non_null(p);
    assert_int_equal((uintptr_t)p % alignment, 0);
    return p;
}

void give(subject *s, void *p, size_t size_bytes)
{
    assert_int_equal(berth_deallocate(s->a, p, size_bytes, NULL), BERTH_OK);
}

/* ---- Checks -----------------------------------------------------------------------------------------------
 */

static void it_says_what_it_is(subject *s)
{
    assert_true(strlen(berth_allocator_name(s->a)) > 0);
    assert_int_equal(berth_allocator_device(s->a).kind == BERTH_DEVICE_UNKNOWN, (s->flags & NO_MEMORY) != 0);
    size_t released = 99;
    assert_int_equal(berth_trim(s->a, 0, &released), BERTH_OK);
    if (!(s->flags & IS_SHARED))
        assert_int_equal(released, 0); /* nothing was ever allocated */
    assert_int_equal(berth_trim(s->a, 0, NULL), BERTH_OK);
}

static void alignments_hold_and_blocks_do_not_overlap(subject *s)
{
    enum { most = 80 };
    void *blocks[most];
    size_t sizes[most], n = 0;
    for (size_t alignment = 1; alignment <= 4096; alignment *= 2)
        for (size_t size = 1; size < 3000; size = size * 7 + 1) {
            blocks[n] = get(s, size, alignment);
            sizes[n] = size;
            fill(s, blocks[n], size, (unsigned char)(n + 1));
            n++;
        }
    for (size_t i = 0; i < n; i++)
        assert_true(same(s, blocks[i], sizes[i], (unsigned char)(i + 1)));
    for (size_t i = 0; i < n; i++)
        give(s, blocks[i * 37 % n], i % 2 ? 0 : sizes[i * 37 % n]);
}

static void nothing_is_null_or_unique(subject *s)
{
    void *p = s, *q = s;
    assert_int_equal(berth_allocate(s->a, 0, 64, NULL, &p), BERTH_OK);
    assert_int_equal(berth_allocate(s->a, 0, 64, NULL, &q), BERTH_OK);
    if (berth_allocator_allocates_empty(s->a)) {
        assert_non_null(p);
        assert_ptr_not_equal(p, q);
    } else {
        assert_null(p);
        assert_null(q);
    }
    give(s, p, 0);
    give(s, q, 0);
    assert_int_equal(berth_deallocate(s->a, NULL, 0, NULL), BERTH_OK);
    assert_int_equal(berth_deallocate(s->a, NULL, 100, NULL), BERTH_OK);
}

static void bad_requests_change_nothing(subject *s)
{
    static const struct {
        size_t size, alignment;
        berth_status status;
    } bad[] = {
        {16, 0, BERTH_INVALID_ARGUMENT},
        {16, 3, BERTH_INVALID_ARGUMENT},
        {16, (size_t)1 << 40, BERTH_INVALID_ARGUMENT},
        {SIZE_MAX, 64, BERTH_OVERFLOW},
        {PTRDIFF_MAX, 64, BERTH_OVERFLOW},
    };
    berth_stats before, after;
    bool known = stats_of(s, &before);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        void *p = s;
        assert_int_equal(berth_allocate(s->a, bad[i].size, bad[i].alignment, NULL, &p), bad[i].status);
        assert_null(p);
        assert_int_equal(berth_last_error()->status, bad[i].status);
        assert_true(strlen(berth_last_error()->message) > 10);
    }
    assert_int_equal(berth_allocate(s->a, 16, 64, NULL, NULL), BERTH_INVALID_ARGUMENT);
    berth_request torn = {.struct_size = 4};
    void *p = s;
    assert_int_equal(berth_allocate(s->a, 16, 64, &torn, &p), BERTH_INVALID_ARGUMENT);
    assert_null(p);
    assert_int_equal(stats_of(s, &after), known);
    assert_memory_equal(&before, &after, sizeof before);
}

/* More than there is: a failure, counted as one and as nothing else. */
static void too_much_is_refused(subject *s)
{
    berth_stats before, after;
    bool known = stats_of(s, &before);
    void *p = s;
    berth_status status = berth_allocate(s->a, (size_t)1 << 60, 64, NULL, &p);
    assert_true(status == BERTH_OUT_OF_HOST_MEMORY || status == BERTH_OUT_OF_DEVICE_MEMORY ||
                status == BERTH_OVER_BUDGET);
    assert_null(p);
    if (!known || !stats_of(s, &after))
        return;
    assert_int_equal(after.num_allocs, before.num_allocs);
    assert_int_equal(after.bytes_in_use, before.bytes_in_use);
    assert_int_equal(after.max_bytes_in_use, before.max_bytes_in_use);
    assert_int_equal(after.total_bytes, before.total_bytes);
    assert_int_equal(after.max_alloc_size, before.max_alloc_size);
    assert_true(after.num_failures > before.num_failures);
}

static void figures_follow(subject *s)
{
    berth_stats before, during, after;
    if (!stats_of(s, &before))
        return;
    void *p = get(s, 1000, 64), *q = get(s, 5000, 64);
    assert_true(stats_of(s, &during));
    assert_int_equal(during.num_allocs, before.num_allocs + 2);
    bool measured = !(s->flags & TOTALS_ONLY) || during.bytes_in_use > 0;
    assert_true(!measured || during.bytes_in_use >= before.bytes_in_use + 6000);
    assert_true(during.max_bytes_in_use >= during.bytes_in_use);
    assert_true(during.max_alloc_size >= 5000);
    assert_true(during.total_bytes >= before.total_bytes + 6000);
    assert_true(during.fragmentation >= 0 && during.fragmentation <= 1);
    give(s, p, 1000);
    assert_int_equal(berth_stats_clear(s->a), BERTH_OK);
    assert_true(stats_of(s, &after));
    assert_int_equal(after.num_allocs, 0);
    assert_int_equal(after.total_bytes, 0);
    assert_int_equal(after.max_bytes_in_use, after.bytes_in_use);
    assert_true(!measured || after.bytes_in_use >= before.bytes_in_use + 5000);
    give(s, q, 0);
    assert_true(stats_of(s, &after));
    assert_int_equal(after.bytes_in_use, before.bytes_in_use);
}

static void sizes_are_told_or_not_guessed(subject *s)
{
    void *p = get(s, 1234, 64), *q = get(s, 1, 64);
    size_t size = 0, given = 0;
    uint64_t id_p = 99, id_q = 99;
    int outside = 0;
    if (berth_allocator_tracks_sizes(s->a)) {
        assert_int_equal(berth_requested_size(s->a, p, &size), BERTH_OK);
        assert_int_equal(size, 1234);
        assert_int_equal(berth_allocated_size(s->a, p, &given), BERTH_OK);
        assert_true(given >= 1234);
        assert_int_equal(berth_allocation_id(s->a, p, &id_p), BERTH_OK);
        assert_int_equal(berth_allocation_id(s->a, q, &id_q), BERTH_OK);
        assert_true(id_p != 0 && id_q > id_p);
        assert_int_equal(berth_requested_size(s->a, &outside, &size), BERTH_NOT_FOUND);
        assert_int_equal(berth_allocated_size(s->a, &outside, &size), BERTH_NOT_FOUND);
    } else {
        assert_int_equal(berth_requested_size(s->a, p, &size), BERTH_UNSUPPORTED);
        assert_int_equal(berth_allocated_size(s->a, p, &size), BERTH_UNSUPPORTED);
        assert_int_equal(berth_allocation_id(s->a, p, &id_p), BERTH_OK);
        assert_int_equal(id_p, 0);
    }
    berth_status slow = berth_allocated_size_slow(s->a, p, &given);
    assert_true(slow == BERTH_UNSUPPORTED || (slow == BERTH_OK && given >= 1234));
    assert_int_equal(berth_requested_size(s->a, NULL, &size), BERTH_INVALID_ARGUMENT);
    give(s, p, 1234);
    give(s, q, 1);
}

static void it_knows_its_own_or_says_that_it_does_not(subject *s)
{
    char *p = get(s, 500, 64);
    int outside = 0;
    berth_status status = berth_allocator_owns(s->a, p);
    if (status != BERTH_UNSUPPORTED) {
        assert_int_equal(status, BERTH_OK);
        assert_int_equal(berth_allocator_owns(s->a, p + 499), BERTH_OK);
        assert_int_equal(berth_allocator_owns(s->a, &outside), BERTH_NOT_FOUND);
    }
    give(s, p, 500);
    if (status != BERTH_UNSUPPORTED)
        assert_int_equal(berth_allocator_owns(s->a, p), BERTH_NOT_FOUND);
}

static void zeroed_blocks_are_zero(subject *s)
{
    berth_request zeroed = BERTH_REQUEST_INIT;
    zeroed.flags = BERTH_ZEROED;
    for (size_t size = 1; size < 100000; size = size * 9 + 5)
        for (int round = 0; round < 2; round++) { /* the second may get the first's block */
            void *p = NULL;
            assert_int_equal(berth_allocate(s->a, size, 64, &zeroed, &p), BERTH_OK);
            assert_true(same(s, p, size, 0));
            fill(s, p, size, 0xee);
            give(s, p, size);
        }
}

static void reallocation_keeps_what_fits(subject *s)
{
    static const size_t sizes[] = {100, 3000, 50, 20000, 64};
    berth_stats before, after;
    bool known = stats_of(s, &before);
    void *p = NULL;
    size_t old = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *q = NULL;
        assert_int_equal(berth_reallocate(s->a, p, old, sizes[i], 64, NULL, &q), BERTH_OK);
        assert_int_equal((uintptr_t)q % 64, 0);
        assert_true(same(s, q, old < sizes[i] ? old : sizes[i], (unsigned char)(i + 6)));
        fill(s, q, sizes[i], (unsigned char)(i + 7));
        p = q;
        old = sizes[i];
    }
    void *q = s;
    assert_int_not_equal(berth_reallocate(s->a, p, old, (size_t)1 << 60, 64, NULL, &q), BERTH_OK);
    assert_null(q);
    assert_true(same(s, p, old, 11)); /* the old block stays */
    assert_int_equal(berth_reallocate(s->a, p, old, 0, 64, NULL, &q), BERTH_OK);
    if (q) /* an allocator that allocates empty blocks */
        give(s, q, 0);
    if (known && stats_of(s, &after))
        assert_int_equal(after.bytes_in_use, before.bytes_in_use);
}

static void a_second_free_is_noticed(subject *s)
{
    if (!(s->flags & NOTICES_BAD_FREES))
        return;
    char *p = get(s, 4000, 64), *q = get(s, 10, 64);
    fill(s, p, 4000, 1);
    assert_int_equal(berth_deallocate(s->a, p + 64, 0, NULL), BERTH_BAD_FREE);
    give(s, p, 4000);
    assert_int_equal(berth_deallocate(s->a, p, 0, NULL), BERTH_BAD_FREE);
    assert_true(strlen(berth_last_error()->message) > 10);
    give(s, q, 10);
}

struct shown {
    const void *wanted[3];
    int found, live;
};

static bool look(void *context, const berth_block *block)
{
    struct shown *shown = context;
    if (block->state != BERTH_BLOCK_LIVE)
        return true;
    shown->live++;
    for (int i = 0; i < 3; i++)
        if (block->address == shown->wanted[i]) {
            shown->found++;
            assert_true(block->size_bytes >= 100);
        }
    return true;
}

static void a_snapshot_shows_what_is_live(subject *s)
{
    void *blocks[3];
    for (int i = 0; i < 3; i++)
        blocks[i] = get(s, 100, 64);
    struct shown shown = {.wanted = {blocks[0], blocks[1], blocks[2]}};
    berth_status status = berth_snapshot(s->a, look, &shown);
    assert_true(status == BERTH_OK || status == BERTH_UNSUPPORTED);
    if (s->flags & SHOWS_ALL_LIVE)
        assert_int_equal(status, BERTH_OK);
    if (status == BERTH_OK)
        assert_int_equal(shown.found, 3);
    for (int i = 0; i < 3; i++)
        give(s, blocks[i], 100);
}

static void a_stream_may_free(subject *s)
{
    berth_stream *stream = NULL;
    berth_device device = berth_allocator_device(s->a);
    if (s->flags & NO_MEMORY) /* no device either: streams of another must do */
        device = berth_device_cpu();
    berth_status made = berth_stream_create(device, &stream);
    const bool none = memory_only && device.kind != BERTH_DEVICE_CPU;
    assert_int_equal(made, none ? BERTH_UNSUPPORTED : BERTH_OK);
    if (none) /* there is no stream that could */
        return;
    berth_request request = BERTH_REQUEST_INIT;
    request.stream = stream;
    void *p = NULL;
    assert_int_equal(berth_allocate(s->a, 100, 64, &request, &p), BERTH_OK);
    berth_status status = berth_record_use(s->a, p, stream);
    assert_true(status == BERTH_OK || status == BERTH_UNSUPPORTED);
    assert_int_equal(berth_deallocate(s->a, p, 100, stream), BERTH_OK);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    berth_stream_destroy(stream);
    assert_int_equal(berth_trim(s->a, 0, NULL), BERTH_OK);
}

static void random_use_leaves_nothing(subject *s)
{
    enum { places = 40, steps = SCALE == 1 ? 600 : 150 };
    struct {
        void *p;
        size_t size;
    } held[places] = {0};
    uint64_t seed = 5;
    berth_stats before, after;
    bool known = stats_of(s, &before);
    for (int i = 0; i < steps; i++) {
        size_t at = (size_t)draw(&seed) % places;
        if (held[at].p) {
            assert_true(same(s, held[at].p, held[at].size, (unsigned char)at));
            give(s, held[at].p, draw(&seed) % 2 ? held[at].size : 0);
            held[at].p = NULL;
        } else {
            held[at].size = 1 + (size_t)draw(&seed) % (draw(&seed) % 10 == 0 ? 9000 : 300);
            held[at].p = get(s, held[at].size, (size_t)1 << draw(&seed) % 10);
            fill(s, held[at].p, held[at].size, (unsigned char)at);
        }
    }
    for (int i = 0; i < places; i++)
        give(s, held[i].p, 0);
    if (known && stats_of(s, &after))
        assert_int_equal(after.bytes_in_use, before.bytes_in_use);
}

const check checks[] = {
    {"it says what it is", it_says_what_it_is},
    {"alignments hold and blocks do not overlap", alignments_hold_and_blocks_do_not_overlap},
    {"nothing is NULL or unique", nothing_is_null_or_unique},
    {"bad requests change nothing", bad_requests_change_nothing},
    {"too much is refused", too_much_is_refused},
    {"figures follow", figures_follow},
    {"sizes are told or not guessed", sizes_are_told_or_not_guessed},
    {"it knows its own or says that it does not", it_knows_its_own_or_says_that_it_does_not},
    {"zeroed blocks are zero", zeroed_blocks_are_zero},
    {"reallocation keeps what fits", reallocation_keeps_what_fits},
    {"a second free is noticed", a_second_free_is_noticed},
    {"a snapshot shows what is live", a_snapshot_shows_what_is_live},
    {"a stream may free", a_stream_may_free},
    {"random use leaves nothing", random_use_leaves_nothing},
};
const size_t check_count = sizeof checks / sizeof checks[0];
