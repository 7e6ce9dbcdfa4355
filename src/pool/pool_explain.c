/* What the pool holds, as data and as text, and why an allocation did not fit. */
#include "pool/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Snapshots ----------------------------------------------------------------------------------- */

/* A copy of all blocks, made under the lock and shown without it. */
struct copy {
    berth_block *blocks;
    size_t count;
};

static size_t count_spans(const berth__pool *pool)
{
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
    /* One that is in no index waits for several streams, or is on its way from a stock. */
    bool waits = span->index ? !berth__pool_is_idle(pool, span->index) : span->ticket != 0;
    return waits ? BERTH_BLOCK_WAITING : BERTH_BLOCK_IDLE;
}

/* The stream of an index of waiting spans. */
static berth_stream *index_stream(const berth__span *span)
{
    const char *index = (const char *)span->index;
    return ((const berth__pool_stream *)(const void *)(index - offsetof(berth__pool_stream, index)))->stream;
}

static berth_block describe_span(const berth__pool *pool, const berth__span *span)
{
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

static berth_status copy_blocks(berth__pool *pool, struct copy *copy)
{
    /* Room is made without the lock held for long: count, allocate, and again if it has grown meanwhile. */
    for (size_t room = 64;;) {
        berth_block *blocks = berth__heap_alloc(room * sizeof *blocks);
        if (!blocks)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory for a snapshot of %zu blocks", room);
        berth__pool_lock(pool);
        berth__pool_stop(pool); /* idle neighbours are shown as one */
        size_t needed = count_spans(pool);
        if (needed > room) {
            berth__pool_resume(pool);
            berth__pool_unlock(pool);
            berth__heap_free(blocks);
            room = needed + needed / 4;
            continue;
        }
        copy->count = 0;
        for (const berth__segment *segment = pool->arena.segments; segment; segment = segment->next)
            for (const berth__span *span = segment->first; span; span = span->after)
                if (span->index != &pool->unmapped)
                    blocks[copy->count++] = describe_span(pool, span);
        berth__pool_resume(pool);
        berth__pool_settle(pool);
        berth__pool_unlock(pool);
        copy->blocks = blocks;
        return BERTH_OK;
    }
}

berth_status berth__pool_snapshot(void *self, berth_block_fn visit, void *context)
{
    struct copy copy = {0};
    berth_status status = copy_blocks(self, &copy);
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
             (unsigned long long)copy->blocks[first].segment, pool->granularity ? " (grows in place)" : "",
             i - first, (unsigned long long)bytes[BERTH_BLOCK_LIVE],
             (unsigned long long)bytes[BERTH_BLOCK_WAITING], (unsigned long long)bytes[BERTH_BLOCK_IDLE]);
    line(context, text);
}

berth_status berth_pool_describe(berth_allocator *a, size_t max_blocks, berth_line_fn line, void *context)
{
    berth__pool *pool = berth__pool_from(a);
    if (!pool || !line)
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s", pool ? "line is NULL" : "this is not a pool");
    berth_stats stats = {.struct_size = sizeof stats};
    struct copy copy = {0};
    berth_status status = berth_stats_get(a, &stats);
    if (status == BERTH_OK)
        status = copy_blocks(pool, &copy);
    if (status != BERTH_OK)
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

/* ---- Why not ------------------------------------------------------------------------------------- */

/* What stood in the way, read under the lock. */
struct reason {
    uint64_t live_bytes, waiting_bytes, idle_bytes, largest_bytes, reserved_bytes;
    const char *pin_label; /* of the live block behind the largest hole */
    uint64_t pin_bytes;
};

static struct reason find_reason(berth__pool *pool)
{
    struct reason reason = {0};
    uint64_t bytes[3] = {0};
    const berth__span *hole = NULL;
    for (const berth__segment *segment = pool->arena.segments; segment; segment = segment->next)
        for (const berth__span *span = segment->first; span; span = span->after) {
            if (span->index == &pool->unmapped)
                continue;
            bytes[state_of(pool, span)] += span->size_bytes;
            if (berth__pool_is_idle(pool, span->index) && (!hole || span->size_bytes > hole->size_bytes))
                hole = span;
        }
    reason.live_bytes = bytes[BERTH_BLOCK_LIVE];
    reason.waiting_bytes = bytes[BERTH_BLOCK_WAITING];
    reason.idle_bytes = bytes[BERTH_BLOCK_IDLE];
    reason.reserved_bytes = pool->reserved_bytes;
    reason.largest_bytes = hole ? hole->size_bytes : 0;
    const berth__span *pin = hole ? (hole->after ? hole->after : hole->before) : NULL;
    if (pin && atomic_load(&pin->state) == BERTH__SPAN_LIVE) {
        reason.pin_label = pin->label ? pin->label : "a block without a label";
        reason.pin_bytes = pin->size_bytes;
    }
    return reason;
}

berth_status berth__pool_explain(berth__pool *pool, size_t size_bytes, const berth_request *request,
                                 berth_status why)
{
    if (why != BERTH_OVER_BUDGET && why != BERTH_OUT_OF_DEVICE_MEMORY && why != BERTH_OUT_OF_HOST_MEMORY)
        return why;
    const berth_error cause = *berth_last_error();
    char pin[120] = "", limit_words[48] = "";
    berth__pool_lock(pool);
    berth__pool_stop(pool);
    struct reason r = find_reason(pool);
    berth__pool_resume(pool);
    berth__pool_unlock(pool);
    if (pool->budget->hard_limit_bytes)
        snprintf(limit_words, sizeof limit_words, " of a limit of %llu",
                 (unsigned long long)pool->budget->hard_limit_bytes);
    /* In pieces: idle memory would have been enough. Given back first, it only stays where granules cannot
     * go. */
    bool fragmented = r.idle_bytes >= size_bytes;
    if (fragmented && r.pin_label)
        snprintf(pin, sizeof pin, " (pinned by %s, %llu bytes)", r.pin_label,
                 (unsigned long long)r.pin_bytes);
    const char *label = berth__request_label(request);
    return berth__fail_driver(
        why, cause.driver_code, cause.driver_words,
        "%zu bytes%s%s do not fit: %s. Live %llu, waiting for streams %llu, idle %llu, reserved %llu%s; "
        "largest hole %llu%s. %s",
        size_bytes, label ? " for " : "", label ? label : "",
        fragmented ? "the free memory is in pieces" : "too much is live", (unsigned long long)r.live_bytes,
        (unsigned long long)r.waiting_bytes, (unsigned long long)r.idle_bytes,
        (unsigned long long)r.reserved_bytes, limit_words, (unsigned long long)r.largest_bytes, pin,
        cause.message);
}
