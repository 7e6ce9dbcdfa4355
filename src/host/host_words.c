/* What the host cache says when it has no memory: who asked, what is taken and by whom, and what would help. */
#include <string.h>

#include "base/words.h"
#include "count/scope.h"
#include "host/host.h"

/* What is taken, and the labels that hold it. */
typedef struct holdings {
    uint64_t live, waiting, idle;
    berth__holders holders;
} holdings;

static void read_holdings(host_cache *c, holdings *h)
{
    memset(h, 0, sizeof *h);
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    for (host_segment *s = c->segments; s; s = s->next)
        for (uint32_t i = 0; i < s->blocks; i++) {
            const host_block *b = &s->first[i];
            uint32_t state = atomic_load_explicit(&b->state, memory_order_acquire);
            /* What is LEAVING is in some other thread's call. */
            bool idle = state == HOST_IDLE,
                 waits = state == HOST_WAITING || state == HOST_WAITING_BUSY || state == HOST_PARKED;
            *(waits ? &h->waiting : idle ? &h->idle : &h->live) += s->stride;
            if (!idle)
                berth__holders_add(&h->holders, atomic_load_explicit(&b->label, memory_order_relaxed),
                                   s->stride);
        }
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
}

static void say_holdings(berth__text *t, holdings *h)
{
    berth__say(t, "%s are live", BERTH__SIZE(h->live));
    if (h->waiting)
        berth__say(t, ", %s wait for streams", BERTH__SIZE(h->waiting));
    if (h->idle)
        berth__say(t, ", %s are idle in runs of pages that they share with those", BERTH__SIZE(h->idle));
    if (h->holders.count == 0)
        return;
    berth__holders_sort(&h->holders);
    berth__say(t, "; %s holds the most, %s", h->holders.sums[0].label, BERTH__SIZE(h->holders.sums[0].bytes));
}

static void say_who(berth__text *t, const host_cache *c, const host_wish *w)
{
    const char *label = berth__label_text(w->request);
    berth__say(t, "%s: %s asked for %s", c->name, label ? label : "a request without a label",
               BERTH__SIZE(w->size_bytes));
}

berth_status berth__host_over_budget(host_cache *c, const host_wish *w)
{
    uint64_t limit = atomic_load_explicit(&c->hard_limit, memory_order_relaxed);
    uint64_t least = berth__host_run_bytes(c, w->bin, 1);
    holdings h;
    char words[512];
    berth__text t = {.start = words, .capacity = sizeof words};
    read_holdings(c, &h);
    say_who(&t, c, w);
    berth__say(&t, ", which takes %s in whole pages; the limit is %s", BERTH__SIZE(least),
               BERTH__SIZE(limit));
    if (least > limit) {
        berth__say(&t, ": raise it, for the request alone is more than all of it");
        return berth__fail(BERTH_OVER_BUDGET, "%s", words);
    }
    berth__say(&t, ": ");
    say_holdings(&t, &h);
    berth__say(&t, ". ");
    if (h.live)
        berth__say(&t, "Free blocks, ");
    if (h.waiting)
        berth__say(&t, "%set streams finish, ", h.live ? "l" : "L");
    berth__say(&t, "%saise the limit", h.live || h.waiting ? "or r" : "R");
    return berth__fail(BERTH_OVER_BUDGET, "%s", words);
}

berth_status berth__host_device_refused(host_cache *c, const host_wish *w, berth_status status)
{
    berth_error said = *berth_last_error();
    holdings h;
    char words[512];
    berth__text t = {.start = words, .capacity = sizeof words};
    read_holdings(c, &h);
    say_who(&t, c, w);
    berth__say(&t, ", and there is no memory: %s. Of this cache ", said.message);
    say_holdings(&t, &h);
    return berth__fail_driver(status, said.driver_code, said.driver_words, "%s", words);
}
