/* What is in an arena: its allocations by number and label, its figures, its plan. */
#include <string.h>

#include "shared/shared.h"

static berth_status no_place(void)
{
    return berth__fail(BERTH_INVALID_ARGUMENT, "the handle, the label or the place for the answer is NULL");
}

size_t berth_shared_count(const berth_shared *shared)
{
    return shared ? berth__shared_head_of(shared)->count : 0;
}

berth_status berth_shared_get(const berth_shared *shared, size_t id, void **data, size_t *size_bytes)
{
    if (data)
        *data = NULL;
    if (!shared || !data)
        return no_place();
    uint32_t count = berth__shared_head_of(shared)->count;
    if (id >= count)
        return berth__fail(BERTH_NOT_FOUND, "there is no allocation %zu: the arena's plan has %u", id, count);
    const berth__shared_entry *e = &berth__shared_entries(shared->image)[id];
    if (e->offset == BERTH_NO_OFFSET)
        return berth__fail(BERTH_NOT_FOUND, "allocation %zu is never freed, so the plan has no place for it",
                           id);
    *data = shared->arena + e->offset;
    if (size_bytes)
        *size_bytes = (size_t)e->size_bytes;
    return BERTH_OK;
}

berth_status berth_shared_find(const berth_shared *shared, const char *label, size_t *id)
{
    if (!shared || !label || !id)
        return no_place();
    const berth__shared_entry *entries = berth__shared_entries(shared->image);
    uint32_t low = 0, high = berth__shared_head_of(shared)->count;
    uint32_t count = high;
    while (low < high) { /* the first whose label is not before the one asked for */
        uint32_t middle = low + (high - low) / 2;
        const char *there = berth__shared_label(shared->image, entries[middle].by_label);
        if (there && strcmp(there, label) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const char *there = low < count ? berth__shared_label(shared->image, entries[low].by_label) : NULL;
    if (!there || strcmp(there, label) != 0)
        return berth__fail(BERTH_NOT_FOUND, "no allocation of the arena has the label '%.60s'", label);
    *id = entries[low].by_label;
    return BERTH_OK;
}

static berth_status build_plan(const berth_shared *s, berth__plan_content **out)
{
    const berth__shared_head *head = berth__shared_head_of(s);
    berth_plan_allocation *list = berth__heap_zalloc(head->count, sizeof *list);
    if (!list)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a plan of %u allocations", head->count);
    for (uint32_t i = 0; i < head->count; i++) {
        const berth__shared_entry *e = &berth__shared_entries(s->image)[i];
        list[i] = (berth_plan_allocation){
            .struct_size = sizeof *list,
            .size_bytes = e->size_bytes,
            .alignment = e->alignment,
            .freed_at = e->freed_at == UINT32_MAX ? BERTH_NEVER_FREED : e->freed_at,
            .offset = e->offset,
            .label = berth__shared_label(s->image, i),
        };
    }
    const berth__plan_source source = {.allocations = list, .count = head->count, .has_offsets = true};
    berth_status status = berth__plan_build(&source, NULL, out);
    berth__heap_free(list);
    if (status == BERTH_INVALID_ARGUMENT) /* a life that cannot be: not the caller's fault */
        return berth__fail(BERTH_BAD_DATA, "the arena's allocations are not those of a plan");
    if (!status && (*out)->fingerprint != head->fingerprint) {
        berth__plan_content_release(*out);
        return berth__fail(BERTH_BAD_DATA, "the arena's plan does not have the fingerprint that it says");
    }
    return status;
}

berth_status berth_shared_plan(const berth_shared *shared, berth_plan **out)
{
    if (out)
        *out = NULL;
    if (!shared || !out)
        return no_place();
    berth_plan *plan = NULL;
    berth__plan_content *content = NULL;
    berth_status status = berth_plan_create(&plan);
    if (status)
        return status;
    status = build_plan(shared, &content);
    if (!status)
        status = berth__plan_lock(plan);
    if (status) {
        berth_plan_release(plan);
        return status;
    }
    berth__plan_put(plan, content);
    berth__plan_unlock(plan);
    *out = plan;
    return BERTH_OK;
}

berth_status berth_shared_info_get(berth_shared *shared, berth_shared_info *out)
{
    if (!shared || !out)
        return no_place();
    if (out->struct_size < sizeof *out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "start the answer from BERTH_SHARED_INFO_INIT");
    const berth__shared_head *head = berth__shared_head_of(shared);
    berth__shared_enter(shared);
    uint64_t state = atomic_load_explicit(&shared->live->state, memory_order_acquire);
    *out = (berth_shared_info){
        .struct_size = out->struct_size,
        .count = head->count,
        .total_bytes = head->arena_bytes,
        .fingerprint = head->fingerprint,
        .generation = state >> BERTH__SHARED_GENERATION_SHIFT,
        .writing = (state & BERTH__SHARED_WRITING) != 0,
        .retired = (state & BERTH__SHARED_RETIRED) != 0,
        .mine = shared->owns,
        .owned = shared->owns,
        .access = shared->may_write ? BERTH_SHARED_WRITE : BERTH_SHARED_READ,
        .seals = BERTH_SHARED_SEAL_SIZE,
    };
    if (shared->descriptor >= 0) {
        out->owned |=
            berth__shared_is_locked(shared->descriptor, BERTH__SHARED_OWNER, BERTH__SHARED_LOCK_READ);
        (void)berth__shared_seals_read(berth__shared_seals_of(shared->descriptor), &out->seals);
    }
    berth__shared_leave(shared);
    return BERTH_OK;
}
