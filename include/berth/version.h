/* Which version of berth this is. The build reads its version from here, so that there is one place for it. */
#ifndef BERTH_VERSION_H
#define BERTH_VERSION_H

#include "berth/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define BERTH_VERSION_MAJOR 0
#define BERTH_VERSION_MINOR 1
#define BERTH_VERSION_PATCH 0

/* For comparisons by the compiler: 0.1.0 is 100. */
#define BERTH_VERSION_NUMBER (BERTH_VERSION_MAJOR * 10000 + BERTH_VERSION_MINOR * 100 + BERTH_VERSION_PATCH)

#define BERTH_VERSION_TEXT_OF_(major, minor, patch) #major "." #minor "." #patch
#define BERTH_VERSION_TEXT_(major, minor, patch) BERTH_VERSION_TEXT_OF_(major, minor, patch)
/* "0.1.0", as the program was compiled. */
#define BERTH_VERSION BERTH_VERSION_TEXT_(BERTH_VERSION_MAJOR, BERTH_VERSION_MINOR, BERTH_VERSION_PATCH)

/* The same of the library that runs. Before 1.0 a new minor version may break callers, and its shared library then has
 * another name (SONAME). Any thread. */
BERTH_API const char *berth_version(void);

#ifdef __cplusplus
}
#endif
#endif
