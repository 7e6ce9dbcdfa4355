/* Why an allocation may have failed: the facts an allocator can tell, in a few lines, and what would help. */
#include "berth/decorators.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/symbol.h"
#include "base/words.h"
#include "berth/scope.h"
#include "wrap/limit.h"
#include "wrap/on_failure.h"
#include "wrap/why.h"

enum { TEXT_BYTES = 2048 };

struct facts {
    size_t size_bytes;
    const char *label;
    const char *name;
    bool has_stats;
    berth_stats stats;
    uint64_t idle_bytes;
    uint64_t largest_idle_bytes;
    uint64_t charged_bytes; /* in use as the limit counts: as asked for, not as given */
    berth__holders holders;
    berth__picture picture;
    berth__cause cause;
    berth__sites sites;
};

/* ---- Facts --------------------------------------------------------------------------------------- */

static bool see_block(void *context, const berth_block *block)
{
    struct facts *facts = context;
    if (block->state == BERTH_BLOCK_LIVE) {
        berth__holders_add(&facts->holders, block->label, block->size_bytes);
    } else if (block->state == BERTH_BLOCK_IDLE) {
        facts->idle_bytes += block->size_bytes;
        if (block->size_bytes > facts->largest_idle_bytes)
            facts->largest_idle_bytes = block->size_bytes;
    }
    return true;
}

static bool see_scope(void *context, const berth_scope_figures *figures)
{
    if (figures->bytes_in_use)
        berth__holders_add(&((struct facts *)context)->holders, figures->label, figures->bytes_in_use);
    return true;
}

static void explain_gather(struct facts *facts, berth_allocator *a, size_t size_bytes,
                           const berth_request *request)
{
    memset(facts, 0, sizeof *facts);
    facts->size_bytes = size_bytes;
    const char *label = request ? berth__request_label(request) : berth_scope_label();
    facts->label = label ? label : "a request without a label";
    facts->name = a->ops.name(a->self);
    facts->stats.struct_size = sizeof facts->stats;
    facts->has_stats = a->ops.stats(a->self, &facts->stats) == BERTH_OK;
    if (a->ops.snapshot(a->self, see_block, facts) != BERTH_OK)
        berth_scope_visit(see_scope, facts);
    berth__holders_sort(&facts->holders);
    facts->charged_bytes = facts->stats.bytes_in_use;
    (void)berth__limit_charged(berth__on_failure_beneath(a), &facts->charged_bytes);
    berth__picture_take(a, size_bytes, &facts->picture);
    if (facts->largest_idle_bytes < facts->picture.largest_bytes)
        facts->largest_idle_bytes = facts->picture.largest_bytes;
    if (facts->idle_bytes < facts->picture.idle_bytes)
        facts->idle_bytes = facts->picture.idle_bytes;
    facts->cause =
        berth__find_cause(&facts->picture, size_bytes, facts->charged_bytes, facts->stats.bytes_limit);
    berth__sites_find(a, &facts->sites);
    if (facts->stats.largest_free_bytes < facts->largest_idle_bytes)
        facts->stats.largest_free_bytes = facts->largest_idle_bytes;
    if (facts->stats.bytes_reserved > facts->stats.bytes_in_use + facts->idle_bytes)
        facts->idle_bytes = facts->stats.bytes_reserved - facts->stats.bytes_in_use;
}

/* ---- Words --------------------------------------------------------------------------------------- */

static void say_limit_remedy(berth__text *text, const struct facts *facts, uint64_t missing)
{
    uint64_t size = facts->size_bytes, limit = facts->stats.bytes_limit;
    if (size > limit) {
        berth__say(text, "raise the limit: the request alone is larger than all of it");
        return;
    }
    berth__say(text, "free %s", BERTH__SIZE(missing));
    const struct berth__holder_sum *largest = facts->holders.count ? &facts->holders.sums[0] : NULL;
    if (largest && largest->bytes >= missing)
        berth__say(text, " (%s alone holds %s)", largest->label, BERTH__SIZE(largest->bytes));
    berth__say(text, ", or raise the limit to %s", BERTH__SIZE(facts->charged_bytes + size));
}

/* The first remedy that the facts support. */
static void say_remedy(berth__text *text, const struct facts *facts)
{
    uint64_t size = facts->size_bytes, in_use = facts->charged_bytes, limit = facts->stats.bytes_limit;
    if (limit && (size > limit || in_use > limit - size)) {
        say_limit_remedy(text, facts, in_use > limit - size && size <= limit ? in_use - (limit - size) : 0);
    } else if (facts->idle_bytes >= size && facts->stats.largest_free_bytes < size) {
        berth__say(text,
                   "%s are free but in pieces: trim with berth_trim, or plan the run so that they are not",
                   BERTH__SIZE(facts->idle_bytes));
    } else if (limit && limit - in_use >= size) {
        berth__say(
            text, "the limit leaves room, what lies beneath has none: free something there, or ask for less");
    } else {
        long pages = sysconf(_SC_AVPHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
        berth__say(text, "ask for less, or free something first");
        if (pages > 0 && page_bytes > 0)
            berth__say(text, "; the machine has %s left",
                       BERTH__SIZE((uint64_t)pages * (uint64_t)page_bytes));
    }
}

/* "fragmented, pinned by cache and 2 more with 4 KiB": what berth explain-oom says of a recording. */
static void say_cause(berth__text *text, const struct facts *facts)
{
    const berth__picture *p = &facts->picture;
    berth__say(text, "%s", berth__cause_words(facts->cause));
    if (facts->cause == BERTH__HELD_BY_STREAMS) {
        berth__say(text, ": %s are freed, but streams use them", BERTH__SIZE(p->waiting_bytes));
    } else if (facts->cause == BERTH__HELD_BY_CACHE) {
        berth__say(text, ": %s lie in pieces that nothing uses", BERTH__SIZE(p->unused_bytes));
    } else if (facts->cause == BERTH__FRAGMENTED && p->pin_count) {
        berth__say(text, ", pinned by %s", p->pin_label ? p->pin_label : "a block without a label");
        if (p->pin_count > 1)
            berth__say(text, " and %zu more", p->pin_count - 1);
        berth__say(text, " with %s", BERTH__SIZE(p->pin_bytes));
    }
}

static void say_sites(berth__text *text, const berth__sites *sites)
{
    char words[BERTH__SITE_WORDS];
    for (size_t i = 0; i < sites->count && i < BERTH__SITES_TOLD; i++) {
        berth__symbol_format(sites->sums[i].frame, words, sizeof words);
        berth__say(text, "%s%s %s", i ? ", " : "", words, BERTH__SIZE(sites->sums[i].bytes));
    }
}

static void say_all(berth__text *text, struct facts *facts)
{
    const berth_stats *stats = &facts->stats;
    berth__say(text, "out of memory: %s for %s from %s\n", BERTH__SIZE(facts->size_bytes), facts->label,
               facts->name);
    berth__say(text, "  cause: ");
    say_cause(text, facts);
    berth__say(text, "\n");
    if (stats->bytes_limit)
        berth__say(text, "  limit: %s\n", BERTH__SIZE(stats->bytes_limit));
    else
        berth__say(text, "  limit: none\n");
    if (facts->has_stats)
        berth__say(text, "  in use: %s, at most %s so far\n", BERTH__SIZE(stats->bytes_in_use),
                   BERTH__SIZE(stats->max_bytes_in_use));
    else
        berth__say(text, "  in use: not known, this allocator keeps no figures\n");
    if (facts->holders.count) {
        berth__say(text, "  largest labels: ");
        berth__holders_say(&facts->holders, text);
        berth__say(text, "\n");
    } else if (facts->has_stats && stats->bytes_in_use == 0) {
        berth__say(text, "  largest labels: none, nothing is in use\n");
    } else {
        berth__say(text, "  largest labels: not known; put a tracker, a guard or a scope meter around it\n");
    }
    if (facts->sites.count) {
        berth__say(text, "  largest call sites: ");
        say_sites(text, &facts->sites);
        berth__say(text, "\n");
    }
    if (stats->largest_free_bytes)
        berth__say(text, "  largest free block: %s, of %s free in all\n",
                   BERTH__SIZE(stats->largest_free_bytes), BERTH__SIZE(facts->idle_bytes));
    else
        berth__say(text, "  largest free block: none\n");
    berth__say(text, "  to make it fit: ");
    say_remedy(text, facts);
    berth__say(text, "\n");
}

/* What would make it fit comes before who holds what: a message that is cut keeps it. */
static void say_short(berth__text *text, struct facts *facts)
{
    const berth_stats *stats = &facts->stats;
    berth__say(text, "%s for %s from %s: ", BERTH__SIZE(facts->size_bytes), facts->label, facts->name);
    say_cause(text, facts);
    if (stats->bytes_limit)
        berth__say(text, "; limit %s", BERTH__SIZE(stats->bytes_limit));
    if (facts->has_stats)
        berth__say(text, "; in use %s", BERTH__SIZE(stats->bytes_in_use));
    if (stats->largest_free_bytes)
        berth__say(text, "; largest free block %s", BERTH__SIZE(stats->largest_free_bytes));
    berth__say(text, "; to make it fit: ");
    say_remedy(text, facts);
    if (facts->holders.count) {
        berth__say(text, "; most is held by ");
        berth__holders_say(&facts->holders, text);
    }
}

berth_status berth_explain(berth_allocator *a, size_t size_bytes, const berth_request *request, char *text,
                           size_t capacity, size_t *needed)
{
    if (!a || (!text && capacity))
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL", a ? "text" : "the allocator");
    struct facts facts;
    berth__text out = {text, capacity, 0};
    explain_gather(&facts, a, size_bytes, request);
    say_all(&out, &facts);
    if (needed)
        *needed = out.length + 1;
    return BERTH_OK;
}

/* ---- The decorator ------------------------------------------------------------------------------- */

struct explain {
    berth__on_failure base;
    _Atomic uint64_t explained;
};

static void log_lines(char *text)
{
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        berth__log(BERTH_LOG_WARNING, "%s", line);
}

static berth_status explain_on_failure(berth__on_failure *self, const berth__asked *asked,
                                       berth_status status)
{
    struct explain *e = (struct explain *)self;
    berth_error before = *berth_last_error();
    struct facts facts;
    char words[TEXT_BYTES] = "";
    berth__text shortened = {words, sizeof before.message, 0};
    explain_gather(&facts, e->base.base.inner, asked->size_bytes, asked->request);
    say_short(&shortened, &facts);
    /* The 1st, 2nd, 4th, 8th … goes to the log, so that a program that lives at its limit is not flooded. */
    uint64_t number = atomic_fetch_add_explicit(&e->explained, 1, memory_order_relaxed) + 1;
    char message[sizeof before.message];
    memcpy(message, words, sizeof message);
    if ((number & (number - 1)) == 0) {
        berth__text full = {words, sizeof words, 0};
        say_all(&full, &facts);
        log_lines(words);
    }
    return berth__fail_driver(status, before.driver_code, before.driver_words, "%s", message);
}

static berth_status explain_reallocate(void *self, void *p, size_t old_bytes, size_t new_bytes,
                                       size_t alignment, const berth_request *request, void **out)
{
    struct explain *e = self;
    berth_allocator *inner = e->base.base.inner;
    berth__asked asked = {self, new_bytes, alignment, request, out};
    berth_status status =
        inner->ops.reallocate(inner->self, p, old_bytes, new_bytes, alignment, request, out);
    return BERTH_LIKELY(!berth__is_want_of_memory(status)) ? status
                                                           : explain_on_failure(self, &asked, status);
}

static void explain_destroy(void *self)
{
    struct explain *e = self;
    berth__wrapper_finish(&e->base.base);
    berth__heap_free(e);
}

berth_status berth_explain_create(berth_allocator *inner, berth_allocator **out)
{
    if (out)
        *out = NULL;
    if (!out || !inner)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL", out ? "the inner allocator" : "out");
    struct explain *e = berth__heap_zalloc(1, sizeof *e);
    if (!e)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an explainer's handle");
    berth_allocator_ops ops = berth__forward_ops;
    ops.reallocate = explain_reallocate;
    ops.destroy = explain_destroy;
    berth__on_failure_init(&e->base, &ops, inner, explain_on_failure);
    *out = &e->base.base.base;
    return BERTH_OK;
}
