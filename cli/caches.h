/* What other allocators would have taken from the device for the same blocks: PyTorch's rules, modelled, and Berth's own pool, run
 * without memory behind it. */
#ifndef BERTH_CLI_CACHES_H
#define BERTH_CLI_CACHES_H

#include "format/history.h"

typedef struct caches_figures {
    uint64_t reserved_bytes; /* at most, taken from the device */
    uint64_t given_bytes;    /* at most, in blocks, as rounded */
    uint64_t segments;       /* taken in all */
} caches_figures;

/* PyTorch's caching allocator (CUDA and its kin) without settings, or with expandable_segments:True, on a device that never refuses:
 *
 *     sizes in multiples of 512 bytes; up to 1 MiB from segments of 2 MiB, up to 10 MiB from segments of 20 MiB, above that a
 *     segment of their own in multiples of 2 MiB; the smallest free piece that fits, of the same stream; what is left over is cut
 *     off if it is 512 bytes or more (small) or above 1 MiB (large); free neighbours are joined
 *     expandable: one growing range for each stream and kind, in steps of 2 MiB (small) or 20 MiB (large), always cut
 *
 * False: no memory. */
bool caches_pytorch(const format_history *h, uint16_t device, bool expandable, caches_figures *out);

/* Berth's pool with its default settings over a dry run (berth_dry_run_allocator_create): the same code as in programs, without
 * streams. BERTH_OK, or what the pool refused. */
berth_status caches_pool(const format_history *h, uint16_t device, caches_figures *out);
/* The same where address space can be reserved, as on the CPU: one range that grows and gives back in place. */
berth_status caches_pool_in_place(const format_history *h, uint16_t device, caches_figures *out);

/* What the recording itself says was taken from the device at most, and in how many segments; 0: it does not say. */
caches_figures caches_recorded(const format_history *h, uint16_t device);

#endif
