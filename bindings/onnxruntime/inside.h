/* What the files of this binding share. */
#ifndef BERTH_ORT_INSIDE_H
#define BERTH_ORT_INSIDE_H

#include <pthread.h>
#include <stdatomic.h>

#include <berth/decorators.h>

#include "berth_onnxruntime.h"
#include "ort_api.h"

#define BORT_KEY_BYTES 16
#define BORT_WORDS 4096

/* Made by berth_ort_create. `keepers` is 1 for the owner, 1 for each live block and 1 for each run; with the last of them go the allocators
 * and the plans, and none comes after it. The struct itself stays: a session without a block may still hold the table and call it. */
struct berth_ort {
    OrtAllocator table; /* first: ONNX Runtime passes it back as `self` */
    const OrtApi *api;
    OrtMemoryInfo *info;
    void
        *library_base; /* where ONNX Runtime is loaded: requests from there can be answered by an exception */
    void (*throw_words)(
        const char *words); /* std::runtime_error of the C++ library that it uses; NULL: not found */
    /* Guarded by the list's lock. */
    struct berth_ort *next; /* all that were made */
    OrtEnv *env;            /* where this is the registered one */

    berth_allocator *allocator; /* the user's */
    berth_allocator
        *planned; /* blocks of plans, over the user's by way of a wrapper that keeps trims from it */
    berth_plan_cache *plans;
    atomic_uint_fast64_t keepers, runs;
    atomic_bool released;

    atomic_uint_fast64_t allocs, reserves, failures;
    atomic_uint_fast64_t recorded, replayed, unplanned, from_plan, by_fallback, outside_plan, remade;

    pthread_mutex_t lock; /* for what follows */
    unsigned char last_key[BORT_KEY_BYTES];
    bool has_last_key;
    char words[BORT_WORDS]; /* why the last request failed */
};

/* The interface of a library and its version, at most BERTH_ORT_API_VERSION. BERTH_OK, BERTH_UNSUPPORTED. */
berth_status bort_api(const OrtApiBase *base, const OrtApi **api, uint32_t *version);

/* Fills the table with what `version` has. */
void bort_table_init(berth_ort *memory, uint32_t version);

/* Where ONNX Runtime's library lies, and what throws there. */
void bort_find_throw(berth_ort *memory, const OrtApiBase *base);

/* BERTH_INVALID_ARGUMENT for NULL, one that was released, or where `other`, which words name, is NULL. */
berth_status bort_check_live(const berth_ort *memory, const void *other, const char *what);

/* One keeper more, unless berth_ort_release has let go of it and nobody keeps it any more. */
bool bort_keep(berth_ort *memory);
/* Drops one keeper. */
void bort_drop(berth_ort *memory);

/* An OrtStatus as a failure of ours; it is released. NULL is BERTH_OK. */
berth_status bort_fail(const OrtApi *api, OrtStatus *status, const char *what);

#endif
