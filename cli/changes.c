/* The search for changes that lower a peak. */
#include "cli/changes.h"

#include <stdio.h>
#include <stdlib.h>

/* How many groups are tried at a step: a bound takes a walk over all events. */
enum { TRIED = 12, ABOUT = 64 };

struct candidate {
    uint64_t bytes; /* alive at the peak: no change of the group gains more */
    uint32_t group;
};

struct candidates {
    struct candidate items[TRIED];
    uint32_t count;
};

/* Keeps the TRIED largest, in order. */
static void candidates_add(struct candidates *c, uint64_t bytes, uint32_t group)
{
    if (!bytes || (c->count == TRIED && c->items[TRIED - 1].bytes >= bytes))
        return;
    uint32_t at = c->count < TRIED ? c->count++ : TRIED - 1;
    for (; at > 0 && c->items[at - 1].bytes < bytes; at--)
        c->items[at] = c->items[at - 1];
    c->items[at] = (struct candidate){bytes, group};
}

/* The groups alive at the peak that were not changed yet. */
static struct candidates candidates_find(const lives *l)
{
    struct candidates c = {.count = 0};
    for (uint32_t g = 0; g < l->group_count; g++)
        if (l->changes[g].kind == LIVES_AS_IS)
            candidates_add(&c, lives_group_bytes(l, g, l->peak_state), g);
    return c;
}

/* What the program does without at the peak; a block that is made again costs all of it. */
static uint64_t cost_of(const lives *l, const lives_change *change, uint64_t bytes)
{
    if (change->kind == LIVES_FREE_PREVIOUS)
        return 0; /* nobody has missed it since */
    if (change->kind == LIVES_SHRINK)
        return bytes - (uint64_t)((double)bytes * change->scale / LIVES_WHOLE);
    if (change->kind == LIVES_FREE_HALFWAY || change->kind == LIVES_FREE_EARLY)
        return bytes;
    uint64_t sum = 0;
    for (uint32_t i = l->first[change->group]; i < l->first[change->group + 1]; i++)
        sum += l->items[i].size_bytes;
    return sum;
}

/* Whether a change of this kind is one to think of. */
static bool is_sensible(const lives *l, lives_kind kind, uint32_t group)
{
    if (kind == LIVES_FREE_PREVIOUS)
        return !l->knows_use && lives_grows(l, group, l->peak_state);
    return !l->knows_use || (kind != LIVES_FREE_HALFWAY && kind != LIVES_FREE_EARLY);
}

/* Every kind of change of a group; the best comes out, the milder one of two that gain about the same. */
static changes_one try_group(lives *l, const struct candidate *c)
{
    changes_one best = {.bound_bytes = UINT64_MAX};
    for (int kind = LIVES_AS_IS; kind < LIVES_KINDS; kind++)
        best.bounds[kind] = UINT64_MAX;
    for (int kind = LIVES_FREE_PREVIOUS; kind <= LIVES_RECOMPUTE; kind++) {
        if (!is_sensible(l, (lives_kind)kind, c->group))
            continue;
        lives_change change = {c->group, (lives_kind)kind,
                               kind == LIVES_SHRINK ? LIVES_WHOLE / 2 : LIVES_WHOLE};
        best.bounds[kind] = lives_bound(l, &change);
        if (best.bound_bytes == UINT64_MAX || best.bounds[kind] + c->bytes / ABOUT < best.bound_bytes) {
            best.bound_bytes = best.bounds[kind];
            best.change = change;
        }
    }
    best.cost_bytes = cost_of(l, &best.change, c->bytes);
    return best;
}

/* Takes back every step without which it fits too, and counts the bounds of those that stay anew. */
static void steps_thin(lives *l, uint64_t limit, changes *out)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < out->count; i++) {
        lives_change none = {.group = out->items[i].change.group};
        if (lives_bound(l, &none) <= limit)
            lives_change_set(l, &none);
        else
            out->items[kept++] = out->items[i];
    }
    if (kept == out->count)
        return;
    out->count = kept;
    lives_change_clear(l);
    for (uint32_t i = 0; i < kept; i++) {
        for (int kind = LIVES_FREE_PREVIOUS; kind <= LIVES_RECOMPUTE; kind++) {
            lives_change change = {out->items[i].change.group, (lives_kind)kind, LIVES_WHOLE / 2};
            if (out->items[i].bounds[kind] != UINT64_MAX)
                out->items[i].bounds[kind] = lives_bound(l, &change);
        }
        lives_change_set(l, &out->items[i].change);
        out->items[i].bound_bytes = l->peak_bytes;
    }
}

void changes_steps(lives *l, uint64_t limit, changes *out)
{
    out->count = 0;
    while (out->count < CHANGES_MOST && l->peak_bytes > limit) {
        struct candidates c = candidates_find(l);
        changes_one best = {.bound_bytes = l->peak_bytes};
        for (uint32_t i = 0; i < c.count && c.items[i].bytes > l->peak_bytes - best.bound_bytes; i++) {
            changes_one one = try_group(l, &c.items[i]);
            if (one.bound_bytes < best.bound_bytes)
                best = one;
        }
        if (best.bound_bytes == l->peak_bytes)
            break;
        out->items[out->count++] = best;
        lives_change_set(l, &best.change);
    }
    if (out->count > 1 && l->peak_bytes <= limit)
        steps_thin(l, limit, out);
}

/* ---- Each alone -------------------------------------------------------------------------------------- */

static void alone_add(changes *out, const changes_one *one)
{
    if (out->count == CHANGES_MOST && out->items[CHANGES_MOST - 1].cost_bytes <= one->cost_bytes)
        return;
    uint32_t at = out->count < CHANGES_MOST ? out->count++ : CHANGES_MOST - 1;
    for (; at > 0 && out->items[at - 1].cost_bytes > one->cost_bytes; at--)
        out->items[at] = out->items[at - 1];
    out->items[at] = *one;
}

static void alone_try(lives *l, const struct candidate *c, const lives_change *change, uint64_t limit,
                      changes *out)
{
    changes_one one = {.change = *change, .bound_bytes = lives_bound(l, change)};
    for (int kind = LIVES_AS_IS; kind < LIVES_KINDS; kind++)
        one.bounds[kind] = UINT64_MAX;
    one.bounds[change->kind] = one.bound_bytes;
    one.cost_bytes = cost_of(l, change, c->bytes);
    if (one.bound_bytes <= limit)
        alone_add(out, &one);
}

void changes_alone(lives *l, uint64_t limit, changes *out)
{
    struct candidates c = candidates_find(l);
    uint64_t above = l->peak_bytes > limit ? l->peak_bytes - limit : 0;
    out->count = 0;
    for (uint32_t i = 0; above && i < c.count && c.items[i].bytes >= above; i++) {
        uint32_t group = c.items[i].group;
        if (is_sensible(l, LIVES_FREE_PREVIOUS, group))
            alone_try(l, &c.items[i], &(lives_change){group, LIVES_FREE_PREVIOUS, LIVES_WHOLE}, limit, out);
        uint32_t scale = lives_scale_for(l, group, limit);
        if (scale)
            alone_try(l, &c.items[i], &(lives_change){group, LIVES_SHRINK, scale}, limit, out);
        const uint32_t longest =
            is_sensible(l, LIVES_FREE_EARLY, group) ? lives_longest_for(l, group, limit) : 0;
        if (longest)
            alone_try(l, &c.items[i], &(lives_change){group, LIVES_FREE_EARLY, longest}, limit, out);
        alone_try(l, &c.items[i], &(lives_change){group, LIVES_RECOMPUTE, LIVES_WHOLE}, limit, out);
    }
}

/* ---- Words ------------------------------------------------------------------------------------------- */

const char *changes_words(const lives *l, const lives_change *change, char text[CHANGES_WORDS])
{
    char name[HOLDERS_NAME_ROOM];
    const char *who = lives_name(l, change->group, name);
    switch (change->kind) {
    case LIVES_FREE_PREVIOUS:
        snprintf(text, CHANGES_WORDS, "free each %s when the next one is allocated", who);
        break;
    case LIVES_SHRINK:
        snprintf(text, CHANGES_WORDS, "shrink %s to %g %%", who, change->scale * 100.0 / LIVES_WHOLE);
        break;
    case LIVES_FREE_HALFWAY:
        snprintf(text, CHANGES_WORDS, "free %s after half its life", who);
        break;
    case LIVES_FREE_EARLY:
        snprintf(text, CHANGES_WORDS, "free %s after %g %% of its life", who,
                 change->scale * 100.0 / LIVES_WHOLE);
        break;
    case LIVES_RECOMPUTE:
        snprintf(text, CHANGES_WORDS, "make %s again when it is needed last, and free it between", who);
        break;
    case LIVES_AS_IS:
    case LIVES_KINDS:
        snprintf(text, CHANGES_WORDS, "leave %s as it is", who);
        break;
    }
    return text;
}

const char *changes_kind_word(lives_kind kind)
{
    static const char *const words[] = {"as_is",        "free_previous", "shrink",
                                        "free_halfway", "recompute",     "free_early"};
    return kind < LIVES_KINDS ? words[kind] : "unknown";
}
