/* A file read with a tally comes to the figures of the whole history. */
#ifndef BERTH_TESTS_TALLY_AGREES_H
#define BERTH_TESTS_TALLY_AGREES_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format/inputs.h"
#include "format/tally.h"

static inline format_counts history_counts(const format_history *h, uint16_t device)
{
    format_counts c = {.peak_bytes = format_history_peak(h, device).bytes};
    for (uint32_t i = 0; i < h->block_count; i++)
        if (h->blocks[i].device == device && h->blocks[i].end == FORMAT_ALIVE) {
            c.live_blocks++;
            c.live_bytes += h->blocks[i].size_bytes;
        }
    return c;
}

/* By their names: a tally numbers devices as it meets them. */
static inline format_counts tally_counts(const format_history *h, const format_tally *t, const char *device)
{
    format_counts c = {0};
    for (uint32_t d = 0; d < t->device_count; d++) {
        if (strcmp(format_history_words(h, h->devices[d].name), device) != 0)
            continue;
        const format_counts *one = &t->devices[d].counts;
        c.live_blocks += one->live_blocks;
        c.live_bytes += one->live_bytes;
        c.peak_bytes += one->peak_bytes;
        uint64_t held = 0, live = 0;
        for (uint32_t i = 0; i < t->holder_count; i++)
            if (t->holders[i].device == d) {
                held += format_holder_at_peak(t, &t->holders[i]);
                live += t->holders[i].counts.live_bytes;
            }
        if (held != one->peak_bytes || live != one->live_bytes)
            printf("the holders of %s had %" PRIu64 " bytes at its peak of %" PRIu64 ", and have %" PRIu64
                   " of %" PRIu64 "\n",
                   device, held, one->peak_bytes, live, one->live_bytes);
    }
    return c;
}

static inline bool tally_agrees(const char *path, const format_history *whole)
{
    format_tally tally = {0};
    format_history h;
    format_error error;
    if (format_history_count(path, &h, &tally, NULL, NULL, &error) != BERTH_OK) {
        printf("with a tally: %s\n", error.words);
        return false;
    }
    bool agrees = true;
    for (uint32_t d = 0; d < whole->device_count; d++) {
        const char *name = format_history_words(whole, whole->devices[d].name);
        format_counts x = history_counts(whole, (uint16_t)d), y = tally_counts(&h, &tally, name);
        if (x.peak_bytes == y.peak_bytes && x.live_bytes == y.live_bytes && x.live_blocks == y.live_blocks)
            continue;
        printf("with a tally %s has %" PRIu64 " bytes in %" PRIu64 " blocks and a peak of %" PRIu64
               ", not %" PRIu64 ", %" PRIu64 " and %" PRIu64 "\n",
               name, y.live_bytes, y.live_blocks, y.peak_bytes, x.live_bytes, x.live_blocks, x.peak_bytes);
        agrees = false;
    }
    format_history_finish(&h);
    format_tally_finish(&tally);
    return agrees;
}

#endif
