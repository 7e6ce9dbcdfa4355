/* The tree of what is taken. Additions only: whoever moves items about looks at them one by one (overlap.h). */
#include "planner/place/gaptree.h"

#include <string.h>

#include "base/sort.h"

bool berth__gaptree_init(berth__gaptree *tree, const berth__prepared *prepared)
{
    *tree = (berth__gaptree){.prepared = prepared, .leaves = 1};
    while (tree->leaves < prepared->column_count)
        tree->leaves *= 2;
    tree->whole = berth__heap_zalloc((size_t)tree->leaves * 2, sizeof *tree->whole);
    tree->any = berth__heap_zalloc((size_t)tree->leaves * 2, sizeof *tree->any);
    return tree->whole && tree->any;
}

void berth__gaptree_finish(berth__gaptree *tree)
{
    for (uint32_t node = 0; tree->whole && tree->any && node < 2 * tree->leaves; node++) {
        berth__heap_free(tree->whole[node].list);
        berth__heap_free(tree->any[node].list);
    }
    berth__heap_free(tree->whole);
    berth__heap_free(tree->any);
    berth__heap_free(tree->found);
    *tree = (berth__gaptree){0};
}

/* The first stretch that ends at or above `offset`. */
static uint32_t first_reaching(const berth__stretches *set, uint64_t offset)
{
    uint32_t low = 0, high = set->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (set->list[middle].to < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool make_room(berth__stretches *set)
{
    if (set->count < set->room)
        return true;
    const uint32_t room = set->room ? set->room * 2 : 2;
    berth__stretch *list = berth__heap_realloc(set->list, room * sizeof *list);
    if (!list)
        return false;
    set->list = list;
    set->room = room;
    return true;
}

/* Moving so many takes as long as to look at one elsewhere in memory. */
enum { MOVED_A_LOOK = 16 };

#ifndef NDEBUG
/* Whether stretches are in order and do not touch: the one at `at`, and its neighbours. */
static bool is_apart(const berth__stretches *set, uint32_t at)
{
    const berth__stretch *s = &set->list[at];
    return s->from < s->to && (at == 0 || s[-1].to < s->from) && (at + 1 == set->count || s->to < s[1].from);
}
#endif

typedef enum taking { WAS_TAKEN, TAKEN, NO_MEMORY } taking;

/* Adds a stretch; what it touches becomes one with it. */
static taking take(berth__gaptree *tree, berth__stretches *set, berth__stretch stretch)
{
    const uint32_t first = first_reaching(set, stretch.from);
    uint32_t end = first;
    if (first < set->count && set->list[first].from <= stretch.from && set->list[first].to >= stretch.to)
        return WAS_TAKEN;
    for (; end < set->count && set->list[end].from <= stretch.to; end++) {
        stretch.from = set->list[end].from < stretch.from ? set->list[end].from : stretch.from;
        stretch.to = set->list[end].to > stretch.to ? set->list[end].to : stretch.to;
    }
    if (end == first && !make_room(set))
        return NO_MEMORY;
    if (end != first + 1) {
        tree->looked_at += (set->count - end) / MOVED_A_LOOK;
        memmove(set->list + first + 1, set->list + end, (set->count - end) * sizeof *set->list);
    }
    set->count = set->count + 1 - (end - first);
    set->list[first] = stretch;
    BERTH_DCHECK(set->count <= set->room && is_apart(set, first),
                 "[L11] stretches are in order, and those that touch are one");
    return TAKEN;
}

/* At one of the nodes a life is made of, and above it until a node knows already. */
static bool take_at(berth__gaptree *tree, uint32_t node, berth__stretch stretch)
{
    if (take(tree, &tree->whole[node], stretch) == NO_MEMORY)
        return false;
    for (; node > 0; node /= 2) {
        const taking taken = take(tree, &tree->any[node], stretch);
        tree->looked_at++;
        if (taken != TAKEN)
            return taken == WAS_TAKEN;
    }
    return true;
}

bool berth__gaptree_take(berth__gaptree *tree, uint32_t item, uint64_t offset)
{
    const berth__prepared *p = tree->prepared;
    BERTH_DCHECK(offset == berth__item_align(p, item, offset) || berth__item_fixed(p, item) == offset,
                 "[L2] an offset keeps its alignment");
    BERTH_DCHECK(offset <= INT64_MAX && p->size[item] <= INT64_MAX - offset,
                 "[L3] what is placed ends within 63 bits");
    for (uint32_t k = berth__piece_begin(p, item); k < berth__piece_end(p, item); k++) {
        BERTH_DCHECK(p->piece_lower[k] < p->piece_upper[k] && p->piece_upper[k] <= p->column_count,
                     "[L7] a piece lives within the columns");
        const berth__stretch stretch = {offset, offset + p->piece_size[k]};
        uint32_t left = p->piece_lower[k] + tree->leaves, right = p->piece_upper[k] + tree->leaves;
        for (; left < right; left /= 2, right /= 2) {
            if ((left & 1) && !take_at(tree, left++, stretch))
                return false;
            if ((right & 1) && !take_at(tree, --right, stretch))
                return false;
        }
    }
    return true;
}

/* ---- Finding ------------------------------------------------------------------------------------- */

/* Below this a piece has no room: the highest end of a stretch that begins at 0. */
static uint64_t raise_floor(uint64_t floor, const berth__stretches *set)
{
    return set->count && set->list[0].from <= floor && set->list[0].to > floor ? set->list[0].to : floor;
}

/* Adds what a set forbids a piece of `size`, from `floor` up. */
static bool forbid(berth__gaptree *tree, const berth__stretches *set, uint64_t floor, uint64_t size)
{
    const uint32_t first = first_reaching(set, floor + 1);
    const size_t needed = (size_t)tree->found_count + (set->count - first);
    if (needed > tree->found_room) {
        berth__stretch *found = berth__heap_realloc(tree->found, 4 * needed * sizeof *found);
        if (!found)
            return false;
        tree->found = found;
        tree->found_room = (uint32_t)(2 * needed);
    }
    for (uint32_t k = first; k < set->count; k++) {
        const berth__stretch *s = &set->list[k];
        tree->found[tree->found_count++] = (berth__stretch){s->from >= size ? s->from - size + 1 : 0, s->to};
    }
    tree->looked_at += 1 + set->count - first;
    BERTH_DCHECK(tree->found_count <= tree->found_room, "[L11] there is room for what is found");
    return true;
}

/* What is in the way of a piece: `any` of the nodes it is made of, `whole` of those above its borders. Some of
 * the latter lie inside the former and say nothing new. */
static bool forbid_piece(berth__gaptree *tree, uint32_t piece)
{
    const berth__prepared *p = tree->prepared;
    const uint32_t from = p->piece_lower[piece] + tree->leaves, to = p->piece_upper[piece] + tree->leaves;
    BERTH_DCHECK(from < to && to <= 2 * tree->leaves, "[L7] a piece lives within the columns");
    uint64_t floor = 0;
    for (uint32_t left = from, right = to; left < right; left /= 2, right /= 2) {
        if (left & 1)
            floor = raise_floor(floor, &tree->any[left++]);
        if (right & 1)
            floor = raise_floor(floor, &tree->any[--right]);
    }
    if (floor > 0) {
        const berth__stretches solid = {.list = &(berth__stretch){0, floor}, .count = 1};
        if (!forbid(tree, &solid, 0, p->piece_size[piece]))
            return false;
    }
    for (uint32_t left = from, right = to; left < right; left /= 2, right /= 2) {
        if ((left & 1) && !forbid(tree, &tree->any[left++], floor, p->piece_size[piece]))
            return false;
        if ((right & 1) && !forbid(tree, &tree->any[--right], floor, p->piece_size[piece]))
            return false;
    }
    for (uint32_t left = from / 2, right = (to - 1) / 2; left > 0; left /= 2, right /= 2)
        if (!forbid(tree, &tree->whole[left], floor, p->piece_size[piece]) ||
            (right != left && !forbid(tree, &tree->whole[right], floor, p->piece_size[piece])))
            return false;
    return true;
}

/* Runs of the sets are in order already: a merge sort from the runs that are there takes a few passes. */
static void sort_found(berth__gaptree *tree)
{
    const uint32_t count = tree->found_count;
    if (!count)
        return; /* there may be no array yet */
    berth__stretch *from = tree->found, *to = tree->found + tree->found_room;
    for (bool sorted = false; !sorted;) {
        sorted = true;
        for (uint32_t first = 0; first < count;) {
            uint32_t middle = first + 1, end;
            while (middle < count && from[middle - 1].from <= from[middle].from)
                middle++;
            for (end = middle + (middle < count); end < count && from[end - 1].from <= from[end].from;)
                end++;
            sorted = sorted && first == 0 && end == count;
            for (uint32_t a = first, b = middle, k = first; k < end; k++)
                to[k] = b == end || (a < middle && from[a].from <= from[b].from) ? from[a++] : from[b++];
            first = end;
        }
        berth__stretch *held = from;
        from = to;
        to = held;
    }
    if (from != tree->found)
        memcpy(tree->found, from, count * sizeof *from);
}

#ifndef NDEBUG
/* Whether what was found is in order and forbids `offset` nowhere; of many, the first few are asked. */
static bool found_spares(const berth__gaptree *tree, uint64_t offset)
{
    for (uint32_t k = 0; k < tree->found_count && k < 64; k++)
        if ((tree->found[k].from <= offset && offset < tree->found[k].to) ||
            (k > 0 && tree->found[k - 1].from > tree->found[k].from))
            return false;
    return true;
}
#endif

bool berth__gaptree_find(berth__gaptree *tree, uint32_t item, uint64_t capacity, bool is_tight,
                         uint64_t *offset)
{
    const berth__prepared *p = tree->prepared;
    *offset = BERTH_NO_OFFSET;
    if (p->size[item] > capacity)
        return true;
    tree->found_count = 0;
    for (uint32_t k = berth__piece_begin(p, item); k < berth__piece_end(p, item); k++)
        if (!forbid_piece(tree, k))
            return false;
    sort_found(tree);
    const uint64_t last = capacity - p->size[item]; /* where it may begin at most */
    uint64_t at = 0, tightest = UINT64_MAX;
    for (uint32_t k = 0; k <= tree->found_count; k++) {
        const uint64_t start = berth__item_align(p, item, at);
        const bool is_free = k == tree->found_count || tree->found[k].from > last;
        const uint64_t end = is_free ? last + 1 : tree->found[k].from;
        if (start > last)
            break;
        if (end > start && end - start < tightest) {
            tightest = is_tight ? end - start : 0;
            *offset = start;
        }
        if (k < tree->found_count && tree->found[k].to > at)
            at = tree->found[k].to;
    }
    BERTH_DCHECK(*offset == BERTH_NO_OFFSET ||
                     (*offset <= last && *offset == berth__item_align(p, item, *offset)),
                 "[L14] a place is below the capacity, and aligned");
    BERTH_DCHECK(found_spares(tree, *offset), "[L14] a place overlaps nothing that is taken");
    return true;
}
