/* Decorators that act on failures only: allocating past all of them, and answering in turn. */
#include "wrap/on_failure.h"

static berth__on_failure *as_on_failure(berth_allocator *a)
{
    return a->ops.allocate == berth__on_failure_allocate ? a->self : NULL;
}

/* From the innermost outwards, as if each had asked the one inside it. */
static berth_status answer_all(berth__on_failure *m, const berth__asked *asked, berth_status status)
{
    berth__on_failure *inner = as_on_failure(m->base.inner);
    if (inner)
        status = answer_all(inner, asked, status);
    return berth__is_want_of_memory(status) ? m->answer(m, asked, status) : status;
}

BERTH__COLD static berth_status answer_kept(const berth__asked *asked, berth_status status)
{
    return answer_all(asked->outermost, asked, status);
}

BERTH_HOT berth_status berth__on_failure_allocate(void *self, size_t size_bytes, size_t alignment,
                                                  const berth_request *request, void **out)
{
    berth__on_failure *m = self;
    berth__asked asked = {m, size_bytes, alignment, request, out};
    berth_status status = berth__allocate(m->beneath, size_bytes, alignment, request, out);
    return BERTH_LIKELY(!berth__is_want_of_memory(status)) ? status : answer_kept(&asked, status);
}

berth_allocator *berth__on_failure_beneath(berth_allocator *a)
{
    berth__on_failure *m = as_on_failure(a);
    return m ? m->beneath : a;
}

void berth__on_failure_init(berth__on_failure *m, berth_allocator_ops *ops, berth_allocator *inner,
                            berth_status (*answer)(berth__on_failure *self, const berth__asked *asked,
                                                   berth_status status))
{
    ops->allocate = berth__on_failure_allocate;
    m->answer = answer;
    berth__wrapper_init(&m->base, ops, inner);
    berth__on_failure *other = as_on_failure(inner);
    m->beneath = other ? other->beneath : inner;
    m->base.base.header = inner->header;
}
