/* TensorFlow Lite's library, found at run time. Its tables are known by their order in version 2.9; another version is
 * refused, since a wrong guess would write into the interpreter's memory. */
#include "inside.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define LITE_LIBRARY "libtensorflowlite_c.so"

static const char *const call_names[] = {
#define CALL_NAME(result, name, arguments) "TfLite" #name,
    LITE_BINDING_CALLS(CALL_NAME)
#undef CALL_NAME
};

static berth_status load_calls(bt_calls *out, void *handle, const char *path)
{
    size_t i = 0;
#define CALL_LOAD(result, name, arguments)                                                                \
    *(void **)&out->name = dlsym(handle, call_names[i]);                                                  \
    if (!out->name)                                                                                       \
        return berth_fail(BERTH_UNSUPPORTED, "%s has no %s: it is not TensorFlow Lite's C library", path, \
                          call_names[i]);                                                                 \
    i++;
    LITE_BINDING_CALLS(CALL_LOAD)
#undef CALL_LOAD
    const char *version = out->Version();
    if (!version || strncmp(version, LITE_VERSION, strlen(LITE_VERSION)) != 0)
        return berth_fail(BERTH_UNSUPPORTED,
                          "%s is TensorFlow Lite %s; this binding knows the tables of version %sx only", path,
                          version ? version : "of an unknown version", LITE_VERSION);
    return BERTH_OK;
}

berth_status bt_load(const char *path, bt_calls *out)
{
    memset(out, 0, sizeof *out);
    if (!path && dlsym(RTLD_DEFAULT, call_names[0]))
        return load_calls(out, RTLD_DEFAULT, "the TensorFlow Lite that this program has loaded");
    if (!path)
        path = getenv("BERTH_TFLITE_LIBRARY");
    if (!path)
        path = LITE_LIBRARY;
    /* Not unloaded: the last to let go may be an interpreter, from inside the library. */
    out->library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!out->library)
        return berth_fail(BERTH_UNSUPPORTED,
                          "%s; name TensorFlow Lite's C library in the options or in BERTH_TFLITE_LIBRARY",
                          dlerror());
    berth_status status = load_calls(out, out->library, path);
    if (status)
        bt_unload(out);
    return status;
}

void bt_unload(bt_calls *calls)
{
    if (calls->library)
        dlclose(calls->library);
    calls->library = NULL;
}
