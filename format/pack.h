/* zstd for packed traces: in the command only, so that the library and the recorder need no more than libc. */
#ifndef BERTH_FORMAT_PACK_H
#define BERTH_FORMAT_PACK_H

#include "berth/trace.h"

/* Whether this build has zstd. */
bool format_can_pack(void);
/* As berth_trace_pack_fn and berth_trace_unpack_fn; the context is not used. */
size_t format_pack(void *context, const void *from, size_t size_bytes, void *to, size_t room);
bool format_unpack(void *context, const void *from, size_t packed_bytes, void *to, size_t size_bytes);

#endif
