/* A free that takes the block and still has something to tell (a guard's overwritten bytes, a strict replay's early
 * free, a lost device) is a free for all who stand around [I8]; one that is refused changes nothing. */
#include "unit/wrap/wrap_test.h"

#include <unistd.h>

#include "berth/pool.h"
#include "berth/replay.h"
#include "berth/trace.h"
#include "berth/tracking.h"
#include "berth/virtual.h"

/* A user's allocator that answers `answer` to frees, and takes the block where that says so. */
struct teller {
    berth_status answer;
    unsigned refusals; /* if any, so many frees only get the answer, and are refused */
    bool takes;
    bool tracks;
    size_t live;
};

static berth_status teller_allocate(void *self, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    berth_status status = plain_allocate(NULL, size_bytes, alignment, request, out);
    ((struct teller *)self)->live += !status;
    return status;
}

static berth_status teller_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    struct teller *t = self;
    bool refuses = t->refusals > 0;
    berth_status answer = t->answer;
    if (refuses && --t->refusals == 0)
        t->answer = BERTH_OK;
    if (t->takes && !refuses) {
        t->live--;
        (void)plain_deallocate(NULL, p, size_bytes, stream);
    }
    return answer ? berth_fail(answer, "so it is told") : BERTH_OK;
}

static bool teller_tracks(void *self)
{
    return ((struct teller *)self)->tracks;
}

static berth_status teller_size(void *self, const void *p, size_t *out)
{
    (void)self, (void)p;
    *out = 600;
    return BERTH_OK;
}

static berth_allocator *new_teller(struct teller *t)
{
    static const berth_allocator_ops ops = {
        .struct_size = sizeof(berth_allocator_ops),
        .allocate = teller_allocate,
        .deallocate = teller_deallocate,
        .destroy = plain_destroy,
        .tracks_sizes = teller_tracks,
        .requested_size = teller_size,
        .allocated_size = teller_size,
    };
    berth_allocator *a = NULL;
    assert_int_equal(berth_allocator_create(&ops, t, &a), BERTH_OK);
    return a;
}

static const berth_status told[] = {BERTH_CORRUPT, BERTH_MISMATCH, BERTH_DEVICE_LOST};

/* ---- Decorators ---------------------------------------------------------------------------------- */

typedef berth_allocator *make_layer(berth_allocator *inner, berth_budget *budget);

static berth_allocator *limit_layer(berth_allocator *inner, berth_budget *budget)
{
    berth_allocator *a = NULL;
    assert_int_equal(berth_limit_create(inner, budget, &a), BERTH_OK);
    return a;
}

static berth_allocator *metered_layer(berth_allocator *inner, berth_budget *budget)
{
    berth_allocator *limit = limit_layer(inner, budget), *a = NULL;
    assert_int_equal(berth_scope_meter_create(limit, &a), BERTH_OK);
    berth_allocator_release(limit);
    return a;
}

static berth_allocator *tracking_layer(berth_allocator *inner, berth_budget *budget, bool tracks,
                                       uint32_t stack_depth)
{
    berth_allocator *limit = limit_layer(inner, budget), *a = NULL;
    berth_tracking_options options = BERTH_TRACKING_OPTIONS_INIT;
    options.track_sizes = tracks;
    options.stack_depth = stack_depth;
    assert_int_equal(berth_tracking_create(limit, &options, &a), BERTH_OK);
    berth_allocator_release(limit);
    return a;
}

static berth_allocator *tracked_layer(berth_allocator *inner, berth_budget *budget)
{
    return tracking_layer(inner, budget, true, 0);
}

static berth_allocator *stacked_layer(berth_allocator *inner, berth_budget *budget)
{
    return tracking_layer(inner, budget, true, 4);
}

static berth_allocator *totalling_layer(berth_allocator *inner, berth_budget *budget)
{
    return tracking_layer(inner, budget, false, 0);
}

static make_layer *const layers[] = {limit_layer, metered_layer, tracked_layer, stacked_layer,
                                     totalling_layer};

/* Where sizes come from differs: a note in front, one in a map for what starts at a page, or by asking. */
static void check_told(make_layer *make, struct teller *t, berth_status answer, size_t size_bytes)
{
    berth_budget *budget = NULL;
    assert_int_equal(berth_budget_create(1 << 20, &budget), BERTH_OK);
    berth_allocator *teller = new_teller(t), *a = make(teller, budget);
    void *p = take(a, size_bytes);
    t->takes = true;
    t->answer = answer;
    assert_int_equal(berth_deallocate(a, p, 0, NULL), answer);
    assert_string_equal(berth_last_error()->message, "so it is told");
    assert_int_equal(t->live, 0);
    assert_int_equal(berth_budget_in_use(budget), 0);
    berth_stats stats = BERTH_STATS_INIT;
    if (berth_stats_get(a, &stats) == BERTH_OK)
        assert_int_equal(stats.bytes_in_use, 0);
    t->answer = BERTH_OK;
    berth_allocator_release(a);
    berth_allocator_release(teller);
    berth_budget_release(budget);
}

static void what_is_taken_is_counted_as_gone(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    for (size_t i = 0; i < BERTH_COUNT_OF(layers); i++)
        for (size_t k = 0; k < BERTH_COUNT_OF(told); k++) {
            check_told(layers[i], &(struct teller){0}, told[k], 600);
            check_told(layers[i], &(struct teller){0}, told[k], 600000);
            check_told(layers[i], &(struct teller){.tracks = true}, told[k], 600);
        }
    assert_int_equal(berth__heap_live(), live);
}

/* A guard hands streams' blocks through, and others when they leave its quarantine. */
static void a_guard_lets_go_of_what_is_taken(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    for (size_t k = 0; k < BERTH_COUNT_OF(told); k++) {
        struct teller t = {.takes = true};
        berth_allocator *teller = new_teller(&t), *a = NULL;
        assert_int_equal(berth_guard_create(teller, NULL, &a), BERTH_OK);
        void *p = take(a, 600), *q = take(a, 600);
        t.answer = told[k];
        assert_int_equal(berth_deallocate(a, p, 0, stream), told[k]);
        assert_int_equal(berth_allocator_owns(a, p), BERTH_NOT_FOUND);
        assert_int_equal(berth_deallocate(a, q, 0, NULL), BERTH_OK);
        berth_allocator_release(a);
        assert_int_equal(t.live, 0);
        berth_allocator_release(teller);
    }
    berth_stream_destroy(stream);
    assert_int_equal(berth__heap_live(), live);
}

/* ---- Logs and traces ------------------------------------------------------------------------------- */

static void note_a_failure(void *context, const char *line, size_t length)
{
    if (memmem(line, length, "free_failed", strlen("free_failed")))
        ++*(unsigned *)context;
}

static void check_log(struct teller *t, berth_status answer, unsigned failures)
{
    unsigned seen = 0;
    berth_event_log_options options = BERTH_EVENT_LOG_OPTIONS_INIT;
    options.write = note_a_failure;
    options.context = &seen;
    berth_allocator *teller = new_teller(t), *a = NULL;
    assert_int_equal(berth_event_log_create(teller, &options, &a), BERTH_OK);
    void *p = take(a, 600);
    t->answer = answer;
    assert_int_equal(berth_deallocate(a, p, 0, NULL), answer);
    assert_int_equal(seen, failures);
    if (failures)
        give(a, p);
    assert_int_equal(t->live, 0);
    berth_allocator_release(a);
    berth_allocator_release(teller);
}

static void a_log_knows_what_is_gone(void **state)
{
    (void)state;
    for (size_t k = 0; k < BERTH_COUNT_OF(told); k++)
        check_log(&(struct teller){.takes = true}, told[k], 0);
    check_log(&(struct teller){.takes = true, .refusals = 1}, BERTH_BUSY, 1);
}

/* The frees in the trace, and after them the blocks that are there again. */
static void check_trace(struct teller *t, berth_status answer, unsigned again)
{
    char path[] = "/tmp/berth_told_XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    berth_trace *trace = NULL;
    berth_allocator *teller = new_teller(t), *a = NULL;
    assert_int_equal(berth_trace_create(path, NULL, &trace), BERTH_OK);
    assert_int_equal(berth_trace_allocator_create(teller, trace, 0, &a), BERTH_OK);
    void *p = take(a, 600);
    t->answer = answer;
    assert_int_equal(berth_deallocate(a, p, 0, NULL), answer);
    if (again)
        give(a, p);
    berth_allocator_release(a);
    berth_allocator_release(teller);
    berth_trace_release(trace);
    berth_trace_reader *r = NULL;
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    unsigned taken = 0, freed = 0;
    assert_int_equal(berth_trace_reader_open(path, NULL, &r), BERTH_OK);
    while (berth_trace_next(r, &e) == BERTH_OK) {
        taken += e.kind == BERTH_TRACE_ALLOC;
        freed += e.kind == BERTH_TRACE_FREE;
    }
    assert_int_equal(taken, 1 + again);
    assert_int_equal(freed, 1 + again);
    berth_trace_reader_destroy(r);
    unlink(path);
}

static void a_trace_knows_what_is_gone(void **state)
{
    (void)state;
    for (size_t k = 0; k < BERTH_COUNT_OF(told); k++)
        check_trace(&(struct teller){.takes = true, .tracks = true}, told[k], 0);
    check_trace(&(struct teller){.takes = true, .tracks = true, .refusals = 1}, BERTH_BUSY, 1);
}

/* ---- Changing a block's size ----------------------------------------------------------------------- */

/* The old block is gone, so the new one is the caller's. */
static void check_moved(make_layer *make, struct teller *t, berth_status answer)
{
    berth_budget *budget = NULL;
    assert_int_equal(berth_budget_create(1 << 20, &budget), BERTH_OK);
    berth_allocator *teller = new_teller(t), *a = make(teller, budget);
    unsigned char *p = take(a, 600);
    uint64_t before = berth_budget_in_use(budget);
    void *moved = NULL;
    memset(p, 7, 600);
    t->takes = true;
    t->answer = answer;
    assert_int_equal(berth_reallocate(a, p, 600, 900, 64, NULL, &moved), BERTH_OK);
    assert_non_null(moved);
    assert_int_equal(((unsigned char *)moved)[599], 7);
    uint64_t more = berth_budget_in_use(budget) - before;
    assert_int_equal(more, 300); /* what a meter adds for its note, both had */
    t->answer = BERTH_OK;
    give(a, moved);
    berth_allocator_release(a);
    berth_allocator_release(teller);
    berth_budget_release(budget);
}

/* The old block stays, so the new one goes, as far as it can. */
static void check_stayed(make_layer *make, struct teller *t)
{
    berth_budget *budget = NULL;
    assert_int_equal(berth_budget_create(1 << 20, &budget), BERTH_OK);
    berth_allocator *teller = new_teller(t), *a = make(teller, budget);
    unsigned char *p = take(a, 600);
    uint64_t before = berth_budget_in_use(budget);
    void *moved = NULL;
    memset(p, 7, 600);
    t->answer = BERTH_BUSY;
    t->refusals = 1;
    t->takes = true;
    assert_int_equal(berth_reallocate(a, p, 600, 900, 64, NULL, &moved), BERTH_BUSY);
    assert_null(moved);
    assert_int_equal(t->live, 1);
    assert_int_equal(berth_budget_in_use(budget), before);
    assert_int_equal(p[599], 7);
    give(a, p);
    assert_int_equal(berth_budget_in_use(budget), 0);
    berth_allocator_release(a);
    berth_allocator_release(teller);
    berth_budget_release(budget);
}

static void a_change_of_size_ends_with_one_block(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    for (size_t i = 0; i < BERTH_COUNT_OF(layers); i++) {
        for (size_t k = 0; k < BERTH_COUNT_OF(told); k++)
            check_moved(layers[i], &(struct teller){0}, told[k]);
        check_stayed(layers[i], &(struct teller){0});
    }
    assert_int_equal(berth__heap_live(), live);
}

/* ---- Those who take memory to keep it --------------------------------------------------------------- */

/* What an upstream has taken is not given to it again. */
static void a_pool_gives_back_once(void **state)
{
    (void)state;
    uint64_t live = berth__heap_live();
    for (size_t k = 0; k < BERTH_COUNT_OF(told); k++) {
        struct teller t = {.takes = true};
        berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
        berth_allocator *pool = NULL;
        options.upstream = new_teller(&t);
        assert_int_equal(berth_pool_create(&options, &pool), BERTH_OK);
        give(pool, take(pool, 1 << 20));
        t.answer = told[k];
        size_t released = 0;
        assert_int_equal(berth_trim(pool, 0, &released), BERTH_OK);
        assert_true(released >= 1 << 20);
        assert_int_equal(t.live, 0);
        assert_int_equal(berth_trim(pool, 0, &released), BERTH_OK);
        assert_int_equal(t.live, 0);
        berth_allocator_release(pool);
        berth_allocator_release(options.upstream);
    }
    assert_int_equal(berth__heap_live(), live);
}

/* From the next call on, or no more; memory is still taken back, so that none is lost here. */
static void lose_streams(berth_device device, uint64_t next)
{
    for (int call = BERTH_VIRTUAL_STREAM_CREATE; call <= BERTH_VIRTUAL_EVENT_WAIT; call++)
        assert_int_equal(
            berth_virtual_fail(device, (berth_virtual_call)call, next, BERTH_DEVICE_LOST, next != 0),
            BERTH_OK);
}

/* Work of a lost device never runs: a free has nothing to wait for. */
static void a_lost_device_keeps_no_blocks(void **state)
{
    (void)state;
    berth_device device;
    berth_allocator *source = NULL, *planned = NULL;
    berth_plan *plan = NULL;
    berth_stream *lost = NULL;
    assert_int_equal(berth_virtual_create(&device), BERTH_OK);
    assert_int_equal(berth_stream_create(device, &lost), BERTH_OK);
    assert_int_equal(berth_device_allocator_create(device, BERTH_MEMORY_PINNED, &source), BERTH_OK);
    assert_int_equal(berth_plan_create(&plan), BERTH_OK);
    assert_int_equal(berth_planned_create(source, plan, &planned), BERTH_OK);
    BERTH_RECORD(planned) give(planned, take(planned, 600));
    void *p = take(source, 600);
    berth_report report = BERTH_REPORT_INIT;
    BERTH_REPLAY(planned, &report)
    {
        void *q = take(planned, 600);
        assert_int_equal(berth_record_use(planned, q, lost), BERTH_OK);
        lose_streams(device, 1);
        assert_int_equal(berth_deallocate(planned, q, 0, lost), BERTH_OK);
    }
    assert_int_equal(report.stragglers, 0);
    assert_int_equal(berth_deallocate(source, p, 0, lost), BERTH_OK);
    assert_int_equal(berth_allocator_owns(source, p), BERTH_NOT_FOUND);
    berth_stream_destroy(lost);
    lose_streams(device, 0);
    berth_allocator_release(planned);
    berth_allocator_release(source);
    berth_plan_release(plan);
    assert_int_equal(berth_virtual_destroy(device), BERTH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_taken_is_counted_as_gone),
        cmocka_unit_test(a_guard_lets_go_of_what_is_taken),
        cmocka_unit_test(a_log_knows_what_is_gone),
        cmocka_unit_test(a_trace_knows_what_is_gone),
        cmocka_unit_test(a_change_of_size_ends_with_one_block),
        cmocka_unit_test(a_pool_gives_back_once),
        cmocka_unit_test(a_lost_device_keeps_no_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
