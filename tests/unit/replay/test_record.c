/* Recording and validating: what is written down, and what a second run is compared in. */
#include "rig.h"

static berth_plan_allocation get(rig *r, size_t id)
{
    berth_plan_allocation a = BERTH_PLAN_ALLOCATION_INIT;
    assert_int_equal(berth_plan_get(r->plan, id, &a), BERTH_OK);
    return a;
}

static void test_what_is_recorded(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    berth_scope scope;
    void *kept = NULL;
    BERTH_RECORD(r.planned)
    {
        berth_request request = BERTH_REQUEST_INIT;
        request.label = "first";
        void *a = NULL, *nothing = NULL;
        assert_int_equal(berth_allocate(r.planned, 100, 256, &request, &a), BERTH_OK);
        berth_scope_begin(&scope, "inner scope");
        void *b = take(&r, 200);
        assert_int_equal(berth_allocate(r.planned, 0, 64, NULL, &nothing), BERTH_OK); /* not planned */
        give(&r, a);
        kept = take(&r, 300);
        berth_scope_end(&scope);
        give(&r, b);
    }
    assert_int_equal(berth_plan_count(r.plan), 3);
    assert_int_equal(get(&r, 0).size_bytes, 100);
    assert_int_equal(get(&r, 0).alignment, 256);
    assert_int_equal(get(&r, 0).freed_at, 2);
    assert_string_equal(get(&r, 0).label, "first");
    assert_string_equal(get(&r, 1).label, "inner scope");
    assert_int_equal(get(&r, 1).freed_at, 3);
    assert_true(get(&r, 2).freed_at == BERTH_NEVER_FREED);
    assert_true(get(&r, 2).offset == BERTH_NO_OFFSET);
    give(&r, kept);
    /* Recording again clears first. */
    BERTH_RECORD(r.planned)
    {
        give(&r, take(&r, 5));
    }
    assert_int_equal(berth_plan_count(r.plan), 1);
    assert_int_equal(berth_plan_total_bytes(r.plan), 5);
    BERTH_RECORD(r.planned)
    {
    }
    assert_int_equal(berth_plan_count(r.plan), 0);
    rig_end(&r);
}

static void test_recording_is_exclusive(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    BERTH_RECORD(r.planned)
    {
        give(&r, take(&r, 5));
    }
    assert_int_equal(berth_record_begin(r.planned, NULL), BERTH_OK);
    assert_int_equal(berth_plan_count(r.plan), 0); /* cleared at once */
    assert_int_equal(berth_plan_clear(r.plan), BERTH_BUSY);
    assert_int_equal(berth_plan_save(r.plan, "never.csv"), BERTH_BUSY);
    assert_int_equal(berth_plan_solve(r.plan, NULL), BERTH_BUSY);
    assert_int_equal(berth_plan_join(r.plan, &r.plan, 1, NULL), BERTH_BUSY);
    assert_int_equal(berth_record_end(r.planned), BERTH_OK);
    assert_int_equal(berth_plan_clear(r.plan), BERTH_OK);
    rig_end(&r);
}

static void test_a_solver_of_ones_choice(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    berth_solve_options solve = {.struct_size = sizeof solve, .solver = "greedy"};
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.solve = &solve;
    assert_int_equal(berth_record_begin(r.planned, &options), BERTH_OK);
    give(&r, take(&r, 5));
    assert_int_equal(berth_record_end(r.planned), BERTH_OK);
    berth_certificate c = {.struct_size = sizeof c};
    assert_int_equal(berth_plan_certificate(r.plan, &c), BERTH_OK);
    assert_string_equal(c.solver, "greedy");
    solve.solver = "no such solver";
    assert_int_equal(berth_record_begin(r.planned, &options), BERTH_OK);
    give(&r, take(&r, 5));
    assert_int_equal(berth_record_end(r.planned), BERTH_NOT_FOUND);
    assert_int_equal(berth_plan_count(r.plan), 0);
    assert_int_equal(berth_plan_clear(r.plan), BERTH_OK); /* and not busy any more */
    rig_end(&r);
}

/* ---- Validating --------------------------------------------------------------------------------------- */

enum {
    AS_RECORDED,
    OTHER_SIZE,
    OTHER_ALIGNMENT,
    FEWER,
    MORE,
    FREE_MISSING,
    FREE_LATER,
    FREE_EARLIER,
    SWAPPED
};

static void *take_aligned(rig *r, size_t size, size_t alignment)
{
    void *p = NULL;
    assert_int_equal(berth_allocate(r->planned, size, alignment, NULL, &p), BERTH_OK);
    return p;
}

/* +0 100  +1 200  -0  +2 300  -1 -2 */
static void *program(rig *r, int way)
{
    void *a = take(r, way == SWAPPED ? 200 : 100), *leak = NULL;
    void *b = take_aligned(r,
                           way == OTHER_SIZE ? 201
                           : way == SWAPPED  ? 100
                                             : 200,
                           way == OTHER_ALIGNMENT ? 128 : 64);
    if (way != FREE_LATER)
        give(r, a);
    if (way == FREE_EARLIER)
        give(r, b);
    if (way != FEWER) {
        void *c = take(r, 300);
        if (way == FREE_MISSING)
            leak = c;
        else
            give(r, c);
    }
    if (way == FREE_LATER)
        give(r, a);
    if (way != FREE_EARLIER)
        give(r, b);
    if (way == MORE)
        give(r, take(r, 7));
    return leak;
}

static void test_every_difference_is_found(void **state)
{
    (void)state;
    static const struct {
        int way;
        uint64_t id, expected, got;
        const char *words;
    } cases[] = {
        {OTHER_SIZE, 1, 200, 201, "bytes: expected 200, got 201"},
        {OTHER_ALIGNMENT, 1, 64, 128, "alignment: expected 64, got 128"},
        {FEWER, 2, 3, 2, "the number of allocations: expected 3, got 2"},
        {MORE, 3, 3, 4, "the number of allocations: expected 3, got 4"},
        {FREE_MISSING, 2, 3, UINT64_MAX, "its free is missing"},
        {FREE_LATER, 0, 2, 3, "freed before allocation: expected 2, got 3"},
        {FREE_EARLIER, 1, 3, 2, "freed before allocation: expected 3, got 2"},
        {SWAPPED, 0, 100, 200, "bytes: expected 100, got 200"},
    };
    rig r;
    rig_begin(&r);
    BERTH_RECORD(r.planned)
    {
        program(&r, AS_RECORDED);
    }
    uint64_t print = berth_plan_fingerprint(r.plan);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        berth_difference d = BERTH_DIFFERENCE_INIT;
        assert_int_equal(berth_validate_begin(r.planned, NULL), BERTH_OK);
        void *leak = program(&r, cases[i].way);
        assert_int_equal(berth_validate_end(r.planned, &d), BERTH_MISMATCH);
        assert_int_equal(d.status, BERTH_MISMATCH);
        assert_int_equal(d.id, cases[i].id);
        assert_true(d.expected == cases[i].expected);
        assert_true(d.got == cases[i].got);
        assert_non_null(strstr(d.words, cases[i].words));
        assert_int_equal(berth_deallocate(r.planned, leak, 0, NULL), BERTH_OK);
        BERTH_VALIDATE(r.planned, &d)
        {
            program(&r, AS_RECORDED);
        }
        assert_int_equal(d.status, BERTH_OK);
        assert_string_equal(d.words, "");
    }
    assert_true(berth_plan_fingerprint(r.plan) == print); /* validating changes nothing */
    rig_end(&r);
}

/* Growing tensors, each freed two later: one more or one less shifts ids and frees of all that follow, and
 * of those before it that are still live. It is named itself, not what comes of it. */
static void layers(rig *r, size_t more_at, size_t less_at, size_t other_at)
{
    void *live[3] = {NULL, NULL, NULL};
    for (size_t i = 0; i < 12; i++) {
        if (i == more_at)
            give(r, take(r, 7));
        if (i == less_at)
            continue;
        berth_deallocate(r->planned, live[i % 3], 0, NULL);
        live[i % 3] = take(r, i == other_at ? 5 : 100 * (i + 1));
    }
    for (size_t i = 0; i < 3; i++)
        berth_deallocate(r->planned, live[i], 0, NULL);
}

static void test_the_difference_is_named_not_its_echo(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    BERTH_RECORD(r.planned)
    {
        layers(&r, 99, 99, 99);
    }
    for (size_t at = 0; at < 12; at++) {
        static const char *const words[] = {"not in the plan, bytes", "left out, bytes", ": bytes"};
        for (int way = 0; way < 3; way++) {
            berth_difference d = BERTH_DIFFERENCE_INIT;
            BERTH_VALIDATE(r.planned, &d)
            {
                layers(&r, way == 0 ? at : 99, way == 1 ? at : 99, way == 2 ? at : 99);
            }
            assert_int_equal(d.status, BERTH_MISMATCH);
            assert_int_equal(d.id, at);
            bool last = way == 1 && at == 11; /* nothing follows that could tell */
            assert_non_null(strstr(d.words, last ? "the number of allocations" : words[way]));
            assert_int_equal(d.expected, last ? 12 : 100 * (at + 1));
            if (way != 1)
                assert_int_equal(d.got, way == 0 ? 7 : 5);
        }
    }
    rig_end(&r);
}

static void test_fewer_allocations_are_not_valid(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    BERTH_RECORD(r.planned)
    {
        for (int i = 0; i < 5; i++)
            give(&r, take(&r, 64));
    }
    for (int n = 0; n < 5; n++) {
        berth_difference d = BERTH_DIFFERENCE_INIT;
        BERTH_VALIDATE(r.planned, &d)
        {
            for (int i = 0; i < n; i++)
                give(&r, take(&r, 64));
        }
        assert_int_equal(d.status, BERTH_MISMATCH);
        assert_int_equal(d.id, n);
        assert_int_equal(d.expected, 5);
        assert_int_equal(d.got, n);
    }
    rig_end(&r);
}

/* An inner allocator with one address to give. */
static _Alignas(64) char only_place[64];

static berth_status give_the_place(void *self, size_t size, size_t alignment, const berth_request *request,
                                   void **out)
{
    (void)self, (void)size, (void)alignment, (void)request;
    *out = only_place;
    return BERTH_OK;
}

static berth_status take_the_place(void *self, void *p, size_t size, berth_stream *stream)
{
    (void)self, (void)p, (void)size, (void)stream;
    return BERTH_OK;
}

/* A block freed past the scope's back (by another thread, say) shows when its address is given out again. */
static void test_an_address_freed_by_another_way_is_seen(void **state)
{
    (void)state;
    berth_allocator_ops ops = {.struct_size = sizeof ops,
                               .allocate = give_the_place,
                               .deallocate = take_the_place,
                               .destroy = rig_destroyed};
    rig r = {0};
    assert_int_equal(berth_allocator_create(&ops, NULL, &r.inner), BERTH_OK);
    assert_int_equal(berth_plan_create(&r.plan), BERTH_OK);
    assert_int_equal(berth_planned_create(r.inner, r.plan, &r.planned), BERTH_OK);
    BERTH_RECORD(r.planned)
    {
        take(&r, 10);
        take(&r, 20);
        give(&r, take(&r, 30));
    }
    assert_int_equal(get(&r, 0).freed_at, 1);
    assert_int_equal(get(&r, 1).freed_at, 2);
    assert_int_equal(get(&r, 2).freed_at, 3);
    assert_int_equal(berth_plan_total_bytes(r.plan), 30);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_recorded),
        cmocka_unit_test(test_recording_is_exclusive),
        cmocka_unit_test(test_a_solver_of_ones_choice),
        cmocka_unit_test(test_every_difference_is_found),
        cmocka_unit_test(test_the_difference_is_named_not_its_echo),
        cmocka_unit_test(test_fewer_allocations_are_not_valid),
        cmocka_unit_test(test_an_address_freed_by_another_way_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
