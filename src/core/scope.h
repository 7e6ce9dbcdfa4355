/* Labels and threads as scope meters count them: kept for the life of the process, so that a block may point
 * to both.
 *
 * A label has a meter whose peak is true over all threads. A thread has a record: what it holds, and the peak
 * of that since its innermost scope began, so that each scope learns its own peak at a cost that does not
 * depend on how deep scopes are nested. A block that another thread frees is taken off its thread's record
 * through a counter of its own; everything else in a record is written by its thread alone. */
#ifndef BERTH_CORE_SCOPE_H
#define BERTH_CORE_SCOPE_H

#include "berth/allocator.h"
#include "berth/scope.h"
#include "core/meter.h"

enum { BERTH__LABELS_MAX = 1024, BERTH__LABEL_CACHE = 64 };

typedef struct berth__label {
    const char *text; /* "" for no label */
    uint32_t number;
    _Atomic uint64_t num_scopes;
    _Atomic uint64_t max_scope_bytes;
    berth__meter meter;
    berth__meter_slot slots[BERTH__METER_PIECE]; /* the meter's first piece: labels are for ever */
} berth__label;

typedef struct berth__scope_count {
    _Atomic uint64_t num_scopes;
    _Atomic uint64_t max_scope_bytes;
} berth__scope_count;

typedef struct berth__holder {
    struct berth__holder *next; /* in the list of all; never changes */
    _Atomic uint32_t thread;    /* its number */
    _Atomic bool ended;         /* its thread is gone; may be taken over once it holds nothing */
    _Atomic int64_t net_bytes;  /* allocated less freed here */
    _Atomic int64_t peak_bytes; /* of what is held, since the innermost scope began */
    _Atomic int64_t top_bytes;  /* the same since the thread began, without the present scope */
    uint64_t apart[8];
    _Atomic int64_t freed_elsewhere_bytes;
    struct {
        const char *text;
        berth__label *label;
    } cache[BERTH__LABEL_CACHE];
    berth__scope_count counts[BERTH__LABELS_MAX]; /* by label number; pages are touched when used */
} berth__holder;

extern BERTH__HIDDEN _Thread_local berth__holder *berth__holder_mine;
extern BERTH__HIDDEN _Thread_local berth_scope *berth__scope_innermost;
berth__holder *berth__holder_take(void);
berth__label *berth__label_find(berth__holder *holder, const char *text);

/* The label of a request: its own, else the thread's innermost scope; NULL if there is neither. */
static inline const char *berth__label_text(const berth_request *request)
{
    if (request->label)
        return request->label;
    return berth__scope_innermost ? berth__scope_innermost->label : NULL;
}

/* The calling thread's record; NULL if there is no memory for one. */
static inline berth__holder *berth__holder_here(void)
{
    berth__holder *mine = berth__holder_mine;
    return BERTH_LIKELY(mine != NULL) ? mine : berth__holder_take();
}

static inline size_t berth__label_place(const char *text)
{
    return ((uintptr_t)text >> 3 ^ (uintptr_t)text >> 9) % BERTH__LABEL_CACHE;
}

/* The label of a text (NULL: none). */
static inline berth__label *berth__label_of(berth__holder *holder, const char *text)
{
    size_t place = berth__label_place(text);
    if (BERTH_LIKELY(holder->cache[place].text == text && holder->cache[place].label))
        return holder->cache[place].label;
    return berth__label_find(holder, text);
}

static inline int64_t berth__holder_held(berth__holder *holder)
{
    return BERTH__METER_LOAD(holder->net_bytes) -
           atomic_load_explicit(&holder->freed_elsewhere_bytes, memory_order_acquire);
}

/* The calling thread got `size_bytes`. */
static inline void berth__holder_add(berth__holder *mine, uint64_t size_bytes)
{
    BERTH__METER_STORE(mine->net_bytes, BERTH__METER_LOAD(mine->net_bytes) + (int64_t)size_bytes);
    int64_t held = berth__holder_held(mine);
    if (held > BERTH__METER_LOAD(mine->peak_bytes))
        BERTH__METER_STORE(mine->peak_bytes, held);
}

/* The calling thread freed `size_bytes` that `holder` had got. */
static inline void berth__holder_sub(berth__holder *holder, uint64_t size_bytes)
{
    if (BERTH_LIKELY(holder == berth__holder_mine))
        BERTH__METER_STORE(holder->net_bytes, BERTH__METER_LOAD(holder->net_bytes) - (int64_t)size_bytes);
    else
        atomic_fetch_add_explicit(&holder->freed_elsewhere_bytes, (int64_t)size_bytes, memory_order_release);
}

#endif
