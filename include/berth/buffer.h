/* Buffers: a counted owner of one block, or a view of somebody else's memory. */
#ifndef BERTH_BUFFER_H
#define BERTH_BUFFER_H

#include "berth/allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct berth_buffer berth_buffer;

/* A buffer of `size_bytes` from `allocator`, which it retains. With `lazy` the block is taken by the first
 * berth_buffer_data or berth_buffer_allocate. The caller owns one reference. Any thread. As berth_allocate.
 */
BERTH_API berth_status berth_buffer_create(berth_allocator *allocator, size_t size_bytes, size_t alignment,
                                           bool lazy, berth_buffer **out);

/* A view of `size_bytes` at `p` on `device`, which the caller owns and keeps alive. `p` may be NULL only with
 * 0 bytes. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_buffer_view(void *p, size_t size_bytes, berth_device device, berth_buffer **out);

/* What gives adopted memory back: called once, by the last release, with no lock of berth held; that may be on a
 * thread of berth's when a stream has finished a copy. */
typedef void (*berth_buffer_deleter)(void *context, void *p, size_t size_bytes);

/* As berth_buffer_view, but the memory becomes the buffer's: the last release calls `deleter`. If this fails the
 * caller still owns it. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OVERFLOW, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_buffer_adopt(void *p, size_t size_bytes, berth_device device,
                                          berth_buffer_deleter deleter, void *context, berth_buffer **out);

/* The bytes [offset, offset + size) of `parent`, which it keeps alive. Allocates a lazy parent. */
BERTH_API berth_status berth_buffer_sub(berth_buffer *parent, size_t offset_bytes, size_t size_bytes,
                                        berth_buffer **out);

/* Counted references, any thread; the last release frees on the right device. Release accepts NULL. */
BERTH_API berth_buffer *berth_buffer_retain(berth_buffer *buffer);
BERTH_API void berth_buffer_release(berth_buffer *buffer);

/* Takes the block if that has not happened; doing it twice changes nothing. Any thread. */
BERTH_API berth_status berth_buffer_allocate(berth_buffer *buffer);

/* The address, allocating a lazy buffer; NULL if that fails or the size is 0. */
BERTH_API void *berth_buffer_data(berth_buffer *buffer);
BERTH_API size_t berth_buffer_size(const berth_buffer *buffer);
BERTH_API berth_device berth_buffer_device(const berth_buffer *buffer);
/* Whose block it is, for a part its parent's; NULL for views and adopted memory. Borrowed. */
BERTH_API berth_allocator *berth_buffer_allocator(const berth_buffer *buffer);

/* Copies the whole of `src` into the start of `dst`, on any devices, on `stream` or at once. Both stay alive
 * until the copy has run, whoever releases them. BERTH_OK, BERTH_INVALID_ARGUMENT (NULL, or `dst` is
 * smaller). */
BERTH_API berth_status berth_buffer_copy(berth_buffer *dst, berth_buffer *src, berth_stream *stream,
                                         bool need_sync);

enum {
    BERTH_RANGE_WAIT = 1, /* return when the copy has run */
    BERTH_RANGE_CLIP = 2, /* as many of the bytes as both buffers have there, instead of an error */
};

/* Copies `size_bytes` from `src` at `src_offset` to `dst` at `dst_offset`; everything else as berth_buffer_copy.
 * The ranges may overlap. `copied` may be NULL; it gets how many bytes that was. BERTH_OK, BERTH_INVALID_ARGUMENT (a
 * range is not inside its buffer and BERTH_RANGE_CLIP was not asked for, an offset is not, or a flag is unknown). */
BERTH_API berth_status berth_buffer_copy_range(berth_buffer *dst, size_t dst_offset, berth_buffer *src,
                                               size_t src_offset, size_t size_bytes, unsigned flags,
                                               berth_stream *stream, size_t *copied);

/* Fills with zero bytes; streams as above. */
BERTH_API berth_status berth_buffer_zero(berth_buffer *buffer, berth_stream *stream, bool need_sync);

#ifdef __cplusplus
}
#endif
#endif
