/* The registry's best allocator for the host, kept so that it is one load away. */
#ifndef BERTH_CORE_REGISTRY_H
#define BERTH_CORE_REGISTRY_H

#include <stdatomic.h>

#include "berth/registry.h"

extern _Atomic(berth_allocator *) berth__kept_for_host; /* NULL: not looked for since the last change */

/* Looks for it, skipping those whose factory fails; "system" is always there. */
berth_allocator *berth__registry_find_for_host(void);

#endif
