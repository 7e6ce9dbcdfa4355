/* Elastic replay: one allocation inserted, left out or resized, at every position of random programs, costs
 * at most one fallback and no more bytes than the stranger asked for, if it can be told from the next sixteen
 * that are planned; else what it costs is bounded, and counted. */
#include "rig.h"

enum { MOST = 60, NEXT = 16, PROGRAMS = 100 };

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

typedef struct one {
    uint32_t size;
    uint32_t freed_after; /* the position after whose allocation it is freed; MOST + 1: never inside */
    const char *label;
} one;

typedef struct program {
    uint32_t count;
    one all[MOST + 1];
} program;

static const char *const labels[] = {NULL, "a", "b", "c", "d"};

/* Few sizes or many, labels or none, lives short or long: whatever tells allocations apart is random too. */
static void make_program(program *p, uint64_t *random)
{
    p->count = 2 + below(random, MOST - 2);
    uint32_t sizes = 1 + below(random, 40), longest = 1 + below(random, 25);
    bool labelled = below(random, 2);
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t until = i + below(random, longest);
        p->all[i] = (one){.size = 64 * (1 + below(random, sizes)),
                          .freed_after = below(random, 15) == 0 ? MOST + 1 : until,
                          .label = labelled ? labels[below(random, 5)] : NULL};
    }
}

/* ---- Edits -------------------------------------------------------------------------------------------- */

typedef enum edit { INSERT, DELETE, RESIZE, EDITS } edit;

static bool labels_differ(const char *a, const char *b)
{
    return a && b && strcmp(a, b) != 0;
}

static bool alike(const one *a, const one *b)
{
    return a->size == b->size && !labels_differ(a->label, b->label);
}

/* Whether `x` can be told from the sixteen planned ones from `from` on. */
static bool stands_out(const program *p, uint32_t from, const one *x)
{
    for (uint32_t i = from; i < p->count && i < from + NEXT; i++)
        if (alike(&p->all[i], x))
            return false;
    return true;
}

/* The program with one edit at `at`. Lives are kept as they are: what was freed after an allocation still
 * is. Returns whether the edit can be told. */
static bool apply(const program *p, edit e, uint32_t at, const one *stranger, program *out)
{
    *out = *p;
    bool told = stands_out(p, at, stranger);
    if (e == RESIZE) { /* and what comes next from what it was */
        told = told && stands_out(p, at + 1, &p->all[at]);
        out->all[at].size = stranger->size;
        out->all[at].label = stranger->label;
        return told;
    }
    if (e == DELETE) {
        told = stands_out(p, at + 1, &p->all[at]);
        memmove(&out->all[at], &out->all[at + 1], (p->count - at - 1) * sizeof *out->all);
        out->count--;
    } else {
        memmove(&out->all[at + 1], &out->all[at], (p->count - at) * sizeof *out->all);
        out->all[at] = *stranger;
        out->count++;
    }
    int32_t shift = e == INSERT ? 1 : -1;
    for (uint32_t i = 0; i < out->count; i++)
        if ((e != INSERT || i != at) && out->all[i].freed_after >= at && out->all[i].freed_after <= MOST)
            out->all[i].freed_after = (uint32_t)((int32_t)out->all[i].freed_after + shift);
    return told;
}

/* ---- Running ------------------------------------------------------------------------------------------ */

static void *later[MOST + 1]; /* what a run has left, to be freed after its scope */

static void run(rig *r, const program *p)
{
    void *pointers[MOST + 1] = {0};
    for (uint32_t i = 0; i < p->count; i++) {
        berth_request request = BERTH_REQUEST_INIT;
        request.label = p->all[i].label;
        assert_int_equal(berth_allocate(r->planned, p->all[i].size, 64, &request, &pointers[i]), BERTH_OK);
        memset(pointers[i], (int)i, p->all[i].size);
        for (uint32_t k = 0; k <= i; k++) {
            if (!pointers[k] || p->all[k].freed_after > i)
                continue;
            for (uint32_t b = 0; b < p->all[k].size; b++)
                if (((unsigned char *)pointers[k])[b] != (unsigned char)k)
                    fail_msg("a live block was overwritten");
            give(r, pointers[k]);
            pointers[k] = NULL;
        }
    }
    for (uint32_t k = 0; k < p->count; k++)
        if (pointers[k] && p->all[k].freed_after <= MOST)
            give(r, pointers[k]), pointers[k] = NULL;
    for (uint32_t k = 0; k < p->count; k++)
        later[k] = pointers[k];
}

static void free_later(rig *r)
{
    for (uint32_t k = 0; k <= MOST; k++) {
        give(r, later[k]);
        later[k] = NULL;
    }
}

typedef struct tally {
    uint64_t told, untold, worst_untold;
} tally;

static void check(rig *r, const program *changed, bool told, uint32_t stranger_bytes, uint64_t outside_bytes,
                  tally *t)
{
    berth_report report = BERTH_REPORT_INIT;
    assert_int_equal(berth_replay_begin(r->planned, NULL), BERTH_OK);
    run(r, changed);
    assert_int_equal(berth_replay_end(r->planned, &report), BERTH_OK);
    free_later(r);
    assert_int_equal(report.bad_frees, 0);
    uint64_t served = report.from_plan + report.by_fallback + report.outside_plan + report.displaced;
    assert_int_equal(served, changed->count); /* every one is counted */
    *(told ? &t->told : &t->untold) += 1;
    if (!told) {
        assert_true(report.fallback_bytes <= outside_bytes + stranger_bytes + report.peak_without_plan_bytes);
        t->worst_untold = report.by_fallback > t->worst_untold ? report.by_fallback : t->worst_untold;
        return;
    }
    if (report.by_fallback > 1)
        fail_msg("one edit cost %llu fallbacks", (unsigned long long)report.by_fallback);
    if (report.fallback_bytes > outside_bytes + stranger_bytes)
        fail_msg("a stranger of %u bytes cost %llu beside the %llu outside the plan", stranger_bytes,
                 (unsigned long long)report.fallback_bytes, (unsigned long long)outside_bytes);
}

static uint64_t outside_bytes(const program *p)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < p->count; i++)
        bytes += p->all[i].freed_after > MOST ? p->all[i].size : 0;
    return bytes;
}

/* A stranger of a size of its own, far smaller, somewhat smaller or larger; or of a planned size and a label
 * of its own; or of any size and label, which may not be told. */
static one make_stranger(const program *p, uint32_t at, uint64_t *random)
{
    uint32_t size = p->all[at].size;
    one x = {.label = labels[below(random, 5)]};
    switch (below(random, 5)) {
    case 0:
        x.size = 1 + below(random, 60);
        break;
    case 1:
        x.size = size - 1 - below(random, 30);
        break;
    case 2:
        x.size = size + 1 + below(random, 4000) * 2;
        break;
    case 3:
        x.size = size;
        x.label = "stranger";
        break;
    default:
        x.size = 64 * (1 + below(random, 40));
        break;
    }
    uint32_t until = at + below(random, 20);
    x.freed_after = below(random, 4) == 0 ? MOST + 1 : until;
    return x;
}

static const berth_solve_options quick = {.struct_size = sizeof quick, .effort = BERTH_EFFORT_FAST};

static void test_one_edit_costs_one_fallback(void **state)
{
    (void)state;
    uint64_t random = 1515;
    tally t = {0};
    for (int round = 0; round < PROGRAMS; round++) {
        rig r;
        rig_begin(&r);
        program p, changed;
        make_program(&p, &random);
        berth_run_options options = BERTH_RUN_OPTIONS_INIT;
        options.solve = &quick;
        assert_int_equal(berth_record_begin(r.planned, &options), BERTH_OK);
        run(&r, &p);
        assert_int_equal(berth_record_end(r.planned), BERTH_OK);
        free_later(&r);
        for (uint32_t at = 0; at < p.count; at++)
            for (edit e = INSERT; e < EDITS; e++) {
                one stranger = make_stranger(&p, at, &random);
                bool told = apply(&p, e, at, &stranger, &changed);
                check(&r, &changed, told, e == DELETE ? 0 : stranger.size, outside_bytes(&p), &t);
            }
        rig_end(&r);
    }
    print_message("%llu edits told, %llu not: at most %llu fallbacks\n", (unsigned long long)t.told,
                  (unsigned long long)t.untold, (unsigned long long)t.worst_untold);
    assert_true(t.told > 3000);
    assert_true(t.untold > 100);
}

/* The case that was seen: growing blocks, and one more that is smaller than all. */
static void test_a_small_stranger_among_growing_blocks(void **state)
{
    (void)state;
    for (uint32_t at = 0; at < 20; at++) {
        rig r;
        rig_begin(&r);
        program p = {.count = 20}, changed;
        for (uint32_t i = 0; i < 20; i++)
            p.all[i] = (one){.size = 1000 * (i + 1), .freed_after = i + 2};
        assert_int_equal(berth_record_begin(r.planned, NULL), BERTH_OK);
        run(&r, &p);
        assert_int_equal(berth_record_end(r.planned), BERTH_OK);
        one stranger = {.size = 777, .freed_after = MOST + 1};
        apply(&p, INSERT, at, &stranger, &changed);
        berth_report report = BERTH_REPORT_INIT;
        assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OK);
        run(&r, &changed);
        assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
        free_later(&r);
        assert_int_equal(report.from_plan, 20);
        assert_int_equal(report.by_fallback, 1);
        assert_int_equal(report.fallback_bytes, 777);
        rig_end(&r);
    }
}

/* A program whose labels were all renamed, or whose order is another here and there, is still served. */
static void test_renamed_and_swapped_programs(void **state)
{
    (void)state;
    rig r;
    rig_begin(&r);
    program p = {.count = 40}, changed;
    for (uint32_t i = 0; i < 40; i++)
        p.all[i] = (one){.size = 100 * (i % 7 + 1), .freed_after = i + 3, .label = i % 2 ? "a" : "b"};
    assert_int_equal(berth_record_begin(r.planned, NULL), BERTH_OK);
    run(&r, &p);
    assert_int_equal(berth_record_end(r.planned), BERTH_OK);
    for (int way = 0; way < 2; way++) {
        changed = p;
        for (uint32_t i = 0; i < 40; i++) {
            if (way == 0)
                changed.all[i].label = i % 2 ? "c" : "d";
            else if (i % 10 == 5) {
                changed.all[i] = p.all[i + 1];
                changed.all[i + 1] = p.all[i];
                i++;
            }
        }
        berth_report report = BERTH_REPORT_INIT;
        assert_int_equal(berth_replay_begin(r.planned, NULL), BERTH_OK);
        run(&r, &changed);
        assert_int_equal(berth_replay_end(r.planned, &report), BERTH_OK);
        uint64_t most = way == 0 ? 1 : 4; /* a swap brings one forward, and its place may not be free yet */
        assert_true(report.by_fallback <= most);
        assert_int_equal(report.from_plan, 40 - report.by_fallback);
    }
    rig_end(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_edit_costs_one_fallback),
        cmocka_unit_test(test_a_small_stranger_among_growing_blocks),
        cmocka_unit_test(test_renamed_and_swapped_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
