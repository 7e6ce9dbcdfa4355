/* The object behind an OrtAllocator: its life, where it is registered, what it did. */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

#define USE_ENV_ALLOCATORS "session.use_env_allocators"
/* Bounds the memory of the plans kept. One of 400 requests takes about 30 KiB. */
#define PLANS_BYTES ((size_t)32 << 20)

/* All that were made. Sessions may hold the table of one that was released, so none is freed; being listed, none is lost. */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static berth_ort *all; /* guarded by all_lock */

/* Registrations take turns, each with what is noted of it: whose an environment's allocator is would be noted in another order than
 * the runtime did it. Held around calls of the runtime, which ask the table for its memory's description alone. */
static pthread_mutex_t turns = PTHREAD_MUTEX_INITIALIZER;

/* ---- Birth and end -------------------------------------------------------------------------------------- */

/* Host code writes to it, be it the CPU's or a device's that the host can reach. */
static berth_status check_memory(berth_allocator *allocator)
{
    berth_device device = berth_allocator_device(allocator);
    berth_device_info info = BERTH_DEVICE_INFO_INIT;
    if (berth_allocator_memory_kind(allocator) != BERTH_MEMORY_DEVICE ||
        (berth_device_describe(device, &info) == BERTH_OK && info.host_accessible))
        return BERTH_OK;
    return berth_fail(BERTH_UNSUPPORTED,
                      "ONNX Runtime's CPU provider cannot use the memory of %s: it is a device's that the "
                      "host does not reach",
                      berth_allocator_name(allocator));
}

/* Between the planned allocator and the user's: what is trimmed above stays with the user's allocator, where the next recording
 * finds it without a page fault. */
static berth_status keep_trim(void *self, size_t keep_bytes, size_t *released)
{
    (void)self;
    (void)keep_bytes;
    *released = 0;
    return BERTH_OK;
}

static berth_status make_planned(berth_allocator *allocator, berth_allocator **out)
{
    berth_allocator_ops ops = BERTH_ALLOCATOR_OPS_INIT;
    berth_allocator *between = NULL;
    berth_plan *empty = NULL;
    ops.trim = keep_trim;
    berth_status status = berth_wrapper_create(allocator, &ops, NULL, &between);
    if (!status)
        status = berth_plan_create(&empty);
    if (!status)
        status = berth_planned_create(between, empty, out);
    berth_plan_release(empty);
    berth_allocator_release(between);
    return status;
}

static void let_go(berth_ort *memory)
{
    berth_plan_cache_destroy(memory->plans);
    berth_allocator_release(memory->planned);
    berth_allocator_release(memory->allocator);
    memory->plans = NULL;
    memory->planned = memory->allocator = NULL;
}

bool bort_keep(berth_ort *memory)
{
    uint_fast64_t keepers = atomic_load_explicit(&memory->keepers, memory_order_relaxed);
    while (keepers > 0)
        if (atomic_compare_exchange_weak_explicit(&memory->keepers, &keepers, keepers + 1,
                                                  memory_order_acquire, memory_order_relaxed))
            return true;
    return false;
}

void bort_drop(berth_ort *memory)
{
    if (atomic_fetch_sub_explicit(&memory->keepers, 1, memory_order_acq_rel) == 1)
        let_go(memory);
}

static berth_status fill(berth_ort *memory, const OrtApiBase *base, berth_allocator *allocator)
{
    uint32_t version = 0;
    berth_status status = bort_api(base, &memory->api, &version);
    if (status)
        return status;
    bort_table_init(memory, version);
    bort_find_throw(memory, base);
    memory->allocator = berth_allocator_retain(allocator);
    status = make_planned(allocator, &memory->planned);
    if (!status)
        status = berth_plan_cache_create(PLANS_BYTES, &memory->plans);
    if (!status)
        status = bort_fail(
            memory->api,
            memory->api->CreateCpuMemoryInfo(ORT_DEVICE_ALLOCATOR, ORT_MEMORY_DEFAULT, &memory->info),
            "describing CPU memory");
    return status;
}

berth_status berth_ort_create(const struct OrtApiBase *base, berth_allocator *allocator, berth_ort **out)
{
    if (!base || !allocator || !out)
        return berth_fail(BERTH_INVALID_ARGUMENT, "%s is NULL",
                          !out    ? "where to write the result"
                          : !base ? "ONNX Runtime's OrtApiBase"
                                  : "the allocator");
    *out = NULL;
    berth_status status = check_memory(allocator);
    if (status)
        return status;
    berth_ort *memory = calloc(1, sizeof *memory);
    if (!memory)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for ONNX Runtime's allocator");
    atomic_init(&memory->keepers, 1);
    pthread_mutex_init(&memory->lock, NULL);
    status = fill(memory, base, allocator);
    if (status) {
        let_go(memory);
        pthread_mutex_destroy(&memory->lock);
        free(memory);
        return status;
    }
    pthread_mutex_lock(&all_lock);
    memory->next = all;
    all = memory;
    pthread_mutex_unlock(&all_lock);
    *out = memory;
    return BERTH_OK;
}

void berth_ort_release(berth_ort *memory)
{
    if (memory && !atomic_exchange(&memory->released, true))
        bort_drop(memory);
}

struct OrtAllocator *berth_ort_allocator(berth_ort *memory)
{
    return memory ? &memory->table : NULL;
}

/* ---- Environments and sessions --------------------------------------------------------------------------- */

berth_status bort_check_live(const berth_ort *memory, const void *other, const char *what)
{
    if (!memory || !other)
        return berth_fail(BERTH_INVALID_ARGUMENT, "%s is NULL", memory ? what : "the berth_ort");
    if (atomic_load(&memory->released))
        return berth_fail(BERTH_INVALID_ARGUMENT, "berth_ort_release has let go of it");
    return BERTH_OK;
}

/* ONNX Runtime 1.30 puts a new allocator in the place of the one before, and takes one away by its kind of memory, whosever it
 * is. So whose it is now is known here; `memory` NULL: nobody's. */
static void note_registered(berth_ort *memory, OrtEnv *env)
{
    pthread_mutex_lock(&all_lock);
    for (berth_ort *other = all; other; other = other->next)
        if (other->env == env)
            other->env = NULL;
    if (memory)
        memory->env = env;
    pthread_mutex_unlock(&all_lock);
}

berth_status berth_ort_register(berth_ort *memory, struct OrtEnv *env)
{
    berth_status status = bort_check_live(memory, env, "the environment");
    if (status)
        return status;
    pthread_mutex_lock(&turns);
    status = bort_fail(memory->api, memory->api->RegisterAllocator(env, &memory->table),
                       "registering an allocator");
    if (!status)
        note_registered(memory, env);
    pthread_mutex_unlock(&turns);
    return status;
}

static bool is_registered(const berth_ort *memory, const OrtEnv *env)
{
    pthread_mutex_lock(&all_lock);
    bool is_ours = memory->env == env;
    pthread_mutex_unlock(&all_lock);
    return is_ours;
}

berth_status berth_ort_unregister(berth_ort *memory, struct OrtEnv *env)
{
    berth_status status = bort_check_live(memory, env, "the environment");
    if (status)
        return status;
    pthread_mutex_lock(&turns);
    status = is_registered(memory, env)
                 ? bort_fail(memory->api, memory->api->UnregisterAllocator(env, memory->info),
                             "unregistering an allocator")
                 : berth_fail(BERTH_NOT_FOUND, "it is not what is registered with this environment");
    if (!status)
        note_registered(NULL, env);
    pthread_mutex_unlock(&turns);
    return status;
}

berth_status berth_ort_use(berth_ort *memory, struct OrtSessionOptions *options, bool planned)
{
    berth_status status = bort_check_live(memory, options, "the session's options");
    if (status)
        return status;
    const OrtApi *api = memory->api;
    status = bort_fail(api, api->AddSessionConfigEntry(options, USE_ENV_ALLOCATORS, "1"), USE_ENV_ALLOCATORS);
    if (!status && planned)
        status = bort_fail(api, api->DisableMemPattern(options), "switching the memory pattern off");
    if (!status && planned)
        status = bort_fail(api, api->SetSessionExecutionMode(options, ORT_SEQUENTIAL),
                           "one operator after the other");
    return status;
}

/* ---- Figures ----------------------------------------------------------------------------------------------- */

berth_status berth_ort_trim(berth_ort *memory, size_t keep_bytes, size_t *released)
{
    size_t blocks = 0, rest = 0;
    if (released)
        *released = 0;
    berth_status status = bort_check_live(memory, memory, "");
    if (status)
        return status;
    status = berth_trim(memory->planned, keep_bytes, &blocks);
    if (!status)
        status = berth_trim(memory->allocator, keep_bytes, &rest);
    /* Blocks go to the allocator first, and with its idle memory from there: where it keeps none they are gone. */
    if (released)
        *released = rest > blocks ? rest : blocks;
    return status;
}

berth_status berth_ort_figures_get(berth_ort *memory, berth_ort_figures *out)
{
    berth_ort_figures all_figures = BERTH_ORT_FIGURES_INIT;
    berth_plan_cache_stats plans = BERTH_PLAN_CACHE_STATS_INIT;
    if (!memory || !out || out->struct_size < sizeof out->struct_size)
        return berth_fail(BERTH_INVALID_ARGUMENT, "figures need a berth_ort and a struct_size");
    /* Read one after the other: runs may begin and end meanwhile. */
    const uint64_t others = atomic_load(&memory->runs) + (atomic_load(&memory->released) ? 0 : 1);
    const uint64_t keepers = atomic_load(&memory->keepers);
    all_figures.allocs = atomic_load(&memory->allocs);
    all_figures.reserves = atomic_load(&memory->reserves);
    all_figures.failures = atomic_load(&memory->failures);
    all_figures.live_blocks = keepers > others ? keepers - others : 0;
    all_figures.recorded = atomic_load(&memory->recorded);
    all_figures.replayed = atomic_load(&memory->replayed);
    all_figures.unplanned = atomic_load(&memory->unplanned);
    all_figures.from_plan = atomic_load(&memory->from_plan);
    all_figures.by_fallback = atomic_load(&memory->by_fallback);
    all_figures.outside_plan = atomic_load(&memory->outside_plan);
    all_figures.remade = atomic_load(&memory->remade);
    if (!atomic_load(&memory->released) && berth_plan_cache_stats_get(memory->plans, &plans) == BERTH_OK) {
        all_figures.plans = plans.plans;
        all_figures.plan_bytes = plans.bytes;
    }
    size_t room = out->struct_size < sizeof all_figures ? out->struct_size : sizeof all_figures;
    all_figures.struct_size = room;
    memcpy(out, &all_figures, room);
    return BERTH_OK;
}

berth_status berth_ort_explain(berth_ort *memory, char *text, size_t capacity, size_t *needed)
{
    if (!memory || (!text && capacity))
        return berth_fail(BERTH_INVALID_ARGUMENT, "an explanation needs a berth_ort and room");
    pthread_mutex_lock(&memory->lock);
    size_t length = strlen(memory->words);
    if (capacity) {
        size_t taken = length < capacity - 1 ? length : capacity - 1;
        memcpy(text, memory->words, taken);
        text[taken] = '\0';
    }
    pthread_mutex_unlock(&memory->lock);
    if (needed)
        *needed = length + 1;
    return length ? BERTH_OK : berth_fail(BERTH_NOT_FOUND, "no request has failed");
}
