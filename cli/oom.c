/* When and why memory ran out. */
#include "cli/oom.h"

#include <stdlib.h>

/* ---- When --------------------------------------------------------------------------------------------- */

static bool is_failure(const format_moment *m, uint16_t device)
{
    return m->size_bytes && m->device == device;
}

static void take_moment(const format_moment *m, oom *out)
{
    out->is_recorded = true;
    out->failure = m;
    out->state = m->before;
    out->label = m->label;
    out->stack = m->stack;
    out->size_bytes = m->size_bytes;
    out->time_ns = m->time_ns;
    out->stream = m->stream;
    out->process = m->process;
}

static void take_block(const format_history *h, uint32_t event, oom *out)
{
    const format_block *b = &h->blocks[h->events[event] / 2];
    const format_tie *tie = h->ties ? &h->ties[h->events[event] / 2] : NULL;
    out->fixed_end_bytes = tie && tie->fixed_offset != UINT64_MAX ? tie->fixed_offset + b->size_bytes : 0;
    out->is_recorded = false;
    out->state = event;
    out->label = b->label;
    out->stack = b->stack;
    out->size_bytes = b->size_bytes;
    out->time_ns = b->begin_ns;
    out->stream = b->stream;
    out->process = b->process;
}

static bool is_over(uint64_t live, uint64_t size, uint64_t limit)
{
    return live > limit || size > limit - live;
}

/* Bytes of the segments that are there in a state. */
static uint64_t reserved_at(const format_history *h, uint16_t device, uint32_t state)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < h->segment_count; i++) {
        const format_segment *s = &h->segments[i];
        if (s->device == device && s->begin <= state && (s->end == FORMAT_ALIVE || s->end > state))
            bytes += s->size_bytes;
    }
    return bytes;
}

struct ending {
    uint32_t at;
    uint64_t bytes;
};

static int compare_ends(const void *a, const void *b)
{
    const struct ending *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Whether a new segment does not fit any more, even if every one that is not used were given back. */
static bool segment_exceeds(const format_history *h, const format_segment *s, uint64_t limit)
{
    holes_question q = {.size_bytes = s->size_bytes,
                        .state = s->begin,
                        .device = s->device,
                        .process = s->process,
                        .time_ns = s->begin_ns ? s->begin_ns - 1 : 0};
    holes found;
    return holes_find(h, &q, &found) && found.has_segments &&
           is_over(found.reserved_bytes - found.unused_bytes, s->size_bytes, limit);
}

/* The first state, before `before`, at which a segment exceeds the limit. */
static uint32_t segments_exceed(const format_history *h, uint16_t device, uint64_t limit, uint32_t before)
{
    enum { LOOKS_MOST = 64 }; /* each walks over all blocks */
    struct ending *ends = malloc(((size_t)h->segment_count + 1) * sizeof *ends);
    uint32_t count = 0, gone = 0, looks = 0, found = UINT32_MAX;
    uint64_t reserved = 0;
    for (uint32_t i = 0; ends && i < h->segment_count; i++)
        if (h->segments[i].device == device && h->segments[i].end != FORMAT_ALIVE)
            ends[count++] = (struct ending){h->segments[i].end, h->segments[i].size_bytes};
    if (count)
        qsort(ends, count, sizeof *ends, compare_ends);
    for (uint32_t i = 0; ends && i < h->segment_count && found == UINT32_MAX; i++) {
        const format_segment *s = &h->segments[i];
        if (s->device != device || s->begin >= before)
            continue;
        while (gone < count && ends[gone].at <= s->begin)
            reserved -= ends[gone++].bytes;
        if (is_over(reserved, s->size_bytes, limit) && looks++ < LOOKS_MOST && segment_exceeds(h, s, limit))
            found = s->begin;
        reserved += s->size_bytes;
    }
    free(ends);
    return found;
}

/* The first event whose block does not fit beside what is alive, or lies above the limit in a given plan or where it must. */
static uint32_t blocks_exceed(const format_history *h, uint16_t device, uint64_t limit)
{
    uint64_t live = 0;
    bool is_plan = h->has_addresses && !h->has_times;
    for (uint32_t e = 0; e < h->event_count; e++) {
        const format_block *b = &h->blocks[h->events[e] / 2];
        if (b->device != device)
            continue;
        if (h->events[e] % 2) {
            live -= b->size_bytes;
            continue;
        }
        const uint64_t fixed = h->ties ? h->ties[h->events[e] / 2].fixed_offset : UINT64_MAX;
        if (is_over(live, b->size_bytes, limit) || (is_plan && is_over(b->address, b->size_bytes, limit)) ||
            (fixed != UINT64_MAX && is_over(fixed, b->size_bytes, limit)))
            return e;
        live += b->size_bytes;
    }
    return UINT32_MAX;
}

bool oom_find(const format_history *h, uint16_t device, uint64_t limit, uint32_t number, oom *out)
{
    const format_moment *failure = NULL;
    *out = (oom){0};
    for (uint32_t i = 0; i < h->moment_count; i++)
        if (is_failure(&h->moments[i], device) && ++out->failures == number)
            failure = &h->moments[i];
    uint32_t event = limit ? blocks_exceed(h, device, limit) : UINT32_MAX;
    if (limit && h->segment_count) {
        uint32_t earlier = segments_exceed(h, device, limit, event);
        /* The block that the segment was for. */
        for (uint32_t e = earlier; e < h->event_count && e < event; e++)
            if (h->events[e] % 2 == 0 && h->blocks[h->events[e] / 2].device == device)
                event = e;
    }
    if (failure && failure->before <= event)
        take_moment(failure, out);
    else if (event != UINT32_MAX)
        take_block(h, event, out);
    else
        return false;
    out->limit_bytes = limit;
    out->limit_from = limit ? "as asked" : "not recorded";
    if (!limit && failure && failure->knows_free) {
        out->limit_bytes = reserved_at(h, device, failure->before) + failure->free_bytes;
        out->limit_from = "what was taken, and what the device still had";
    } else if (!limit && h->devices[device].capacity_bytes) {
        out->limit_bytes = h->devices[device].capacity_bytes;
        out->limit_from = "recorded";
    }
    return true;
}

/* ---- Why ---------------------------------------------------------------------------------------------- */

/* The same order of questions as berth_explain in a running program. */
static oom_cause find_cause(const oom *o)
{
    const holes *f = &o->holes;
    const uint64_t used = o->live_bytes + (o->waits_beside ? o->waiting_bytes : 0);
    if (o->limit_bytes && is_over(used, o->size_bytes, o->limit_bytes))
        return o->waiting_bytes && !is_over(used - o->waiting_bytes, o->size_bytes, o->limit_bytes)
                   ? OOM_HELD_BY_STREAMS
                   : OOM_TOO_MUCH_LIVE;
    if (o->limit_bytes && o->fixed_end_bytes > o->limit_bytes)
        return OOM_FRAGMENTED;
    if (!f->is_known)
        return o->limit_bytes || !o->live_bytes ? OOM_NOT_KNOWN : OOM_TOO_MUCH_LIVE;
    if (f->largest_bytes >= o->size_bytes)
        return OOM_NOT_KNOWN;
    if (o->waiting_bytes + f->free_bytes >= o->size_bytes && o->waiting_bytes > f->free_bytes)
        return OOM_HELD_BY_STREAMS;
    if (f->largest_elsewhere_bytes >= o->size_bytes)
        return OOM_HELD_BY_STREAMS;
    if ((f->has_segments || o->waits_beside) && f->unused_bytes >= o->size_bytes)
        return OOM_HELD_BY_CACHE;
    return f->free_bytes >= o->size_bytes || o->limit_bytes ? OOM_FRAGMENTED : OOM_TOO_MUCH_LIVE;
}

/* What the allocator said of itself is nearer the truth than what addresses tell. */
static void take_picture(const format_moment *m, oom *o)
{
    const uint64_t most = UINT64_C(1) << 62; /* more is no memory, but a file that was made up */
    if (!m || !m->knows_holes || m->waiting_bytes > most || m->hole_bytes > most)
        return;
    o->waits_beside = true;
    o->waiting_bytes = m->waiting_bytes;
    o->holes.is_known = true;
    o->holes.free_bytes = m->hole_bytes;
    o->holes.largest_bytes = m->largest_hole_bytes;
    o->holes.unused_bytes = m->unused_bytes;
    o->holes.largest_elsewhere_bytes = 0;
}

bool oom_explain(const format_history *h, uint16_t device, oom *o)
{
    for (uint32_t i = 0; i < h->block_count && h->blocks[i].begin < o->state; i++)
        if (h->blocks[i].device == device && h->blocks[i].end >= o->state) {
            o->live_bytes += h->blocks[i].size_bytes;
            o->live_blocks++;
        }
    o->waiting_bytes = holes_waiting(h, device, o->state);
    holes_question q = {.size_bytes = o->size_bytes,
                        .time_ns = o->time_ns,
                        .stream = o->stream,
                        .capacity_bytes = o->limit_bytes,
                        .state = o->state,
                        .device = device,
                        .process = o->process};
    if (!o->is_recorded && q.time_ns) /* the segment that came for it is not there yet */
        q.time_ns--;
    if (!holes_find(h, &q, &o->holes))
        return false;
    take_picture(o->failure, o);
    o->cause = find_cause(o);
    return true;
}

void oom_find_growing(const lives *l, oom *o)
{
    for (uint32_t g = 0; g < l->group_count; g++) {
        const uint64_t bytes = lives_group_bytes(l, g, o->state);
        if (!bytes || bytes < o->live_bytes / 20 || !lives_grows(l, g, o->state))
            continue;
        uint32_t at = o->growing_count < OOM_GROWING ? o->growing_count++ : OOM_GROWING;
        for (; at > 0 && o->growing[at - 1].bytes < bytes; at--)
            if (at < OOM_GROWING)
                o->growing[at] = o->growing[at - 1];
        if (at < OOM_GROWING) {
            o->growing[at].group = g;
            o->growing[at].bytes = bytes;
        }
    }
}

const char *oom_cause_word(oom_cause cause)
{
    static const char *const words[] = {"too much is alive", "fragmented", "held by a cache",
                                        "held by streams", "not known"};
    return words[cause];
}
