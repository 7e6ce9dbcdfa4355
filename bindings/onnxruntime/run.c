/* Planned runs: one plan for each session and shape of inputs, kept in Berth's cache of plans. */
#include "inside.h"

#include <string.h>

/* A replay in which more than one request in so many deviated has another program than its plan. */
#define DEVIATING_ONE_IN 4
/* Plans are made anew ever more rarely, after 1, 2, 4, ... runs up to 2^this: a model whose sizes depend on its data never
 * settles. */
#define REMAKES_MOST 20
/* Planning is over when no plan could be smaller by more than one part in so many. */
#define NEAR_BOUND_ONE_IN 256

/* ---- Keys ----------------------------------------------------------------------------------------------------- */

/* FNV-1a. Two runs with one key by chance share a plan, which costs memory from the allocator and nothing else. */
#define HASH_START UINT64_C(0xcbf29ce484222325)
#define HASH_PRIME UINT64_C(0x100000001b3)

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *b = bytes;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ b[i]) * HASH_PRIME;
    return hash;
}

static uint64_t hash_names(uint64_t hash, const char *const *names, size_t count)
{
    for (size_t i = 0; names && i < count; i++)
        if (names[i])
            hash = hash_bytes(hash, names[i], strlen(names[i]) + 1);
    return hash_bytes(hash, &count, sizeof count);
}

static uint64_t hash_shape(const OrtApi *api, const OrtTensorTypeAndShapeInfo *info, uint64_t hash)
{
    enum { MOST_DIMENSIONS = 16 };
    int64_t dimensions[MOST_DIMENSIONS];
    OrtElementType type = 0;
    size_t rank = 0;
    OrtStatus *status = api->GetTensorElementType(info, &type);
    if (!status)
        status = api->GetDimensionsCount(info, &rank);
    if (!status && rank <= MOST_DIMENSIONS)
        status = api->GetDimensions(info, dimensions, rank);
    if (!status) {
        hash = hash_bytes(hash, &type, sizeof type);
        hash = hash_bytes(hash, &rank, sizeof rank);
        if (rank <= MOST_DIMENSIONS)
            hash = hash_bytes(hash, dimensions, rank * sizeof *dimensions);
    } else
        api->ReleaseStatus(status);
    return hash;
}

/* Of a value that is not a tensor nothing is known but that. */
static uint64_t hash_value(const OrtApi *api, const OrtValue *value, uint64_t hash)
{
    OrtTensorTypeAndShapeInfo *info = NULL;
    int is_tensor = 0;
    OrtStatus *status = value ? api->IsTensor(value, &is_tensor) : NULL;
    if (!status && is_tensor)
        status = api->GetTensorTypeAndShape(value, &info);
    if (status)
        api->ReleaseStatus(status);
    if (info) {
        hash = hash_shape(api, info, hash);
        api->ReleaseTensorTypeAndShapeInfo(info);
    }
    return hash_bytes(hash, &is_tensor, sizeof is_tensor);
}

/* ---- Scopes ------------------------------------------------------------------------------------------------------ */

/* The scope that this thread has open. */
static _Thread_local struct {
    berth_ort *memory;
    bool records;
    unsigned char key[BORT_KEY_BYTES];
} open_run;

static void make_key(uint64_t hash, uint64_t rest, unsigned char key[BORT_KEY_BYTES])
{
    const uint64_t parts[] = {hash, rest};
    _Static_assert(sizeof parts == BORT_KEY_BYTES, "a key's size");
    memcpy(key, parts, sizeof parts);
}

/* A run waits for its plan, and a server meets new shapes all day. What the search has found after a few thousand steps is as good as
 * always at the bound or within a few bytes of it, which only rounding to alignments leaves, and which can take longer than
 * the run itself to gain (an OCR classifier at a batch of 5: 50 ms for 24 bytes of 2.3 MiB, and a run of 6 ms). No clock: the same
 * run gets the same plan. */
static berth_stop stop_near_bound(void *context, const berth_progress *progress)
{
    (void)context;
    if (progress->best_bytes == UINT64_MAX)
        return BERTH_STOP_DONE;
    uint64_t above = progress->best_bytes - progress->lower_bound_bytes;
    return above <= progress->lower_bound_bytes / NEAR_BOUND_ONE_IN ? BERTH_STOP_CANCELLED : BERTH_STOP_DONE;
}

static const berth_solve_options quick_solve = {
    .struct_size = sizeof quick_solve, .effort = BERTH_EFFORT_FAST, .progress = stop_near_bound};

/* A recording takes its memory from the allocator: blocks of earlier plans that lie idle are given back there first, or both
 * would be held. */
static berth_status begin_recording(berth_ort *memory, const unsigned char *key)
{
    berth_run_options options = BERTH_RUN_OPTIONS_INIT;
    options.solve = &quick_solve;
    (void)berth_trim(memory->planned, 0, NULL);
    return berth_cached_begin(memory->planned, memory->plans, key, BORT_KEY_BYTES, &options);
}

static berth_status begin_scope(berth_ort *memory, const unsigned char *key)
{
    berth_plan *plan = NULL;
    berth_status status = BERTH_OK;
    bool records = berth_plan_cache_get(memory->plans, key, BORT_KEY_BYTES, &plan) != BERTH_OK;
    if (records)
        status = begin_recording(memory, key);
    else {
        berth_run_options options = BERTH_RUN_OPTIONS_INIT;
        options.plan = plan;
        status = berth_replay_begin(memory->planned, &options);
        berth_plan_release(plan);
    }
    if (status)
        return status;
    open_run.memory = memory;
    /* Another thread may have recorded this key since the cache was asked: then this is a replay. */
    open_run.records = records && berth_run_current()->kind == BERTH_RUN_RECORD;
    memcpy(open_run.key, key, BORT_KEY_BYTES);
    return BERTH_OK;
}

static void run_let_go(berth_ort *memory)
{
    atomic_fetch_sub_explicit(&memory->runs, 1, memory_order_relaxed);
    bort_drop(memory);
}

/* What the run needs stays until it ends, also where berth_ort_release comes meanwhile. */
static berth_status begin_run(berth_ort *memory, const unsigned char *key)
{
    if (!bort_keep(memory))
        return berth_fail(BERTH_INVALID_ARGUMENT, "berth_ort_release has let go of it");
    atomic_fetch_add_explicit(&memory->runs, 1, memory_order_relaxed);
    berth_status status = begin_scope(memory, key);
    if (status)
        run_let_go(memory);
    return status;
}

/* Whether a plan that did not fit is to be made anew now. */
static bool is_time_to_remake(berth_ort *memory)
{
    uint64_t remade = atomic_load(&memory->remade);
    uint64_t wait = UINT64_C(1) << (remade < REMAKES_MOST ? remade : REMAKES_MOST);
    return atomic_load(&memory->replayed) >= wait;
}

static void note_replay(berth_ort *memory, const berth_report *report, const unsigned char *key)
{
    atomic_fetch_add_explicit(&memory->replayed, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&memory->from_plan, report->from_plan, memory_order_relaxed);
    atomic_fetch_add_explicit(&memory->by_fallback, report->by_fallback, memory_order_relaxed);
    atomic_fetch_add_explicit(&memory->outside_plan, report->outside_plan, memory_order_relaxed);
    uint64_t asked = report->from_plan + report->by_fallback + report->displaced;
    bool fits = report->by_fallback * DEVIATING_ONE_IN <= asked && report->from_plan * 2 >= report->planned;
    if (fits || !is_time_to_remake(memory))
        return;
    if (berth_plan_cache_remove(memory->plans, key, BORT_KEY_BYTES) == BERTH_OK)
        atomic_fetch_add_explicit(&memory->remade, 1, memory_order_relaxed);
}

static berth_status end_run(berth_ort *memory, bool failed, berth_report *report)
{
    berth_status status = berth_cached_end(memory->planned, report);
    open_run.memory = NULL;
    if (!open_run.records) {
        if (!failed)
            note_replay(memory, report, open_run.key);
    } else if (failed)
        (void)berth_plan_cache_remove(memory->plans, open_run.key, BORT_KEY_BYTES);
    else
        atomic_fetch_add_explicit(&memory->recorded, 1, memory_order_relaxed);
    pthread_mutex_lock(&memory->lock);
    memcpy(memory->last_key, open_run.key, BORT_KEY_BYTES);
    memory->has_last_key = true;
    pthread_mutex_unlock(&memory->lock);
    run_let_go(memory);
    return status;
}

berth_status berth_ort_begin(berth_ort *memory, const void *key, size_t key_bytes)
{
    unsigned char made[BORT_KEY_BYTES];
    berth_status status = bort_check_live(memory, key, "the key");
    if (status)
        return status;
    make_key(hash_bytes(HASH_START, key, key_bytes), key_bytes, made);
    return begin_run(memory, made);
}

berth_status berth_ort_end(berth_ort *memory, bool failed, berth_report *report)
{
    berth_report own = BERTH_REPORT_INIT;
    if (!memory || open_run.memory != memory)
        return berth_fail(BERTH_NOT_FOUND, "this thread has no berth_ort_begin to end");
    berth_status status = end_run(memory, failed, &own);
    if (report) {
        size_t room = report->struct_size < sizeof own ? report->struct_size : sizeof own;
        own.struct_size = room;
        memcpy(report, &own, room);
    }
    return status;
}

berth_plan *berth_ort_plan(berth_ort *memory)
{
    unsigned char key[BORT_KEY_BYTES];
    berth_plan *plan = NULL;
    if (bort_check_live(memory, memory, "") != BERTH_OK)
        return NULL;
    pthread_mutex_lock(&memory->lock);
    bool known = memory->has_last_key;
    memcpy(key, memory->last_key, sizeof key);
    pthread_mutex_unlock(&memory->lock);
    return known && berth_plan_cache_get(memory->plans, key, sizeof key, &plan) == BERTH_OK ? plan : NULL;
}

/* ---- Run ---------------------------------------------------------------------------------------------------------- */

/* What tells runs apart: the inputs, which outputs are asked for, and which of them the caller has made. Pointers of the session
 * stand for it; should another one get its address, its first run deviates and the plan is made anew. */
static uint64_t hash_run(const OrtApi *api, const char *const *input_names, const OrtValue *const *inputs,
                         size_t input_count, const char *const *output_names, size_t output_count,
                         OrtValue *const *outputs)
{
    uint64_t hash = hash_names(HASH_START, input_names, input_count);
    for (size_t i = 0; inputs && i < input_count; i++)
        hash = hash_value(api, inputs[i], hash);
    hash = hash_names(hash, output_names, output_count);
    for (size_t i = 0; outputs && i < output_count; i++) {
        const bool is_made = outputs[i] != NULL;
        hash = hash_bytes(hash, &is_made, sizeof is_made);
    }
    return hash;
}

struct OrtStatus *berth_ort_run(berth_ort *memory, struct OrtSession *session,
                                const struct OrtRunOptions *options, const char *const *input_names,
                                const struct OrtValue *const *inputs, size_t input_count,
                                const char *const *output_names, size_t output_count,
                                struct OrtValue **outputs)
{
    const OrtApi *api = memory->api;
    unsigned char key[BORT_KEY_BYTES];
    bool is_planned = false;
    if (!atomic_load_explicit(&memory->released, memory_order_relaxed)) {
        make_key(hash_run(api, input_names, inputs, input_count, output_names, output_count, outputs),
                 (uint64_t)(uintptr_t)session, key);
        is_planned = begin_run(memory, key) == BERTH_OK;
    }
    OrtStatus *status =
        api->Run(session, options, input_names, inputs, input_count, output_names, output_count, outputs);
    if (is_planned) {
        berth_report report = BERTH_REPORT_INIT;
        (void)end_run(memory, status != NULL, &report);
    } else
        atomic_fetch_add_explicit(&memory->unplanned, 1, memory_order_relaxed);
    return status;
}
