/* The lives of a history as the rows of a problem. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/outputs.h"

/* Quoted, since names of functions have commas. */
static void put_label(FILE *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text == '\n' || *text == '\r' ? ' ' : *text, out);
    }
    fputc('"', out);
}

static bool put_rows(FILE *out, const format_history *h, uint16_t device)
{
    format_names names;
    if (!format_names_init(&names, h))
        return false;
    fputs("id,lower,upper,size,label\n", out);
    for (uint32_t i = 0; i < h->block_count; i++) {
        const format_block *b = &h->blocks[i];
        if (b->device != device)
            continue;
        fprintf(out, "%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu64 ",", i, b->begin,
                b->end == FORMAT_ALIVE ? h->event_count : b->end, b->size_bytes);
        put_label(out, format_block_name(&names, b));
        fputc('\n', out);
    }
    format_names_finish(&names);
    return true;
}

berth_status format_problem_text(const format_history *h, uint16_t device, char **text, size_t *size_bytes,
                                 format_error *error)
{
    *text = NULL;
    FILE *out = open_memstream(text, size_bytes);
    bool done = out != NULL;
    if (out) {
        done = put_rows(out, h, device) && !ferror(out);
        done = fclose(out) == 0 && done;
    }
    if (done)
        return BERTH_OK;
    free(*text);
    *text = NULL;
    return format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for the lives of %" PRIu32 " blocks",
                       h->block_count);
}
