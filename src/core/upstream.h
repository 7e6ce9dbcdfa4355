/* Where a pool or a cache takes its memory from: a device's memory of one kind, or any other allocator. */
#ifndef BERTH_CORE_UPSTREAM_H
#define BERTH_CORE_UPSTREAM_H

#include "core/allocator.h"

typedef struct berth__upstream {
    berth_allocator *from; /* retained; NULL: the device itself */
    berth_device device;
    berth_memory_kind memory_kind;
    size_t granularity; /* of what `from` gives; 1 where it is the device */
    const char *label;  /* what the blocks are called in the upstream's lists; a literal */
} berth__upstream;

/* Memory of `from`, which is retained, or, where that is NULL, of a device. `device` may be zero: the upstream's,
 * or the CPU. BERTH_OK; BERTH_INVALID_ARGUMENT: the upstream's memory is another device's than the one named. */
berth_status berth__upstream_init(berth__upstream *u, berth_allocator *from, berth_device device,
                                  berth_memory_kind memory_kind, const char *label);
/* Accepts a zeroed one. */
void berth__upstream_finish(berth__upstream *u);

/* No lock is held around these two. `flags` are those of a request, and nothing to a device. A block that is not
 * aligned as asked goes back: BERTH_INTERNAL. */
berth_status berth__upstream_take(const berth__upstream *u, size_t size_bytes, size_t alignment,
                                  uint32_t flags, void **out);
berth_status berth__upstream_give(const berth__upstream *u, void *p, size_t size_bytes);

#endif
