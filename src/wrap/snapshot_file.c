/* An allocator's blocks at one moment as a trace: what `berth view` and its kin show of a pool. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "berth/trace.h"
#include "core/allocator.h"

/* Between blocks of a fixed region lie headers: what is nearer than this is one piece. */
enum { HEADER_BYTES = 256, LABEL_ROOM = 256 };

struct seen {
    uint64_t segment, address, size_bytes, age_ns, stream;
    uint32_t label;
    berth_block_state state;
};

struct album {
    berth_trace *trace;
    uint32_t device;
    struct seen *blocks;
    size_t count, room;
    uint64_t oldest_ns;
    berth_status status;
};

/* ---- Looking ------------------------------------------------------------------------------------------ */

static berth_status album_grow(struct album *m)
{
    size_t room = m->room ? m->room * 2 : 256;
    struct seen *grown = berth__heap_realloc(m->blocks, room * sizeof *grown);
    if (!grown)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a list of the blocks");
    m->blocks = grown;
    m->room = room;
    return BERTH_OK;
}

/* What waits has ended for the program, and takes its place all the same. */
static berth_status album_label(struct album *m, const berth_block *block, uint32_t *out)
{
    char words[LABEL_ROOM];
    const char *label = block->label ? block->label : "";
    *out = 0;
    if (block->state == BERTH_BLOCK_WAITING) {
        snprintf(words, sizeof words, "%.200s%s(freed, a stream uses it)", label, *label ? " " : "");
        label = words;
    }
    return berth_trace_define_text(m->trace, label, strlen(label), out);
}

static bool album_add(void *context, const berth_block *block)
{
    struct album *m = context;
    uint32_t label = 0;
    if (block->state != BERTH_BLOCK_IDLE)
        m->status = album_label(m, block, &label);
    if (!m->status && m->count == m->room)
        m->status = album_grow(m);
    if (m->status)
        return false;
    m->blocks[m->count++] = (struct seen){.segment = block->segment,
                                          .address = (uintptr_t)block->address,
                                          .size_bytes = block->size_bytes,
                                          .age_ns = block->age_ns,
                                          .stream = block->stream ? berth_stream_id(block->stream) : 0,
                                          .label = label,
                                          .state = block->state};
    if (block->age_ns > m->oldest_ns)
        m->oldest_ns = block->age_ns;
    return true;
}

static int compare_places(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;
    if (x->segment != y->segment)
        return x->segment < y->segment ? -1 : 1;
    return x->address < y->address ? -1 : x->address > y->address;
}

/* Those of unknown age first: they may be as old as anything. */
static int compare_ages(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;
    const uint64_t p = x->age_ns - 1, q = y->age_ns - 1;
    if (p != q)
        return p > q ? -1 : 1;
    return x->address < y->address ? -1 : x->address > y->address;
}

/* ---- Writing ------------------------------------------------------------------------------------------ */

static void album_put(struct album *m, berth_trace_kind kind, uint64_t time_ns, const struct seen *what)
{
    berth_trace_event e = BERTH_TRACE_EVENT_INIT;
    e.kind = kind;
    e.thread = 0;
    e.device = m->device;
    e.time_ns = time_ns;
    e.address = what->address;
    e.size_bytes = what->size_bytes;
    e.stream = what->stream;
    e.label = what->label;
    if (!m->status)
        m->status = berth_trace_write(m->trace, &e);
}

/* Memory that blocks are cut from, idle blocks with it. */
static void put_pieces(struct album *m)
{
    if (m->count)
        qsort(m->blocks, m->count, sizeof *m->blocks, compare_places);
    for (size_t i = 0; i < m->count;) {
        struct seen piece = {.address = m->blocks[i].address};
        uint64_t end = piece.address, segment = m->blocks[i].segment;
        for (; i < m->count && m->blocks[i].segment == segment && m->blocks[i].address - end <= HEADER_BYTES;
             i++)
            end = m->blocks[i].address + m->blocks[i].size_bytes;
        piece.size_bytes = end - piece.address;
        if (segment)
            album_put(m, BERTH_TRACE_MAP, 0, &piece);
    }
}

static void put_blocks(struct album *m)
{
    if (m->count)
        qsort(m->blocks, m->count, sizeof *m->blocks, compare_ages);
    for (size_t i = 0; i < m->count; i++)
        if (m->blocks[i].state != BERTH_BLOCK_IDLE)
            album_put(m, BERTH_TRACE_ALLOC, m->blocks[i].age_ns ? m->oldest_ns - m->blocks[i].age_ns : 0,
                      &m->blocks[i]);
}

static void put_all(struct album *m, berth_allocator *a)
{
    struct seen limit = {0}, now = {0};
    berth_stats stats = {.struct_size = sizeof stats};
    if (a->ops.stats(a->self, &stats) == BERTH_OK && stats.bytes_limit) {
        limit.size_bytes = stats.bytes_limit;
        album_put(m, BERTH_TRACE_CAPACITY, 0, &limit);
    }
    put_pieces(m);
    put_blocks(m);
    if (!m->status)
        m->status = berth_trace_define_text(m->trace, "the snapshot", strlen("the snapshot"), &now.label);
    album_put(m, BERTH_TRACE_MARK, m->oldest_ns + 1, &now);
    if (!m->status)
        m->status = berth_trace_flush(m->trace);
}

static berth_status album_device(struct album *m, berth_allocator *a)
{
    berth_device device = a->ops.device(a->self);
    const char *name = a->ops.name(a->self);
    berth_trace_device d = BERTH_TRACE_DEVICE_INIT;
    d.kind = (uint32_t)device.kind;
    d.ordinal = (uint32_t)device.ordinal;
    berth_status status = berth_trace_define_text(m->trace, name, strlen(name), &d.name);
    return !status ? berth_trace_define_device(m->trace, &d, &m->device) : status;
}

static bool see_nothing(void *context, const berth_block *block)
{
    (void)context, (void)block;
    return false;
}

berth_status berth_snapshot_write(berth_allocator *a, const char *path)
{
    struct album m = {0};
    berth_trace_options options = BERTH_TRACE_OPTIONS_INIT;
    if (!a || !path)
        return berth__fail(BERTH_INVALID_ARGUMENT, "a snapshot needs an allocator and a path");
    options.times_given = true;
    berth_status status = a->ops.snapshot(a->self, see_nothing, NULL); /* before what is at `path` goes */
    if (!status)
        status = berth_trace_create(path, &options, &m.trace);
    if (status)
        return status;
    m.status = album_device(&m, a);
    if (!m.status)
        status = a->ops.snapshot(a->self, album_add, &m);
    if (!m.status)
        m.status = status;
    if (!m.status)
        put_all(&m, a);
    berth_trace_release(m.trace);
    berth__heap_free(m.blocks);
    return m.status;
}
