/* Why an allocation may have failed: the facts an allocator can tell, in a few lines, and what would help. */
#include "berth/decorators.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "berth/scope.h"
#include "wrap/mender.h"

enum { LABELS_SEEN = 128, LABELS_TOLD = 5, TEXT_BYTES = 2048 };

struct label_sum {
    const char *text;
    uint64_t bytes;
};

struct facts {
    size_t size_bytes;
    const char *label;
    const char *name;
    bool has_stats;
    berth_stats stats;
    uint64_t idle_bytes;
    uint64_t largest_idle_bytes;
    struct label_sum labels[LABELS_SEEN]; /* largest first once sorted */
    size_t label_count;
};

/* ---- Facts --------------------------------------------------------------------------------------- */

/* Beyond LABELS_SEEN the smallest gives way: the five largest are right for any order that is not hostile. */
static void add_label(struct facts *facts, const char *text, uint64_t bytes)
{
    size_t smallest = 0;
    for (size_t i = 0; i < facts->label_count; i++) {
        if (strcmp(facts->labels[i].text, text) == 0) {
            facts->labels[i].bytes += bytes;
            return;
        }
        if (facts->labels[i].bytes < facts->labels[smallest].bytes)
            smallest = i;
    }
    if (facts->label_count < LABELS_SEEN)
        facts->labels[facts->label_count++] = (struct label_sum){text, bytes};
    else if (facts->labels[smallest].bytes < bytes)
        facts->labels[smallest] = (struct label_sum){text, bytes};
}

static bool see_block(void *context, const berth_block *block)
{
    struct facts *facts = context;
    if (block->state == BERTH_BLOCK_LIVE) {
        add_label(facts, block->label ? block->label : "no label", block->size_bytes);
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
        add_label(context, *figures->label ? figures->label : "no label", figures->bytes_in_use);
    return true;
}

static void sort_labels(struct facts *facts)
{
    for (size_t i = 0; i < facts->label_count && i < LABELS_TOLD; i++)
        for (size_t j = i + 1; j < facts->label_count; j++)
            if (facts->labels[j].bytes > facts->labels[i].bytes) {
                struct label_sum swap = facts->labels[i];
                facts->labels[i] = facts->labels[j];
                facts->labels[j] = swap;
            }
}

static void gather(struct facts *facts, berth_allocator *a, size_t size_bytes, const berth_request *request)
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
    sort_labels(facts);
    if (facts->stats.largest_free_bytes < facts->largest_idle_bytes)
        facts->stats.largest_free_bytes = facts->largest_idle_bytes;
    if (facts->stats.bytes_reserved > facts->stats.bytes_in_use + facts->idle_bytes)
        facts->idle_bytes = facts->stats.bytes_reserved - facts->stats.bytes_in_use;
}

/* ---- Words --------------------------------------------------------------------------------------- */

struct text {
    char *start;
    size_t capacity;
    size_t length; /* what all of it takes */
};

static void say(struct text *text, const char *format, ...) BERTH_PRINTF(2, 3);
static void say(struct text *text, const char *format, ...)
{
    size_t at = text->length < text->capacity ? text->length : text->capacity;
    va_list args;
    va_start(args, format);
    int more = vsnprintf(text->start ? text->start + at : NULL, text->capacity - at, format, args);
    va_end(args);
    text->length += more > 0 ? (size_t)more : 0;
}

static unsigned long long ull(uint64_t n)
{
    return n;
}

static void say_labels(struct text *text, const struct facts *facts)
{
    for (size_t i = 0; i < facts->label_count && i < LABELS_TOLD; i++)
        say(text, "%s%s %llu", i ? ", " : "", facts->labels[i].text, ull(facts->labels[i].bytes));
}

static void say_limit_remedy(struct text *text, const struct facts *facts, uint64_t missing)
{
    uint64_t size = facts->size_bytes, limit = facts->stats.bytes_limit;
    if (size > limit) {
        say(text, "raise the limit: the request alone is larger than all of it");
        return;
    }
    say(text, "free %llu bytes", ull(missing));
    for (size_t i = 0; i < facts->label_count && i < LABELS_TOLD; i++)
        if (facts->labels[i].bytes >= missing) {
            say(text, " (%s alone holds %llu)", facts->labels[i].text, ull(facts->labels[i].bytes));
            break;
        }
    say(text, ", or raise the limit to %llu", ull(facts->stats.bytes_in_use + size));
}

/* The first remedy that the facts support. */
static void say_remedy(struct text *text, const struct facts *facts)
{
    uint64_t size = facts->size_bytes, in_use = facts->stats.bytes_in_use, limit = facts->stats.bytes_limit;
    if (limit && (size > limit || in_use > limit - size)) {
        say_limit_remedy(text, facts, in_use > limit - size && size <= limit ? in_use - (limit - size) : 0);
    } else if (facts->idle_bytes >= size && facts->stats.largest_free_bytes < size) {
        say(text,
            "%llu bytes are free but in pieces: trim with berth_trim, or plan the run so that they are not",
            ull(facts->idle_bytes));
    } else if (limit && limit - in_use >= size) {
        say(text, "the limit leaves room, what lies beneath has none: free something there, or ask for less");
    } else {
        long pages = sysconf(_SC_AVPHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
        say(text, "ask for less, or free something first; the machine has %llu bytes left",
            ull(pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0));
    }
}

static void say_all(struct text *text, const struct facts *facts)
{
    const berth_stats *stats = &facts->stats;
    say(text, "out of memory: %zu bytes for %s from %s\n", facts->size_bytes, facts->label, facts->name);
    if (stats->bytes_limit)
        say(text, "  limit: %llu bytes\n", ull(stats->bytes_limit));
    else
        say(text, "  limit: none\n");
    if (facts->has_stats)
        say(text, "  in use: %llu bytes, at most %llu so far\n", ull(stats->bytes_in_use),
            ull(stats->max_bytes_in_use));
    else
        say(text, "  in use: not known, this allocator keeps no figures\n");
    if (facts->label_count) {
        say(text, "  largest labels: ");
        say_labels(text, facts);
        say(text, "\n");
    } else {
        say(text, "  largest labels: not known; put a tracker, a guard or a scope meter around it\n");
    }
    if (stats->largest_free_bytes)
        say(text, "  largest free block: %llu bytes, of %llu free in all\n", ull(stats->largest_free_bytes),
            ull(facts->idle_bytes));
    else
        say(text, "  largest free block: none\n");
    say(text, "  to make it fit: ");
    say_remedy(text, facts);
    say(text, "\n");
}

static void say_short(struct text *text, const struct facts *facts)
{
    const berth_stats *stats = &facts->stats;
    say(text, "%zu bytes for %s from %s", facts->size_bytes, facts->label, facts->name);
    if (stats->bytes_limit)
        say(text, "; limit %llu", ull(stats->bytes_limit));
    if (facts->has_stats)
        say(text, "; in use %llu", ull(stats->bytes_in_use));
    say(text, "; largest free block %llu", ull(stats->largest_free_bytes));
    if (facts->label_count) {
        say(text, "; most is held by ");
        say_labels(text, facts);
    }
    say(text, "; to make it fit: ");
    say_remedy(text, facts);
}

berth_status berth_explain(berth_allocator *a, size_t size_bytes, const berth_request *request, char *text,
                           size_t capacity, size_t *needed)
{
    if (!a || (!text && capacity))
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL", a ? "text" : "the allocator");
    struct facts facts;
    struct text out = {text, capacity, 0};
    gather(&facts, a, size_bytes, request);
    say_all(&out, &facts);
    if (needed)
        *needed = out.length + 1;
    return BERTH_OK;
}

/* ---- The decorator ------------------------------------------------------------------------------- */

struct explain {
    berth__mender base;
    _Atomic uint64_t explained;
};

static void log_lines(char *text)
{
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        berth__log(BERTH_LOG_WARNING, "%s", line);
}

static berth_status explain_mend(berth__mender *self, const berth__asked *asked, berth_status status)
{
    struct explain *e = (struct explain *)self;
    berth_error before = *berth_last_error();
    struct facts facts;
    char words[TEXT_BYTES] = "";
    struct text shortened = {words, sizeof before.message, 0};
    gather(&facts, e->base.base.inner, asked->size_bytes, asked->request);
    say_short(&shortened, &facts);
    /* The 1st, 2nd, 4th, 8th … goes to the log, so that a program that lives at its limit is not flooded. */
    uint64_t number = atomic_fetch_add_explicit(&e->explained, 1, memory_order_relaxed) + 1;
    char message[sizeof before.message];
    memcpy(message, words, sizeof message);
    if ((number & (number - 1)) == 0) {
        struct text full = {words, sizeof words, 0};
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
    return BERTH_LIKELY(!berth__is_want_of_memory(status)) ? status : explain_mend(self, &asked, status);
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
    berth__mender_init(&e->base, &ops, inner, explain_mend);
    *out = &e->base.base.base;
    return BERTH_OK;
}
