/* `auto`: runs the solvers one after the other and keeps the best plan. */
#include "plan/prepared.h"
#include "plan/solver.h"

static berth_status run(berth__search *search)
{
    static const berth__solver *const cheap[] = {
        &berth__solver_greedy,          &berth__solver_best_fit_size, &berth__solver_first_fit_size,
        &berth__solver_first_fit_area,  &berth__solver_best_fit_area, &berth__solver_first_fit_breadth,
        &berth__solver_best_fit_breadth};
    berth_status status = BERTH_OK;
    for (size_t k = 0; k < BERTH_COUNT_OF(cheap) && !status && !search->stopped; k++)
        status = cheap[k]->run(search);
    return status;
}

const berth__solver berth__solver_auto = {
    .name = "auto", .about = "runs the others and keeps the best plan; the default", .run = run};
