/* ONNX Runtime's library: found at run time, its version looked at before anything of it is called. */
#include "inside.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* Older ones were not tried. 1.17.0 and 1.22.0 were, and 1.30.0 is in the tests; the table only grows, so what lies between and
 * what comes after has the same places. */
#define OLDEST_MINOR 17u
#define DEFAULT_LIBRARY "libonnxruntime.so.1"

/* The version is asked before the interface: a library that is asked for a version that it has not prints to stderr. */
berth_status bort_api(const OrtApiBase *base, const OrtApi **api, uint32_t *version)
{
    unsigned major = 0, minor = 0;
    const char *words = base->GetVersionString ? base->GetVersionString() : NULL;
    if (!words || sscanf(words, "%u.%u", &major, &minor) != 2)
        return berth_fail(BERTH_UNSUPPORTED,
                          "ONNX Runtime does not tell its version; 1.%u is known, and 1.%u and "
                          "later are used",
                          BERTH_ORT_API_VERSION, OLDEST_MINOR);
    if (major != 1 || minor < OLDEST_MINOR)
        return berth_fail(BERTH_UNSUPPORTED,
                          "this is ONNX Runtime %s; versions from 1.%u on are used (1.%u is the one that "
                          "this was written for)",
                          words, OLDEST_MINOR, BERTH_ORT_API_VERSION);
    *version = minor < BERTH_ORT_API_VERSION ? minor : BERTH_ORT_API_VERSION;
    *api = base->GetApi ? base->GetApi(*version) : NULL;
    return *api
               ? BERTH_OK
               : berth_fail(
                     BERTH_UNSUPPORTED,
                     "ONNX Runtime %s has no C interface of version %u; versions of it from 1.%u on are used",
                     words, (unsigned)*version, OLDEST_MINOR);
}

berth_status berth_ort_load(const char *path, const struct OrtApiBase **out)
{
    if (!out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "nowhere to write ONNX Runtime's interface to");
    *out = NULL;
    if (!path)
        path = getenv("BERTH_ONNXRUNTIME_LIBRARY");
    if (!path || !*path)
        path = DEFAULT_LIBRARY;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return berth_fail(
            BERTH_UNSUPPORTED,
            "%s; BERTH_ONNXRUNTIME_LIBRARY names another file (npm's package onnxruntime-node has one)",
            dlerror());
    const OrtApiBase *(*get_base)(void) = NULL;
    *(void **)&get_base = dlsym(library, "OrtGetApiBase");
    const OrtApiBase *base = get_base ? get_base() : NULL;
    const OrtApi *api = NULL;
    uint32_t version = 0;
    berth_status status =
        base ? bort_api(base, &api, &version)
             : berth_fail(BERTH_UNSUPPORTED, "%s is not ONNX Runtime: it has no OrtGetApiBase", path);
    if (!status)
        *out = base; /* the library stays loaded: its threads and values may outlive us */
    else
        dlclose(library);
    return status;
}

berth_status bort_fail(const OrtApi *api, OrtStatus *status, const char *what)
{
    if (!status)
        return BERTH_OK;
    int code = (int)api->GetErrorCode(status);
    const char *words = api->GetErrorMessage(status);
    berth_status failure = berth_fail_driver(BERTH_DEVICE_ERROR, code, words,
                                             "%s: ONNX Runtime answers %d, %s", what, code, words);
    api->ReleaseStatus(status);
    return failure;
}
