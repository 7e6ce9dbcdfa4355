/* What core says upward: the source that is always there, and what the environment asks for.
 *
 * The environment is read by a constructor in src/wrap, which stands above core. From an archive a linker
 * takes only what somebody refers to, so the registry refers to this, and a statically linked program obeys
 * BERTH_CONF too. */
#ifndef BERTH_CORE_ENVIRONMENT_H
#define BERTH_CORE_ENVIRONMENT_H

#include <stdbool.h>

#include "berth/allocator.h"

/* The system source of src/source, complete before any code of ours has run. Never destroyed. */
berth_allocator *berth__system_default(void);

extern const bool berth__environment_is_read;

/* The pool's registration, which stands above core too: so that an archive's registry has the same entries as the
 * shared library's. */
extern const bool berth__pool_is_registered;

#endif
