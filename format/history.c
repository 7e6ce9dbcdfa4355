/* Building the history of a program's memory. */
#include "format/history.h"

#include "format/open.h"
#include "format/tally.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Tables ------------------------------------------------------------------------------------------ */

/* Numbers found by a hash; what equality means is the caller's. Open addressing; 0 is an empty place. */
struct table {
    uint32_t *numbers; /* + 1 */
    uint32_t mask, count;
};

struct format_index {
    struct table texts, frames, live;
    uint32_t vacant; /* with a tally: a block's place that is free, index + 1; its `stack` is the next */
    struct format_open open;
    uint32_t vacant_segment; /* with a tally: as above; its `stack` is the next */
};

static uint64_t mix(uint64_t h, uint64_t n)
{
    h = (h ^ n) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static uint64_t hash_bytes(const char *bytes, size_t length)
{
    uint64_t h = length;
    for (size_t i = 0; i < length; i++)
        h = (h ^ (unsigned char)bytes[i]) * UINT64_C(0x100000001b3);
    return mix(h, length);
}

static uint64_t hash_frame(const format_frame *f)
{
    uint64_t h = mix(f->address, f->caller);
    h = mix(h, (uint64_t)f->function << 32 | f->line);
    return mix(h, (uint64_t)f->file << 32 | f->module);
}

static uint64_t hash_place(uint16_t process, uint16_t device, uint64_t address)
{
    return mix(mix(0, address), (uint64_t)process << 16 | device);
}

static uint64_t hash_block(const format_block *b)
{
    return hash_place(b->process, b->device, b->address);
}

static uint64_t hash_text_number(const format_history *h, uint32_t number)
{
    return hash_bytes(h->texts[number], strlen(h->texts[number]));
}
static uint64_t hash_frame_number(const format_history *h, uint32_t number)
{
    return hash_frame(&h->frames[number]);
}
static uint64_t hash_live_number(const format_history *h, uint32_t number)
{
    return hash_block(&h->blocks[number]);
}

/* Makes room for one more; `hash` tells an entry's. */
static bool table_reserve(const format_history *h, struct table *t,
                          uint64_t (*hash)(const format_history *h, uint32_t number))
{
    if (t->numbers && t->count < (t->mask + 1) / 2)
        return true;
    uint32_t size = t->numbers ? (t->mask + 1) * 2 : 1024;
    uint32_t *grown = calloc(size, sizeof *grown);
    if (!grown)
        return false;
    for (uint32_t i = 0; t->numbers && i <= t->mask; i++) {
        if (!t->numbers[i])
            continue;
        uint32_t at = (uint32_t)hash(h, t->numbers[i] - 1) & (size - 1);
        while (grown[at])
            at = (at + 1) & (size - 1);
        grown[at] = t->numbers[i];
    }
    free(t->numbers);
    t->numbers = grown;
    t->mask = size - 1;
    return true;
}

static void table_add(struct table *t, uint64_t hash, uint32_t number)
{
    uint32_t at = (uint32_t)hash & t->mask;
    while (t->numbers[at])
        at = (at + 1) & t->mask;
    t->numbers[at] = number + 1;
    t->count++;
}

/* Takes the entry at `at` out: those behind it that would not be found any more move up. */
static void table_remove(const format_history *h, struct table *t, uint32_t at)
{
    uint32_t hole = at;
    for (uint32_t i = (at + 1) & t->mask; t->numbers[i]; i = (i + 1) & t->mask) {
        uint32_t home = (uint32_t)hash_live_number(h, t->numbers[i] - 1) & t->mask;
        if (((i - home) & t->mask) >= ((i - hole) & t->mask)) {
            t->numbers[hole] = t->numbers[i];
            hole = i;
        }
    }
    t->numbers[hole] = 0;
    t->count--;
}

/* One more element; NULL: no memory, which is remembered. */
static void *grow(format_history *h, void *array, uint32_t *count, uint32_t *room, size_t element_bytes)
{
    void **items = array;
    if (*count == *room) {
        uint32_t more = *room ? *room * 2 : 256;
        void *grown = *room > UINT32_MAX / 4 ? NULL : realloc(*items, more * element_bytes);
        if (!grown) {
            h->no_memory = true;
            return NULL;
        }
        *items = grown;
        *room = more;
    }
    return memset((char *)*items + (*count)++ * element_bytes, 0, element_bytes);
}

/* ---- Life -------------------------------------------------------------------------------------------- */

bool format_history_init(format_history *h, const char *format)
{
    h->tally = NULL;
    return format_history_begin(h, format);
}

bool format_history_begin(format_history *h, const char *format)
{
    *h = (format_history){.format = format,
                          .has_addresses = true,
                          .has_times = true,
                          .first_ns = UINT64_MAX,
                          .tally = h->tally};
    h->index = calloc(1, sizeof *h->index);
    char **text = grow(h, &h->texts, &h->text_count, &h->text_room, sizeof *h->texts);
    if (text)
        *text = calloc(1, 1);
    if (!h->index || !text || !*text ||
        !grow(h, &h->frames, &h->frame_count, &h->frame_room, sizeof *h->frames) ||
        !grow(h, &h->devices, &h->device_count, &h->device_room, sizeof *h->devices))
        h->no_memory = true;
    return !h->no_memory;
}

void format_history_close(format_history *h)
{
    for (uint32_t i = 0; !h->tally && i < h->block_count; i++)
        if (h->blocks[i].end == FORMAT_ALIVE)
            h->blocks[i].end_ns = h->last_ns;
    for (uint32_t i = 0; i < h->segment_count; i++)
        if (h->segments[i].end == FORMAT_ALIVE)
            h->segments[i].end_ns = h->last_ns;
    if (h->first_ns > h->last_ns)
        h->first_ns = h->last_ns;
    if (h->index) {
        free(h->index->texts.numbers);
        free(h->index->frames.numbers);
        free(h->index->live.numbers);
    }
    if (h->index)
        format_open_finish(&h->index->open);
    free(h->index);
    h->index = NULL;
}

void format_history_finish(format_history *h)
{
    format_history_close(h);
    for (uint32_t i = 0; i < h->text_count; i++)
        free(h->texts[i]);
    free(h->texts);
    free(h->blocks);
    free(h->ties);
    free(h->events);
    free(h->segments);
    free(h->moments);
    free(h->waits);
    free(h->frames);
    free(h->devices);
    free(h->commands);
    free(h->threads);
    free(h->notices);
    *h = (format_history){0};
}

/* ---- Definitions ------------------------------------------------------------------------------------- */

uint32_t format_history_text(format_history *h, const char *text, size_t length)
{
    struct table *t = &h->index->texts;
    if (!length)
        return 0;
    if (!table_reserve(h, t, hash_text_number)) {
        h->no_memory = true;
        return 0;
    }
    uint64_t hash = hash_bytes(text, length);
    for (uint32_t at = (uint32_t)hash & t->mask; t->numbers[at]; at = (at + 1) & t->mask) {
        const char *there = h->texts[t->numbers[at] - 1];
        if (strncmp(there, text, length) == 0 && there[length] == 0)
            return t->numbers[at] - 1;
    }
    char *copy = malloc(length + 1);
    char **place = copy ? grow(h, &h->texts, &h->text_count, &h->text_room, sizeof *h->texts) : NULL;
    if (!place) {
        free(copy);
        h->no_memory = true;
        return 0;
    }
    memcpy(copy, text, length);
    copy[length] = 0;
    if (strlen(copy) != length) /* zeros inside: the text ends there */
        hash = hash_bytes(copy, strlen(copy));
    *place = copy;
    table_add(t, hash, h->text_count - 1);
    return h->text_count - 1;
}

static bool same_frame(const format_frame *a, const format_frame *b)
{
    return a->caller == b->caller && a->function == b->function && a->file == b->file &&
           a->module == b->module && a->line == b->line && a->address == b->address;
}

uint32_t format_history_frame(format_history *h, const format_frame *frame)
{
    struct table *t = &h->index->frames;
    if (!table_reserve(h, t, hash_frame_number)) {
        h->no_memory = true;
        return 0;
    }
    uint64_t hash = hash_frame(frame);
    for (uint32_t at = (uint32_t)hash & t->mask; t->numbers[at]; at = (at + 1) & t->mask)
        if (same_frame(&h->frames[t->numbers[at] - 1], frame))
            return t->numbers[at] - 1;
    format_frame *place = grow(h, &h->frames, &h->frame_count, &h->frame_room, sizeof *h->frames);
    if (!place)
        return 0;
    *place = *frame;
    table_add(t, hash, h->frame_count - 1);
    return h->frame_count - 1;
}

uint16_t format_history_device(format_history *h, const char *name)
{
    if (!*name)
        return 0;
    for (uint32_t i = 1; i < h->device_count; i++)
        if (strcmp(format_history_words(h, h->devices[i].name), name) == 0)
            return (uint16_t)i;
    if (h->device_count == FORMAT_ANY_DEVICE)
        return 0;
    uint32_t text = format_history_text(h, name, strlen(name));
    format_device *d =
        text ? grow(h, &h->devices, &h->device_count, &h->device_room, sizeof *h->devices) : NULL;
    if (!d)
        return 0;
    d->name = text;
    return (uint16_t)(h->device_count - 1);
}

void format_history_process(format_history *h, uint16_t process, uint32_t command)
{
    while (h->process_count <= process)
        if (!grow(h, &h->commands, &h->process_count, &h->process_room, sizeof *h->commands))
            return;
    h->commands[process] = command;
}

void format_history_thread(format_history *h, uint16_t process, uint32_t thread, uint32_t name)
{
    format_thread *t = grow(h, &h->threads, &h->named_count, &h->named_room, sizeof *h->threads);
    if (t)
        *t = (format_thread){process, thread, name};
}

static int compare_threads(const void *a, const void *b)
{
    const format_thread *x = a, *y = b;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    return x->thread < y->thread ? -1 : x->thread > y->thread;
}

void format_history_threads_sort(format_history *h)
{
    if (h->named_count)
        qsort(h->threads, h->named_count, sizeof *h->threads, compare_threads);
}

const char *format_history_thread_name(const format_history *h, uint16_t process, uint32_t thread)
{
    const format_thread key = {process, thread, 0};
    const format_thread *t =
        h->named_count ? bsearch(&key, h->threads, h->named_count, sizeof key, compare_threads) : NULL;
    return t ? format_history_words(h, t->name) : "";
}

void format_history_notice(format_history *h, const char *words, ...)
{
    format_notice *n = grow(h, &h->notices, &h->notice_count, &h->notice_room, sizeof *h->notices);
    if (!n)
        return;
    va_list arguments;
    va_start(arguments, words);
    vsnprintf(n->words, sizeof n->words, words, arguments);
    va_end(arguments);
}

/* ---- Events ------------------------------------------------------------------------------------------ */

static void pass_time(format_history *h, uint64_t time_ns)
{
    if (time_ns < h->first_ns)
        h->first_ns = time_ns;
    if (time_ns > h->last_ns)
        h->last_ns = time_ns;
}

/* Where the block at a place stands in the table of live ones; UINT32_MAX: nowhere. */
static uint32_t find_live(const format_history *h, uint16_t process, uint16_t device, uint64_t address)
{
    const struct table *t = &h->index->live;
    if (!t->numbers)
        return UINT32_MAX;
    for (uint32_t at = (uint32_t)hash_place(process, device, address) & t->mask; t->numbers[at];
         at = (at + 1) & t->mask) {
        const format_block *b = &h->blocks[t->numbers[at] - 1];
        if (b->address == address && b->process == process && b->device == device)
            return at;
    }
    return UINT32_MAX;
}

format_block *format_history_find(format_history *h, uint16_t process, uint16_t device, uint64_t address)
{
    uint32_t at = find_live(h, process, device, address);
    return at == UINT32_MAX ? NULL : &h->blocks[h->index->live.numbers[at] - 1];
}

bool format_history_free(format_history *h, uint16_t process, uint16_t device, uint64_t address,
                         uint64_t time_ns)
{
    uint32_t at = find_live(h, process, device, address);
    if (at == UINT32_MAX) {
        h->unknown_frees++;
        return false;
    }
    uint32_t number = h->index->live.numbers[at] - 1;
    if (h->tally) {
        pass_time(h, time_ns);
        format_tally_end(h, &h->blocks[number]);
        table_remove(h, &h->index->live, at);
        h->blocks[number].stack = h->index->vacant;
        h->index->vacant = number + 1;
        return true;
    }
    uint32_t *event = grow(h, &h->events, &h->event_count, &h->event_room, sizeof *h->events);
    if (!event)
        return true;
    pass_time(h, time_ns);
    *event = number * 2 + 1;
    h->blocks[number].end = h->event_count - 1;
    h->blocks[number].end_ns = time_ns;
    table_remove(h, &h->index->live, at);
    return true;
}

bool format_history_free_by(format_history *h, uint16_t process, uint16_t device, uint64_t address,
                            uint64_t time_ns, uint32_t thread)
{
    format_block *b = format_history_find(h, process, device, address);
    if (b)
        b->end_thread = thread;
    return format_history_free(h, process, device, address, time_ns);
}

/* With a tally: keeps a block that has been counted. */
static void keep_live(format_history *h, const format_block *block)
{
    uint32_t number = h->index->vacant;
    format_block *b = number ? &h->blocks[number - 1]
                             : grow(h, &h->blocks, &h->block_count, &h->block_room, sizeof *h->blocks);
    if (!b) {
        format_tally_end(h, block);
        return;
    }
    if (number)
        h->index->vacant = b->stack;
    *b = *block;
    table_add(&h->index->live, hash_block(b), (uint32_t)(b - h->blocks));
}

void format_history_was_there(format_history *h, const format_block *block, bool ended)
{
    format_block b = *block;
    pass_time(h, b.begin_ns);
    if (!table_reserve(h, &h->index->live, hash_live_number)) {
        h->no_memory = true;
        return;
    }
    if (!format_tally_was_there(h, &b))
        return;
    if (ended)
        format_tally_end(h, &b);
    else
        keep_live(h, &b);
}

void format_history_alloc(format_history *h, const format_block *block)
{
    if (find_live(h, block->process, block->device, block->address) != UINT32_MAX) {
        h->lost_frees++;
        format_history_free(h, block->process, block->device, block->address, block->begin_ns);
    }
    if (h->block_count >= INT32_MAX || !table_reserve(h, &h->index->live, hash_live_number)) {
        h->no_memory = true;
        return;
    }
    if (h->tally) {
        format_block counted = *block;
        pass_time(h, block->begin_ns);
        if (format_tally_begin(h, &counted))
            keep_live(h, &counted);
        return;
    }
    uint32_t *event = grow(h, &h->events, &h->event_count, &h->event_room, sizeof *h->events);
    format_block *b = event ? grow(h, &h->blocks, &h->block_count, &h->block_room, sizeof *h->blocks) : NULL;
    if (!b) {
        h->event_count -= event != NULL;
        return;
    }
    pass_time(h, block->begin_ns);
    *b = *block;
    b->begin = h->event_count - 1;
    b->end = FORMAT_ALIVE;
    b->end_thread = b->thread;
    *event = (h->block_count - 1) * 2;
    table_add(&h->index->live, hash_block(b), h->block_count - 1);
}

void format_history_moment(format_history *h, const format_moment *moment)
{
    if (h->tally) {
        pass_time(h, moment->time_ns);
        if (moment->size_bytes)
            (void)format_tally_fail(h, moment->device);
        return;
    }
    format_moment *m = grow(h, &h->moments, &h->moment_count, &h->moment_room, sizeof *h->moments);
    if (!m)
        return;
    pass_time(h, moment->time_ns);
    *m = *moment;
    m->before = h->event_count;
}

void format_history_wait(format_history *h, uint16_t process, uint16_t device, uint64_t address)
{
    uint32_t at = h->tally ? UINT32_MAX : find_live(h, process, device, address);
    format_wait *w =
        at == UINT32_MAX ? NULL : grow(h, &h->waits, &h->wait_count, &h->wait_room, sizeof *h->waits);
    if (w)
        *w = (format_wait){h->index->live.numbers[at] - 1, h->event_count};
}

/* ---- Segments ---------------------------------------------------------------------------------------- */

/* A place for one more: with a tally one that has ended, if there is one. */
static format_segment *segment_place(format_history *h)
{
    uint32_t vacant = h->index->vacant_segment;
    if (!vacant)
        return grow(h, &h->segments, &h->segment_count, &h->segment_room, sizeof *h->segments);
    h->index->vacant_segment = h->segments[vacant - 1].stack;
    return &h->segments[vacant - 1];
}

void format_history_map(format_history *h, const format_segment *segment)
{
    format_segment *s = segment_place(h);
    if (!s)
        return;
    *s = *segment;
    s->begin = s->end = h->event_count;
    if (!format_open_add(&h->index->open, s->process, s->device, s->address, s->size_bytes,
                         (uint32_t)(s - h->segments))) {
        h->no_memory = true;
        return;
    }
    pass_time(h, segment->begin_ns);
    if (h->tally)
        (void)format_tally_map(h, segment->device, (int64_t)segment->size_bytes);
    s->end = FORMAT_ALIVE;
}

bool format_history_has_segment(const format_history *h, uint16_t process, uint16_t device, uint64_t address)
{
    return format_open_begins(&h->index->open, process, device, address);
}

/* Ends a segment and lets the parts of it outside [address, end) go on. */
static void cut_segment(format_history *h, uint32_t i, uint64_t address, uint64_t end, uint64_t time_ns)
{
    format_segment was = h->segments[i], part = was;
    h->segments[i].end = h->event_count;
    h->segments[i].end_ns = time_ns;
    if (h->tally) {
        (void)format_tally_map(h, was.device, -(int64_t)was.size_bytes);
        h->segments[i].stack = h->index->vacant_segment;
        h->index->vacant_segment = i + 1;
    }
    part.begin_ns = time_ns;
    if (was.address < address) {
        part.size_bytes = address - was.address;
        format_history_map(h, &part);
    }
    if (was.address + was.size_bytes > end) {
        part.address = end;
        part.size_bytes = was.address + was.size_bytes - end;
        format_history_map(h, &part);
    }
}

void format_history_unmap(format_history *h, uint16_t process, uint16_t device, uint64_t address,
                          uint64_t size_bytes, uint64_t time_ns)
{
    uint64_t end = address + size_bytes;
    uint32_t i;
    pass_time(h, time_ns);
    while ((i = format_open_take(&h->index->open, process, device, address, end)) != UINT32_MAX)
        cut_segment(h, i, address, end, time_ns);
}

/* ---- Figures ----------------------------------------------------------------------------------------- */

format_peak format_history_peak(const format_history *h, uint16_t device)
{
    format_peak peak = {.event = FORMAT_ALIVE};
    uint64_t live = 0;
    uint32_t blocks = 0;
    for (uint32_t i = 0; i < h->event_count; i++) {
        const format_block *b = &h->blocks[h->events[i] / 2];
        if (device != FORMAT_ANY_DEVICE && b->device != device)
            continue;
        if (h->events[i] & 1) {
            live -= b->size_bytes;
            blocks--;
            continue;
        }
        live += b->size_bytes;
        blocks++;
        if (live > peak.bytes || peak.event == FORMAT_ALIVE)
            peak = (format_peak){live, i, b->begin_ns, blocks};
    }
    return peak;
}
