/* Why a request does not fit. */
#include "wrap/why.h"

#include <stdlib.h>
#include <string.h>

#include "base/symbol.h"
#include "berth/tracking.h"
#include "wrap/tracking.h"

/* Between blocks of a fixed region lie headers; what is nearer than this is a neighbour. */
enum { NEIGHBOUR_BYTES = 256 };

struct shown {
    uint64_t segment, address, size_bytes;
    uint64_t taken_before; /* bytes that are not idle, of all before it */
    const char *label;
    berth_block_state state;
};

struct gallery {
    berth__picture *picture;
    struct shown *blocks; /* NULL: no memory, nothing is listed */
    size_t count, room;
    bool failed;
};

static bool gallery_grow(struct gallery *g)
{
    size_t room = g->room ? g->room * 2 : 256;
    struct shown *grown = berth__heap_alloc(room * sizeof *grown);
    if (!grown)
        return false;
    if (g->count)
        memcpy(grown, g->blocks, g->count * sizeof *grown);
    berth__heap_free(g->blocks);
    g->blocks = grown;
    g->room = room;
    return true;
}

static bool gallery_add(void *context, const berth_block *block)
{
    struct gallery *g = context;
    if (!block->segment)
        return true;
    g->picture->is_known = true;
    if (block->state == BERTH_BLOCK_WAITING)
        g->picture->waiting_bytes += block->size_bytes;
    if (block->state == BERTH_BLOCK_IDLE) {
        g->picture->idle_bytes += block->size_bytes;
        if (block->size_bytes > g->picture->largest_bytes)
            g->picture->largest_bytes = block->size_bytes;
    }
    g->failed = g->failed || (g->count == g->room && !gallery_grow(g));
    if (!g->failed)
        g->blocks[g->count++] = (struct shown){.segment = block->segment,
                                               .address = (uint64_t)(uintptr_t)block->address,
                                               .size_bytes = block->size_bytes,
                                               .label = block->label,
                                               .state = block->state};
    return true;
}

static int compare_shown(const void *a, const void *b)
{
    const struct shown *x = a, *y = b;
    if (x->segment != y->segment)
        return x->segment < y->segment ? -1 : 1;
    return x->address < y->address ? -1 : x->address > y->address;
}

static uint64_t shown_end(const struct shown *s)
{
    return s->address + s->size_bytes;
}

static bool are_neighbours(const struct shown *a, const struct shown *b)
{
    return a->segment == b->segment && b->address - shown_end(a) <= NEIGHBOUR_BYTES;
}

static uint64_t taken_of(const struct shown *s)
{
    return s->state == BERTH_BLOCK_IDLE ? 0 : s->size_bytes;
}

static void name_pin(berth__picture *p, const struct shown *first, const struct shown *last)
{
    const struct shown *largest = NULL;
    p->pin_count = 0;
    for (const struct shown *s = first; s <= last; s++) {
        if (s->state == BERTH_BLOCK_IDLE)
            continue;
        p->pin_count++;
        if (!largest || s->size_bytes > largest->size_bytes)
            largest = s;
    }
    p->pin_label = largest ? largest->label : NULL;
}

/* Runs of neighbours [from, to] that span `size` bytes: both ends only go up. */
static void find_pins(struct gallery *g, uint64_t size)
{
    berth__picture *p = g->picture;
    size_t to = 0;
    for (size_t from = 0; from < g->count; from++) {
        to = to < from ? from : to;
        while (to < g->count && shown_end(&g->blocks[to]) - g->blocks[from].address < size) {
            if (to + 1 == g->count || !are_neighbours(&g->blocks[to], &g->blocks[to + 1]))
                break;
            to++;
        }
        const struct shown *last = &g->blocks[to];
        if (shown_end(last) - g->blocks[from].address < size)
            continue; /* the rest of its segment is too short */
        uint64_t price = last->taken_before + taken_of(last) - g->blocks[from].taken_before;
        if (price && (!p->pin_count || price < p->pin_bytes)) {
            p->pin_bytes = price;
            name_pin(p, &g->blocks[from], last);
        }
    }
}

static void count_unused(const struct gallery *g)
{
    for (size_t i = 0, first = 0; i < g->count; i++) {
        bool is_last = i + 1 == g->count || g->blocks[i + 1].segment != g->blocks[i].segment;
        if (!is_last)
            continue;
        uint64_t taken = g->blocks[i].taken_before + taken_of(&g->blocks[i]) - g->blocks[first].taken_before;
        for (size_t k = first; k <= i && !taken; k++)
            g->picture->unused_bytes += g->blocks[k].size_bytes;
        first = i + 1;
    }
}

void berth__picture_take(berth_allocator *a, uint64_t size_bytes, berth__picture *out)
{
    struct gallery g = {.picture = out};
    memset(out, 0, sizeof *out);
    for (; a && !out->is_known; a = a->inner)
        (void)a->ops.snapshot(a->self, gallery_add, &g);
    if (!g.failed && g.count) {
        uint64_t taken = 0;
        qsort(g.blocks, g.count, sizeof *g.blocks, compare_shown);
        for (size_t i = 0; i < g.count; i++) {
            g.blocks[i].taken_before = taken;
            taken += taken_of(&g.blocks[i]);
        }
        count_unused(&g);
        if (out->largest_bytes < size_bytes)
            find_pins(&g, size_bytes);
    }
    berth__heap_free(g.blocks);
}

/* ---- Causes -------------------------------------------------------------------------------------------- */

static bool is_over(uint64_t live, uint64_t size, uint64_t limit)
{
    return live > limit || size > limit - live;
}

berth__cause berth__find_cause(const berth__picture *p, uint64_t size_bytes, uint64_t live_bytes,
                               uint64_t limit_bytes)
{
    if (limit_bytes && is_over(live_bytes, size_bytes, limit_bytes))
        return BERTH__TOO_MUCH_LIVE;
    if (limit_bytes && is_over(live_bytes + p->waiting_bytes, size_bytes, limit_bytes))
        return BERTH__HELD_BY_STREAMS;
    if (!p->is_known)
        return limit_bytes ? BERTH__CAUSE_NOT_KNOWN : BERTH__TOO_MUCH_LIVE;
    if (p->largest_bytes >= size_bytes)
        return BERTH__CAUSE_NOT_KNOWN;
    if (p->waiting_bytes + p->idle_bytes >= size_bytes && p->waiting_bytes > p->idle_bytes)
        return BERTH__HELD_BY_STREAMS;
    if (p->unused_bytes >= size_bytes)
        return BERTH__HELD_BY_CACHE;
    return p->idle_bytes >= size_bytes || limit_bytes ? BERTH__FRAGMENTED : BERTH__TOO_MUCH_LIVE;
}

const char *berth__cause_words(berth__cause cause)
{
    static const char *const words[] = {"too much is alive", "fragmented", "held by a cache",
                                        "held by streams", "not known"};
    return words[cause];
}

/* ---- Call sites ---------------------------------------------------------------------------------------- */

/* Frames that were looked up before, by a hash of their address: a name is read from a file each time. */
enum { KNOWN_FRAMES = 256 };
struct sites_finding {
    berth__sites *sites;
    struct {
        const void *frame;
        bool is_own;
    } known[KNOWN_FRAMES];
};

static bool is_own_frame(struct sites_finding *f, const void *frame)
{
    size_t at = (size_t)(((uintptr_t)frame * UINT64_C(0x9e3779b97f4a7c15)) >> 56);
    if (f->known[at].frame != frame) {
        char words[BERTH__SITE_WORDS];
        berth__symbol_format(frame, words, sizeof words);
        f->known[at].frame = frame;
        f->known[at].is_own = strstr(words, "libberth") || strstr(words, "(berth_");
    }
    return f->known[at].is_own;
}

/* The innermost frame outside Berth; the innermost of all if the names do not tell. */
static const void *site_of(struct sites_finding *f, const berth_leak *leak)
{
    for (uint32_t i = 0; i < leak->stack_depth; i++)
        if (!is_own_frame(f, leak->stack[i]))
            return leak->stack[i];
    return leak->stack[0];
}

static bool sites_add(void *context, const berth_leak *leak)
{
    struct sites_finding *f = context;
    berth__sites *sites = f->sites;
    size_t i = 0, smallest = 0;
    if (!leak->stack_depth)
        return true; /* no memory for it, when it was allocated */
    const void *frame = site_of(f, leak);
    for (; i < sites->count && sites->sums[i].frame != frame; i++)
        smallest = sites->sums[i].bytes < sites->sums[smallest].bytes ? i : smallest;
    if (i == sites->count && i < BERTH__SITES_SEEN)
        sites->sums[sites->count++].bytes = 0;
    else if (i == sites->count)
        i = smallest; /* the smallest gives way */
    if (sites->sums[i].frame != frame)
        sites->sums[i].bytes = 0;
    sites->sums[i].frame = frame;
    sites->sums[i].bytes += leak->size_bytes;
    return true;
}

void berth__sites_find(berth_allocator *a, berth__sites *out)
{
    memset(out, 0, sizeof *out);
    while (a && !berth__tracking_is(a))
        a = a->inner;
    struct sites_finding finding = {.sites = out};
    if (!a || !berth__tracking_keeps_stacks(a) ||
        berth_tracking_visit_leaks(a, sites_add, &finding) != BERTH_OK)
        return;
    for (size_t i = 0; i < out->count && i < BERTH__SITES_TOLD; i++)
        for (size_t j = i + 1; j < out->count; j++)
            if (out->sums[j].bytes > out->sums[i].bytes) {
                struct berth__site_sum swap = out->sums[i];
                out->sums[i] = out->sums[j];
                out->sums[j] = swap;
            }
}
