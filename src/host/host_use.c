/* Blocks in use: recording the streams that use them, and copies into and out of them. */
#include "host/host.h"

static berth_status host_record(host_cache *c, const void *p, berth_host_handle handle, berth_stream *stream)
{
    host_block *b = berth__host_find_again(c, p);
    if (BERTH_UNLIKELY(!b))
        b = berth__host_resolve(c, p, handle);
    if (BERTH_UNLIKELY(!b))
        return berth__fail(BERTH_NOT_FOUND, "%s: %p is in no block of this cache", c->name, p);
    return berth__host_note_use(c, b, stream);
}

berth_status berth__host_record_use(void *self, const void *p, berth_stream *stream)
{
    return host_record(self, p, 0, stream);
}

/* A NULL pointer means the handle's block. */
static berth_status record_named(host_cache *c, berth_host_handle handle, berth_stream *stream)
{
    host_block *b = berth__host_named(c, handle);
    if (!b)
        return berth__fail(BERTH_NOT_FOUND, "%s: handle %#llx names no live block", c->name,
                           (unsigned long long)handle);
    return berth__host_note_use(c, b, stream);
}

berth_status berth_host_cache_record_use(berth_allocator *cache, const void *p, berth_host_handle handle,
                                         berth_stream *stream)
{
    host_cache *c = berth__host_of(cache);
    if (BERTH_UNLIKELY(!c))
        return berth__host_is_not("berth_host_cache_record_use");
    if (BERTH_UNLIKELY((!p && handle == 0) || !stream))
        return berth__fail(BERTH_INVALID_ARGUMENT, "recording a use needs a block and a stream");
    if (BERTH_UNLIKELY(!p))
        return record_named(c, handle, stream);
    return host_record(c, p, handle, stream);
}

static berth_status check_range(host_cache *c, const host_block *b, const void *p, size_t size_bytes)
{
    size_t requested = atomic_load_explicit(&b->requested, memory_order_relaxed);
    size_t offset = berth__host_offset(c, b, p);
    if (offset <= requested && size_bytes <= requested - offset)
        return BERTH_OK;
    return berth__fail(BERTH_INVALID_ARGUMENT,
                       "%s: a copy of %zu bytes at %zu goes past the end of a block of %zu", c->name,
                       size_bytes, offset, requested);
}

berth_status berth_host_cache_copy(berth_allocator *cache, void *dst, const void *src, size_t size_bytes,
                                   berth_stream *stream, bool need_sync)
{
    host_cache *c = berth__host_of(cache);
    if (!c || !dst || !src)
        return c ? berth__fail(BERTH_INVALID_ARGUMENT, "a copy needs a destination and a source")
                 : berth__host_is_not("berth_host_cache_copy");
    host_block *blocks[2] = {berth__host_live_block(c, dst), berth__host_live_block(c, src)};
    const void *ends[2] = {dst, src};
    if (!blocks[0] && !blocks[1])
        return berth__fail(BERTH_NOT_FOUND, "%s: neither %p nor %p lies in a live block", c->name, dst, src);
    /* Both are checked before either is noted. */
    for (int i = 0; i < 2; i++)
        if (blocks[i] && check_range(c, blocks[i], ends[i], size_bytes) != BERTH_OK)
            return BERTH_INVALID_ARGUMENT;
    for (int i = 0; i < 2 && stream; i++) {
        berth_status status = blocks[i] ? berth__host_note_use(c, blocks[i], stream) : BERTH_OK;
        if (status)
            return status;
    }
    return berth_copy(stream ? berth_stream_device(stream) : c->device, dst, src, size_bytes,
                      BERTH_COPY_INFER, stream, need_sync);
}
