/* Notes in front of blocks, or in a map: allocating with one, taking it away, answering questions through it. */
#include "wrap/noted.h"

#include <string.h>

#include "base/words.h"

struct mapped_note {
    berth__block_entry entry;
    berth__note note;
};

bool berth__is_host_accessible(berth_allocator *a)
{
    berth_device device = a->ops.device(a->self);
    if (device.kind == BERTH_DEVICE_UNKNOWN)
        return false;
    if (device.kind == BERTH_DEVICE_CPU || a->ops.memory_kind(a->self) != BERTH_MEMORY_DEVICE)
        return true;
    berth_device_info info = {.struct_size = sizeof info};
    return berth_device_describe(device, &info) == BERTH_OK && info.host_accessible;
}

static berth_status noted_refuse(const void *p)
{
    return berth__fail(BERTH_BAD_FREE,
                       "%p is not a live block of this allocator: freed twice, not its own, or overwritten "
                       "in front",
                       p);
}

static berth_status no_note(size_t size_bytes)
{
    return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the note of a block of %s",
                       BERTH__SIZE(size_bytes));
}

/* ---- In the map ---------------------------------------------------------------------------------- */

static berth_status allocate_mapped(berth__noted *w, size_t size_bytes, size_t alignment,
                                    const berth_request *request, const berth__note *note, void **out)
{
    struct mapped_note *mapped = berth__heap_alloc(sizeof *mapped);
    if (!mapped)
        return no_note(size_bytes);
    void *block = NULL;
    berth_status status = berth__allocate(w->base.inner, size_bytes, alignment, request, &block);
    if (status) {
        berth__heap_free(mapped);
        return status;
    }
    mapped->entry.address = (uintptr_t)block;
    mapped->note = *note;
    (void)BERTH_ASSERT(berth__block_map_put(&w->map, &mapped->entry), "a prepared map takes every block");
    *out = block;
    return BERTH_OK;
}

/* ---- Allocating and freeing ---------------------------------------------------------------------- */

/* [W5] a block that starts at a page has its note in the map, so that no note is ever read across a page: what
 * lies there may belong to nobody, or be given back by now. Large blocks are made to start at one. */
static bool keep_note(berth__noted *w, void *block, const berth__note *note)
{
    if (!berth__starts_page(block)) {
        *berth__note_of(block) = *note;
        return true;
    }
    struct mapped_note *mapped = berth__heap_alloc(sizeof *mapped);
    if (!mapped)
        return false;
    mapped->entry.address = (uintptr_t)block;
    mapped->note = *note;
    if (berth__block_map_put(&w->map, &mapped->entry))
        return true;
    berth__heap_free(mapped);
    return false;
}

static berth_status allocate_in_front(berth__noted *w, size_t size_bytes, size_t alignment,
                                      const berth_request *request, uint64_t whom, void **out)
{
    size_t room = berth__header_alignment(size_bytes, alignment);
    if (room < sizeof(berth__note))
        room = sizeof(berth__note);
    void *raw = NULL;
    berth_status status = berth__allocate(w->base.inner, size_bytes + room, room, request, &raw);
    if (status)
        return status;
    void *block = (char *)raw + room;
    berth__note note = {.size_bytes = size_bytes, .whom = whom, .seal = berth__note_seal(block, room)};
    if (!keep_note(w, block, &note)) {
        (void)berth__deallocate(w->base.inner, raw, size_bytes + room, request->stream);
        return no_note(size_bytes);
    }
    *out = block;
    return BERTH_OK;
}

berth_status berth__noted_allocate(berth__noted *w, size_t size_bytes, size_t alignment,
                                   const berth_request *request, uint64_t whom, void **out)
{
    berth__note note = {.size_bytes = size_bytes, .whom = whom};
    switch (w->place) {
    case BERTH__NOTE_IN_FRONT:
        return allocate_in_front(w, size_bytes, alignment, request, whom, out);
    case BERTH__NOTE_IN_MAP:
        return allocate_mapped(w, size_bytes, alignment, request, &note, out);
    case BERTH__NOTE_SIZE_KNOWN:
    case BERTH__NOTE_ASKED:
        break;
    }
    return berth__allocate(w->base.inner, size_bytes, alignment, request, out);
}

static berth_status ask_size(berth__noted *w, const void *p, berth__note *note)
{
    size_t size = 0;
    berth_allocator *inner = w->base.inner;
    berth__header header;
    if (w->place == BERTH__NOTE_SIZE_KNOWN && berth__header_read(p, &header))
        size = (size_t)berth__size_of_word(header.size_and_tag);
    else if (w->place == BERTH__NOTE_SIZE_KNOWN ||
             inner->ops.requested_size(inner->self, p, &size) != BERTH_OK)
        return noted_refuse(p);
    *note = (berth__note){.size_bytes = size};
    return BERTH_OK;
}

/* The note is out of reach while the inner allocator has the block, which may be another's the moment it is back.
 * What is refused stays live and keeps its note, but for BERTH_BAD_FREE: then the block is gone already, its
 * bytes are not ours to write, and its address may come again with another note. */
static bool keeps_block(berth_status status)
{
    return !berth__free_is_done(status) && status != BERTH_BAD_FREE;
}

static berth_status release_raw(berth__noted *w, void *p, const berth__note *note, size_t size_bytes,
                                berth_stream *stream)
{
    if (w->place == BERTH__NOTE_IN_FRONT)
        return berth__deallocate(w->base.inner, (char *)p - berth__note_room(note),
                                 (size_t)note->size_bytes + berth__note_room(note), stream);
    return berth__deallocate(w->base.inner, p, size_bytes, stream);
}

static berth_status free_mapped(berth__noted *w, void *p, size_t size_bytes, berth_stream *stream,
                                berth__note *note)
{
    struct mapped_note *mapped = (struct mapped_note *)(void *)berth__block_map_take(&w->map, p);
    if (!mapped)
        return noted_refuse(p);
    *note = mapped->note;
    berth_status status = release_raw(w, p, note, size_bytes, stream);
    if (!keeps_block(status))
        berth__heap_free(mapped);
    else
        (void)BERTH_ASSERT(berth__block_map_put(&w->map, &mapped->entry),
                           "a shard that held a block takes it again");
    return status;
}

static berth_status free_in_front(berth__noted *w, void *p, size_t size_bytes, berth_stream *stream,
                                  berth__note *note)
{
    if (berth__starts_page(p))
        return free_mapped(w, p, size_bytes, stream, note);
    if (!berth__has_note(p))
        return noted_refuse(p);
    *note = *berth__note_of(p);
    berth__note_of(p)->seal = 0;
    berth_status status = release_raw(w, p, note, size_bytes, stream);
    if (BERTH_UNLIKELY(keeps_block(status)))
        berth__note_of(p)->seal = note->seal;
    return status;
}

berth_status berth__noted_deallocate(berth__noted *w, void *p, size_t size_bytes, berth_stream *stream,
                                     berth__note *note)
{
    switch (w->place) {
    case BERTH__NOTE_IN_FRONT:
        return free_in_front(w, p, size_bytes, stream, note);
    case BERTH__NOTE_IN_MAP:
        return free_mapped(w, p, size_bytes, stream, note);
    case BERTH__NOTE_SIZE_KNOWN:
    case BERTH__NOTE_ASKED:
        break;
    }
    berth_status status = ask_size(w, p, note);
    return !status ? release_raw(w, p, note, size_bytes, stream) : status;
}

/* ---- Questions ----------------------------------------------------------------------------------- */

/* The note without taking it away. */
static berth_status read_note(berth__noted *w, const void *p, berth__note *note)
{
    if (w->place == BERTH__NOTE_IN_FRONT && !berth__starts_page(p)) {
        if (!berth__has_note(p))
            return berth__fail(BERTH_NOT_FOUND, "%p is not a live block of this allocator", p);
        *note = *berth__note_of(p);
        return BERTH_OK;
    }
    struct mapped_note mapped;
    if (!berth__block_map_read(&w->map, p, &mapped, sizeof mapped))
        return berth__fail(BERTH_NOT_FOUND, "%p is not a live block of this allocator", p);
    *note = mapped.note;
    return BERTH_OK;
}

typedef berth_status (*size_op)(void *self, const void *p, size_t *out);

/* A size that the inner allocator tells of the raw block, without our room. */
static berth_status ask_inner(berth__noted *w, size_op ask, const void *p, size_t *out)
{
    berth_allocator *inner = w->base.inner;
    if (w->place != BERTH__NOTE_IN_FRONT)
        return ask(inner->self, p, out);
    berth__note note = {0};
    berth_status status = read_note(w, p, &note);
    if (status)
        return status;
    status = ask(inner->self, (const char *)p - berth__note_room(&note), out);
    if (!status) /* what the block takes, less what the note takes of it */
        *out -= berth__note_room(&note);
    return status;
}

static berth_status noted_requested_size(void *self, const void *p, size_t *out)
{
    berth__noted *w = self;
    return ask_inner(w, w->base.inner->ops.requested_size, p, out);
}

static berth_status noted_allocated_size(void *self, const void *p, size_t *out)
{
    berth__noted *w = self;
    return ask_inner(w, w->base.inner->ops.allocated_size, p, out);
}

static berth_status noted_allocated_size_slow(void *self, const void *p, size_t *out)
{
    berth__noted *w = self;
    return ask_inner(w, w->base.inner->ops.allocated_size_slow, p, out);
}

/* Through our own operations, so that the decorator counts both blocks. The note knows the old size. */
static berth_status noted_reallocate(void *self, void *p, size_t old_bytes, size_t new_bytes,
                                     size_t alignment, const berth_request *request, void **out)
{
    berth__noted *w = self;
    if (w->place != BERTH__NOTE_IN_FRONT)
        return berth__fail(BERTH_UNSUPPORTED, "this allocator changes no block's size in place");
    (void)old_bytes;
    berth__note note = {0};
    void *moved = NULL;
    berth_status status = read_note(w, p, &note);
    if (status)
        return berth__fail(BERTH_BAD_FREE, "%p is not a live block of this allocator", p);
    status = berth__allocate(&w->base.base, new_bytes, alignment, request, &moved);
    if (status)
        return status;
    memcpy(moved, p, note.size_bytes < new_bytes ? (size_t)note.size_bytes : new_bytes);
    return berth__finish_move(&w->base.base, p, old_bytes, moved, new_bytes, request, out);
}

bool berth__noted_init(berth__noted *w, berth_allocator_ops *ops, berth_allocator *inner, bool size_only)
{
    berth_allocator_ops all = berth__forward_ops;
    all.allocate = ops->allocate;
    all.deallocate = ops->deallocate;
    all.destroy = ops->destroy;
    all.stats = ops->stats ? ops->stats : all.stats;
    all.clear_stats = ops->clear_stats ? ops->clear_stats : all.clear_stats;
    all.reallocate = noted_reallocate;
    all.requested_size = noted_requested_size;
    all.allocated_size = noted_allocated_size;
    all.allocated_size_slow = noted_allocated_size_slow;
    bool tracks = inner->ops.tracks_sizes(inner->self);
    if (inner->header != BERTH__HEADER_NONE && size_only)
        w->place = BERTH__NOTE_SIZE_KNOWN;
    else if (tracks && size_only)
        w->place = BERTH__NOTE_ASKED;
    else
        w->place = !tracks && !inner->follows_streams && berth__is_host_accessible(inner)
                       ? BERTH__NOTE_IN_FRONT
                       : BERTH__NOTE_IN_MAP;
    memset(&w->map, 0, sizeof w->map);
    if (w->place == BERTH__NOTE_IN_MAP && !berth__block_map_prepare(&w->map)) {
        berth__block_map_finish(&w->map);
        return false;
    }
    berth__wrapper_init(&w->base, &all, inner);
    w->base.base.knows_blocks = inner->knows_blocks;
    return true;
}

void berth__noted_finish(berth__noted *w)
{
    berth__block_entry *left;
    while ((left = berth__block_map_take_any(&w->map)) != NULL)
        berth__heap_free(left);
    berth__block_map_finish(&w->map);
    berth__wrapper_finish(&w->base);
}
