/* Gaps and alias groups of a problem, taken apart into pieces that are simply there or not. */
#include <stdlib.h>

#include "format/problem.h"

static bool pieces_add(problem_pieces *pieces, int64_t lower, int64_t upper, size_t buffer)
{
    if (pieces->count == pieces->room) {
        const size_t room = pieces->room ? 2 * pieces->room : 256;
        problem_piece *larger = realloc(pieces->items, room * sizeof *larger);
        if (!larger)
            return false;
        pieces->items = larger;
        pieces->room = room;
    }
    pieces->items[pieces->count++] = (problem_piece){lower, upper, buffer};
    return true;
}

/* A life without its gaps. */
static bool pieces_of_life(problem_pieces *pieces, const berth_problem *problem, size_t buffer)
{
    const berth_problem_buffer *b = &problem->buffers[buffer];
    int64_t at = b->lower;
    bool fine = true;
    for (uint32_t g = 0; g < b->gap_count && fine; g++) {
        const berth_gap *gap = &problem->gaps[b->gap_first + g];
        if (gap->lower > at)
            fine = pieces_add(pieces, at, gap->lower, buffer);
        at = gap->upper;
    }
    return fine && (b->upper <= at || pieces_add(pieces, at, b->upper, buffer));
}

/* ---- Alias groups --------------------------------------------------------------------------------------- */

/* One group's pieces in the order of their begins, and those that are there now: a heap, the one to hold the place on top. */
typedef struct group {
    const berth_problem *problem;
    const problem_piece *items;
    size_t *heap, heap_count;
} group;

static bool goes_before(const group *g, size_t a, size_t b)
{
    const uint64_t x = g->problem->buffers[g->items[a].buffer].size_bytes;
    const uint64_t y = g->problem->buffers[g->items[b].buffer].size_bytes;
    return x != y ? x > y : a < b;
}

static void heap_sink(group *g, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < g->heap_count; at = child) {
        if (child + 1 < g->heap_count && goes_before(g, g->heap[child + 1], g->heap[child]))
            child++;
        if (!goes_before(g, g->heap[child], g->heap[at]))
            return;
        const size_t moved = g->heap[at];
        g->heap[at] = g->heap[child];
        g->heap[child] = moved;
    }
}

static void heap_add(group *g, size_t item)
{
    size_t at = g->heap_count++;
    for (; at && goes_before(g, item, g->heap[(at - 1) / 2]); at = (at - 1) / 2)
        g->heap[at] = g->heap[(at - 1) / 2];
    g->heap[at] = item;
}

/* Whoever holds the place keeps it until it ends or a larger one comes. */
static bool group_hold(problem_pieces *out, group *g, size_t count)
{
    bool fine = true;
    size_t next = 0;
    for (int64_t now = 0; fine && (next < count || g->heap_count);) {
        if (!g->heap_count)
            now = g->items[next].lower;
        while (next < count && g->items[next].lower <= now)
            heap_add(g, next++);
        const problem_piece *holder = &g->items[g->heap[0]];
        int64_t until = holder->upper;
        if (until > now && next < count && g->items[next].lower < until)
            until = g->items[next].lower;
        if (until > now) {
            problem_piece *last = out->count ? &out->items[out->count - 1] : NULL;
            if (last && last->buffer == holder->buffer && last->upper == now)
                last->upper = until;
            else
                fine = pieces_add(out, now, until, holder->buffer);
            now = until;
        }
        while (g->heap_count && g->items[g->heap[0]].upper <= now) {
            g->heap[0] = g->heap[--g->heap_count];
            heap_sink(g, 0);
        }
    }
    return fine;
}

static int compare_begins(const void *a, const void *b, void *context)
{
    const berth_problem *problem = context;
    const problem_piece *x = a, *y = b;
    const uint32_t gx = problem->buffers[x->buffer].alias_group, gy = problem->buffers[y->buffer].alias_group;
    if (gx != gy)
        return gx < gy ? -1 : 1;
    if (x->lower != y->lower)
        return x->lower < y->lower ? -1 : 1;
    return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

/* `all`: the pieces of every buffer that shares its place. */
static bool groups_hold(problem_pieces *out, const berth_problem *problem, problem_pieces *all)
{
    size_t *heap = malloc((all->count + 1) * sizeof *heap);
    bool fine = heap != NULL;
    if (all->count)
        qsort_r(all->items, all->count, sizeof *all->items, compare_begins, (void *)(uintptr_t)problem);
    for (size_t from = 0, to; fine && from < all->count; from = to) {
        const uint32_t own = problem->buffers[all->items[from].buffer].alias_group;
        for (to = from; to < all->count && problem->buffers[all->items[to].buffer].alias_group == own;)
            to++;
        group g = {.problem = problem, .items = all->items + from, .heap = heap};
        fine = group_hold(out, &g, to - from);
    }
    free(heap);
    return fine;
}

bool problem_pieces_make(problem_pieces *pieces, const berth_problem *problem)
{
    problem_pieces shared = {0};
    bool fine = true;
    *pieces = (problem_pieces){0};
    for (size_t i = 0; i < problem->buffer_count && fine; i++)
        if (problem->buffers[i].size_bytes)
            fine = pieces_of_life(problem->buffers[i].alias_group ? &shared : pieces, problem, i);
    fine = fine && groups_hold(pieces, problem, &shared);
    problem_pieces_finish(&shared);
    return fine;
}

void problem_pieces_finish(problem_pieces *pieces)
{
    free(pieces->items);
    *pieces = (problem_pieces){0};
}
