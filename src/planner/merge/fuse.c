/* Fusing. Two items join without a seam in two ways:
 *
 *     +-------+                     the same life: one on the     +---+------+      the same size, and one
 *     |   a   |                     other they are a rectangle    | a |  b   |      ends where the other
 *     +-------+                                                   +---+------+      begins: beside each other
 *     |   b   |                                                                     they are one too
 *     +-------+
 *
 * What is fused may join others in turn. A plan of the rectangles is a plan of the items, though not every
 * plan of the items is one of the rectangles: fusing may lose the best plan, so it is one phase among others.
 * But where an arena is filled without waste there is rarely another way to fill it, and a tiling that was
 * made by cutting a rectangle again and again is put together again, cut by cut.
 *
 * Every item asks three tables whether there is one to join: by life, by its end and size, by its beginning
 * and size. If so, it takes that one in, has grown, and asks again; if not, it is entered into all three and
 * waits. So each item is entered once and taken in once at most: linear time. Of several that would do, the
 * last entered is found; the others wait for somebody else.
 *
 * By chance some join that should not: two parts of an arena are cut at the same moment, and what lies left
 * of one cut has the same life as what lies left of the other. Then they are stuck, and so are those that
 * should have joined them beside. So what is left at the end is looked at once more: the layers of a stack
 * are divided anew if some of them together are just as large as one that is beside them; for that two sizes
 * are equal by chance is rarer than that two lives are. */
#include "planner/merge/fuse.h"

#include <string.h>

#include "base/sort.h"

#define NONE UINT32_MAX

enum { LAYERS = 8, SAMPLE = 1 << 16, SAMPLE_JOINS = SAMPLE / 2 };

/* Open addressing, never more than half full; at most one item a key. */
typedef struct table {
    uint32_t *slot;
    unsigned shift;
    uint32_t mask;
} table;

typedef enum key_kind { KEY_LIFE, KEY_END, KEY_START, KEY_KINDS } key_kind;

/* While fusing: items as they have grown so far. */
typedef struct fusing {
    berth__fused *fused;
    uint32_t count;
    uint32_t *lower, *upper;
    uint64_t *size;
    uint32_t *last;    /* what it took in last; NONE: nothing */
    uint32_t *earlier; /* what its owner took in before it */
    uint32_t joined;   /* how many were taken in */
    table tables[KEY_KINDS];
} fusing;

typedef struct key {
    uint64_t first, second;
} key;

static key key_of(const fusing *f, key_kind kind, uint32_t item)
{
    switch (kind) {
    case KEY_LIFE:
        return (key){f->lower[item], f->upper[item]};
    case KEY_END:
        return (key){f->upper[item], f->size[item]};
    default:
        return (key){f->lower[item], f->size[item]};
    }
}

static uint32_t first_slot(const table *t, key k)
{
    uint64_t mixed = (k.first * 0x9E3779B97F4A7C15U) ^ (k.second * 0xC2B2AE3D27D4EB4FU);
    mixed ^= mixed >> 29;
    return (uint32_t)((mixed * 0xBF58476D1CE4E5B9U) >> t->shift);
}

/* The slot of this key: where an item is entered under it, be it taken in since, or where it would be. */
static uint32_t find_slot(const fusing *f, key_kind kind, key k)
{
    const table *t = &f->tables[kind];
    uint32_t at = first_slot(t, k);
    for (; t->slot[at] != NONE; at = (at + 1) & t->mask) {
        const key other = key_of(f, kind, t->slot[at]);
        if (other.first == k.first && other.second == k.second)
            break;
    }
    return at;
}

/* The item entered under this key that is a part of none; NONE if there is no such. */
static uint32_t look_up(const fusing *f, key_kind kind, key k)
{
    const uint32_t item = f->tables[kind].slot[find_slot(f, kind, k)];
    return item != NONE && f->fused->into[item] == item ? item : NONE;
}

static void fuse_enter(fusing *f, uint32_t item)
{
    BERTH_DCHECK(f->fused->into[item] == item, "[L15] only what is a part of none is entered");
    for (key_kind kind = KEY_LIFE; kind < KEY_KINDS; kind++)
        f->tables[kind].slot[find_slot(f, kind, key_of(f, kind, item))] = item;
}

static void take_in(fusing *f, uint32_t item, uint32_t other, uint64_t above)
{
    BERTH_DCHECK(item != other && f->fused->into[item] == item && f->fused->into[other] == other,
                 "[L15] only what is a part of none is taken in");
    BERTH_DCHECK(above == 0 ? f->size[other] == f->size[item] : above == f->size[item],
                 "[L15] beside each other all are as large, and what goes on top starts there");
    f->joined++;
    f->fused->into[other] = item;
    f->fused->above[other] = above;
    f->earlier[other] = f->last[item];
    f->last[item] = other;
}

/* Takes in one of the same size beside `item`; false if there is none. */
static bool grow_beside(fusing *f, uint32_t item)
{
    uint32_t other = look_up(f, KEY_END, (key){f->lower[item], f->size[item]});
    if (other != NONE) {
        BERTH_DCHECK(f->upper[other] == f->lower[item], "[L15] one ends where the other begins");
        take_in(f, item, other, 0);
        f->lower[item] = f->lower[other];
        return true;
    }
    other = look_up(f, KEY_START, (key){f->upper[item], f->size[item]});
    if (other == NONE)
        return false;
    BERTH_DCHECK(f->lower[other] == f->upper[item], "[L15] one ends where the other begins");
    take_in(f, item, other, 0);
    f->upper[item] = f->upper[other];
    return true;
}

/* The same upward, with one of the same life. */
static bool grow_upward(fusing *f, uint32_t item)
{
    const uint32_t other = look_up(f, KEY_LIFE, key_of(f, KEY_LIFE, item));
    if (other == NONE || other == item) /* a stack that is reconsidered is entered already */
        return false;
    BERTH_DCHECK(f->lower[other] == f->lower[item] && f->upper[other] == f->upper[item],
                 "[L15] a stack lives as long as its layers");
    take_in(f, item, other, f->size[item]);
    f->size[item] += f->size[other];
    return true;
}

/* Sized for as many entries, and empty. */
static void clear_tables(fusing *f, uint32_t entries)
{
    unsigned bits = 1;
    while (((uint64_t)1 << bits) < 2 * (uint64_t)entries)
        bits++;
    for (int kind = 0; kind < KEY_KINDS; kind++) {
        table *t = &f->tables[kind];
        BERTH_DCHECK(((uint64_t)1 << bits) - 1 <= t->mask, "[L15] the tables have room, and are half empty");
        t->shift = 64 - bits;
        t->mask = (uint32_t)(((uint64_t)1 << bits) - 1);
        memset(t->slot, 0xff, ((size_t)t->mask + 1) * sizeof *t->slot);
    }
}

static void fuse_grow(fusing *f, uint32_t item)
{
    while (grow_beside(f, item) || grow_upward(f, item))
        ;
    fuse_enter(f, item);
}

/* The layers of a stack and of the stacks in it, as far as each took in nothing else since and there is room;
 * the first is the item itself. */
static unsigned unstack(fusing *f, uint32_t item, uint32_t *layers)
{
    unsigned count = 1;
    layers[0] = item;
    for (unsigned k = 0; k < count; k++)
        for (uint32_t other;
             count < LAYERS && (other = f->last[layers[k]]) != NONE && f->fused->above[other];) {
            BERTH_DCHECK(f->fused->into[other] == layers[k] && f->size[layers[k]] > f->size[other],
                         "[L15] a layer is part of its stack");
            f->size[layers[k]] -= f->size[other];
            f->last[layers[k]] = f->earlier[other];
            f->fused->into[other] = other;
            f->fused->above[other] = 0;
            layers[count++] = other;
        }
    return count;
}

/* Makes one stack of the layers that are in `subset` and answers the lowest. */
static uint32_t fuse_stack(fusing *f, const uint32_t *layers, unsigned count, unsigned subset)
{
    uint32_t lowest = NONE;
    for (unsigned k = count; k-- > 0;) /* the last taken in comes last again */
        if (subset >> k & 1)
            lowest = layers[k];
    BERTH_DCHECK(lowest != NONE, "[L15] a stack has a layer");
    for (unsigned k = count; k-- > 0;)
        if ((subset >> k & 1) && layers[k] != lowest) {
            take_in(f, lowest, layers[k], f->size[lowest]);
            f->size[lowest] += f->size[layers[k]];
        }
    return lowest;
}

/* Some of the layers that are together as large as one beside them; 0 if there are none. Not all: then the
 * stack would not be stuck. */
static unsigned find_subset(const fusing *f, const uint32_t *layers, unsigned count)
{
    for (unsigned subset = 1; subset + 1 < 1U << count; subset++) {
        uint64_t size = 0;
        for (unsigned k = 0; k < count; k++)
            size += subset >> k & 1 ? f->size[layers[k]] : 0;
        if (look_up(f, KEY_END, (key){f->lower[layers[0]], size}) != NONE ||
            look_up(f, KEY_START, (key){f->upper[layers[0]], size}) != NONE)
            return subset;
    }
    return 0;
}

/* Divides a stack anew if that lets a part of it join another beside it. Returns the steps it took. */
static uint64_t reconsider(fusing *f, uint32_t item)
{
    uint32_t layers[LAYERS];
    const unsigned count = unstack(f, item, layers), all = (1U << count) - 1;
    const unsigned subset = find_subset(f, layers, count);
    const uint32_t first = fuse_stack(f, layers, count, subset ? subset : all);
    if (!subset)
        return 1 + all / 4;
    const uint32_t second = fuse_stack(f, layers, count, all & ~subset);
    while (grow_beside(f, first))
        ;
    fuse_grow(f, second);
    fuse_grow(f, first);
    return 1 + subset / 4;
}

/* Those that are a part of none. */
static uint32_t list_roots(const fusing *f, uint32_t *list)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < f->count; i++)
        if (f->fused->into[i] == i)
            list[count++] = i;
    return count;
}

/* Enters what is left and reconsiders each of it. Returns how much is left then. */
static uint32_t reconsider_list(fusing *f, berth__search *search, uint32_t *list, uint32_t count)
{
    clear_tables(f, 3 * count);
    BERTH_DCHECK(count <= f->count / 4, "[L15] what is looked at once more are few");
    for (uint32_t k = 0; k < count; k++)
        fuse_enter(f, list[k]);
    uint64_t steps = 1;
    for (uint32_t k = 0; k < count && !berth__search_step(search, steps); k++)
        steps = f->fused->into[list[k]] == list[k] ? reconsider(f, list[k]) : 1;
    return list_roots(f, list);
}

/* All items; then what is left, as long as that leaves markedly fewer. False: less than half of the first ones were taken in.
 * Where an arena was cut into pieces it is three quarters and more; where lives and sizes are equal by chance, up to a quarter,
 * and there three tables larger than any processor's cache took four of thirteen seconds for ten million items, for nothing. */
static bool fuse_all(fusing *f, berth__search *search, uint32_t *list)
{
    clear_tables(f, f->count);
    for (uint32_t i = 0; i < f->count && !berth__search_step(search, 1); i++) {
        fuse_grow(f, i);
        if (i == SAMPLE && f->joined < SAMPLE_JOINS)
            return false;
    }
    uint32_t count = list_roots(f, list);
    for (uint32_t before = f->count / 4; 1 < count && count < before - before / 16;) {
        before = count;
        count = reconsider_list(f, search, list, count);
    }
    return true;
}

#ifndef NDEBUG
/* Whether each item lies within the one it is part of, in time and upward, and those that are a part of none are together
 * as large as the whole. */
static bool fusing_is_valid(const fusing *f, const berth__prepared *p)
{
    uint64_t left = 0, whole = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        const uint32_t into = f->fused->into[i];
        const uint64_t life = f->upper[i] - f->lower[i];
        whole += (p->upper[i] - p->lower[i]) * p->size[i];
        left += into == i ? life * f->size[i] : 0;
        if (into >= f->count || f->lower[into] > f->lower[i] || f->upper[into] < f->upper[i] ||
            f->fused->above[i] > f->size[into] || f->size[i] > f->size[into] - f->fused->above[i])
            return false;
    }
    return left == whole;
}
#endif

/* ---- The fused problem --------------------------------------------------------------------------- */

/* Columns anew, as prepared.h tells: with fewer items there are fewer. `renamed` has two places a column and
 * one pair more: what starts there, and what ends there. Returns how many there are. */
static uint32_t fuse_renumber(const fusing *f, uint32_t columns, uint32_t *renamed)
{
    enum { STARTS = 1, ENDS = 2 };
    memset(renamed, 0, ((size_t)columns + 1) * 2 * sizeof *renamed);
    for (uint32_t i = 0; i < f->count; i++) {
        if (f->fused->into[i] != i)
            continue;
        renamed[2 * (size_t)f->lower[i]] |= STARTS;
        renamed[2 * (size_t)f->upper[i]] |= ENDS;
    }
    uint32_t count = 0;
    bool ended = true;
    for (size_t c = 0; c <= columns; c++) {
        const uint32_t here = renamed[2 * c];
        renamed[2 * c + 1] = count;
        ended = ended || (here & ENDS) != 0;
        if ((here & STARTS) && ended) {
            count++;
            ended = false;
        }
        renamed[2 * c] = count - 1;
    }
    BERTH_DCHECK(count <= columns, "[L15] with fewer items there are fewer columns");
    return count;
}

static bool allocate_prepared(berth__prepared *small, uint32_t count)
{
    small->lower = berth__heap_alloc((size_t)count * sizeof *small->lower);
    small->upper = berth__heap_alloc((size_t)count * sizeof *small->upper);
    small->size = berth__heap_alloc((size_t)count * sizeof *small->size);
    small->item_count = small->piece_count = count;
    small->piece_lower = small->lower;
    small->piece_upper = small->upper;
    small->piece_size = small->size;
    return small->lower && small->upper && small->size;
}

static int fuse_canonical(const void *context, uint32_t a, uint32_t b)
{
    const fusing *f = context;
    if (f->lower[a] != f->lower[b])
        return f->lower[a] < f->lower[b] ? -1 : 1;
    if (f->upper[a] != f->upper[b])
        return f->upper[a] < f->upper[b] ? -1 : 1;
    return (f->size[a] > f->size[b]) - (f->size[a] < f->size[b]);
}

/* Lists those that are a part of none, in new columns and in canonical order, and numbers them. `scratch` has
 * a place an item and two a column, and two more. */
static berth_status make_small(fusing *f, const berth__prepared *p, uint32_t *scratch)
{
    uint32_t *order = f->fused->place, *renamed = scratch + f->count;
    const uint32_t count = list_roots(f, order);
    berth__prepared *small = &f->fused->prepared;
    *small = (berth__prepared){.unit_bytes = p->unit_bytes,
                               .capacity = p->capacity,
                               .max_live = p->max_live,
                               .horizon = p->horizon,
                               .is_plain = true};
    if (!allocate_prepared(small, count))
        return BERTH_OUT_OF_HOST_MEMORY;
    small->column_count = fuse_renumber(f, p->column_count, renamed);
    small->max_live_column = renamed[2 * (size_t)p->max_live_column];
    for (uint32_t k = 0; k < count; k++) {
        f->lower[order[k]] = renamed[2 * (size_t)f->lower[order[k]]];
        f->upper[order[k]] = renamed[2 * (size_t)f->upper[order[k]] + 1];
        BERTH_DCHECK(f->lower[order[k]] < f->upper[order[k]] && f->upper[order[k]] <= small->column_count,
                     "[L7] what is fused lives in the new columns");
    }
    berth__sort_indices(order, scratch, count, fuse_canonical, f);
    for (uint32_t k = 0; k < count; k++) {
        small->lower[k] = f->lower[order[k]];
        small->upper[k] = f->upper[order[k]];
        small->size[k] = f->size[order[k]];
    }
    memcpy(scratch, order, (size_t)count * sizeof *order);
    for (uint32_t k = 0; k < count; k++)
        f->fused->place[scratch[k]] = k;
    return BERTH_OK;
}

/* ---- The front ----------------------------------------------------------------------------------- */

static bool fusing_init(fusing *f, const berth__prepared *p)
{
    const size_t count = p->item_count;
    unsigned bits = 1;
    while (((uint64_t)1 << bits) < 2 * (uint64_t)count)
        bits++;
    f->lower = berth__heap_alloc(count * sizeof *f->lower);
    f->upper = berth__heap_alloc(count * sizeof *f->upper);
    f->size = berth__heap_alloc(count * sizeof *f->size);
    f->fused->into = berth__heap_alloc(count * sizeof *f->fused->into);
    f->fused->above = berth__heap_zalloc(count, sizeof *f->fused->above);
    f->fused->place = berth__heap_alloc(count * sizeof *f->fused->place);
    f->last = berth__heap_alloc(count * sizeof *f->last);
    f->earlier = berth__heap_alloc(count * sizeof *f->earlier);
    bool ok = f->lower && f->upper && f->size && f->last && f->earlier && f->fused->into && f->fused->above &&
              f->fused->place;
    for (int kind = 0; kind < KEY_KINDS; kind++) {
        table *t = &f->tables[kind];
        *t = (table){.shift = 64 - bits, .mask = (uint32_t)(((uint64_t)1 << bits) - 1)};
        t->slot = berth__heap_alloc(((size_t)t->mask + 1) * sizeof *t->slot);
        ok = ok && t->slot;
    }
    if (!ok)
        return false;
    memset(f->last, 0xff, count * sizeof *f->last);
    memcpy(f->lower, p->lower, count * sizeof *f->lower);
    memcpy(f->upper, p->upper, count * sizeof *f->upper);
    memcpy(f->size, p->size, count * sizeof *f->size);
    for (uint32_t i = 0; i < f->count; i++)
        f->fused->into[i] = i;
    return true;
}

static void free_tables(fusing *f)
{
    for (int kind = 0; kind < KEY_KINDS; kind++) {
        berth__heap_free(f->tables[kind].slot);
        f->tables[kind].slot = NULL;
    }
}

berth_status berth__fuse_init(berth__fused *fused, berth__search *search)
{
    const berth__prepared *p = search->prepared;
    *fused = (berth__fused){0};
    fusing f = {.fused = fused, .count = p->item_count};
    BERTH_DCHECK(p->is_plain, "[L15] only plain items are fused");
    berth_status status = fusing_init(&f, p) ? BERTH_OK : BERTH_OUT_OF_HOST_MEMORY;
    bool suits = !status && fuse_all(&f, search, fused->place); /* which has no other use yet */
    BERTH_DCHECK(status || fusing_is_valid(&f, p),
                 "[L15] every item is part of one, and nothing is gained or lost");
    free_tables(&f);
    uint32_t *scratch = NULL;
    if (suits) {
        scratch = berth__heap_alloc((((size_t)p->column_count + 1) * 2 + f.count) * sizeof *scratch);
        status = scratch ? make_small(&f, p, scratch) : BERTH_OUT_OF_HOST_MEMORY;
    }
    BERTH_DCHECK(status || !suits || berth__prepared_is_valid(&fused->prepared),
                 "[L7] [L8] [L9] the fused problem is one");
    void *all[] = {scratch, f.lower, f.upper, f.size, f.last, f.earlier};
    for (size_t k = 0; k < BERTH_COUNT_OF(all); k++)
        berth__heap_free(all[k]);
    if (status) {
        berth__fuse_finish(fused);
        return berth__fail(status, "no memory to fuse %u items", f.count);
    }
    return BERTH_OK;
}

void berth__fuse_finish(berth__fused *fused)
{
    berth__prepared_finish(&fused->prepared);
    berth__heap_free(fused->into);
    berth__heap_free(fused->above);
    berth__heap_free(fused->place);
    *fused = (berth__fused){0};
}

/* Makes `item` a direct part of what it is a part of in the end, and all on the way to it too, so that no way
 * is gone twice: once to find the end, once back. */
static uint32_t shorten(berth__fused *fused, uint32_t item)
{
    uint32_t end = item;
    uint64_t above = 0;
    for (; fused->into[end] != end; end = fused->into[end])
        above += fused->above[end];
    while (fused->into[item] != end && item != end) {
        const uint32_t next = fused->into[item];
        const uint64_t step = fused->above[item];
        fused->into[item] = end;
        fused->above[item] = above;
        BERTH_DCHECK(above >= step, "[L15] every step on the way up is part of it");
        above -= step;
        item = next;
    }
    return end;
}

void berth__fuse_expand(berth__fused *fused, uint32_t count, const uint64_t *fused_offsets, uint64_t *offsets)
{
    for (uint32_t i = 0; i < count; i++) {
        BERTH_DCHECK(fused->place[shorten(fused, i)] < fused->prepared.item_count,
                     "[L15] every item is part of one");
        offsets[i] = fused_offsets[fused->place[shorten(fused, i)]] + fused->above[i];
    }
}
