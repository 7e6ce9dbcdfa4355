/* The one thing that core says upward: programs that use the registry get what the environment asks for.
 *
 * The environment is read by a constructor in src/wrap, which stands above core. From an archive a linker
 * takes only what somebody refers to, so the registry refers to this, and a statically linked program obeys
 * BERTH_CONF too. */
#ifndef BERTH_CORE_ENVIRONMENT_H
#define BERTH_CORE_ENVIRONMENT_H

#include <stdbool.h>

extern const bool berth__environment_is_read;

#endif
