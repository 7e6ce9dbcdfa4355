/* Not ONNX Runtime: a library with its entry point whose version and answers the test chooses through the environment. */
#include <stdlib.h>
#include <string.h>

#include <ort_api.h>

__attribute__((visibility("default"))) const OrtApiBase *OrtGetApiBase(void);
/* Called when an allocator has been registered and the caller does not know yet. NULL: nothing. */
__attribute__((visibility("default"))) void (*fake_ort_registered)(void);

struct OrtStatus {
    int unused;
};
static struct OrtStatus refused;
static char memory_info;

static int fails(const char *what)
{
    const char *named = getenv("FAKE_ORT_FAILS");
    return named && strcmp(named, what) == 0;
}

static OrtErrorCode error_code(const OrtStatus *status)
{
    (void)status;
    return ORT_INVALID_ARGUMENT;
}

static const char *error_words(const OrtStatus *status)
{
    (void)status;
    return "the fake refuses";
}

static void release_status(OrtStatus *status)
{
    (void)status;
}

static OrtStatus *create_info(OrtAllocatorType type, int memory_type, OrtMemoryInfo **out)
{
    (void)type, (void)memory_type;
    if (fails("info"))
        return &refused;
    *out = (OrtMemoryInfo *)&memory_info;
    return NULL;
}

static OrtStatus *take_allocator(OrtEnv *env, OrtAllocator *allocator)
{
    (void)env, (void)allocator;
    if (fails("register"))
        return &refused;
    if (fake_ort_registered)
        fake_ort_registered();
    return NULL;
}

static OrtStatus *give_allocator(OrtEnv *env, const OrtMemoryInfo *info)
{
    (void)env, (void)info;
    return fails("unregister") ? &refused : NULL;
}

static const OrtApi *get_api(uint32_t version)
{
    static OrtApi api;
    api.GetErrorCode = error_code;
    api.GetErrorMessage = error_words;
    api.ReleaseStatus = release_status;
    api.CreateCpuMemoryInfo = create_info;
    api.RegisterAllocator = take_allocator;
    api.UnregisterAllocator = give_allocator;
    return fails("api") || version > BERTH_ORT_API_VERSION ? NULL : &api;
}

static const char *get_version(void)
{
    return getenv("FAKE_ORT_VERSION");
}

const OrtApiBase *OrtGetApiBase(void)
{
    static const OrtApiBase base = {get_api, get_version};
    return fails("base") ? NULL : &base;
}
