/* What grew between two recordings: made with a known cause, the cause must be named first. Random programs run twice, in the second
 * run at other addresses, with lines moved, with noise, and with one change: a label that grows by 7 %, or a leak at one site. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cli/compare.h"

enum { SITES = 24, LABELS = 9, OPS = 4000, NOISE_SITE = SITES, PROGRAMS = 150 };

static uint64_t state_of_random;
static uint32_t any(uint32_t below)
{
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state_of_random >> 33) % below;
}

/* ---- Programs ----------------------------------------------------------------------------------------- */

/* What one step does: an allocation, or the free of what an earlier step allocated. */
typedef struct op {
    bool frees;
    uint32_t site, label, target;
    uint64_t size;
} op;

/* The program grows and shrinks by turns, so that it has several peaks of about one height. */
static void make_program(op *ops)
{
    uint32_t live[OPS], live_count = 0;
    for (uint32_t i = 0; i < OPS; i++) {
        const bool shrinks = i / 500 % 2;
        if (live_count && any(10) < (shrinks ? 7u : 3u)) {
            uint32_t k = any(live_count);
            ops[i] = (op){.frees = true, .target = live[k]};
            live[k] = live[--live_count];
        } else {
            uint32_t site = any(SITES);
            ops[i] =
                (op){.site = site, .label = any(4) ? site % LABELS : any(LABELS), .size = 2048 + any(60000)};
            live[live_count++] = i;
        }
    }
}

typedef struct change {
    uint32_t label, leak; /* UINT32_MAX: none */
    uint32_t line_shift;
    uint64_t base;  /* of addresses */
    uint32_t noise; /* one allocation of 16 bytes in so many */
} change;

static uint32_t text(format_history *h, const char *words)
{
    return format_history_text(h, words, strlen(words));
}

static uint32_t site_frame(format_history *h, const change *how, uint32_t site)
{
    char name[40];
    format_frame main_frame = {
        .function = text(h, "main"), .file = text(h, "/b/main.c"), .line = 7 + how->line_shift};
    snprintf(name, sizeof name, "work_%u", site / 2); /* two sites are two lines of one function */
    format_frame f = {.caller = format_history_frame(h, &main_frame),
                      .function = text(h, name),
                      .file = text(h, how->line_shift ? "/home/other/work.c" : "/home/one/work.c"),
                      .line = 10 * site + 5 + how->line_shift,
                      .address = how->base + site * 64};
    format_frame by_malloc = {.caller = format_history_frame(h, &f), .function = text(h, "malloc")};
    return format_history_frame(h, &by_malloc);
}

/* Whether a run has leaked what this step would free. */
static bool leaks(const op *ops, uint32_t target, const change *how)
{
    return ops[target].site == how->leak && target % 3 == 0;
}

static uint64_t size_of(const op *o, const change *how)
{
    return o->label == how->label ? o->size + o->size * 7 / 100 : o->size;
}

static void run_program(const op *ops, const change *how, format_history *h)
{
    char label[16];
    assert_true(format_history_init(h, "test"));
    uint64_t noise_at = how->base + ((uint64_t)1 << 40);
    for (uint32_t i = 0; i < OPS; i++) {
        const op *o = &ops[i];
        if (how->noise && any(how->noise) == 0)
            format_history_alloc(h, &(format_block){.address = noise_at += 64,
                                                    .size_bytes = 16,
                                                    .begin_ns = i,
                                                    .stack = site_frame(h, how, NOISE_SITE)});
        if (o->frees) {
            if (!leaks(ops, o->target, how))
                assert_true(format_history_free(h, 0, 0, how->base + (uint64_t)o->target * 131072, i));
            continue;
        }
        snprintf(label, sizeof label, "label %u", o->label);
        format_history_alloc(h, &(format_block){.address = how->base + (uint64_t)i * 131072,
                                                .size_bytes = size_of(o, how),
                                                .begin_ns = i,
                                                .stack = site_frame(h, how, o->site),
                                                .label = text(h, label)});
    }
    format_history_close(h);
}

/* ---- Truth -------------------------------------------------------------------------------------------- */

static bool is_live(const op *ops, uint32_t alloc, uint32_t step, const change *how)
{
    if (ops[alloc].frees || alloc > step)
        return false;
    for (uint32_t i = alloc + 1; i <= step; i++)
        if (ops[i].frees && ops[i].target == alloc)
            return leaks(ops, alloc, how);
    return true;
}

/* How much the cause holds more after a step than without the change. */
static uint64_t true_growth(const op *ops, uint32_t step, const change *was, const change *is)
{
    uint64_t growth = 0;
    for (uint32_t i = 0; i <= step; i++)
        if (ops[i].label == is->label || ops[i].site == is->leak)
            growth += (is_live(ops, i, step, is) ? size_of(&ops[i], is) : 0) -
                      (is_live(ops, i, step, was) ? size_of(&ops[i], was) : 0);
    return growth;
}

/* ---- Properties --------------------------------------------------------------------------------------- */

static void check_first(const compare *c, const compare_table *t, compare_order order, const char *expected)
{
    char name[HOLDERS_NAME_ROOM];
    uint32_t *sorted = compare_sorted(t, order);
    assert_non_null(sorted);
    assert_string_equal(compare_name(c, t, &t->rows[sorted[0]], name), expected);
    free(sorted);
}

static void check_sums(const compare *c, const compare_table *t)
{
    for (int side = 0; side < SIDES; side++) {
        uint64_t peak = 0, total = 0, end = 0, allocations = 0;
        for (uint32_t i = 0; i < t->count; i++) {
            peak += t->rows[i].of[side].peak_bytes;
            end += t->rows[i].of[side].end_bytes;
            total += t->rows[i].of[side].total_bytes;
            allocations += t->rows[i].of[side].allocations;
        }
        assert_int_equal(peak, c->all[side].peak_bytes);
        assert_int_equal(end, c->all[side].end_bytes);
        assert_int_equal(total, c->all[side].total_bytes);
        assert_int_equal(allocations, c->all[side].allocations);
    }
    assert_int_equal(c->all[AFTER].peak_bytes, c->peak[AFTER].bytes);
}

/* Runs a program twice and asks what grew. How many of the questions had an answer that noise cannot hide. */
static int try_program(uint64_t seed, bool leak)
{
    static op ops[OPS];
    format_history before, after;
    compare c;
    char expected[HOLDERS_NAME_ROOM];
    state_of_random = seed;
    make_program(ops);
    const change was = {.label = UINT32_MAX, .leak = UINT32_MAX, .base = 1 << 20, .noise = 50};
    const change is = {.label = leak ? UINT32_MAX : any(LABELS),
                       .leak = leak ? any(SITES) : UINT32_MAX,
                       .line_shift = 1 + any(100),
                       .base = (uint64_t)(2 + any(1000)) << 32,
                       .noise = 30 + any(40)};
    run_program(ops, &was, &before);
    run_program(ops, &is, &after);
    assert_true(compare_init(&c, &before, 0, &after, 0));
    check_sums(&c, &c.sites);
    check_sums(&c, &c.labels);
    const uint64_t noise = 16 * OPS / 20;
    const uint32_t step = (uint32_t)c.peak[AFTER].time_ns;
    int asked = 0;
    if (leak)
        snprintf(expected, sizeof expected, "work_%u (work.c:%u)", is.leak / 2,
                 10 * is.leak + 5 + is.line_shift);
    else
        snprintf(expected, sizeof expected, "label %u", is.label);
    const compare_table *t = leak ? &c.sites : &c.labels;
    if (true_growth(ops, step, &was, &is) > noise && ++asked)
        check_first(&c, t, COMPARE_AT_PEAK, expected);
    if (true_growth(ops, OPS - 1, &was, &is) > noise && ++asked)
        check_first(&c, t, COMPARE_AT_END, expected);
    if (!leak && ++asked)
        check_first(&c, t, COMPARE_IN_ALL, expected);
    compare_finish(&c);
    format_history_finish(&before);
    format_history_finish(&after);
    return asked;
}

static void test_a_label_that_grew_is_named_first(void **state)
{
    (void)state;
    int asked = 0;
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++)
        asked += try_program(seed, false);
    assert_in_range(asked, PROGRAMS * 2, PROGRAMS * 3);
}

static void test_a_leak_is_named_first(void **state)
{
    (void)state;
    int asked = 0;
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++)
        asked += try_program(seed * 7919, true);
    assert_in_range(asked, PROGRAMS, PROGRAMS * 2);
}

/* ---- Cases -------------------------------------------------------------------------------------------- */

static uint32_t frame(format_history *h, uint32_t caller, const char *function, const char *file,
                      uint32_t line)
{
    return format_history_frame(
        h, &(format_frame){
               .caller = caller, .function = text(h, function), .file = text(h, file), .line = line});
}

static void alloc(format_history *h, uint64_t address, uint64_t size, uint32_t stack)
{
    format_history_alloc(h, &(format_block){.address = address, .size_bytes = size, .stack = stack});
}

/* The first phase is the peak before, a leak of 20 makes the second one the peak: the second phase did not grow. */
static void phases(format_history *h, uint64_t leak)
{
    assert_true(format_history_init(h, "test"));
    uint32_t first = frame(h, 0, "first", "a.c", 1), second = frame(h, 0, "second", "a.c", 2);
    uint32_t leaking = frame(h, 0, "leaking", "a.c", 3);
    alloc(h, 16, 1000, first);
    format_history_free(h, 0, 0, 16, 1);
    for (uint64_t i = 0; i < leak; i++)
        alloc(h, 4096 + 16 * i, 1, leaking);
    alloc(h, 16, 990, second);
    format_history_free(h, 0, 0, 16, 1);
    format_history_close(h);
}

static void test_a_peak_that_moves_shows_its_cause(void **state)
{
    (void)state;
    format_history before, after;
    compare c;
    phases(&before, 0);
    phases(&after, 20);
    assert_true(compare_init(&c, &before, 0, &after, 0));
    check_first(&c, &c.sites, COMPARE_AT_PEAK, "leaking (a.c:3)");
    assert_int_equal(c.peak[BEFORE].bytes, 1000);
    assert_int_equal(c.peak[AFTER].bytes, 1010);
    assert_int_equal(c.all[BEFORE].peak_bytes, 990);
    compare_finish(&c);
    format_history_finish(&before);
    format_history_finish(&after);
}

/* A function in a moved file, one that the compiler has copied, and a function that has a line more. */
static void test_places_that_moved_are_the_same(void **state)
{
    (void)state;
    format_history before, after;
    compare c;
    assert_true(format_history_init(&before, "test"));
    alloc(&before, 16, 10, frame(&before, 0, "moved", "old.c", 1));
    alloc(&before, 32, 10, frame(&before, 0, "copied", "a.c", 1));
    alloc(&before, 48, 10, frame(&before, 0, "edited", "a.c", 20));
    alloc(&before, 64, 10, frame(&before, 0, "same", "a.c", 30));
    alloc(&before, 80, 10, frame(&before, 0, "same", "b.c", 30));
    format_history_close(&before);
    assert_true(format_history_init(&after, "test"));
    alloc(&after, 16, 10, frame(&after, 0, "moved", "new.c", 9));
    alloc(&after, 32, 10, frame(&after, 0, "copied.constprop.0", "a.c", 1));
    alloc(&after, 48, 10, frame(&after, 0, "edited", "a.c", 20));
    alloc(&after, 50, 10, frame(&after, 0, "edited", "a.c", 25));
    alloc(&after, 64, 10, frame(&after, 0, "same", "a.c", 35));
    alloc(&after, 80, 10, frame(&after, 0, "same", "b.c", 33));
    format_history_close(&after);
    assert_true(compare_init(&c, &before, 0, &after, 0));
    assert_int_equal(c.sites.count, 5);
    for (uint32_t i = 0; i < c.sites.count; i++)
        assert_true(c.sites.rows[i].is_in[BEFORE] && c.sites.rows[i].is_in[AFTER]);
    assert_true(c.sites.rows[0].lines_merged);
    assert_int_equal(compare_growth(&c.sites.rows[0], COMPARE_AT_PEAK), 10);
    compare_finish(&c);
    format_history_finish(&before);
    format_history_finish(&after);
}

static void test_callers_lead_to_who_asked_for_more(void **state)
{
    (void)state;
    format_history h[SIDES];
    compare c;
    char name[HOLDERS_NAME_ROOM];
    for (int side = 0; side < SIDES; side++) {
        assert_true(format_history_init(&h[side], "test"));
        uint32_t outer = frame(&h[side], 0, "main", "m.c", 1);
        uint32_t steady = frame(&h[side], outer, "steady", "m.c", 5),
                 grows = frame(&h[side], outer, "grows", "m.c", 9);
        alloc(&h[side], 16, 5000, frame(&h[side], steady, "get", "get.c", 3));
        alloc(&h[side], 32, side == AFTER ? 300 : 100, frame(&h[side], grows, "get", "get.c", 3));
        format_history_close(&h[side]);
    }
    assert_true(compare_init(&c, &h[BEFORE], 0, &h[AFTER], 0));
    uint32_t frames[4];
    assert_int_equal(compare_callers(&c, &c.sites.rows[0], frames, 4), 2);
    assert_string_equal(holders_frame_name(&h[AFTER], frames[0], name), "grows (m.c:9)");
    assert_string_equal(holders_frame_name(&h[AFTER], frames[1], name), "main (m.c:1)");
    compare_finish(&c);
    format_history_finish(&h[BEFORE]);
    format_history_finish(&h[AFTER]);
}

static void test_nothing_is_compared_with_something(void **state)
{
    (void)state;
    format_history before, after;
    compare c;
    assert_true(format_history_init(&before, "test"));
    format_history_close(&before);
    phases(&after, 3);
    assert_true(compare_init(&c, &before, 0, &after, 0));
    assert_int_equal(c.all[BEFORE].peak_bytes, 0);
    check_first(&c, &c.sites, COMPARE_AT_PEAK, "first (a.c:1)");
    compare_finish(&c);
    assert_true(compare_init(&c, &after, 0, &before, 0));
    assert_int_equal(c.peak[AFTER].bytes, 0);
    compare_finish(&c);
    assert_true(compare_init(&c, &before, 0, &before, 0));
    compare_finish(&c);
    format_history_finish(&before);
    format_history_finish(&after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_label_that_grew_is_named_first),
        cmocka_unit_test(test_a_leak_is_named_first),
        cmocka_unit_test(test_a_peak_that_moves_shows_its_cause),
        cmocka_unit_test(test_places_that_moved_are_the_same),
        cmocka_unit_test(test_callers_lead_to_who_asked_for_more),
        cmocka_unit_test(test_nothing_is_compared_with_something),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
