/* The exact phase: which capacities are asked for, of which form of the problem, and for how long.
 *
 * A form is the problem itself or the problem welded (weld.c). The welded forms are smaller and find plans
 * where the whole is out of reach; only the whole proves that there is none. Beside the forms that stay there
 * are many that are welded afresh, each in a slightly different way, and looked at once: either what is left
 * falls into place at once, or something has been welded that does not belong together. The goal comes first
 * and gets the most steps, since stepping down by one unit is hopeless; capacities part of the way make sure
 * that something is gained where the goal is out of reach, and the last, one below the best, is the proof.
 * Slices grow, and every form keeps what it has learned from one to the next. */
#include "planner/engine/phases.h"
#include "planner/exact/exact.h"
#include "planner/merge/weld.h"

enum {
    FORMS = BERTH__WELD_LEVELS + 1,
    LOOK_STEPS = 60000,
    FRESH_STEPS = 10000,
    FIRST_SLICE = 100000,
    LARGEST_WELDED = 20000
};

typedef struct form {
    berth__welded welded; /* empty: the whole */
    berth__exact *exact;  /* NULL: too large, or as another */
    bool is_whole;
    bool is_refuted; /* and at which capacity, so that no smaller one is asked for */
    uint64_t refuted_at;
} form;

typedef struct asking {
    berth__search *search;
    form forms[FORMS];
    uint64_t *offsets, *expanded;
    uint64_t fresh; /* how many have been welded afresh */
} asking;

static berth_status make_form(asking *a, form *f, int level)
{
    const berth__prepared *whole = a->search->prepared, *prepared = whole;
    f->is_whole = level == BERTH__WELD_LEVELS;
    if (!f->is_whole) {
        if (whole->item_count > LARGEST_WELDED)
            return BERTH_OK;
        berth_status status = berth__weld(whole, (berth__weld_level)level, 0, a->search, &f->welded);
        if (status)
            return status;
        prepared = &f->welded.prepared;
        if (prepared->item_count == whole->item_count)
            return BERTH_OK; /* nothing was welded */
    }
    if (!berth__exact_can(prepared))
        return BERTH_OK;
    return berth__exact_create(prepared, a->search->seed, BERTH__EXACT_BEST, &f->exact);
}

/* The smallest form first. */
static berth_status begin(asking *a, berth__search *search)
{
    const uint32_t items = search->prepared->item_count;
    *a = (asking){.search = search};
    a->offsets = berth__heap_alloc(items * sizeof *a->offsets);
    a->expanded = berth__heap_alloc(items * sizeof *a->expanded);
    if (!a->offsets || !a->expanded)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %u offsets", items);
    berth_status status = BERTH_OK;
    for (int k = 0; k < BERTH__WELD_LEVELS && !status; k++)
        status = make_form(a, &a->forms[k], BERTH__WELD_LEVELS - 1 - k);
    return status ? status : make_form(a, &a->forms[FORMS - 1], BERTH__WELD_LEVELS);
}

static void end(asking *a)
{
    for (int k = 0; k < FORMS; k++) {
        berth__exact_destroy(a->forms[k].exact);
        berth__welded_finish(&a->forms[k].welded);
    }
    berth__heap_free(a->offsets);
    berth__heap_free(a->expanded);
}

/* One question about one form, and what follows from the answer; `answered` tells whether there was one. */
static berth_status ask(asking *a, form *f, uint64_t target, uint64_t steps, bool *answered)
{
    *answered = false;
    if (!f->exact || (f->is_refuted && target <= f->refuted_at))
        return BERTH_OK;
    BERTH_DCHECK(target < a->search->best_peak || a->search->best_peak == UINT64_MAX,
                 "[L18] what is asked is better than the best plan");
    berth__exact_answer answer;
    berth_status status = berth__exact_run(f->exact, a->search, target, steps, a->offsets, &answer);
    if (status || answer == BERTH__EXACT_UNKNOWN)
        return status;
    *answered = true;
    if (answer == BERTH__EXACT_INFEASIBLE) {
        f->is_refuted = true;
        f->refuted_at = target;
        if (f->is_whole)
            berth__search_prove(a->search, target + 1);
    } else if (f->is_whole) {
        berth__search_offer(a->search, a->offsets, "exact");
    } else {
        berth__welded_expand(&f->welded, a->offsets, a->expanded);
        berth__search_offer(a->search, a->expanded, "exact, welded");
    }
    return BERTH_OK;
}

/* Asks the whole, and as long as it answers, half way between what is known: a small problem is proven in a few questions,
 * whatever lies between its bound and its plan (pins do that). */
static berth_status ask_on(asking *a, form *whole, uint64_t target, uint64_t steps)
{
    bool answered = true;
    berth_status status = BERTH_OK;
    while (answered && !status && berth__search_goes_on(a->search, UINT64_MAX)) {
        status = ask(a, whole, target, steps, &answered);
        const uint64_t goal = berth__search_goal(a->search);
        target = goal + (a->search->best_peak - 1 - goal) / 2;
    }
    return status;
}

static bool can_ask(const asking *a)
{
    for (int k = 0; k < FORMS; k++)
        if (a->forms[k].exact && (a->forms[k].is_whole || !a->forms[k].is_refuted))
            return true;
    return false;
}

/* Every third is welded with care. Most get few steps, every second twice as many, every fourth four times.
 */
static berth_status ask_afresh(asking *a, uint64_t target)
{
    const uint64_t number = ++a->fresh;
    form f = {0};
    bool answered;
    berth_status status =
        berth__weld(a->search->prepared, number % 3 ? BERTH__WELD_COLUMNS : BERTH__WELD_SUCCESSORS,
                    a->search->seed * 0x9E3779B97F4A7C15U + number, a->search, &f.welded);
    if (status)
        return status;
    if (berth__exact_can(&f.welded.prepared))
        status = berth__exact_create(&f.welded.prepared, a->search->seed, BERTH__EXACT_BEST, &f.exact);
    if (!status)
        status = ask(a, &f, target, (uint64_t)FRESH_STEPS << __builtin_ctzll(number), &answered);
    berth__exact_destroy(f.exact);
    berth__welded_finish(&f.welded);
    return status;
}

/* Where fitting is enough, what lies between the goal and the best is of no use. */
static uint64_t choose_target(const berth__search *search, unsigned turn)
{
    static const double parts[] = {0.0, 0.5, 0.0, 0.25, 0.0, 0.75, 0.0, 1.0};
    const bool fitting_is_enough = search->capacity != BERTH__NO_CAPACITY && !search->minimise;
    const uint64_t goal = berth__search_goal(search), excess = search->best_peak - goal;
    const double part = fitting_is_enough ? 0.0 : parts[turn % BERTH_COUNT_OF(parts)];
    const uint64_t target = goal + (uint64_t)((double)(excess - 1) * part);
    BERTH_DCHECK(search->best_peak > goal && target >= goal,
                 "[L18] what is asked lies between goal and best plan");
    return target < search->best_peak ? target : search->best_peak - 1;
}

berth_status berth__phase_exact(berth__search *search)
{
    asking a;
    berth_status status = begin(&a, search);
    uint64_t slice = FIRST_SLICE;
    for (unsigned turn = 0; !status && berth__search_goes_on(search, UINT64_MAX) && can_ask(&a); turn++) {
        const uint64_t until = search->steps + 8 * slice;
        while (a.forms[0].exact && !status && berth__search_goes_on(search, until))
            status = ask_afresh(&a, choose_target(search, turn));
        for (int k = 0; k < FORMS && !status && !search->stopped; k++) {
            const uint64_t target = choose_target(search, turn);
            const uint64_t steps = target == berth__search_goal(search) ? 4 * slice : slice;
            bool answered;
            status = a.forms[k].is_whole ? ask_on(&a, &a.forms[k], target, steps)
                                         : ask(&a, &a.forms[k], target, steps, &answered);
        }
        if (turn % 2 == 1)
            slice += slice / 4;
    }
    end(&a);
    return status;
}

berth_status berth__phase_exact_look(berth__search *search)
{
    if (!berth__exact_can(search->prepared))
        return BERTH_OK;
    asking a = {.search = search};
    a.offsets = berth__heap_alloc(search->prepared->item_count * sizeof *a.offsets);
    berth_status status = BERTH_OK;
    if (!a.offsets)
        status =
            berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %u offsets", search->prepared->item_count);
    if (!status)
        status = make_form(&a, &a.forms[FORMS - 1], BERTH__WELD_LEVELS);
    if (!status)
        status = ask_on(&a, &a.forms[FORMS - 1], berth__search_goal(search), LOOK_STEPS);
    end(&a);
    return status;
}
