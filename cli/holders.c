/* Who holds memory. */
#include "cli/holders.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/site.h"
#include "format/text.h"

/* ---- Call sites --------------------------------------------------------------------------------------- */

const char *holders_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

uint32_t holders_site(const format_history *h, uint32_t stack)
{
    enum { DEEPEST = 4096 }; /* a damaged file may have circles */
    uint32_t site = stack < h->frame_count ? stack : 0;
    for (int depth = 0; site && depth < DEEPEST && format_site_is_general(h, &h->frames[site]); depth++) {
        uint32_t caller = h->frames[site].caller;
        if (!caller || caller >= h->frame_count)
            break;
        site = caller;
    }
    return site;
}

/* ---- Names -------------------------------------------------------------------------------------------- */

/* Names are other people's: no control characters to the terminal, and no half of a character. */
static const char *cut_to_room(char text[HOLDERS_NAME_ROOM], int length)
{
    return format_text_fit(text, HOLDERS_NAME_ROOM, length < 0 ? 0 : (size_t)length);
}

const char *holders_frame_name(const format_history *h, uint32_t frame, char text[HOLDERS_NAME_ROOM])
{
    if (!frame || frame >= h->frame_count)
        return cut_to_room(text, snprintf(text, HOLDERS_NAME_ROOM, "no call stack"));
    const format_frame *f = &h->frames[frame];
    const char *function = format_history_words(h, f->function);
    const char *file = holders_file_name(format_history_words(h, f->file));
    const char *module = holders_file_name(format_history_words(h, f->module));
    const uint64_t offset = f->address - (f->base <= f->address ? f->base : 0);
    int n;
    if (*function && *file && f->line)
        n = snprintf(text, HOLDERS_NAME_ROOM, "%.140s (%.40s:%u)", function, file, f->line);
    else if (*function && (*file || *module))
        n = snprintf(text, HOLDERS_NAME_ROOM, "%.140s (%.40s)", function, *file ? file : module);
    else if (*function || (*file && f->line))
        n = snprintf(text, HOLDERS_NAME_ROOM, *function ? "%.190s" : "%.150s:%u", *function ? function : file,
                     f->line);
    else
        n = snprintf(text, HOLDERS_NAME_ROOM, "%.100s+0x%" PRIx64, *module ? module : "", offset);
    return cut_to_room(text, n);
}

const char *holders_label_name(const format_history *h, uint32_t label, char text[HOLDERS_NAME_ROOM])
{
    const char *words = label ? format_history_words(h, label) : "no label";
    return cut_to_room(text, snprintf(text, HOLDERS_NAME_ROOM, "%s", words));
}

const char *holders_name(const format_history *h, const holders *by, const holder *one,
                         char text[HOLDERS_NAME_ROOM])
{
    if (by->by == HOLDERS_BY_SITE)
        return holders_frame_name(h, one->frame, text);
    return holders_label_name(h, one->label, text);
}

/* ---- Grouping ----------------------------------------------------------------------------------------- */

/* Frames that are one place in the program: the same line of the same function, wherever its code was put. */
typedef struct place {
    uint64_t high, low;
    uint32_t frame;
} place;

static place place_of(const format_history *h, uint32_t frame)
{
    const format_frame *f = &h->frames[frame];
    if (f->function || f->line)
        return (place){(uint64_t)1 << 63 | (uint64_t)f->function << 32 | f->line, f->file, frame};
    return (place){f->module, f->address - (f->base <= f->address ? f->base : 0), frame};
}

static int place_compare(const void *a, const void *b)
{
    const place *x = a, *y = b;
    if (x->high != y->high)
        return x->high < y->high ? -1 : 1;
    return x->low < y->low ? -1 : x->low > y->low;
}

/* of[stack] becomes the frame that stands for the stack's site, the same for all stacks of one place. */
static bool sites_find(const format_history *h, uint32_t *of)
{
    place *places = calloc((size_t)h->frame_count + 1, sizeof *places);
    uint32_t *same = calloc((size_t)h->frame_count + 1, sizeof *same);
    uint32_t count = 0;
    bool done = places && same;
    for (uint32_t i = 0; done && i < h->frame_count; i++) {
        of[i] = of[i] == UINT32_MAX ? UINT32_MAX : holders_site(h, i);
        if (of[i] && of[i] != UINT32_MAX && !same[of[i]]) {
            same[of[i]] = of[i];
            places[count++] = place_of(h, of[i]);
        }
    }
    if (done && count)
        qsort(places, count, sizeof *places, place_compare);
    for (uint32_t i = 1; i < count; i++)
        if (place_compare(&places[i - 1], &places[i]) == 0)
            same[places[i].frame] = same[places[i - 1].frame];
    for (uint32_t i = 0; done && i < h->frame_count; i++)
        if (of[i] != UINT32_MAX)
            of[i] = same[of[i]];
    free(places);
    free(same);
    return done;
}

static uint32_t key_of(const format_block *b, holders_by by)
{
    return by == HOLDERS_BY_LABEL ? b->label : b->stack;
}

/* Numbers the groups that of[] names by one of their members. False: no memory. */
static bool groups_number(holders *out, uint32_t keys)
{
    uint32_t *number = malloc((size_t)keys * sizeof *number);
    out->items = calloc((size_t)keys + 1, sizeof *out->items);
    if (!number || !out->items) {
        free(number);
        return false;
    }
    memset(number, 0xff, (size_t)keys * sizeof *number);
    for (uint32_t i = 0; i < keys; i++) {
        if (out->of[i] == UINT32_MAX)
            continue;
        uint32_t first = out->of[i];
        if (number[first] == UINT32_MAX) {
            holder *g = &out->items[out->count];
            *(out->by == HOLDERS_BY_LABEL ? &g->label : &g->frame) = first;
            number[first] = out->count++;
        }
        out->of[i] = number[first];
    }
    free(number);
    return true;
}

static void groups_fill(holders *out, const format_history *h, uint16_t device, uint32_t event)
{
    for (uint32_t i = 0; i < h->block_count; i++) {
        const format_block *b = &h->blocks[i];
        if (device != FORMAT_ANY_DEVICE && b->device != device)
            continue;
        holder *g = &out->items[out->of[key_of(b, out->by)]];
        g->total_bytes += b->size_bytes;
        g->allocations++;
        if (format_block_is_alive(b, event)) {
            g->live_bytes += b->size_bytes;
            g->live_blocks++;
        }
    }
}

/* A holder on its way to its place. */
typedef struct ranked {
    holder one;
    uint32_t was;
} ranked;

static int ranked_compare(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->one.live_bytes != y->one.live_bytes)
        return x->one.live_bytes < y->one.live_bytes ? 1 : -1;
    if (x->one.total_bytes != y->one.total_bytes)
        return x->one.total_bytes < y->one.total_bytes ? 1 : -1;
    return x->was < y->was ? -1 : 1;
}

/* Puts the holders in order, and of[] after them. */
static bool groups_sort(holders *out, uint32_t keys)
{
    ranked *order = calloc((size_t)out->count + 1, sizeof *order);
    uint32_t *now = calloc((size_t)out->count + 1, sizeof *now);
    bool done = order && now;
    for (uint32_t i = 0; done && i < out->count; i++)
        order[i] = (ranked){out->items[i], i};
    if (done && out->count)
        qsort(order, out->count, sizeof *order, ranked_compare);
    for (uint32_t i = 0; done && i < out->count; i++) {
        out->items[i] = order[i].one;
        now[order[i].was] = i;
    }
    for (uint32_t i = 0; done && i < keys; i++)
        if (out->of[i] != UINT32_MAX)
            out->of[i] = now[out->of[i]];
    free(order);
    free(now);
    return done;
}

bool holders_init(holders *out, const format_history *h, uint16_t device, uint32_t event, holders_by by)
{
    const uint32_t keys = by == HOLDERS_BY_LABEL ? h->text_count : h->frame_count;
    *out = (holders){.by = by, .of = malloc(((size_t)keys + 1) * sizeof *out->of)};
    if (!out->of)
        return false;
    memset(out->of, 0xff, ((size_t)keys + 1) * sizeof *out->of);
    for (uint32_t i = 0; i < h->block_count; i++)
        if (device == FORMAT_ANY_DEVICE || h->blocks[i].device == device)
            out->of[key_of(&h->blocks[i], by)] = key_of(&h->blocks[i], by);
    bool done = (by == HOLDERS_BY_LABEL || sites_find(h, out->of)) && groups_number(out, keys);
    if (done)
        groups_fill(out, h, device, event == FORMAT_ALIVE ? HOLDERS_AT_END : event);
    done = done && groups_sort(out, keys);
    if (!done)
        holders_finish(out);
    return done;
}

void holders_finish(holders *by)
{
    if (!by)
        return;
    free(by->items);
    free(by->of);
    by->items = NULL;
    by->of = NULL;
    by->count = 0;
}
