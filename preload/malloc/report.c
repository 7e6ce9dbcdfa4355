/* Figures, and the report at exit. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "berth/scope.h"
#include "preload/malloc/malloc.h"
#include "preload/malloc/small.h"

/* ---- Words ---------------------------------------------------------------------------------------------- */

static void write_all(int file, const char *text, size_t length)
{
    while (length) {
        ssize_t n = write(file, text, length);
        if (n < 0 && errno != EINTR)
            return;
        text += n > 0 ? n : 0;
        length -= n > 0 ? (size_t)n : 0;
    }
}

void report_line(const char *format, ...)
{
    char line[1024] = "berth: ";
    size_t length = strlen(line);
    int saved = errno;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + length, sizeof line - length - 1, format, args);
    va_end(args);
    length += n > 0 ? (size_t)n : 0;
    if (length > sizeof line - 2)
        length = sizeof line - 2;
    line[length] = '\n';
    write_all(STDERR_FILENO, line, length + 1);
    errno = saved;
}

/* ---- Figures -------------------------------------------------------------------------------------------- */

void report_read(malloc_figures *out)
{
    *out = (malloc_figures){.book_bytes = book_mapped_bytes()};
    if (!large_is_ready())
        return;
    berth_stats stats = BERTH_STATS_INIT;
    int64_t bytes, slabs;
    small_read(&out->small_allocs, &bytes, &slabs);
    large_stats(&stats);
    uint64_t small = bytes > 0 ? (uint64_t)bytes : 0, whole = slabs > 0 ? (uint64_t)slabs * SLAB_BYTES : 0;
    out->slabs = slabs > 0 ? (uint64_t)slabs : 0;
    out->small_bytes = small;
    out->num_allocs = stats.num_allocs - small_slabs_made() + out->small_allocs;
    out->num_failures = stats.num_failures;
    out->pool_in_use = stats.bytes_in_use;
    out->max_pool_in_use = stats.max_bytes_in_use;
    out->bytes_in_use = (stats.bytes_in_use > whole ? stats.bytes_in_use - whole : 0) + small;
    out->bytes_reserved = stats.bytes_reserved;
    out->max_bytes_reserved = stats.max_bytes_reserved;
    out->bytes_limit = stats.bytes_limit;
}

/* ---- At exit -------------------------------------------------------------------------------------------- */

static char destination[BERTH__CONFIG_PATH];
static int own_stderr = -1; /* programs close theirs before the end, as those of coreutils do */

struct text {
    char bytes[16384];
    size_t length;
};

static void add(struct text *text, const char *format, ...) BERTH_PRINTF(2, 3);
static void add(struct text *text, const char *format, ...)
{
    size_t room = sizeof text->bytes - text->length;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text->bytes + text->length, room, format, args);
    va_end(args);
    if (n > 0)
        text->length += (size_t)n < room ? (size_t)n : room - 1;
}

static bool add_label(void *context, const berth_scope_figures *figures)
{
    add(context, "berth:   %-28s %16llu %16llu\n", *figures->label ? figures->label : "(no label)",
        (unsigned long long)figures->bytes_in_use, (unsigned long long)figures->max_bytes_in_use);
    return true;
}

static void add_labels(struct text *text)
{
    if (!large_is_stack())
        return;
    size_t before = text->length;
    add(text, "berth:   %-28s %16s %16s\n", "label", "in use", "peak");
    size_t first = text->length;
    berth_scope_visit(add_label, text);
    if (text->length == first)
        text->length = before;
}

static void add_figures(struct text *text, const malloc_figures *f)
{
    const struct {
        const char *words;
        uint64_t value;
    } rows[] = {
        {"allocations", f->num_allocs},
        {"of these small (up to 4096 bytes)", f->small_allocs},
        {"refused", f->num_failures},
        {"bytes in use", f->bytes_in_use},
        {"bytes of the pool in use", f->pool_in_use},
        {"bytes of the pool in use at most", f->max_pool_in_use},
        {"bytes from the system", f->bytes_reserved},
        {"bytes from the system at most", f->max_bytes_reserved},
        {"limit of these", f->bytes_limit},
        {"bytes of bookkeeping", f->book_bytes},
    };
    for (size_t i = 0; i < BERTH_COUNT_OF(rows); i++)
        add(text, "berth:   %-34s %16llu\n", rows[i].words, (unsigned long long)rows[i].value);
}

/* In one write, so that processes that share a file do not mix their lines. */
static void report_to(const char *where)
{
    static struct text text; /* one thread exits */
    malloc_figures figures;
    report_read(&figures);
    text.length = 0;
    add(&text, "berth: malloc of %s, process %d\n", program_invocation_short_name, (int)getpid());
    add_figures(&text, &figures);
    add_labels(&text);
    int file = strcmp(where, "-") == 0 ? STDERR_FILENO
                                       : open(where, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) {
        report_line("error: %s: %s; the report is lost", where, strerror(errno));
        return;
    }
    if (file == STDERR_FILENO && fcntl(file, F_GETFD) < 0)
        file = own_stderr;
    write_all(file, text.bytes, text.length);
    if (file != STDERR_FILENO)
        close(file);
}

static void report_now(void)
{
    report_to(destination);
}

/* Registered first of all, so that it runs last. */
void report_at_exit(const char *where)
{
    if (!where || !*where)
        return;
    memcpy(destination, where, strlen(where) + 1);
    enum { OUT_OF_THE_WAY = 200 };
    if (strcmp(where, "-") == 0)
        own_stderr = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, OUT_OF_THE_WAY);
    atexit(report_now);
}

void report_show(void)
{
    report_to("-");
}
