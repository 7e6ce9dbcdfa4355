/* Opening a trace: which chunks there are, and what is damaged. */
#include "trace/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEARCH_BYTES = 65536 };

bool berth__trace_note(berth_trace_reader *r, const char *format, ...)
{
    if (!r->damage)
        r->damage = berth__heap_zalloc(BERTH__TRACE_DAMAGE_MOST, sizeof *r->damage);
    if (!r->damage || r->damage_count == BERTH__TRACE_DAMAGE_MOST)
        return false;
    va_list arguments;
    va_start(arguments, format);
    r->damage_of_walk[r->damage_count] = r->is_walking;
    vsnprintf(r->damage[r->damage_count++], BERTH__TRACE_DAMAGE_WORDS, format, arguments);
    va_end(arguments);
    return false;
}

/* ---- Bytes ----------------------------------------------------------------------------------------- */

static bool read_at(const berth_trace_reader *r, uint64_t offset, void *to, size_t size_bytes)
{
    for (char *at = to; size_bytes;) {
        ssize_t n = pread(r->file, at, size_bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        offset += (uint64_t)n;
        size_bytes -= (size_t)n;
    }
    return true;
}

static uint32_t row_bytes(const berth__trace_chunk_header *h)
{
    return (uint32_t)atomic_load_explicit(&h->used, memory_order_relaxed);
}

static uint32_t row_events(const berth__trace_chunk_header *h)
{
    return (uint32_t)(atomic_load_explicit(&h->used, memory_order_relaxed) >> 32);
}

static bool header_holds(const berth__trace_chunk_header *h)
{
    bool finished = h->payload_checksum != 0;
    uint64_t stored = finished ? h->stored_bytes : row_bytes(h);
    return h->header_checksum == berth__trace_header_checksum(h) && h->header_bytes == sizeof *h &&
           h->room_bytes >= sizeof *h && stored <= h->room_bytes - sizeof *h &&
           row_bytes(h) <= BERTH__TRACE_CHUNK_MOST && (finished || h->codec == BERTH__TRACE_PLAIN);
}

bool berth__trace_read_header(const berth_trace_reader *r, uint64_t offset, berth__trace_chunk_header *h)
{
    /* Again if need be: whoever writes may be in the middle of beginning the chunk anew. */
    for (int tries = 0; tries < 3; tries++) {
        if (offset + sizeof *h > r->size_bytes || !read_at(r, offset, h, sizeof *h) ||
            h->magic != BERTH__TRACE_CHUNK_MAGIC)
            return false;
        if (header_holds(h))
            return true;
    }
    return false;
}

/* The next place from `from` on at which a header could stand; the file's end if there is none. *zero tells whether only
 * zeros were passed over: room that was taken and never used. */
static uint64_t find_header(const berth_trace_reader *r, uint64_t from, bool *zero, unsigned char *buffer)
{
    static const uint64_t magic = BERTH__TRACE_CHUNK_MAGIC;
    *zero = true;
    while (from < r->size_bytes) {
        uint64_t left = r->size_bytes - from;
        size_t n = left < SEARCH_BYTES ? (size_t)left : SEARCH_BYTES;
        if (!read_at(r, from, buffer, n))
            break;
        const unsigned char *found = memmem(buffer, n, &magic, sizeof magic);
        size_t passed = found ? (size_t)(found - buffer) : n;
        for (size_t i = 0; *zero && i < passed; i++)
            *zero = buffer[i] == 0;
        if (found)
            return from + passed;
        if (n < SEARCH_BYTES)
            break;
        from += n - (sizeof magic - 1);
    }
    return r->size_bytes;
}

static berth_status no_memory(void)
{
    return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for reading a trace");
}

/* Unpacks a payload of `stored` bytes into rows. NULL: it cannot be. */
static unsigned char *reader_unpack(const berth_trace_reader *r, const berth__trace_chunk_header *h,
                                    const unsigned char *stored)
{
    size_t rows = row_bytes(h);
    bool columns = h->type == BERTH__TRACE_EVENTS;
    size_t plain = rows + (columns ? BERTH__TRACE_COLUMNS_EXTRA : 0);
    unsigned char *bytes = berth__heap_alloc(plain + 1);
    unsigned char *out = columns && bytes ? berth__heap_alloc(rows + 1) : NULL;
    bool ok = bytes && r->unpack && r->unpack(r->context, stored, h->stored_bytes, bytes, plain);
    if (!columns || !ok) {
        berth__heap_free(out);
        if (ok)
            return bytes;
        berth__heap_free(bytes);
        return NULL;
    }
    ok = out && berth__trace_from_columns(bytes, plain, out, rows) == rows;
    berth__heap_free(bytes);
    if (!ok) {
        berth__heap_free(out);
        return NULL;
    }
    return out;
}

/* Whether an unfinished chunk was begun anew while its bytes were read: they may be of both. */
static bool has_turned(const berth_trace_reader *r, uint64_t offset, const berth__trace_chunk_header *h)
{
    berth__trace_chunk_header now;
    return !berth__trace_read_header(r, offset, &now) || now.sequence != h->sequence ||
           row_bytes(&now) < row_bytes(h);
}

berth_status berth__trace_load(berth_trace_reader *r, uint64_t offset, const berth__trace_chunk_header *h,
                               unsigned char **out, size_t *size_bytes)
{
    bool finished = h->payload_checksum != 0;
    size_t stored = finished ? h->stored_bytes : row_bytes(h);
    unsigned char *bytes = berth__heap_alloc(stored + 1);
    *out = NULL;
    *size_bytes = row_bytes(h);
    if (!bytes)
        return no_memory();
    const char *fault = NULL;
    if (!read_at(r, offset + sizeof *h, bytes, stored))
        fault = "is cut off";
    else if (!finished && has_turned(r, offset, h)) {
        berth__heap_free(bytes);
        return BERTH_OK;
    } else if (finished && berth__trace_checksum(bytes, stored) != h->payload_checksum)
        fault = "has another checksum than its bytes";
    else if (h->codec == BERTH__TRACE_PLAIN && stored != *size_bytes)
        fault = "has two lengths";
    else if (h->codec > BERTH__TRACE_ZSTD)
        fault = "is packed in a way that is not known";
    else if (h->codec == BERTH__TRACE_ZSTD) {
        *out = reader_unpack(r, h, bytes);
        fault = *out         ? NULL
                : !r->unpack ? "is packed, and nothing to unpack it is at hand"
                             : "cannot be unpacked";
    } else {
        *out = bytes;
        return BERTH_OK;
    }
    berth__heap_free(bytes);
    if (fault)
        berth__trace_note(r, "the chunk at byte %llu %s: it is left out", (unsigned long long)offset, fault);
    return BERTH_OK;
}

/* ---- The index --------------------------------------------------------------------------------------- */

static bool make_room(void *array, uint32_t count, uint32_t *room, size_t element_bytes)
{
    if (count < *room)
        return true;
    uint32_t more = *room ? *room * 2 : 16;
    void **items = array;
    void *grown = berth__heap_realloc(*items, more * element_bytes);
    if (!grown)
        return false;
    *items = grown;
    *room = more;
    return true;
}

static berth__trace_cursor *cursor_of(berth_trace_reader *r, const berth__trace_chunk_header *h)
{
    uint32_t key[2] = {h->process, h->thread};
    uint32_t found = berth__trace_table_find(&r->threads, key, sizeof key);
    if (found)
        return &r->cursors[found - 1];
    if (!make_room(&r->cursors, r->cursor_count, &r->cursor_room, sizeof *r->cursors) ||
        !berth__trace_table_add(&r->threads, key, sizeof key, r->cursor_count + 1))
        return NULL;
    berth__trace_cursor *c = &r->cursors[r->cursor_count++];
    *c = (berth__trace_cursor){.process = h->process, .thread = h->thread};
    return c;
}

static berth_status add_piece(berth_trace_reader *r, uint64_t offset, const berth__trace_chunk_header *h)
{
    const berth__trace_cursor *c = cursor_of(r, h);
    if (!c || !make_room(&r->pieces, r->piece_count, &r->piece_room, sizeof *r->pieces))
        return no_memory();
    r->pieces[r->piece_count++] = (berth__trace_piece){.offset = offset,
                                                       .tick_first = h->tick_first,
                                                       .sequence = h->sequence,
                                                       .cursor = (uint32_t)(c - r->cursors),
                                                       .finished = h->payload_checksum != 0,
                                                       .events = row_events(h)};
    return BERTH_OK;
}

/* By thread, then in the order of writing; of two that are one the finished comes first. */
static int compare_pieces(const void *a, const void *b)
{
    const berth__trace_piece *x = a, *y = b;
    if (x->cursor != y->cursor)
        return x->cursor < y->cursor ? -1 : 1;
    if (x->sequence != y->sequence)
        return x->sequence < y->sequence ? -1 : 1;
    if (x->finished != y->finished)
        return x->finished ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* Gives every thread the list of its chunks: they do not stand in their order, since the last one lies where it was mapped. */
static void link_pieces(berth_trace_reader *r)
{
    if (r->piece_count)
        qsort(r->pieces, r->piece_count, sizeof *r->pieces, compare_pieces);
    const berth__trace_piece *last = NULL;
    for (uint32_t i = 0; i < r->piece_count; i++) {
        berth__trace_piece *p = &r->pieces[i];
        berth__trace_cursor *c = &r->cursors[p->cursor];
        bool first = !last || last->cursor != p->cursor;
        if (!first && last->sequence == p->sequence)
            continue; /* the same chunk once more */
        uint32_t expected = first ? 0 : last->sequence + 1;
        uint32_t missing = p->sequence - expected;
        if (missing)
            berth__trace_note(r,
                              "%u chunk%s of thread %u in process %u %s missing before the one at byte %llu",
                              missing, missing == 1 ? "" : "s", c->thread, c->process,
                              missing == 1 ? "is" : "are", (unsigned long long)p->offset);
        p->next = 0;
        if (first)
            c->first = i + 1;
        else
            r->pieces[last - r->pieces].next = i + 1;
        r->events += p->events;
        last = p;
    }
}

static berth_status add_chunk(berth_trace_reader *r, uint64_t offset, const berth__trace_chunk_header *h)
{
    if (h->tick > r->tick) {
        r->tick = h->tick;
        r->clock_ns = h->clock_ns;
    }
    if (h->type == BERTH__TRACE_EVENTS)
        return row_bytes(h) ? add_piece(r, offset, h) : BERTH_OK;
    if (h->type != BERTH__TRACE_DEFINITIONS) {
        berth__trace_note(r, "the chunk at byte %llu is of a kind that is not known",
                          (unsigned long long)offset);
        return BERTH_OK;
    }
    if (h->payload_checksum && berth__trace_table_find(&r->taken, &offset, sizeof offset))
        return BERTH_OK;
    unsigned char *bytes;
    size_t size_bytes;
    berth_status status = berth__trace_load(r, offset, h, &bytes, &size_bytes);
    if (!status && bytes)
        status = berth__trace_take_definitions(r, offset, h->sequence, bytes, size_bytes);
    berth__heap_free(bytes);
    if (!status && h->payload_checksum && !berth__trace_table_add(&r->taken, &offset, sizeof offset, 1))
        status = no_memory();
    return status;
}

static berth_status walk_chunks(berth_trace_reader *r, unsigned char *buffer)
{
    uint64_t offset = r->header.header_bytes;
    berth_status status = BERTH_OK;
    while (!status && offset < r->size_bytes) {
        berth__trace_chunk_header h;
        if (berth__trace_read_header(r, offset, &h)) {
            status = add_chunk(r, offset, &h);
            offset += h.room_bytes;
            continue;
        }
        bool zero;
        uint64_t next = find_header(r, offset, &zero, buffer);
        if (next == offset)
            next = find_header(r, offset + 1, &zero, buffer), zero = false;
        if (!zero)
            berth__trace_note(r, "bytes %llu to %llu hold no chunk that can be read",
                              (unsigned long long)offset, (unsigned long long)next);
        offset = next;
    }
    return status;
}

/* ---- Opening ------------------------------------------------------------------------------------------ */

static berth_status open_file(berth_trace_reader *r, const char *path)
{
    struct stat s;
    r->file = open(path, O_RDONLY | O_CLOEXEC);
    if (r->file < 0 || fstat(r->file, &s))
        return berth__fail(BERTH_IO, "%s cannot be opened: %s", path, strerror(errno));
    if (!S_ISREG(s.st_mode))
        return berth__fail(BERTH_IO, "%s is no ordinary file, and a trace is read in several places at once",
                           path);
    r->size_bytes = (uint64_t)s.st_size;
    if (r->size_bytes < sizeof r->header || !read_at(r, 0, &r->header, sizeof r->header) ||
        r->header.magic != BERTH__TRACE_MAGIC)
        return berth__fail(BERTH_BAD_DATA, "%s is no trace: it does not begin as one", path);
    if (r->header.version < BERTH__TRACE_VERSION_FIRST || r->header.version > BERTH__TRACE_VERSION)
        return berth__fail(BERTH_BAD_DATA,
                           "%s is a trace of version %u, and this berth reads versions %d to %d", path,
                           r->header.version, BERTH__TRACE_VERSION_FIRST, BERTH__TRACE_VERSION);
    if (r->header.header_bytes < sizeof r->header || r->header.header_bytes > BERTH__TRACE_CHUNK_BYTES)
        return berth__fail(BERTH_BAD_DATA, "%s: its header says that it has %u bytes", path,
                           r->header.header_bytes);
    return BERTH_OK;
}

static berth_status index_file(berth_trace_reader *r)
{
    unsigned char *buffer = berth__heap_alloc(SEARCH_BYTES);
    if (!buffer)
        return no_memory();
    r->tick = r->header.tick;
    r->clock_ns = r->header.clock_ns;
    r->is_walking = true;
    berth_status status = walk_chunks(r, buffer);
    berth__heap_free(buffer);
    if (!status)
        link_pieces(r);
    uint64_t lost = atomic_load_explicit(&r->header.lost, memory_order_relaxed);
    if (lost && !status)
        berth__trace_note(
            r, "%llu event%s could not be written; was the disk full, or a limit of file sizes reached?",
            (unsigned long long)lost, lost == 1 ? "" : "s");
    r->is_walking = false;
    if (status)
        return status;
    berth__heap_free(r->heap);
    r->heap = berth__heap_zalloc(r->cursor_count + 1, sizeof *r->heap);
    return r->heap ? BERTH_OK : no_memory();
}

/* ---- Following ---------------------------------------------------------------------------------------- */

/* Forgets where the chunks are, and what was noted of that. */
static void forget_walk(berth_trace_reader *r)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->damage_count; i++)
        if (!r->damage_of_walk[i]) {
            memmove(r->damage[kept], r->damage[i], sizeof r->damage[i]);
            r->damage_of_walk[kept++] = false;
        }
    r->damage_count = kept;
    r->piece_count = 0;
    r->heap_count = 0;
    r->events = 0;
    for (uint32_t i = 0; i < r->cursor_count; i++)
        r->cursors[i].first = 0;
}

static berth_status look_once(berth_trace_reader *r)
{
    struct stat s;
    if (fstat(r->file, &s) || !read_at(r, 0, &r->header, sizeof r->header))
        return berth__fail(BERTH_IO, "the trace cannot be read again: %s", strerror(errno));
    r->size_bytes = (uint64_t)s.st_size;
    forget_walk(r);
    return index_file(r);
}

/* A thread that began its chunk anew meanwhile has put a copy behind the end that was looked at, or is just about to name the
 * new one: a second look finds it. What many looks do not find is lost, and the walk has noted it. */
berth_status berth__trace_look_again(berth_trace_reader *r)
{
    enum { LOOKS = 50 };
    berth_status status = look_once(r);
    for (int i = 1; i < LOOKS && !status && !berth__trace_all_there(r); i++) {
        sched_yield();
        status = look_once(r);
    }
    if (!status)
        berth__trace_resume(r);
    return status;
}

berth_status berth_trace_follow(berth_trace_reader *reader)
{
    if (!reader)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no reader to follow a trace with");
    /* Before anything is looked at: what came before this moment is in the file, but for what a thread is just writing. */
    uint64_t now = berth__trace_tick(), now_ns = berth__trace_clock_ns();
    berth_status status = berth__trace_look_again(reader);
    /* A file whose times are given, or that is of another machine or start of it, counts ticks that are not ours. */
    bool ours = !reader->header.tick_ns && reader->tick <= berth__trace_tick();
    reader->tick_most = ours ? now : UINT64_MAX;
    if (ours && !status) {
        reader->tick = now;
        reader->clock_ns = now_ns;
    }
    return status;
}

berth_status berth_trace_reader_open(const char *path, const berth_trace_reader_options *options,
                                     berth_trace_reader **out)
{
    if (out)
        *out = NULL;
    if (!out || !path || (options && options->struct_size < sizeof *options))
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "reading a trace needs a path, a place for the result, and options, if any, from "
                           "BERTH_TRACE_READER_OPTIONS_INIT");
    berth_trace_reader *r = berth__heap_zalloc(1, sizeof *r);
    if (!r)
        return no_memory();
    r->file = -1;
    if (options) {
        r->unpack = options->unpack;
        r->context = options->context;
    }
    berth_status status = open_file(r, path);
    if (!status)
        status = index_file(r);
    if (status) {
        berth_trace_reader_destroy(r);
        return status;
    }
    r->tick_most = UINT64_MAX;
    berth_trace_rewind(r);
    *out = r;
    return BERTH_OK;
}

void berth_trace_reader_destroy(berth_trace_reader *reader)
{
    if (!reader)
        return;
    for (uint32_t i = 0; i < reader->cursor_count; i++)
        berth__heap_free(reader->cursors[i].bytes);
    if (reader->file >= 0)
        close(reader->file);
    berth__trace_table_finish(&reader->threads);
    berth__trace_table_finish(&reader->taken);
    berth__trace_table_finish(&reader->thread_table);
    berth__trace_table_finish(&reader->picture_table);
    berth__trace_definitions_finish(reader);
    berth__heap_free(reader->pieces);
    berth__heap_free(reader->cursors);
    berth__heap_free(reader->heap);
    berth__heap_free(reader->damage);
    berth__heap_free(reader);
}

uint64_t berth_trace_event_count(const berth_trace_reader *reader)
{
    return reader ? reader->events : 0;
}

const char *berth_trace_damage(const berth_trace_reader *reader, size_t index)
{
    return reader && index < reader->damage_count ? reader->damage[index] : NULL;
}
