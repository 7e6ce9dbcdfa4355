/* Random programs, recorded, then replayed with random deviations: other sizes, another order, allocations
 * left out, inserted or replaced, frees late, early, missing or from another thread. Every live block is
 * filled with a pattern of its own and checked when it is freed and at the end, and a shadow of all live
 * blocks proves that no two overlap [R2]. Blocks from the plan and from the fallback are held to the same. */
#include <pthread.h>

#include "rig.h"
#include "scale.h"

enum { MOST = 120 };

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static uint32_t below(uint64_t *state, uint32_t bound)
{
    return (uint32_t)(next_random(state) % bound);
}

/* A program: allocation i has a size, an alignment and a label, and is freed after allocation `life[i]`;
 * MOST: never. */
typedef struct program {
    uint32_t count;
    uint32_t size[MOST];
    uint32_t alignment[MOST];
    uint32_t freed_after[MOST];
    const char *label[MOST];
} program;

static void make_program(program *p, uint64_t *random)
{
    static const char *const labels[] = {NULL, "a", "b", "c"};
    p->count = 1 + below(random, MOST - 1);
    uint32_t longest = 1 + below(random, 30);
    uint32_t sizes = 1 + below(random, 12);
    for (uint32_t i = 0; i < p->count; i++) {
        p->size[i] = 1 + below(random, sizes) * (1 + below(random, 4)) * 16;
        p->alignment[i] = 1u << below(random, 9);
        p->freed_after[i] = below(random, 20) == 0 ? MOST : i + below(random, longest);
        p->label[i] = labels[below(random, 4)];
    }
}

/* ---- The shadow: what is live, and what it must hold -------------------------------------------------- */

typedef struct live_block {
    unsigned char *p;
    uint32_t size;
    unsigned char fill;
} live_block;

typedef struct shadow {
    live_block blocks[4 * MOST];
    uint32_t count;
    unsigned char next_fill;
} shadow;

static void check_block(const live_block *b)
{
    for (uint32_t i = 0; i < b->size; i++)
        if (b->p[i] != b->fill)
            fail_msg("a live block was overwritten");
}

static void shadow_add(shadow *s, void *p, uint32_t size)
{
    uintptr_t from = (uintptr_t)p, to = from + size;
    for (uint32_t i = 0; i < s->count; i++) {
        uintptr_t other = (uintptr_t)s->blocks[i].p;
        if (from < other + s->blocks[i].size && other < to)
            fail_msg("two live blocks overlap");
    }
    live_block b = {p, size, ++s->next_fill};
    memset(p, b.fill, size);
    assert_true(s->count < 4 * MOST);
    s->blocks[s->count++] = b;
}

static void shadow_remove(shadow *s, const void *p)
{
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->blocks[i].p != p)
            continue;
        check_block(&s->blocks[i]);
        s->blocks[i] = s->blocks[--s->count];
        return;
    }
    fail_msg("the shadow does not know this block");
}

/* ---- Running ------------------------------------------------------------------------------------------ */

typedef struct remote_free {
    berth_allocator *a;
    void *p;
} remote_free;

static void *free_on_another_thread(void *context)
{
    remote_free *f = context;
    assert_int_equal(berth_deallocate(f->a, f->p, 0, NULL), BERTH_OK);
    return NULL;
}

typedef struct deviations {
    uint32_t size, order, skip, insert, late, early, missing, remote; /* in a thousand */
} deviations;

typedef struct running {
    rig *r;
    const program *p;
    const deviations *d;
    uint64_t *random;
    shadow *s;
    void *pointer[MOST];
    uint32_t due[MOST];
    bool strict;
    uint32_t told; /* strict: frees that came too early */
} running;

static bool happens(running *x, uint32_t in_a_thousand)
{
    return in_a_thousand && below(x->random, 1000) < in_a_thousand;
}

/* Strict tells of a free that is too early, and does it. */
static void free_pointer(running *x, void *p)
{
    berth_status status = berth_deallocate(x->r->planned, p, 0, NULL);
    assert_true(status == BERTH_OK || (x->strict && status == BERTH_MISMATCH));
    x->told += status == BERTH_MISMATCH;
}

static void free_one(running *x, uint32_t i)
{
    void *p = x->pointer[i];
    x->pointer[i] = NULL;
    if (!p)
        return;
    shadow_remove(x->s, p);
    if (happens(x, x->d->remote)) {
        pthread_t thread;
        remote_free f = {x->r->planned, p};
        assert_int_equal(pthread_create(&thread, NULL, free_on_another_thread, &f), 0);
        pthread_join(thread, NULL);
    } else {
        free_pointer(x, p);
    }
}

static void free_due(running *x, uint32_t now)
{
    uint32_t order[MOST], count = 0;
    for (uint32_t i = 0; i < x->p->count; i++)
        if (x->pointer[i] && x->due[i] == now)
            order[count++] = i;
    for (uint32_t k = 0; k < count; k++) {
        if (happens(x, x->d->order)) {
            uint32_t other = below(x->random, count), swap = order[k];
            order[k] = order[other];
            order[other] = swap;
        }
    }
    for (uint32_t k = 0; k < count; k++)
        free_one(x, order[k]);
}

static void *allocate_one(running *x, uint32_t size, uint32_t alignment, const char *label)
{
    berth_request request = BERTH_REQUEST_INIT;
    request.label = label;
    request.flags = below(x->random, 10) == 0 ? BERTH_ZEROED : 0;
    void *p = NULL;
    berth_status status = berth_allocate(x->r->planned, size, alignment, &request, &p);
    if (x->strict && status == BERTH_MISMATCH) {
        assert_null(p);
        return NULL;
    }
    assert_int_equal(status, BERTH_OK);
    assert_int_equal((uintptr_t)p % alignment, 0);
    shadow_add(x->s, p, size);
    return p;
}

static void run_program(running *x)
{
    const program *p = x->p;
    const deviations *d = x->d;
    memset(x->pointer, 0, sizeof x->pointer);
    for (uint32_t i = 0; i < p->count; i++) {
        if (happens(x, d->insert)) {
            void *more = allocate_one(x, 1 + below(x->random, 300), 64, "stranger");
            if (more) {
                shadow_remove(x->s, more);
                free_pointer(x, more);
            }
        }
        if (!happens(x, d->skip)) {
            uint32_t size = happens(x, d->size) ? 1 + below(x->random, 600) : p->size[i];
            x->pointer[i] = allocate_one(x, size, p->alignment[i], p->label[i]);
            x->due[i] = p->freed_after[i];
            if (happens(x, d->late))
                x->due[i] += below(x->random, 20);
            if (happens(x, d->early) && x->due[i] != MOST)
                x->due[i] = i + below(x->random, x->due[i] - i + 1);
            if (happens(x, d->missing))
                x->due[i] = MOST;
        }
        free_due(x, i);
    }
    /* Due after the last allocation, but inside. */
    for (uint32_t i = 0; i < p->count; i++)
        if (x->pointer[i] && x->due[i] != MOST)
            free_one(x, i);
}

/* What is still live after the scope is freed here. */
static void free_rest(running *x)
{
    for (uint32_t i = 0; i < x->p->count; i++)
        free_one(x, i);
    assert_int_equal(x->s->count, 0);
}

static const deviations kinds[] = {
    {0},
    {.size = 50},
    {.order = 500},
    {.skip = 50},
    {.insert = 50},
    {.late = 100},
    {.early = 100},
    {.missing = 50},
    {.remote = 20},
    {.size = 30, .order = 300, .skip = 20, .insert = 20, .late = 30, .early = 30, .missing = 10, .remote = 5},
    {.size = 300, .order = 500, .skip = 200, .insert = 200, .late = 300, .early = 300, .missing = 100},
};

static void replay_once(rig *r, const program *p, const deviations *d, uint64_t *random, bool strict,
                        berth_report *report)
{
    shadow s = {.count = 0};
    running x = {.r = r, .p = p, .d = d, .random = random, .s = &s, .strict = strict};
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.strict = strict;
    assert_int_equal(berth_replay_begin(r->planned, &options), BERTH_OK);
    run_program(&x);
    berth_status status = berth_replay_end(r->planned, report);
    assert_int_equal(status, report->status);
    if (!strict)
        assert_int_equal(status, BERTH_OK);
    else if (status == BERTH_OK)
        assert_true(report->from_plan == report->planned && report->stragglers == 0);
    else
        assert_true(status == BERTH_MISMATCH && report->deviation_count > 0);
    assert_true(report->early_frees >= x.told);
    assert_true(report->straggler_bytes <= report->held_bytes);
    for (uint32_t i = 0; i < s.count; i++) /* stragglers keep what they hold */
        check_block(&s.blocks[i]);
    free_rest(&x);
}

/* Hundreds of plans: any will do here, so none is searched for long. */
static const berth_solve_options quick = {.struct_size = sizeof quick, .effort = BERTH_EFFORT_FAST};

static void record_program(rig *r, const program *p, uint64_t *random)
{
    static const deviations none = {0};
    shadow s = {.count = 0};
    running x = {.r = r, .p = p, .d = &none, .random = random, .s = &s};
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.solve = &quick;
    assert_int_equal(berth_record_begin(r->planned, &options), BERTH_OK);
    run_program(&x);
    assert_int_equal(berth_record_end(r->planned), BERTH_OK);
    free_rest(&x);
}

static void check_figures(const program *p, const berth_report *report, bool strict)
{
    uint64_t inside = 0;
    for (uint32_t i = 0; i < p->count; i++)
        inside += p->freed_after[i] != MOST;
    assert_int_equal(report->planned, inside);
    assert_true(report->from_plan <= report->planned);
    assert_true(report->peak_with_plan_bytes == report->block_bytes + report->fallback_bytes);
    if (strict)
        assert_int_equal(report->by_fallback, 0);
    else
        assert_int_equal(report->refused, 0);
}

static void test_random_programs_with_deviations(void **state)
{
    (void)state;
    uint64_t random = 20260101;
    for (int round = 0; round < 160 / SCALE; round++) {
        rig r;
        rig_begin(&r);
        program p;
        make_program(&p, &random);
        record_program(&r, &p, &random);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            for (int strict = 0; strict < 2; strict++) {
                berth_report report = BERTH_REPORT_INIT;
                replay_once(&r, &p, &kinds[k], &random, strict, &report);
                check_figures(&p, &report, strict);
                assert_int_equal(report.bad_frees, 0);
                if (k == 0 || k == 2) { /* as recorded, or frees in another order between two allocations */
                    assert_int_equal(report.from_plan, report.planned);
                    assert_int_equal(report.deviation_count, 0);
                    assert_int_equal(report.refused, 0);
                    assert_int_equal(report.status, BERTH_OK);
                }
            }
        }
        rig_end(&r);
    }
}

/* The same program again after every deviation: a bad run must leave nothing behind. */
static void test_a_clean_run_follows_any_run(void **state)
{
    (void)state;
    uint64_t random = 77;
    for (int round = 0; round < 64 / SCALE; round++) {
        rig r;
        rig_begin(&r);
        program p;
        make_program(&p, &random);
        record_program(&r, &p, &random);
        for (size_t k = 1; k < sizeof kinds / sizeof *kinds; k++) {
            berth_report report = BERTH_REPORT_INIT;
            replay_once(&r, &p, &kinds[k], &random, false, &report);
            replay_once(&r, &p, &kinds[0], &random, true, &report);
            assert_int_equal(report.from_plan, report.planned);
            assert_int_equal(report.deviation_count, 0);
        }
        rig_end(&r);
    }
}

/* Envelopes of random programs that share their labels. */
static void test_envelopes_serve_every_part(void **state)
{
    (void)state;
    uint64_t random = 4242;
    for (int round = 0; round < 64 / SCALE; round++) {
        rig r;
        rig_begin(&r);
        program p[3];
        berth_plan *parts[3];
        make_program(&p[0], &random);
        for (int k = 0; k < 3; k++) {
            p[k] = p[0];
            for (uint32_t i = 0; k && i < p[0].count; i++)
                p[k].size[i] = 1 + below(&random, 400);
            assert_int_equal(berth_plan_create(&parts[k]), BERTH_OK);
            assert_int_equal(berth_planned_set_plan(r.planned, parts[k]), BERTH_OK);
            record_program(&r, &p[k], &random);
        }
        assert_int_equal(berth_plan_join(r.plan, parts, 3, &quick), BERTH_OK);
        assert_int_equal(berth_planned_set_plan(r.planned, r.plan), BERTH_OK);
        for (int k = 0; k < 3; k++) {
            berth_report report = BERTH_REPORT_INIT;
            replay_once(&r, &p[k], &kinds[0], &random, false, &report);
            assert_int_equal(report.from_plan, report.planned);
            assert_int_equal(report.by_fallback, 0);
        }
        for (int k = 0; k < 3; k++)
            berth_plan_release(parts[k]);
        rig_end(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs_with_deviations),
        cmocka_unit_test(test_a_clean_run_follows_any_run),
        cmocka_unit_test(test_envelopes_serve_every_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
