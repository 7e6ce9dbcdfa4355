/* The scope meter: counts every block for its label and for the thread that asked for it. */
#include "berth/scope.h"

#include "core/noted.h"
#include "core/scope.h"

/* Over a source that knows its blocks' sizes, the common case. The short ways call nothing but the source, so
 * that they keep little; everything else is out of line. */
#define OUT_OF_LINE __attribute__((noinline, cold))

static berth_status scoped_allocate(void *self, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out);

OUT_OF_LINE static berth_status add_slow(berth__label *label, uint64_t size_bytes)
{
    berth__meter_add_true(&label->meter, size_bytes);
    return BERTH_OK;
}

static berth_status behind_allocate(void *self, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    berth__noted *w = self;
    berth__holder *mine = berth__holder_mine;
    const char *text = berth__label_text(request);
    size_t place = berth__label_place(text);
    if (BERTH_UNLIKELY(!mine || mine->cache[place].text != text || !mine->cache[place].label))
        return scoped_allocate(self, size_bytes, alignment, request, out);
    berth__label *label = mine->cache[place].label;
    size_t offset = berth__note_offset(size_bytes);
    berth_status status =
        berth__allocate(w->base.inner, offset + sizeof(berth__note), alignment, request, out);
    if (BERTH_UNLIKELY(status != BERTH_OK))
        return status;
    void *block = *out;
    berth__note_write((berth__note *)(void *)((char *)block + offset), size_bytes, label, mine,
                      berth__note_seal(block, 0));
    berth__holder_add(mine, size_bytes);
    return BERTH_LIKELY(berth__meter_take_quick(&label->meter, size_bytes)) ? BERTH_OK
                                                                            : add_slow(label, size_bytes);
}

OUT_OF_LINE static berth_status give_slow(berth__label *label, uint64_t size_bytes)
{
    berth__meter_give(&label->meter, size_bytes);
    return BERTH_OK;
}

static berth_status behind_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    (void)size_bytes;
    berth__noted *w = self;
    berth__note note = {0};
    berth_status status = berth__noted_take_behind(p, &note);
    if (BERTH_UNLIKELY(status != BERTH_OK))
        return status;
    status = berth__deallocate(w->base.inner, p, 0, stream);
    berth__label *label = note.whom;
    if (BERTH_UNLIKELY(!label || status != BERTH_OK))
        return status;
    berth__holder_sub(note.thread, note.size_bytes);
    return BERTH_LIKELY(berth__meter_give_quick(&label->meter, note.size_bytes))
               ? BERTH_OK
               : give_slow(label, note.size_bytes);
}

static berth_status scoped_allocate(void *self, size_t size_bytes, size_t alignment,
                                    const berth_request *request, void **out)
{
    berth__holder *mine = berth__holder_here();
    berth__label *label = mine ? berth__label_of(mine, berth__label_text(request)) : NULL;
    berth_status status = berth__noted_allocate(self, size_bytes, alignment, request, label, mine, out);
    if (BERTH_LIKELY(status == BERTH_OK && label)) {
        berth__meter_add_true(&label->meter, size_bytes);
        berth__holder_add(mine, size_bytes);
    }
    return status;
}

static berth_status scoped_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    berth__note note = {0};
    berth_status status = berth__noted_take(self, p, &note);
    if (BERTH_UNLIKELY(status != BERTH_OK))
        return status;
    status = berth__noted_release(self, p, &note, size_bytes, stream);
    berth__label *label = note.whom;
    if (BERTH_LIKELY(label && status == BERTH_OK)) {
        berth__meter_give(&label->meter, note.size_bytes);
        berth__holder_sub(note.thread, note.size_bytes);
    }
    return status;
}

static void scoped_destroy(void *self)
{
    berth__noted_finish(self);
    berth__heap_free(self);
}

berth_status berth_scope_meter_create(berth_allocator *inner, berth_allocator **out)
{
    if (out)
        *out = NULL;
    if (!out || !inner)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL", out ? "the inner allocator" : "out");
    berth__noted *w = berth__heap_aligned(sizeof *w, 64);
    if (!w)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a scope meter's handle");
    berth_allocator_ops ops = {
        .allocate = inner->has_header ? behind_allocate : scoped_allocate,
        .deallocate = inner->has_header ? behind_deallocate : scoped_deallocate,
        .destroy = scoped_destroy,
    };
    if (!berth__noted_init(w, &ops, inner, false)) {
        berth__heap_free(w);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a scope meter's map");
    }
    *out = &w->base.base;
    return BERTH_OK;
}
