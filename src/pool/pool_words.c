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
    const char *pin_label; /* of the live block behind the largest hole */
    uint64_t pin_bytes;
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
    } else if (span->index ? span->index != &pool->unmapped : span->ticket != 0) {
        h->waiting_bytes += span->size_bytes;
    }
}

static void find_pin(struct holdings *h, const berth__span *hole)
{
    const berth__span *pin = hole->after ? hole->after : hole->before;
    h->largest_bytes = hole->size_bytes;
    if (!pin || atomic_load(&pin->state) != BERTH__SPAN_LIVE)
        return;
    h->pin_label = pin->label ? pin->label : "a block without a label";
    h->pin_bytes = pin->size_bytes;
}

static void pool_read_holdings(berth__pool *pool, struct holdings *h)
{
    const berth__span *hole = NULL;
    memset(h, 0, sizeof *h);
    for (const berth__segment *segment = pool->arena.segments; segment; segment = segment->next)
        for (const berth__span *span = segment->first; span; span = span->after) {
            add_span(pool, h, span);
            if (berth__pool_is_idle(pool, span->index) && (!hole || span->size_bytes > hole->size_bytes))
                hole = span;
        }
    if (hole)
        find_pin(h, hole);
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
        if (h->pin_label)
            berth__say(t, " beside %s, %s", h->pin_label, SIZE(h->pin_bytes));
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
    pool_read_holdings(pool, &h);
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
