/* The rules of a problem that need no solver: what its numbers may be, and whether given places collide. */
#ifndef BERTH_PLANNER_PROBLEM_RULES_H
#define BERTH_PLANNER_PROBLEM_RULES_H

#include "base/base.h"
#include "berth/problem.h"

/* Everything berth_problem_validate promises except that pinned buffers do not collide: enough to read the
 * problem's arrays without a look at their bounds. */
berth_status berth__rules_numbers(const berth_problem *problem);

/* Looks for two buffers that are live together and overlap, among those whose offset is not BERTH_NO_OFFSET.
 * The problem's numbers are known to be right. BERTH_OK, BERTH_MISMATCH, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__rules_collision(const berth_problem *problem, const uint64_t *offsets,
                                    berth_verdict *verdict);

/* What berth_problem_check finds in offsets of a problem whose numbers are known to be right. `verdict` is empty at
 * first. BERTH_OK, BERTH_MISMATCH, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__rules_check(const berth_problem *problem, const uint64_t *offsets,
                                berth_verdict *verdict);

/* What the public functions of these names answer, for a problem whose numbers are known to be right. The
 * last finds the most live by a table over all times; false where times are too sparse for one, or groups in
 * the way, or memory is short: the prepared form knows it too, and takes longer to make. */
berth_status berth__rules_fingerprint(const berth_problem *problem, uint64_t *out);
size_t berth__rules_live(const berth_problem *problem, int64_t time, size_t *indices, size_t room);
bool berth__rules_max_live(const berth_problem *problem, uint64_t *bytes, int64_t *when);

/* What a buffer takes: its size up to a multiple of the problem's alignment. */
static inline uint64_t berth__rules_size(const berth_problem *problem, const berth_problem_buffer *buffer)
{
    uint64_t rest = problem->alignment > 1 ? buffer->size_bytes % problem->alignment : 0;
    return rest ? buffer->size_bytes + (problem->alignment - rest) : buffer->size_bytes;
}

#endif
