/* Decorators that act on failures only: allocating past all of them, and mending in turn. */
#include "wrap/mender.h"

static berth__mender *as_mender(berth_allocator *a)
{
    return a->ops.allocate == berth__mender_allocate ? a->self : NULL;
}

/* From the innermost outwards, as if each had asked the one inside it. */
static berth_status mend_all(berth__mender *m, const berth__asked *asked, berth_status status)
{
    berth__mender *inner = as_mender(m->base.inner);
    if (inner)
        status = mend_all(inner, asked, status);
    return berth__is_want_of_memory(status) ? m->mend(m, asked, status) : status;
}

BERTH__COLD static berth_status mend_kept(const berth__asked *asked, berth_status status)
{
    return mend_all(asked->outermost, asked, status);
}

BERTH_HOT berth_status berth__mender_allocate(void *self, size_t size_bytes, size_t alignment,
                                              const berth_request *request, void **out)
{
    berth__mender *m = self;
    berth__asked asked = {m, size_bytes, alignment, request, out};
    berth_status status = berth__allocate(m->beneath, size_bytes, alignment, request, out);
    return BERTH_LIKELY(!berth__is_want_of_memory(status)) ? status : mend_kept(&asked, status);
}

berth_allocator *berth__mender_beneath(berth_allocator *a)
{
    berth__mender *m = as_mender(a);
    return m ? m->beneath : a;
}

void berth__mender_init(berth__mender *m, berth_allocator_ops *ops, berth_allocator *inner,
                        berth_status (*mend)(berth__mender *self, const berth__asked *asked,
                                             berth_status status))
{
    ops->allocate = berth__mender_allocate;
    m->mend = mend;
    berth__wrapper_init(&m->base, ops, inner);
    berth__mender *other = as_mender(inner);
    m->beneath = other ? other->beneath : inner;
    m->base.base.header = inner->header;
}
