/* Waiting for a word to change, without a mutex that a fork could leave locked. */
#ifndef BERTH_BASE_PARK_H
#define BERTH_BASE_PARK_H

#include <stdatomic.h>

#include "base/base.h"

#define BERTH__PARK_FOR_EVER UINT64_MAX

/* Waits while *word is `seen`, for `at_most_ns` at most. May come back early: the caller looks again. */
void berth__park(_Atomic uint32_t *word, uint32_t seen, uint64_t at_most_ns);
/* Wakes all who wait for `word`, which has been changed. */
void berth__unpark_all(_Atomic uint32_t *word);

#endif
