/* What a user's own code answered to an allocation, looked at without a call while all is well: this stands on the way of
 * every block of a user's allocator or wrapper. */
#ifndef BERTH_CORE_ANSWER_H
#define BERTH_CORE_ANSWER_H

#include "core/allocator.h"

/* berth__failures without the call. */
extern BERTH__HIDDEN _Thread_local uint64_t berth__failure_count;

BERTH__COLD berth_status berth__refuse_answer(const berth_allocator *a, berth_status status, uint64_t before,
                                              size_t size_bytes, void **out);

/* BERTH_OK without a block is BERTH_INTERNAL with words, so that nobody above has to look [I7]; a failure without words of
 * its own since `before` (berth__failure_count) gets some. */
BERTH__INLINE berth_status berth__check_answer(const berth_allocator *a, berth_status status, uint64_t before,
                                               size_t size_bytes, void **out)
{
    return BERTH_LIKELY(!status && *out) ? BERTH_OK
                                         : berth__refuse_answer(a, status, before, size_bytes, out);
}

#endif
