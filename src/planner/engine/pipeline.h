/* `auto`'s phases as a table: what each does, when it applies and how much of the budget it gets. */
#ifndef BERTH_PLANNER_ENGINE_PIPELINE_H
#define BERTH_PLANNER_ENGINE_PIPELINE_H

#include "planner/engine/solver.h"

/* What the phases go by. */
typedef struct berth__facts {
    bool is_few;   /* the exact search can take the whole */
    bool is_many;  /* a step an item counts: the quickest methods first */
    bool is_lean;  /* so few live together that to look for room costs next to nothing */
    bool is_vast;  /* more than what looks at neighbours can take */
    bool is_full;  /* hardly anything is free at any time: then only putting together helps */
    bool is_short; /* the steps do not even suffice for the heuristics and what comes before them */
    bool is_close; /* vast, and so near the goal that to go on is not worth the time; changes as plans come */
    bool is_far;   /* more than a two-hundredth above the goal; changes as plans come */
    bool is_dense; /* few, but most live together: a node of the exact search costs more than it decides */
} berth__facts;

typedef struct berth__phase {
    const char *name;
    const char *about;
    bool (*applies)(const berth__facts *facts);
    unsigned percent; /* of the steps that are left, and */
    unsigned eighths; /* so many eighths of a step an item: what its first useful piece of work takes */
    berth_status (*run)(berth__search *search, uint64_t steps);
} berth__phase;

/* In the order in which they run; a name may stand several times. Ends with a row without a name. */
extern const berth__phase berth__phases[];

#endif
