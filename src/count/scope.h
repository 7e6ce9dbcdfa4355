/* Labels and threads as scope meters count them: kept for the life of the process, so that a block may point
 * to both.
 *
 * A label has a quota that rises: its cap is the label's true peak over all threads. A thread has a record:
 * how much more it may hold before the peak since its innermost scope began rises, so that each scope learns
 * its own peak at a cost that does not depend on how deep scopes are nested. A block that another thread
 * frees is taken off its thread's record through a counter of its own; everything else in a record is written
 * by its thread alone.
 *
 * A thread and a label have an account, and a block over a source with headers bears its number. */
#ifndef BERTH_COUNT_SCOPE_H
#define BERTH_COUNT_SCOPE_H

#include "base/header.h"
#include "berth/allocator.h"
#include "berth/scope.h"
#include "count/quota.h"

enum { BERTH__LABELS_MAX = 1024, BERTH__LABEL_CACHE = 64 };

typedef struct berth__label {
    berth__quota quota;
    const char *text; /* "" for no label */
    uint32_t number;
    _Atomic uint64_t num_scopes;
    _Atomic uint64_t max_scope_bytes;
} berth__label;

typedef struct berth__scope_count {
    _Atomic uint64_t num_scopes;
    _Atomic uint64_t max_scope_bytes;
} berth__scope_count;

/* What is held is peak - room, less what others freed since `elsewhere_seen`. */
typedef struct berth__holder {
    _Atomic int64_t room_bytes; /* never below 0 */
    _Atomic int64_t peak_bytes; /* of what is held, since the innermost scope began */
    _Atomic int64_t elsewhere_seen_bytes;
    _Atomic int64_t top_bytes;   /* as peak_bytes since the thread began, without the present scope */
    _Atomic int64_t clear_bytes; /* all peaks are to become this, as soon as the thread looks; -1: no */
    struct berth__holder *next;  /* in the list of all; never changes */
    _Atomic uint32_t thread;     /* its number */
    _Atomic bool ended;          /* its thread is gone; may be taken over once it holds nothing */
    uint64_t apart[8];
    _Atomic int64_t freed_elsewhere_bytes;
    struct {
        const char *text;
        berth__label *label;
        uint64_t tag; /* of its account; 0: not known yet */
    } cache[BERTH__LABEL_CACHE];
    uint16_t tags[BERTH__LABELS_MAX];             /* by label number; 0: no account yet */
    berth__scope_count counts[BERTH__LABELS_MAX]; /* by label number; pages are touched when used */
} berth__holder;

/* By tag. 0 is none; from 1 on every label has one without a thread, for when there is no other. Written
 * before a block bears the number, never changed. */
enum { BERTH__ACCOUNTS_MAX = 1 << (64 - BERTH__TAG_SHIFT) };
typedef struct berth__account {
    berth__holder *holder;
    berth__label *label;
} berth__account;
extern BERTH__HIDDEN berth__account berth__accounts[BERTH__ACCOUNTS_MAX];

extern BERTH__HIDDEN _Thread_local berth__holder *berth__holder_mine;
extern BERTH__HIDDEN _Thread_local berth_scope *berth__scope_innermost;
berth__holder *berth__holder_take(void);
/* `holder` remembers it; NULL: nobody does. */
berth__label *berth__label_find(berth__holder *holder, const char *text);

/* The label of a request: its own, else the thread's innermost scope; NULL if there is neither. */
static inline const char *berth__label_text(const berth_request *request)
{
    /* Laid out for a request without a label outside of scopes; the others take a jump. */
    if (BERTH_UNLIKELY(request->label != NULL))
        return request->label;
    return BERTH_UNLIKELY(berth__scope_innermost != NULL) ? berth__scope_innermost->label : NULL;
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
    BERTH_DCHECK(holder == berth__holder_mine, "[M9] a record is its thread's alone");
    size_t place = berth__label_place(text);
    if (BERTH_LIKELY(holder->cache[place].text == text && holder->cache[place].label))
        return holder->cache[place].label;
    return berth__label_find(holder, text);
}

/* The thread's account of what it allocates now, in berth__thread_memos.scope:
 *     key     the tag in its place in a header's word, so that it is added and subtracted
 *     slot    the thread's in the label's quota
 *     value   the thread's record
 * Emptied whenever a scope begins or ends. */
static inline void berth__scope_forget(void)
{
    berth__thread_memos.scope = (berth__memo){0};
}

/* The general forms: the calling thread got, or gave back, a block of an account. Tag 0 counts nothing. */
void berth__account_add(uint64_t tag, uint64_t size_bytes);
void berth__account_sub(uint64_t tag, uint64_t size_bytes);
/* The tag for a request of the calling thread. One without a label of its own is what the memo is for: it is
 * filled. */
uint64_t berth__account_find(const berth_request *request);

/* The label, by address, of blocks that are nobody's yet: a planned allocator's, which it counts by what is live
 * in them. They have tag 0. */
extern BERTH__HIDDEN const char berth__label_uncounted[];

/* Called on its own thread before anybody looks at the thread's figures or changes its scope: who counts late
 * does it now. NULL: nobody does. One at a time; it is not called again from within. */
typedef struct berth__late_counter {
    void (*count)(void *context);
    void *context;
} berth__late_counter;
extern BERTH__HIDDEN _Thread_local berth__late_counter berth__counts_late;
static inline void berth__count_now(void)
{
    berth__late_counter late = berth__counts_late;
    if (BERTH_LIKELY(!late.count))
        return;
    berth__counts_late.count = NULL;
    late.count(late.context);
    BERTH_DCHECK(!berth__counts_late.count, "[M9] nobody else comes to count late meanwhile");
    berth__counts_late = late;
}

/* What a thread holds: its own figure, or that of one that is gone. */
static inline int64_t berth__holder_held(berth__holder *holder)
{
    return atomic_load_explicit(&holder->peak_bytes, memory_order_relaxed) -
           atomic_load_explicit(&holder->room_bytes, memory_order_relaxed) +
           atomic_load_explicit(&holder->elsewhere_seen_bytes, memory_order_relaxed) -
           atomic_load_explicit(&holder->freed_elsewhere_bytes, memory_order_acquire);
}

void berth__holder_add_slow(berth__holder *mine, uint64_t size_bytes);

/* The calling thread got `size_bytes`. */
static inline void berth__holder_add(berth__holder *mine, uint64_t size_bytes)
{
    BERTH_DCHECK(mine == berth__holder_mine, "[M9] a record is its thread's alone");
    int64_t room = atomic_load_explicit(&mine->room_bytes, memory_order_relaxed) - (int64_t)size_bytes;
    if (BERTH_LIKELY(room >= 0))
        atomic_store_explicit(&mine->room_bytes, room, memory_order_relaxed);
    else
        berth__holder_add_slow(mine, size_bytes);
}

/* It freed some of its own. */
static inline void berth__holder_sub_own(berth__holder *mine, uint64_t size_bytes)
{
    BERTH_DCHECK(mine == berth__holder_mine, "[M9] a record is its thread's alone");
    int64_t room = atomic_load_explicit(&mine->room_bytes, memory_order_relaxed);
    atomic_store_explicit(&mine->room_bytes, room + (int64_t)size_bytes, memory_order_relaxed);
}

/* The calling thread freed `size_bytes` that `holder` had got. */
static inline void berth__holder_sub(berth__holder *holder, uint64_t size_bytes)
{
    if (BERTH_LIKELY(holder == berth__holder_mine))
        berth__holder_sub_own(holder, size_bytes);
    else
        atomic_fetch_add_explicit(&holder->freed_elsewhere_bytes, (int64_t)size_bytes, memory_order_release);
}

#endif
