/* The limit for its neighbours: what its budget has been charged with. */
#ifndef BERTH_WRAP_LIMIT_H
#define BERTH_WRAP_LIMIT_H

#include "berth/allocator.h"

/* Bytes in use under the budget of `a`, as they were asked for. False if `a` is not a limit. */
bool berth__limit_charged(berth_allocator *a, uint64_t *charged_bytes);

#endif
