/* The front of the planner: finds the solver, lets it search, and puts the certificate together. */
#include <stdio.h>
#include <string.h>

#include "planner/engine/pipeline.h"
#include "planner/engine/solver.h"
#include "planner/place/stack.h"
#include "planner/problem/bound.h"
#include "planner/problem/prepared.h"
#include "planner/problem/rules.h"

static const berth__solver *const solvers[] = {
    &berth__solver_auto,
    &berth__solver_greedy,
    &berth__solver_first_fit_size,
    &berth__solver_first_fit_area,
    &berth__solver_first_fit_breadth,
    &berth__solver_best_fit_size,
    &berth__solver_best_fit_area,
    &berth__solver_best_fit_breadth,
};

const char *berth_solver_name(size_t index)
{
    return index < BERTH_COUNT_OF(solvers) ? solvers[index]->name : NULL;
}

const char *berth_solver_about(size_t index)
{
    return index < BERTH_COUNT_OF(solvers) ? solvers[index]->about : NULL;
}

const char *berth_phase_name(size_t index)
{
    for (size_t i = 0; berth__phases[i].name; i++)
        if (i == index)
            return berth__phases[i].name;
    return NULL;
}

const char *berth_phase_about(size_t index)
{
    return berth_phase_name(index) ? berth__phases[index].about : NULL;
}

/* Whether the phases that are to be left out exist; they have commas between. */
static berth_status phases_exist(const char *list)
{
    for (const char *at = list; at && *at; at += *at == ',') {
        const size_t length = strcspn(at, ",");
        size_t k = 0;
        while (berth_phase_name(k) &&
               (strlen(berth_phase_name(k)) != length || strncmp(at, berth_phase_name(k), length) != 0))
            k++;
        if (!berth_phase_name(k))
            return berth__fail(BERTH_NOT_FOUND, "there is no phase '%.*s'", (int)length, at);
        at += length;
    }
    return BERTH_OK;
}

static const berth__solver *find_solver(const char *name)
{
    for (size_t i = 0; i < BERTH_COUNT_OF(solvers); i++)
        if (!name || strcmp(name, solvers[i]->name) == 0)
            return solvers[i];
    return NULL;
}

/* ---- The search ---------------------------------------------------------------------------------- */

/* A clock is looked at this often at most; a step is some tens of nanoseconds. */
enum { STEPS_A_REPORT = 4096 };

static bool stop(berth__search *search, berth_stop why)
{
    if (!search->stopped) {
        BERTH_DCHECK(why != BERTH_STOP_DONE, "[L6] who stops a search says why");
        search->stopped = true;
        search->stop = why;
    }
    return true;
}

/* Reports, and schedules the next report. */
static bool solve_report(berth__search *search)
{
    BERTH_DCHECK(search->steps >= search->reported_steps, "[L6] steps are never given back");
    BERTH_DCHECK(search->lower_bound <= search->best_peak, "[L3] no bound is above a plan");
    search->reported_steps = search->steps;
    search->next_report = search->steps + STEPS_A_REPORT;
    if (search->steps >= search->step_budget)
        return stop(search, BERTH_STOP_STEPS);
    if (search->next_report > search->step_budget)
        search->next_report = search->step_budget;
    if (!search->progress || search->stopped)
        return search->stopped;
    uint64_t unit = search->prepared->unit_bytes;
    berth_progress progress = {.struct_size = sizeof progress,
                               .phase = search->phase,
                               .best_bytes =
                                   search->best_peak == UINT64_MAX ? UINT64_MAX : search->best_peak * unit,
                               .lower_bound_bytes = search->lower_bound * unit,
                               .steps = search->steps};
    berth_stop answer = search->progress(search->context, &progress);
    if (answer == BERTH_STOP_DONE)
        return false;
    /* who answers what only a search can know wants it to end, and has proven nothing */
    return stop(search, answer == BERTH_STOP_CANCELLED ? answer : BERTH_STOP_CLOCK);
}

bool berth__search_step_slow(berth__search *search)
{
    return search->stopped || solve_report(search);
}

static bool look_whether_over(berth__search *search);

bool berth__search_resume(berth__search *search)
{
    if (search->stopped && search->stop == BERTH_STOP_STEPS && search->steps < search->step_budget) {
        search->stopped = false;
        search->stop = BERTH_STOP_DONE;
        search->next_report = search->steps;
        return !look_whether_over(search); /* the last plan may have come after the stop */
    }
    return !search->stopped;
}

bool berth__search_phase(berth__search *search, const char *phase)
{
    search->phase = phase;
    BERTH_DCHECK(phase && search->steps >= search->reported_steps, "[L18] a phase has a name");
    return search->stopped || solve_report(search);
}

uint64_t berth__search_goal(const berth__search *search)
{
    bool fitting_is_enough = search->capacity != BERTH__NO_CAPACITY && !search->minimise;
    return fitting_is_enough && search->capacity > search->lower_bound ? search->capacity
                                                                       : search->lower_bound;
}

static bool look_whether_over(berth__search *search)
{
    if (search->best_peak <= search->lower_bound)
        return stop(search, BERTH_STOP_OPTIMAL);
    if (search->best_peak <= berth__search_goal(search))
        return stop(search, BERTH_STOP_FITS);
    if (search->capacity < search->lower_bound &&
        !search->minimise) /* nothing fits, and that is the answer */
        return stop(search, BERTH_STOP_INFEASIBLE);
    return search->stopped;
}

bool berth__search_offer(berth__search *search, const uint64_t *offsets, const char *solver)
{
    uint64_t peak = berth__prepared_peak(search->prepared, offsets);
    BERTH_DCHECK(peak >= search->lower_bound, "[L3] no plan ends below the bound");
    if (peak >= search->best_peak)
        return search->stopped;
    search->best_peak = peak;
    BERTH_DCHECK(search->prepared->item_count > 0 && search->best, "[L3] there is room for a plan");
    memcpy(search->best, offsets, search->prepared->item_count * sizeof *offsets);
    snprintf(search->best_solver, sizeof search->best_solver, "%s", solver);
    return look_whether_over(search);
}

bool berth__search_prove(berth__search *search, uint64_t bound)
{
    BERTH_DCHECK(bound <= search->best_peak, "[L3] no bound is above a plan");
    if (bound > search->lower_bound)
        search->lower_bound = bound;
    return look_whether_over(search);
}

/* ---- The front ----------------------------------------------------------------------------------- */

static berth_solve_options options_or_default(const berth_solve_options *options)
{
    berth_solve_options complete = {.struct_size = sizeof complete};
    if (options)
        memcpy(&complete, options,
               options->struct_size < sizeof complete ? options->struct_size : sizeof complete);
    return complete;
}

/* Nothing is as quick. */
static berth_status offer_a_stack(berth__search *search)
{
    const size_t count = search->prepared->item_count;
    uint64_t *offsets = berth__heap_alloc(count * sizeof *offsets);
    if (!offsets)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %zu offsets", count);
    memset(offsets, 0xff, count * sizeof *offsets); /* BERTH_NO_OFFSET */
    berth__stack_above(search->prepared, offsets);
    berth__search_offer(search, offsets, "stack");
    berth__heap_free(offsets);
    return BERTH_OK;
}

/* A stop that came before the first plan leaves none; then one is made after all, unless the caller wants
 * none: by the fastest solver where only steps are short, by stacking where time is. A proof that nothing fits
 * ends a search, but not the making of its only plan. */
static berth_status plan_after_all(berth__search *search)
{
    const berth_stop why = search->stop;
    if (why == BERTH_STOP_CANCELLED)
        return BERTH_OK;
    if (why == BERTH_STOP_CLOCK)
        return offer_a_stack(search);
    if (why == BERTH_STOP_INFEASIBLE)
        search->stopped = false;
    berth_status status = berth__solver_greedy.run(search);
    if (why == BERTH_STOP_INFEASIBLE && search->stop == BERTH_STOP_STEPS)
        search->stop = why; /* the proof came first */
    return status;
}

static berth_status search_run(berth__search *search, const berth__solver *solver)
{
    berth_status status = berth__bound(search->prepared, &search->lower_bound);
    BERTH_DCHECK(status || search->lower_bound >= search->prepared->max_live,
                 "[L3] the bound is at least what is live");
    if (!status)
        status = solver->run(search);
    if (!status && search->best_peak == UINT64_MAX)
        status = plan_after_all(search);
    if (!status && search->best_peak == UINT64_MAX)
        status = berth__fail(BERTH_CANCELLED, "stopped before there was any plan");
    return status;
}

static berth_fits fits(const berth__search *search)
{
    if (search->capacity == BERTH__NO_CAPACITY || search->best_peak <= search->capacity)
        return BERTH_FITS_YES;
    return search->lower_bound > search->capacity ? BERTH_FITS_NO : BERTH_FITS_UNKNOWN;
}

/* What the certificate says of the problem itself. Found before the search, which needs the problem no more. */
static berth_status certify_problem(const berth_problem *problem, const berth__prepared *prepared,
                                    berth_certificate *c)
{
    c->binding_time = prepared->max_live_time;
    c->max_live_bytes = prepared->max_live * prepared->unit_bytes;
    for (size_t i = 0; i < problem->buffer_count; i++)
        c->naive_bytes += berth__rules_size(problem, &problem->buffers[i]);
    c->binding_buffers = berth__rules_live(problem, c->binding_time, NULL, 0);
    return berth__rules_fingerprint(problem, &c->fingerprint);
}

static void certify_search(const berth__search *search, berth_certificate *c)
{
    const uint64_t unit = search->prepared->unit_bytes;
    BERTH_DCHECK(search->best_peak == UINT64_MAX || search->lower_bound <= search->best_peak,
                 "[L3] no bound is above a plan");
    c->lower_bound_bytes = search->lower_bound * unit;
    c->peak_bytes = search->best_peak * unit;
    c->proven_optimal = search->best_peak <= search->lower_bound;
    c->fits = fits(search);
    c->stopped_by = search->stop;
    c->steps = search->steps;
    c->seed = search->seed;
    if (c->fits == BERTH_FITS_NO && (c->stopped_by == BERTH_STOP_DONE || c->stopped_by == BERTH_STOP_OPTIMAL))
        c->stopped_by = BERTH_STOP_INFEASIBLE;
    memcpy(c->solver, search->best_solver, sizeof c->solver);
}

static berth_status solve_prepared(const berth__solver *solver, const berth_solve_options *options,
                                   const berth__prepared *prepared, uint64_t *offsets, berth_certificate *c)
{
    berth__search search = {.prepared = prepared,
                            .solver = solver->name,
                            .seed = options->seed,
                            .capacity = prepared->capacity,
                            .minimise = options->minimise,
                            .without = options->without,
                            .effort = options->effort,
                            .step_budget = options->step_budget ? options->step_budget : UINT64_MAX,
                            .progress = options->progress,
                            .context = options->context,
                            .phase = solver->name,
                            .best_peak = UINT64_MAX};
    if (prepared->item_count == 0) { /* nobody ever lives: nothing to search for */
        search.best_peak = 0;
        search.stop = BERTH_STOP_OPTIMAL;
        snprintf(search.best_solver, sizeof search.best_solver, "%s", solver->name);
        berth__prepared_expand(prepared, NULL, offsets);
        certify_search(&search, c);
        return BERTH_OK;
    }
    search.best = berth__heap_alloc(prepared->item_count * sizeof *search.best);
    if (!search.best)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a plan of %u buffers",
                           prepared->item_count);
    berth_status status = search_run(&search, solver);
    if (!status) {
        BERTH_DCHECK(search.best_peak == berth__prepared_peak(prepared, search.best),
                     "[L3] the peak is the largest end of the best plan");
        berth__prepared_expand(prepared, search.best, offsets);
    }
    berth__heap_free(search.best);
    certify_search(&search, c);
    return status;
}

berth_status berth__prove(const berth_problem *problem, const uint64_t *offsets,
                          const berth_certificate *certificate)
{
    berth_verdict verdict = {.struct_size = sizeof verdict};
    berth_status status = berth__rules_check(problem, offsets, &verdict); /* its numbers were looked at */
    if (status == BERTH_MISMATCH)
        return berth__fail(BERTH_INTERNAL, "the planner made a plan that its checker refuses: %s",
                           verdict.words);
    if (!status && verdict.peak_bytes != certificate->peak_bytes)
        return berth__fail(
            BERTH_INTERNAL, "the planner says that its plan needs %llu bytes, its checker that it needs %llu",
            (unsigned long long)certificate->peak_bytes, (unsigned long long)verdict.peak_bytes);
    if (!status && certificate->peak_bytes < certificate->lower_bound_bytes)
        return berth__fail(BERTH_INTERNAL, "the planner says that %llu bytes suffice and that %llu do not",
                           (unsigned long long)certificate->peak_bytes,
                           (unsigned long long)certificate->lower_bound_bytes - 1);
    return status;
}

berth_status berth_solve(const berth_problem *problem, const berth_solve_options *options, uint64_t *offsets,
                         berth_certificate *certificate)
{
    return berth__solve(problem, options, offsets, certificate, NULL);
}

/* A problem whose numbers are right, with memory that goes from phase to phase. */
static berth_status solve_and_prove(const berth_problem *problem, const berth__solver *solver,
                                    const berth_solve_options *options, uint64_t *offsets, bool certified,
                                    berth_certificate *c, const berth__solve_pause *pause)
{
    berth__prepared prepared;
    berth_status status = berth__prepared_init(&prepared, problem);
    if (status)
        return status;
    status = certified ? certify_problem(problem, &prepared, c) : BERTH_OK;
    if (pause)
        pause->begin(pause->context);
    if (!status)
        status = solve_prepared(solver, options, &prepared, offsets, c);
    berth__prepared_finish(&prepared);
    if (pause) {
        berth__heap_scope_trim(0); /* what is put aside comes back now */
        pause->end(pause->context);
    }
    return status ? status : berth__prove(problem, offsets, c);
}

#ifndef NDEBUG
/* Rows before the last have a name, words, a condition and a function; one that runs to the end comes last. */
static bool phases_are_in_order(void)
{
    size_t count = 0;
    for (; berth__phases[count].name; count++)
        if (!berth__phases[count].about || !berth__phases[count].applies || !berth__phases[count].run ||
            berth__phases[count].percent > 100)
            return false;
    return count > 0 && !berth__phases[count].run && !berth__phases[count].applies;
}
#endif

berth_status berth__solve(const berth_problem *problem, const berth_solve_options *options, uint64_t *offsets,
                          berth_certificate *certificate, const berth__solve_pause *pause)
{
    berth_solve_options complete = options_or_default(options);
    berth_status status = berth_problem_validate(problem);
    if (status)
        return status;
    if (!offsets && problem->buffer_count)
        return berth__fail(BERTH_INVALID_ARGUMENT, "a plan needs a place for its offsets");
    if (certificate && certificate->struct_size < sizeof(size_t))
        return berth__fail(BERTH_INVALID_ARGUMENT, "the certificate's struct_size is not set");
    const berth__solver *solver = find_solver(complete.solver);
    if (!solver)
        return berth__fail(BERTH_NOT_FOUND, "there is no solver '%s'", complete.solver);
    status = phases_exist(complete.without);
    if (status)
        return status;
    berth_certificate c = {.struct_size = sizeof c};
    berth__heap_scope scope;
    berth__heap_scope_begin(&scope);
    status = solve_and_prove(problem, solver, &complete, offsets, certificate != NULL, &c, pause);
    BERTH_DCHECK(phases_are_in_order(), "[L18] every row of the table is whole");
    berth__heap_scope_end(&scope);
    BERTH_DCHECK(status != BERTH_INTERNAL, "[L1] [L2] [L3] the checker proves every plan");
    if (!status && certificate) {
        const size_t room = certificate->struct_size;
        memcpy(certificate, &c, room < sizeof c ? room : sizeof c);
        certificate->struct_size = room;
    }
    return status;
}

berth_status berth_problem_max_live(const berth_problem *problem, uint64_t *bytes, int64_t *when)
{
    if (!bytes)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the bound needs a place to go");
    berth__prepared prepared;
    int64_t time = 0;
    berth_status status = berth_problem_validate(problem);
    if (!status && !berth__rules_max_live(problem, bytes, &time)) {
        status = berth__prepared_init(&prepared, problem);
        if (status)
            return status;
        *bytes = prepared.max_live * prepared.unit_bytes;
        time = prepared.max_live_time;
        berth__prepared_finish(&prepared);
    }
    if (!status && when)
        *when = time;
    return status;
}
