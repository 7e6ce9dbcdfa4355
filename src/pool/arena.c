/* The arena's records, indices and splits; arena.h has the picture. */
#include "pool/arena.h"

#include <string.h>

/* ---- Records ------------------------------------------------------------------------------------- */

enum { SPARE_WANTED = 8, SPARE_AHEAD = 4 };

void berth__arena_init(berth__arena *arena)
{
    memset(arena, 0, sizeof *arena);
}

static void give_segment(berth__segment *segment)
{
    for (size_t i = 0; i < segment->chunk_count; i++)
        berth__heap_free((void *)atomic_load_explicit(&segment->map[i], memory_order_relaxed));
    berth__heap_free(segment->map);
    berth__heap_free(segment);
}

void berth__arena_finish(berth__arena *arena)
{
    BERTH_DCHECK(berth__arena_is_valid(arena),
                 "[A1] [A2] spans tile their segments and are in their indices");
    while (arena->segments) {
        berth__segment *segment = arena->segments;
        arena->segments = segment->next;
        give_segment(segment);
    }
    for (uint32_t i = 0; i < arena->slab_count; i++)
        berth__heap_free(arena->slabs[i]);
    berth__heap_free(arena->spares);
    memset(arena, 0, sizeof *arena);
}

/* A spare record has nothing set but its old address, which somebody may still look at; most of what is to be
 * reset is so already. */
static void spare_push(berth__arena *arena, berth__span *span)
{
    BERTH_DCHECK(arena->spare_count == 0 || span != arena->spares[arena->spare_count - 1],
                 "[A3] a record is given up once");
    BERTH_DCHECK(!span->use_count && !span->uses, "[A3] a free span has no users");
    span->index = NULL;
    span->left = span->right = NULL;
    span->label = NULL;
    span->ticket = 0;
    arena->spares[arena->spare_count++] = span;
}

static berth__span *spare_pop(berth__arena *arena)
{
    BERTH_DCHECK(arena->spare_count != 0, "[A3] prepare has seen to spare records");
    berth__span *span = arena->spares[--arena->spare_count];
    BERTH_DCHECK(!span->index && !span->use_count, "[A3] a spare record is nobody's");
    if (arena->spare_count >= SPARE_AHEAD) { /* one of the next: it was given up long ago */
        const berth__span *later = arena->spares[arena->spare_count - SPARE_AHEAD];
        __builtin_prefetch(later, 1);
        __builtin_prefetch(&later->index, 1);
    }
    return span;
}

static void place_at(berth__span *span, uintptr_t address)
{
    atomic_store_explicit(&span->address, address, memory_order_relaxed);
}

static berth_status add_slab(berth__arena *arena)
{
    if (arena->slab_count == BERTH__ARENA_SLABS)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "the pool has as many blocks as it can count");
    size_t count = (size_t)BERTH__ARENA_SLAB_FIRST << arena->slab_count;
    /* With the slabs before this one: 1 + 2 + 4 + ... + n = 2n - 1. */
    size_t all = 2 * count - BERTH__ARENA_SLAB_FIRST;
    berth__span **spares = berth__heap_realloc(arena->spares, all * sizeof *spares);
    if (!spares)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the pool's records of blocks");
    arena->spares = spares;
    berth__span *slab = berth__heap_aligned(count * sizeof *slab, 64);
    if (!slab)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the pool's records of blocks");
    memset(slab, 0, count * sizeof *slab);
    for (size_t i = count; i-- > 0;)
        spare_push(arena, &slab[i]);
    arena->slabs[arena->slab_count++] = slab;
    return BERTH_OK;
}

berth_status berth__arena_prepare(berth__arena *arena)
{
    return arena->spare_count >= SPARE_WANTED ? BERTH_OK : add_slab(arena);
}

/* ---- Indices ------------------------------------------------------------------------------------- */

/* The record keeps its priority for life, so that spans may grow and shrink where they are. */
static inline uint32_t arena_priority(const berth__span *span)
{
    return (uint32_t)((uintptr_t)span / sizeof *span) * 0x9e3779b1u;
}

/* The size of the largest span at and below this one. */
static inline size_t arena_largest_below(const berth__span *span)
{
    size_t largest = span->size_bytes;
    if (span->left && span->left->largest_below > largest)
        largest = span->left->largest_below;
    if (span->right && span->right->largest_below > largest)
        largest = span->right->largest_below;
    return largest;
}

#define TREAP(x) arena_tree_##x
#define TREAP_REF berth__span *
#define TREAP_NONE NULL
#define TREAP_BASE const berth__index *
#define TREAP_AT(index, span) (*(span))
#define TREAP_KEY uintptr_t
#define TREAP_KEY_OF(index, span) \
    ((void)(index), atomic_load_explicit(&(span)->address, memory_order_relaxed))
#define TREAP_BEFORE(a, b) ((a) < (b))
#define TREAP_PRIORITY(span) arena_priority(span)
#define TREAP_SUMMARY(span) (span)->largest_below
#define TREAP_SUMMARIZE(span) arena_largest_below(span)
#include "base/treap.h"

static void index_insert(berth__index *index, berth__span *span)
{
    BERTH_DCHECK(!span->index, "[A1] a span is in one index at most");
    arena_tree_insert(index, &index->root, span);
    span->index = index;
    index->span_count++;
    index->bytes += span->size_bytes;
}

static void index_remove(berth__index *index, berth__span *span)
{
    BERTH_DCHECK(span->index == index && index->bytes >= span->size_bytes, "[A1] it was in this index");
    arena_tree_remove(index, &index->root, span);
    span->index = NULL;
    index->span_count--;
    index->bytes -= span->size_bytes;
}

berth__span *berth__index_next(const berth__index *index, const berth__span *span)
{
    return arena_tree_first_from(index, index->root, span ? span->address + 1 : 0);
}

berth__span *berth__index_below(const berth__index *index, uintptr_t address)
{
    berth__span *below = NULL;
    for (berth__span *at = index->root; at;) {
        if (at->address < address) {
            below = at;
            at = at->right;
        } else {
            at = at->left;
        }
    }
    return below;
}

berth__span *berth__index_largest(const berth__index *index)
{
    berth__span *at = index->root;
    while (at && at->size_bytes != at->largest_below)
        at = at->left && at->left->largest_below == at->largest_below ? at->left : at->right;
    return at;
}

static bool is_in_tree(const berth__span *span)
{
    const berth__span *at = span->index->root;
    while (at && at != span)
        at = span->address < at->address ? at->left : at->right;
    return at == span;
}

static bool span_is_valid(const berth__segment *segment, const berth__span *span)
{
    bool tiled = span->segment == segment && span->size_bytes != 0 &&
                 (span->address - segment->address) % BERTH__ARENA_GRAIN == 0 &&
                 span->size_bytes % BERTH__ARENA_GRAIN == 0;
    if (span->after)
        tiled =
            tiled && span->after->before == span && span->after->address == span->address + span->size_bytes;
    else
        tiled = tiled && span->address + span->size_bytes == segment->address + segment->size_bytes;
    bool merged = !span->index || !span->after || span->after->index != span->index; /* [A1] */
    return tiled && merged && (!span->index || is_in_tree(span));
}

/* The lowest span of at least `size_bytes`. */
static berth__span *lowest(const berth__index *index, size_t size_bytes)
{
    berth__span *at = index->root;
    if (!at || at->largest_below < size_bytes)
        return NULL;
    for (;;) {
        if (at->left && at->left->largest_below >= size_bytes)
            at = at->left;
        else if (at->size_bytes >= size_bytes)
            return at;
        else
            at = at->right;
    }
}

berth__span *berth__index_find(const berth__index *index, size_t size_bytes, size_t alignment,
                               uintptr_t *address)
{
    berth__span *span = lowest(index, size_bytes);
    if (!span)
        return NULL;
    *address = berth__align_up(span->address, alignment);
    if (*address - span->address <= span->size_bytes - size_bytes)
        return span;
    span = lowest(index, size_bytes + alignment);
    if (span)
        *address = berth__align_up(span->address, alignment);
    return span;
}

/* ---- Segments ------------------------------------------------------------------------------------ */

berth_status berth__arena_add_segment(berth__arena *arena, uintptr_t address, size_t size_bytes,
                                      berth__index *index, berth__segment **out)
{
    berth__segment *segment = berth__heap_zalloc(1, sizeof *segment);
    size_t chunks = (size_bytes + BERTH__ARENA_CHUNK - 1) / BERTH__ARENA_CHUNK;
    if (segment)
        segment->map = berth__heap_zalloc(chunks, sizeof *segment->map);
    if (!segment || !segment->map) {
        berth__heap_free(segment);
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the pool's record of a segment");
    }
    segment->chunk_count = chunks;
    segment->address = address;
    segment->size_bytes = size_bytes;
    segment->number = ++arena->segment_count;
    berth__span *span = spare_pop(arena);
    place_at(span, address);
    span->size_bytes = size_bytes;
    span->segment = segment;
    span->before = span->after = NULL;
    segment->first = span;
    /* In order of address, so that finding one stops early. */
    berth__segment **place = &arena->segments;
    while (*place && (*place)->address < address)
        place = &(*place)->next;
    segment->next = *place;
    *place = segment;
    index_insert(index, span);
    BERTH_DCHECK(berth__arena_is_valid(arena), "[A1] [A2] a new segment changes nothing of the others");
    *out = segment;
    return BERTH_OK;
}

void berth__arena_remove_segment(berth__arena *arena, berth__segment *segment)
{
    berth__span *span = segment->first;
    BERTH_DCHECK(!span->before && !span->after && span->index, "[A1] an idle segment is one free span");
    index_remove(span->index, span);
    berth__arena_unlist_segment(arena, segment);
    berth__arena_drop_segment(arena, segment);
    BERTH_DCHECK(berth__arena_is_valid(arena), "[A1] [A2] a segment that goes changes nothing of the others");
}

void berth__arena_unlist_segment(berth__arena *arena, berth__segment *segment)
{
    berth__segment **place = &arena->segments;
    while (*place != segment)
        place = &(*place)->next;
    *place = segment->next;
    segment->next = NULL;
}

void berth__arena_drop_segment(berth__arena *arena, berth__segment *segment)
{
    BERTH_DCHECK(!segment->first->before && !segment->first->after && !segment->first->index,
                 "[A1] an idle segment is one span");
    spare_push(arena, segment->first);
    give_segment(segment);
}

berth__segment *berth__arena_segment(const berth__arena *arena, uintptr_t p)
{
    for (berth__segment *segment = arena->segments; segment && segment->address <= p; segment = segment->next)
        if (p - segment->address < segment->size_bytes)
            return segment;
    return NULL;
}

/* ---- Spans --------------------------------------------------------------------------------------- */

/* A new record for the first `size_bytes` of `span`, which keeps the rest. */
static berth__span *split_front(berth__arena *arena, berth__span *span, size_t size_bytes)
{
    BERTH_DCHECK(size_bytes != 0 && size_bytes < span->size_bytes && size_bytes % BERTH__ARENA_GRAIN == 0,
                 "[A2] both parts are whole grains");
    berth__span *front = spare_pop(arena);
    atomic_store_explicit(&front->state, BERTH__SPAN_FREE, memory_order_relaxed);
    place_at(front, span->address);
    front->size_bytes = size_bytes;
    front->segment = span->segment;
    front->ticket = span->ticket;
    front->since_ns = span->since_ns;
    front->before = span->before;
    front->after = span;
    if (front->before)
        front->before->after = front;
    else
        span->segment->first = front;
    span->before = front;
    place_at(span, span->address + size_bytes);
    span->size_bytes -= size_bytes;
    return front;
}

berth__span *berth__arena_take(berth__arena *arena, berth__span *span, uintptr_t address, size_t size_bytes)
{
    BERTH_DCHECK(span->index != NULL, "[A1] only what is free is taken");
    BERTH_DCHECK(address >= span->address && address - span->address + size_bytes <= span->size_bytes,
                 "[A2] what is taken lies inside the free span");
    berth__index *index = span->index;
    berth__span *front = address != span->address ? split_front(arena, span, address - span->address) : NULL;
    if (front)
        index->bytes -= front->size_bytes; /* counted again when it is put in */
    berth__span *taken = span;
    if (span->size_bytes == size_bytes) {
        index_remove(index, span);
    } else {
        /* The common case: the free span shrinks where it is in the tree, and no other node moves. */
        taken = split_front(arena, span, size_bytes);
        index->bytes -= size_bytes;
        arena_tree_climb(index, span);
    }
    if (front)
        index_insert(index, front);
    BERTH_DCHECK(taken->address == address && taken->size_bytes == size_bytes && !taken->index,
                 "[A2] what is taken is what was asked for");
    BERTH_DCHECK(span_is_valid(taken->segment, taken), "[A2] it lies between its neighbours");
    BERTH_DCHECK(!front || span_is_valid(front->segment, front), "[A1] what is left in front is free");
    return taken;
}

/* Makes `span` and the one after it one; the second record is given up. */
static void join_after(berth__arena *arena, berth__span *span)
{
    BERTH_DCHECK(span->after && span->after->segment == span->segment && !span->after->uses,
                 "[A3] a record that is given up has no users");
    berth__span *gone = span->after;
    if (gone->size_bytes > span->size_bytes)
        span->since_ns = gone->since_ns; /* a little block freed beside it does not make a large hole young */
    span->size_bytes += gone->size_bytes;
    if (gone->ticket > span->ticket)
        span->ticket = gone->ticket; /* the later point in their stream covers both */
    span->after = gone->after;
    if (span->after)
        span->after->before = span;
    spare_push(arena, gone);
}

/* Makes the free span after `span` begin where `span` does; the first record is given up. */
static berth__span *join_before(berth__arena *arena, berth__span *span)
{
    BERTH_DCHECK(span->after && span->after->index && !span->index, "[A1] it grows where it is in its index");
    berth__span *kept = span->after;
    if (span->size_bytes > kept->size_bytes)
        kept->since_ns = span->since_ns;
    place_at(kept, span->address);
    kept->size_bytes += span->size_bytes;
    if (span->ticket > kept->ticket)
        kept->ticket = span->ticket;
    kept->before = span->before;
    if (kept->before)
        kept->before->after = kept;
    else
        kept->segment->first = kept;
    spare_push(arena, span);
    return kept;
}

berth__span *berth__arena_put(berth__arena *arena, berth__span *span, berth__index *index)
{
    BERTH_DCHECK(atomic_load(&span->state) != BERTH__SPAN_LIVE, "[P3] what is free is nobody's");
    BERTH_DCHECK(!span->index && span_is_valid(span->segment, span), "[A2] what is put back was taken");
    bool joins_before = span->before && span->before->index == index;
    bool joins_after = span->after && span->after->index == index;
    if (!joins_before && !joins_after) {
        index_insert(index, span);
        BERTH_DCHECK(span_is_valid(span->segment, span), "[A1] no neighbour shares its index");
        return span;
    }
    if (!joins_before) { /* grows where it is in the tree */
        index->bytes += span->size_bytes;
        span = join_before(arena, span);
        arena_tree_climb(index, span);
        BERTH_DCHECK(span_is_valid(span->segment, span), "[A1] it is one with the free span behind it");
        return span;
    }
    if (joins_after) {
        index_remove(index, span->after);
        join_after(arena, span);
    }
    index->bytes += span->size_bytes;
    span = span->before;
    join_after(arena, span);
    arena_tree_climb(index, span);
    BERTH_DCHECK(span_is_valid(span->segment, span), "[A1] it is one with its free neighbours");
    return span;
}

void berth__arena_expect_puts(berth__span *const *spans, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(&spans[i]->before);
    for (uint32_t i = 0; i < count; i++) {
        if (spans[i]->before)
            __builtin_prefetch(&spans[i]->before->index);
        if (spans[i]->after)
            __builtin_prefetch(&spans[i]->after->index);
    }
}

/* ---- The map from addresses to spans ------------------------------------------------------------- */

berth_status berth__arena_map_reserve(berth__segment *segment, uintptr_t address, size_t size_bytes)
{
    BERTH_DCHECK(address >= segment->address &&
                     address - segment->address + size_bytes <= segment->size_bytes,
                 "[A2] the map is of the segment");
    size_t first = (address - segment->address) / BERTH__ARENA_CHUNK;
    size_t last = (address - segment->address + size_bytes - 1) / BERTH__ARENA_CHUNK;
    for (size_t i = first; i <= last; i++) {
        if (atomic_load_explicit(&segment->map[i], memory_order_relaxed))
            continue;
        size_t covered = segment->size_bytes - i * BERTH__ARENA_CHUNK;
        if (covered > BERTH__ARENA_CHUNK)
            covered = BERTH__ARENA_CHUNK;
        _Atomic(berth__span *) *chunk = berth__heap_zalloc(covered / BERTH__ARENA_GRAIN, sizeof *chunk);
        if (!chunk)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for the pool's map of addresses");
        atomic_store_explicit(&segment->map[i], chunk, memory_order_release);
    }
    return BERTH_OK;
}

void berth__arena_map_set(berth__span *span)
{
    BERTH_DCHECK(!span->index && berth__arena_place(span->segment, span->address),
                 "[A2] memory came there before a block");
    atomic_store_explicit(berth__arena_place(span->segment, span->address), span, memory_order_release);
}

berth__span *berth__arena_around(const berth__segment *segment, uintptr_t p)
{
    BERTH_DCHECK(berth__segment_has(segment, p), "[A2] the address is of the segment");
    /* Backwards through the map: eight bytes a grain, and empty chunks at one look. */
    size_t grains = BERTH__ARENA_CHUNK / BERTH__ARENA_GRAIN;
    size_t chunk = (p - segment->address) / BERTH__ARENA_CHUNK;
    size_t from = (p - segment->address) % BERTH__ARENA_CHUNK / BERTH__ARENA_GRAIN + 1;
    for (;; chunk--, from = grains) {
        _Atomic(berth__span *) *places = atomic_load_explicit(&segment->map[chunk], memory_order_acquire);
        uintptr_t start = segment->address + chunk * BERTH__ARENA_CHUNK;
        for (size_t i = places ? from : 0; i-- > 0;) {
            berth__span *span = atomic_load_explicit(&places[i], memory_order_acquire);
            if (span && berth__span_at(span, start + i * BERTH__ARENA_GRAIN) &&
                atomic_load_explicit(&span->state, memory_order_relaxed) == BERTH__SPAN_LIVE)
                return p - span->address < span->size_bytes ? span : NULL;
        }
        if (chunk == 0)
            return NULL;
    }
}

/* ---- Invariants ---------------------------------------------------------------------------------- */

/* Whether a whole index is in order and adds up. */
static bool index_is_valid(const berth__index *index)
{
    uint64_t bytes = 0;
    for (const berth__span *span = berth__index_next(index, NULL); span;
         span = berth__index_next(index, span)) {
        if (span->index != index)
            return false;
        bytes += span->size_bytes;
    }
    return bytes == index->bytes && arena_tree_count(index, index->root) == index->span_count;
}

bool berth__arena_is_valid(const berth__arena *arena)
{
    for (const berth__segment *segment = arena->segments; segment; segment = segment->next) {
        if (segment->first->address != segment->address || segment->first->before)
            return false;
        for (const berth__span *span = segment->first; span; span = span->after) {
            if (!span_is_valid(segment, span))
                return false;
            if (span->index && span->index->root == span && !index_is_valid(span->index))
                return false;
        }
    }
    return true;
}
