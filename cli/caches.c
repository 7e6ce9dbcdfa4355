/* Other allocators on the blocks of a history. */
#include "cli/caches.h"

#include <stdlib.h>

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

enum { MIN_BLOCK = 512 };

/* A piece of a segment, free or not. Free ones are in the tree of their stream and kind, by size and address (a treap whose
 * priorities are hashes). */
struct piece {
    uint64_t address, size_bytes;
    uint32_t before, after; /* neighbours in the segment; 0: none */
    uint32_t left, right;
    uint32_t shelf;
    bool is_free;
};

/* Where pieces of one stream and kind are. */
struct shelf {
    uint64_t stream;
    uint32_t root, last; /* last: the end of the expandable range */
    bool is_small;
};

struct model {
    struct piece *pieces;                     /* [0] is none */
    uint32_t piece_count, piece_room, unused; /* unused: a list through `after` */
    struct shelf *shelves;
    uint32_t shelf_count, shelf_room;
    uint64_t next_address, reserved, given;
    bool expandable, no_memory;
    caches_figures most;
};

/* ---- Trees ------------------------------------------------------------------------------------------- */

static bool piece_less(const struct model *m, uint32_t a, uint32_t b)
{
    const struct piece *x = &m->pieces[a], *y = &m->pieces[b];
    return x->size_bytes != y->size_bytes ? x->size_bytes < y->size_bytes : x->address < y->address;
}

static uint32_t piece_priority(uint32_t piece)
{
    return (uint32_t)((piece * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

/* Parts the tree into what is less than `piece` and the rest. */
static void tree_split(struct model *m, uint32_t root, uint32_t piece, uint32_t *less, uint32_t *rest)
{
    while (root) {
        struct piece *r = &m->pieces[root];
        if (piece_less(m, root, piece)) {
            *less = root;
            less = &r->right;
            root = r->right;
        } else {
            *rest = root;
            rest = &r->left;
            root = r->left;
        }
    }
    *less = *rest = 0;
}

static void tree_insert(struct model *m, uint32_t *place, uint32_t piece)
{
    while (*place && piece_priority(*place) > piece_priority(piece))
        place = piece_less(m, *place, piece) ? &m->pieces[*place].right : &m->pieces[*place].left;
    tree_split(m, *place, piece, &m->pieces[piece].left, &m->pieces[piece].right);
    *place = piece;
}

static void tree_remove(struct model *m, uint32_t *place, uint32_t piece)
{
    while (*place != piece)
        place = piece_less(m, *place, piece) ? &m->pieces[*place].right : &m->pieces[*place].left;
    uint32_t a = m->pieces[piece].left, b = m->pieces[piece].right;
    while (a && b) {
        if (piece_priority(a) > piece_priority(b)) {
            *place = a;
            place = &m->pieces[a].right;
            a = *place;
        } else {
            *place = b;
            place = &m->pieces[b].left;
            b = *place;
        }
    }
    *place = a ? a : b;
}

/* The smallest piece of at least `size` bytes, at the lowest address; 0: none. */
static uint32_t tree_find(const struct model *m, uint32_t root, uint64_t size)
{
    uint32_t found = 0;
    while (root) {
        if (m->pieces[root].size_bytes >= size) {
            found = root;
            root = m->pieces[root].left;
        } else {
            root = m->pieces[root].right;
        }
    }
    return found;
}

/* ---- Pieces ------------------------------------------------------------------------------------------ */

/* 0: no memory, which is remembered. */
static uint32_t piece_new(struct model *m, struct piece piece)
{
    uint32_t number = m->unused;
    if (number) {
        m->unused = m->pieces[number].after;
    } else {
        if (m->piece_count == m->piece_room) {
            uint32_t room = m->piece_room ? m->piece_room * 2 : 1024;
            struct piece *grown = realloc(m->pieces, room * sizeof *grown);
            if (!grown) {
                m->no_memory = true;
                return 0;
            }
            m->pieces = grown;
            m->piece_room = room;
        }
        number = m->piece_count++;
    }
    m->pieces[number] = piece;
    return number;
}

static void piece_retire(struct model *m, uint32_t piece)
{
    m->pieces[piece].after = m->unused;
    m->unused = piece;
}

/* Puts `other`, the neighbour behind, into `piece`. Both are out of the tree. */
static void piece_join(struct model *m, uint32_t piece, uint32_t other)
{
    struct piece *p = &m->pieces[piece], *o = &m->pieces[other];
    p->size_bytes += o->size_bytes;
    p->after = o->after;
    if (o->after)
        m->pieces[o->after].before = piece;
    struct shelf *shelf = &m->shelves[p->shelf];
    if (shelf->last == other)
        shelf->last = piece;
    piece_retire(m, other);
}

/* Cuts what is behind `size` bytes off and lays it on the shelf. */
static void piece_cut(struct model *m, uint32_t piece, uint64_t size)
{
    const struct piece was = m->pieces[piece];
    uint32_t rest = piece_new(m, (struct piece){.address = was.address + size,
                                                .size_bytes = was.size_bytes - size,
                                                .before = piece,
                                                .after = was.after,
                                                .shelf = was.shelf,
                                                .is_free = true});
    if (!rest)
        return;
    m->pieces[piece].size_bytes = size;
    m->pieces[piece].after = rest;
    if (was.after)
        m->pieces[was.after].before = rest;
    struct shelf *shelf = &m->shelves[was.shelf];
    if (shelf->last == piece)
        shelf->last = rest;
    tree_insert(m, &shelf->root, rest);
}

/* ---- PyTorch's rules --------------------------------------------------------------------------------- */

static uint64_t multiple_of(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static uint64_t segment_bytes(uint64_t size)
{
    return size <= MIB ? 2 * MIB : size < 10 * MIB ? 20 * MIB : multiple_of(size, 2 * MIB);
}

/* UINT32_MAX: no memory. */
static uint32_t shelf_find(struct model *m, uint64_t stream, bool is_small)
{
    for (uint32_t i = 0; i < m->shelf_count; i++)
        if (m->shelves[i].stream == stream && m->shelves[i].is_small == is_small)
            return i;
    if (m->shelf_count == m->shelf_room) {
        uint32_t room = m->shelf_room ? m->shelf_room * 2 : 16;
        struct shelf *grown = realloc(m->shelves, room * sizeof *grown);
        if (!grown) {
            m->no_memory = true;
            return UINT32_MAX;
        }
        m->shelves = grown;
        m->shelf_room = room;
    }
    m->shelves[m->shelf_count] = (struct shelf){.stream = stream, .is_small = is_small};
    return m->shelf_count++;
}

static void model_reserve(struct model *m, uint64_t bytes)
{
    m->reserved += bytes;
    m->most.segments++;
    if (m->reserved > m->most.reserved_bytes)
        m->most.reserved_bytes = m->reserved;
}

/* A new segment, or more of the range; the piece that comes out is not in the tree. */
static uint32_t model_grow(struct model *m, uint32_t number, uint64_t size)
{
    struct shelf *shelf = &m->shelves[number];
    uint32_t last = m->expandable ? shelf->last : 0;
    bool joins = last && m->pieces[last].is_free;
    uint64_t have = joins ? m->pieces[last].size_bytes : 0;
    uint64_t bytes =
        m->expandable ? multiple_of(size - have, shelf->is_small ? 2 * MIB : 20 * MIB) : segment_bytes(size);
    model_reserve(m, bytes);
    if (joins) {
        tree_remove(m, &shelf->root, last);
        m->pieces[last].size_bytes += bytes;
        return last;
    }
    uint64_t address = last ? m->pieces[last].address + m->pieces[last].size_bytes : m->next_address;
    if (!last) /* ranges never meet: what lies between them is never counted */
        m->next_address += m->expandable ? UINT64_C(1) << 44 : bytes;
    uint32_t piece = piece_new(
        m, (struct piece){.address = address, .size_bytes = bytes, .before = last, .shelf = number});
    if (last && piece)
        m->pieces[last].after = piece;
    m->shelves[number].last = piece;
    return piece;
}

static uint32_t model_allocate(struct model *m, uint64_t asked, uint64_t stream)
{
    uint64_t size = asked > UINT64_MAX / 4 ? asked : multiple_of(asked ? asked : 1, MIN_BLOCK);
    bool is_small = size <= MIB;
    uint32_t number = shelf_find(m, stream, is_small);
    if (number == UINT32_MAX)
        return 0;
    uint32_t piece = tree_find(m, m->shelves[number].root, size);
    if (piece)
        tree_remove(m, &m->shelves[number].root, piece);
    else
        piece = model_grow(m, number, size);
    if (!piece)
        return 0;
    m->pieces[piece].is_free = false;
    uint64_t rest = m->pieces[piece].size_bytes - size;
    if (is_small || m->expandable ? rest >= MIN_BLOCK : rest > MIB)
        piece_cut(m, piece, size);
    m->given += m->pieces[piece].size_bytes;
    if (m->given > m->most.given_bytes)
        m->most.given_bytes = m->given;
    return piece;
}

static void model_free(struct model *m, uint32_t piece)
{
    struct shelf *shelf = &m->shelves[m->pieces[piece].shelf];
    uint32_t before = m->pieces[piece].before, after = m->pieces[piece].after;
    m->given -= m->pieces[piece].size_bytes;
    m->pieces[piece].is_free = true;
    if (after && m->pieces[after].is_free) {
        tree_remove(m, &shelf->root, after);
        piece_join(m, piece, after);
    }
    if (before && m->pieces[before].is_free) {
        tree_remove(m, &shelf->root, before);
        piece_join(m, before, piece);
        piece = before;
    }
    tree_insert(m, &shelf->root, piece);
}

bool caches_pytorch(const format_history *h, uint16_t device, bool expandable, caches_figures *out)
{
    struct model m = {.expandable = expandable, .next_address = 1};
    uint32_t *piece_of = calloc((size_t)h->block_count + 1, sizeof *piece_of);
    piece_new(&m, (struct piece){0}); /* number 0 is none */
    for (uint32_t e = 0; piece_of && e < h->event_count && !m.no_memory; e++) {
        uint32_t block = h->events[e] / 2;
        const format_block *b = &h->blocks[block];
        if (b->device != device)
            continue;
        if (h->events[e] % 2 == 0)
            piece_of[block] = model_allocate(&m, b->size_bytes, b->stream);
        else
            model_free(&m, piece_of[block]);
    }
    bool done = piece_of && !m.no_memory;
    *out = m.most;
    free(piece_of);
    free(m.pieces);
    free(m.shelves);
    return done;
}

/* ---- The recording ------------------------------------------------------------------------------------ */

struct turn {
    uint32_t at;
    int64_t bytes;
};

static int compare_turns(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* what is given back comes first */
}

/* Where a segment is at a moment. */
struct span {
    uint64_t process, address, end;
};

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->process != y->process)
        return x->process < y->process ? -1 : 1;
    return x->address < y->address ? -1 : x->address > y->address;
}

static bool is_in_span(const struct span *spans, uint32_t count, const format_block *b)
{
    uint32_t low = 0;
    for (uint32_t high = count; low < high;) {
        const uint32_t middle = low + (high - low) / 2;
        const struct span *s = &spans[middle];
        if (s->process < b->process || (s->process == b->process && s->address <= b->address))
            low = middle + 1;
        else
            high = middle;
    }
    return low && spans[low - 1].process == b->process && b->address < spans[low - 1].end;
}

static bool is_alive(uint32_t begin, uint32_t end, uint32_t event)
{
    return begin <= event && (end == FORMAT_ALIVE || end > event);
}

/* Whether segments hold what is alive at the peak, but for an eighth. Of a whole program they do not: its mappings are recorded, and
 * what malloc takes by moving the program's break is not. */
static bool segments_hold(const format_history *h, uint16_t device)
{
    const uint32_t peak = format_history_peak(h, device).event;
    struct span *spans = malloc(((size_t)h->segment_count + 1) * sizeof *spans);
    uint64_t live = 0, held = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; spans && i < h->segment_count; i++) {
        const format_segment *s = &h->segments[i];
        if (s->device == device && is_alive(s->begin, s->end, peak))
            spans[count++] = (struct span){s->process, s->address, s->address + s->size_bytes};
    }
    if (count)
        qsort(spans, count, sizeof *spans, compare_spans);
    for (uint32_t i = 0; i < h->block_count; i++) {
        const format_block *b = &h->blocks[i];
        if (b->device != device || !is_alive(b->begin, b->end, peak))
            continue;
        live += b->size_bytes;
        held += count && is_in_span(spans, count, b) ? b->size_bytes : 0;
    }
    free(spans);
    return held >= live - live / 8;
}

caches_figures caches_recorded(const format_history *h, uint16_t device)
{
    caches_figures most = {0};
    if (!h->segment_count || !segments_hold(h, device))
        return most;
    struct turn *turns = malloc(((size_t)h->segment_count * 2 + 1) * sizeof *turns);
    uint32_t count = 0;
    for (uint32_t i = 0; turns && i < h->segment_count; i++) {
        const format_segment *s = &h->segments[i];
        if (s->device != device || s->size_bytes > INT64_MAX / 4)
            continue;
        turns[count++] = (struct turn){s->begin, (int64_t)s->size_bytes};
        if (s->end != FORMAT_ALIVE)
            turns[count++] = (struct turn){s->end, -(int64_t)s->size_bytes};
        most.segments++;
    }
    uint64_t now = 0;
    if (count)
        qsort(turns, count, sizeof *turns, compare_turns);
    for (uint32_t i = 0; i < count; i++) {
        now += (uint64_t)turns[i].bytes;
        most.reserved_bytes = now > most.reserved_bytes && now < INT64_MAX ? now : most.reserved_bytes;
    }
    free(turns);
    return most;
}
