/* A handle's life: mapping an arena, letting go of it, and what the child of a fork keeps. */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shared/shared.h"

/* ---- All handles of the process ---------------------------------------------------------------------- */

static berth__spin list_lock; /* the list; after a fork the child is alone with it */
static berth_shared *all_handles;

/* In the child: a description of its own, so that the parent's locks are the parent's alone, and a map that nothing makes writable.
 * Where that fails the handle still reads. */
static void become_reader(berth_shared *s)
{
    int own = s->descriptor >= 0 ? berth__shared_reopen(s->descriptor, false) : -1;
    if (s->may_write && (own < 0 || !berth__shared_map_again(s, own, false)))
        (void)berth__shared_protect(s, false);
    s->may_write = s->owns = s->writes = false;
    s->holds = 0;
    if (own >= 0 && berth__shared_replace(own, s->descriptor))
        return;
    if (s->descriptor >= 0)
        close(s->descriptor);
    s->descriptor = -1;
}

static void all_become_readers(void)
{
    for (berth_shared *s = all_handles; s; s = s->next)
        become_reader(s);
}

void berth__shared_open_begin(void)
{
    static berth__fork_watch watch = {.rank = BERTH__RANK_SHARED, .child = all_become_readers};
    berth__fork_watch_add(&watch);
    berth__fork_enter(BERTH__RANK_MAPPING);
}

void berth__shared_open_end(void)
{
    berth__fork_leave(BERTH__RANK_MAPPING);
}

static void list_add(berth_shared *s)
{
    berth__spin_lock(&list_lock, BERTH__RANK_SHARED);
    s->next = all_handles;
    if (s->next)
        s->next->previous = s;
    all_handles = s;
    berth__spin_unlock(&list_lock, BERTH__RANK_SHARED);
}

static void list_remove(berth_shared *s)
{
    berth__spin_lock(&list_lock, BERTH__RANK_SHARED);
    if (s->next)
        s->next->previous = s->previous;
    *(s->previous ? &s->previous->next : &all_handles) = s->next;
    berth__spin_unlock(&list_lock, BERTH__RANK_SHARED);
}

/* ---- Mapping ----------------------------------------------------------------------------------------- */

bool berth__shared_protect(const berth_shared *s, bool writable)
{
    return mprotect(s->map, s->map_bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ) == 0;
}

bool berth__shared_map_again(const berth_shared *s, int descriptor, bool writable)
{
    return mmap(s->map, s->map_bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED | MAP_FIXED,
                descriptor, 0) != MAP_FAILED;
}

/* Address space in which the arena comes to lie at a multiple of its alignment; the ends go back. */
static char *reserve_aligned(uint64_t bytes, const berth__shared_head *head, size_t page)
{
    size_t whole = berth__align_up(bytes, page) + head->alignment;
    char *raw = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    uintptr_t arena = berth__align_up((uintptr_t)raw + head->arena_offset, head->alignment);
    char *start = raw + (arena - head->arena_offset - (uintptr_t)raw);
    char *end = start + berth__align_up(bytes, page);
    if (start != raw)
        munmap(raw, (size_t)(start - raw));
    if (end != raw + whole)
        munmap(end, (size_t)(raw + whole - end));
    return start;
}

static bool map_whole(berth_shared *s)
{
    const berth__shared_head *head = berth__shared_head_of(s);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    bool strict = head->alignment > page;
    char *place = strict ? reserve_aligned(s->map_bytes, head, page) : NULL;
    if (strict && !place)
        return false;
    char *map = mmap(place, s->map_bytes, PROT_READ, MAP_SHARED | (strict ? MAP_FIXED : 0), s->descriptor, 0);
    if (map == MAP_FAILED) {
        int code = errno;
        if (place)
            munmap(place, s->map_bytes);
        errno = code;
        return false;
    }
    s->map = map;
    s->live = (berth__shared_live *)(void *)(map + BERTH__SHARED_LIVE);
    s->arena = map + head->arena_offset;
    return true;
}

/* ---- Life -------------------------------------------------------------------------------------------- */

berth_status berth__shared_wrap(int descriptor, bool may_write, char *image, berth_shared **out)
{
    berth_status status = BERTH_OK;
    berth_shared *s = berth__heap_zalloc(1, sizeof *s);
    if (!s) {
        status = berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a handle on a shared arena");
        goto close_descriptor;
    }
    atomic_init(&s->references, 1);
    s->descriptor = descriptor;
    s->may_write = may_write;
    s->image = image;
    s->map_bytes = berth__shared_file_bytes(berth__shared_head_of(s));
    if (may_write && !berth__shared_lock_set(descriptor, BERTH__SHARED_WRITERS, BERTH__SHARED_LOCK_READ)) {
        status = errno == EAGAIN || errno == EACCES
                     ? berth__fail(BERTH_BUSY, "the arena's content is just being sealed")
                     : berth__shared_refused("the arena cannot be locked");
        goto free_handle;
    }
    if (!map_whole(s)) {
        status = berth__shared_refused("the arena cannot be mapped");
        goto free_handle;
    }
    list_add(s);
    *out = s;
    return BERTH_OK;

free_handle:
    berth__heap_free(s);
close_descriptor:
    close(descriptor);
    berth__heap_free(image);
    return status;
}

berth_status berth__shared_has_descriptor(const berth_shared *s)
{
    if (s->descriptor >= 0)
        return BERTH_OK;
    return berth__fail(BERTH_IO, "the handle lost its descriptor in a fork: it can only read what is mapped");
}

berth_shared *berth_shared_retain(berth_shared *shared)
{
    if (shared)
        atomic_fetch_add_explicit(&shared->references, 1, memory_order_relaxed);
    return shared;
}

void berth_shared_release(berth_shared *shared)
{
    if (!shared || atomic_fetch_sub_explicit(&shared->references, 1, memory_order_acq_rel) != 1)
        return;
    berth__fork_enter(BERTH__RANK_MAPPING);
    list_remove(shared);
    munmap(shared->map, shared->map_bytes);
    if (shared->descriptor >= 0)
        close(shared->descriptor);
    berth__fork_leave(BERTH__RANK_MAPPING);
    berth__heap_free(shared->image);
    berth__heap_free(shared);
}
