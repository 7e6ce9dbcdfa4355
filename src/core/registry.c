/* The registry: named allocators, best first, and the two answers that are asked for all the time, kept. */
#include "core/registry.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/lock.h"
#include "base/park.h"
#include "core/allocator.h"
#include "core/environment.h"

/* An entry lives while it is in the list or a call is using it. The allocator of a factory is made at the
 * first request, outside the lock; other threads wait for it then. */
struct entry {
    struct entry *next; /* guard: registry_lock; in order of merit */
    char *name;
    int32_t priority;
    berth_attributes attributes;
    uint64_t order; /* guard: registry_lock; the later registered, the larger */
    berth_factory_fn factory;
    void *context;
    const char *file;
    int32_t line;
    uint32_t users;       /* guard: registry_lock; the list counts as one */
    bool listed;          /* guard: registry_lock */
    uint32_t is_made_now; /* guard: registry_lock; berth__inside while `maker` runs the factory, else 0 */
    pthread_t maker;      /* guard: registry_lock */
    berth_allocator *allocator; /* guard: registry_lock; NULL: not made yet */
};

static struct entry system_entry = {
    .name = (char *)(uintptr_t) "system",
    .priority = 0,
    .attributes = BERTH_ON_HOST,
    .file = __FILE__,
    .line = __LINE__,
    .users = 2, /* the list, and one for ever: it is not on the heap */
    .listed = true,
};

/* Only to be there; see core/environment.h. */
static const bool *const above[]
    __attribute__((used)) = {&berth__environment_is_read, &berth__pool_is_registered};

static berth__spin registry_lock;
static _Atomic uint32_t made;                    /* counts factories that came back; a word to wait for */
static struct entry *best_first = &system_entry; /* guard: registry_lock */
static uint64_t changes;                         /* guard: registry_lock; counts adds and removes */

/* The kept answers; NULL: find out. Stored with the lock held, for the list of that moment. */
static _Atomic(berth_allocator *) kept_best;
_Atomic(berth_allocator *) berth__kept_for_host;

static void lock_registry(void)
{
    berth__spin_lock(&registry_lock, BERTH__RANK_REGISTRY);
}

static void unlock_registry(void)
{
    berth__spin_unlock(&registry_lock, BERTH__RANK_REGISTRY);
}

static void forget_kept(void)
{
    changes++;
    atomic_store(&kept_best, NULL);
    atomic_store(&berth__kept_for_host, NULL);
}

/* ---- Entries ------------------------------------------------------------------------------------- */

static void free_entry(struct entry *e)
{
    berth_allocator_release(e->allocator);
    berth__heap_free(e->name);
    berth__heap_free(e);
}

/* Gives up one use; called without the lock, since the last one may run a user's destroy. */
static void registry_drop(struct entry *e)
{
    lock_registry();
    bool last = --e->users == 0;
    unlock_registry();
    if (last)
        free_entry(e);
}

static struct entry *new_entry(const berth_registration *r)
{
    struct entry *e = berth__heap_zalloc(1, sizeof *e);
    size_t name_bytes = strlen(r->name) + 1;
    if (!e)
        return NULL;
    e->name = berth__heap_alloc(name_bytes);
    if (!e->name) {
        berth__heap_free(e);
        return NULL;
    }
    memcpy(e->name, r->name, name_bytes);
    e->priority = r->priority;
    e->attributes = r->attributes;
    e->factory = r->factory;
    e->context = r->context;
    e->file = r->file ? r->file : "somewhere";
    e->line = r->line;
    e->users = 1;
    e->listed = true;
    e->allocator = berth_allocator_retain(r->allocator);
    return e;
}

static struct entry *registry_find(const char *name, int32_t priority)
{
    struct entry *e = best_first;
    while (e && (e->priority != priority || strcmp(e->name, name) != 0))
        e = e->next;
    return e;
}

/* Behind all of the same priority: a tie goes to the first registered. */
static void registry_insert(struct entry *e)
{
    struct entry **link = &best_first;
    while (*link && (*link)->priority >= e->priority)
        link = &(*link)->next;
    e->next = *link;
    *link = e;
    forget_kept();
    e->order = changes;
}

static berth_status registry_check(const berth_registration *r)
{
    if (!r || r->struct_size < sizeof *r)
        return berth__fail(BERTH_INVALID_ARGUMENT, "a registration needs its struct_size");
    if (!r->name || r->name[0] == '\0')
        return berth__fail(BERTH_INVALID_ARGUMENT, "an allocator cannot be registered without a name (%s:%d)",
                           r->file ? r->file : "somewhere", (int)r->line);
    if (r->priority < 0)
        return berth__fail(BERTH_INVALID_ARGUMENT, "priority %d of \"%s\" is negative", (int)r->priority,
                           r->name);
    if (!r->allocator == !r->factory)
        return berth__fail(BERTH_INVALID_ARGUMENT, "\"%s\" needs an allocator or a factory, not %s", r->name,
                           r->allocator ? "both" : "neither");
    return BERTH_OK;
}

berth_status berth_registry_add(const berth_registration *registration)
{
    berth_status status = registry_check(registration);
    if (status)
        return status;
    struct entry *e = new_entry(registration);
    if (!e)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to register \"%s\"", registration->name);
    lock_registry();
    const struct entry *earlier = registry_find(e->name, e->priority);
    const char *file = earlier ? earlier->file : NULL;
    int line = earlier ? (int)earlier->line : 0;
    if (!earlier)
        registry_insert(e);
    unlock_registry();
    if (!file)
        return BERTH_OK;
    status = berth__fail(BERTH_ALREADY_EXISTS,
                         "\"%s\" with priority %d, registered at %s:%d, was registered before at %s:%d; "
                         "choose another name or priority",
                         e->name, (int)e->priority, e->file, (int)e->line, file, line);
    registry_drop(e);
    return status;
}

berth_status berth_registry_add_factory(const char *name, int32_t priority, berth_attributes attributes,
                                        berth_factory_fn factory, void *context, const char *file,
                                        int32_t line)
{
    berth_registration r = {.struct_size = sizeof r,
                            .name = name,
                            .priority = priority,
                            .attributes = attributes,
                            .factory = factory,
                            .context = context,
                            .file = file,
                            .line = line};
    berth_status status = berth_registry_add(&r);
    if (status)
        berth__log(BERTH_LOG_ERROR, "%s", berth_last_error()->message);
    return status;
}

static berth_status unknown(const char *name, int32_t priority)
{
    return berth__fail(BERTH_NOT_FOUND, "no allocator \"%s\" with priority %d is registered", name,
                       (int)priority);
}

static berth_status no_name(void)
{
    return berth__fail(BERTH_INVALID_ARGUMENT, "the name or out is NULL");
}

berth_status berth_registry_remove(const char *name, int32_t priority)
{
    if (!name)
        return no_name();
    lock_registry();
    struct entry *e = registry_find(name, priority);
    if (e) {
        struct entry **link = &best_first;
        while (*link != e)
            link = &(*link)->next;
        *link = e->next;
        e->listed = false;
        forget_kept();
    }
    unlock_registry();
    if (!e)
        return unknown(name, priority);
    registry_drop(e);
    return BERTH_OK;
}

/* ---- Asking -------------------------------------------------------------------------------------- */

static bool is_mine(const struct entry *e)
{
    return pthread_equal(e->maker, pthread_self());
}

/* With the lock held, and let go while the factory runs: the entry's allocator, made if need be. */
static berth_status registry_make(struct entry *e, berth_allocator **out)
{
    if (e == &system_entry) {
        *out = berth__system_default();
        return BERTH_OK;
    }
    /* What was being made when the process was forked is made again: its maker stayed behind. */
    while (e->is_made_now && (berth__same_generation(e->is_made_now) || is_mine(e))) {
        if (is_mine(e))
            return berth__fail(BERTH_BUSY, "the factory of \"%s\" asks for its own allocator", e->name);
        uint32_t seen = atomic_load(&made);
        unlock_registry();
        berth__park(&made, seen, BERTH__PARK_FOR_EVER);
        lock_registry();
    }
    if (!e->allocator) {
        berth_allocator *fresh = NULL;
        e->is_made_now = berth__inside();
        e->maker = pthread_self();
        unlock_registry();
        berth_status status = e->factory(e->context, &fresh);
        lock_registry();
        e->is_made_now = 0;
        atomic_fetch_add(&made, 1);
        berth__unpark_all(&made);
        if (!status && !fresh)
            status = berth__fail(BERTH_INTERNAL, "the factory of \"%s\" gave no allocator", e->name);
        if (status)
            return status;
        e->allocator = fresh;
    }
    *out = e->allocator;
    return e->listed ? BERTH_OK : unknown(e->name, e->priority);
}

/* `e` is in use once more; the lock is held, and not on return. The answer is kept if the list is still what it was at
 * `since` changes. */
static berth_status make_and_unlock(struct entry *e, _Atomic(berth_allocator *) *kept, uint64_t since,
                                    berth_allocator **out)
{
    e->users++;
    berth_status status = registry_make(e, out);
    if (!status && kept && changes == since)
        atomic_store_explicit(kept, *out, memory_order_release);
    unlock_registry();
    registry_drop(e);
    if (status)
        *out = NULL;
    return status;
}

berth_status berth_registry_get(const char *name, int32_t priority, berth_allocator **out)
{
    if (out)
        *out = NULL;
    if (!out || !name)
        return no_name();
    lock_registry();
    struct entry *e = registry_find(name, priority);
    if (e)
        return make_and_unlock(e, NULL, 0, out);
    unlock_registry();
    return unknown(name, priority);
}

berth_status berth_registry_best(berth_allocator **out)
{
    if (!out)
        return no_name();
    *out = atomic_load_explicit(&kept_best, memory_order_acquire);
    if (BERTH_LIKELY(*out != NULL))
        return BERTH_OK;
    /* One that is taken out while its factory runs leaves another as the best; a list that never rests is not waited for. */
    berth_status status = BERTH_NOT_FOUND;
    for (int turn = 0; turn < 100 && status == BERTH_NOT_FOUND; turn++) {
        lock_registry();
        if (!best_first) {
            unlock_registry();
            return berth__fail(BERTH_NOT_FOUND, "no allocator is registered");
        }
        status = make_and_unlock(best_first, &kept_best, changes, out);
    }
    return status;
}

berth_status berth_registry_best_for(berth_attributes attributes, berth_allocator **out)
{
    if (!out)
        return no_name();
    *out = NULL;
    lock_registry();
    struct entry *e = best_first;
    while (e && !berth_attributes_within(attributes, e->attributes))
        e = e->next;
    if (e)
        return make_and_unlock(e, NULL, 0, out);
    unlock_registry();
    return berth__fail(BERTH_UNSUPPORTED,
                       "no registered allocator satisfies the attributes 0x%x; register one that does%s",
                       (unsigned)attributes,
                       attributes & BERTH_NIC_COMPATIBLE ? " (BERTH_NIC_COMPATIBLE: load libberth_ucx)" : "");
}

/* Whether an entry comes after the one of `priority` and `order`, and was there when there had been `since` changes. */
static bool comes_after(const struct entry *e, int64_t priority, uint64_t order, uint64_t since)
{
    return e->order <= since && (e->priority < priority || (e->priority == priority && e->order > order));
}

/* The best for the host whose factory works: a CPU allocator is always there. Entries may come and go while a factory
 * runs, so that the next one is found by its place in the order, and not by how many there were before. */
berth_allocator *berth__registry_find_for_host(void)
{
    berth_allocator *found = NULL;
    int64_t priority = INT64_MAX;
    uint64_t order = 0, since = 0;
    while (!found) {
        lock_registry();
        if (priority == INT64_MAX)
            since = changes;
        struct entry *e = best_first;
        while (e && !((e->attributes & BERTH_ON_HOST) && comes_after(e, priority, order, since)))
            e = e->next;
        if (!e) {
            unlock_registry();
            return berth__system_default();
        }
        priority = e->priority;
        order = e->order;
        if (make_and_unlock(e, &berth__kept_for_host, since, &found) != BERTH_OK)
            berth__log(BERTH_LOG_WARNING,
                       "the best allocator for the host cannot be had, the next one serves: %s",
                       berth_last_error()->message);
    }
    return found;
}

/* ---- Looking through ------------------------------------------------------------------------------ */

/* Takes a use of every entry into an array, so that the visitor runs without the lock. */
static berth_status copy_list(struct entry ***out, size_t *count)
{
    for (size_t room = 16;; room *= 2) {
        struct entry **list = berth__heap_zalloc(room, sizeof *list);
        if (!list)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to list %zu registrations", room);
        size_t n = 0;
        lock_registry();
        struct entry *e = best_first;
        for (; e && n < room; e = e->next)
            list[n++] = e;
        for (size_t i = 0; !e && i < n; i++)
            list[i]->users++;
        unlock_registry();
        if (!e) {
            *out = list;
            *count = n;
            return BERTH_OK;
        }
        berth__heap_free(list);
    }
}

static berth_registration registry_describe(struct entry *e)
{
    berth_registration r = {.struct_size = sizeof r,
                            .name = e->name,
                            .priority = e->priority,
                            .attributes = e->attributes,
                            .factory = e->factory,
                            .context = e->context,
                            .file = e->file,
                            .line = e->line};
    lock_registry();
    r.allocator = e == &system_entry ? berth__system_default() : e->allocator;
    unlock_registry();
    return r;
}

berth_status berth_registry_visit(berth_registration_fn visit, void *context)
{
    if (!visit)
        return berth__fail(BERTH_INVALID_ARGUMENT, "visit is NULL");
    struct entry **list = NULL;
    size_t count = 0;
    berth_status status = copy_list(&list, &count);
    if (status)
        return status;
    bool more = true;
    for (size_t i = 0; i < count; i++) {
        berth_registration r = registry_describe(list[i]);
        more = more && visit(context, &r);
        registry_drop(list[i]);
    }
    berth__heap_free(list);
    return BERTH_OK;
}
