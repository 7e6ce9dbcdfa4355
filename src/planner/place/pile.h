/* The order in which all that lives at the fullest moment is piled up, so that nothing is lost there. */
#ifndef BERTH_PLANNER_PLACE_PILE_H
#define BERTH_PLANNER_PLACE_PILE_H

#include "planner/problem/prepared.h"

/* Whether one moment decides: at every other that is nearly as full, half of what lives there is in the pile too. Where
 * a program is as full at moments that share nothing, a pile helps at one of them. Needs 16 bytes a column.
 * BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__pile_suits(const berth__prepared *prepared, bool *suits);

/* Puts the items that live at the fullest moment first in `list`, which holds all items; the others keep their order
 * behind them. `groups` is how many steps the pile's side has (pile.c), at least 1; mirrored, its sides are swapped.
 * *count is how many there are. Needs 8 bytes an item and 8 a column. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__pile_first(const berth__prepared *prepared, uint32_t groups, bool is_mirrored,
                               uint32_t *list, uint32_t *count);

#endif
