/* libucp, found at run time, and what its answers mean. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "inside.h"

bucx_calls bucx_call;

static pthread_mutex_t load_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_loaded;

/* UCX promises that what was compiled against 1.x runs on 1.y from x on. */
static berth_status check_version(const bucx_calls *calls, const char *path)
{
    unsigned major = 0, minor = 0, release = 0;
    calls->ucp_get_version(&major, &minor, &release);
    if (major == UCP_API_MAJOR && minor >= UCP_API_MINOR)
        return BERTH_OK;
    return berth_fail(BERTH_UNSUPPORTED, "%s is UCX %u.%u.%u, this binding needs %d.%d or a later %d.x", path,
                      major, minor, release, UCP_API_MAJOR, UCP_API_MINOR, UCP_API_MAJOR);
}

static berth_status find_calls(void *library, const char *path, bucx_calls *calls)
{
    const char *missing = NULL;
    /* ISO C has no conversion from an object pointer to a function pointer; dlsym's users copy the bits. */
#define FIND(name)                                     \
    {                                                  \
        void *symbol = dlsym(library, #name);          \
        memcpy(&calls->name, &symbol, sizeof symbol);  \
        missing = symbol || missing ? missing : #name; \
    }
    BUCX_CALLS(FIND)
#undef FIND
    if (!calls->ucp_get_version)
        return berth_fail(BERTH_UNSUPPORTED, "%s is not UCX's libucp: it has no ucp_get_version", path);
    berth_status status = check_version(calls, path);
    if (status || !missing)
        return status;
    return berth_fail(BERTH_UNSUPPORTED, "%s has no %s: this UCX is not complete", path, missing);
}

static berth_status load_now(void)
{
    const char *named = getenv("BERTH_UCX_LIBRARY");
    const char *path = named ? named : "libucp.so.0";
    bucx_calls calls;
    /* For good: UCX has threads and handlers of its own that outlive a dlclose. */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library)
        return berth_fail(BERTH_UNSUPPORTED, "%s; UCX is Debian's package libucx0", dlerror());
    berth_status status = find_calls(library, path, &calls);
    if (status) {
        dlclose(library);
        return status;
    }
    bucx_call = calls;
    return BERTH_OK;
}

berth_status bucx_load(void)
{
    berth_status status = BERTH_OK;
    if (atomic_load_explicit(&is_loaded, memory_order_acquire))
        return status;
    pthread_mutex_lock(&load_lock);
    if (!atomic_load(&is_loaded)) {
        status = load_now();
        atomic_store_explicit(&is_loaded, !status, memory_order_release);
    }
    pthread_mutex_unlock(&load_lock);
    return status;
}

static berth_status status_of(ucs_status_t code)
{
    switch (code) {
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_EXCEEDS_LIMIT:
    case UCS_ERR_SHMEM_SEGMENT:
        return BERTH_OUT_OF_HOST_MEMORY;
    case UCS_ERR_UNSUPPORTED:
    case UCS_ERR_NOT_IMPLEMENTED:
    case UCS_ERR_NO_DEVICE:
        return BERTH_UNSUPPORTED;
    case UCS_ERR_INVALID_PARAM:
        return BERTH_INVALID_ARGUMENT;
    default:
        return BERTH_DEVICE_ERROR;
    }
}

berth_status bucx_fail(ucs_status_t code, const char *what)
{
    const char *words = bucx_call.ucs_status_string(code);
    return berth_fail_driver(status_of(code), code, words, "%s: UCX says \"%s\" (%d)", what, words,
                             (int)code);
}
