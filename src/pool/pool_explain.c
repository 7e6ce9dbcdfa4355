/* What the pool holds, as data and as text. */
#include "pool/pool.h"

#include <stdio.h>

/* ---- Snapshots ----------------------------------------------------------------------------------- */

/* A copy of all blocks, made under the lock and shown without it. */
struct copy {
    berth_block *blocks;
    size_t count;
};

static size_t count_spans(const berth__pool *pool)
{
    BERTH_DCHECK(berth__pool_is_locked(pool), "[P4] spans are looked at under the lock");
    size_t count = 0;
    for (const berth__segment *segment = pool->arena.segments; segment; segment = segment->next)
        for (const berth__span *span = segment->first; span; span = span->after)
            count += span->index != &pool->unmapped;
    return count;
}

static berth_block_state state_of(const berth__pool *pool, const berth__span *span)
{
    uint32_t state = atomic_load(&span->state);
    if (state == BERTH__SPAN_LIVE)
        return BERTH_BLOCK_LIVE;
    /* One that is in no index waits for several streams, or is on its way from a thread cache. */
    bool waits = span->index ? !berth__pool_is_idle(pool, span->index) : span->ticket != 0;
    return waits ? BERTH_BLOCK_WAITING : BERTH_BLOCK_IDLE;
}

/* The stream of an index of waiting spans. */
static berth_stream *index_stream(const berth__span *span)
{
    BERTH_DCHECK(span->index != NULL, "[P3] what waits for one stream is in its index");
    const char *index = (const char *)span->index;
    const void *known = index - offsetof(berth__pool_stream, index);
    return ((const berth__pool_stream *)known)->queue->stream;
}

static berth_block describe_span(const berth__pool *pool, const berth__span *span)
{
    BERTH_DCHECK(span->index != &pool->unmapped, "[P1] address space without memory is no block");
    berth_block block = {.struct_size = sizeof block,
                         .address = (const void *)span->address,
                         .size_bytes = span->size_bytes,
                         .segment = span->segment->number,
                         .state = state_of(pool, span)};
    block.age_ns = pool->now_ns > span->since_ns ? pool->now_ns - span->since_ns : 0;
    if (block.state == BERTH_BLOCK_LIVE) {
        block.requested_bytes = span->requested_bytes;
        block.allocation_id = span->allocation_id;
        block.label = span->label;
        block.stream = berth__pool_first_use(span);
    } else if (span->index && !berth__pool_is_idle(pool, span->index)) {
        block.stream = index_stream(span);
    }
    return block;
}

/* Whether a span and the one before it are both free for everyone. They share no index [A1]: one is the rest of a
 * piece for small blocks, the other lies beside that piece. The pool joins them when a large request needs it. A span that is
 * on its way from a thread cache is in no index, so that it is shown by itself also beside an idle one. */
static bool continues_idle(const berth__pool *pool, const berth__span *span)
{
    return span->before && span->index && span->before->index && berth__pool_is_idle(pool, span->index) &&
           berth__pool_is_idle(pool, span->before->index);
}

/* With the lock, stopped, and room for as many as there are spans. Idle neighbours are shown as one, idle as a whole
 * since the younger of them is. */
static void copy_spans(const berth__pool *pool, struct copy *copy)
{
    BERTH_DCHECK(berth__slots_are_stopped(&pool->quota.slots),
                 "[P4] with the thread caches stopped every byte has its place");
    copy->count = 0;
    for (const berth__segment *segment = pool->arena.segments; segment; segment = segment->next)
        for (const berth__span *span = segment->first; span; span = span->after) {
            if (span->index == &pool->unmapped)
                continue;
            berth_block block = describe_span(pool, span);
            if (!continues_idle(pool, span)) {
                copy->blocks[copy->count++] = block;
                continue;
            }
            berth_block *joined = &copy->blocks[copy->count - 1];
            BERTH_DCHECK(joined->state == BERTH_BLOCK_IDLE &&
                             (const char *)joined->address + joined->size_bytes ==
                                 (const char *)block.address,
                         "[A1] spans tile their segment");
            joined->size_bytes += block.size_bytes;
            joined->age_ns = block.age_ns < joined->age_ns ? block.age_ns : joined->age_ns;
        }
}

static berth_status pool_copy_blocks(berth__pool *pool, struct copy *copy)
{
    /* Room is made without the lock held for long: count, allocate, and again if it has grown meanwhile. */
    for (size_t room = 64;;) {
        berth_block *blocks = berth__heap_alloc(room * sizeof *blocks);
        if (!blocks)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a snapshot of %zu blocks", room);
        berth__pool_lock(pool);
        berth__pool_stop(pool); /* what the thread caches have is idle too */
        size_t needed = count_spans(pool);
        if (needed > room) {
            berth__pool_resume(pool);
            berth__pool_unlock(pool);
            berth__heap_free(blocks);
            room = needed + needed / 4;
            continue;
        }
        copy->blocks = blocks;
        copy_spans(pool, copy);
        berth__pool_resume(pool);
        berth__pool_settle(pool);
        berth__pool_unlock(pool);
        return BERTH_OK;
    }
}

berth_status berth__pool_snapshot(void *self, berth_block_fn visit, void *context)
{
    struct copy copy = {0};
    berth_status status = pool_copy_blocks(self, &copy);
    for (size_t i = 0; i < copy.count && visit(context, &copy.blocks[i]); i++)
        continue;
    berth__heap_free(copy.blocks);
    return status;
}

/* ---- Text ---------------------------------------------------------------------------------------- */

static const char *state_word(berth_block_state state)
{
    static const char *const words[] = {"live", "waiting", "idle"};
    return words[state];
}

static void write_block(const berth_block *block, berth_line_fn line, void *context)
{
    char text[256];
    snprintf(text, sizeof text, "  %p  %12llu  %-7s  %8.3f s  %s", block->address,
             (unsigned long long)block->size_bytes, state_word(block->state), (double)block->age_ns / 1e9,
             block->label    ? block->label
             : block->stream ? "(stream)"
                             : "");
    line(context, text);
}

static void write_segment(const berth__pool *pool, const struct copy *copy, size_t first, berth_line_fn line,
                          void *context)
{
    uint64_t bytes[3] = {0};
    size_t i = first;
    for (; i < copy->count && copy->blocks[i].segment == copy->blocks[first].segment; i++)
        bytes[copy->blocks[i].state] += copy->blocks[i].size_bytes;
    char text[256];
    snprintf(text, sizeof text, "segment %llu%s: %zu blocks, %llu bytes live, %llu waiting, %llu idle",
             (unsigned long long)copy->blocks[first].segment,
             copy->blocks[first].segment == pool->main->number ? " (grows in place)" : "", i - first,
             (unsigned long long)bytes[BERTH_BLOCK_LIVE], (unsigned long long)bytes[BERTH_BLOCK_WAITING],
             (unsigned long long)bytes[BERTH_BLOCK_IDLE]);
    line(context, text);
}

berth_status berth_pool_describe(berth_allocator *a, size_t max_blocks, berth_line_fn line, void *context)
{
    berth__pool *pool = berth__pool_from(a);
    if (!pool || !line)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s", pool ? "line is NULL" : "this is not a pool");
    berth_stats stats = {.struct_size = sizeof stats};
    struct copy copy = {0};
    berth__pool_read_stats(pool, &stats);
    berth_status status = pool_copy_blocks(pool, &copy);
    if (status)
        return status;
    char text[256];
    snprintf(text, sizeof text,
             "pool: %llu bytes in use (at most %llu), %llu reserved (at most %llu), largest free %llu, "
             "fragmentation %.1f %%",
             (unsigned long long)stats.bytes_in_use, (unsigned long long)stats.max_bytes_in_use,
             (unsigned long long)stats.bytes_reserved, (unsigned long long)stats.max_bytes_reserved,
             (unsigned long long)stats.largest_free_bytes, stats.fragmentation * 100);
    line(context, text);
    size_t shown = 0;
    for (size_t i = 0; i < copy.count; i++) {
        if (i == 0 || copy.blocks[i].segment != copy.blocks[i - 1].segment)
            write_segment(pool, &copy, i, line, context);
        if (max_blocks == 0 || shown++ < max_blocks)
            write_block(&copy.blocks[i], line, context);
    }
    if (max_blocks && shown > max_blocks) {
        snprintf(text, sizeof text, "  ... and %zu more", shown - max_blocks);
        line(context, text);
    }
    berth__heap_free(copy.blocks);
    return BERTH_OK;
}
