/* Looks for orders that hold little at once: exactly where there are few sets of steps to look at, else by keeping good beginnings
 * and by mending the fullest stretch again and again.
 *
 * Exactly: what is there after some steps depends on which they are, not on their order. So orders are paths over sets of steps, and the best
 * is a path whose fullest step is least (Dijkstra's search with the maximum in place of the sum). A step that is free (order_free_step) is
 * taken at once, which leaves few sets of a model to look at. */
#include <stdlib.h>
#include <string.h>

#include "format/order.h"

enum { MOST_EFFECTS = 30000000, LARGEST_EXACT = 1024, MOST_STATES = 1 << 18 };
enum { WINDOW_STATES = 1 << 14, MOST_ROUNDS = 400, LARGEST_BEAM = 50000 };

typedef struct node {
    uint64_t peak, live, hash;
    uint32_t parent, step, count;
    bool closed;
} node;

typedef struct search {
    const order_graph *g;
    size_t words;
    uint64_t bound; /* no order takes less */
    node *nodes;
    uint64_t *bits; /* two sets a node: done, ready */
    size_t count, room;
    uint32_t *table; /* by hash: a node, ORDER_NONE where empty */
    size_t table_room;
    struct entry {
        uint64_t peak;
        uint32_t count, node;
    } * heap; /* a node may be in it twice; the better entry comes first */
    size_t heap_count, heap_room;
    uint64_t *spare; /* bits of a set that is being made */
    uint64_t effects;
} search;

static bool search_init(search *s, const order_graph *g, size_t states)
{
    *s =
        (search){.g = g, .words = ((size_t)g->step_count + 63) / 64, .room = states, .heap_room = 2 * states};
    s->bound = order_bound(g);
    for (s->table_room = 64; s->table_room < 2 * states;)
        s->table_room *= 2;
    s->nodes = malloc(states * sizeof *s->nodes);
    s->bits = malloc(states * 2 * s->words * sizeof *s->bits);
    s->table = malloc(s->table_room * sizeof *s->table);
    s->heap = malloc(s->heap_room * sizeof *s->heap);
    s->spare = calloc(2 * s->words, sizeof *s->spare);
    if (!s->nodes || !s->bits || !s->table || !s->heap || !s->spare)
        return false;
    memset(s->table, 0xff, s->table_room * sizeof *s->table);
    return true;
}

static void search_finish(search *s)
{
    free(s->nodes);
    free(s->bits);
    free(s->table);
    free(s->heap);
    free(s->spare);
}

static bool entry_before(const struct entry *a, const struct entry *b)
{
    return a->peak != b->peak ? a->peak < b->peak : a->count > b->count;
}

static bool heap_push(search *s, uint32_t index)
{
    if (s->heap_count == s->heap_room)
        return false;
    size_t at = s->heap_count++;
    const struct entry e = {s->nodes[index].peak, s->nodes[index].count, index};
    for (; at && entry_before(&e, &s->heap[(at - 1) / 2]); at = (at - 1) / 2)
        s->heap[at] = s->heap[(at - 1) / 2];
    s->heap[at] = e;
    return true;
}

static uint32_t heap_pop(search *s)
{
    const uint32_t top = s->heap[0].node;
    const struct entry e = s->heap[--s->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= s->heap_count)
            break;
        if (child + 1 < s->heap_count && entry_before(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!entry_before(&s->heap[child], &e))
            break;
        s->heap[at] = s->heap[child];
        at = child;
    }
    s->heap[at] = e;
    return top;
}

/* Takes every step that is free; their hashes go into *hash, they themselves into `order` (NULL: not wanted). */
static void take_free(search *s, order_set *set, uint64_t *hash, uint32_t *order)
{
    for (uint32_t step; (step = order_free_step(s->g, set, &s->effects)) != ORDER_NONE;) {
        if (order)
            order[set->count] = step;
        order_take(s->g, set, step);
        *hash ^= order_hash(step);
    }
}

/* Notes the set, unless it is there with no more taken. False: no room. */
static bool search_note(search *s, const order_set *set, uint64_t hash, uint32_t parent, uint32_t step)
{
    size_t at = (size_t)hash & (s->table_room - 1);
    for (; s->table[at] != ORDER_NONE; at = (at + 1) & (s->table_room - 1)) {
        node *n = &s->nodes[s->table[at]];
        if (n->hash != hash || memcmp(s->bits + s->table[at] * 2 * s->words, set->done, s->words * 8) != 0)
            continue;
        if (n->closed || n->peak <= set->peak)
            return true;
        n->peak = set->peak;
        n->parent = parent;
        n->step = step;
        return heap_push(s, s->table[at]);
    }
    if (s->count == s->room)
        return false;
    const uint32_t index = (uint32_t)s->count++;
    s->table[at] = index;
    s->nodes[index] = (node){set->peak, set->live, hash, parent, step, set->count, false};
    memcpy(s->bits + (size_t)index * 2 * s->words, set->done, 2 * s->words * 8);
    return heap_push(s, index);
}

/* The set of a node, copied to where it can be changed. */
static order_set search_copy(search *s, uint32_t index)
{
    const node *n = &s->nodes[index];
    memcpy(s->spare, s->bits + (size_t)index * 2 * s->words, 2 * s->words * 8);
    return (order_set){s->spare, s->spare + s->words, n->live, n->peak, n->count};
}

/* The beginning with nothing done but what is free. */
static order_set search_root(search *s, uint64_t *hash, uint32_t *order)
{
    memset(s->spare, 0, 2 * s->words * 8);
    order_set set = {.done = s->spare, .ready = s->spare + s->words};
    order_begin(s->g, &set);
    set.peak = s->bound > set.peak ? s->bound : set.peak;
    *hash = 0;
    take_free(s, &set, hash, order);
    return set;
}

static bool search_expand(search *s, uint32_t index, uint64_t best)
{
    const uint64_t *ready = s->bits + (size_t)index * 2 * s->words + s->words;
    for (size_t w = 0; w < s->words; w++)
        for (uint64_t left = ready[w]; left; left &= left - 1) {
            const uint32_t step = (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(left);
            const node n = s->nodes[index];
            uint64_t during, after, hash = n.hash ^ order_hash(step);
            order_effect(s->g, ready - s->words, n.live, step, &during, &after);
            s->effects++;
            if (during >= best)
                continue;
            order_set set = search_copy(s, index);
            order_take(s->g, &set, step);
            take_free(s, &set, &hash, NULL);
            if (!search_note(s, &set, hash, index, step))
                return false;
        }
    return true;
}

/* Walks from the beginning along the nodes that led to `index`. False: no memory. */
static bool search_order(search *s, uint32_t index, uint32_t *order)
{
    uint32_t *path = malloc(((size_t)s->g->step_count + 1) * sizeof *path);
    size_t length = 0;
    uint64_t hash;
    if (!path)
        return false;
    for (uint32_t at = index; s->nodes[at].parent != ORDER_NONE; at = s->nodes[at].parent)
        path[length++] = at;
    order_set set = search_root(s, &hash, order);
    while (length) {
        const uint32_t step = s->nodes[path[--length]].step;
        order[set.count] = step;
        order_take(s->g, &set, step);
        take_free(s, &set, &hash, order);
    }
    free(path);
    return true;
}

static order_answer search_run(search *s, uint64_t best, uint32_t *order)
{
    uint64_t hash;
    order_set root = search_root(s, &hash, NULL);
    if (root.peak >= best)
        return ORDER_NO_BETTER;
    if (!search_note(s, &root, hash, ORDER_NONE, ORDER_NONE))
        return ORDER_UNKNOWN;
    while (s->heap_count) {
        const uint32_t index = heap_pop(s);
        if (s->nodes[index].closed)
            continue;
        s->nodes[index].closed = true;
        if (s->nodes[index].count == s->g->step_count)
            return search_order(s, index, order) ? ORDER_BETTER : ORDER_NO_MEMORY;
        if (!search_expand(s, index, best) || s->effects > MOST_EFFECTS)
            return ORDER_UNKNOWN;
    }
    return ORDER_NO_BETTER;
}

order_answer order_exact(const order_graph *g, uint64_t best, size_t states, uint32_t *order)
{
    search s;
    order_answer answer = search_init(&s, g, states) ? search_run(&s, best, order) : ORDER_NO_MEMORY;
    search_finish(&s);
    return answer;
}

/* ---- Keeping the best beginnings ---------------------------------------------------------------------- */

typedef struct candidate {
    uint64_t peak, live, hash;
    uint32_t from, step;
} candidate;

typedef struct beam {
    const order_graph *g;
    size_t words;
    uint32_t width;
    uint64_t *bits[2]; /* of the beginnings, and of those that are being made */
    order_set *sets[2];
    uint64_t *hashes[2];
    candidate *candidates; /* the best so far, in order, at most width */
    uint32_t candidate_count;
    struct trail {
        uint32_t from, step;
    } * trail; /* by length and place: which beginning it goes on from */
    uint64_t effects;
} beam;

static bool beam_init(beam *b, const order_graph *g, uint32_t width)
{
    *b = (beam){.g = g, .words = ((size_t)g->step_count + 63) / 64, .width = width};
    bool fine = true;
    for (int k = 0; k < 2; k++) {
        b->bits[k] = calloc(2 * b->words * width, sizeof *b->bits[k]);
        b->sets[k] = calloc(width, sizeof *b->sets[k]);
        b->hashes[k] = calloc(width, sizeof *b->hashes[k]);
        fine = fine && b->bits[k] && b->sets[k] && b->hashes[k];
    }
    b->candidates = malloc(((size_t)width + 1) * sizeof *b->candidates);
    b->trail = malloc(((size_t)g->step_count + 1) * width * sizeof *b->trail);
    return fine && b->candidates && b->trail;
}

static void beam_finish(beam *b)
{
    for (int k = 0; k < 2; k++) {
        free(b->bits[k]);
        free(b->sets[k]);
        free(b->hashes[k]);
    }
    free(b->candidates);
    free(b->trail);
}

static bool candidate_before(const candidate *a, const candidate *b)
{
    if (a->peak != b->peak)
        return a->peak < b->peak;
    return a->live != b->live ? a->live < b->live : a->hash < b->hash;
}

static void beam_offer(beam *b, candidate c)
{
    uint32_t at = b->candidate_count;
    for (uint32_t i = 0; i < b->candidate_count; i++)
        if (b->candidates[i].hash == c.hash) {
            if (!candidate_before(&c, &b->candidates[i]))
                return;
            memmove(b->candidates + i, b->candidates + i + 1, (--b->candidate_count - i) * sizeof c);
            at = b->candidate_count;
            break;
        }
    while (at && candidate_before(&c, &b->candidates[at - 1]))
        at--;
    if (at == b->width)
        return;
    memmove(b->candidates + at + 1, b->candidates + at, (b->candidate_count - at) * sizeof c);
    b->candidates[at] = c;
    b->candidate_count += b->candidate_count < b->width;
}

/* Every way in which one beginning can go on; one that is free stands for all. */
static void beam_continue(beam *b, const order_set *set, uint64_t hash, uint32_t from)
{
    const uint32_t forced = order_free_step(b->g, set, &b->effects);
    for (size_t w = 0; w < b->words; w++)
        for (uint64_t left = set->ready[w]; left; left &= left - 1) {
            const uint32_t step = (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(left);
            uint64_t during, after;
            if (forced != ORDER_NONE && step != forced)
                continue;
            order_effect(b->g, set->done, set->live, step, &during, &after);
            b->effects++;
            beam_offer(b, (candidate){during > set->peak ? during : set->peak, after, hash ^ order_hash(step),
                                      from, step});
        }
}

static void beam_advance(beam *b, int now, uint32_t length)
{
    for (uint32_t i = 0; i < b->candidate_count; i++) {
        const candidate *c = &b->candidates[i];
        uint64_t *bits = b->bits[!now] + i * 2 * b->words;
        memcpy(bits, b->bits[now] + c->from * 2 * b->words, 2 * b->words * 8);
        b->sets[!now][i] = b->sets[now][c->from];
        b->sets[!now][i].done = bits;
        b->sets[!now][i].ready = bits + b->words;
        order_take(b->g, &b->sets[!now][i], c->step);
        b->hashes[!now][i] = c->hash;
        b->trail[(size_t)length * b->width + i] = (struct trail){c->from, c->step};
    }
}

static order_answer beam_run(beam *b, uint64_t best, uint32_t *order)
{
    uint32_t live = 1;
    int now = 0;
    b->sets[0][0] = (order_set){.done = b->bits[0], .ready = b->bits[0] + b->words};
    order_begin(b->g, &b->sets[0][0]);
    for (uint32_t length = 0; length < b->g->step_count; length++) {
        b->candidate_count = 0;
        for (uint32_t i = 0; i < live; i++)
            beam_continue(b, &b->sets[now][i], b->hashes[now][i], i);
        if (!b->candidate_count || b->candidates[0].peak >= best || b->effects > MOST_EFFECTS)
            return ORDER_UNKNOWN;
        beam_advance(b, now, length);
        live = b->candidate_count;
        now = !now;
    }
    for (uint32_t length = b->g->step_count, at = 0; length-- > 0;) {
        const struct trail *t = &b->trail[(size_t)length * b->width + at];
        order[length] = t->step;
        at = t->from;
    }
    return ORDER_BETTER;
}

order_answer order_beam(const order_graph *g, uint64_t best, uint32_t width, uint32_t *order)
{
    beam b;
    order_answer answer = beam_init(&b, g, width) ? beam_run(&b, best, order) : ORDER_NO_MEMORY;
    beam_finish(&b);
    return answer;
}

/* ---- Mending the fullest stretch ---------------------------------------------------------------------- */

/* A stretch of an order as a graph of its own. */
typedef struct stretch {
    const order_graph *g;
    const uint32_t *order;
    uint32_t from, to;
    uint32_t *place;      /* by step: its place in the order */
    uint32_t *thing_of;   /* by thing: its number in the stretch, ORDER_NONE */
    order_pair *pairs[5]; /* touch, touched, made, before, following */
    size_t counts[5], rooms[5];
    order_graph part;
} stretch;

static bool stretch_pair(stretch *s, int list, uint32_t at, uint32_t item)
{
    if (s->counts[list] == s->rooms[list]) {
        const size_t room = s->rooms[list] ? 2 * s->rooms[list] : 64;
        order_pair *larger = realloc(s->pairs[list], room * sizeof *larger);
        if (!larger)
            return false;
        s->pairs[list] = larger;
        s->rooms[list] = room;
    }
    s->pairs[list][s->counts[list]++] = (order_pair){at, item};
    return true;
}

static bool stretch_has(const stretch *s, uint32_t step)
{
    return s->place[step] >= s->from && s->place[step] < s->to;
}

/* A thing that the stretch touches: is it there before it, does it stay after it? */
static bool stretch_thing(stretch *s, uint32_t thing, uint32_t number)
{
    const order_graph *g = s->g;
    bool fine = true;
    s->part.size[number] = g->size[thing];
    s->part.initial[number] = g->initial[thing];
    s->part.kept[number] = g->kept[thing];
    for (uint32_t k = g->made.first[thing]; k < g->made.first[thing + 1]; k++) {
        const uint32_t step = g->made.items[k];
        s->part.initial[number] |= s->place[step] < s->from;
        if (stretch_has(s, step))
            fine = stretch_pair(s, 2, number, s->place[step] - s->from) && fine;
    }
    for (uint32_t k = g->touched.first[thing]; k < g->touched.first[thing + 1]; k++) {
        const uint32_t step = g->touched.items[k];
        s->part.kept[number] |= s->place[step] >= s->to;
        if (stretch_has(s, step))
            fine = stretch_pair(s, 0, s->place[step] - s->from, number) &&
                   stretch_pair(s, 1, number, s->place[step] - s->from) && fine;
    }
    return fine;
}

/* What is there before the stretch. */
static uint64_t stretch_live(const stretch *s)
{
    const order_graph *g = s->g;
    uint64_t live = g->base;
    for (uint32_t thing = 0; thing < g->thing_count; thing++) {
        bool there = g->initial[thing], needed = g->kept[thing];
        for (uint32_t k = g->made.first[thing]; k < g->made.first[thing + 1]; k++)
            there |= s->place[g->made.items[k]] < s->from;
        for (uint32_t k = g->touched.first[thing]; k < g->touched.first[thing + 1] && there; k++)
            needed |= s->place[g->touched.items[k]] >= s->from;
        live += there && needed ? g->size[thing] : 0;
    }
    return live;
}

static bool stretch_steps(stretch *s)
{
    const order_graph *g = s->g;
    bool fine = true;
    for (uint32_t i = s->from; i < s->to; i++) {
        const uint32_t step = s->order[i];
        s->part.work[i - s->from] = g->work[step];
        if (g->over[step] != ORDER_NONE)
            s->part.over[i - s->from] = s->thing_of[g->over[step]];
        for (uint32_t k = g->before.first[step]; k < g->before.first[step + 1]; k++)
            if (stretch_has(s, g->before.items[k]))
                fine = stretch_pair(s, 3, i - s->from, s->place[g->before.items[k]] - s->from) &&
                       stretch_pair(s, 4, s->place[g->before.items[k]] - s->from, i - s->from) && fine;
    }
    return fine;
}

static bool stretch_make(stretch *s)
{
    const order_graph *g = s->g;
    uint32_t things = 0;
    memset(s->thing_of, 0xff, g->thing_count * sizeof *s->thing_of);
    for (uint32_t i = s->from; i < s->to; i++)
        for (uint32_t k = g->touch.first[s->order[i]]; k < g->touch.first[s->order[i] + 1]; k++)
            if (s->thing_of[g->touch.items[k]] == ORDER_NONE)
                s->thing_of[g->touch.items[k]] = things++;
    if (!order_graph_init(&s->part, s->to - s->from, things))
        return false;
    bool fine = true;
    uint64_t inside = 0;
    for (uint32_t thing = 0; thing < g->thing_count && fine; thing++)
        if (s->thing_of[thing] != ORDER_NONE) {
            fine = stretch_thing(s, thing, s->thing_of[thing]);
            inside += s->part.initial[s->thing_of[thing]] ? g->size[thing] : 0;
        }
    s->part.base = stretch_live(s) - inside;
    fine = fine && stretch_steps(s);
    order_lists *lists[5] = {&s->part.touch, &s->part.touched, &s->part.made, &s->part.before,
                             &s->part.following};
    for (int k = 0; k < 5 && fine; k++)
        fine = order_lists_make(lists[k], k == 1 || k == 2 ? things : s->part.step_count, s->pairs[k],
                                s->counts[k]);
    return fine;
}

/* Puts the stretch into a better order, if there is one. */
static order_answer stretch_mend(const order_graph *g, uint32_t *order, uint32_t from, uint32_t to,
                                 uint64_t best)
{
    stretch s = {.g = g, .order = order, .from = from, .to = to};
    uint32_t better[64], old[64];
    s.place = malloc(((size_t)g->step_count + 1) * sizeof *s.place);
    s.thing_of = malloc(((size_t)g->thing_count + 1) * sizeof *s.thing_of);
    order_answer answer = ORDER_NO_MEMORY;
    if (s.place && s.thing_of) {
        for (uint32_t i = 0; i < g->step_count; i++)
            s.place[order[i]] = i;
        if (stretch_make(&s))
            answer = order_exact(&s.part, best, WINDOW_STATES, better);
    }
    if (answer == ORDER_BETTER) {
        memcpy(old, order + from, (to - from) * sizeof *old);
        for (uint32_t i = 0; i < to - from; i++)
            order[from + i] = old[better[i]];
    }
    order_graph_finish(&s.part);
    for (int k = 0; k < 5; k++)
        free(s.pairs[k]);
    free(s.place);
    free(s.thing_of);
    return answer;
}

/* Mends around the fullest step for as long as that helps. */
static bool order_mend(const order_graph *g, uint32_t *order)
{
    static const uint32_t widths[] = {12, 24, 40, 64};
    uint64_t *during = malloc(((size_t)g->step_count + 1) * sizeof *during);
    order_answer answer = during ? ORDER_BETTER : ORDER_NO_MEMORY;
    for (int round = 0; answer == ORDER_BETTER && round < MOST_ROUNDS; round++) {
        const uint64_t best = order_peak(g, order, during);
        uint32_t fullest = 0;
        while (fullest < g->step_count && during[fullest] < best)
            fullest++;
        answer = ORDER_UNKNOWN;
        for (size_t k = 0; k < 4 && fullest < g->step_count && answer != ORDER_BETTER; k++) {
            const uint32_t half = widths[k] / 2, from = fullest > half ? fullest - half : 0;
            const uint32_t to = from + widths[k] < g->step_count ? from + widths[k] : g->step_count;
            answer = stretch_mend(g, order, from, to, best);
        }
    }
    free(during);
    return answer != ORDER_NO_MEMORY;
}

/* Takes the candidate if it is better. */
static void keep_better(const order_graph *g, uint32_t *order, const uint32_t *other, uint64_t *best)
{
    const uint64_t peak = order_peak(g, other, NULL);
    if (peak >= *best)
        return;
    memcpy(order, other, g->step_count * sizeof *order);
    *best = peak;
}

bool order_improve(const order_graph *g, uint32_t *order, bool *exact)
{
    static const uint32_t widths[] = {1, 8, 64};
    const uint64_t bound = order_bound(g);
    uint64_t best = order_peak(g, order, NULL);
    uint32_t *other = malloc(((size_t)g->step_count + 1) * sizeof *other);
    bool fine = other != NULL;
    *exact = fine && best <= bound;
    for (size_t k = 0; k < 3 && fine && best > bound && g->step_count <= LARGEST_BEAM; k++) {
        const order_answer answer = order_beam(g, best, widths[k], other);
        if (answer == ORDER_BETTER)
            keep_better(g, order, other, &best);
        fine = answer != ORDER_NO_MEMORY;
    }
    if (fine && best > bound) {
        memcpy(other, order, g->step_count * sizeof *other);
        fine = order_mend(g, other);
        keep_better(g, order, other, &best);
    }
    if (fine && best > bound && g->step_count <= LARGEST_EXACT) {
        const order_answer answer = order_exact(g, best, MOST_STATES, other);
        if (answer == ORDER_BETTER)
            keep_better(g, order, other, &best);
        *exact = answer == ORDER_BETTER || answer == ORDER_NO_BETTER;
        fine = answer != ORDER_NO_MEMORY;
    } else if (fine)
        *exact = best <= bound;
    free(other);
    return fine;
}
