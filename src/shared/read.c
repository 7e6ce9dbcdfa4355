/* Readers: which generation is there, holding it, and waiting for the next. */
#include <time.h>

#include "shared/shared.h"

enum { LOOK_AGAIN_NS = 20 * 1000 * 1000 }; /* how long a dead owner may go unnoticed */

static berth_status no_arena(void)
{
    return berth__fail(BERTH_INVALID_ARGUMENT, "the handle or the place for the generation is NULL");
}

static uint64_t seen_state(const berth_shared *s)
{
    return atomic_load_explicit(&s->live->state, memory_order_acquire);
}

static bool is_readable(uint64_t state)
{
    return !(state & BERTH__SHARED_WRITING) && state >> BERTH__SHARED_GENERATION_SHIFT > 0;
}

berth_status berth_shared_generation(const berth_shared *shared, uint64_t *generation)
{
    if (!shared || !generation)
        return no_arena();
    uint64_t state = seen_state(shared);
    if (!is_readable(state))
        return BERTH_NOT_READY;
    *generation = state >> BERTH__SHARED_GENERATION_SHIFT;
    return BERTH_OK;
}

berth_status berth_shared_check(const berth_shared *shared, uint64_t generation)
{
    if (!shared)
        return no_arena();
    atomic_thread_fence(memory_order_acquire); /* what was read before stays before */
    uint64_t state = atomic_load_explicit(&shared->live->state, memory_order_relaxed);
    bool same = is_readable(state) && state >> BERTH__SHARED_GENERATION_SHIFT == generation;
    return same ? BERTH_OK : BERTH_MISMATCH;
}

/* ---- Holds ------------------------------------------------------------------------------------------- */

static bool is_sealed(const berth_shared *s)
{
    berth_shared_seals seals;
    return s->descriptor >= 0 && berth__shared_seals_read(berth__shared_seals_of(s->descriptor), &seals) &&
           seals == BERTH_SHARED_SEAL_CONTENT;
}

static berth_status half_written(void)
{
    return berth__fail(BERTH_NOT_READY, "nothing is published, or an owner has left the arena half written");
}

static berth_status hold_first(berth_shared *s)
{
    berth_status status = berth__shared_has_descriptor(s);
    if (status)
        return status;
    if (is_sealed(s)) /* needs no lock; but others than us can seal too, at any point */
        return is_readable(seen_state(s)) ? BERTH_OK : half_written();
    if (s->writes || !berth__shared_lock_set(s->descriptor, BERTH__SHARED_CONTENT, BERTH__SHARED_LOCK_READ))
        return berth__fail(BERTH_NOT_READY, "the arena is being written");
    if (is_readable(seen_state(s)))
        return BERTH_OK;
    (void)berth__shared_lock_set(s->descriptor, BERTH__SHARED_CONTENT, BERTH__SHARED_UNLOCK);
    return half_written();
}

berth_status berth_shared_read_begin(berth_shared *shared, uint64_t *generation)
{
    if (!shared)
        return no_arena();
    berth__shared_enter(shared);
    berth_status status = shared->holds > 0 ? BERTH_OK : hold_first(shared);
    if (!status)
        shared->holds++;
    uint64_t state = seen_state(shared);
    berth__shared_leave(shared);
    if (!status && generation)
        *generation = state >> BERTH__SHARED_GENERATION_SHIFT;
    return status;
}

berth_status berth_shared_read_end(berth_shared *shared)
{
    if (!shared)
        return no_arena();
    berth__shared_enter(shared);
    bool held = shared->holds > 0;
    if (held && --shared->holds == 0 && shared->descriptor >= 0)
        (void)berth__shared_lock_set(shared->descriptor, BERTH__SHARED_CONTENT, BERTH__SHARED_UNLOCK);
    berth__shared_leave(shared);
    return held ? BERTH_OK : berth__fail(BERTH_NOT_FOUND, "the handle does not hold the content");
}

/* ---- Waiting ----------------------------------------------------------------------------------------- */

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static bool has_owner(berth_shared *s)
{
    berth__shared_enter(s);
    bool owned = s->owns || (s->descriptor >= 0 && berth__shared_is_locked(s->descriptor, BERTH__SHARED_OWNER,
                                                                           BERTH__SHARED_LOCK_READ));
    berth__shared_leave(s);
    return owned;
}

/* Why nothing may ever come; BERTH_OK: it may. The owner is looked for before the state: what it published last counts. */
static berth_status look(berth_shared *s, uint64_t after, uint64_t *state, bool *found)
{
    bool owned = has_owner(s);
    *state = seen_state(s);
    *found = is_readable(*state) && *state >> BERTH__SHARED_GENERATION_SHIFT > after;
    if (*found)
        return BERTH_OK;
    if (*state & BERTH__SHARED_RETIRED)
        return berth__fail(BERTH_CANCELLED, "the arena was retired: no generation follows");
    if (owned)
        return BERTH_OK;
    berth_status status = berth__shared_has_descriptor(s); /* without one there is no telling who owns it */
    if (status)
        return status;
    if (is_sealed(s))
        return berth__fail(BERTH_CANCELLED, "the arena's content is sealed: no generation follows");
    return berth__fail(BERTH_NOT_FOUND, "nobody owns the arena%s",
                       *state & BERTH__SHARED_WRITING ? ", which its owner has left half written" : "");
}

berth_status berth_shared_wait(berth_shared *shared, uint64_t after, uint64_t timeout_ns,
                               uint64_t *generation)
{
    if (!shared)
        return no_arena();
    uint64_t end = 0, state = 0;
    bool found = false;
    if (berth__add_overflows(now_ns(), timeout_ns, &end))
        end = UINT64_MAX;
    for (;;) {
        berth_status status = look(shared, after, &state, &found);
        if (status || found) {
            if (found && generation)
                *generation = state >> BERTH__SHARED_GENERATION_SHIFT;
            return status;
        }
        uint64_t now = now_ns();
        if (now >= end)
            return berth__fail(BERTH_TIMED_OUT, "no generation after %llu has come in time",
                               (unsigned long long)after);
        berth__shared_sleep(&shared->live->state, state,
                            end - now < LOOK_AGAIN_NS ? end - now : LOOK_AGAIN_NS);
    }
}
