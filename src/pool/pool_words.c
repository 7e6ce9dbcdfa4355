/* Why an allocation did not fit: what was asked, what stands in the way and who holds it; only what is true of
 * the case. */
#include <string.h>

#include "base/words.h"
#include "count/scope.h"
#include "pool/pool.h"

#define SIZE(bytes) BERTH__SIZE(bytes)

/* ---- What there is ------------------------------------------------------------------------------- */

/* Read under the lock, with the thread caches stopped. */
struct holdings {
    uint64_t live_bytes, waiting_bytes, idle_bytes, largest_bytes, reserved_bytes;
    uint64_t others_bytes; /* reserved by other pools under the same limit */
    uint64_t kept_bytes;   /* that the device did not take back */
    /* Of all runs of neighbours that would hold the request, the one with the least in use: how many blocks keep it
     * apart, what they take together, and the label of the largest. */
    const berth__span *pins_first, *pins_last; /* NULL: there is none */
    size_t pin_count;
    uint64_t pin_bytes;
    const char *pin_label;
    berth__holders holders; /* of what is live and has a label */
};

static void add_span(const berth__pool *pool, struct holdings *h, const berth__span *span)
{
    if (atomic_load(&span->state) == BERTH__SPAN_LIVE) {
        h->live_bytes += span->size_bytes;
        if (span->label)
            berth__holders_add(&h->holders, span->label, span->size_bytes);
    } else if (berth__pool_is_idle(pool, span->index)) {
        h->idle_bytes += span->size_bytes;
        if (span->size_bytes > h->largest_bytes)
            h->largest_bytes = span->size_bytes;
    } else if (span->index ? span->index != &pool->unmapped : span->ticket != 0) {
        h->waiting_bytes += span->size_bytes;
    }
}

static uint64_t taken_of(const berth__pool *pool, const berth__span *span)
{
    return berth__pool_is_idle(pool, span->index) ? 0 : span->size_bytes;
}

static void name_pins(const berth__pool *pool, struct holdings *h)
{
    uint64_t largest = 0;
    for (const berth__span *span = h->pins_first; span != h->pins_last->after; span = span->after) {
        uint64_t taken = taken_of(pool, span);
        h->pin_count += taken != 0;
        if (taken <= largest)
            continue;
        largest = taken;
        bool live = atomic_load(&span->state) == BERTH__SPAN_LIVE;
        h->pin_label = !live         ? "a block that was freed and is not free yet"
                       : span->label ? span->label
                                     : "a block without a label";
    }
}

/* Runs of spans with memory, each as short as it can be: both ends only go up. */
static void find_pins(const berth__pool *pool, struct holdings *h, const berth__segment *segment,
                      uint64_t size_bytes)
{
    const berth__span *first = segment->first;
    uint64_t bytes = 0, taken = 0;
    for (const berth__span *last = first; last; last = last->after) {
        if (last->index == &pool->unmapped) {
            first = last->after;
            bytes = taken = 0;
            continue;
        }
        bytes += last->size_bytes;
        taken += taken_of(pool, last);
        for (; first != last && bytes - first->size_bytes >= size_bytes; first = first->after) {
            bytes -= first->size_bytes;
            taken -= taken_of(pool, first);
        }
        if (bytes < size_bytes || taken == 0 || (h->pins_first && taken >= h->pin_bytes))
            continue;
        h->pins_first = first;
        h->pins_last = last;
        h->pin_bytes = taken;
    }
}

static void pool_read_holdings(berth__pool *pool, struct holdings *h, uint64_t size_bytes)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[P4] spans are looked at under the lock");
    memset(h, 0, sizeof *h);
    for (const berth__segment *segment = pool->arena.segments; segment; segment = segment->next) {
        for (const berth__span *span = segment->first; span; span = span->after)
            add_span(pool, h, span);
        find_pins(pool, h, segment, size_bytes);
    }
    if (h->pins_first)
        name_pins(pool, h);
    for (const berth__span *span = pool->unreleased; span; span = span->right)
        h->kept_bytes += span->size_bytes;
    uint64_t all = atomic_load(&pool->budget->reserved_bytes);
    h->reserved_bytes = pool->reserved_bytes;
    h->others_bytes = all > pool->reserved_bytes ? all - pool->reserved_bytes : 0;
}

/* ---- Saying it ----------------------------------------------------------------------------------- */

static uint64_t device_bytes(const berth__pool *pool)
{
    berth_device_info info = {.struct_size = sizeof info};
    return berth_device_describe(pool->device, &info) == BERTH_OK ? info.total_bytes : 0;
}

static void say_reason(const berth__pool *pool, berth__text *t, size_t size_bytes, const struct holdings *h,
                       berth_status why)
{
    uint64_t limit = pool->budget->hard_limit_bytes, total = device_bytes(pool);
    if (limit && size_bytes > limit) {
        berth__say(t, "that alone is more than the pool's hard limit of %s", SIZE(limit));
    } else if (total && size_bytes > total) {
        berth__say(t, "that alone is more than the device's memory of %s", SIZE(total));
    } else if (h->idle_bytes >= size_bytes) {
        /* It was given back first; it only stays where whole granules or segments cannot go. */
        berth__say(t, "the free memory is in pieces, the largest of %s", SIZE(h->largest_bytes));
        if (h->pin_count)
            berth__say(t, ", pinned by %s", h->pin_label);
        if (h->pin_count > 1)
            berth__say(t, " and %zu more", h->pin_count - 1);
        if (h->pin_count)
            berth__say(t, " with %s", SIZE(h->pin_bytes));
    } else if (why == BERTH_OVER_BUDGET && h->live_bytes + h->waiting_bytes + size_bytes <= limit) {
        berth__say(t, "the hard limit leaves no room");
    } else if (h->live_bytes >= h->waiting_bytes && h->live_bytes) {
        berth__say(t, "too much is live");
    } else if (h->waiting_bytes) {
        berth__say(t, "streams still use too much");
    } else {
        berth__say(t, "nothing of this pool is in use, and there is no more to be had");
    }
}

static void pool_say_holdings(const berth__pool *pool, berth__text *t, struct holdings *h)
{
    berth__holders_sort(&h->holders);
    berth__say(t, "%s live", SIZE(h->live_bytes));
    if (h->holders.count)
        berth__say(t, " (%s holds the most, %s)", h->holders.sums[0].label, SIZE(h->holders.sums[0].bytes));
    if (h->waiting_bytes)
        berth__say(t, ", %s waiting for streams", SIZE(h->waiting_bytes));
    if (h->idle_bytes)
        berth__say(t, ", %s idle", SIZE(h->idle_bytes));
    if (h->kept_bytes)
        berth__say(t, ", %s that the device did not take back", SIZE(h->kept_bytes));
    if (pool->budget->hard_limit_bytes)
        berth__say(t, ", hard limit %s", SIZE(pool->budget->hard_limit_bytes));
    if (pool->budget->hard_limit_bytes && h->others_bytes)
        berth__say(t, " of which other pools have %s", SIZE(h->others_bytes));
}

berth_status berth__pool_explain(berth__pool *pool, size_t size_bytes, const berth_request *request,
                                 berth_status why)
{
    if (why != BERTH_OVER_BUDGET && why != BERTH_OUT_OF_DEVICE_MEMORY && why != BERTH_OUT_OF_HOST_MEMORY)
        return why;
    const berth_error cause = *berth_last_error();
    struct holdings h;
    char words[400] = "";
    berth__text t = {.start = words, .capacity = sizeof words};
    berth__pool_lock(pool);
    berth__pool_stop(pool);
    pool_read_holdings(pool, &h, size_bytes);
    berth__pool_resume(pool);
    berth__pool_unlock(pool);
    const char *label = berth__request_label(request);
    berth__say(&t, "%s asked for %s: ", label ? label : "a request without a label", SIZE(size_bytes));
    say_reason(pool, &t, size_bytes, &h, why);
    berth__say(&t, ". ");
    pool_say_holdings(pool, &t, &h);
    if (why == BERTH_OVER_BUDGET && !pool->upstream.from) /* all is said */
        return berth__fail(why, "%s", words);
    return berth__fail_driver(why, cause.driver_code, cause.driver_words, "%s. %s", words, cause.message);
}
