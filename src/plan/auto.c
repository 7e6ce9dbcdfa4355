/* `auto`: runs the solvers one after the other, the fastest first, and keeps the best plan. */
#include "plan/prepared.h"
#include "plan/solver.h"
#include "plan/valley.h"

/* Every variant of the valley, each against the best so far. */
static berth_status run_valleys(berth__search *search)
{
    const berth__prepared *p = search->prepared;
    uint64_t *offsets = berth__heap_alloc(p->item_count * sizeof *offsets), peak;
    if (!offsets)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for %u offsets", p->item_count);
    berth_status status = BERTH_OK;
    bool over = berth__search_phase(search, "valley");
    for (unsigned variant = 0; variant < BERTH__VALLEY_VARIANTS && !over && !status; variant++) {
        status = berth__valley_run(search, variant, search->best_peak, offsets, &peak);
        if (!status && peak != UINT64_MAX)
            over = berth__search_offer(search, offsets, "valley");
        over = over || search->stopped;
    }
    berth__heap_free(offsets);
    return status;
}

static berth_status run(berth__search *search)
{
    static const berth__solver *const fits[] = {
        &berth__solver_first_fit_breadth, &berth__solver_best_fit_size, &berth__solver_first_fit_size,
        &berth__solver_first_fit_area,    &berth__solver_best_fit_area, &berth__solver_best_fit_breadth};
    berth_status status = berth__solver_greedy.run(search);
    if (!status && !search->stopped)
        status = run_valleys(search);
    for (size_t k = 0; k < BERTH_COUNT_OF(fits) && !status && !search->stopped; k++)
        status = fits[k]->run(search);
    return status;
}

const berth__solver berth__solver_auto = {
    .name = "auto", .about = "runs the others and keeps the best plan; the default", .run = run};
