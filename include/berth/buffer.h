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
/* NULL for a view. Borrowed. */
BERTH_API berth_allocator *berth_buffer_allocator(const berth_buffer *buffer);

/* Copies the whole of `src` into the start of `dst`, on any devices, on `stream` or at once. Both stay alive
 * until the copy has run, whoever releases them. BERTH_OK, BERTH_INVALID_ARGUMENT (NULL, or `dst` is
 * smaller). */
BERTH_API berth_status berth_buffer_copy(berth_buffer *dst, berth_buffer *src, berth_stream *stream,
                                         bool need_sync);

/* Fills with zero bytes; streams as above. */
BERTH_API berth_status berth_buffer_zero(berth_buffer *buffer, berth_stream *stream, bool need_sync);

#ifdef __cplusplus
}
#endif
#endif
