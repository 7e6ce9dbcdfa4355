/* What is free at a moment, by address: how much, the largest piece, and which blocks stand in the way of a larger one. */
#ifndef BERTH_CLI_HOLES_H
#define BERTH_CLI_HOLES_H

#include "format/history.h"

enum { HOLES_PINS = 3 };

/* What is asked for, and when: in a state (after that many events), at a time, by a process. */
typedef struct holes_question {
    uint64_t size_bytes, time_ns, stream;
    uint64_t capacity_bytes; /* of the place that offsets of a plan count from; 0: not known */
    uint32_t state;
    uint16_t device, process;
} holes_question;

typedef struct holes {
    bool is_known; /* addresses tell */
    bool
        has_segments; /* the recording says what was taken from the device; else it is what was used before */
    uint64_t reserved_bytes; /* taken from the device */
    uint64_t free_bytes;     /* of these, in no block */
    uint64_t largest_bytes;  /* of one hole */
    uint64_t largest_address;
    uint64_t unused_bytes;            /* segments in which nothing is alive: a cache could give them back */
    uint64_t largest_elsewhere_bytes; /* the largest hole that only another stream may use */
    /* The cheapest run of neighbours without which there were one hole that is large enough. */
    uint32_t pin_count;
    uint64_t pin_bytes, unpinned_bytes;
    uint32_t pins[HOLES_PINS]; /* blocks, the largest first */
} holes;

/* False: no memory. */
bool holes_find(const format_history *h, const holes_question *question, holes *out);

/* Bytes in blocks alive in a state that the program has let go of, while streams still use them. */
uint64_t holes_waiting(const format_history *h, uint16_t device, uint32_t state);

#endif
