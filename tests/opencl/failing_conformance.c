/* The conformance suite while the driver refuses every Nth call, as tests/opencl/failing.c has it for the suites of
 * tests/devices: takes the place of `sources_on`, which finds the device first and then has the shim begin. The
 * environment names the shim (BERTH_OPENCL_LIBRARY) and what it refuses (BERTH_FAILING, as in "nosvm,failing=7,code=-5"). */
#define INSIST_BY_HAND
#include "insist.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/conformance.h"

const source *sources_without_shim(const char *kind, size_t *count);

static long (*shim_failures)(void);

/* A run in which nothing was refused shows nothing. */
static void say_what_was_refused(void)
{
    const long refused = shim_failures(), said = atomic_load(&insist_refusals);
    fprintf(stderr, "%ld refused, %ld of them said\n", refused, said);
    if (refused == 0 || said == 0)
        _Exit(1);
}

const source *sources_on(const char *kind, size_t *count)
{
    const source *found = sources_without_shim(kind, count);
    const char *path = getenv("BERTH_OPENCL_LIBRARY"), *words = getenv("BERTH_FAILING");
    void *shim = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!found || !shim || !words || !strstr(words, "code="))
        return NULL;
    void (*shim_set)(const char *);
    *(void **)&shim_set = dlsym(shim, "shim_set");
    *(void **)&shim_failures = dlsym(shim, "shim_failures");
    insist_begin(shim);
    insist_code = atoi(strstr(words, "code=") + strlen("code="));
    shim_set(words);
    atexit(say_what_was_refused);
    return found;
}
