/* Any file that tells a history, recognised by what is in it. */
#include "format/inputs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "berth/decorators.h"
#include "format/lines.h"

enum { HEAD_BYTES = 4096 };

/* ---- What it is --------------------------------------------------------------------------------------- */

static bool starts(const unsigned char *bytes, size_t size_bytes, size_t at, const char *with, size_t length)
{
    return size_bytes >= at + length && memcmp(bytes + at, with, length) == 0;
}

/* Files of other tools that people are likely to have at hand. */
static const struct {
    size_t at;
    const char *with;
    size_t length;
    const char *looks_like;
} others[] = {
    {0, "\x1f\x8b", 2, "a gzip file: unpack it first (gunzip)"},
    {0, "\x28\xb5\x2f\xfd", 4, "a zstd file: unpack it first (unzstd)"},
    {0,
     "\xfd"
     "7zXZ",
     5, "an xz file: unpack it first (unxz)"},
    {0, "BZh", 3, "a bzip2 file: unpack it first (bunzip2)"},
    {0, "PK\x03\x04", 4, "a zip file (PyTorch's torch.save writes such): unpack what is in it first"},
    {0,
     "\x7f"
     "ELF",
     4, "a program or library: record it with berth record -- PROGRAM"},
    {0, "\x89PNG", 4, "a picture (PNG)"},
    {0, "%PDF", 4, "a PDF document"},
    {0, "SQLite format 3", 15, "an SQLite database"},
    {257, "ustar", 5, "a tar archive: unpack it first (tar xf)"},
    {0, "<?xml", 5, "an XML file"},
    {0, "<!DOCTYPE html", 14, "a web page"},
    {0, "#!", 2, "a script: record it with berth record -- PROGRAM"},
};

static bool is_text(const unsigned char *bytes, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++)
        if (bytes[i] == 0 || (bytes[i] < 32 && !strchr("\t\n\r\f\033", bytes[i])))
            return false;
    return true;
}

static const char *name_other(const unsigned char *bytes, size_t size_bytes)
{
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (starts(bytes, size_bytes, others[i].at, others[i].with, others[i].length))
            return others[i].looks_like;
    if (!size_bytes)
        return "an empty file";
    if (bytes[0] == '{' || bytes[0] == '[')
        return "a JSON file of a kind that is not known";
    return is_text(bytes, size_bytes) ? "a text file without the columns of a problem (berth help formats)"
                                      : "a binary file of a kind that is not known";
}

/* Whether the first line has the columns without which no CSV is a problem. */
static bool is_problem(const unsigned char *bytes, size_t size_bytes)
{
    static const char *const starts_of_lives[] = {"lower", "start", "begin"};
    char line[HEAD_BYTES + 1];
    size_t length = 0;
    while (length < size_bytes && length < HEAD_BYTES && bytes[length] != '\n') {
        line[length] =
            (char)(bytes[length] >= 'A' && bytes[length] <= 'Z' ? bytes[length] + 32 : bytes[length]);
        length++;
    }
    line[length] = 0;
    if (!strstr(line, "size"))
        return false;
    for (size_t i = 0; i < sizeof starts_of_lives / sizeof starts_of_lives[0]; i++)
        if (strstr(line, starts_of_lives[i]))
            return true;
    return false;
}

/* The first line of heaptrack: "v 10400 3". */
static bool is_heaptrack(const unsigned char *bytes, size_t size_bytes)
{
    size_t at = 2;
    if (!starts(bytes, size_bytes, 0, "v ", 2))
        return false;
    while (at < size_bytes && at < 32 && strchr("0123456789abcdef ", bytes[at]) && bytes[at])
        at++;
    return at > 2 && at < size_bytes && bytes[at] == '\n';
}

static format_input recognise_text(const unsigned char *head, size_t size_bytes)
{
    static const char log[] = BERTH_EVENT_LOG_HEADER, rmm[] = "Thread,Time,Action,Pointer,Size,Stream";
    if (starts(head, size_bytes, 0, log, sizeof log - 2)) /* its line may end as on Windows */
        return FORMAT_INPUT_EVENTLOG;
    if (starts(head, size_bytes, 0, rmm, sizeof rmm - 1))
        return FORMAT_INPUT_RMM;
    if (starts(head, size_bytes, 0, "desc: ", 6) || starts(head, size_bytes, 0, "cmd: ", 5))
        return FORMAT_INPUT_MASSIF;
    return is_heaptrack(head, size_bytes) ? FORMAT_INPUT_HEAPTRACK : FORMAT_INPUT_UNKNOWN;
}

/* Protocols from 2 on say their number. */
static bool is_pickle(const unsigned char *bytes, size_t size_bytes)
{
    return size_bytes > 2 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5;
}

format_input format_recognise(const void *bytes, size_t size_bytes, const char **looks_like)
{
    const unsigned char *head = bytes;
    *looks_like = NULL;
    if (starts(head, size_bytes, 0, "BTRACE\x1a\n", 8))
        return FORMAT_INPUT_TRACE;
    if (starts(head, size_bytes, 4, "TFL3", 4))
        return FORMAT_INPUT_TFLITE;
    if (is_pickle(head, size_bytes))
        return FORMAT_INPUT_SNAPSHOT;
    unsigned char unpacked[HEAD_BYTES];
    size_t unpacked_bytes = format_lines_unpack_head(head, size_bytes, unpacked, sizeof unpacked);
    format_input text =
        unpacked_bytes ? recognise_text(unpacked, unpacked_bytes) : recognise_text(head, size_bytes);
    if (text != FORMAT_INPUT_UNKNOWN)
        return text;
    if (is_problem(head, size_bytes))
        return FORMAT_INPUT_PROBLEM;
    *looks_like = name_other(head, size_bytes);
    return FORMAT_INPUT_UNKNOWN;
}

/* ---- Reading it --------------------------------------------------------------------------------------- */

/* What comes once, from a pipe or a terminal, as a file without a name, since readers look at several places at once. */
static int spool(int from, const char *name, format_error *error)
{
    FILE *spooled = tmpfile();
    char buffer[65536];
    ssize_t n = 0;
    if (!spooled) {
        format_fail(error, BERTH_IO, "no temporary file can be made: %s", strerror(errno));
        return -1;
    }
    int file = dup(fileno(spooled));
    fclose(spooled);
    bool kept = file >= 0;
    while (kept && (n = read(from, buffer, sizeof buffer)) > 0)
        for (ssize_t at = 0, put = 0; kept && at < n; at += put) {
            put = write(file, buffer + at, (size_t)(n - at)); /* less than asked for: the next one says why */
            kept = put > 0;
        }
    if (!kept || n < 0) {
        format_fail(error, BERTH_IO, "%s cannot be kept: %s", name, strerror(errno));
        if (file >= 0)
            close(file);
        return -1;
    }
    return file;
}

static berth_status read_as(format_input input, const char *path, const char *name, const char *looks_like,
                            format_history *h, format_progress progress, void *context, format_error *error)
{
    switch (input) {
    case FORMAT_INPUT_TRACE:
        return format_trace_read(path, h, progress, context, error);
    case FORMAT_INPUT_SNAPSHOT:
        return format_snapshot_read(path, h, progress, context, error);
    case FORMAT_INPUT_PROBLEM:
        return format_problem_read(path, h, progress, context, error);
    case FORMAT_INPUT_EVENTLOG:
        return format_eventlog_read(path, h, progress, context, error);
    case FORMAT_INPUT_RMM:
        return format_rmm_read(path, h, progress, context, error);
    case FORMAT_INPUT_HEAPTRACK:
        return format_heaptrack_read(path, h, progress, context, error);
    case FORMAT_INPUT_MASSIF:
        return format_massif_read(path, h, progress, context, error);
    case FORMAT_INPUT_TFLITE:
    case FORMAT_INPUT_ONNX:
        return format_fail(error, BERTH_BAD_DATA, "%s is a model: those are read from files, name it", name);
    case FORMAT_INPUT_UNKNOWN:
        break;
    }
    return format_fail(error, BERTH_BAD_DATA,
                       "%s looks like %s. Traces (berth record), memory snapshots of PyTorch, event logs, "
                       "logs of RMM, files of heaptrack and massif, "
                       "problems and plans in CSV can be read",
                       name, looks_like);
}

int format_input_open(const char *path, bool *is_kept, format_error *error)
{
    bool is_stdin = strcmp(path, "-") == 0;
    int file = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    *is_kept = is_stdin;
    if (file < 0 || fstat(file, &about) != 0) {
        format_fail(error, BERTH_IO, "%s: %s", path, strerror(errno));
        return -1;
    }
    if (!is_stdin && (S_ISREG(about.st_mode) || S_ISDIR(about.st_mode) || S_ISBLK(about.st_mode)))
        return file;
    *is_kept = true;
    int kept = spool(file, is_stdin ? "the standard input" : path, error);
    if (!is_stdin)
        close(file);
    return kept;
}

/* Readers name the file that was kept; whoever asked knows it by another name. */
static void name_input(format_error *error, const char *through, const char *name)
{
    format_error said = *error;
    const char *at = strstr(said.words, through);
    if (at)
        snprintf(error->words, sizeof error->words, "%.*s%s%s", (int)(at - said.words), said.words, name,
                 at + strlen(through));
}

static berth_status read_any(const char *path, format_history *h, format_progress progress, void *context,
                             format_error *error)
{
    bool is_kept;
    int file = format_input_open(path, &is_kept, error);
    unsigned char head[HEAD_BYTES];
    char through[64];
    if (file < 0)
        return error->status;
    ssize_t n = pread(file, head, sizeof head, 0);
    if (n < 0) {
        int code = errno;
        close(file);
        return format_fail(error, BERTH_IO, "%s: %s", path, strerror(code));
    }
    const char *looks_like;
    format_input input = format_recognise(head, (size_t)n, &looks_like);
    snprintf(through, sizeof through, "/proc/self/fd/%d", file);
    const char *name = strcmp(path, "-") == 0 ? "the standard input" : path;
    berth_status status =
        read_as(input, is_kept ? through : path, name, looks_like, h, progress, context, error);
    close(file);
    if (status && is_kept)
        name_input(error, through, name);
    return status;
}

berth_status format_history_read(const char *path, format_history *h, format_progress progress, void *context,
                                 format_error *error)
{
    *h = (format_history){0};
    return read_any(path, h, progress, context, error);
}

berth_status format_history_count(const char *path, format_history *h, struct format_tally *tally,
                                  format_progress progress, void *context, format_error *error)
{
    *h = (format_history){.tally = tally};
    return read_any(path, h, progress, context, error);
}
