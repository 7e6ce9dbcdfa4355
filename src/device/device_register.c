/* The kinds of devices: the built-in ones and those that programs register, by number and by name.
 *
 * A number is looked up by one atomic load. Built-in kinds stand at their own number. A registered kind's number is
 * its place among 64 and a generation: when the place is given to another kind the old number finds nothing. */
#include <pthread.h>
#include <string.h>

#include "base/lock.h"
#include "device/device.h"

enum {
    BUILT_IN = BERTH_DEVICE_VIRTUAL + 1,
    REGISTERED_MOST = 64, /* a power of two */
    FIRST_PLACE = 64,
    PLACES = FIRST_PLACE + REGISTERED_MOST,
};
_Static_assert(BUILT_IN <= FIRST_PLACE, "built-in kinds do not reach the places of registered ones");
_Static_assert(BERTH_DEVICE_REGISTERED % REGISTERED_MOST == 0, "a number's low bits are its place");

static const struct {
    const berth_device_ops *ops;
    void *self;
} built_in[BUILT_IN] = {
    [BERTH_DEVICE_CPU] = {&berth__cpu_device_ops, NULL},
    [BERTH_DEVICE_CUDA] = {&berth__cuda_device_ops, &berth__cuda_kind},
    [BERTH_DEVICE_HIP] = {&berth__hip_device_ops, &berth__hip_kind},
    [BERTH_DEVICE_OPENCL] = {&berth__opencl_device_ops, NULL},
    [BERTH_DEVICE_VIRTUAL] = {&berth__virtual_device_ops, NULL},
};

static berth__device_type built_in_types[BUILT_IN]; /* written once, before they are published */
static _Atomic(const berth__device_type *) published[PLACES];
static pthread_once_t completed = PTHREAD_ONCE_INIT;
static berth__spin changing;        /* for whoever publishes or takes back a registered kind */
static berth__device_type *retired; /* guard: changing; linked, so that they can be found, and kept */
static int32_t generations[REGISTERED_MOST]; /* guard: changing; how often a place has been given */

/* ---- What lives ---------------------------------------------------------------------------------- */

static int64_t live_sum(const berth__device_live *live, berth__device_thing thing)
{
    int64_t sum = 0;
    for (size_t i = 0; i <= BERTH__DEVICE_OWN_CELLS; i++)
        sum += atomic_load_explicit(&live->cells[i].things[thing], memory_order_acquire);
    return sum;
}

/* ---- Looking up ---------------------------------------------------------------------------------- */

static berth_status type_fill(berth__device_type *type, const berth_device_ops *ops, void *self, int32_t kind)
{
    berth_status status = berth__device_ops_complete(&type->ops, ops);
    if (status)
        return status;
    memcpy(type->name, type->ops.name, strlen(type->ops.name) + 1); /* its length has been checked */
    type->ops.name = type->name;
    type->self = self;
    type->kind = kind;
    return BERTH_OK;
}

static void complete_built_in(void)
{
    for (int32_t kind = 0; kind < BUILT_IN; kind++) {
        if (!built_in[kind].ops)
            continue;
        berth_status status = type_fill(&built_in_types[kind], built_in[kind].ops, built_in[kind].self, kind);
        if (BERTH_ASSERT(!status, "a built-in device's table is whole"))
            atomic_store_explicit(&published[kind], &built_in_types[kind], memory_order_release);
    }
}

static size_t place_of(int32_t kind)
{
    return kind < BERTH_DEVICE_REGISTERED ? (size_t)kind : FIRST_PLACE + (size_t)kind % REGISTERED_MOST;
}

const berth__device_type *berth__device_type_of(int32_t kind)
{
    if (BERTH_UNLIKELY(kind <= BERTH_DEVICE_UNKNOWN || (kind >= BUILT_IN && kind < BERTH_DEVICE_REGISTERED)))
        return NULL;
    _Atomic(const berth__device_type *) *place = &published[place_of(kind)];
    const berth__device_type *type = atomic_load_explicit(place, memory_order_acquire);
    if (BERTH_UNLIKELY(!type)) {
        pthread_once(&completed, complete_built_in);
        type = atomic_load_explicit(place, memory_order_acquire);
    }
    return type && BERTH_LIKELY(type->kind == kind) ? type : NULL;
}

const char *berth_device_kind_name(berth_device_kind kind)
{
    const berth__device_type *type = berth__device_type_of((int32_t)kind);
    return type ? type->name : "unknown";
}

berth_device_kind berth_device_kind_next(berth_device_kind kind)
{
    pthread_once(&completed, complete_built_in);
    bool known = kind > BERTH_DEVICE_UNKNOWN && ((int32_t)kind < BUILT_IN || kind >= BERTH_DEVICE_REGISTERED);
    if (kind != BERTH_DEVICE_UNKNOWN && !known)
        return BERTH_DEVICE_UNKNOWN;
    for (size_t i = place_of((int32_t)kind) + 1; i < PLACES; i++) {
        const berth__device_type *type = atomic_load_explicit(&published[i], memory_order_acquire);
        if (type)
            return (berth_device_kind)type->kind;
    }
    return BERTH_DEVICE_UNKNOWN;
}

berth_device_kind berth_device_kind_find(const char *name)
{
    berth_device_kind kind = BERTH_DEVICE_UNKNOWN;
    while (name && (kind = berth_device_kind_next(kind)) != BERTH_DEVICE_UNKNOWN)
        if (strcmp(berth_device_kind_name(kind), name) == 0)
            return kind;
    return BERTH_DEVICE_UNKNOWN;
}

/* ---- Registering --------------------------------------------------------------------------------- */

/* Finds a place, gives the number and publishes. Call under the lock; keeps no words. */
static berth_status type_publish(berth__device_type *type)
{
    size_t place = REGISTERED_MOST;
    if (berth_device_kind_find(type->name) != BERTH_DEVICE_UNKNOWN)
        return BERTH_ALREADY_EXISTS;
    /* The place that was given least often: so the generations of one do not run out before the others'. */
    for (size_t i = 0; i < REGISTERED_MOST; i++)
        if (!atomic_load_explicit(&published[FIRST_PLACE + i], memory_order_relaxed) &&
            (place == REGISTERED_MOST || generations[i] < generations[place]))
            place = i;
    if (place == REGISTERED_MOST ||
        generations[place] > (INT32_MAX - BERTH_DEVICE_REGISTERED) / REGISTERED_MOST - 1)
        return BERTH_BUSY;
    type->kind = BERTH_DEVICE_REGISTERED + generations[place]++ * REGISTERED_MOST + (int32_t)place;
    atomic_store_explicit(&published[FIRST_PLACE + place], type, memory_order_release);
    return BERTH_OK;
}

berth_status berth_device_register(const berth_device_ops *ops, void *self, berth_device_kind *out)
{
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "out is NULL");
    *out = BERTH_DEVICE_UNKNOWN;
    if (!ops)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the device's table is NULL");
    berth__device_type *type = berth__heap_zalloc(1, sizeof *type);
    berth__device_live *live = type ? berth__heap_zaligned(sizeof *live, 64) : NULL;
    berth_status status = live ? type_fill(type, ops, self, 0)
                               : berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to register a device");
    if (!status) {
        pthread_once(&completed, complete_built_in);
        type->live = live;
        berth__spin_lock(&changing, BERTH__RANK_DEVICE);
        status = type_publish(type);
        berth__spin_unlock(&changing, BERTH__RANK_DEVICE);
        if (status == BERTH_ALREADY_EXISTS)
            (void)berth__fail(status, "there is a kind of devices named '%s' already", type->name);
        else if (status)
            (void)berth__fail(status, "%d kinds of devices are registered: unregister one",
                              (int)REGISTERED_MOST);
    }
    if (status) {
        berth__heap_free(live);
        berth__heap_free(type);
        return status;
    }
    *out = (berth_device_kind)type->kind;
    return BERTH_OK;
}

/* Takes the kind out if nothing of it lives, else says how much does; BERTH_NOT_FOUND if another thread was first.
 * Call under the lock; keeps no words. The counts go, so that what is left of a kind is its table. */
static berth_status type_withdraw(berth__device_type *type, int64_t lives[BERTH__DEVICE_THINGS])
{
    bool idle = true;
    _Atomic(const berth__device_type *) *place = &published[place_of(type->kind)];
    if (atomic_load_explicit(place, memory_order_relaxed) != type)
        return BERTH_NOT_FOUND;
    for (int thing = 0; thing < BERTH__DEVICE_THINGS; thing++) {
        lives[thing] = live_sum(type->live, (berth__device_thing)thing);
        idle &= lives[thing] == 0;
    }
    if (!idle)
        return BERTH_BUSY;
    atomic_store_explicit(place, NULL, memory_order_release);
    berth__heap_free(type->live);
    type->live = NULL;
    type->next = retired;
    retired = type;
    return BERTH_OK;
}

berth_status berth_device_unregister(berth_device_kind kind)
{
    if (kind < BERTH_DEVICE_REGISTERED)
        return berth__fail(BERTH_INVALID_ARGUMENT, "device kind %d (%s) was not registered by a program",
                           (int)kind, berth_device_kind_name(kind));
    int64_t lives[BERTH__DEVICE_THINGS] = {0};
    /* Ours to write: what programs register is made by us, and only the built-in kinds are constant. */
    berth__device_type *type = (berth__device_type *)(uintptr_t)berth__device_type_of((int32_t)kind);
    berth_status status = BERTH_NOT_FOUND;
    if (type) {
        berth__spin_lock(&changing, BERTH__RANK_DEVICE);
        status = type_withdraw(type, lives);
        berth__spin_unlock(&changing, BERTH__RANK_DEVICE);
    }
    if (status == BERTH_NOT_FOUND)
        return berth__fail(status, "no device kind %d is registered", (int)kind);
    if (status)
        return berth__fail(
            status,
            "of the %s devices %lld blocks, %lld streams and %lld events live: give them back first, and "
            "the pools and caches that hold them",
            type->name, (long long)lives[BERTH__DEVICE_BLOCKS], (long long)lives[BERTH__DEVICE_STREAMS],
            (long long)lives[BERTH__DEVICE_EVENTS]);
    type->ops.destroy(type->self);
    return BERTH_OK;
}
