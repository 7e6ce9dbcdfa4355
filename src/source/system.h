/* The system source for other rooms: making one and switching its figures. The one that is always there is
 * declared in core/environment.h. */
#ifndef BERTH_SOURCE_SYSTEM_H
#define BERTH_SOURCE_SYSTEM_H

#include "berth/source.h"

/* `options` are complete; BERTH_STATS_FULL is for whoever puts a tracker around it, here it is basic. */
berth_status berth__system_create(const berth_cpu_options *options, berth_allocator **out);

/* Off or basic. BERTH_UNSUPPORTED if `a` is not a system source. */
berth_status berth__system_set_stats(berth_allocator *a, berth_stats_mode mode);

#endif
