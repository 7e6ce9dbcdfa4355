/* Text files line by line, plain or packed with zstd. */
#include "format/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef BERTH_HAVE_ZSTD
#include <zstd.h>
#endif

enum { LINES_ROOM = 1 << 18, PACKED_ROOM = 1 << 16 };

struct format_lines_state {
    int file;
    uint64_t file_bytes, read_bytes;
    size_t begin, end; /* of what is in text[] and was not given yet */
    bool at_end;
    berth_status status;
    char words[200];
#ifdef BERTH_HAVE_ZSTD
    ZSTD_DStream *unpacker; /* NULL: the file is plain */
    ZSTD_inBuffer packed;
    char packed_bytes[PACKED_ROOM];
#endif
    char text[LINES_ROOM + 1];
};

static void lines_fail(struct format_lines_state *s, berth_status status, const char *words)
{
    s->status = status;
    s->at_end = true;
    snprintf(s->words, sizeof s->words, "%s", words);
}

static size_t read_plain(struct format_lines_state *s, void *to, size_t room)
{
    ssize_t n;
    do {
        n = read(s->file, to, room);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        lines_fail(s, BERTH_IO, strerror(errno));
    s->read_bytes += n > 0 ? (size_t)n : 0;
    return n > 0 ? (size_t)n : 0;
}

/* ---- zstd ----------------------------------------------------------------------------------------------- */

#ifdef BERTH_HAVE_ZSTD
static const unsigned char zstd_mark[4] = {0x28, 0xb5, 0x2f, 0xfd};
enum { WINDOW_LOG_MOST = 27 }; /* what a hostile file may make us allocate: 128 MiB, zstd's own limit */

static berth_status unpacker_open(struct format_lines_state *s)
{
    unsigned char head[4];
    if (pread(s->file, head, sizeof head, 0) != (ssize_t)sizeof head || memcmp(head, zstd_mark, 4) != 0)
        return BERTH_OK;
    s->unpacker = ZSTD_createDStream();
    s->packed.src = s->packed_bytes;
    if (!s->unpacker)
        return BERTH_OUT_OF_HOST_MEMORY;
    ZSTD_DCtx_setParameter(s->unpacker, ZSTD_d_windowLogMax, WINDOW_LOG_MOST);
    return BERTH_OK;
}

static size_t read_packed(struct format_lines_state *s, void *to, size_t room)
{
    ZSTD_outBuffer out = {to, room, 0};
    while (!out.pos && !s->at_end) {
        if (s->packed.pos == s->packed.size) {
            s->packed.size = read_plain(s, s->packed_bytes, sizeof s->packed_bytes);
            s->packed.pos = 0;
            if (!s->packed.size)
                break;
        }
        size_t left = ZSTD_decompressStream(s->unpacker, &out, &s->packed);
        if (ZSTD_isError(left))
            lines_fail(s, BERTH_BAD_DATA, ZSTD_getErrorName(left));
    }
    return out.pos;
}

size_t format_lines_unpack_head(const void *packed, size_t packed_bytes, void *to, size_t room)
{
    ZSTD_DStream *unpacker = ZSTD_createDStream();
    ZSTD_inBuffer in = {packed, packed_bytes, 0};
    ZSTD_outBuffer out = {to, room, 0};
    if (unpacker && packed_bytes >= 4 && memcmp(packed, zstd_mark, 4) == 0) {
        ZSTD_DCtx_setParameter(unpacker, ZSTD_d_windowLogMax, WINDOW_LOG_MOST);
        size_t before;
        do {
            before = in.pos + out.pos;
            if (ZSTD_isError(ZSTD_decompressStream(unpacker, &out, &in)))
                break;
        } while (in.pos + out.pos != before && out.pos < room);
    }
    ZSTD_freeDStream(unpacker);
    return out.pos;
}

static size_t read_more(struct format_lines_state *s, void *to, size_t room)
{
    return s->unpacker ? read_packed(s, to, room) : read_plain(s, to, room);
}
#else
size_t format_lines_unpack_head(const void *packed, size_t packed_bytes, void *to, size_t room)
{
    (void)packed, (void)packed_bytes, (void)to, (void)room;
    return 0;
}

static size_t read_more(struct format_lines_state *s, void *to, size_t room)
{
    return read_plain(s, to, room);
}
#endif

/* ---- Lines ---------------------------------------------------------------------------------------------- */

berth_status format_lines_open(format_lines *lines, const char *path, format_error *error)
{
    *lines = (format_lines){0};
    struct format_lines_state *s = lines->state = malloc(sizeof *s);
    if (!s)
        return format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory to read %s", path);
    memset(s, 0, offsetof(struct format_lines_state, text));
    s->file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat about;
    if (s->file < 0 || fstat(s->file, &about))
        return format_fail(error, BERTH_IO, "%s: %s", path, strerror(errno));
    s->file_bytes = (uint64_t)about.st_size;
#ifdef BERTH_HAVE_ZSTD
    if (unpacker_open(s) != BERTH_OK)
        return format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory to unpack %s", path);
#endif
    return BERTH_OK;
}

/* Where the line that begins at s->begin ends within what is there, from `from` on; s->end if it does not. */
static size_t find_end(const struct format_lines_state *s, bool quotes, size_t from, bool *open)
{
    if (!quotes) {
        const char *found = memchr(s->text + from, '\n', s->end - from);
        return found ? (size_t)(found - s->text) : s->end;
    }
    size_t at = from;
    for (; at < s->end && (*open || s->text[at] != '\n'); at++)
        *open ^= s->text[at] == '"';
    return at;
}

/* Moves what is left to the front and reads on. False: nothing came. */
static bool lines_fill(format_lines *lines)
{
    struct format_lines_state *s = lines->state;
    if (s->at_end)
        return false;
    memmove(s->text, s->text + s->begin, s->end - s->begin);
    s->end -= s->begin;
    s->begin = 0;
    if (s->end == LINES_ROOM) {
        lines_fail(s, BERTH_BAD_DATA, "");
        snprintf(s->words, sizeof s->words, "line %llu is longer than any such file has it",
                 (unsigned long long)lines->number + 1);
        return false;
    }
    size_t more = read_more(s, s->text + s->end, LINES_ROOM - s->end);
    s->at_end = s->at_end || !more;
    s->end += more;
    return more > 0;
}

bool format_lines_next(format_lines *lines)
{
    struct format_lines_state *s = lines->state;
    bool open = false;
    size_t at = find_end(s, lines->quotes, s->begin, &open);
    while (at == s->end) {
        size_t seen = s->end - s->begin;
        if (!lines_fill(lines))
            break;
        at = find_end(s, lines->quotes, s->begin + seen, &open);
    }
    if (s->status || s->begin == s->end)
        return false;
    at = at < s->end ? at : s->end;
    lines->ended = at < s->end;
    lines->line = s->text + s->begin;
    lines->length = at - s->begin;
    if (lines->length && lines->line[lines->length - 1] == '\r')
        lines->length--;
    lines->line[lines->length] = 0;
    lines->number++;
    s->begin = lines->ended ? at + 1 : at;
    return true;
}

void format_lines_progress(const format_lines *lines, format_progress progress, void *context)
{
    enum { EVERY = 1 << 13 };
    if (progress && lines->number % EVERY == 0)
        progress(context, lines->state->read_bytes, lines->state->file_bytes);
}

berth_status format_lines_close(format_lines *lines, format_error *error)
{
    struct format_lines_state *s = lines->state;
    berth_status status = BERTH_OK;
    if (!s)
        return BERTH_OK;
    if (s->status)
        status = format_fail(error, s->status, "%s", s->words);
    if (s->file >= 0)
        close(s->file);
#ifdef BERTH_HAVE_ZSTD
    ZSTD_freeDStream(s->unpacker);
#endif
    free(s);
    *lines = (format_lines){0};
    return status;
}

/* ---- Fields --------------------------------------------------------------------------------------------- */

size_t format_lines_fields(char *line, char **fields, size_t room)
{
    size_t count = 0;
    for (char *at = line; count < room;) {
        char *to = at;
        bool open = false;
        fields[count++] = at;
        for (; *at && (open || *at != ','); at++) {
            if (*at != '"')
                *to++ = *at;
            else if (open && at[1] == '"')
                *to++ = *at++;
            else
                open = !open;
        }
        bool more = *at == ',';
        *to = 0;
        if (!more)
            break;
        at++;
    }
    return count;
}

bool format_lines_number(const char **at, unsigned base, uint64_t *number)
{
    const char *c = *at;
    uint64_t n = 0;
    for (;; c++) {
        unsigned digit = *c >= '0' && *c <= '9'                 ? (unsigned)(*c - '0')
                         : base == 16 && *c >= 'a' && *c <= 'f' ? (unsigned)(*c - 'a') + 10
                         : base == 16 && *c >= 'A' && *c <= 'F' ? (unsigned)(*c - 'A') + 10
                                                                : base;
        if (digit == base)
            break;
        if (n > (UINT64_MAX - digit) / base)
            return false;
        n = n * base + digit;
    }
    if (c == *at)
        return false;
    *at = c;
    *number = n;
    return true;
}

static bool field_number(const char *field, unsigned base, uint64_t *number)
{
    *number = 0;
    if (!*field || strcmp(field, "(nil)") == 0 || strcmp(field, "nullptr") == 0)
        return true;
    bool hex = field[0] == '0' && (field[1] == 'x' || field[1] == 'X');
    const char *at = field + (hex ? 2 : 0);
    return format_lines_number(&at, hex ? 16 : base, number) && !*at;
}

bool format_lines_field_number(const char *field, uint64_t *number)
{
    return field_number(field, 10, number);
}

bool format_lines_field_address(const char *field, uint64_t *number)
{
    return field_number(field, 16, number);
}

/* ---- Lines that cannot be read -------------------------------------------------------------------------- */

void format_lines_bad(format_bad_lines *bad, const format_lines *lines, const char *why)
{
    if (!lines->ended) /* the last line of a file that is still written, or was cut: not all of it is there */
        return;
    if (!bad->count++) {
        bad->first = lines->number;
        bad->why = why;
    }
}

void format_lines_tell(const format_bad_lines *bad, format_history *h)
{
    if (bad->count)
        format_history_notice(h, "%llu line%s left out; the first, line %llu: %s",
                              (unsigned long long)bad->count, bad->count == 1 ? " is" : "s are",
                              (unsigned long long)bad->first, bad->why);
}

berth_status format_lines_end(format_lines *lines, berth_status status, const char *path, format_history *h,
                              format_error *error)
{
    format_error why;
    berth_status ended = format_lines_close(lines, &why);
    if (!status && ended == BERTH_IO)
        status = format_fail(error, BERTH_IO, "%s: %s", path, why.words);
    else if (!status && ended != BERTH_OK) /* what came before the damage is kept */
        format_history_notice(h, "the file cannot be read to its end: %s", why.words);
    if (!status && h->no_memory)
        status = format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for the blocks of %s", path);
    format_history_close(h);
    if (status)
        format_history_finish(h);
    return status;
}
