/* What the files of the exact search share: the state of one search. See exact_search.c for the ideas. */
#ifndef BERTH_PLANNER_EXACT_EXACT_STATE_H
#define BERTH_PLANNER_EXACT_EXACT_STATE_H

#include "base/random.h"
#include "planner/exact/exact.h"

enum { EXACT_LANES = 16 };
#define EXACT_NONE UINT32_MAX

/* An unplaced item in a list: its lowest possible offset above its number, so that lists sort as integers. */
typedef uint64_t exact_entry;

static inline uint32_t entry_item(exact_entry entry)
{
    return (uint32_t)entry;
}

static inline uint32_t entry_low(exact_entry entry)
{
    return (uint32_t)(entry >> 32);
}

/* What was true of an item before a change; `has_why` says that its reason is on the stack of reasons too. */
typedef struct exact_undo {
    uint32_t item;
    uint32_t low, base, deferred_at;
    bool has_why;
    bool was_placed; /* the change was placing it, nothing else */
} exact_undo;

/* The blocks of sections an item lives in, [first_block, last_block), and where its row begins. */
typedef struct exact_span {
    uint32_t first_block, last_block, row_at;
} exact_span;

/* Where the size in `section` is in the rows of narrow or wide lanes. */
static inline size_t span_lane(const exact_span *span, uint32_t section)
{
    BERTH_DCHECK(section / EXACT_LANES >= span->first_block && section / EXACT_LANES < span->last_block,
                 "[L7] a row has the sections that its item lives in");
    return (size_t)(span->row_at + section / EXACT_LANES - span->first_block) * EXACT_LANES +
           section % EXACT_LANES;
}

/* One pass over a list, see exact_bound.c. */
typedef struct exact_pass {
    const exact_entry *list; /* ascending */
    uint32_t count;
    uint32_t first_section, last_section; /* only these sections matter */
    const exact_span *spans;              /* by item */
    const void *rows;
    void *sums, *over; /* lanes by section; all bits of `over` are set where the section does not fit */
    uint32_t capacity;
} exact_pass;

/* True if every section fits. */
typedef bool (*exact_pass_fn)(const exact_pass *pass);
exact_pass_fn berth__exact_pass(bool narrow, berth__exact_path path);

/* One level of the search: what it places, and how far it is. */
typedef enum exact_frame_state { FRAME_NEW, FRAME_PLACED, FRAME_APART } exact_frame_state;
typedef struct exact_frame {
    size_t list_mark, trail_mark; /* where its list begins, and what it has to undo */
    size_t place_mark;            /* PLACED: where placing `item` began */
    uint32_t from, to;            /* sections */
    uint32_t count;               /* of its list */
    uint32_t item;
    uint32_t next; /* APART: where the next side begins */
    exact_frame_state state;
} exact_frame;

struct berth__exact {
    const berth__prepared *prepared;
    uint32_t count, sections, words; /* words: 64-bit words in a set of items */
    uint32_t mean_life;              /* in sections */
    uint32_t capacity;

    /* The problem, by item. */
    const uint32_t *first, *last; /* sections [first, last), the hull of the pieces */
    uint32_t *size;
    uint64_t *adjacent;   /* sets: who shares a section */
    uint32_t *separation; /* NULL: size[i]. Else [i * count + j]: how far above i's offset j can start */
    uint32_t *next_equal; /* the next of those that are equal in all respects, or EXACT_NONE */
    uint32_t *pins;       /* pinned items, lowest first */
    uint32_t pin_count;
    bool has_alignment;
    bool narrow; /* lanes of 16 bits suffice */
    exact_span *spans;
    void *rows;
    void *sums, *over;
    exact_pass_fn pass;
    exact_pass_fn pass_narrow, pass_wide;

    /* The state of the search, by item. Everything here is restored by the trail. */
    uint32_t *low;         /* no solution below this has the item lower */
    uint32_t *base;        /* the highest place some placed neighbour allows: where it can rest */
    uint32_t *deferred_at; /* where placing it was tried last and failed; EXACT_NONE: never */
    uint32_t *offset;      /* of placed items */
    uint64_t *why;         /* sets: the placements from which `low` follows */
    uint64_t *placed, *unplaced;
    uint64_t *decided;  /* placed ones that are choices: all but pins */
    uint32_t *crossing; /* by section: unplaced items that also live in the next one */

    uint32_t *load;   /* by section: sizes of unplaced items */
    uint32_t *rivals; /* scratch of pick, by section; all 0 between calls */

    exact_undo *trail;
    size_t trail_count, trail_room;
    uint64_t *why_trail; /* sets */
    size_t why_count, why_room;
    exact_frame *frames; /* by level */
    uint32_t depth;
    exact_entry *lists; /* of all levels, one after another */
    size_t list_top, list_room;
    uint64_t *kept_sets;              /* by level: why the first branch failed */
    uint64_t *conflict;               /* set: why the last dead end is one */
    uint32_t dirty_first, dirty_last; /* sections in which some low has risen since the last pass */

    /* What is learned, and kept from one run to the next. */
    double *weight; /* by section: how often it was the one that did not fit */
    double weight_step;
    double *priority; /* by item, renewed at every restart */
    uint64_t random;
    uint64_t run_number; /* of restarts so far */
    uint64_t luby_index;

    uint64_t fails, fail_limit;
    berth__search *search;
    uint64_t step_limit; /* in search->steps */
    bool aborted, out_of_memory;
};

static inline uint64_t *set_of(uint64_t *sets, const berth__exact *exact, uint32_t item)
{
    BERTH_DCHECK(item < exact->count, "[L16] sets are of items");
    return sets + (size_t)item * exact->words;
}

static inline void set_add(uint64_t *set, uint32_t item)
{
    set[item / 64] |= (uint64_t)1 << (item % 64);
}

static inline void set_drop(uint64_t *set, uint32_t item)
{
    set[item / 64] &= ~((uint64_t)1 << (item % 64));
}

static inline bool set_has(const uint64_t *set, uint32_t item)
{
    return (set[item / 64] >> (item % 64)) & 1;
}

static inline void set_join(uint64_t *set, const uint64_t *other, uint32_t words)
{
    for (uint32_t w = 0; w < words; w++)
        set[w] |= other[w];
}

/* Whether all of a set is in the other. */
static inline bool set_is_within(const uint64_t *set, const uint64_t *other, uint32_t words)
{
    for (uint32_t w = 0; w < words; w++)
        if (set[w] & ~other[w])
            return false;
    return true;
}

static inline uint64_t exact_random(berth__exact *exact)
{
    return berth__random(&exact->random);
}

static inline bool exact_is_pinned(const berth__exact *x, uint32_t item)
{
    return x->pin_count && x->prepared->fixed[item] != BERTH_NO_OFFSET;
}

/* `height` up to where `item` may start: aligned and past the pins it would lie on. */
uint32_t berth__exact_normalise(const berth__exact *exact, uint32_t item, uint32_t height);

/* Places i at its low. May set `aborted`, out of memory. */
void berth__exact_place(berth__exact *exact, uint32_t i);

/* True if S* cannot have i at its low. */
bool berth__exact_is_dominated(const berth__exact *exact, uint32_t i);

/* i is not at its low, because of `failed`: its low rises. False: then it is nowhere, and `conflict` says
 * why. */
bool berth__exact_defer(berth__exact *exact, uint32_t i, const uint64_t *failed);

/* Takes all moves back that were made since the trail was that long. */
void berth__exact_undo(berth__exact *exact, size_t mark);

/* Whether sets, loads and reasons are those of what is placed [L16] [L17]. A look at every section of every item and at
 * every reason. For debug builds. */
bool berth__exact_is_valid(const berth__exact *exact);

/* From the current (empty) state to a plan or a dead end. True: all placed. False with `aborted`: a limit was
 * met; without: there is no plan. */
bool berth__exact_dive(berth__exact *exact);

#endif
