/* Prints the history of any input as lines that a script can compare: process, thread, size, whether it was freed, device,
 * function names. And reads it once more with a tally, which must come to the same figures. */
#include <inttypes.h>
#include <stdio.h>

#include "format/inputs.h"
#include "tally_agrees.h"

int main(int argc, char **argv)
{
    format_history h = {0};
    format_error error;
    if (argc != 2 || format_history_read(argv[1], &h, NULL, NULL, &error) != BERTH_OK) {
        fprintf(stderr, "%s\n", argc == 2 ? error.words : "usage: format_read INPUT");
        return 1;
    }
    for (uint32_t i = 0; i < h.block_count; i++) {
        const format_block *b = &h.blocks[i];
        const char *device = format_history_words(&h, h.devices[b->device].name);
        printf("block %u %u %" PRIu64 " %s %s", b->process, b->thread, b->size_bytes,
               b->end == FORMAT_ALIVE ? "alive" : "freed", *device ? device : "host");
        for (uint32_t at = b->stack, depth = 0; at && depth < 4; at = h.frames[at].caller, depth++)
            printf(" %s", h.frames[at].function ? format_history_words(&h, h.frames[at].function) : "?");
        printf("\n");
        if (b->label)
            printf("label %" PRIu64 " %s\n", b->size_bytes, format_history_words(&h, b->label));
    }
    for (uint32_t i = 0; i < h.segment_count; i++)
        printf("segment %" PRIu64 " %s\n", h.segments[i].size_bytes,
               h.segments[i].end == FORMAT_ALIVE ? "alive" : "freed");
    for (uint32_t i = 0; i < h.moment_count; i++)
        printf("moment %" PRIu64 " %s\n", h.moments[i].size_bytes,
               format_history_words(&h, h.moments[i].label));
    for (uint32_t i = 0; i < h.process_count; i++)
        printf("process %u %s\n", i, format_history_words(&h, h.commands[i]));
    for (uint32_t i = 0; i < h.named_count; i++)
        printf("thread %u %u %s\n", h.threads[i].process, h.threads[i].thread,
               format_history_thread_name(&h, h.threads[i].process, h.threads[i].thread));
    for (uint32_t i = 0; i < h.notice_count; i++)
        printf("notice %s\n", h.notices[i].words);
    printf("unknown %" PRIu64 " lost %" PRIu64 "\n", h.unknown_frees, h.lost_frees);
    bool agrees = tally_agrees(argv[1], &h);
    format_history_finish(&h);
    return agrees ? 0 : 1;
}
