/* Who holds how much. */
#include "format/tally.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/site.h"

/* ---- Tables ------------------------------------------------------------------------------------------ */

static uint64_t tally_hash(uint64_t a, uint64_t b)
{
    uint64_t h = (a ^ b * UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);
    return h ^ h >> 31;
}

/* The element `count` of an array, zeroed; NULL: no memory. */
static void *tally_place(format_history *h, void *array, uint32_t count, uint32_t *room, size_t bytes)
{
    void **items = array;
    if (count >= *room) {
        uint32_t more = *room ? *room : 64;
        while (more <= count && more <= UINT32_MAX / 4)
            more *= 2;
        void *grown = more <= count ? NULL : realloc(*items, more * bytes);
        if (!grown) {
            h->no_memory = true;
            return NULL;
        }
        memset((char *)grown + *room * bytes, 0, (more - *room) * bytes);
        *items = grown;
        *room = more;
    }
    return (char *)*items + count * bytes;
}

typedef uint64_t (*tally_hash_fn)(const format_tally *t, uint32_t number);

static bool tally_reserve(format_history *h, struct format_tally_table *table, tally_hash_fn hash)
{
    if (table->numbers && table->count < (table->mask + 1) / 2)
        return true;
    uint32_t size = table->numbers ? (table->mask + 1) * 2 : 256;
    uint32_t *grown = calloc(size, sizeof *grown);
    if (!grown) {
        h->no_memory = true;
        return false;
    }
    for (uint32_t i = 0; i < table->count; i++) {
        uint32_t at = (uint32_t)hash(h->tally, i) & (size - 1);
        while (grown[at])
            at = (at + 1) & (size - 1);
        grown[at] = i + 1;
    }
    free(table->numbers);
    table->numbers = grown;
    table->mask = size - 1;
    return true;
}

void format_tally_finish(format_tally *tally)
{
    free(tally->holders);
    free(tally->threads);
    free(tally->devices);
    free(tally->holder_table.numbers);
    free(tally->thread_table.numbers);
    free(tally->place_table.numbers);
    free(tally->places);
    free(tally->sites);
    *tally = (format_tally){0};
}

/* ---- Sites ------------------------------------------------------------------------------------------- */

static uint64_t frame_offset(const format_frame *f)
{
    return f->address - (f->base <= f->address ? f->base : 0);
}

static uint64_t hash_of_place(const struct format_place *p)
{
    return tally_hash(p->offset ^ (uint64_t)p->line << 40, (uint64_t)p->module << 32 | p->file);
}
static uint64_t hash_place(const format_tally *t, uint32_t number)
{
    return hash_of_place(&t->places[number]);
}

/* The frame that stands for the place of one whose function is not known; without memory it is its own. */
static uint32_t place_frame(format_history *h, uint32_t frame)
{
    format_tally *t = h->tally;
    const format_frame *f = &h->frames[frame];
    const struct format_place place = {frame_offset(f), f->module, f->file, f->line, frame};
    if (!tally_reserve(h, &t->place_table, hash_place))
        return frame;
    uint32_t at = (uint32_t)hash_of_place(&place) & t->place_table.mask;
    for (; t->place_table.numbers[at]; at = (at + 1) & t->place_table.mask) {
        const struct format_place *p = &t->places[t->place_table.numbers[at] - 1];
        if (p->offset == place.offset && p->module == place.module && p->file == place.file &&
            p->line == place.line)
            return p->frame;
    }
    struct format_place *p = tally_place(h, &t->places, t->place_count, &t->place_room, sizeof *p);
    if (!p)
        return frame;
    *p = place;
    t->place_table.numbers[at] = ++t->place_count;
    t->place_table.count++;
    return frame;
}

static struct format_site site_find(format_history *h, uint32_t stack)
{
    enum { DEPTH_MOST = 512 };
    format_tally *t = h->tally;
    struct format_site site = {FORMAT_HOLDER_UNKNOWN + 1, 0, stack};
    uint32_t depth = 0;
    for (uint32_t f = stack; f && f < h->frame_count && depth < DEPTH_MOST;
         f = h->frames[f].caller, depth++) {
        if (!h->frames[f].function && t->name_frame)
            t->name_frame(t->context, h, f);
        const format_frame *frame = &h->frames[f];
        bool named = frame->function != 0;
        bool general = format_site_is_general(h, frame);
        if (depth && named && general)
            continue;
        site = (struct format_site){(named ? FORMAT_HOLDER_FUNCTION : FORMAT_HOLDER_ADDRESS) + 1,
                                    named ? frame->function : place_frame(h, f), f};
        if (!general)
            break;
    }
    return site;
}

static struct format_site site_of(format_history *h, const format_block *b)
{
    format_tally *t = h->tally;
    if (b->label)
        return (struct format_site){FORMAT_HOLDER_LABEL + 1, b->label, b->stack};
    if (!b->stack)
        return (struct format_site){FORMAT_HOLDER_UNKNOWN + 1, 0, 0};
    struct format_site *site = tally_place(h, &t->sites, b->stack, &t->site_room, sizeof *t->sites);
    if (!site)
        return (struct format_site){FORMAT_HOLDER_UNKNOWN + 1, 0, 0};
    if (!site->kind)
        *site = site_find(h, b->stack);
    return *site;
}

/* ---- Holders, threads, devices ------------------------------------------------------------------------ */

static uint64_t hash_holder(const format_tally *t, uint32_t number)
{
    const format_holder *o = &t->holders[number];
    return tally_hash((uint64_t)o->kind << 32 | o->name, o->device);
}
static uint64_t hash_thread(const format_tally *t, uint32_t number)
{
    return tally_hash(t->threads[number].thread, t->threads[number].process);
}

/* The holder's number; UINT32_MAX: no memory. */
static uint32_t holder_of(format_history *h, const format_block *b)
{
    format_tally *t = h->tally;
    struct format_site site = site_of(h, b);
    format_holder_kind kind = (format_holder_kind)(site.kind - 1);
    if (!tally_reserve(h, &t->holder_table, hash_holder))
        return UINT32_MAX;
    uint32_t at = (uint32_t)tally_hash((uint64_t)kind << 32 | site.name, b->device) & t->holder_table.mask;
    for (; t->holder_table.numbers[at]; at = (at + 1) & t->holder_table.mask) {
        const format_holder *o = &t->holders[t->holder_table.numbers[at] - 1];
        if (o->kind == kind && o->name == site.name && o->device == b->device)
            return t->holder_table.numbers[at] - 1;
    }
    format_holder *o = tally_place(h, &t->holders, t->holder_count, &t->holder_room, sizeof *o);
    if (!o)
        return UINT32_MAX;
    *o = (format_holder){.kind = kind, .name = site.name, .frame = site.frame, .device = b->device};
    t->holder_table.numbers[at] = ++t->holder_count;
    t->holder_table.count++;
    return t->holder_count - 1;
}

static uint32_t thread_of(format_history *h, const format_block *b)
{
    format_tally *t = h->tally;
    if (!tally_reserve(h, &t->thread_table, hash_thread))
        return UINT32_MAX;
    uint32_t at = (uint32_t)tally_hash(b->thread, b->process) & t->thread_table.mask;
    for (; t->thread_table.numbers[at]; at = (at + 1) & t->thread_table.mask) {
        const format_tally_thread *o = &t->threads[t->thread_table.numbers[at] - 1];
        if (o->thread == b->thread && o->process == b->process)
            return t->thread_table.numbers[at] - 1;
    }
    format_tally_thread *o = tally_place(h, &t->threads, t->thread_count, &t->thread_room, sizeof *o);
    if (!o)
        return UINT32_MAX;
    *o = (format_tally_thread){.thread = b->thread, .process = b->process};
    t->thread_table.numbers[at] = ++t->thread_count;
    t->thread_table.count++;
    return t->thread_count - 1;
}

static format_tally_device *device_at(format_history *h, uint16_t device)
{
    format_tally *t = h->tally;
    format_tally_device *d = tally_place(h, &t->devices, device, &t->device_room, sizeof *d);
    if (d && t->device_count <= device)
        t->device_count = device + 1u;
    return d;
}

/* ---- Counting ---------------------------------------------------------------------------------------- */

static void counts_add(format_counts *c, uint64_t bytes)
{
    c->live_bytes += bytes;
    c->live_blocks++;
    if (c->live_bytes > c->peak_bytes)
        c->peak_bytes = c->live_bytes;
}
static void counts_remove(format_counts *c, uint64_t bytes)
{
    c->live_bytes -= bytes;
    c->live_blocks--;
}

/* Before a holder changes for the first time after its device's last peak. */
static void holder_note(format_holder *o, const format_tally_device *d)
{
    if (o->noted == d->peak_number)
        return;
    o->noted = d->peak_number;
    o->noted_bytes = o->counts.live_bytes;
}

/* Where a block is counted stands in its begin (the holder) and its end (the thread). */
static format_tally_device *tally_find(format_history *h, format_block *b)
{
    format_tally_device *d = device_at(h, b->device);
    b->begin = d ? holder_of(h, b) : UINT32_MAX;
    b->end = b->begin != UINT32_MAX ? thread_of(h, b) : UINT32_MAX;
    return b->end != UINT32_MAX ? d : NULL;
}

bool format_tally_begin(format_history *h, format_block *b)
{
    format_tally *t = h->tally;
    format_tally_device *d = tally_find(h, b);
    if (!d)
        return false;
    format_holder *o = &t->holders[b->begin];
    format_tally_thread *thread = &t->threads[b->end];
    holder_note(o, d);
    uint64_t peak = d->counts.peak_bytes;
    counts_add(&o->counts, b->size_bytes);
    counts_add(&thread->counts, b->size_bytes);
    counts_add(&d->counts, b->size_bytes);
    o->counts.allocs++;
    thread->counts.allocs++;
    d->counts.allocs++;
    if (d->counts.peak_bytes > peak) {
        d->peak_number++;
        d->peak_ns = b->begin_ns;
    }
    return true;
}

bool format_tally_was_there(format_history *h, format_block *b)
{
    format_tally *t = h->tally;
    format_tally_device *d = tally_find(h, b);
    if (!d)
        return false;
    format_counts *all[] = {&t->holders[b->begin].counts, &t->threads[b->end].counts, &d->counts};
    holder_note(&t->holders[b->begin], d);
    t->holders[b->begin].noted_bytes += b->size_bytes;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        all[i]->live_bytes += b->size_bytes;
        all[i]->live_blocks++;
        all[i]->peak_bytes += b->size_bytes;
    }
    return true;
}

void format_tally_end(format_history *h, const format_block *b)
{
    format_tally *t = h->tally;
    format_tally_device *d = &t->devices[b->device];
    holder_note(&t->holders[b->begin], d);
    counts_remove(&t->holders[b->begin].counts, b->size_bytes);
    counts_remove(&t->threads[b->end].counts, b->size_bytes);
    counts_remove(&d->counts, b->size_bytes);
}

bool format_tally_map(format_history *h, uint16_t device, int64_t bytes)
{
    format_tally_device *d = device_at(h, device);
    if (!d)
        return false;
    d->mapped_bytes += (uint64_t)bytes;
    if (bytes > 0 && d->mapped_bytes > d->mapped_peak_bytes)
        d->mapped_peak_bytes = d->mapped_bytes;
    return true;
}

bool format_tally_fail(format_history *h, uint16_t device)
{
    format_tally_device *d = device_at(h, device);
    if (d)
        d->failures++;
    return d != NULL;
}

/* ---- Answers ----------------------------------------------------------------------------------------- */

uint64_t format_holder_at_peak(const format_tally *tally, const format_holder *holder)
{
    return holder->noted == tally->devices[holder->device].peak_number ? holder->noted_bytes
                                                                       : holder->counts.live_bytes;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

const char *format_holder_words(const format_history *h, const format_holder *o, char *text, size_t room)
{
    const format_frame *f = &h->frames[o->frame < h->frame_count ? o->frame : 0];
    const char *file = last_part(format_history_words(h, f->file));
    switch (o->kind) {
    case FORMAT_HOLDER_LABEL:
        snprintf(text, room, "%s", format_history_words(h, o->name));
        break;
    case FORMAT_HOLDER_FUNCTION:
        if (*file)
            snprintf(text, room, "%s (%s:%u)", format_history_words(h, o->name), file, f->line);
        else
            snprintf(text, room, "%s", format_history_words(h, o->name));
        break;
    case FORMAT_HOLDER_ADDRESS:
        snprintf(text, room, "%s%s0x%llx", last_part(format_history_words(h, f->module)),
                 f->module ? "+" : "", (unsigned long long)frame_offset(f));
        break;
    case FORMAT_HOLDER_UNKNOWN:
        snprintf(text, room, "(no label, no stack)");
        break;
    }
    return text;
}

format_counts format_tally_sum(const format_tally *tally)
{
    format_counts sum = {0};
    uint32_t used = 0;
    for (uint32_t i = 0; i < tally->device_count; i++) {
        const format_counts *c = &tally->devices[i].counts;
        used += c->peak_bytes != 0;
        sum.live_bytes += c->live_bytes;
        sum.live_blocks += c->live_blocks;
        sum.allocs += c->allocs;
        if (c->peak_bytes)
            sum.peak_bytes = c->peak_bytes;
    }
    if (used > 1)
        sum.peak_bytes = 0;
    return sum;
}
