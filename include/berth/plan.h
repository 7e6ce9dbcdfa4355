/* Plans: what a program allocates, in order, and the place in one block that each allocation has been given.
 *
 *     berth_plan *plan = NULL;
 *     berth_allocator *planned = NULL;
 *     berth_plan_create(&plan);
 *     berth_planned_create(berth_cpu_allocator(), plan, &planned); // berth/replay.h
 *     BERTH_RECORD(planned) { work(planned); }                     // solved when the scope ends
 *     berth_plan_save(plan, "work.plan.csv");
 *     berth_allocator_release(planned), berth_plan_release(plan);
 *
 * Any number of threads replay one plan at once. Recording into it, clearing or loading it leaves the scopes
 * under way with what they began with; while one thread records or changes a plan, the others' calls that
 * would use it are BERTH_BUSY. */
#ifndef BERTH_PLAN_H
#define BERTH_PLAN_H

#include "berth/problem.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct berth_plan berth_plan;

/* Freed after the scope or never: outside the plan, served by the fallback. */
#define BERTH_NEVER_FREED UINT64_MAX

/* One allocation of a plan; its id is its position, from 0. */
typedef struct berth_plan_allocation {
    size_t struct_size;
    uint64_t size_bytes;
    uint64_t alignment; /* a power of two; 0 counts as 1 */
    uint64_t freed_at;  /* the id of the first allocation after its free, or BERTH_NEVER_FREED */
    uint64_t offset;    /* in the block; BERTH_NO_OFFSET: none yet, or never freed */
    const char *label;  /* NULL: none */
} berth_plan_allocation;

#define BERTH_PLAN_ALLOCATION_INIT                                                    \
    {                                                                                 \
        sizeof(berth_plan_allocation), 0, 1, BERTH_NEVER_FREED, BERTH_NO_OFFSET, NULL \
    }

/* A new plan, empty. The caller owns one reference. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT,
 * BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_plan_create(berth_plan **out);

/* Counted references; the last release destroys. Release accepts NULL. Any thread. */
BERTH_API berth_plan *berth_plan_retain(berth_plan *plan);
BERTH_API void berth_plan_release(berth_plan *plan);

/* Empties the plan. Any thread. BERTH_OK, BERTH_BUSY (it is being recorded or changed). */
BERTH_API berth_status berth_plan_clear(berth_plan *plan);

/* Makes the plan of a program that is known without running it: clears `plan`, copies the allocations (labels
 * too), gives each that is freed an offset and has the checker prove the result. `options` may be NULL. If no
 * allocation brings an offset they are solved for; if all do, those are taken as they are and proven. Any
 * thread. BERTH_OK, BERTH_BUSY, BERTH_INVALID_ARGUMENT (an allocation freed before it is made, a size of 0),
 * BERTH_MISMATCH (given offsets that overlap or are not aligned), BERTH_OVERFLOW, BERTH_OUT_OF_HOST_MEMORY,
 * and what berth_solve answers. After a failure the plan is empty. */
BERTH_API berth_status berth_plan_set(berth_plan *plan, const berth_plan_allocation *allocations,
                                      size_t count, const berth_solve_options *options);

/* Gives the allocations of a plan new offsets, with more effort or another solver; keeps the old ones unless
 * the new total is smaller. BERTH_OK, BERTH_BUSY, and what berth_solve answers. */
BERTH_API berth_status berth_plan_solve(berth_plan *plan, const berth_solve_options *options);

/* Gives the allocations of a plan the places offsets[id] instead of their own, as agreed with others who run the same
 * program, so that an allocation lies at the same place for all of them; the checker proves them first. Those that are never
 * freed inside have no place, and what is said of them is not read. Lives, sizes and the order of frees stay. `count` is that
 * of the plan. Any thread. BERTH_OK, BERTH_BUSY, BERTH_INVALID_ARGUMENT (another count, an offset missing), BERTH_MISMATCH (they overlap
 * or are not aligned), BERTH_OVERFLOW, BERTH_OUT_OF_HOST_MEMORY; after a failure the plan is as it was. */
BERTH_API berth_status berth_plan_place(berth_plan *plan, const uint64_t *offsets, size_t count);

/* How many allocations there are; 0 for an empty plan. This and what follows may be asked by any thread, but
 * not while another one records or changes the plan. */
BERTH_API size_t berth_plan_count(const berth_plan *plan);
/* Describes allocation `id`; the caller sets out->struct_size. The label lives as long as the plan's content.
 * BERTH_OK, BERTH_NOT_FOUND, BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_plan_get(const berth_plan *plan, size_t id, berth_plan_allocation *out);
/* The bytes of the one block. */
BERTH_API uint64_t berth_plan_total_bytes(const berth_plan *plan);
/* Of sizes, lifetimes and alignments: equal for programs that allocate alike. 0 for an empty plan. */
BERTH_API uint64_t berth_plan_fingerprint(const berth_plan *plan);
/* How good the plan is and why that is known; the caller sets out->struct_size. */
BERTH_API berth_status berth_plan_certificate(const berth_plan *plan, berth_certificate *out);
/* Memory that the plan itself takes on the host. */
BERTH_API size_t berth_plan_memory_bytes(const berth_plan *plan);

/* ---- Several runs, one plan -------------------------------------------------------------------------- */

/* The envelope of several recordings of one program: allocations are matched by order and label, and each
 * gets the largest size, the strictest alignment and the longest life it had in any of them. The envelope
 * ends at the first place where the recordings do not line up (one has no more allocations, or the labels
 * differ); elastic replay serves what comes after. The result goes into `plan`, which may be one of `parts`;
 * `options` may be NULL. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_BUSY, and as berth_plan_set. */
BERTH_API berth_status berth_plan_join(berth_plan *plan, berth_plan *const *parts, size_t count,
                                       const berth_solve_options *options);

/* How far a program, as recorded just now, still follows a plan that was kept. */
typedef struct berth_plan_fit {
    size_t struct_size;
    size_t allocations;        /* in the program now */
    size_t fitting;            /* those whose size, alignment and life fit their place in the plan */
    uint64_t bytes;            /* of all allocations in the program now */
    uint64_t fitting_bytes;    /* of those that fit */
    uint64_t first_difference; /* id; BERTH_NEVER_FREED: none */
    char words[192];           /* what differs there; "" if nothing */
} berth_plan_fit;

#define BERTH_PLAN_FIT_INIT                       \
    {                                             \
        sizeof(berth_plan_fit), 0, 0, 0, 0, 0, "" \
    }

/* Compares a kept plan with a recording of the program as it is now. `fit` may be NULL; the caller sets its
 * struct_size. BERTH_OK: the same program; BERTH_MISMATCH: stale, `fit` says how much still fits;
 * BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_plan_compare(const berth_plan *kept, const berth_plan *now, berth_plan_fit *fit);

/* ---- Files ------------------------------------------------------------------------------------------- */

/* Writes the plan as CSV: a row an allocation, the fingerprint in the head (docs/replay.md). A file that is
 * there is replaced only when the new one is complete. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT,
 * BERTH_IO, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_plan_save(const berth_plan *plan, const char *path);

/* Reads a plan into `plan`, which is cleared first. The checker proves it before it can be used. BERTH_OK,
 * BERTH_BUSY, BERTH_IO, BERTH_BAD_DATA (the words name the line; also when the rows do not match the
 * fingerprint), BERTH_MISMATCH (the offsets overlap), BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_plan_load(berth_plan *plan, const char *path);

/* ---- A cache of plans -------------------------------------------------------------------------------- */

/* Plans by a key of the caller's (input shape, batch size); the least recently used go when their memory
 * exceeds the bound. See berth_cached_begin in berth/replay.h. Any thread. */
typedef struct berth_plan_cache berth_plan_cache;

/* `max_bytes` bounds the memory of the plans kept; a plan that a scope or a caller still holds lives on
 * outside. The caller owns the cache. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_plan_cache_create(size_t max_bytes, berth_plan_cache **out);
/* Releases all plans. No call may be under way. NULL is a no-op. */
BERTH_API void berth_plan_cache_destroy(berth_plan_cache *cache);

/* The plan under `key`, which becomes the most recently used; the caller gets a reference. BERTH_OK,
 * BERTH_NOT_FOUND, BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_plan_cache_get(berth_plan_cache *cache, const void *key, size_t key_bytes,
                                            berth_plan **out);
/* Keeps `plan` under `key` in place of what was there; the key is copied and the plan retained. BERTH_OK,
 * BERTH_INVALID_ARGUMENT, BERTH_OVER_BUDGET (the plan alone exceeds the bound), BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_plan_cache_put(berth_plan_cache *cache, const void *key, size_t key_bytes,
                                            berth_plan *plan);
/* Forgets what is under `key`. BERTH_OK, BERTH_NOT_FOUND. */
BERTH_API berth_status berth_plan_cache_remove(berth_plan_cache *cache, const void *key, size_t key_bytes);

typedef struct berth_plan_cache_stats {
    size_t struct_size;
    size_t plans;
    size_t bytes;
    size_t max_bytes;
    uint64_t hits, misses, evictions;
} berth_plan_cache_stats;

#define BERTH_PLAN_CACHE_STATS_INIT                      \
    {                                                    \
        sizeof(berth_plan_cache_stats), 0, 0, 0, 0, 0, 0 \
    }

BERTH_API berth_status berth_plan_cache_stats_get(berth_plan_cache *cache, berth_plan_cache_stats *out);

#ifdef __cplusplus
}
#endif
#endif
