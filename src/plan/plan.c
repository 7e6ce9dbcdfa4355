/* The plan object: references, readers and writers, and what it answers. */
#include "plan/plan.h"

#include <string.h>
#include <unistd.h>

#include "base/fork_mutex.h"
#include "base/lock.h"

berth_status berth_plan_create(berth_plan **out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no place for the plan: out is NULL");
    *out = NULL;
    berth_plan *plan = berth__heap_zalloc(1, sizeof *plan);
    if (!plan)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a plan");
    atomic_init(&plan->references, 1);
    plan->content = berth__plan_empty();
    *out = plan;
    return BERTH_OK;
}

berth_plan *berth_plan_retain(berth_plan *plan)
{
    if (plan)
        atomic_fetch_add_explicit(&plan->references, 1, memory_order_relaxed);
    return plan;
}

void berth_plan_release(berth_plan *plan)
{
    if (!plan || atomic_fetch_sub_explicit(&plan->references, 1, memory_order_acq_rel) != 1)
        return;
    berth__plan_content_release(plan->content);
    berth__heap_free(plan);
}

/* One lock for all plans: it is held for a few instructions, and a fork finds it open. */
static berth__fork_mutex contents;
static pthread_once_t contents_once = PTHREAD_ONCE_INIT;

static void make_contents_lock(void)
{
    berth__fork_mutex_init(&contents);
}

static void lock_contents(void)
{
    pthread_once(&contents_once, make_contents_lock);
    berth__mutex_lock(&contents.lock, BERTH__RANK_REPLAY);
}

static void unlock_contents(void)
{
    berth__mutex_unlock(&contents.lock, BERTH__RANK_REPLAY);
}

static berth_status busy(uint32_t writer)
{
    if (writer == (uint32_t)getpid())
        return berth__fail(BERTH_BUSY, "the plan is being recorded or changed; wait until that has ended");
    return berth__fail(BERTH_BUSY,
                       "the plan was being recorded or changed when this process was forked: if by "
                       "this thread, end its scope, else make a new plan");
}

berth_status berth__plan_content_of(const berth_plan *plan, berth__plan_content **out)
{
    lock_contents();
    uint32_t writer = plan->writer;
    *out = writer ? NULL : berth__plan_content_retain(plan->content);
    unlock_contents();
    return writer ? busy(writer) : BERTH_OK;
}

berth_status berth__plan_lock(berth_plan *plan)
{
    uint32_t me = (uint32_t)getpid();
    lock_contents();
    uint32_t writer = plan->writer;
    if (!writer)
        plan->writer = me;
    unlock_contents();
    return writer ? busy(writer) : BERTH_OK;
}

void berth__plan_unlock(berth_plan *plan)
{
    lock_contents();
    plan->writer = 0;
    unlock_contents();
}

void berth__plan_put(berth_plan *plan, berth__plan_content *content)
{
    lock_contents();
    berth__plan_content *old = plan->content;
    plan->content = content;
    unlock_contents();
    berth__plan_content_release(old);
}

static berth_status no_plan(void)
{
    return berth__fail(BERTH_INVALID_ARGUMENT, "the plan is NULL");
}

berth_status berth_plan_clear(berth_plan *plan)
{
    if (!plan)
        return no_plan();
    berth_status status = berth__plan_lock(plan);
    if (status)
        return status;
    berth__plan_put(plan, berth__plan_empty());
    berth__plan_unlock(plan);
    return BERTH_OK;
}

/* Whether the offsets are given: by all that are freed, or by none. */
static berth_status offsets_given(const berth_plan_allocation *allocations, size_t count, bool *given)
{
    size_t freed = 0, placed = 0;
    for (size_t i = 0; i < count; i++) {
        if (allocations[i].struct_size < sizeof *allocations)
            return berth__fail(BERTH_INVALID_ARGUMENT,
                               "allocation %zu: struct_size is %zu; start from BERTH_PLAN_ALLOCATION_INIT", i,
                               allocations[i].struct_size);
        if (allocations[i].freed_at == BERTH_NEVER_FREED)
            continue;
        freed++;
        placed += allocations[i].offset != BERTH_NO_OFFSET;
    }
    if (placed && placed != freed)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "%zu of %zu allocations bring an offset: give all of them one, or none", placed,
                           freed);
    *given = placed != 0;
    return BERTH_OK;
}

berth_status berth_plan_set(berth_plan *plan, const berth_plan_allocation *allocations, size_t count,
                            const berth_solve_options *options)
{
    if (!plan || (count && !allocations))
        return plan ? berth__fail(BERTH_INVALID_ARGUMENT, "the allocations are NULL") : no_plan();
    berth_status status = berth__plan_lock(plan);
    if (status)
        return status;
    berth__plan_put(plan, berth__plan_empty());
    berth__plan_source source = {.allocations = allocations, .count = count};
    status = offsets_given(allocations, count, &source.has_offsets);
    berth__plan_content *content = NULL;
    if (!status)
        status = berth__plan_build(&source, options, &content);
    if (!status)
        berth__plan_put(plan, content);
    berth__plan_unlock(plan);
    return status;
}

/* The allocations of a content without their offsets, and the order of frees, for building another. */
static berth_status plan_unpack(const berth__plan_content *c, berth_plan_allocation **allocations,
                                uint32_t **free_order)
{
    *allocations = berth__heap_zalloc(c->count, sizeof **allocations);
    *free_order = berth__heap_zalloc(c->planned, sizeof **free_order);
    if (!*allocations || !*free_order)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to solve a plan of %u allocations again",
                           c->count);
    for (uint32_t i = 0; i < c->count; i++) {
        (*allocations)[i] = berth__plan_describe(c, i);
        (*allocations)[i].offset = BERTH_NO_OFFSET;
    }
    berth__plan_free_order(c, *free_order);
    return BERTH_OK;
}

berth_status berth_plan_solve(berth_plan *plan, const berth_solve_options *options)
{
    if (!plan)
        return no_plan();
    berth_status status = berth__plan_lock(plan);
    if (status)
        return status;
    berth_plan_allocation *allocations = NULL;
    uint32_t *free_order = NULL;
    berth__plan_content *content = NULL;
    status = plan_unpack(plan->content, &allocations, &free_order);
    if (!status) {
        berth__plan_source source = {
            .allocations = allocations, .count = plan->content->count, .free_order = free_order};
        status = berth__plan_build(&source, options, &content);
    }
    for (uint32_t i = 0; !status && i < content->count; i++)
        content->entries[i].least_bytes = plan->content->entries[i].least_bytes;
    if (!status && content->total_bytes < plan->content->total_bytes)
        berth__plan_put(plan, berth__plan_content_retain(content));
    berth__plan_content_release(content);
    berth__heap_free(free_order);
    berth__heap_free(allocations);
    berth__plan_unlock(plan);
    return status;
}

/* With the lock: a content like the plan's at other places. */
static berth_status plan_move(const berth__plan_content *from, const uint64_t *offsets,
                              berth__plan_content **out)
{
    berth_plan_allocation *allocations = NULL;
    uint32_t *free_order = NULL;
    berth_status status = plan_unpack(from, &allocations, &free_order);
    for (uint32_t i = 0; !status && i < from->count; i++) {
        if (allocations[i].freed_at == BERTH_NEVER_FREED)
            continue;
        allocations[i].offset = offsets[i];
        if (offsets[i] == BERTH_NO_OFFSET)
            status = berth__fail(BERTH_INVALID_ARGUMENT,
                                 "allocation %u is freed inside and was given no place", i);
    }
    if (!status) {
        berth__plan_source source = {.allocations = allocations,
                                     .count = from->count,
                                     .free_order = free_order,
                                     .has_offsets = true,
                                     .like = from};
        status = berth__plan_build(&source, NULL, out);
    }
    berth__heap_free(free_order);
    berth__heap_free(allocations);
    if (status)
        return status;
    for (uint32_t i = 0; i < from->count; i++)
        (*out)->entries[i].least_bytes = from->entries[i].least_bytes;
    return BERTH_OK;
}

berth_status berth_plan_place(berth_plan *plan, const uint64_t *offsets, size_t count)
{
    if (!plan || (count && !offsets))
        return plan ? berth__fail(BERTH_INVALID_ARGUMENT, "the offsets are NULL") : no_plan();
    berth_status status = berth__plan_lock(plan);
    if (status)
        return status;
    berth__plan_content *content = NULL;
    if (count != plan->content->count)
        status = berth__fail(BERTH_INVALID_ARGUMENT, "%zu offsets for a plan of %u allocations", count,
                             plan->content->count);
    else if (count)
        status = plan_move(plan->content, offsets, &content);
    if (!status && content)
        berth__plan_put(plan, content);
    berth__plan_unlock(plan);
    return status;
}

/* ---- Questions --------------------------------------------------------------------------------------- */

size_t berth_plan_count(const berth_plan *plan)
{
    return plan ? plan->content->count : 0;
}

uint64_t berth_plan_total_bytes(const berth_plan *plan)
{
    return plan ? plan->content->total_bytes : 0;
}

uint64_t berth_plan_fingerprint(const berth_plan *plan)
{
    return plan ? plan->content->fingerprint : 0;
}

berth_plan_allocation berth__plan_describe(const berth__plan_content *c, size_t id)
{
    const berth__plan_entry *e = &c->entries[id];
    return (berth_plan_allocation){
        .struct_size = sizeof(berth_plan_allocation),
        .size_bytes = e->size_bytes,
        .alignment = e->alignment,
        .freed_at = e->freed_at == UINT32_MAX ? BERTH_NEVER_FREED : e->freed_at,
        .offset = e->offset,
        .label = e->label,
    };
}

berth_status berth_plan_get(const berth_plan *plan, size_t id, berth_plan_allocation *out)
{
    if (!plan || !out || out->struct_size < sizeof out->struct_size)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "berth_plan_get needs a plan and a result whose struct_size is set");
    if (id >= plan->content->count)
        return berth__fail(BERTH_NOT_FOUND, "the plan has %u allocations, there is no number %zu",
                           plan->content->count, id);
    berth_plan_allocation full = berth__plan_describe(plan->content, id);
    size_t known = out->struct_size < sizeof full ? out->struct_size : sizeof full;
    full.struct_size = out->struct_size;
    memcpy(out, &full, known);
    return BERTH_OK;
}

berth_status berth_plan_certificate(const berth_plan *plan, berth_certificate *out)
{
    if (!plan || !out || out->struct_size < sizeof out->struct_size)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "berth_plan_certificate needs a plan and a result whose struct_size is set");
    berth_certificate full = plan->content->certificate;
    size_t known = out->struct_size < sizeof full ? out->struct_size : sizeof full;
    full.struct_size = out->struct_size;
    memcpy(out, &full, known);
    return BERTH_OK;
}

size_t berth_plan_memory_bytes(const berth_plan *plan)
{
    if (!plan)
        return 0;
    const berth__plan_content *c = plan->content;
    size_t bytes = sizeof *plan;
    if (c->count == 0)
        return bytes;
    bytes += ((size_t)c->count + 1) * sizeof *c->entries + c->text_bytes;
    bytes += ((size_t)c->step_count + 1) * (sizeof *c->steps + sizeof *c->step_ids);
    bytes += c->step_labels ? ((size_t)c->step_count + 1) * sizeof *c->step_labels : 0;
    bytes += c->count * sizeof *c->live_bytes + c->planned * sizeof *c->rank_offsets;
    return bytes + ((size_t)c->slot_mask + 1) * sizeof *c->slots;
}
