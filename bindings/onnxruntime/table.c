/* The OrtAllocator: what ONNX Runtime calls. */
#include "inside.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WEIGHTS_LABEL "onnxruntime: weights"

/* ---- Failing ------------------------------------------------------------------------------------------ */

/* Its allocators throw, in C++, and callers count on that: a NULL is used as an address (seen with 1.30: a segmentation
 * fault in the next operator). What we throw has to be of the C++ library that ONNX Runtime is linked with. */
void bort_find_throw(berth_ort *memory, const OrtApiBase *base)
{
    Dl_info where;
    void *entry = NULL;
    memcpy(&entry, &base->GetApi, sizeof entry);
    if (!dladdr(entry, &where) || !where.dli_fname)
        return;
    memory->library_base = where.dli_fbase;
    void *library = dlopen(where.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return;
    /* std::__throw_runtime_error(char const *) */
    *(void **)&memory->throw_words = dlsym(library, "_ZSt21__throw_runtime_errorPKc");
    dlclose(library);
}

static bool is_from_library(const berth_ort *memory, const void *caller)
{
    Dl_info where;
    return memory->throw_words && dladdr(caller, &where) && where.dli_fbase == memory->library_base;
}

static void keep_words(berth_ort *memory, size_t bytes, bool is_kept)
{
    char words[BORT_WORDS];
    int length = snprintf(words, sizeof words, "%s\n", berth_last_error()->message);
    if (is_kept && !atomic_load(&memory->released) && length > 0 && (size_t)length < sizeof words)
        (void)berth_explain(memory->planned, bytes, NULL, words + length, sizeof words - (size_t)length,
                            NULL);
    pthread_mutex_lock(&memory->lock);
    memcpy(memory->words, words, sizeof words);
    pthread_mutex_unlock(&memory->lock);
}

/* Notes why a request failed. The thread's last error is what it was afterwards, whatever explaining did. */
static void note_failure(berth_ort *memory, size_t bytes, bool is_kept)
{
    berth_error error = *berth_last_error();
    atomic_fetch_add_explicit(&memory->failures, 1, memory_order_relaxed);
    keep_words(memory, bytes, is_kept);
    (void)berth_fail(error.status, "%s", error.message);
}

/* The words go into the exception from the thread's last error: nothing here is left to free when the stack is unwound. This
 * file is compiled with -fexceptions. */
static void *answer_failure(const berth_ort *memory, const void *caller)
{
    if (is_from_library(memory, caller))
        memory->throw_words(berth_last_error()->message);
    return NULL;
}

/* ---- Requests ------------------------------------------------------------------------------------------ */

/* NULL for 0 bytes, as ONNX Runtime's own allocators answer. */
static void *table_allocate(berth_ort *memory, bool from_planned, size_t bytes, const berth_request *request,
                            const void *caller)
{
    void *p = NULL;
    if (bytes == 0)
        return NULL;
    /* Counted first: so the allocators stay while the request is under way. */
    const bool is_kept = bort_keep(memory);
    if (!is_kept || atomic_load_explicit(&memory->released, memory_order_relaxed))
        (void)berth_fail(
            BERTH_BUSY,
            "%zu bytes were asked of an allocator that berth_ort_release has let go; release sessions first",
            bytes);
    else if (berth_allocate(from_planned ? memory->planned : memory->allocator, bytes, BERTH_ALIGNMENT,
                            request, &p) == BERTH_OK) {
        atomic_fetch_add_explicit(&memory->allocs, 1, memory_order_relaxed);
        return p;
    }
    note_failure(memory, bytes, is_kept);
    if (is_kept)
        bort_drop(memory);
    return answer_failure(memory, caller);
}

static void *table_alloc(OrtAllocator *self, size_t bytes)
{
    berth_ort *memory = (berth_ort *)self;
    return table_allocate(memory, true, bytes, NULL, __builtin_return_address(0));
}

/* For what stays as long as the session: from the allocator itself, whatever scope the thread is in. */
static void *table_reserve(OrtAllocator *self, size_t bytes)
{
    berth_ort *memory = (berth_ort *)self;
    berth_request request = BERTH_REQUEST_INIT;
    request.label = WEIGHTS_LABEL;
    void *p = table_allocate(memory, false, bytes, &request, __builtin_return_address(0));
    if (p)
        atomic_fetch_add_explicit(&memory->reserves, 1, memory_order_relaxed);
    return p;
}

static void table_free(OrtAllocator *self, void *p)
{
    berth_ort *memory = (berth_ort *)self;
    if (p && berth_deallocate(memory->planned, p, 0, NULL) != BERTH_BAD_FREE)
        bort_drop(memory);
}

static const OrtMemoryInfo *table_info(const OrtAllocator *self)
{
    return ((const berth_ort *)self)->info;
}

/* ---- Figures ------------------------------------------------------------------------------------------- */

static void add_figure(const OrtApi *api, OrtKeyValuePairs *pairs, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    api->AddKeyValuePair(pairs, key, text);
}

/* Under the names that ONNX Runtime gives its arena's. An allocator that keeps no figures has none here. */
static OrtStatus *table_stats(const OrtAllocator *self, OrtKeyValuePairs **out)
{
    berth_ort *memory = (berth_ort *)(uintptr_t)self;
    const OrtApi *api = memory->api;
    berth_stats figures = BERTH_STATS_INIT;
    if (!bort_keep(memory))
        return api->CreateStatus(ORT_FAIL, "berth_ort_release has let go of this allocator");
    OrtKeyValuePairs *pairs = NULL;
    api->CreateKeyValuePairs(&pairs);
    if (berth_stats_get(memory->planned, &figures) == BERTH_OK) {
        add_figure(api, pairs, "Limit", figures.bytes_limit ? (int64_t)figures.bytes_limit : -1);
        add_figure(api, pairs, "InUse", (int64_t)figures.bytes_in_use);
        add_figure(api, pairs, "TotalAllocated", (int64_t)figures.bytes_reserved);
        add_figure(api, pairs, "MaxInUse", (int64_t)figures.max_bytes_in_use);
        add_figure(api, pairs, "NumAllocs", (int64_t)figures.num_allocs);
        add_figure(api, pairs, "NumReserves", (int64_t)atomic_load(&memory->reserves));
        add_figure(api, pairs, "MaxAllocSize", (int64_t)figures.max_alloc_size);
    }
    bort_drop(memory);
    *out = pairs;
    return NULL;
}

static OrtStatus *table_shrink(OrtAllocator *self)
{
    berth_ort *memory = (berth_ort *)self;
    if (!bort_keep(memory))
        return memory->api->CreateStatus(ORT_FAIL, "berth_ort_release has let go of this allocator");
    OrtStatus *status = berth_ort_trim(memory, 0, NULL) == BERTH_OK
                            ? NULL
                            : memory->api->CreateStatus(ORT_FAIL, berth_last_error()->message);
    bort_drop(memory);
    return status;
}

/* AllocOnStream stays NULL: the CPU provider has no streams, and Alloc is used then. */
void bort_table_init(berth_ort *memory, uint32_t version)
{
    memory->table.version = version;
    memory->table.Alloc = table_alloc;
    memory->table.Free = table_free;
    memory->table.Info = table_info;
    if (version >= BERTH_ORT_SINCE_RESERVE)
        memory->table.Reserve = table_reserve;
    if (version >= BERTH_ORT_SINCE_STATS)
        memory->table.GetStats = table_stats;
    if (version >= BERTH_ORT_SINCE_SHRINK)
        memory->table.Shrink = table_shrink;
}
