/* Prints what a reader took from a file as lines that a script can compare with its own reading. */
#include <inttypes.h>
#include <stdio.h>

#include "format/inputs.h"
#include "tally_agrees.h"

static void print_stack(const format_history *h, uint32_t stack)
{
    for (uint32_t at = stack; at; at = h->frames[at].caller) {
        const format_frame *f = &h->frames[at];
        printf("|%s@%s:%u", format_history_words(h, f->function), format_history_words(h, f->file), f->line);
    }
}

int main(int argc, char **argv)
{
    format_history h = {0};
    format_error error;
    if (argc != 2 || format_history_read(argv[1], &h, NULL, NULL, &error) != BERTH_OK) {
        fprintf(stderr, "%s\n", argc == 2 ? error.words : "usage: formats_dump FILE");
        return 1;
    }
    printf("format %s\n", h.format);
    for (uint32_t i = 0; i < h.block_count; i++) {
        const format_block *b = &h.blocks[i];
        printf("block %" PRIu64 " %u ", b->size_bytes, b->begin);
        if (b->end == FORMAT_ALIVE)
            printf("alive");
        else
            printf("%u", b->end);
        printf(" %" PRIu64 " %" PRIu64 " %" PRIx64 " %" PRIx64 " %s ", b->begin_ns, b->end_ns,
               h.has_addresses ? b->address : 0, b->stream,
               format_history_words(&h, h.devices[b->device].name));
        printf("%s", format_history_words(&h, b->label));
        print_stack(&h, b->stack);
        printf("\n");
    }
    for (uint32_t i = 0; i < h.moment_count; i++)
        printf("moment %" PRIu64 " %" PRIu64 " %u\n", h.moments[i].size_bytes, h.moments[i].time_ns,
               h.moments[i].before);
    for (uint32_t i = 0; i < h.segment_count; i++)
        printf("segment %" PRIx64 " %" PRIu64 " %u %s\n", h.segments[i].address, h.segments[i].size_bytes,
               h.segments[i].begin, h.segments[i].end == FORMAT_ALIVE ? "alive" : "freed");
    for (uint32_t i = 0; i < h.process_count; i++)
        printf("process %s\n", format_history_words(&h, h.commands[i]));
    for (uint32_t i = 0; i < h.notice_count; i++)
        printf("notice %s\n", h.notices[i].words);
    printf("peak %" PRIu64 "\n", format_history_peak(&h, FORMAT_ANY_DEVICE).bytes);
    printf("unknown %" PRIu64 " lost %" PRIu64 "\n", h.unknown_frees, h.lost_frees);
    bool agrees = tally_agrees(argv[1], &h);
    format_history_finish(&h);
    return agrees ? 0 : 1;
}
