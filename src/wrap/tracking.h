/* The tracker for its neighbours: showing and hiding its figures, and telling of leaks at the end. */
#ifndef BERTH_WRAP_TRACKING_H
#define BERTH_WRAP_TRACKING_H

#include "berth/tracking.h"

/* Whether `a` gives figures; it counts on either way. False if `a` is not a tracker. Any thread. */
bool berth__tracking_show_stats(berth_allocator *a, bool show);

/* Blocks that are live when the last reference goes are told through the log. `a` is a tracker. */
void berth__tracking_tell_leaks(berth_allocator *a);

/* Whether it is a tracker, and one that keeps call stacks with its blocks. */
bool berth__tracking_is(const berth_allocator *a);
bool berth__tracking_keeps_stacks(const berth_allocator *a);

#endif
