/* What sources share that keep a list of their blocks, since the blocks themselves cannot be written to or
 * are not ours to write to: sizes, ids, labels, figures and snapshots come from the list. */
#ifndef BERTH_SOURCE_LISTED_H
#define BERTH_SOURCE_LISTED_H

#include "base/block_map.h"
#include "core/allocator.h"
#include "count/meter.h"

typedef struct berth__listed_block {
    berth__block_entry entry;
    uint64_t size_bytes;  /* as asked for */
    uint64_t taken_bytes; /* what the block takes */
    uint64_t id;
    const char *label;
} berth__listed_block;

/* The common start of such a source. `berth__listed_ops` answers every question about blocks; the source adds
 * allocate, deallocate, destroy, name and what else it does. */
typedef struct berth__listed {
    berth_allocator base;
    berth__meter meter;
    berth__block_map blocks;
    _Atomic uint64_t next_id;
} berth__listed;

extern const berth_allocator_ops berth__listed_ops;
/* False: no memory for the list; there is nothing to finish. */
bool berth__listed_init(berth__listed *l, const berth_allocator_ops *ops);
/* Gives the list back; blocks that are still live are forgotten. */
void berth__listed_finish(berth__listed *l);

/* Adds a filled-in block (address, size, taken, label) with the next id. */
void berth__listed_add(berth__listed *l, berth__listed_block *block);
/* Takes the block of `p` out; NULL with words: BERTH_BAD_FREE. Freed with berth__heap_free. */
berth__listed_block *berth__listed_take(berth__listed *l, const void *p);

#endif
