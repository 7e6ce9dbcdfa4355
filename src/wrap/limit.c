/* The limit: charges a budget, which several allocators may share, before the inner allocator is asked. */
#include "berth/decorators.h"

#include "base/words.h"
#include "count/quota.h"
#include "wrap/limit.h"
#include "wrap/noted.h"

struct berth_budget {
    berth__quota quota;
    _Atomic uint32_t references;
    _Atomic uint64_t refusals;
};

struct limit {
    berth__noted base;
    berth_budget *budget; /* retained */
};

/* ---- The budget ---------------------------------------------------------------------------------- */

static berth_status check_limit(uint64_t limit_bytes)
{
    if (limit_bytes == 0 || limit_bytes > BERTH_BUDGET_UNLIMITED)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "a budget of %llu bytes is none: give a number from 1 to 2^62 - 1",
                           (unsigned long long)limit_bytes);
    return BERTH_OK;
}

berth_status berth_budget_create(uint64_t limit_bytes, berth_budget **out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no place for the budget: out is NULL");
    *out = NULL;
    berth_status status = check_limit(limit_bytes);
    if (status)
        return status;
    berth_budget *budget = berth__heap_aligned(sizeof *budget, 64);
    if (!budget)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a budget");
    berth__quota_init(&budget->quota, (int64_t)limit_bytes);
    atomic_init(&budget->references, 1);
    atomic_init(&budget->refusals, 0);
    *out = budget;
    return BERTH_OK;
}

berth_budget *berth_budget_retain(berth_budget *budget)
{
    if (budget)
        atomic_fetch_add_explicit(&budget->references, 1, memory_order_relaxed);
    return budget;
}

void berth_budget_release(berth_budget *budget)
{
    if (!budget || atomic_fetch_sub_explicit(&budget->references, 1, memory_order_acq_rel) != 1)
        return;
    berth__quota_finish(&budget->quota);
    berth__heap_free(budget);
}

berth_status berth_budget_set_limit(berth_budget *budget, uint64_t limit_bytes)
{
    if (!budget)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the budget is NULL");
    berth_status status = check_limit(limit_bytes);
    if (!status)
        berth__quota_set_cap(&budget->quota, (int64_t)limit_bytes);
    return status;
}

uint64_t berth_budget_limit(berth_budget *budget)
{
    return budget ? (uint64_t)atomic_load(&budget->quota.cap) : 0;
}

uint64_t berth_budget_in_use(berth_budget *budget)
{
    return budget ? berth__quota_in_use(&budget->quota) : 0;
}

/* ---- The decorator ------------------------------------------------------------------------------- */

/* Only what is true of this request: what is larger than all of the budget fits after no free, and what was
 * freed since the refusal may make room. */
static berth_status over_budget(struct limit *l, size_t size_bytes, const berth_request *request)
{
    atomic_fetch_add_explicit(&l->budget->refusals, 1, memory_order_relaxed);
    uint64_t limit = berth_budget_limit(l->budget), in_use = berth_budget_in_use(l->budget);
    uint64_t left = limit > in_use ? limit - in_use : 0;
    const char *label = berth__request_label(request);
    if (!label)
        label = "a request without a label";
    if (size_bytes > limit && limit == BERTH_BUDGET_UNLIMITED)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "%s for %s are more than any machine has",
                           BERTH__SIZE(size_bytes), label);
    if (size_bytes > limit)
        return berth__fail(
            BERTH_OVER_BUDGET, "%s for %s are more than the whole budget of %s; raise the budget to %s",
            BERTH__SIZE(size_bytes), label, BERTH__SIZE(limit), BERTH__SIZE(in_use + size_bytes));
    if (size_bytes <= left)
        return berth__fail(BERTH_OVER_BUDGET,
                           "%s for %s would have exceeded the budget of %s; %s are left by now: try again",
                           BERTH__SIZE(size_bytes), label, BERTH__SIZE(limit), BERTH__SIZE(left));
    return berth__fail(
        BERTH_OVER_BUDGET,
        "%s for %s would exceed the budget of %s: %s are in use and %s left; free %s more, or raise "
        "the budget to %s",
        BERTH__SIZE(size_bytes), label, BERTH__SIZE(limit), BERTH__SIZE(in_use), BERTH__SIZE(left),
        BERTH__SIZE(size_bytes - left), BERTH__SIZE(in_use + size_bytes));
}

/* Over a source that knows its blocks' sizes, the common case. The fast paths call nothing but the source, so
 * that they keep little; everything else is out of line. */
BERTH__COLD static berth_status known_undo(struct limit *l, size_t size_bytes, berth_status status)
{
    berth__quota_give(&l->budget->quota, size_bytes);
    return status;
}

BERTH__COLD static berth_status known_allocate_slow(struct limit *l, size_t size_bytes, size_t alignment,
                                                    const berth_request *request, void **out)
{
    if (!berth__quota_take_slow(&l->budget->quota, size_bytes))
        return over_budget(l, size_bytes, request);
    berth_status status = berth__allocate(l->base.base.inner, size_bytes, alignment, request, out);
    return !status ? status : known_undo(l, size_bytes, status);
}

static berth_status known_allocate(void *self, size_t size_bytes, size_t alignment,
                                   const berth_request *request, void **out)
{
    struct limit *l = self;
    /* [M4] [W1] taken before the inner allocator is asked: no moment has more than the budget in use. */
    if (BERTH_UNLIKELY(!berth__quota_take_fast(&l->budget->quota, size_bytes)))
        return known_allocate_slow(l, size_bytes, alignment, request, out);
    berth_status status = berth__allocate(l->base.base.inner, size_bytes, alignment, request, out);
    return BERTH_LIKELY(!status) ? status : known_undo(l, size_bytes, status);
}

BERTH__COLD static berth_status known_give_slow(struct limit *l, uint64_t size_bytes)
{
    berth__quota_give_slow(&l->budget->quota, size_bytes);
    return BERTH_OK;
}

BERTH__COLD static berth_status known_not_freed(struct limit *l, uint64_t size_bytes, berth_status status)
{
    if (berth__free_is_done(status))
        berth__quota_give(&l->budget->quota, size_bytes);
    return status;
}

static berth_status known_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    struct limit *l = self;
    uint64_t known =
        berth__header_size(p); /* before it is gone; the source itself tells whether it is live */
    berth_status status = berth__deallocate(l->base.base.inner, p, size_bytes, stream);
    if (BERTH_UNLIKELY(status))
        return known_not_freed(l, known, status);
    return BERTH_LIKELY(berth__quota_give_fast(&l->budget->quota, known)) ? BERTH_OK
                                                                          : known_give_slow(l, known);
}

/* Over one whose blocks have a word: the size that was asked for stands beside it. */
static berth_status asked_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    struct limit *l = self;
    berth_allocator *inner = l->base.base.inner;
    size_t known = 0; /* of what is not live, which the inner allocator refuses */
    (void)inner->word_of(inner->word_self, p, &known);
    berth_status status = berth__deallocate(inner, p, size_bytes, stream);
    if (BERTH_UNLIKELY(status))
        return known_not_freed(l, known, status);
    return BERTH_LIKELY(berth__quota_give_fast(&l->budget->quota, known)) ? BERTH_OK
                                                                          : known_give_slow(l, known);
}

static berth_status limit_allocate(void *self, size_t size_bytes, size_t alignment,
                                   const berth_request *request, void **out)
{
    struct limit *l = self;
    if (BERTH_UNLIKELY(!berth__quota_take(&l->budget->quota, size_bytes)))
        return over_budget(l, size_bytes, request);
    berth_status status = berth__noted_allocate(&l->base, size_bytes, alignment, request, 0, out);
    if (BERTH_UNLIKELY(status))
        berth__quota_give(&l->budget->quota, size_bytes);
    return status;
}

static berth_status limit_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    struct limit *l = self;
    berth__note note = {0};
    berth_status status = berth__noted_deallocate(&l->base, p, size_bytes, stream, &note);
    /* Given back only when it is really gone, so that nobody else gets the bytes twice. */
    if (berth__free_is_done(status))
        berth__quota_give(&l->budget->quota, note.size_bytes);
    return status;
}

/* The inner allocator's figures, under the smaller of both limits. The budget has only one of them, and may
 * be shared. */
static berth_status limit_stats(void *self, berth_stats *out)
{
    struct limit *l = self;
    berth_allocator *inner = l->base.base.inner;
    uint64_t limit = berth_budget_limit(l->budget);
    uint64_t refused = atomic_load(&l->budget->refusals);
    berth_status status = inner->ops.stats(inner->self, out);
    if (status)
        return status;
    out->num_failures += refused;
    if (limit != BERTH_BUDGET_UNLIMITED && (out->bytes_limit == 0 || limit < out->bytes_limit))
        out->bytes_limit = limit;
    return BERTH_OK;
}

static berth_status limit_clear_stats(void *self)
{
    struct limit *l = self;
    berth_allocator *inner = l->base.base.inner;
    atomic_store(&l->budget->refusals, 0);
    return inner->ops.clear_stats(inner->self);
}

static void limit_destroy(void *self)
{
    struct limit *l = self;
    berth__noted_finish(&l->base);
    berth_budget_release(l->budget);
    berth__heap_free(l);
}

bool berth__limit_charged(berth_allocator *a, uint64_t *charged_bytes)
{
    if (!berth__allocator_is(a, limit_destroy))
        return false;
    *charged_bytes = berth_budget_in_use(((struct limit *)a->self)->budget);
    return true;
}

berth_status berth_limit_create(berth_allocator *inner, berth_budget *budget, berth_allocator **out)
{
    if (out)
        *out = NULL;
    if (!out || !inner || !budget)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL",
                           !out     ? "out"
                           : !inner ? "the inner allocator"
                                    : "the budget");
    struct limit *l = berth__heap_aligned(sizeof *l, 64);
    if (!l)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a limit's handle");
    berth_allocator_ops ops = {
        .allocate = inner->header || inner->word_of ? known_allocate : limit_allocate,
        .deallocate = inner->header    ? known_deallocate
                      : inner->word_of ? asked_deallocate
                                       : limit_deallocate,
        .destroy = limit_destroy,
        .stats = limit_stats,
        .clear_stats = limit_clear_stats,
    };
    if (!berth__noted_init(&l->base, &ops, inner, true)) {
        berth__heap_free(l);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a limit's map");
    }
    l->base.base.base.header = inner->header;
    l->base.base.base.word_of = inner->word_of;
    l->base.base.base.word_self = inner->word_self;
    l->base.base.base.in_use = inner->in_use; /* its own figures are others */
    l->base.base.base.in_use_self = inner->in_use_self;
    l->budget = berth_budget_retain(budget);
    *out = &l->base.base.base;
    return BERTH_OK;
}
