/* Stragglers: pointers that outlive their scope hold little, wherever they are freed, and a run around them
 * is as good as any. */
#include <pthread.h>

#include "replay/replay.h"
#include "rig.h"

enum { BLOCK = 2 << 20, OUTPUT = 1000, KEPT = 50 };

/* A large workspace, then an output that the recording frees and later runs keep. */
static void record_house(rig *r)
{
    BERTH_RECORD(r->planned)
    {
        void *work = take(r, BLOCK);
        void *output = take(r, OUTPUT);
        give(r, work);
        give(r, output);
    }
}

static void *run_once(rig *r, berth_report *report, bool strict)
{
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.strict = strict;
    assert_int_equal(berth_replay_begin(r->planned, &options), BERTH_OK);
    void *work = take(r, BLOCK);
    void *output = take(r, OUTPUT);
    memset(work, 1, BLOCK);
    memset(output, 2, OUTPUT);
    give(r, work);
    berth_replay_end(r->planned, report);
    return output;
}

static uint64_t held_by_planned(rig *r)
{
    berth_report report = BERTH_REPORT_INIT;
    BERTH_REPLAY(r->planned, &report)
    {
    }
    return report.held_bytes;
}

static void test_kept_outputs_hold_one_block(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    record_house(&r);
    uint64_t block = berth_plan_total_bytes(r.plan);
    void *kept[KEPT];
    for (int i = 0; i < KEPT; i++) {
        berth_report report = BERTH_REPORT_INIT;
        size_t before = r.inner_live;
        kept[i] = run_once(&r, &report, false);
        assert_int_equal(report.stragglers, i == 0);
        assert_true(report.held_bytes <= block + 2 * report.straggler_bytes);
        assert_int_equal(report.straggler_bytes, OUTPUT); /* the others are the inner allocator's */
        assert_int_equal(report.displaced, i == 0 ? 0 : 1);
        assert_int_equal(report.from_plan, i == 0 ? 2 : 1);
        assert_int_equal(report.deviation_count, i == 0);
        assert_int_equal(r.inner_live - before, i == 0 ? block : OUTPUT);
    }
    assert_true(r.inner_live <= block + (uint64_t)2 * OUTPUT * KEPT);
    for (int i = 0; i < KEPT; i++) {
        for (int k = 0; k < OUTPUT; k++)
            assert_int_equal(((char *)kept[i])[k], 2);
        give(&r, kept[i]);
    }
    assert_int_equal(r.inner_live, block); /* and not one block more, without a trim */
    assert_int_equal(held_by_planned(&r), block);
    rig_end(&r);
}

/* Large outputs: a block each is within the bound, and they go with their outputs. */
static void test_blocks_of_large_stragglers_go_with_them(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    BERTH_RECORD(r.planned)
    {
        void *output = take(&r, 3000);
        give(&r, take(&r, 1000));
        give(&r, output);
    }
    uint64_t block = berth_plan_total_bytes(r.plan);
    void *kept[10];
    for (int i = 0; i < 10; i++) {
        berth_report report = BERTH_REPORT_INIT;
        BERTH_REPLAY(r.planned, &report)
        {
            kept[i] = take(&r, 3000);
            memset(kept[i], i, 3000);
            give(&r, take(&r, 1000));
        }
        assert_int_equal(report.from_plan, 2);
        assert_true(report.held_bytes <= block + 2 * report.straggler_bytes);
    }
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 3000; k++)
            assert_int_equal(((char *)kept[i])[k], i);
        give(&r, kept[i]);
        assert_true(r.inner_live <= block + (size_t)(2 * 3000 * (9 - i)));
    }
    assert_int_equal(r.inner_live, block);
    rig_end(&r);
}

/* The run of before goes on in strict replay too: nothing that it does is out of its plan. */
static void test_strict_runs_around_stragglers(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    record_house(&r);
    void *kept = run_once(&r, NULL, false);
    berth_report report = BERTH_REPORT_INIT;
    berth_run_options strict = BERTH_RUN_OPTIONS_INIT;
    strict.strict = true;
    assert_int_equal(berth_replay_begin(r.planned, &strict), BERTH_OK);
    void *work = take(&r, BLOCK), *output = take(&r, OUTPUT);
    assert_int_equal(berth_allocator_owns(r.planned, kept), BERTH_OK);
    assert_int_equal(berth_deallocate(r.planned, (char *)kept + 1, 0, NULL), BERTH_BAD_FREE);
    give(&r, kept); /* of the scope before, inside this one, in its own block */
    assert_int_equal(berth_deallocate(r.planned, kept, 0, NULL), BERTH_BAD_FREE);
    give(&r, work);
    give(&r, output);
    assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
    assert_int_equal(report.planned, 2);
    assert_int_equal(report.from_plan, 1);
    assert_int_equal(report.displaced, 1);
    assert_int_equal(report.straggler_bytes, 0);
    assert_int_equal(report.bad_frees, 2);
    char text[1024];
    berth_report_text(&report, text, sizeof text);
    assert_non_null(strstr(text, "1 displaced"));
    rig_end(&r);
}

/* Another plan for the next run: smaller, as large, larger than the block in which a pointer lives. */
static void test_plans_are_exchanged_under_stragglers(void **state)
{
    (void)state;
    static const size_t sizes[] = {64, 5000, BLOCK, 3 * BLOCK};
    for (size_t k = 0; k < 4; k++) {
        rig r;
        rig_begin(&r);
        record_house(&r);
        char *kept = run_once(&r, NULL, false);
        berth_plan *other = NULL;
        assert_int_equal(berth_plan_create(&other), BERTH_OK);
        berth_plan_allocation two[2] = {BERTH_PLAN_ALLOCATION_INIT, BERTH_PLAN_ALLOCATION_INIT};
        for (size_t i = 0; i < 2; i++) {
            two[i].size_bytes = sizes[k];
            two[i].freed_at = 2;
            two[i].alignment = 64;
        }
        assert_int_equal(berth_plan_set(other, two, 2, NULL), BERTH_OK);
        assert_int_equal(berth_planned_set_plan(r.planned, other), BERTH_OK);
        berth_plan_release(other);
        berth_report report = BERTH_REPORT_INIT;
        for (int round = 0; round < 3; round++) {
            BERTH_REPLAY(r.planned, &report)
            {
                void *a = take(&r, sizes[k]), *b = take(&r, sizes[k]);
                memset(a, 7, sizes[k]);
                memset(b, 8, sizes[k]);
                give(&r, a);
                give(&r, b);
            }
            assert_int_equal(report.from_plan + report.displaced, 2);
            assert_int_equal(report.by_fallback, 0);
        }
        for (int i = 0; i < OUTPUT; i++)
            assert_int_equal(kept[i], 2);
        give(&r, kept);
        rig_end(&r);
    }
}

/* ---- Threads ------------------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 150 };

typedef struct mailbox {
    _Atomic(void *) slots[16];
} mailbox;

typedef struct worker {
    rig *r;
    mailbox *box;
    unsigned seed;
} worker;

static void check_and_free(rig *r, unsigned char *p)
{
    for (int i = 1; i < OUTPUT; i++)
        assert_int_equal(p[i], p[0]);
    give(r, p);
}

/* Each run leaves its output in a mailbox; whoever finds one there frees it, inside a scope or outside. */
static void *exchange(void *context)
{
    worker *w = context;
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(berth_replay_begin(w->r->planned, NULL), BERTH_OK);
        void *work = take(w->r, 8192), *output = take(w->r, OUTPUT);
        memset(work, 1, 8192);
        memset(output, (int)(w->seed + (unsigned)i), OUTPUT);
        unsigned slot = (w->seed = w->seed * 1103515245u + 12345u) >> 16;
        void *other = atomic_exchange(&w->box->slots[slot % 16], NULL);
        if (other && slot & 64)
            check_and_free(w->r, other);
        give(w->r, work);
        assert_int_equal(berth_replay_end(w->r->planned, NULL), BERTH_OK);
        if (other && !(slot & 64))
            check_and_free(w->r, other);
        other = atomic_exchange(&w->box->slots[(slot >> 8) % 16], output);
        if (other)
            check_and_free(w->r, other);
    }
    return NULL;
}

static void record_small(rig *r)
{
    BERTH_RECORD(r->planned)
    {
        void *work = take(r, 8192), *output = take(r, OUTPUT);
        give(r, work);
        give(r, output);
    }
}

static void test_outputs_cross_threads(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    record_small(&r);
    mailbox box;
    pthread_t threads[THREADS];
    worker workers[THREADS];
    memset(&box, 0, sizeof box); /* clang 14 takes no {0} for an atomic pointer */
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (worker){&r, &box, i * 77 + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, exchange, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 16; i++)
        if (box.slots[i])
            check_and_free(&r, box.slots[i]);
    assert_true(r.inner_live <= THREADS * 9216u);
    rig_end(&r);
}

typedef struct last_free {
    berth_allocator *a;
    void *p;
    pthread_barrier_t *together;
} last_free;

static void *free_last(void *context)
{
    last_free *f = context;
    pthread_barrier_wait(f->together);
    if (f->p)
        assert_int_equal(berth_deallocate(f->a, f->p, 0, NULL), BERTH_OK);
    else
        berth_allocator_release(f->a);
    return NULL;
}

/* The last frees against the last release: whoever is last frees the allocator, and nobody touches it after. */
static void test_the_last_frees_and_the_last_release(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        rig r;
        rig_begin(&r);
        BERTH_RECORD(r.planned)
        {
            void *a = take(&r, 100), *b = take(&r, 200);
            give(&r, a);
            give(&r, b);
        }
        void *kept[2];
        BERTH_REPLAY(r.planned, NULL)
        {
            kept[0] = take(&r, 100);
            kept[1] = take(&r, 200);
        }
        BERTH_REPLAY(r.planned, NULL) /* another block, idle when the allocator goes */
        {
        }
        pthread_barrier_t together;
        pthread_barrier_init(&together, NULL, 3);
        pthread_t threads[3];
        last_free frees[3];
        for (int i = 0; i < 3; i++) {
            frees[i] = (last_free){r.planned, i < 2 ? kept[i] : NULL, &together};
            assert_int_equal(pthread_create(&threads[i], NULL, free_last, &frees[i]), 0);
        }
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
        pthread_barrier_destroy(&together);
        r.planned = NULL;
        assert_int_equal(r.inner_live, 0);
        rig_end(&r);
    }
}

typedef struct ending {
    rig *r;
    void *kept[2];
} ending;

static void free_kept(void *context)
{
    ending *e = context;
    e->r->on_free = NULL;
    give(e->r, e->kept[0]);
    give(e->r, e->kept[1]);
}

static void *run_empty(void *context)
{
    BERTH_REPLAY(((rig *)context)->planned, NULL)
    {
    }
    return NULL;
}

/* The last straggler goes while the last release gives idle blocks back: the first of them, here. */
static void test_the_last_free_comes_during_the_last_release(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    ending e = {.r = &r};
    BERTH_RECORD(r.planned)
    {
        void *a = take(&r, 100), *b = take(&r, 200);
        give(&r, a);
        give(&r, b);
    }
    BERTH_REPLAY(r.planned, NULL)
    {
        e.kept[0] = take(&r, 100);
        e.kept[1] = take(&r, 200);
    }
    BERTH_REPLAY(r.planned, NULL) /* two blocks more */
    {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, run_empty, &r), 0);
        pthread_join(thread, NULL);
    }
    r.on_free = free_kept;
    r.on_free_context = &e;
    berth_allocator_release(r.planned);
    r.planned = NULL;
    assert_int_equal(r.inner_live, 0);
    rig_end(&r);
}

/* Planning around what is still live needs memory: without it a run begins all the same or says so, and later ones are
 * as if nothing had been. */
static void test_no_memory_to_plan_around_stragglers(void **state)
{
    (void)state;
    int refused = 0;
    for (uint64_t n = 1;; n++) {
        rig r;
        rig_begin(&r);
        record_house(&r);
        berth_report report = BERTH_REPORT_INIT;
        void *kept = run_once(&r, &report, false);
        assert_int_equal(report.stragglers, 1);
        berth__heap_fail_at(n, false);
        berth_status status = berth_replay_begin(r.planned, NULL);
        bool failed = berth__heap_fail_left() == 0;
        berth__heap_fail_at(0, false);
        refused += status != BERTH_OK;
        if (status == BERTH_OK)
            assert_int_equal(berth_replay_end(r.planned, NULL), BERTH_OK);
        else
            assert_int_equal(status, BERTH_OUT_OF_HOST_MEMORY);
        void *again = run_once(&r, &report, false);
        assert_int_equal(report.displaced, 1);
        give(&r, again);
        assert_int_equal(((char *)kept)[OUTPUT - 1], 2);
        give(&r, kept);
        rig_end(&r);
        if (!failed)
            break;
        assert_true(n < 1000);
    }
    assert_true(refused > 0);
}

/* Without memory to note the stream that a straggler is freed on it is freed all the same, once. */
static void test_no_memory_to_free_a_straggler_on_a_stream(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    record_house(&r);
    berth_stream *stream = NULL;
    assert_int_equal(berth_stream_create(berth_device_cpu(), &stream), BERTH_OK);
    berth_report report = BERTH_REPORT_INIT;
    void *kept = run_once(&r, &report, false);
    assert_int_equal(report.stragglers, 1);
    berth__heap_fail_at(1, false);
    assert_int_equal(berth_deallocate(r.planned, kept, 0, stream), BERTH_OK);
    assert_int_equal(berth__heap_fail_left(), 0); /* it did ask for memory */
    berth__heap_fail_at(0, false);
    assert_int_equal(berth_deallocate(r.planned, kept, 0, stream), BERTH_BAD_FREE);
    assert_int_equal(berth_stream_synchronize(stream), BERTH_OK);
    berth_stream_destroy(stream);
    rig_end(&r);
}

/* ---- A free that comes when the scope has looked for the last time --------------------------------- */

static struct {
    rig *rig;
    void *output;
} late;

static void *give_late(void *unused)
{
    (void)unused;
    assert_int_equal(berth_deallocate(late.rig->planned, late.output, 0, NULL), BERTH_OK);
    return NULL;
}

/* The linker leads the scope's end here: right after its last look another thread frees. */
void __real_berth__replay_settle(berth__replay *replay);
void __wrap_berth__replay_settle(berth__replay *replay);
void __wrap_berth__replay_settle(berth__replay *replay)
{
    __real_berth__replay_settle(replay);
    if (!late.output)
        return;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, give_late, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void test_a_free_after_the_last_look_leaves_no_straggler(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    record_house(&r);
    assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OK);
    give(&r, take(&r, BLOCK));
    late.rig = &r, late.output = take(&r, OUTPUT);
    berth_report report = BERTH_REPORT_INIT;
    assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
    assert_int_equal(report.straggler_bytes, 0); /* what is held is asked for after the block went back */
    assert_int_equal(berth_deallocate(r.planned, late.output, 0, NULL), BERTH_BAD_FREE);
    late.output = NULL;
    void *output = run_once(&r, &report, true); /* and its place is free again */
    assert_int_equal(report.by_fallback, 0);
    give(&r, output);
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept_outputs_hold_one_block),
        cmocka_unit_test(test_blocks_of_large_stragglers_go_with_them),
        cmocka_unit_test(test_strict_runs_around_stragglers),
        cmocka_unit_test(test_plans_are_exchanged_under_stragglers),
        cmocka_unit_test(test_outputs_cross_threads),
        cmocka_unit_test(test_no_memory_to_plan_around_stragglers),
        cmocka_unit_test(test_no_memory_to_free_a_straggler_on_a_stream),
        cmocka_unit_test(test_a_free_after_the_last_look_leaves_no_straggler),
        cmocka_unit_test(test_the_last_frees_and_the_last_release),
        cmocka_unit_test(test_the_last_free_comes_during_the_last_release),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
