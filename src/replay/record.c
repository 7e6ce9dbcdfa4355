/* Recording a run, and validating one: the same recording, compared instead of planned. */
#include <string.h>

#include "device/device.h"
#include "replay/replay.h"

/* ---- The recording ----------------------------------------------------------------------------------- */

static bool make_room(berth__recorder *r)
{
    if (r->count < r->room)
        return true;
    size_t room = r->room ? r->room * 2 : 1024;
    berth_plan_allocation *larger = berth__heap_realloc(r->allocations, room * sizeof *larger);
    if (!larger)
        return false;
    r->allocations = larger;
    r->room = room;
    return true;
}

static bool note_free(berth__recorder *r, uint64_t id)
{
    BERTH_DCHECK(id < r->count && r->allocations[id].freed_at == BERTH_NEVER_FREED,
                 "[R6] what was recorded is freed once");
    BERTH_DCHECK(r->freed < r->count, "[R6] no more is freed than was allocated");
    r->allocations[id].freed_at = r->count;
    if (r->freed == r->freed_room) {
        size_t room = r->freed_room ? r->freed_room * 2 : 1024;
        uint32_t *larger = berth__heap_realloc(r->free_order, room * sizeof *larger);
        if (!larger)
            return false;
        r->free_order = larger;
        r->freed_room = room;
    }
    r->free_order[r->freed++] = (uint32_t)id;
    return true;
}

static bool note_allocation(berth__recorder *r, const void *p, size_t size_bytes, size_t alignment,
                            const char *label)
{
    bool replaced = false;
    uint64_t old = 0;
    if (r->count >= UINT32_MAX / 2 - 2 || !make_room(r) ||
        !berth__handed_put(&r->live, p, r->count, &replaced, &old))
        return false;
    BERTH_DCHECK(r->live.count <= r->count + 1, "[R12] what is live was recorded");
    /* The inner allocator gave out an address that we think is live: another thread has freed it. */
    if (replaced && !note_free(r, old))
        return false;
    r->allocations[r->count++] = (berth_plan_allocation){
        .struct_size = sizeof(berth_plan_allocation),
        .size_bytes = size_bytes,
        .alignment = alignment,
        .freed_at = BERTH_NEVER_FREED,
        .offset = BERTH_NO_OFFSET,
        .label = label,
    };
    return true;
}

berth_status berth__record_allocate(berth__recorder *r, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    BERTH_DCHECK(berth__run_is_mine(&r->head), "[R14] a scope is its thread's");
    berth_request own;
    if (BERTH_UNLIKELY(r->stream && !request->stream)) {
        own = *request;
        own.stream = r->stream;
        request = &own;
    }
    if (BERTH_UNLIKELY(alignment < r->least_alignment))
        alignment = r->least_alignment;
    berth_status status = berth__inner_allocate(r->planned, size_bytes, alignment, request, out);
    if (BERTH_LIKELY(!status && size_bytes != 0 && !r->failed))
        r->failed = !note_allocation(r, *out, size_bytes, alignment, berth__request_label(request));
    return status;
}

berth_status berth__record_deallocate(berth__recorder *r, void *p, size_t size_bytes, berth_stream *stream)
{
    BERTH_DCHECK(berth__run_is_mine(&r->head), "[R14] a scope is its thread's");
    uint64_t id = 0;
    /* What is not in the table comes from outside the scope, and passes. */
    if (BERTH_LIKELY(berth__handed_take(&r->live, p, &id)) && !r->failed)
        r->failed = !note_free(r, id);
    return berth__planned_free_foreign(r->planned, p, size_bytes, stream ? stream : r->stream);
}

/* ---- Beginning and ending ---------------------------------------------------------------------------- */

static void recorder_free(berth__recorder *r)
{
    BERTH_DCHECK(!berth__run_is_mine(&r->head), "[R14] a scope is closed before it goes");
    berth__handed_finish(&r->live);
    berth__heap_free(r->allocations);
    berth__heap_free(r->free_order);
    berth__heap_free(r->key);
    berth__plan_content_release(r->expected);
    berth__stream_release(r->stream);
    berth_plan_release(r->plan);
    berth__heap_free(r);
}

/* Places in a plan are bound as blocks are. */
static size_t least_alignment(const berth__planned *planned)
{
    berth_allocator *inner = planned->base.inner;
    berth_device device = berth_allocator_device(inner);
    if (device.kind == BERTH_DEVICE_CPU || device.kind == BERTH_DEVICE_UNKNOWN ||
        inner->ops.memory_kind(inner->self) != BERTH_MEMORY_DEVICE)
        return 1;
    return berth__device_offset_alignment(device);
}

static berth_status recorder_create(berth_allocator *allocator, const berth_run_options *options,
                                    berth__recorder **out)
{
    berth__planned *planned = berth__planned_of(allocator);
    if (!planned)
        return BERTH_INVALID_ARGUMENT;
    berth_run_options o;
    berth_status status = berth__run_options_read(options, &o);
    if (!status)
        status = berth__run_may_open();
    if (status)
        return status;
    berth__recorder *r = berth__heap_zalloc(1, sizeof *r);
    if (!r)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a recording");
    r->planned = planned;
    r->head.next = &berth__nothing_expected;
    r->head.alignment = 1;
    r->least_alignment = least_alignment(planned);
    r->plan = berth__planned_choose(planned, &o);
    r->stream = o.stream ? berth__stream_retain(o.stream) : NULL;
    if (o.solve) {
        r->has_solve = true;
        memcpy(&r->solve, o.solve,
               o.solve->struct_size < sizeof r->solve ? o.solve->struct_size : sizeof r->solve);
    }
    *out = r;
    return BERTH_OK;
}

berth_status berth__record_start(berth_allocator *allocator, const berth_run_options *options,
                                 berth__recorder **out)
{
    berth__recorder *r = NULL;
    berth_status status = recorder_create(allocator, options, &r);
    if (status)
        return status;
    status = berth__plan_lock(r->plan);
    if (status) {
        recorder_free(r);
        return status;
    }
    berth__plan_put(r->plan, berth__plan_empty());
    *out = r;
    return berth__run_open(&r->head, allocator, BERTH_RUN_RECORD);
}

berth_status berth_record_begin(berth_allocator *allocator, const berth_run_options *options)
{
    berth__recorder *r = NULL;
    return berth__record_start(allocator, options, &r);
}

static berth_status check_complete(const berth__recorder *r)
{
    return r->failed ? berth__fail(BERTH_OUT_OF_HOST_MEMORY,
                                   "the recording ran out of memory after %zu allocations", r->count)
                     : BERTH_OK;
}

/* The scope is over for the thread before the solver starts. */
static berth__recorder *close_recorder(berth_allocator *allocator, berth_run_kind kind)
{
    berth__recorder *r = (berth__recorder *)berth__run_find(allocator, kind);
    if (r)
        berth__run_close();
    return r;
}

static berth_status plan_recording(berth__recorder *r)
{
    berth__plan_source source = {
        .allocations = r->allocations, .count = r->count, .free_order = r->free_order};
    BERTH_DCHECK(r->failed || r->live.count + r->freed == r->count,
                 "[R6] what was recorded is live, or was freed once");
    berth__plan_content *content = NULL;
    berth_status status = check_complete(r);
    if (!status)
        status = berth__plan_build(&source, r->has_solve ? &r->solve : NULL, &content);
    if (!status)
        berth__plan_put(r->plan, content);
    berth__plan_unlock(r->plan);
    return status;
}

berth_status berth_record_end(berth_allocator *allocator)
{
    berth__recorder *r = close_recorder(allocator, BERTH_RUN_RECORD);
    if (!r)
        return BERTH_NOT_FOUND;
    berth_status status = plan_recording(r);
    if (!status && r->cache)
        berth_plan_cache_put(r->cache, r->key, r->key_bytes, r->plan);
    recorder_free(r);
    berth_allocator_release(allocator);
    return status;
}

berth_status berth_validate_begin(berth_allocator *allocator, const berth_run_options *options)
{
    berth__recorder *r = NULL;
    berth_status status = recorder_create(allocator, options, &r);
    if (status)
        return status;
    status = berth__plan_content_of(r->plan, &r->expected);
    if (status) {
        recorder_free(r);
        return status;
    }
    return berth__run_open(&r->head, allocator, BERTH_RUN_VALIDATE);
}

berth_status berth_validate_end(berth_allocator *allocator, berth_difference *first)
{
    berth__recorder *r = close_recorder(allocator, BERTH_RUN_VALIDATE);
    berth_difference d = BERTH_DIFFERENCE_INIT;
    if (!r) {
        d.status = BERTH_NOT_FOUND; /* nothing of an earlier run is left in it */
        berth__difference_give(&d, first);
        return BERTH_NOT_FOUND;
    }
    d.status = check_complete(r);
    if (!d.status)
        berth__validate_compare(r, &d);
    recorder_free(r);
    berth_allocator_release(allocator);
    if (d.status == BERTH_MISMATCH)
        berth__fail(BERTH_MISMATCH, "the run differs from the plan: %s", d.words);
    berth__difference_give(&d, first);
    return d.status;
}
