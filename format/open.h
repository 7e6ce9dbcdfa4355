/* Segments that are not given back yet, by address: a treap in which each node knows the farthest end below it, so that whoever gives
 * memory back finds what lies there without looking at the rest. Memory fails alone here; nothing else does. */
#ifndef BERTH_FORMAT_OPEN_H
#define BERTH_FORMAT_OPEN_H

#include <stdbool.h>
#include <stdint.h>

struct format_open_node {
    uint64_t address, end; /* end: of a segment that would pass the last address, that one */
    uint64_t farthest;
    uint32_t space; /* process and device */
    uint32_t segment;
    uint32_t left, right; /* + 1; 0: none */
    uint32_t priority;
};

/* All zero is an empty one. */
struct format_open {
    struct format_open_node *nodes;
    uint32_t count, room;
    uint32_t root, vacant; /* + 1; vacant ones are chained by `right` */
};

/* Adds a segment. False: no memory. */
bool format_open_add(struct format_open *open, uint16_t process, uint16_t device, uint64_t address,
                     uint64_t size_bytes, uint32_t segment);
/* Takes the lowest segment away that reaches into [address, end). UINT32_MAX: none does. */
uint32_t format_open_take(struct format_open *open, uint16_t process, uint16_t device, uint64_t address,
                          uint64_t end);
/* Whether a segment begins at an address. */
bool format_open_begins(const struct format_open *open, uint16_t process, uint16_t device, uint64_t address);
void format_open_finish(struct format_open *open);

#endif
