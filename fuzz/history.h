/* Any bytes as a file that tells a history: either refused with words, or a history that is sound. */
#ifndef BERTH_FUZZ_HISTORY_H
#define BERTH_FUZZ_HISTORY_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "format/inputs.h"
#include "format/tally.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef berth_status (*fuzz_reader)(const char *path, format_history *h, format_progress progress,
                                    void *context, format_error *error);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void must_be_sound(const format_history *h)
{
    uint64_t live = 0;
    for (uint32_t i = 0; i < h->event_count; i++) {
        const format_block *b = &h->blocks[h->events[i] / 2];
        must(h->events[i] / 2 < h->block_count);
        must((h->events[i] & 1 ? b->end : b->begin) == i);
        live += h->events[i] & 1 ? 0 - b->size_bytes : b->size_bytes;
    }
    for (uint32_t i = 0; i < h->block_count; i++) {
        const format_block *b = &h->blocks[i];
        must(b->begin < b->end && b->begin_ns <= b->end_ns);
        must(b->stack < h->frame_count && b->label < h->text_count && b->device < h->device_count);
        live -= b->end == FORMAT_ALIVE ? b->size_bytes : 0;
    }
    must(live == 0);
    for (uint32_t i = 1; i < h->frame_count; i++) {
        const format_frame *f = &h->frames[i];
        must(f->caller < i && f->function < h->text_count && f->file < h->text_count &&
             f->module < h->text_count);
    }
    (void)format_history_peak(h, FORMAT_ANY_DEVICE);
}

static void fuzz_history(fuzz_reader read, const uint8_t *data, size_t size)
{
    int file = memfd_create("input", MFD_CLOEXEC);
    char path[64];
    format_history h = {0};
    format_error error;
    must(file >= 0 && write(file, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (read(path, &h, NULL, NULL, &error) == BERTH_OK) {
        must_be_sound(&h);
        format_history_finish(&h);
    } else
        must(error.words[0] && !h.blocks);
    format_tally tally = {0};
    h.tally = &tally;
    if (read(path, &h, NULL, NULL, &error) == BERTH_OK) {
        must(format_tally_sum(&tally).live_blocks <= h.block_count);
        format_history_finish(&h);
    }
    format_tally_finish(&tally);
    close(file);
}

#endif
