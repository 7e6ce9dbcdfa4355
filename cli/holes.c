/* Holes between blocks at a moment. */
#include "cli/holes.h"

#include <stdlib.h>
#include <string.h>

/* Places that the same allocator cut are nearer to each other than this. */
enum { NEAR_BYTES = 65536, PYTORCH_UNIT = 512 };

struct range {
    uint64_t address, end;
    uint64_t stream;
    bool stands_alone;
};

/* A live block, with the bytes of all before it. */
struct standing {
    uint64_t address, end, bytes_before;
    uint32_t block;
};

struct site_map {
    struct range *ranges;
    uint32_t range_count;
    struct standing *blocks;
    uint32_t block_count;
};

static int compare_ranges(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return x->address < y->address ? -1 : x->address > y->address;
}

static int compare_standing(const void *a, const void *b)
{
    const struct standing *x = a, *y = b;
    return x->address < y->address ? -1 : x->address > y->address;
}

static uint64_t end_at(uint64_t address, uint64_t size)
{
    return size > UINT64_MAX - address ? UINT64_MAX : address + size;
}

/* ---- What there is ------------------------------------------------------------------------------------ */

static bool segment_is_there(const format_history *h, const format_segment *s, const holes_question *q)
{
    if (s->device != q->device || s->process != q->process || s->begin > q->state)
        return false;
    if (s->begin == q->state && h->has_times && s->begin_ns > q->time_ns)
        return false;
    return s->end == FORMAT_ALIVE || s->end > q->state;
}

static void ranges_of_segments(const format_history *h, const holes_question *q, struct site_map *m)
{
    for (uint32_t i = 0; i < h->segment_count; i++) {
        const format_segment *s = &h->segments[i];
        if (segment_is_there(h, s, q))
            m->ranges[m->range_count++] =
                (struct range){s->address, end_at(s->address, s->size_bytes), s->stream, s->stands_alone};
    }
}

/* Without segments: wherever a block was before. */
static void ranges_of_blocks(const format_history *h, const holes_question *q, struct site_map *m)
{
    for (uint32_t i = 0; i < h->block_count; i++) {
        const format_block *b = &h->blocks[i];
        if (b->device == q->device && b->process == q->process && b->begin < q->state && b->size_bytes)
            m->ranges[m->range_count++] =
                (struct range){b->address, end_at(b->address, b->size_bytes), 0, false};
    }
}

/* Puts ranges in order and joins neighbours that a block may reach across; those at most `near` apart are neighbours. */
static void ranges_join(struct site_map *m, uint64_t near)
{
    uint32_t kept = 0;
    if (m->range_count)
        qsort(m->ranges, m->range_count, sizeof *m->ranges, compare_ranges);
    for (uint32_t i = 0; i < m->range_count; i++) {
        struct range r = m->ranges[i], *last = kept ? &m->ranges[kept - 1] : NULL;
        bool joins = last && !r.stands_alone && !last->stands_alone && r.stream == last->stream &&
                     (r.address <= last->end || r.address - last->end <= near);
        if (!joins)
            m->ranges[kept++] = r;
        else if (r.end > last->end)
            last->end = r.end;
    }
    m->range_count = kept;
}

static void blocks_find(const format_history *h, const holes_question *q, struct site_map *m)
{
    uint64_t unit = strcmp(h->format, "PyTorch snapshot") == 0 ? PYTORCH_UNIT : 1;
    for (uint32_t i = 0; i < h->block_count && h->blocks[i].begin < q->state; i++) {
        const format_block *b = &h->blocks[i];
        if (b->device != q->device || b->process != q->process || b->end < q->state || !b->size_bytes)
            continue;
        uint64_t size =
            b->size_bytes > UINT64_MAX - unit ? b->size_bytes : (b->size_bytes + unit - 1) / unit * unit;
        m->blocks[m->block_count++] = (struct standing){b->address, end_at(b->address, size), 0, i};
    }
    if (m->block_count)
        qsort(m->blocks, m->block_count, sizeof *m->blocks, compare_standing);
    uint64_t before = 0;
    for (uint32_t i = 0; i < m->block_count; i++) {
        m->blocks[i].bytes_before = before;
        before += h->blocks[m->blocks[i].block].size_bytes;
    }
}

/* ---- One range ---------------------------------------------------------------------------------------- */

static uint64_t bytes_until(const format_history *h, const struct site_map *m, uint32_t block)
{
    if (block < m->block_count)
        return m->blocks[block].bytes_before;
    const struct standing *last = m->block_count ? &m->blocks[m->block_count - 1] : NULL;
    return last ? last->bytes_before + h->blocks[last->block].size_bytes : 0;
}

static void pins_name(const format_history *h, const struct site_map *m, uint32_t from, uint32_t to,
                      holes *out)
{
    uint32_t count = 0;
    for (uint32_t i = from; i < to; i++) {
        uint32_t block = m->blocks[i].block;
        uint32_t at = count < HOLES_PINS ? count++ : HOLES_PINS;
        for (; at > 0 && h->blocks[out->pins[at - 1]].size_bytes < h->blocks[block].size_bytes; at--)
            if (at < HOLES_PINS)
                out->pins[at] = out->pins[at - 1];
        if (at < HOLES_PINS)
            out->pins[at] = block;
    }
}

/* Blocks first .. last of a range stand in it. For each place where a hole may begin, the nearest at which it is large enough: the
 * blocks between are the price. Both places only go up. */
static void range_pins(const format_history *h, const struct site_map *m, const struct range *r,
                       uint32_t first, uint32_t last, uint64_t size, holes *out)
{
    uint32_t to = first;
    for (uint32_t from = first; from <= last; from++) {
        uint64_t begin = from == first ? r->address : m->blocks[from - 1].end, end = 0;
        for (to = to < from ? from : to;; to++) {
            end = to < last ? m->blocks[to].address : r->end;
            if (to == last || (end > begin && end - begin >= size))
                break;
        }
        if (end < begin || end - begin < size)
            return;
        uint64_t price = bytes_until(h, m, to) - bytes_until(h, m, from);
        if (to > from && (!out->pin_count || price < out->pin_bytes)) {
            out->pin_count = to - from;
            out->pin_bytes = price;
            out->unpinned_bytes = end - begin;
            pins_name(h, m, from, to, out);
        }
    }
}

static void hole_add(holes *out, const struct range *r, const holes_question *q, uint64_t begin, uint64_t end)
{
    uint64_t bytes = end > begin ? end - begin : 0;
    bool is_ours = !r->stream || r->stream == q->stream;
    out->free_bytes += bytes;
    if (!is_ours && bytes > out->largest_elsewhere_bytes)
        out->largest_elsewhere_bytes = bytes;
    if (is_ours && bytes > out->largest_bytes) {
        out->largest_bytes = bytes;
        out->largest_address = begin;
    }
}

static void range_look(const format_history *h, const struct site_map *m, const struct range *r,
                       uint32_t first, uint32_t last, const holes_question *q, holes *out)
{
    uint64_t at = r->address;
    for (uint32_t i = first; i < last; i++) {
        hole_add(out, r, q, at, m->blocks[i].address);
        at = m->blocks[i].end > at ? m->blocks[i].end : at;
    }
    hole_add(out, r, q, at, r->end);
    out->reserved_bytes += r->end - r->address;
    if (first == last)
        out->unused_bytes += r->end - r->address;
    if (!r->stream || r->stream == q->stream)
        range_pins(h, m, r, first, last, q->size_bytes, out);
}

/* Whether the blocks are in the segments: those of a host's trace may be pages that the program took beside its heap. */
static bool segments_hold_blocks(const struct site_map *m)
{
    uint64_t inside = 0, all = 0;
    uint32_t range = 0;
    for (uint32_t i = 0; i < m->block_count; i++) {
        const struct standing *b = &m->blocks[i];
        while (range < m->range_count && m->ranges[range].end <= b->address)
            range++;
        all += b->end - b->address;
        if (range < m->range_count && m->ranges[range].address <= b->address)
            inside += b->end - b->address;
    }
    return m->range_count && inside >= all / 2;
}

static void ranges_find(const format_history *h, const holes_question *q, struct site_map *m, holes *out)
{
    ranges_of_segments(h, q, m);
    ranges_join(m, 0);
    out->has_segments = segments_hold_blocks(m);
    if (out->has_segments)
        return;
    m->range_count = 0;
    if (q->capacity_bytes && !h->has_times) /* a plan's arena begins at 0 */
        m->ranges[m->range_count++] = (struct range){0, q->capacity_bytes, 0, false};
    else
        ranges_of_blocks(h, q, m);
    ranges_join(m, NEAR_BYTES);
}

bool holes_find(const format_history *h, const holes_question *q, holes *out)
{
    *out = (holes){0};
    if (!h->has_addresses)
        return true;
    struct site_map m = {.ranges = malloc(((size_t)h->segment_count + h->block_count + 1) * sizeof *m.ranges),
                         .blocks = malloc(((size_t)h->block_count + 1) * sizeof *m.blocks)};
    bool done = m.ranges && m.blocks;
    if (done) {
        blocks_find(h, q, &m);
        ranges_find(h, q, &m, out);
        out->is_known = m.range_count != 0;
    }
    uint32_t first = 0;
    for (uint32_t i = 0; done && i < m.range_count; i++) {
        while (first < m.block_count && m.blocks[first].address < m.ranges[i].address)
            first++;
        uint32_t last = first;
        while (last < m.block_count && m.blocks[last].address < m.ranges[i].end)
            last++;
        range_look(h, &m, &m.ranges[i], first, last, q, out);
        first = last;
    }
    free(m.ranges);
    free(m.blocks);
    return done;
}

uint64_t holes_waiting(const format_history *h, uint16_t device, uint32_t state)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < h->wait_count; i++) {
        const format_block *b = &h->blocks[h->waits[i].block];
        if (b->device == device && h->waits[i].before <= state && b->end >= state)
            bytes += b->size_bytes;
    }
    return bytes;
}
