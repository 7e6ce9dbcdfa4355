/* Makes the content of a plan: allocations in, offsets solved for or taken, proven, laid out. */
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

static const berth_step end_step = {BERTH_STEP_FREE, BERTH__NOWHERE};
static berth__plan_entry end_entry;

static berth__plan_content empty = {
    .entries = &end_entry,
    .alignment = 1,
    .certificate = {.struct_size = sizeof(berth_certificate), .proven_optimal = true, .fits = BERTH_FITS_YES},
    .steps = (berth_step *)&end_step,
};

berth__plan_content *berth__plan_empty(void)
{
    return &empty;
}

berth__plan_content *berth__plan_content_retain(berth__plan_content *c)
{
    if (c != &empty)
        atomic_fetch_add_explicit(&c->references, 1, memory_order_relaxed);
    return c;
}

static void content_free(berth__plan_content *c)
{
    berth__heap_free(c->entries);
    berth__heap_free(c->text);
    berth__heap_free(c->steps);
    berth__heap_free(c->step_ids);
    berth__heap_free(c->step_labels);
    berth__heap_free(c->live_bytes);
    berth__heap_free(c->rank_offsets);
    berth__heap_free(c->slots);
    berth__heap_free(c->ranges);
    berth__plan_content *whole = c->whole;
    berth__heap_free(c);
    berth__plan_content_release(whole);
}

void berth__plan_content_release(berth__plan_content *c)
{
    if (c && c != &empty && atomic_fetch_sub_explicit(&c->references, 1, memory_order_acq_rel) == 1)
        content_free(c);
}

static berth_status check_allocation(const berth_plan_allocation *a, size_t id, size_t count)
{
    if (a->size_bytes == 0)
        return berth__fail(BERTH_INVALID_ARGUMENT, "allocation %zu has no bytes; empty ones are not planned",
                           id);
    if (a->alignment > UINT32_MAX || (a->alignment && !berth__is_power_of_two((size_t)a->alignment)))
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "allocation %zu: alignment %llu is not a power of two below 4 GiB", id,
                           (unsigned long long)a->alignment);
    if (a->freed_at != BERTH_NEVER_FREED && (a->freed_at <= id || a->freed_at > count))
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "allocation %zu is freed at %llu; from %zu to %zu is possible, or never", id,
                           (unsigned long long)a->freed_at, id + 1, count);
    return BERTH_OK;
}

/* Labels repeat: one that is the same pointer or the same words as the one before is kept once. */
static const char *copy_label(berth__plan_content *c, const char *label, size_t *used, const char **last,
                              const char **last_copy)
{
    if (!label)
        return NULL;
    if (*last && (*last == label || strcmp(*last, label) == 0))
        return *last_copy;
    size_t length = strlen(label) + 1;
    char *copy = c->text + *used;
    memcpy(copy, label, length);
    *used += length;
    *last = label;
    *last_copy = copy;
    return copy;
}

static size_t label_bytes(const berth__plan_source *s)
{
    size_t bytes = 0;
    const char *last = NULL;
    for (size_t i = 0; i < s->count; i++) {
        const char *label = s->allocations[i].label;
        if (!label || (last && (last == label || strcmp(last, label) == 0)))
            continue;
        bytes += strlen(label) + 1;
        last = label;
    }
    return bytes;
}

static berth_status copy_entries(const berth__plan_source *s, berth__plan_content *c)
{
    if (s->count > UINT32_MAX / 2 - 2)
        return berth__fail(BERTH_OVERFLOW, "a plan of %zu allocations is more than berth can number",
                           s->count);
    c->text_bytes = label_bytes(s);
    c->entries = berth__heap_zalloc(s->count + 1, sizeof *c->entries);
    c->text = berth__heap_alloc(c->text_bytes);
    if (!c->entries || !c->text)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a plan of %zu allocations", s->count);
    c->count = (uint32_t)s->count;
    c->alignment = 1;
    size_t used = 0;
    const char *last = NULL, *last_copy = NULL;
    for (size_t i = 0; i < s->count; i++) {
        const berth_plan_allocation *a = &s->allocations[i];
        berth_status status = check_allocation(a, i, s->count);
        if (status)
            return status;
        berth__plan_entry *e = &c->entries[i];
        e->size_bytes = a->size_bytes;
        e->least_bytes = s->least_bytes ? s->least_bytes[i] : a->size_bytes;
        e->offset = a->freed_at == BERTH_NEVER_FREED ? BERTH_NO_OFFSET : a->offset;
        e->label = copy_label(c, a->label, &used, &last, &last_copy);
        e->alignment = a->alignment ? (uint32_t)a->alignment : 1;
        e->freed_at = a->freed_at == BERTH_NEVER_FREED ? UINT32_MAX : (uint32_t)a->freed_at;
        if (e->freed_at == UINT32_MAX)
            continue;
        c->planned++;
        c->alignment = c->alignment > e->alignment ? c->alignment : e->alignment;
    }
    return BERTH_OK;
}

/* The planning problem of the allocations that are freed inside, in order. */
static void pose(const berth__plan_content *c, berth_problem_buffer *buffers, uint64_t *offsets)
{
    size_t n = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        const berth__plan_entry *e = &c->entries[i];
        if (e->freed_at == UINT32_MAX)
            continue;
        buffers[n] = (berth_problem_buffer){.lower = i,
                                            .upper = e->freed_at,
                                            .size_bytes = e->size_bytes,
                                            .fixed_offset = BERTH_NO_OFFSET,
                                            .alignment = e->alignment};
        offsets[n++] = e->offset;
    }
}

/* The problem's own, and where allocations are outside the plan, those too. */
static uint64_t fingerprint(const berth__plan_content *c, uint64_t print)
{
    for (uint32_t i = 0; i < c->count; i++) {
        const berth__plan_entry *e = &c->entries[i];
        if (e->freed_at != UINT32_MAX)
            continue;
        print ^= i + (e->size_bytes << 1);
        print *= UINT64_C(0x9E3779B97F4A7C15);
        print ^= print >> 29;
    }
    return print ? print : 1;
}

/* Of a content with the same allocations at other places. */
static void take_proofs(berth__plan_content *c, const berth__plan_content *like)
{
    c->fingerprint = like->fingerprint;
    c->certificate = like->certificate;
    berth_certificate *k = &c->certificate;
    k->peak_bytes = c->total_bytes;
    k->proven_optimal = k->peak_bytes == k->lower_bound_bytes;
    k->fits = BERTH_FITS_YES;
    k->stopped_by = BERTH_STOP_DONE;
    k->steps = k->seed = 0;
    snprintf(k->solver, sizeof k->solver, "given");
}

static berth_status build_place(berth__plan_content *c, const berth_problem *problem,
                                const berth__plan_source *source, const berth_solve_options *options,
                                uint64_t *offsets)
{
    const bool has_offsets = source->has_offsets;
    c->certificate.struct_size = sizeof c->certificate;
    berth_status status = BERTH_OK;
    if (!has_offsets)
        status = berth_solve(problem, options, offsets, &c->certificate);
    if (status)
        return status;
    berth_verdict verdict = {.struct_size = sizeof verdict};
    status = berth_problem_check(problem, offsets, &verdict);
    if (!BERTH_ASSERT(status != BERTH_MISMATCH || has_offsets, "[R1] a solver's plan passes the checker"))
        return berth__fail(BERTH_INTERNAL, "the solver's plan is broken: %s", verdict.words);
    if (status)
        return status;
    c->total_bytes = verdict.peak_bytes;
    if (source->like) {
        take_proofs(c, source->like);
        return BERTH_OK;
    }
    uint64_t print = 0;
    status = berth_problem_fingerprint(problem, &print);
    c->fingerprint = fingerprint(c, print);
    if (status || !has_offsets)
        return status;
    /* Taken as given: what is known of it is the bound that anyone can compute. */
    berth_certificate *k = &c->certificate;
    status = berth_problem_max_live(problem, &k->max_live_bytes, &k->binding_time);
    k->lower_bound_bytes = k->max_live_bytes;
    k->peak_bytes = c->total_bytes;
    for (size_t i = 0; i < problem->buffer_count; i++)
        k->naive_bytes += problem->buffers[i].size_bytes;
    k->proven_optimal = k->peak_bytes == k->lower_bound_bytes;
    k->fits = BERTH_FITS_YES;
    k->fingerprint = print;
    memcpy(k->solver, "given", sizeof "given");
    return status;
}

static berth_status solve_and_prove(berth__plan_content *c, const berth__plan_source *source,
                                    const berth_solve_options *options)
{
    berth_problem_buffer *buffers = berth__heap_zalloc(c->planned, sizeof *buffers);
    uint64_t *offsets = berth__heap_zalloc(c->planned, sizeof *offsets);
    berth_status status = BERTH_OK;
    if (!buffers || !offsets) {
        status = berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to plan %u allocations", c->planned);
        goto done;
    }
    pose(c, buffers, offsets);
    berth_problem problem = {.struct_size = sizeof problem, .buffers = buffers, .buffer_count = c->planned};
    status = build_place(c, &problem, source, options, offsets);
    if (status)
        goto done;
    for (uint32_t i = 0, n = 0; i < c->count; i++)
        if (c->entries[i].freed_at != UINT32_MAX)
            c->entries[i].offset = offsets[n++];
done:
    berth__heap_free(offsets);
    berth__heap_free(buffers);
    return status;
}

berth_status berth__plan_build(const berth__plan_source *source, const berth_solve_options *options,
                               berth__plan_content **out)
{
    *out = NULL;
    if (source->count == 0) {
        *out = &empty;
        return BERTH_OK;
    }
    berth__plan_content *c = berth__heap_zalloc(1, sizeof *c);
    if (!c)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a plan");
    atomic_init(&c->references, 1);
    berth_status status = copy_entries(source, c);
    if (!status)
        status = solve_and_prove(c, source, options);
    if (!status)
        status = berth__plan_lay_out(c, source->free_order);
    if (!status)
        *out = c;
    else
        content_free(c);
    return status;
}
