/* Named scopes: who is allocating, and what it took at most.
 *
 * The innermost scope of a thread labels every request that brings no label of its own. Around an allocator
 * with a scope meter, each scope also knows how much its thread held at once since it began, and each label
 * how much all threads held at once under it. Both peaks are true: reached, and never exceeded. */
#ifndef BERTH_SCOPE_H
#define BERTH_SCOPE_H

#include <stdbool.h>

#include "berth/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct berth_allocator;

/* Storage of the caller's, usually on the stack; its fields are private. */
typedef struct berth_scope {
    const char *label;
    struct berth_scope *outer;
    int64_t entry_bytes;
    int64_t outer_peak_bytes;
    uint64_t peak_bytes;
} berth_scope;

/* Makes `label` the calling thread's innermost until berth_scope_end, which must come on the same thread in
 * reverse order; one that is out of order is logged and ends the scopes inside it too. `label` is kept by
 * reference, also beyond the end: a literal or interned. `scope` must stay where it is; without one nothing begins,
 * and that is logged. */
BERTH_API void berth_scope_begin(berth_scope *scope, const char *label);
BERTH_API void berth_scope_end(berth_scope *scope);

#if defined(__GNUC__)
/* A block in a scope, ended on every way out of it: BERTH_SCOPE("attention") { ... return early; ... } */
#define BERTH_SCOPE(label)                                                                                 \
    BERTH_ONCE_(BERTH_NAME_(berth_done_, __LINE__),                                                        \
                berth_scope BERTH_NAME_(berth_scope_, __LINE__) __attribute__((cleanup(berth_scope_end))), \
                *BERTH_NAME_(berth_begun_, __LINE__) __attribute__((unused)) =                             \
                    (berth_scope_begin(&BERTH_NAME_(berth_scope_, __LINE__), (label)),                     \
                     &BERTH_NAME_(berth_scope_, __LINE__)))
#endif

/* The calling thread's innermost label, NULL if there is none. */
BERTH_API const char *berth_scope_label(void);

/* What the thread of `scope` held at most since it began, beyond what it held then, scopes inside it
 * included. Counted are blocks that this thread allocated through scope meters, until anybody frees them.
 * After the end the figure stays. Before it: the scope's own thread only. */
BERTH_API uint64_t berth_scope_peak_bytes(const berth_scope *scope);

/* What it holds now beyond what it held at the begin; negative if it freed more. The scope's own thread. */
BERTH_API int64_t berth_scope_held_bytes(const berth_scope *scope);

/* ---- Meters ------------------------------------------------------------------------------------- */

/* Around `inner`: what is allocated through it counts for its label and for the thread that asked. All meters
 * of a process count into the same figures; wrap what is to be counted together. The caller owns one
 * reference. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_scope_meter_create(struct berth_allocator *inner, struct berth_allocator **out);

#define BERTH_ALL_THREADS UINT32_MAX

/* One label, of all threads together or of one. Strings are valid for the life of the process. */
typedef struct berth_scope_figures {
    size_t struct_size;
    const char *label;         /* "" for what was allocated outside of every scope */
    uint32_t thread;           /* BERTH_ALL_THREADS, or a small number of the thread */
    uint64_t bytes_in_use;     /* blocks allocated under this label itself; all threads only */
    uint64_t max_bytes_in_use; /* the most of them at once; all threads only */
    uint64_t num_scopes;       /* scopes of this name that have ended */
    uint64_t max_scope_bytes;  /* the most that one of them took at once, scopes inside it included */
} berth_scope_figures;

#define BERTH_SCOPE_FIGURES_INIT                         \
    {                                                    \
        sizeof(berth_scope_figures), NULL, 0, 0, 0, 0, 0 \
    }

/* Returns false to end the visit. Called with no lock held. */
typedef bool (*berth_scope_fn)(void *context, const berth_scope_figures *figures);

/* Shows every label with its figures of all threads. Any thread; exact when no call is in flight. BERTH_OK,
 * BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_scope_visit(berth_scope_fn visit, void *context);

/* Shows what each thread did under each label: num_scopes and max_scope_bytes. A thread that has ended is
 * shown until a new one takes its place. */
BERTH_API berth_status berth_scope_visit_threads(berth_scope_fn visit, void *context);

/* What the calling thread holds now, and held at most, of blocks that it allocated through scope meters. */
BERTH_API void berth_scope_thread_bytes(uint64_t *held_bytes, uint64_t *peak_bytes);

/* Counts to 0, peaks to what is in use now. No other thread may be in a scope. */
BERTH_API void berth_scope_clear(void);

#ifdef __cplusplus
}
#endif
#endif
