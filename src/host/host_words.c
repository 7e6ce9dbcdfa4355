/* What the host cache says when it has no memory: who asked, what is taken and by whom, and what would help. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/words.h"
#include "count/scope.h"
#include "host/host.h"

enum { LABELS_SEEN = 64 };

#define SIZE(bytes) BERTH__SIZE(bytes)

/* What is taken, and the labels that hold it. */
typedef struct holdings {
    uint64_t live, waiting, idle;
    struct {
        const char *label;
        uint64_t bytes;
    } sums[LABELS_SEEN];
    size_t count;
} holdings;

/* Beyond LABELS_SEEN the smallest gives way. */
static void add_holder(holdings *h, const char *label, uint64_t bytes)
{
    size_t smallest = 0;
    for (size_t i = 0; i < h->count; i++) {
        if (strcmp(h->sums[i].label, label) == 0) {
            h->sums[i].bytes += bytes;
            return;
        }
        if (h->sums[i].bytes < h->sums[smallest].bytes)
            smallest = i;
    }
    size_t at = h->count < LABELS_SEEN ? h->count++ : smallest;
    h->sums[at].label = label;
    h->sums[at].bytes = bytes;
}

static void read_holdings(host_cache *c, holdings *h)
{
    memset(h, 0, sizeof *h);
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    for (host_segment *s = c->segments; s; s = s->next)
        for (uint32_t i = 0; i < s->blocks; i++) {
            const host_block *b = &s->first[i];
            uint32_t state = atomic_load_explicit(&b->state, memory_order_acquire);
            /* What is LEAVING is in some other thread's call. */
            bool idle = state == HOST_IDLE, waits = state == HOST_WAITING || state == HOST_WAITING_BUSY;
            *(waits ? &h->waiting : idle ? &h->idle : &h->live) += s->stride;
            const char *label = atomic_load_explicit(&b->label, memory_order_relaxed);
            if (!idle)
                add_holder(h, label ? label : "no label", s->stride);
        }
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
}

typedef struct text {
    char words[512];
    size_t length;
} text;

static void say(text *t, const char *format, ...) BERTH_PRINTF(2, 3);
static void say(text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int more = vsnprintf(t->words + t->length, sizeof t->words - t->length, format, args);
    va_end(args);
    size_t room = sizeof t->words - 1 - t->length;
    t->length += more < 0 ? 0 : (size_t)more < room ? (size_t)more : room;
}

static void say_holdings(text *t, const holdings *h)
{
    say(t, "%s are live", SIZE(h->live));
    if (h->waiting)
        say(t, ", %s wait for streams", SIZE(h->waiting));
    if (h->idle)
        say(t, ", %s are idle in runs of pages that they share with those", SIZE(h->idle));
    if (h->count == 0)
        return;
    size_t most = 0;
    for (size_t i = 1; i < h->count; i++)
        if (h->sums[i].bytes > h->sums[most].bytes)
            most = i;
    say(t, "; %s holds the most, %s", h->sums[most].label, SIZE(h->sums[most].bytes));
}

static void say_who(text *t, const host_cache *c, const host_wish *w)
{
    const char *label = berth__label_text(w->request);
    say(t, "%s: %s asked for %s", c->name, label ? label : "a request without a label", SIZE(w->size_bytes));
}

berth_status berth__host_over_budget(host_cache *c, const host_wish *w)
{
    uint64_t limit = atomic_load_explicit(&c->hard_limit, memory_order_relaxed);
    uint64_t least = berth__host_run_bytes(c, w->bin, 1);
    holdings h;
    text t = {.length = 0};
    read_holdings(c, &h);
    say_who(&t, c, w);
    say(&t, ", which takes %s in whole pages; the limit is %s", SIZE(least), SIZE(limit));
    if (least > limit) {
        say(&t, ": raise it, for the request alone is more than all of it");
        return berth__fail(BERTH_OVER_BUDGET, "%s", t.words);
    }
    say(&t, ": ");
    say_holdings(&t, &h);
    say(&t, ". ");
    if (h.live)
        say(&t, "Free blocks, ");
    if (h.waiting)
        say(&t, "%set streams finish, ", h.live ? "l" : "L");
    say(&t, "%saise the limit", h.live || h.waiting ? "or r" : "R");
    return berth__fail(BERTH_OVER_BUDGET, "%s", t.words);
}

berth_status berth__host_device_refused(host_cache *c, const host_wish *w, berth_status status)
{
    berth_error said = *berth_last_error();
    holdings h;
    text t = {.length = 0};
    read_holdings(c, &h);
    say_who(&t, c, w);
    say(&t, ", and there is no memory: %s. Of this cache ", said.message);
    say_holdings(&t, &h);
    return berth__fail_driver(status, said.driver_code, said.driver_words, "%s", t.words);
}
