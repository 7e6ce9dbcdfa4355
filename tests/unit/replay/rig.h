/* What the replay tests share: an inner allocator that counts and can fail, and a planned one over it. */
#ifndef BERTH_TESTS_REPLAY_RIG_H
#define BERTH_TESTS_REPLAY_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "berth/berth.h"

typedef struct rig {
    berth_allocator *inner;
    berth_plan *plan;
    berth_allocator *planned;
    _Atomic size_t inner_allocs; /* calls that reached the inner allocator */
    _Atomic size_t inner_frees;
    _Atomic size_t inner_live; /* bytes that it has given out */
    bool fail;
    void (*on_free)(void *context); /* called before a block is freed; NULL: nobody */
    void *on_free_context;
} rig;

static inline berth_status rig_allocate(void *self, size_t size, size_t alignment,
                                        const berth_request *request, void **out)
{
    rig *r = self;
    (void)request;
    if (r->fail)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "told to fail");
    /* Its size and what it begins with stand in front of each block. */
    size_t front[2] = {size, alignment < 2 * sizeof(size_t) ? 2 * sizeof(size_t) : alignment};
    char *p = NULL;
    if (posix_memalign((void **)&p, front[1], front[1] + size) != 0)
        return BERTH_OUT_OF_HOST_MEMORY;
    p += front[1];
    memcpy(p - sizeof front, front, sizeof front);
    memset(p, 0xa5, size);
    *out = p;
    atomic_fetch_add(&r->inner_allocs, 1);
    atomic_fetch_add(&r->inner_live, size);
    return BERTH_OK;
}

static inline berth_status rig_deallocate(void *self, void *p, size_t size, berth_stream *stream)
{
    rig *r = self;
    size_t front[2];
    (void)size, (void)stream;
    if (r->on_free)
        r->on_free(r->on_free_context);
    memcpy(front, (char *)p - sizeof front, sizeof front);
    atomic_fetch_add(&r->inner_frees, 1);
    atomic_fetch_sub(&r->inner_live, front[0]);
    free((char *)p - front[1]);
    return BERTH_OK;
}

static inline void rig_destroyed(void *self)
{
    (void)self;
}

static inline void rig_begin(rig *r)
{
    memset(r, 0, sizeof *r);
    berth_allocator_ops ops = {.struct_size = sizeof ops,
                               .allocate = rig_allocate,
                               .deallocate = rig_deallocate,
                               .destroy = rig_destroyed};
    assert_int_equal(berth_allocator_create(&ops, r, &r->inner), BERTH_OK);
    assert_int_equal(berth_plan_create(&r->plan), BERTH_OK);
    assert_int_equal(berth_planned_create(r->inner, r->plan, &r->planned), BERTH_OK);
}

/* Everything that came from the inner allocator must be back. */
static inline void rig_end(rig *r)
{
    berth_allocator_release(r->planned);
    berth_plan_release(r->plan);
    berth_allocator_release(r->inner);
    assert_int_equal(r->inner_allocs, r->inner_frees);
}

static inline void *take(rig *r, size_t size)
{
    void *p = NULL;
    assert_int_equal(berth_allocate(r->planned, size, 64, NULL, &p), BERTH_OK);
    assert_non_null(p);
    return p;
}

static inline void give(rig *r, void *p)
{
    assert_int_equal(berth_deallocate(r->planned, p, 0, NULL), BERTH_OK);
}

#endif
