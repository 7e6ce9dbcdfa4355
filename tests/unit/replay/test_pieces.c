/* Plans that are larger than any block that their source gives: they run in several pieces. On a registered device that
 * refuses large blocks, and says so beforehand or not. */
#include "rig.h"

#include "own_device.h"

enum { LAYERS = 24, UNIT = 16 << 10, MOST = 4 * UNIT };

typedef struct pieces_rig {
    own_device own;
    berth_device device;
    berth_allocator *source, *planned;
    berth_plan *plan;
} pieces_rig;

static void pieces_begin(pieces_rig *r, bool modest)
{
    berth_device_kind kind = BERTH_DEVICE_UNKNOWN;
    memset(r, 0, sizeof *r);
    assert_int_equal(own_register("small", &r->own, &kind), BERTH_OK);
    r->device = (berth_device){(int32_t)kind, 0};
    atomic_store(&r->own.modest, modest);
    assert_int_equal(berth_device_allocator_create(r->device, BERTH_MEMORY_DEVICE, &r->source), BERTH_OK);
    assert_int_equal(berth_plan_create(&r->plan), BERTH_OK);
    assert_int_equal(berth_planned_create(r->source, r->plan, &r->planned), BERTH_OK);
}

static void pieces_end(pieces_rig *r)
{
    berth_allocator_release(r->planned);
    berth_plan_release(r->plan);
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(r->source, &stats), BERTH_OK);
    assert_int_equal(stats.bytes_in_use, 0); /* everything is back */
    berth_allocator_release(r->source);
    assert_int_equal(berth_device_unregister((berth_device_kind)r->device.kind), BERTH_OK);
}

static size_t size_of(size_t i)
{
    return (1 + i * 7 % 4) * UNIT - i * 64;
}

static void fill(unsigned char *p, size_t i)
{
    memset(p, (int)(i + 1), size_of(i));
}

static void check(const unsigned char *p, size_t i)
{
    for (size_t k = 0; k < size_of(i); k++)
        if (p[k] != (unsigned char)(i + 1))
            fail_msg("byte %zu of allocation %zu is %d", k, i, p[k]);
}

/* Six are alive at a time; each keeps what was written to it. `kept`: the last one is not freed, and returned. */
static unsigned char *run_layers(berth_allocator *a, bool kept)
{
    enum { ALIVE = 6 };
    unsigned char *p[LAYERS];
    for (size_t i = 0; i < LAYERS; i++) {
        assert_int_equal(berth_allocate(a, size_of(i), 64, NULL, (void **)&p[i]), BERTH_OK);
        fill(p[i], i);
        if (i >= ALIVE) {
            check(p[i - ALIVE], i - ALIVE);
            assert_int_equal(berth_deallocate(a, p[i - ALIVE], 0, NULL), BERTH_OK);
        }
    }
    for (size_t i = LAYERS - ALIVE; i < LAYERS - (kept ? 1 : 0); i++) {
        check(p[i], i);
        assert_int_equal(berth_deallocate(a, p[i], 0, NULL), BERTH_OK);
    }
    return kept ? p[LAYERS - 1] : NULL;
}

static void record(pieces_rig *r)
{
    assert_int_equal(berth_record_begin(r->planned, NULL), BERTH_OK);
    (void)run_layers(r->planned, false);
    assert_int_equal(berth_record_end(r->planned), BERTH_OK);
}

static void replay(pieces_rig *r, berth_report *report)
{
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.strict = true;
    *report = (berth_report)BERTH_REPORT_INIT;
    assert_int_equal(berth_replay_begin(r->planned, &options), BERTH_OK);
    (void)run_layers(r->planned, false);
    assert_int_equal(berth_replay_end(r->planned, report), BERTH_OK);
    assert_int_equal(report->from_plan, LAYERS);
    assert_int_equal(report->by_fallback, 0);
}

static uint64_t allocs_of(berth_allocator *a)
{
    berth_stats stats = {.struct_size = sizeof stats};
    assert_int_equal(berth_stats_get(a, &stats), BERTH_OK);
    return stats.num_allocs;
}

static void test_a_plan_in_pieces(void **state)
{
    (void)state;
    for (int modest = 0; modest < 2; modest++) {
        pieces_rig r;
        berth_report report;
        pieces_begin(&r, modest);
        record(&r);
        assert_true(berth_plan_total_bytes(r.plan) > 2 * MOST); /* else nothing is shown */
        atomic_store(&r.own.most_bytes, MOST);
        uint64_t before = allocs_of(r.source);
        replay(&r, &report);
        uint64_t pieces = allocs_of(r.source) - before;
        assert_in_range(pieces, 3, 12);
        assert_true(report.block_bytes >= berth_plan_total_bytes(r.plan));
        assert_true(report.block_bytes <= 2 * berth_plan_total_bytes(r.plan));
        assert_int_equal(report.held_bytes, report.block_bytes);
        for (int i = 0; i < 5; i++) /* and again in the same ones */
            replay(&r, &report);
        assert_int_equal(allocs_of(r.source), before + pieces);
        berth_stats stats = {.struct_size = sizeof stats};
        assert_int_equal(berth_stats_get(r.planned, &stats), BERTH_OK);
        assert_int_equal(stats.bytes_in_use, 0); /* the program's, not the blocks' */
        assert_int_equal(stats.num_allocs, 7 * LAYERS);
        size_t released = 0;
        assert_int_equal(berth_trim(r.planned, 0, &released), BERTH_OK);
        assert_int_equal(released, report.block_bytes);
        atomic_store(&r.own.most_bytes, 0);
        replay(&r, &report); /* in one, now that there is one */
        assert_int_equal(report.block_bytes, berth_plan_total_bytes(r.plan));
        pieces_end(&r);
    }
}

/* Between the pieces lies the memory of others, and a free of theirs is theirs. */
static void test_what_lies_between_is_not_ours(void **state)
{
    (void)state;
    enum { OTHERS = 64 };
    pieces_rig r;
    berth_report report = BERTH_REPORT_INIT;
    void *others[OTHERS];
    pieces_begin(&r, true);
    record(&r);
    atomic_store(&r.own.most_bytes, MOST);
    for (size_t i = 0; i < OTHERS; i++) /* holes of all sizes for the pieces, with others between */
        assert_int_equal(berth_allocate(r.planned, MOST - i * 512, 64, NULL, &others[i]), BERTH_OK);
    for (size_t i = 0; i < OTHERS; i += 2)
        assert_int_equal(berth_deallocate(r.planned, others[i], 0, NULL), BERTH_OK);
    assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OK);
    (void)run_layers(r.planned, false);
    for (size_t i = 1; i < OTHERS; i += 2) {
        assert_int_equal(berth_allocator_owns(r.planned, others[i]), BERTH_OK);
        assert_int_equal(berth_deallocate(r.planned, others[i], 0, NULL), BERTH_OK);
    }
    assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
    assert_int_equal(report.from_plan, LAYERS);
    assert_int_equal(report.bad_frees, 0);
    pieces_end(&r);
}

/* What outlives its scope stays where it is, and the next run goes around it. */
static void test_stragglers_in_pieces(void **state)
{
    (void)state;
    pieces_rig r;
    berth_report report = BERTH_REPORT_INIT;
    pieces_begin(&r, false);
    record(&r);
    atomic_store(&r.own.most_bytes, MOST);
    unsigned char *kept[4];
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OK);
        kept[i] = run_layers(r.planned, true);
        assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
        assert_true(report.stragglers == 1 || report.displaced > 0); /* one of these has no place */
        assert_int_equal(report.by_fallback + report.bad_frees, 0);
        for (size_t k = 0; k <= i; k++)
            check(kept[k], LAYERS - 1);
    }
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(berth_deallocate(r.planned, kept[i], 0, NULL), BERTH_OK);
        if (i == 0)
            assert_int_equal(berth_deallocate(r.planned, kept[0] + 64, 0, NULL), BERTH_BAD_FREE);
    }
    replay(&r, &report);
    pieces_end(&r);
}

/* Another plan gets pieces of its own, and the first one its own again. */
static void test_two_plans_take_turns(void **state)
{
    (void)state;
    pieces_rig r;
    berth_report report;
    berth_plan *other = NULL;
    pieces_begin(&r, true);
    record(&r);
    assert_int_equal(berth_plan_create(&other), BERTH_OK);
    assert_int_equal(berth_planned_set_plan(r.planned, other), BERTH_OK);
    record(&r);
    atomic_store(&r.own.most_bytes, MOST);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(berth_planned_set_plan(r.planned, i % 2 ? other : r.plan), BERTH_OK);
        replay(&r, &report);
    }
    berth_plan_release(other);
    pieces_end(&r);
}

/* An allocation that fits nowhere is said; nothing is left behind. */
static void test_what_fits_nowhere(void **state)
{
    (void)state;
    for (int modest = 0; modest < 2; modest++) {
        pieces_rig r;
        pieces_begin(&r, modest);
        record(&r);
        atomic_store(&r.own.most_bytes, UNIT);
        assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OUT_OF_DEVICE_MEMORY);
        assert_true(berth_last_error()->message[0] != '\0');
        atomic_store(&r.own.most_bytes, 1);
        assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OUT_OF_DEVICE_MEMORY);
        atomic_store(&r.own.most_bytes, MOST);
        berth_report report;
        replay(&r, &report);
        pieces_end(&r);
    }
}

/* Every request for bookkeeping memory fails in turn: each time it is said, and nothing is lost. */
static void test_without_memory(void **state)
{
    (void)state;
    for (int n = 0; n < 200; n++) {
        pieces_rig r;
        pieces_begin(&r, true);
        record(&r);
        atomic_store(&r.own.most_bytes, MOST);
        berth__heap_fail_at((uint64_t)n + 1, false);
        berth_status status = berth_replay_begin(r.planned, NULL);
        berth__heap_fail_at(0, false);
        bool began = status == BERTH_OK;
        if (began)
            assert_int_equal(berth_replay_end(r.planned, NULL), BERTH_OK);
        else
            assert_int_equal(status, BERTH_OUT_OF_HOST_MEMORY);
        pieces_end(&r);
        if (began) {
            assert_true(n > 5);
            return;
        }
    }
    fail_msg("it never has enough memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_plan_in_pieces),     cmocka_unit_test(test_what_lies_between_is_not_ours),
        cmocka_unit_test(test_stragglers_in_pieces), cmocka_unit_test(test_two_plans_take_turns),
        cmocka_unit_test(test_what_fits_nowhere),    cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
