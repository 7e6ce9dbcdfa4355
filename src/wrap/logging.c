/* The event log: a line of CSV for each allocate, free, reallocate and record_use. */
#include "berth/decorators.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "core/allocator.h"

struct logging {
    berth__wrapper base;
    int file; /* -1: `write` */
    _Atomic bool file_failed;
    berth_event_line_fn write;
    void *context;
};

struct event {
    const char *name;
    const void *address;
    size_t bytes;
    size_t alignment;
    const char *label;
    const berth_stream *stream;
    berth_status status;
};

/* ---- Lines --------------------------------------------------------------------------------------- */

/* Quoted only where CSV needs it; what does not fit is cut. */
static size_t put_label(char *to, size_t capacity, const char *label)
{
    size_t length = 0;
    if (!label)
        return 0;
    bool quoted = strpbrk(label, ",\"\r\n") != NULL;
    if (quoted)
        to[length++] = '"';
    for (const char *c = label; *c && length + 3 < capacity; c++) {
        if (*c == '"')
            to[length++] = '"';
        to[length++] = *c;
    }
    if (quoted)
        to[length++] = '"';
    return length;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static size_t put_hex(char *to, size_t capacity, const void *p)
{
    return p ? (size_t)snprintf(to, capacity, "0x%llx", (unsigned long long)(uintptr_t)p) : 0;
}

static void logging_emit(struct logging *l, const char *line, size_t length)
{
    if (l->file < 0) {
        l->write(l->context, line, length);
        return;
    }
    ssize_t written;
    do {
        written = write(l->file, line, length);
    } while (written < 0 && errno == EINTR);
    if ((written < 0 || (size_t)written != length) && !atomic_exchange(&l->file_failed, true))
        berth__log(BERTH_LOG_ERROR, "the event log cannot be written (%s); lines are missing from now on",
                   written < 0 ? strerror(errno) : "the disk is full");
}

static void log_event(struct logging *l, const struct event *event)
{
    enum { LABEL_MAX = 256 };
    char line[LABEL_MAX + 256];
    int start = snprintf(line, 96, "%llu,%u,%s,", (unsigned long long)now_ns(), berth__thread(), event->name);
    size_t length = (size_t)start;
    length += put_hex(line + length, 24, event->address);
    length += (size_t)snprintf(line + length, 64, ",%zu,%zu,", event->bytes, event->alignment);
    length += put_label(line + length, LABEL_MAX, event->label);
    line[length++] = ',';
    length += put_hex(line + length, 24, event->stream);
    length += (size_t)snprintf(line + length, 48, ",%s\n", berth_status_name(event->status) + sizeof "BERTH");
    logging_emit(l, line, length);
}

/* ---- Operations ---------------------------------------------------------------------------------- */

/* The last error is the inner operation's: writing the line must not change what the caller reads. */

static berth_status logging_allocate(void *self, size_t size_bytes, size_t alignment,
                                     const berth_request *request, void **out)
{
    struct logging *l = self;
    berth_status status = berth__allocate(l->base.inner, size_bytes, alignment, request, out);
    if (!(request->flags & BERTH_WILL_BE_LOGGED))
        log_event(l, &(struct event){"allocate", *out, size_bytes, alignment, berth__request_label(request),
                                     request->stream, status});
    return status;
}

static berth_status logging_deallocate(void *self, void *p, size_t size_bytes, berth_stream *stream)
{
    struct logging *l = self;
    /* Before the free: afterwards another thread's allocation of the same address could come first. */
    log_event(l, &(struct event){"free", p, size_bytes, 0, NULL, stream, BERTH_OK});
    berth_status status = berth__deallocate(l->base.inner, p, size_bytes, stream);
    if (!berth__free_is_done(status))
        log_event(l, &(struct event){"free_failed", p, size_bytes, 0, NULL, stream, status});
    return status;
}

static berth_status logging_reallocate(void *self, void *p, size_t old_bytes, size_t new_bytes,
                                       size_t alignment, const berth_request *request, void **out)
{
    struct logging *l = self;
    berth_allocator *inner = l->base.inner;
    /* Before the move, as before a free; one that is refused is told of as a free that is. */
    log_event(l, &(struct event){"reallocate_from", p, old_bytes, 0, NULL, request->stream, BERTH_OK});
    berth_status status =
        inner->ops.reallocate(inner->self, p, old_bytes, new_bytes, alignment, request, out);
    if (status)
        log_event(l, &(struct event){"free_failed", p, old_bytes, 0, NULL, request->stream, status});
    if (status != BERTH_UNSUPPORTED) /* then the front goes through allocate and free, which are logged */
        log_event(l, &(struct event){"reallocate", *out, new_bytes, alignment, berth__request_label(request),
                                     request->stream, status});
    return status;
}

static berth_status logging_record_use(void *self, const void *p, berth_stream *stream)
{
    struct logging *l = self;
    berth_allocator *inner = l->base.inner;
    berth_status status = inner->ops.record_use(inner->self, p, stream);
    log_event(l, &(struct event){"record_use", p, 0, 0, NULL, stream, status});
    return status;
}

static void logging_destroy(void *self)
{
    struct logging *l = self;
    berth__wrapper_finish(&l->base);
    if (l->file >= 0)
        close(l->file);
    berth__heap_free(l);
}

/* ---- Creation ------------------------------------------------------------------------------------ */

static berth_status open_file(const char *path, int *file)
{
    *file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    return *file >= 0 ? BERTH_OK
                      : berth__fail(BERTH_IO, "the event log %s cannot be opened: %s", path, strerror(errno));
}

/* The header starts an empty file, so that several logs in one file have it once. */
static void logging_start(struct logging *l)
{
    struct stat info;
    bool has_lines = l->file >= 0 && fstat(l->file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0;
    if (!has_lines)
        logging_emit(l, BERTH_EVENT_LOG_HEADER, sizeof BERTH_EVENT_LOG_HEADER - 1);
}

berth_status berth_event_log_create(berth_allocator *inner, const berth_event_log_options *options,
                                    berth_allocator **out)
{
    if (out)
        *out = NULL;
    if (!out || !inner || !options)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s is NULL",
                           !out     ? "out"
                           : !inner ? "the inner allocator"
                                    : "options: a path or a function is needed");
    if (options->struct_size < sizeof *options || (!options->path && !options->write))
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "an event log needs options from BERTH_EVENT_LOG_OPTIONS_INIT with a path or a "
                           "function for its lines");
    struct logging *l = berth__heap_zalloc(1, sizeof *l);
    if (!l)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for an event log's handle");
    l->file = -1;
    l->write = options->write;
    l->context = options->context;
    berth_status status = options->path ? open_file(options->path, &l->file) : BERTH_OK;
    if (status) {
        berth__heap_free(l);
        return status;
    }
    berth_allocator_ops ops = berth__forward_ops;
    ops.allocate = logging_allocate;
    ops.deallocate = logging_deallocate;
    /* If the front moves the block through ours anyway, nothing has to be taken back. */
    ops.reallocate = berth__reallocates(inner) ? logging_reallocate : NULL;
    ops.record_use = logging_record_use;
    ops.destroy = logging_destroy;
    berth__wrapper_init(&l->base, &ops, inner);
    l->base.base.header = inner->header;
    l->base.base.follows_streams = inner->follows_streams;
    logging_start(l);
    *out = &l->base.base;
    return BERTH_OK;
}
