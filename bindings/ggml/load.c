/* Finding ggml at run time, once for the process. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "inside.h"

#define KNOWN_VERSION "0.9.7"
#define LIBRARY_NAME "libggml-base.so"

bgg_calls bgg_ggml;

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER; /* one search at a time */
static atomic_bool is_loaded;                                 /* set after bgg_ggml and version_words */
static char version_words[96];

static berth_status library_open(const char *path, char *name, size_t room, void **out)
{
    struct stat what;
    const char *named = path ? path : getenv("BERTH_GGML_LIBRARY");
    *out = NULL;
    if (!named && dlsym(RTLD_DEFAULT, "ggml_version")) {
        (void)snprintf(name, room, "the program's own ggml");
        *out = dlopen(NULL, RTLD_NOW);
        return BERTH_OK;
    }
    if (named && stat(named, &what) == 0 && S_ISDIR(what.st_mode))
        (void)snprintf(name, room, "%s/" LIBRARY_NAME, named);
    else
        (void)snprintf(name, room, "%s", named ? named : LIBRARY_NAME);
    *out = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    return *out ? BERTH_OK
                : berth_fail(
                      BERTH_UNSUPPORTED,
                      "ggml cannot be loaded: %s; name libggml-base.so, or its folder, by BERTH_GGML_LIBRARY",
                      dlerror());
}

static berth_status library_resolve(void *library, const char *name, bgg_calls *calls)
{
    const char *missing = NULL;
#define LOOK_UP(result, call, parameters)           \
    *(void **)&calls->call = dlsym(library, #call); \
    if (!calls->call && !missing)                   \
        missing = #call;
    BGG_CALLS(LOOK_UP)
#undef LOOK_UP
    /* The version first: it explains a function that is missing. */
    if (calls->ggml_version && strcmp(calls->ggml_version(), KNOWN_VERSION) != 0)
        return berth_fail(BERTH_UNSUPPORTED,
                          "%s is ggml %s; this binding knows " KNOWN_VERSION " (llama.cpp b8390)", name,
                          calls->ggml_version());
    return missing
               ? berth_fail(BERTH_UNSUPPORTED, "%s has no %s: it is not ggml " KNOWN_VERSION, name, missing)
               : BERTH_OK;
}

static berth_status library_load(const char *path)
{
    char name[512];
    void *library;
    bgg_calls calls;
    berth_status status = library_open(path, name, sizeof name, &library);
    if (status)
        return status;
    status = library_resolve(library, name, &calls);
    if (!status)
        status = bgg_probe(&calls, name);
    if (status) {
        (void)dlclose(library);
        return status;
    }
    bgg_ggml = calls;
    (void)snprintf(version_words, sizeof version_words, "%s %s", calls.ggml_version(), calls.ggml_commit());
    atomic_store_explicit(&is_loaded, true, memory_order_release);
    return BERTH_OK;
}

berth_status berth_ggml_load(const char *path)
{
    berth_status status = BERTH_OK;
    if (atomic_load_explicit(&is_loaded, memory_order_acquire))
        return BERTH_OK;
    (void)pthread_mutex_lock(&load_lock);
    if (!atomic_load_explicit(&is_loaded, memory_order_relaxed))
        status = library_load(path);
    (void)pthread_mutex_unlock(&load_lock);
    return status;
}

const char *berth_ggml_version(void)
{
    return atomic_load_explicit(&is_loaded, memory_order_acquire) ? version_words : "";
}
