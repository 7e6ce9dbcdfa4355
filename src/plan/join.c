/* Several recordings of one program: their envelope, and how far one still follows another. */
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

static bool labels_equal(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* How many allocations, from the first, all parts have alike. */
static uint32_t common_length(berth__plan_content *const *parts, size_t count)
{
    uint32_t length = parts[0]->count;
    for (size_t k = 1; k < count; k++) {
        uint32_t i = 0;
        while (i < length && i < parts[k]->count &&
               labels_equal(parts[0]->entries[i].label, parts[k]->entries[i].label))
            i++;
        length = i;
    }
    return length;
}

static uint64_t join_least(berth__plan_content *const *parts, size_t count, uint32_t id)
{
    uint64_t bytes = parts[0]->entries[id].least_bytes;
    for (size_t k = 1; k < count; k++)
        bytes = parts[k]->entries[id].least_bytes < bytes ? parts[k]->entries[id].least_bytes : bytes;
    return bytes;
}

/* Allocation `id` at its largest and longest. What is freed after the envelope's end is freed at its end. */
static berth_plan_allocation widest(berth__plan_content *const *parts, size_t count, uint32_t id,
                                    uint32_t length)
{
    berth_plan_allocation all = berth__plan_describe(parts[0], id);
    for (size_t k = 1; k < count; k++) {
        berth_plan_allocation one = berth__plan_describe(parts[k], id);
        all.size_bytes = one.size_bytes > all.size_bytes ? one.size_bytes : all.size_bytes;
        all.alignment = one.alignment > all.alignment ? one.alignment : all.alignment;
        all.freed_at = one.freed_at > all.freed_at ? one.freed_at : all.freed_at;
    }
    if (all.freed_at != BERTH_NEVER_FREED && all.freed_at > length)
        all.freed_at = length;
    all.offset = BERTH_NO_OFFSET;
    return all;
}

/* The order in which the first part frees what the envelope has freed; the rest follows. */
static void order_frees(const berth__plan_content *first, const berth_plan_allocation *all, uint32_t length,
                        uint32_t *order)
{
    size_t n = 0;
    for (uint32_t s = 0; s < first->step_count; s++) {
        uint32_t id = first->step_ids[s];
        if (id < length && first->entries[id].step != s && all[id].freed_at != BERTH_NEVER_FREED)
            order[n++] = id;
    }
}

static berth_status join(berth__plan_content *const *parts, size_t count, const berth_solve_options *options,
                         berth__plan_content **out)
{
    uint32_t length = common_length(parts, count);
    berth_plan_allocation *all = berth__heap_zalloc(length, sizeof *all);
    uint32_t *order = berth__heap_zalloc(length, sizeof *order);
    uint64_t *least_bytes = berth__heap_zalloc(length, sizeof *least_bytes);
    berth_status status = BERTH_OK;
    if (!all || !order || !least_bytes) {
        status = berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an envelope of %u allocations", length);
        goto done;
    }
    for (uint32_t id = 0; id < length; id++) {
        all[id] = widest(parts, count, id, length);
        least_bytes[id] = join_least(parts, count, id);
    }
    order_frees(parts[0], all, length, order);
    berth__plan_source source = {
        .allocations = all, .count = length, .free_order = order, .least_bytes = least_bytes};
    status = berth__plan_build(&source, options, out);
done:
    berth__heap_free(least_bytes);
    berth__heap_free(order);
    berth__heap_free(all);
    return status;
}

berth_status berth_plan_join(berth_plan *plan, berth_plan *const *parts, size_t count,
                             const berth_solve_options *options)
{
    if (!plan || !parts || count == 0)
        return berth__fail(BERTH_INVALID_ARGUMENT, "an envelope needs a plan to go into and at least one "
                                                   "recording");
    berth__plan_content **contents = berth__heap_zalloc(count, sizeof *contents);
    if (!contents)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to join %zu recordings", count);
    berth__plan_content *envelope = NULL;
    berth_status status = BERTH_OK;
    for (size_t k = 0; k < count && !status; k++)
        status = parts[k] ? berth__plan_content_of(parts[k], &contents[k])
                          : berth__fail(BERTH_INVALID_ARGUMENT, "recording %zu is NULL", k);
    if (!status)
        status = join(contents, count, options, &envelope);
    if (!status)
        status = berth__plan_lock(plan);
    if (!status) {
        berth__plan_put(plan, envelope);
        berth__plan_unlock(plan);
    } else {
        berth__plan_content_release(envelope);
    }
    for (size_t k = 0; k < count; k++)
        berth__plan_content_release(contents[k]);
    berth__heap_free(contents);
    return status;
}

/* ---- Comparing --------------------------------------------------------------------------------------- */

static bool entry_fits(const berth__plan_entry *now, const berth__plan_entry *kept)
{
    return now->size_bytes <= kept->size_bytes && now->alignment <= kept->alignment &&
           now->freed_at <= kept->freed_at;
}

static bool entry_same(const berth__plan_entry *now, const berth__plan_entry *kept)
{
    return now->size_bytes == kept->size_bytes && now->alignment == kept->alignment &&
           now->freed_at == kept->freed_at;
}

/* -1 stands for never. */
static long long freed_at(const berth__plan_entry *e)
{
    return e->freed_at == UINT32_MAX ? -1 : (long long)e->freed_at;
}

static void note_difference(berth_plan_fit *fit, uint32_t id, const berth__plan_entry *kept,
                            const berth__plan_entry *now)
{
    if (fit->first_difference != BERTH_NEVER_FREED)
        return;
    fit->first_difference = id;
    if (!kept || !now)
        snprintf(fit->words, sizeof fit->words, "allocation %u is only in the %s", id,
                 kept ? "plan" : "program");
    else
        snprintf(fit->words, sizeof fit->words,
                 "allocation %u%s%s: planned %llu bytes, alignment %u, freed at %lld; now %llu, %u, %lld", id,
                 kept->label ? " " : "", kept->label ? kept->label : "", (unsigned long long)kept->size_bytes,
                 kept->alignment, freed_at(kept), (unsigned long long)now->size_bytes, now->alignment,
                 freed_at(now));
}

static void join_compare(const berth__plan_content *kept, const berth__plan_content *now, berth_plan_fit *fit)
{
    fit->first_difference = BERTH_NEVER_FREED;
    fit->allocations = now->count;
    for (uint32_t id = 0; id < now->count; id++) {
        const berth__plan_entry *n = &now->entries[id];
        const berth__plan_entry *k = id < kept->count ? &kept->entries[id] : NULL;
        fit->bytes += n->size_bytes;
        if (k && entry_fits(n, k)) {
            fit->fitting++;
            fit->fitting_bytes += n->size_bytes;
        }
        if (!k || !entry_same(n, k))
            note_difference(fit, id, k, n);
    }
    if (kept->count > now->count)
        note_difference(fit, now->count, &kept->entries[now->count], NULL);
}

berth_status berth_plan_compare(const berth_plan *kept, const berth_plan *now, berth_plan_fit *out)
{
    if (!kept || !now || (out && out->struct_size < sizeof out->struct_size))
        return berth__fail(BERTH_INVALID_ARGUMENT, "comparing needs two plans%s",
                           kept && now ? " and a result whose struct_size is set" : "");
    berth__plan_content *k = NULL, *n = NULL;
    berth_plan_fit fit = {.struct_size = out ? out->struct_size : sizeof fit};
    berth_status status = berth__plan_content_of(kept, &k);
    if (!status)
        status = berth__plan_content_of(now, &n);
    if (!status) {
        join_compare(k, n, &fit);
        if (out)
            memcpy(out, &fit, out->struct_size < sizeof fit ? out->struct_size : sizeof fit);
        if (fit.first_difference != BERTH_NEVER_FREED)
            status = berth__fail(BERTH_MISMATCH, "the plan is stale, %zu of %zu allocations still fit: %s",
                                 fit.fitting, fit.allocations, fit.words);
    }
    berth__plan_content_release(k);
    berth__plan_content_release(n);
    return status;
}
