/* Run-time loading of shared libraries and their functions. */
#include "base/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"

static void *open_named(const char *environment, const char *const *names, char *why, size_t why_bytes)
{
    const char *named = getenv(environment);
    if (named && *named) {
        void *library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            snprintf(why, why_bytes, "%s names %s, which cannot be loaded: %s", environment, named,
                     dlerror());
        return library;
    }
    for (size_t i = 0; names[i]; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
        if (library)
            return library;
    }
    for (size_t i = 0; names[i]; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (library)
            return library;
    }
    snprintf(why, why_bytes, "%s is not installed", names[0]);
    return NULL;
}

/* A child must not find the loader's list half changed, nor a driver half begun: a fork waits. */
void *berth__library_open(const char *environment, const char *const *names, char *why, size_t why_bytes)
{
    berth__fork_enter(BERTH__RANK_LOADING);
    void *library = open_named(environment, names, why, why_bytes);
    berth__fork_leave(BERTH__RANK_LOADING);
    return library;
}

bool berth__library_symbols(void *library, const berth__symbol *symbols, size_t count, void *table, char *why,
                            size_t why_bytes)
{
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(library, symbols[i].name);
        if (!address && !symbols[i].optional) {
            snprintf(why, why_bytes, "its function %s is missing: the driver is too old", symbols[i].name);
            return false;
        }
        memcpy((char *)table + symbols[i].offset, &address, sizeof address);
    }
    return true;
}
