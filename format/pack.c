/* zstd for packed traces. */
#include "format/pack.h"

#ifdef BERTH_HAVE_ZSTD
#include <zstd.h>

enum { PACK_LEVEL = 9 };

bool format_can_pack(void)
{
    return true;
}

size_t format_pack(void *context, const void *from, size_t size_bytes, void *to, size_t room)
{
    (void)context;
    size_t packed = ZSTD_compress(to, room, from, size_bytes, PACK_LEVEL);
    return ZSTD_isError(packed) ? 0 : packed;
}

bool format_unpack(void *context, const void *from, size_t packed_bytes, void *to, size_t size_bytes)
{
    (void)context;
    return ZSTD_decompress(to, size_bytes, from, packed_bytes) == size_bytes;
}
#else
bool format_can_pack(void)
{
    return false;
}

size_t format_pack(void *context, const void *from, size_t size_bytes, void *to, size_t room)
{
    (void)context, (void)from, (void)size_bytes, (void)to, (void)room;
    return 0;
}

bool format_unpack(void *context, const void *from, size_t packed_bytes, void *to, size_t size_bytes)
{
    (void)context, (void)from, (void)packed_bytes, (void)to, (void)size_bytes;
    return false;
}
#endif
