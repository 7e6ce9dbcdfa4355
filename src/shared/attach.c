/* Making an arena of a plan, and attaching to one by its descriptor. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shared/shared.h"

enum { NAME_MOST = 200 };

/* ---- Making ------------------------------------------------------------------------------------------ */

/* Past RLIMIT_FSIZE the kernel would not only refuse but send a signal that ends the process. */
static berth_status within_limit(uint64_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && bytes > limit.rlim_cur)
        return berth__fail(BERTH_OVER_BUDGET,
                           "an arena of %llu bytes exceeds RLIMIT_FSIZE (ulimit -f), which is %llu",
                           (unsigned long long)bytes, (unsigned long long)limit.rlim_cur);
    return BERTH_OK;
}

/* Asked for more than there is the kernel takes what it can, and then ends a process. */
static berth_status within_room(uint64_t bytes)
{
    const uint64_t room = berth__shared_room("");
    if (bytes <= room)
        return BERTH_OK;
    return berth__fail(
        BERTH_OUT_OF_HOST_MEMORY,
        "an arena of %llu bytes cannot be reserved: the system, or this process's control group, "
        "has %llu left",
        (unsigned long long)bytes, (unsigned long long)room);
}

static bool write_image(int descriptor, const char *image, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pwrite(descriptor, image + done, bytes - done, (off_t)done);
        if (n < 0 && errno != EINTR)
            return false;
        done += n > 0 ? (uint64_t)n : 0;
    }
    return true;
}

/* The file as others may see it: whole, and of a size that nobody changes. */
static berth_status make_file(const char *image, const berth_shared_options *options, int *out)
{
    const berth__shared_head *head = (const berth__shared_head *)(const void *)image;
    uint64_t bytes = berth__shared_file_bytes(head);
    berth_status status = within_limit(bytes);
    if (!status && options->reserve)
        status = within_room(bytes);
    if (status)
        return status;
    int descriptor = berth__shared_memory(options->name ? options->name : "berth", bytes, options->reserve);
    if (descriptor < 0)
        return berth__shared_refused("memory for a shared arena is not to be had");
    if (write_image(descriptor, image, head->image_bytes) &&
        berth__shared_seal_add(descriptor, BERTH_SHARED_SEAL_SIZE) &&
        berth__shared_lock_set(descriptor, BERTH__SHARED_OWNER, BERTH__SHARED_LOCK_WRITE) &&
        berth__shared_lock_set(descriptor, BERTH__SHARED_CONTENT, BERTH__SHARED_LOCK_WRITE)) {
        *out = descriptor;
        return BERTH_OK;
    }
    status = berth__shared_refused("a shared arena cannot be prepared");
    close(descriptor);
    return status;
}

/* Nobody else sees the handle or the arena yet. */
static berth_status begin_owned(berth_shared *s)
{
    if (!berth__shared_protect(s, true))
        return berth__shared_refused("the arena cannot be mapped for writing");
    s->owns = s->writes = true;
    atomic_store_explicit(&s->live->owner, (uint64_t)getpid(), memory_order_relaxed);
    atomic_store_explicit(&s->live->state, BERTH__SHARED_WRITING, memory_order_release);
    return BERTH_OK;
}

static berth_status create_from(const berth__plan_content *plan, const berth_shared_options *options,
                                berth_shared **out)
{
    if (plan->total_bytes == 0)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the plan has no allocation with a place: there is nothing to share");
    char *image = NULL;
    int descriptor = -1;
    berth_shared *s = NULL;
    berth_status status = berth__shared_image_make(plan, &image);
    if (status)
        return status;
    status = make_file(image, options, &descriptor);
    if (status) {
        berth__heap_free(image);
        return status;
    }
    status = berth__shared_wrap(descriptor, true, image, &s);
    if (!status)
        status = begin_owned(s);
    if (!status)
        *out = s;
    else
        berth_shared_release(s);
    return status;
}

berth_status berth_shared_create(berth_plan *plan, const berth_shared_options *options, berth_shared **out)
{
    static const berth_shared_options defaults = BERTH_SHARED_OPTIONS_INIT;
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no place for the arena: out is NULL");
    *out = NULL;
    if (!options)
        options = &defaults;
    if (!plan || options->struct_size < sizeof *options)
        return berth__fail(BERTH_INVALID_ARGUMENT, plan ? "start the options from BERTH_SHARED_OPTIONS_INIT"
                                                        : "an arena needs a plan, which is NULL");
    if (options->name && strnlen(options->name, NAME_MOST + 1) > NAME_MOST)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the arena's name has more than %d bytes", NAME_MOST);
    berth__plan_content *content = NULL;
    berth_status status = berth__plan_content_of(plan, &content);
    if (status)
        return status;
    berth__shared_open_begin();
    status = create_from(content, options, out);
    berth__shared_open_end();
    berth__plan_content_release(content);
    return status;
}

/* ---- Attaching --------------------------------------------------------------------------------------- */

static berth_status check_options(const berth_shared_attach_options *o)
{
    if (o->struct_size < sizeof *o)
        return berth__fail(BERTH_INVALID_ARGUMENT, "start the options from BERTH_SHARED_ATTACH_OPTIONS_INIT");
    if ((uint32_t)o->access > BERTH_SHARED_WRITE || (uint32_t)o->seals > BERTH_SHARED_SEAL_CONTENT)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no access %d or no seal %d", (int)o->access,
                           (int)o->seals);
    if (o->access == BERTH_SHARED_WRITE && o->seals != BERTH_SHARED_SEAL_SIZE)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "nobody attaches for writing to what is sealed against it");
    return BERTH_OK;
}

static berth_status check_seals(int descriptor, const berth_shared_attach_options *options)
{
    berth_shared_seals seals;
    int kernel_seals = berth__shared_seals_of(descriptor);
    if (kernel_seals < 0 && errno == EBADF)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%d is not an open descriptor", descriptor);
    if (kernel_seals < 0 && errno == ENOSYS)
        return berth__shared_refused("there are no shared arenas here");
    if (kernel_seals < 0 || !berth__shared_is_plain_memory(descriptor))
        return berth__fail(BERTH_BAD_DATA, "descriptor %d is not a shared arena", descriptor);
    if (!berth__shared_seals_read(kernel_seals, &seals))
        return berth__fail(
            BERTH_BAD_DATA,
            "the memory behind descriptor %d could be cut short under its readers: it is not sealed",
            descriptor);
    if (options->access == BERTH_SHARED_WRITE && seals != BERTH_SHARED_SEAL_SIZE)
        return berth__fail(BERTH_UNSUPPORTED, "the arena is sealed against writers: attach for reading");
    if (seals < options->seals)
        return berth__fail(BERTH_MISMATCH, "the arena's %s is not sealed, which was asked for",
                           options->seals == BERTH_SHARED_SEAL_CONTENT ? "content" : "list of writers");
    if (options->access == BERTH_SHARED_WRITE && (fcntl(descriptor, F_GETFL) & O_ACCMODE) != O_RDWR)
        return berth__fail(BERTH_UNSUPPORTED, "descriptor %d is for reading only", descriptor);
    return BERTH_OK;
}

static bool read_whole(int descriptor, char *to, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = pread(descriptor, to + done, bytes - done, (off_t)done);
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        done += n > 0 ? (uint64_t)n : 0;
    }
    return true;
}

static berth_status read_image(int descriptor, char **out)
{
    struct stat file;
    berth__shared_head head;
    if (fstat(descriptor, &file) != 0 || file.st_size < BERTH__SHARED_TABLE ||
        !read_whole(descriptor, (char *)&head, sizeof head))
        return berth__fail(BERTH_BAD_DATA, "the memory is too short for a shared arena");
    berth_status status = berth__shared_head_check(&head, (uint64_t)file.st_size);
    if (status)
        return status;
    char *image = berth__heap_alloc(head.image_bytes);
    if (!image)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the description of %u allocations",
                           head.count);
    if (!read_whole(descriptor, image, head.image_bytes) || memcmp(image, &head, sizeof head) != 0)
        status = berth__fail(BERTH_BAD_DATA, "the arena's description changes while it is read");
    else
        status = berth__shared_image_check(image);
    if (!status)
        *out = image;
    else
        berth__heap_free(image);
    return status;
}

static berth_status open_checked(int descriptor, const berth_shared_attach_options *options,
                                 berth_shared **out)
{
    bool may_write = options->access == BERTH_SHARED_WRITE;
    char *image = NULL;
    int own = berth__shared_reopen(descriptor, may_write);
    if (own < 0 && may_write && errno == EACCES)
        return berth__fail(
            BERTH_UNSUPPORTED,
            "the arena belongs to another user, whose processes alone may write: attach for reading");
    if (own < 0)
        return berth__shared_refused("the arena's descriptor cannot be opened again");
    berth_status status = read_image(own, &image);
    if (!status) {
        uint64_t print = ((const berth__shared_head *)(const void *)image)->fingerprint;
        if (options->fingerprint && options->fingerprint != print)
            status = berth__fail(BERTH_MISMATCH,
                                 "the arena is of another plan: its fingerprint is %016llx, not %016llx",
                                 (unsigned long long)print, (unsigned long long)options->fingerprint);
    }
    if (!status)
        return berth__shared_wrap(own, may_write, image, out);
    berth__heap_free(image);
    close(own);
    return status;
}

static berth_status check_state(const berth_shared *s, const berth_shared_attach_options *options)
{
    uint64_t state = atomic_load_explicit(&s->live->state, memory_order_acquire);
    uint64_t generation = state >> BERTH__SHARED_GENERATION_SHIFT;
    if (state & BERTH__SHARED_RETIRED)
        return berth__fail(BERTH_CANCELLED, "the arena was retired at generation %llu: ask for its successor",
                           (unsigned long long)generation);
    if (generation < options->generation)
        return berth__fail(BERTH_MISMATCH, "the arena is stale: at generation %llu, and %llu was asked for",
                           (unsigned long long)generation, (unsigned long long)options->generation);
    return BERTH_OK;
}

berth_status berth_shared_attach(int descriptor, const berth_shared_attach_options *options,
                                 berth_shared **out)
{
    static const berth_shared_attach_options defaults = BERTH_SHARED_ATTACH_OPTIONS_INIT;
    if (!out)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no place for the arena: out is NULL");
    *out = NULL;
    if (!options)
        options = &defaults;
    berth_shared *s = NULL;
    berth_status status = check_options(options);
    if (!status)
        status = check_seals(descriptor, options);
    if (!status) {
        berth__shared_open_begin();
        status = open_checked(descriptor, options, &s);
        berth__shared_open_end();
    }
    if (!status)
        status = check_state(s, options);
    if (!status)
        *out = s;
    else
        berth_shared_release(s);
    return status;
}
