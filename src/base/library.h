/* Run-time loading: shared libraries that may be there or not, and the functions we want of them. */
#ifndef BERTH_BASE_LIBRARY_H
#define BERTH_BASE_LIBRARY_H

#include "base/base.h"

/* Opens a library: the one that the environment variable names, if it is set, and no other; else the first of
 * `names` (ended by NULL) that the program has loaded already; else the first that can be loaded. It is never
 * closed: drivers leave threads and handlers behind. NULL, and in `why` what to say about it, if there is
 * none. */
void *berth__library_open(const char *environment, const char *const *names, char *why, size_t why_bytes);

/* One function of a table: its name, where in the table its pointer goes, and whether we can do without. */
typedef struct berth__symbol {
    const char *name;
    size_t offset;
    bool optional;
} berth__symbol;

/* Fills `table` with the functions. False, and in `why` the name of the first that is missing. */
bool berth__library_symbols(void *library, const berth__symbol *symbols, size_t count, void *table, char *why,
                            size_t why_bytes);

#endif
