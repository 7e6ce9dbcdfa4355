/* Which planned allocation a request is.
 *
 * A run that follows its plan is never asked this. After a deviation the request is looked for, by exact size
 * and label, among the next planned ones: an allocation that was left out is passed over, one that was
 * inserted matches nothing and goes to the fallback, and the run goes on where it was. A request that is
 * merely smaller than the one that is due could be either a stranger or the planned one, smaller; if the
 * stranger took the place, the planned one would fall out, and that costs more than the stranger asked for. So
 * it goes to the fallback, too, unless the run has shown that it asks for less than planned. */
#include "replay/replay.h"

#include <string.h>

/* A stranger is told from the plan by a size that is not among so many of the next ones. */
enum { NEXT = 16 };

bool berth__labels_differ(const char *a, const char *b)
{
    return a && b && a != b && strcmp(a, b) != 0;
}

bool berth__match_alignment(const berth__replay *r, const berth__plan_entry *e, size_t alignment)
{
    return e->rank == BERTH__NO_RANK || ((e->offset | r->head.alignment) & (alignment - 1)) == 0;
}

bool berth__match_same(const berth__replay *r, uint32_t id, const berth__wanted *w)
{
    BERTH_DCHECK(id < r->plan->count && w->size_bytes != 0, "[R7] a planned allocation is compared");
    const berth__plan_entry *e = &r->plan->entries[id];
    if (w->size_bytes > e->size_bytes || w->size_bytes < (r->strict ? e->size_bytes : e->least_bytes) ||
        !berth__match_alignment(r, e, w->alignment))
        return false;
    return r->strict || r->renamed || !berth__labels_differ(e->label, w->label);
}

static bool is_smaller(const berth__replay *r, uint32_t id, const berth__wanted *w)
{
    BERTH_DCHECK(id < r->plan->count, "[R7] a planned allocation is compared");
    const berth__plan_entry *e = &r->plan->entries[id];
    return w->size_bytes < e->size_bytes && berth__match_alignment(r, e, w->alignment) &&
           (r->renamed || !berth__labels_differ(e->label, w->label));
}

static bool is_renamed(const berth__replay *r, uint32_t id, const berth__wanted *w)
{
    BERTH_DCHECK(id < r->plan->count, "[R7] a planned allocation is compared");
    const berth__plan_entry *e = &r->plan->entries[id];
    return w->size_bytes <= e->size_bytes && w->size_bytes >= e->least_bytes &&
           berth__match_alignment(r, e, w->alignment);
}

static uint32_t find_between(const berth__replay *r, uint64_t from, uint64_t to, const berth__wanted *w)
{
    for (uint64_t id = from; id < to && id < r->plan->count; id++)
        if (berth__match_same(r, (uint32_t)id, w))
            return (uint32_t)id;
    return BERTH__NO_MATCH;
}

/* One that was passed over not longer ago than `reach` allocations, the last. */
static uint32_t find_skipped(const berth__replay *r, uint64_t reach, const berth__wanted *w)
{
    BERTH_DCHECK(r->skipped_count <= BERTH__SKIPPED, "[R10] so many are remembered");
    for (uint32_t i = r->skipped_count; i-- > 0;)
        if (r->skipped[i] + reach >= r->expected && berth__match_same(r, r->skipped[i], w))
            return r->skipped[i];
    return BERTH__NO_MATCH;
}

/* If the requests that matched nothing stood in for planned ones, this one is due. */
static uint64_t in_place(const berth__replay *r)
{
    return (uint64_t)r->expected + r->slip;
}

uint32_t berth__match(const berth__replay *r, const berth__wanted *w)
{
    BERTH_DCHECK(r->expected <= r->plan->count, "[R7] no allocation past the end is due");
    if (r->strict)
        return find_between(r, r->expected, (uint64_t)r->expected + 1, w);
    uint32_t id = find_between(r, r->expected, in_place(r) + NEXT, w);
    if (id != r->expected && r->skipped_count) { /* whichever is nearer: the order may be another */
        uint32_t passed = find_skipped(r, id == BERTH__NO_MATCH ? BERTH__SKIPPED : id - r->expected, w);
        id = passed == BERTH__NO_MATCH ? id : passed;
    }
    if (id == BERTH__NO_MATCH && r->slip) /* many were left out: only after a second sign of it */
        id = find_between(r, in_place(r) + NEXT, in_place(r) + BERTH__SKIPPED, w);
    if (id != BERTH__NO_MATCH || in_place(r) >= r->plan->count)
        return id;
    uint32_t due = (uint32_t)in_place(r);
    if (((r->shrinks || (r->slip && r->was_smaller)) && is_smaller(r, due, w)) ||
        (r->slip && r->was_renamed && is_renamed(r, due, w)))
        return due;
    return BERTH__NO_MATCH;
}

/* Two smaller requests running, or one whose planned size did not come after it: the run asks for less. That
 * the planned size does come shows the contrary. Labels likewise. */
void berth__match_learn(berth__replay *r, const berth__wanted *w, uint32_t id)
{
    if (id != BERTH__NO_MATCH) {
        bool stood_in = r->slip && id == in_place(r);
        r->shrinks = r->shrinks || (stood_in && r->was_smaller);
        r->renamed = r->renamed || (stood_in && r->was_renamed);
        r->slip = id >= r->expected ? 0 : r->slip;
        return;
    }
    const berth__block *b = r->block;
    if (b->is_short && r->expected && r->expected <= r->plan->count && b->short_bytes[r->expected - 1] &&
        berth__match_same(r, r->expected - 1, w))
        r->shrinks = false;
    bool due = in_place(r) < r->plan->count;
    r->was_smaller = due && is_smaller(r, (uint32_t)in_place(r), w);
    r->was_renamed = due && is_renamed(r, (uint32_t)in_place(r), w);
}
