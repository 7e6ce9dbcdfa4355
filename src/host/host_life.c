/* The life of host caches: creation, limits, the background thread, closing in any order, and fork. */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "host/host.h"

/* ---- All caches, and forks ------------------------------------------------------------------------------ */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static host_cache *all;     /* guard: all_lock */
static host_cache *orphans; /* closed, with blocks that streams still use; guard: all_lock */
static _Atomic uint64_t caches_so_far;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* Before a fork every cache is stopped, so that the child finds no block between two places. The many locks
 * held at once have one rank: the check is told that none is held. */
static void before_fork(void)
{
    pthread_mutex_lock(&all_lock);
    for (host_cache *c = all; c; c = c->next) {
        berth__host_stop(c);
        BERTH__RANK_GIVE(BERTH__RANK_METER);
        BERTH__RANK_GIVE(BERTH__RANK_CACHE);
    }
}

static void let_go_on(host_cache *c)
{
    BERTH__RANK_TAKE(BERTH__RANK_CACHE);
    BERTH__RANK_TAKE(BERTH__RANK_METER);
    berth__host_resume(c);
}

static void after_fork_in_parent(void)
{
    for (host_cache *c = all; c; c = c->next)
        let_go_on(c);
    pthread_mutex_unlock(&all_lock);
}

static void init_conditions(host_cache *c)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->background_wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_cond_init(&c->release_ended, NULL);
}

/* What other threads of the parent were in the middle of does not go on in the child: memory that they were
 * taking or giving back is no part of the cache any more, and a block that they were freeing is idle, unless
 * streams used it; those stayed behind, so it waits for ever. */
static void forget_other_threads(host_cache *c)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] the child is alone with a cache that is stopped");
    uint64_t reserved = 0, live = 0;
    for (host_segment *s = c->segments; s; s = s->next) {
        reserved += s->bytes;
        for (uint32_t i = 0; i < s->blocks; i++) {
            host_block *b = &s->first[i];
            uint32_t state = atomic_load(&b->state);
            if (state == HOST_LEAVING && b->uses == 0)
                berth__host_put_in_bin(c, b);
            live += state == HOST_LIVE ? b->size : 0;
        }
    }
    for (host_segment *s = c->unreleased; s; s = s->next)
        reserved += s->bytes;
    atomic_store(&c->reserved, reserved);
    atomic_store(&c->pins, 0);
    c->newest_release = c->oldest_release = NULL;
    c->background_runs = false;
    init_conditions(c); /* they remember the threads that waited */
    c->live_in_child = live;
}

/* The figures may be short of an allocation or a free that another thread was counting. */
static void mend_figures(host_cache *c)
{
    uint64_t counted = berth__quota_in_use(&c->quota);
    if (counted > c->live_in_child)
        berth__quota_give(&c->quota, counted - c->live_in_child);
    else if (counted < c->live_in_child)
        berth__host_count_in_use(c, c->live_in_child - counted);
}

/* The child has one thread: nobody else collects, and there is no background. Thread caches of the threads that
 * stayed behind go into the bins. */
static void after_fork_in_child(void)
{
    for (host_cache *c = all; c; c = c->next) {
        uint32_t count = atomic_load(&c->streams.count);
        for (uint32_t i = 0; i < count; i++)
            atomic_store(&berth__streams_at(&c->streams, i)->collecting, 0);
        berth__host_forget_asked(c);
        berth__host_flush_thread_caches(c);
        forget_other_threads(c);
        let_go_on(c);
        mend_figures(c);
    }
    pthread_mutex_unlock(&all_lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void list_cache(host_cache *c)
{
    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&all_lock);
    c->prev = NULL;
    c->next = all;
    if (all)
        all->prev = c;
    all = c;
    pthread_mutex_unlock(&all_lock);
}

static void unlist_cache(host_cache *c)
{
    pthread_mutex_lock(&all_lock);
    BERTH_DCHECK((c->prev ? c->prev->next : all) == c, "[H8] a cache is listed until it goes");
    *(c->prev ? &c->prev->next : &all) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    pthread_mutex_unlock(&all_lock);
}

/* ---- The background thread ------------------------------------------------------------------------------ */

static void add_us(struct timespec *t, uint32_t us)
{
    t->tv_sec += us / 1000000;
    t->tv_nsec += (long)(us % 1000000) * 1000;
    if (t->tv_nsec >= 1000000000) {
        t->tv_nsec -= 1000000000;
        t->tv_sec++;
    }
}

static void *collect_in_background(void *context)
{
    host_cache *c = context;
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    while (!c->background_stop) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        add_us(&until, c->background_us);
        while (!c->background_stop &&
               pthread_cond_timedwait(&c->background_wake, &c->lock, &until) != ETIMEDOUT)
            ;
        if (c->background_stop)
            break;
        berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
        berth__host_collect(c, true);
        berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    }
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
    return NULL;
}

static berth_status start_background(host_cache *c)
{
    if (c->background_us == 0)
        return BERTH_OK;
    int error = pthread_create(&c->background, NULL, collect_in_background, c);
    if (error)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "%s: the background thread does not start: %s", c->name,
                           strerror(error));
    c->background_runs = true;
    return BERTH_OK;
}

static void stop_background(host_cache *c)
{
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    bool runs = c->background_runs;
    c->background_runs = false;
    c->background_stop = true;
    pthread_cond_signal(&c->background_wake);
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
    if (runs)
        pthread_join(c->background, NULL);
}

/* ---- Closing -------------------------------------------------------------------------------------------- */

static void free_thread_cache(void *context, void *beside)
{
    (void)context;
    berth__heap_free(beside);
}

/* Everything is idle and nobody is left: gives all memory back and frees the cache. */
static void free_cache(host_cache *c)
{
    BERTH_DCHECK(c->outstanding_known && c->outstanding == 0 && atomic_load(&c->pins) == 0,
                 "[H8] no block keeps a cache that goes");
    BERTH_DCHECK(!berth__host_anything_waits(c), "[H8] nor does one that waits");
    unlist_cache(c);
    berth__host_release_all(c);
    BERTH_DCHECK(atomic_load(&c->reserved) == 0, "[H4] what came from the device has gone back");
    berth__streams_finish(&c->streams);
    berth__host_blocks_finish(c);
    berth__slots_visit_beside(&c->quota.slots, free_thread_cache, NULL);
    berth__quota_finish(&c->quota);
    berth__page_map_destroy(c->pages);
    pthread_cond_destroy(&c->background_wake);
    pthread_cond_destroy(&c->release_ended);
    pthread_mutex_destroy(&c->lock);
    berth__heap_free(c->bins);
    berth__upstream_finish(&c->upstream);
    berth__heap_free(c);
}

/* The last block has come back. What streams still use is not the device's yet: the cache becomes an orphan,
 * and whoever next creates, trims or closes a cache looks after it. */
static void host_finish(host_cache *c)
{
    BERTH_DCHECK(!berth__rank_is_held(BERTH__RANK_CACHE), "[H6] no driver is called under a lock");
    BERTH_DCHECK(berth__host_is(c, BERTH__MARK_CLOSING), "[H8] a cache lives until its last reference");
    berth__host_collect(c, true);
    if (!berth__host_anything_waits(c)) {
        free_cache(c);
        return;
    }
    pthread_mutex_lock(&all_lock);
    c->next_orphan = orphans;
    orphans = c;
    pthread_mutex_unlock(&all_lock);
}

void berth__host_tend_orphans(void)
{
    pthread_mutex_lock(&all_lock);
    host_cache *list = orphans;
    orphans = NULL;
    pthread_mutex_unlock(&all_lock);
    while (list) {
        host_cache *next = list->next_orphan;
        host_finish(list);
        list = next;
    }
}

/* With the lock held. */
static bool is_over(const host_cache *c)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] blocks that are out are counted with the lock");
    return c->outstanding_known && c->outstanding == 0 &&
           atomic_load_explicit(&c->pins, memory_order_acquire) == 0;
}

void berth__host_unpin(host_cache *c)
{
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    BERTH_DCHECK(atomic_load(&c->pins) > 0, "[H8] what is unpinned was pinned");
    atomic_fetch_sub_explicit(&c->pins, 1, memory_order_release);
    bool over = is_over(c);
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
    if (over)
        host_finish(c);
}

void berth__host_late_free(host_cache *c, host_block *b)
{
    berth__mutex_lock(&c->lock, BERTH__RANK_CACHE);
    if (b->uses)
        berth__host_add_uses((host_inside){NULL, NULL}, b);
    else
        berth__host_put_in_bin(c, b);
    BERTH_DCHECK(!c->outstanding_known || c->outstanding > 0, "[H8] what comes back late was counted as out");
    c->outstanding -= c->outstanding_known; /* else it is not counted below */
    bool over = is_over(c);
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
    if (over)
        host_finish(c);
}

/* With the lock held: blocks that their users have not given up. */
static uint64_t count_outstanding(host_cache *c)
{
    BERTH_DCHECK(berth__host_is_held(c), "[B1] blocks that are out are counted with the lock");
    uint64_t outstanding = 0;
    uint32_t count = atomic_load(&c->block_count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t state = atomic_load_explicit(&berth__host_block_at(c, i)->state, memory_order_acquire);
        outstanding += state == HOST_LIVE || state == HOST_LIVE_BUSY || state == HOST_LEAVING;
    }
    return outstanding;
}

void berth__host_destroy(void *self)
{
    host_cache *c = self;
    stop_background(c);
    /* From here on every free finds the cache closed and comes to the lock. A free that was inside before has
     * put its block in place; one that was on its way still shows it as LEAVING. */
    berth__host_stop(c);
    berth__slots_mark(&c->quota.slots, BERTH__MARK_CLOSING);
    berth__slots_resume(&c->quota.slots);
    BERTH_DCHECK(!c->outstanding_known, "[H8] a cache is closed once");
    c->outstanding = count_outstanding(c);
    c->outstanding_known = true;
    bool over = is_over(c);
    berth__mutex_unlock(&c->lock, BERTH__RANK_CACHE);
    if (over)
        host_finish(c);
    berth__host_tend_orphans();
}

/* ---- Creation ------------------------------------------------------------------------------------------- */

static berth_status read_options(const berth_host_cache_options *given, berth_host_cache_options *out)
{
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    if (given) {
        if (given->struct_size < sizeof given->struct_size || given->struct_size > 4096)
            return berth__fail(BERTH_INVALID_ARGUMENT,
                               "the options' struct_size is %zu: start from BERTH_HOST_CACHE_OPTIONS_INIT",
                               given->struct_size);
        memcpy(&options, given, given->struct_size < sizeof options ? given->struct_size : sizeof options);
    }
    if (options.max_waste == 0)
        options.max_waste = 0.125;
    if (!options.name)
        options.name = "host_cache";
    *out = options;
    return BERTH_OK;
}

/* A unit of the second table is an eighth of the smallest size that it is asked for: a step of the classes there. */
static void fill_class_tables(host_cache *c)
{
    for (uint32_t t = 0; t < HOST_TABLES; t++)
        for (size_t i = 0; i < HOST_TABLE; i++) {
            size_t unit = (size_t)1 << (berth__class_granule_log2 + t * HOST_TABLE_STEP_LOG2);
            c->class_table[t][i] = (uint16_t)berth__class_of(&c->classes, (i + 1) * unit);
        }
    c->large_tables = c->classes.per_doubling_log2 <= 3;
    BERTH_DCHECK(c->classes.count <= UINT16_MAX, "[H5] every class fits into the tables");
}

/* Where the memory comes from: of a device it is its pinned memory, of an upstream any that the host can touch. */
static berth_status find_upstream(const berth_host_cache_options *options, berth__upstream *u)
{
    berth_status status =
        berth__upstream_init(u, options->upstream, options->device, BERTH_MEMORY_PINNED, options->name);
    if (status)
        return status;
    berth_device_info info = {.struct_size = sizeof info};
    status = berth_device_describe(u->device, &info);
    if (!status && !u->from && !(info.memory_kinds & (uint64_t)1 << BERTH_MEMORY_PINNED))
        status = berth__fail(BERTH_UNSUPPORTED, "%s has no pinned memory", info.name);
    if (!status && u->from && u->memory_kind == BERTH_MEMORY_DEVICE && !info.host_accessible)
        status = berth__fail(BERTH_UNSUPPORTED,
                             "the memory of the upstream %s is %s's own: the host cannot touch it",
                             berth_allocator_name(u->from), info.name);
    if (status)
        berth__upstream_finish(u);
    return status;
}

static void apply_options(host_cache *c, const berth_host_cache_options *options)
{
    berth__allocator_init(&c->base, &berth__host_ops, c);
    c->base.knows_blocks = true;
    c->quota.rises = true;
    c->device = c->upstream.device;
    c->number = atomic_fetch_add(&caches_so_far, 1) + 1;
    c->clock_ns = options->clock_ns;
    c->clock_context = options->clock_context;
    c->name = options->name;
    c->background_us = options->background_us;
    atomic_store(&c->hard_limit, options->hard_limit_bytes);
    atomic_store(&c->soft_limit, options->soft_limit_bytes);
    berth__barrier_heavy(); /* decides what kind of barrier there is */
    bool slow = !atomic_load(&berth__barrier_is_asymmetric) || BERTH__ANNOTATES();
    berth__slots_mark(&c->quota.slots, (options->clock_ns ? BERTH__MARK_CLOCK : 0u) |
                                           (options->soft_limit_bytes ? BERTH__MARK_SOFT_LIMIT : 0u) |
                                           (slow ? BERTH__MARK_SLOW : 0u));
    fill_class_tables(c);
    c->page_bytes = (size_t)1 << c->pages->page_log2;
    c->run_log2 = c->pages->page_log2 - berth__class_granule_log2; /* a page of the smallest blocks */
    (void)BERTH_ASSERT(c->run_log2 < HOST_RUN_SIZES, "[H9] pages are at most 2 MiB");
}

berth_status berth_host_cache_create(const berth_host_cache_options *given, berth_allocator **out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "out is NULL");
    *out = NULL;
    berth_host_cache_options options = BERTH_HOST_CACHE_OPTIONS_INIT;
    berth__size_classes classes = {0};
    berth__upstream upstream = {0};
    berth_status status = read_options(given, &options);
    if (!status && !berth__size_classes_init(&classes, options.max_waste))
        status = berth__fail(BERTH_INVALID_ARGUMENT, "a waste of at most %g is not possible: 1/64 to 1 is",
                             options.max_waste);
    if (!status)
        status = find_upstream(&options, &upstream);
    if (status)
        return status;
    berth__host_tend_orphans();

    host_cache *c = berth__heap_aligned(sizeof *c, 64);
    if (!c)
        goto no_memory;
    memset(c, 0, sizeof *c);
    c->classes = classes;
    c->upstream = upstream;
    c->bins = berth__heap_zalloc(classes.count, sizeof *c->bins);
    if (!c->bins)
        goto free_cache;
    c->pages = berth__page_map_create();
    if (!c->pages)
        goto free_bins;
    apply_options(c, &options);
    init_conditions(c);
    pthread_mutex_init(&c->lock, NULL);
    list_cache(c);
    status = start_background(c);
    if (status) {
        berth_allocator_release(&c->base);
        return status;
    }
    *out = &c->base;
    return BERTH_OK;

free_bins:
    berth__heap_free(c->bins);
free_cache:
    berth__heap_free(c);
no_memory:
    berth__upstream_finish(&upstream);
    return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the host cache %s", options.name);
}

berth_status berth_host_cache_set_limits(berth_allocator *cache, uint64_t soft_limit_bytes,
                                         uint64_t hard_limit_bytes)
{
    if (!berth__allocator_is(cache, berth__host_destroy))
        return berth__fail(BERTH_INVALID_ARGUMENT, "limits are set on a host cache");
    host_cache *c = cache->self;
    berth__host_stop(c);
    atomic_store(&c->hard_limit, hard_limit_bytes);
    atomic_store(&c->soft_limit, soft_limit_bytes);
    berth__slots_unmark(&c->quota.slots, BERTH__MARK_SOFT_LIMIT);
    berth__slots_mark(&c->quota.slots, soft_limit_bytes ? BERTH__MARK_SOFT_LIMIT : 0u);
    berth__host_flush_thread_caches(c);
    berth__host_count_all_idle(c);
    berth__host_resume(c);
    berth__host_keep_soft_limit(c);
    return BERTH_OK;
}
