/* Text on its way to a file. An ordinary file is written beside its place and moved there when whole, so that a
 * failure leaves what was there, and a plan may replace the problem it was made from. */
#include "file/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A name beside any other, short whatever that is: .berth.4711.0.tmp */
enum { BUFFER_BYTES = 1 << 16, TEMPORARY_ROOM = 48, TEMPORARY_TRIES = 100 };

struct berth__output {
    int fd;
    const char *path; /* as the caller names it */
    char *target;     /* what is replaced, links resolved; NULL: written in place */
    char *temporary;  /* beside it */
    struct stat old;  /* of the target, if `replaces` */
    bool replaces;
    size_t used;
    int error; /* errno of the first failure */
    char buffer[BUFFER_BYTES];
};

static berth_status cannot(const char *path, const char *why)
{
    if (strcmp(path, "-") == 0)
        return berth__fail(BERTH_IO, "the standard output cannot be written: %s", why);
    return berth__fail(BERTH_IO, "'%s' cannot be written: %s", path, why);
}

/* Whether the path names what the standard output writes to: moving another file to an ordinary one's place
 * would leave that output in nobody's sight. */
static bool is_standard_output(const char *path)
{
    struct stat named, open_one;
    return strcmp(path, "-") == 0 || (stat(path, &named) == 0 && fstat(STDOUT_FILENO, &open_one) == 0 &&
                                      named.st_dev == open_one.st_dev && named.st_ino == open_one.st_ino &&
                                      (S_ISREG(named.st_mode) || S_ISFIFO(named.st_mode)));
}

/* ---- Beside its place ----------------------------------------------------------------------------- */

static berth_status name_target(berth__output *o)
{
    const size_t length = strlen(o->path);
    o->target = berth__heap_alloc(length < PATH_MAX ? PATH_MAX : length + 1);
    if (!o->target)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to write a file");
    memcpy(o->target, o->path, length + 1);
    if (o->replaces && !realpath(o->path, o->target))
        return cannot(o->path, strerror(errno));
    const char *slash = strrchr(o->target, '/');
    const size_t folder = slash ? (size_t)(slash + 1 - o->target) : 0;
    o->temporary = berth__heap_alloc(folder + TEMPORARY_ROOM);
    if (!o->temporary)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to write a file");
    memcpy(o->temporary, o->target, folder);
    o->temporary[folder] = '\0';
    return BERTH_OK;
}

/* What replaces a file must not be readable by others while it grows, so it opens up only at the end. */
static berth_status open_temporary(berth__output *o)
{
    const size_t folder = strlen(o->temporary);
    for (int k = 0; o->fd < 0 && k < TEMPORARY_TRIES; k++) {
        snprintf(o->temporary + folder, TEMPORARY_ROOM, ".berth.%ld.%d.tmp", (long)getpid(), k);
        o->fd = open(o->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, o->replaces ? 0600 : 0666);
        if (o->fd < 0 && errno != EEXIST)
            break;
    }
    if (o->fd >= 0)
        return BERTH_OK;
    if (!o->replaces)
        return cannot(o->path, strerror(errno));
    return berth__fail(BERTH_IO,
                       "'%s' cannot be replaced: no new file can be made in its folder: %s; name another "
                       "folder, or write to the standard output",
                       o->path, strerror(errno));
}

static berth_status keep_owner(berth__output *o)
{
    struct stat made;
    if (!o->replaces ||
        (fstat(o->fd, &made) == 0 && made.st_uid == o->old.st_uid && made.st_gid == o->old.st_gid))
        return BERTH_OK;
    if (fchown(o->fd, o->old.st_uid, o->old.st_gid) == 0)
        return BERTH_OK;
    return berth__fail(
        BERTH_IO,
        "'%s' cannot be replaced by a file of the same owner and group: %s; name another file, "
        "or write to the standard output",
        o->path, strerror(errno));
}

static berth_status open_beside(berth__output *o)
{
    /* A move would replace a file that may not be written. */
    if (o->replaces && access(o->path, W_OK) != 0)
        return cannot(o->path, strerror(errno));
    berth_status status = name_target(o);
    if (!status)
        status = open_temporary(o);
    if (!status && (status = keep_owner(o)))
        unlink(o->temporary);
    return status;
}

/* ---- Opening and closing -------------------------------------------------------------------------- */

static void output_free(berth__output *o)
{
    if (o->fd >= 0 && o->fd != STDOUT_FILENO)
        close(o->fd);
    berth__heap_free(o->temporary);
    berth__heap_free(o->target);
    berth__heap_free(o);
}

static berth_status open_in_place(berth__output *o)
{
    o->fd = open(o->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    return o->fd >= 0 ? BERTH_OK : cannot(o->path, strerror(errno));
}

berth_status berth__output_open(const char *path, berth__output **out)
{
    *out = NULL;
    berth__output *o = berth__heap_zalloc(1, sizeof *o);
    if (!o)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to write a file");
    o->path = path;
    o->fd = -1;
    berth_status status = BERTH_OK;
    struct stat link;
    bool exists = stat(path, &o->old) == 0;
    o->replaces = exists && S_ISREG(o->old.st_mode);
    if (is_standard_output(path))
        o->fd = STDOUT_FILENO;
    else if (o->replaces || (!exists && lstat(path, &link) != 0))
        status = open_beside(o);
    else /* a device, a pipe, a folder, which refuses; a link to nothing, where nothing can be lost */
        status = open_in_place(o);
    if (status)
        output_free(o);
    else
        *out = o;
    return status;
}

static void output_flush(berth__output *o)
{
    for (size_t done = 0; done < o->used && !o->error;) {
        ssize_t put = write(o->fd, o->buffer + done, o->used - done);
        if (put >= 0)
            done += (size_t)put;
        else if (errno != EINTR)
            o->error = errno;
    }
    o->used = 0;
}

static void move_into_place(berth__output *o)
{
    if (o->replaces && fchmod(o->fd, o->old.st_mode & 07777) != 0)
        o->error = errno;
    int closed = close(o->fd);
    o->fd = -1;
    if (!o->error && (closed != 0 || rename(o->temporary, o->target) != 0))
        o->error = errno;
}

berth_status berth__output_close(berth__output *o, berth_status status)
{
    if (!status)
        output_flush(o);
    if (o->temporary && !status && !o->error)
        move_into_place(o);
    if (o->temporary && (status || o->error))
        unlink(o->temporary);
    if (!o->temporary && o->fd != STDOUT_FILENO) {
        if (close(o->fd) != 0 && !o->error)
            o->error = errno;
        o->fd = -1;
    }
    if (!status && o->error && o->replaces && o->temporary)
        status = berth__fail(BERTH_IO, "'%s' cannot be written: %s; it is left as it was", o->path,
                             strerror(o->error));
    else if (!status && o->error)
        status = cannot(o->path, strerror(o->error));
    output_free(o);
    return status;
}

/* ---- Text ----------------------------------------------------------------------------------------- */

void berth__output_put(berth__output *o, const char *text, size_t length)
{
    while (length) {
        if (o->used == BUFFER_BYTES)
            output_flush(o);
        size_t some = BUFFER_BYTES - o->used < length ? BUFFER_BYTES - o->used : length;
        memcpy(o->buffer + o->used, text, some);
        o->used += some;
        text += some;
        length -= some;
    }
}

void berth__output_number(berth__output *o, uint64_t n)
{
    char digits[20];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + n % 10);
    while (n /= 10);
    berth__output_put(o, digits + at, sizeof digits - at);
}

void berth__output_signed(berth__output *o, int64_t n)
{
    if (n < 0)
        berth__output_put(o, "-", 1);
    berth__output_number(o, n < 0 ? 0 - (uint64_t)n : (uint64_t)n);
}
