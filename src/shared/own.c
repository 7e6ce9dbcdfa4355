/* Who writes: ownership, writing and publishing, retiring, and seals. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/shared.h"

static berth_status no_handle(void)
{
    return berth__fail(BERTH_INVALID_ARGUMENT, "there is no arena: the handle is NULL");
}

static berth_status not_owner(void)
{
    return berth__fail(BERTH_BUSY, "the handle does not own the arena: berth_shared_own comes first");
}

static bool is_taken(void)
{
    return errno == EAGAIN || errno == EACCES;
}

/* Who took the arena as its block, such as a planned allocator, would write to memory that is read-only from now on. */
static berth_status check_not_taken(berth_shared *s)
{
    if (!atomic_load_explicit(&s->taker, memory_order_relaxed))
        return BERTH_OK;
    return berth__fail(BERTH_BUSY,
                       "an allocator has the arena as its block: trim or release what replays into it first");
}

static uint64_t state_of(const berth_shared *s)
{
    return atomic_load_explicit(&s->live->state, memory_order_relaxed);
}

/* ---- Ownership --------------------------------------------------------------------------------------- */

static berth_status own_locked(berth_shared *s)
{
    if (s->owns)
        return BERTH_OK;
    if (!s->may_write)
        return berth__fail(BERTH_UNSUPPORTED, "the handle is for reading: attach with BERTH_SHARED_WRITE");
    if (!berth__shared_lock_set(s->descriptor, BERTH__SHARED_OWNER, BERTH__SHARED_LOCK_WRITE))
        return is_taken() ? berth__fail(BERTH_BUSY, "process %llu owns the arena",
                                        (unsigned long long)atomic_load(&s->live->owner))
                          : berth__shared_refused("the arena cannot be locked");
    if (!berth__shared_protect(s, true)) {
        berth_status status = berth__shared_refused("the arena cannot be made writable");
        (void)berth__shared_lock_set(s->descriptor, BERTH__SHARED_OWNER, BERTH__SHARED_UNLOCK);
        return status;
    }
    s->owns = true;
    atomic_store_explicit(&s->live->owner, (uint64_t)getpid(), memory_order_relaxed);
    return BERTH_OK;
}

berth_status berth_shared_own(berth_shared *shared)
{
    if (!shared)
        return no_handle();
    berth__shared_enter(shared);
    berth_status status = own_locked(shared);
    berth__shared_leave(shared);
    return status;
}

static berth_status disown_locked(berth_shared *s)
{
    if (!s->owns)
        return berth__fail(BERTH_NOT_FOUND, "the handle does not own the arena");
    if (s->writes)
        return berth__fail(BERTH_BUSY, "the arena is being written: berth_shared_publish comes first");
    berth_status status = check_not_taken(s);
    if (status)
        return status;
    if (!berth__shared_protect(s, false))
        return berth__shared_refused("the arena cannot be made read-only");
    s->owns = false;
    (void)berth__shared_lock_set(s->descriptor, BERTH__SHARED_OWNER, BERTH__SHARED_UNLOCK);
    return BERTH_OK;
}

berth_status berth_shared_disown(berth_shared *shared)
{
    if (!shared)
        return no_handle();
    berth__shared_enter(shared);
    berth_status status = disown_locked(shared);
    berth__shared_leave(shared);
    return status;
}

/* ---- Writing ----------------------------------------------------------------------------------------- */

static berth_status write_locked(berth_shared *s)
{
    if (!s->owns)
        return not_owner();
    if (s->writes)
        return BERTH_OK;
    if (state_of(s) & BERTH__SHARED_RETIRED)
        return berth__fail(BERTH_CANCELLED, "the arena was retired");
    if (s->holds > 0) /* the kernel would make a write lock of this handle's own read lock */
        return berth__fail(BERTH_BUSY, "the handle itself holds the content for reading");
    if (!berth__shared_lock_set(s->descriptor, BERTH__SHARED_CONTENT, BERTH__SHARED_LOCK_WRITE))
        return is_taken() ? berth__fail(BERTH_BUSY, "a reader holds the content")
                          : berth__shared_refused("the content cannot be locked");
    atomic_store_explicit(&s->live->state, state_of(s) | BERTH__SHARED_WRITING, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* a reader that sees anything new sees this too */
    s->writes = true;
    return BERTH_OK;
}

berth_status berth_shared_write_begin(berth_shared *shared)
{
    if (!shared)
        return no_handle();
    berth__shared_enter(shared);
    berth_status status = write_locked(shared);
    berth__shared_leave(shared);
    return status;
}

static berth_status publish_locked(berth_shared *s, uint64_t *generation)
{
    if (!s->owns)
        return not_owner();
    if (!s->writes)
        return berth__fail(BERTH_BUSY, "nothing is being written: berth_shared_write_begin comes first");
    *generation = (state_of(s) >> BERTH__SHARED_GENERATION_SHIFT) + 1;
    /* Unlocked first: a reader that sees the generation can hold it at once. One that comes between sees that it is not there. */
    (void)berth__shared_lock_set(s->descriptor, BERTH__SHARED_CONTENT, BERTH__SHARED_UNLOCK);
    s->writes = false;
    atomic_store_explicit(&s->live->state, *generation << BERTH__SHARED_GENERATION_SHIFT,
                          memory_order_release);
    return BERTH_OK;
}

berth_status berth_shared_publish(berth_shared *shared, uint64_t *generation)
{
    if (!shared)
        return no_handle();
    uint64_t published = 0;
    berth__shared_enter(shared);
    berth_status status = publish_locked(shared, &published);
    berth__shared_leave(shared);
    if (status)
        return status;
    berth__shared_wake(&shared->live->state);
    if (generation)
        *generation = published;
    return BERTH_OK;
}

berth_status berth_shared_retire(berth_shared *shared)
{
    if (!shared)
        return no_handle();
    berth_status status = BERTH_OK;
    berth__shared_enter(shared);
    if (!shared->owns)
        status = not_owner();
    else if (shared->writes)
        status = berth__fail(BERTH_BUSY, "the arena is being written: berth_shared_publish comes first");
    else
        atomic_store_explicit(&shared->live->state, state_of(shared) | BERTH__SHARED_RETIRED,
                              memory_order_release);
    berth__shared_leave(shared);
    if (!status)
        berth__shared_wake(&shared->live->state);
    return status;
}

/* ---- Seals ------------------------------------------------------------------------------------------- */

static berth_status seal_refused(void)
{
    if (errno == EBUSY)
        return berth__fail(BERTH_BUSY,
                           "somebody has the arena mapped for writing, or a device still reads its pages");
    if (errno == EINVAL)
        return berth__fail(BERTH_UNSUPPORTED, "this kernel does not know the seal");
    return berth__shared_refused("the arena cannot be sealed");
}

/* The kernel seals content only that nobody has mapped for writing, so the map is exchanged for one of a description for reading; it
 * stays in its place, and who reads sees no gap. */
static berth_status seal_content(berth_shared *s)
{
    if (!berth__shared_lock_set(s->descriptor, BERTH__SHARED_WRITERS, BERTH__SHARED_LOCK_WRITE))
        return is_taken() ? berth__fail(BERTH_BUSY, "another handle is attached for writing")
                          : berth__shared_refused("the arena cannot be locked");
    berth_status status = BERTH_OK;
    int reader = berth__shared_reopen(s->descriptor, false);
    if (reader < 0) {
        status = berth__shared_refused("the arena's descriptor cannot be opened again");
        goto unlock;
    }
    if (!berth__shared_map_again(s, reader, false)) {
        status = berth__shared_refused("the arena cannot be mapped for reading");
        goto close_reader;
    }
    if (!berth__shared_seal_add(s->descriptor, BERTH_SHARED_SEAL_CONTENT)) {
        status = seal_refused();
        goto map_back;
    }
    /* The description for writing goes, and with it all locks. */
    s->may_write = s->owns = false;
    s->holds = 0;
    return berth__shared_replace(reader, s->descriptor)
               ? BERTH_OK
               : berth__shared_refused("the arena is sealed, but its descriptor cannot be exchanged");

map_back: /* somebody who is not ours maps it; where writers are sealed there is no way back */
    s->owns = berth__shared_map_again(s, s->descriptor, true);
    if (!s->owns)
        (void)berth__shared_lock_set(s->descriptor, BERTH__SHARED_OWNER, BERTH__SHARED_UNLOCK);
close_reader:
    close(reader);
unlock:
    (void)berth__shared_lock_set(s->descriptor, BERTH__SHARED_WRITERS, BERTH__SHARED_LOCK_READ);
    return status;
}

static berth_status seal_locked(berth_shared *s, berth_shared_seals seals)
{
    berth_shared_seals now;
    berth_status status = berth__shared_has_descriptor(s);
    if (status)
        return status;
    if (berth__shared_seals_read(berth__shared_seals_of(s->descriptor), &now) && now >= seals)
        return BERTH_OK;
    if (!s->owns)
        return not_owner();
    if (seals == BERTH_SHARED_SEAL_WRITERS)
        return berth__shared_seal_add(s->descriptor, seals) ? BERTH_OK : seal_refused();
    if (s->writes || s->holds > 0 || state_of(s) >> BERTH__SHARED_GENERATION_SHIFT == 0 ||
        (state_of(s) & BERTH__SHARED_WRITING))
        return berth__fail(
            BERTH_BUSY,
            "the content cannot be sealed before it is published, nor while this handle holds it");
    status = check_not_taken(s);
    return status ? status : seal_content(s);
}

berth_status berth_shared_seal(berth_shared *shared, berth_shared_seals seals)
{
    if (!shared)
        return no_handle();
    if ((uint32_t)seals > BERTH_SHARED_SEAL_CONTENT)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no seal %d", (int)seals);
    berth__shared_enter(shared);
    berth_status status = seal_locked(shared, seals);
    berth__shared_leave(shared);
    return status;
}
