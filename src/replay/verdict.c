/* The verdict of a validated run: the first place in time where it differs from its plan, and in what.
 *
 * The two are compared as they happen: the allocation that comes next, then the frees before it. An allocation
 * too many shifts every later id, and so the frees of earlier allocations too; told by id the first difference
 * would be an echo of it. So where two allocations differ, what follows decides whether the run has one more,
 * one less, or another one. */
#include <stdio.h>
#include <string.h>

#include "replay/replay.h"

/* How much of what follows is looked at. */
enum { AHEAD = 16 };

typedef struct finding {
    const char *what; /* NULL: no difference */
    uint64_t id;
    const char *label;
    uint64_t expected, got;
} finding;

static bool is_alike(const berth__recorder *r, size_t got, size_t expected)
{
    BERTH_DCHECK(got < r->count && expected < r->expected->count, "[R7] both have such an allocation");
    const berth_plan_allocation *g = &r->allocations[got];
    const berth__plan_entry *e = &r->expected->entries[expected];
    return g->size_bytes == e->size_bytes && g->alignment <= e->alignment &&
           !berth__labels_differ(g->label, e->label);
}

/* How many of the next allocations are alike if the run goes on at `got` where the plan goes on at
 * `expected`. */
static size_t agreement(const berth__recorder *r, size_t got, size_t expected)
{
    size_t alike = 0;
    for (size_t i = 0; i < AHEAD && got + i < r->count && expected + i < r->expected->count; i++)
        alike += is_alike(r, got + i, expected + i);
    return alike;
}

static const char *label_of(const berth__recorder *r, size_t id)
{
    if (id < r->count && r->allocations[id].label)
        return r->allocations[id].label;
    return id < r->expected->count ? r->expected->entries[id].label : NULL;
}

static finding count_differs(const berth__recorder *r, size_t id)
{
    return (finding){"the number of allocations", id, label_of(r, id), r->expected->count, r->count};
}

/* Allocation `id` of both, of which both have one. */
static finding compare_allocation(const berth__recorder *r, size_t id)
{
    const berth_plan_allocation *got = &r->allocations[id];
    const berth__plan_entry *expected = &r->expected->entries[id];
    if (is_alike(r, id, id))
        return (finding){.what = NULL};
    size_t other = agreement(r, id + 1, id + 1);
    size_t more = agreement(r, id + 1, id), less = agreement(r, id, id + 1);
    if (more > other && more >= less)
        return (finding){"not in the plan, bytes", id, got->label, expected->size_bytes, got->size_bytes};
    if (less > other)
        return (finding){"left out, bytes", id, expected->label, expected->size_bytes, got->size_bytes};
    if (got->size_bytes != expected->size_bytes)
        return (finding){"bytes", id, label_of(r, id), expected->size_bytes, got->size_bytes};
    if (got->alignment > expected->alignment)
        return (finding){"alignment", id, label_of(r, id), expected->alignment, got->alignment};
    return (finding){.what = NULL}; /* another label alone is none */
}

/* The free of `id`, which the run and the plan have at different times. */
static finding compare_free(const berth__recorder *r, size_t id)
{
    BERTH_DCHECK(id < r->count && id < r->expected->count, "[R7] both have such an allocation");
    berth_plan_allocation expected = berth__plan_describe(r->expected, id);
    uint64_t got = r->allocations[id].freed_at;
    const char *what = got == BERTH_NEVER_FREED                 ? "its free is missing, planned before"
                       : expected.freed_at == BERTH_NEVER_FREED ? "it is freed, planned never"
                                                                : "freed before allocation";
    return (finding){what, id, label_of(r, id), expected.freed_at, got};
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The free that differs first in time, up to allocation `end`, among those that both have. */
static finding first_free(const berth__recorder *r, size_t common, uint64_t end)
{
    BERTH_DCHECK(common <= r->count && common <= r->expected->count, "[R7] both have so many");
    uint64_t when = BERTH_NEVER_FREED;
    size_t first = 0;
    for (size_t id = 0; id < common; id++) {
        uint64_t expected = berth__plan_describe(r->expected, id).freed_at;
        uint64_t at = earlier(expected, r->allocations[id].freed_at);
        if (expected != r->allocations[id].freed_at && at <= end && at < when) {
            when = at;
            first = id;
        }
    }
    const finding nothing = {.what = NULL};
    return when == BERTH_NEVER_FREED ? nothing : compare_free(r, first);
}

/* Frees before an allocation that both have come before it; at the first allocation that differs, and at the
 * end of the shorter one, the allocation is the difference and the frees are its echo. */
static finding verdict_compare(const berth__recorder *r)
{
    size_t common = r->count < r->expected->count ? r->count : r->expected->count;
    finding difference = {.what = NULL};
    for (size_t id = 0; id < common && !difference.what; id++)
        difference = compare_allocation(r, id);
    if (!difference.what && r->count != r->expected->count)
        difference = count_differs(r, common);
    uint64_t end = difference.what ? difference.id : common + 1;
    finding free = end ? first_free(r, common, end - 1) : (finding){.what = NULL};
    return free.what ? free : difference;
}

void berth__validate_compare(const berth__recorder *r, berth_difference *d)
{
    finding f = verdict_compare(r);
    if (!f.what)
        return;
    BERTH_DCHECK(f.id <= r->count || f.id <= r->expected->count,
                 "[R7] the difference is in the run, or the plan");
    d->status = BERTH_MISMATCH;
    d->id = f.id;
    d->expected = f.expected;
    d->got = f.got;
    snprintf(d->label, sizeof d->label, "%s", f.label ? f.label : "");
    char expected[24], got[24];
    snprintf(expected, sizeof expected, f.expected == UINT64_MAX ? "never" : "%llu",
             (unsigned long long)f.expected);
    snprintf(got, sizeof got, f.got == UINT64_MAX ? "never" : "%llu", (unsigned long long)f.got);
    snprintf(d->words, sizeof d->words, "allocation %llu%s%s%s: %s: expected %s, got %s",
             (unsigned long long)f.id, f.label ? " (" : "", d->label, f.label ? ")" : "", f.what, expected,
             got);
}
