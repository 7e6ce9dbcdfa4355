/* A cache of plans by the caller's key, bounded in bytes; and scopes that record the first run of a key and
 * replay the others. */
#include <string.h>

#include "replay/replay.h"

typedef struct kept {
    struct kept *newer, *older;
    berth_plan *plan;
    size_t plan_bytes;
    size_t key_bytes;
    unsigned char key[];
} kept;

/* Keys are few (shapes and batch sizes), so a list in the order of use is both the index and the order in
 * which plans go. */
struct berth_plan_cache {
    berth__fork_mutex guard;      /* the lock */
    kept *newest, *oldest;        /* guarded by lock, as all below */
    berth_plan_cache_stats stats; /* bytes and counts */
};

static void cache_lock(berth_plan_cache *c)
{
    berth__mutex_lock(&c->guard.lock, BERTH__RANK_REPLAY);
}

static void cache_unlock(berth_plan_cache *c)
{
    berth__mutex_unlock(&c->guard.lock, BERTH__RANK_REPLAY);
}

berth_status berth_plan_cache_create(size_t max_bytes, berth_plan_cache **out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no place for the cache: out is NULL");
    *out = NULL;
    if (max_bytes == 0)
        return berth__fail(BERTH_INVALID_ARGUMENT, "a cache of 0 bytes keeps nothing; give a bound");
    berth_plan_cache *c = berth__heap_zalloc(1, sizeof *c);
    if (!c)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a plan cache");
    berth__fork_mutex_init(&c->guard);
    c->stats.max_bytes = max_bytes;
    *out = c;
    return BERTH_OK;
}

static void kept_free(kept *k)
{
    while (k) {
        kept *next = k->older;
        berth_plan_release(k->plan);
        berth__heap_free(k);
        k = next;
    }
}

void berth_plan_cache_destroy(berth_plan_cache *c)
{
    if (!c)
        return;
    kept_free(c->newest);
    berth__fork_mutex_finish(&c->guard);
    berth__heap_free(c);
}

/* ---- The list; all with the lock --------------------------------------------------------------------- */

static kept *cache_find(const berth_plan_cache *c, const void *key, size_t key_bytes)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] plans are found with the lock");
    for (kept *k = c->newest; k; k = k->older)
        if (k->key_bytes == key_bytes && (key_bytes == 0 || memcmp(k->key, key, key_bytes) == 0))
            return k;
    return NULL;
}

#ifndef NDEBUG
static bool cache_is_valid(const berth_plan_cache *c)
{
    size_t plans = 0, bytes = 0;
    const kept *newer = NULL;
    if (berth__is_child())
        return true;
    for (const kept *k = c->newest; k; newer = k, k = k->older) {
        if (k->newer != newer)
            return false;
        plans++;
        bytes += k->plan_bytes;
    }
    return newer == c->oldest && plans == c->stats.plans && bytes == c->stats.bytes &&
           bytes <= c->stats.max_bytes;
}
#endif

static void take_out(berth_plan_cache *c, kept *k)
{
    BERTH_DCHECK(cache_is_valid(c), "[R13] the plans kept are those counted");
    BERTH_DCHECK((c->stats.plans > 0 && c->stats.bytes >= k->plan_bytes) || berth__is_child(),
                 "[R13] what goes was counted");
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): callers pass an entry of the list */
    *(k->newer ? &k->newer->older : &c->newest) = k->older;
    *(k->older ? &k->older->newer : &c->oldest) = k->newer;
    k->newer = k->older = NULL;
    c->stats.plans--;
    c->stats.bytes -= k->plan_bytes;
    BERTH_DCHECK(cache_is_valid(c), "[R13] the plans kept are those counted");
}

static void put_in(berth_plan_cache *c, kept *k)
{
    BERTH_DCHECK(c->stats.bytes + k->plan_bytes <= c->stats.max_bytes || berth__is_child(),
                 "[R13] the bound holds");
    BERTH_DCHECK(!cache_find(c, k->key, k->key_bytes), "[R13] a key stands for one plan");
    k->older = c->newest;
    k->newer = NULL;
    *(c->newest ? &c->newest->newer : &c->oldest) = k;
    c->newest = k;
    c->stats.plans++;
    c->stats.bytes += k->plan_bytes;
    BERTH_DCHECK(cache_is_valid(c), "[R13] the plans kept are those counted");
}

/* ---- What callers ask -------------------------------------------------------------------------------- */

static berth_status check_key(const berth_plan_cache *c, const void *key, size_t key_bytes)
{
    if (!c || (!key && key_bytes))
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL", c ? "the key" : "the plan cache");
    return BERTH_OK;
}

berth_status berth_plan_cache_get(berth_plan_cache *c, const void *key, size_t key_bytes, berth_plan **out)
{
    if (out)
        *out = NULL;
    berth_status status = check_key(c, key, key_bytes);
    if (!status && !out)
        status = berth__fail(BERTH_INVALID_ARGUMENT, "there is no place for the plan: out is NULL");
    if (status)
        return status;
    cache_lock(c);
    kept *k = cache_find(c, key, key_bytes);
    if (k) {
        take_out(c, k);
        put_in(c, k);
        *out = berth_plan_retain(k->plan);
    }
    c->stats.hits += k != NULL;
    c->stats.misses += k == NULL;
    cache_unlock(c);
    return *out ? BERTH_OK
                : berth__fail(BERTH_NOT_FOUND, "no plan is kept under this key of %zu bytes", key_bytes);
}

berth_status berth_plan_cache_put(berth_plan_cache *c, const void *key, size_t key_bytes, berth_plan *plan)
{
    berth_status status = check_key(c, key, key_bytes);
    if (!status && !plan)
        status = berth__fail(BERTH_INVALID_ARGUMENT, "the plan is NULL");
    if (status)
        return status;
    size_t bytes = berth_plan_memory_bytes(plan) + sizeof(kept) + key_bytes;
    if (bytes > c->stats.max_bytes)
        return berth__fail(BERTH_OVER_BUDGET, "the plan takes %zu bytes, the whole cache may take %zu", bytes,
                           c->stats.max_bytes);
    kept *k = berth__heap_zalloc(1, sizeof *k + key_bytes);
    if (!k)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to keep a plan");
    k->plan = berth_plan_retain(plan);
    k->plan_bytes = bytes;
    k->key_bytes = key_bytes;
    if (key_bytes)
        memcpy(k->key, key, key_bytes);
    kept *gone = NULL;
    cache_lock(c);
    for (kept *old = cache_find(c, key, key_bytes); old || c->stats.bytes + bytes > c->stats.max_bytes;
         old = NULL) {
        c->stats.evictions += old == NULL;
        kept *victim = old ? old : c->oldest;
        BERTH_DCHECK(victim, "[R13] an empty cache has room for what fits into its bound");
        take_out(c, victim);
        victim->older = gone;
        gone = victim;
    }
    put_in(c, k);
    cache_unlock(c);
    kept_free(gone);
    return BERTH_OK;
}

berth_status berth_plan_cache_remove(berth_plan_cache *c, const void *key, size_t key_bytes)
{
    berth_status status = check_key(c, key, key_bytes);
    if (status)
        return status;
    cache_lock(c);
    kept *k = cache_find(c, key, key_bytes);
    if (k)
        take_out(c, k);
    cache_unlock(c);
    kept_free(k);
    return k ? BERTH_OK : berth__fail(BERTH_NOT_FOUND, "no plan is kept under this key");
}

berth_status berth_plan_cache_stats_get(berth_plan_cache *c, berth_plan_cache_stats *out)
{
    if (!c || !out || out->struct_size < sizeof out->struct_size)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "berth_plan_cache_stats_get needs a cache and a result whose struct_size is set");
    cache_lock(c);
    berth_plan_cache_stats full = c->stats;
    cache_unlock(c);
    full.struct_size = out->struct_size;
    memcpy(out, &full, out->struct_size < sizeof full ? out->struct_size : sizeof full);
    return BERTH_OK;
}

/* ---- Cached scopes ----------------------------------------------------------------------------------- */

static berth_status record_key(berth_allocator *planned, berth_plan_cache *c, const void *key,
                               size_t key_bytes, berth_run_options *o)
{
    berth_plan *fresh = NULL;
    berth__recorder *recorder = NULL;
    void *copy = berth__heap_alloc(key_bytes);
    berth_status status =
        copy ? berth_plan_create(&fresh) : berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a key");
    if (!status) {
        o->plan = fresh;
        status = berth__record_start(planned, o, &recorder);
    }
    berth_plan_release(fresh);
    if (status) {
        berth__heap_free(copy);
        return status;
    }
    if (key_bytes)
        memcpy(copy, key, key_bytes);
    recorder->cache = c;
    recorder->key = copy;
    recorder->key_bytes = key_bytes;
    return BERTH_OK;
}

berth_status berth_cached_begin(berth_allocator *planned, berth_plan_cache *c, const void *key,
                                size_t key_bytes, const berth_run_options *options)
{
    berth_run_options o;
    berth_status status = check_key(c, key, key_bytes);
    if (!status)
        status = berth__run_options_read(options, &o);
    if (!status)
        status = berth__run_may_open();
    if (status)
        return status;
    berth_plan *plan = NULL;
    if (berth_plan_cache_get(c, key, key_bytes, &plan) != BERTH_OK)
        return record_key(planned, c, key, key_bytes, &o);
    o.plan = plan;
    status = berth_replay_begin(planned, &o);
    berth_plan_release(plan);
    return status;
}

berth_status berth_cached_end(berth_allocator *planned, berth_report *report)
{
    berth_run *run = berth_run_current();
    if (!run || run->allocator != planned || run->kind != BERTH_RUN_RECORD)
        return berth_replay_end(planned, report);
    berth_status status = berth_record_end(planned);
    berth_report recorded = BERTH_REPORT_INIT;
    recorded.status = status;
    berth__report_give(&recorded, report);
    return status;
}
