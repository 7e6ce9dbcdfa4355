/* The system source for other rooms: making one, switching its figures, and the one that is always there. */
#ifndef BERTH_CORE_SYSTEM_H
#define BERTH_CORE_SYSTEM_H

#include "berth/source.h"

/* The built-in one, complete before any code of ours has run. Never destroyed. */
berth_allocator *berth__system_default(void);

/* `options` are complete; BERTH_STATS_FULL is for whoever puts a tracker around it, here it is basic. */
berth_status berth__system_create(const berth_cpu_options *options, berth_allocator **out);

/* Off or basic. BERTH_UNSUPPORTED if `a` is not a system source. */
berth_status berth__system_set_stats(berth_allocator *a, berth_stats_mode mode);

#endif
