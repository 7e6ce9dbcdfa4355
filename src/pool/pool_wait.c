/* Blocks that streams may still use: free for their own stream at once, for all when the point has passed. */
#include "pool/pool.h"

#include <sched.h>

/* ---- Streams ------------------------------------------------------------------------------------- */

static berth__pool_stream **wait_bucket_of(berth__pool *pool, const berth_stream *stream)
{
    return &pool->streams[stream->id % BERTH__POOL_BUCKETS];
}

berth__pool_stream *berth__pool_stream_of(berth__pool *pool, berth_stream *stream, bool make)
{
    berth__pool_stream **bucket = wait_bucket_of(pool, stream);
    for (berth__pool_stream *known = *bucket; known; known = known->next)
        if (known->stream == stream)
            return known;
    berth__pool_stream *made = make ? berth__heap_zalloc(1, sizeof *made) : NULL;
    if (!made)
        return NULL;
    made->stream = berth__stream_retain(stream);
    made->end = &made->first;
    made->next = *bucket;
    *bucket = made;
    return made;
}

/* ---- Uses ---------------------------------------------------------------------------------------- */

/* Most blocks have one stream, kept in the span itself; the others are here. */
struct more_uses {
    uint32_t room;
    berth__pool_stream *streams[];
};

static berth__pool_stream *wait_use_at(const berth__span *span, uint32_t i)
{
    const struct more_uses *more = span->more_uses;
    return i == 0 ? span->use : more->streams[i - 1];
}

berth_stream *berth__pool_first_use(const berth__span *span)
{
    const berth__pool_stream *known = span->use_count ? span->use : NULL;
    return known ? known->stream : NULL;
}

static berth_status wait_no_memory(void)
{
    return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to note that a stream uses a block");
}

/* Makes room for one more stream. */
static berth_status reserve_use(berth__span *span)
{
    struct more_uses *more = span->more_uses;
    if (span->use_count == 0 || (more && span->use_count - 1 < more->room))
        return BERTH_OK;
    uint32_t room = more ? more->room * 2 : 3;
    more = berth__heap_realloc(more, sizeof *more + room * sizeof(berth__pool_stream *));
    if (!more)
        return wait_no_memory();
    more->room = room;
    span->more_uses = more;
    return BERTH_OK;
}

berth_status berth__pool_add_use(berth__pool *pool, berth__span *span, berth_stream *stream)
{
    for (uint32_t i = 0; i < span->use_count; i++)
        if (wait_use_at(span, i)->stream == stream)
            return BERTH_OK; /* once is enough: one event at the free */
    berth_status status = reserve_use(span);
    if (status != BERTH_OK)
        return status;
    berth__pool_stream *known = berth__pool_stream_of(pool, stream, true);
    if (!known)
        return wait_no_memory();
    known->users++;
    if (span->use_count == 0)
        span->use = known;
    else
        ((struct more_uses *)span->more_uses)->streams[span->use_count - 1] = known;
    span->use_count++;
    return BERTH_OK;
}

static void forget_uses(berth__span *span)
{
    for (uint32_t i = 0; i < span->use_count; i++)
        wait_use_at(span, i)->users--;
    berth__heap_free(span->more_uses);
    span->more_uses = span->use = NULL;
    span->use_count = 0;
}

/* ---- Points in streams --------------------------------------------------------------------------- */

/* A point to record, from the spare ones or new; NULL if memory or the device has none left. Without the
 * lock. */
static berth__waiting *point_make(berth__pool *pool)
{
    berth__pool_relock(pool);
    berth__waiting *point = pool->spare_waiting;
    if (point)
        pool->spare_waiting = point->next;
    berth__pool_unlock(pool);
    if (point)
        return point;
    point = berth__heap_zalloc(1, sizeof *point);
    if (point && berth_event_create(pool->device, &point->event) != BERTH_OK) {
        berth__heap_free(point);
        point = NULL;
    }
    return point;
}

static void point_spare(berth__pool *pool, berth__waiting *point)
{
    point->span = NULL;
    point->next = pool->spare_waiting;
    pool->spare_waiting = point;
}

typedef enum outcome {
    RECORDED, /* the point stands for the stream's end */
    PASSED,   /* there was no way, but the stream has come to rest */
    UNKNOWN,  /* nor is that known */
} outcome;

/* Records the end of a stream. `wait`: a stream that cannot be marked is waited for; else asked. A lost device
 * runs nothing any more. Without the lock. */
static outcome point_record(berth__pool *pool, berth_stream *stream, bool wait, berth__waiting **out)
{
    berth__waiting *point = point_make(pool);
    if (point && berth_event_record(point->event, stream) == BERTH_OK) {
        *out = point;
        return RECORDED;
    }
    if (point) {
        berth__pool_relock(pool);
        point_spare(pool, point);
        berth__pool_unlock(pool);
    }
    berth_status status = wait ? berth_stream_synchronize(stream) : berth_stream_query(stream);
    return status == BERTH_OK || status == BERTH_DEVICE_LOST ? PASSED : UNKNOWN;
}

static void point_append(berth__pool *pool, berth__pool_stream *known, berth__waiting *point,
                         berth__span *span)
{
    point->span = span;
    point->ticket = ++known->last_ticket;
    point->next = NULL;
    *known->end = point;
    known->end = &point->next;
    pool->waiting_count++;
}

/* The span's only stream gets it at once, everyone when the point has passed. */
static void wait_in_index(berth__pool *pool, berth__span *span, berth__waiting *point)
{
    berth__pool_stream *known = span->use;
    point_append(pool, known, point, NULL);
    forget_uses(span);
    span->ticket = known->last_ticket;
    span->since_ns = pool->now_ns;
    berth__arena_put(&pool->arena, span, &known->index);
}

/* The driver's part, without the lock: points for the span's streams, in the order of the uses, each with the
 * number of its use for a ticket. Returns whether every stream has one or has passed. */
static bool record_points(berth__pool *pool, const berth__span *span, bool wait, berth__waiting **points)
{
    berth__waiting **end = points;
    for (uint32_t i = 0; i < span->use_count; i++) {
        berth__waiting *point = NULL;
        outcome got = point_record(pool, wait_use_at(span, i)->stream, wait, &point);
        if (got == UNKNOWN)
            return false;
        if (got == PASSED)
            continue;
        point->next = NULL;
        point->ticket = i;
        *end = point;
        end = &point->next;
    }
    return true;
}

static void spare_points(berth__pool *pool, berth__waiting *points)
{
    while (points) {
        berth__waiting *point = points;
        points = point->next;
        point_spare(pool, point);
    }
}

/* With the lock: the span waits for its points. */
static void wait_for_points(berth__pool *pool, berth__span *span, berth__waiting *points)
{
    uint32_t count = 0;
    for (const berth__waiting *point = points; point; point = point->next)
        count++;
    if (count == 0) {
        forget_uses(span);
        berth__pool_put(pool, span);
        return;
    }
    if (span->use_count == 1) {
        wait_in_index(pool, span, points);
        return;
    }
    span->ticket = count;
    span->since_ns = pool->now_ns;
    while (points) {
        berth__waiting *point = points;
        points = point->next;
        point_append(pool, wait_use_at(span, (uint32_t)point->ticket), point, span);
    }
    forget_uses(span);
}

/* Marks the streams of a freed span that is in no list. False: it could not be done, and the span is among
 * the unmarked. */
static bool mark_streams(berth__pool *pool, berth__span *span, bool wait)
{
    berth__waiting *points = NULL;
    span->ticket = span->use_count; /* it waits: nobody takes it for idle */
    berth__spans_add(&pool->marking, span);
    berth__pool_unlock(pool);
    bool known = record_points(pool, span, wait, &points);
    berth__pool_lock(pool);
    berth__spans_remove(&pool->marking, span);
    if (known) {
        wait_for_points(pool, span, points);
        return true;
    }
    spare_points(pool, points);
    berth__spans_add(&pool->unmarked, span);
    return false;
}

void berth__pool_wait_for(berth__pool *pool, berth__span *span)
{
    (void)mark_streams(pool, span, true);
}

/* Tries again with the spans whose streams could not be marked: a later point does as well. Returns whether
 * any could. */
static bool mark_again(berth__pool *pool, bool wait)
{
    uint32_t count = 0;
    bool any = false;
    for (const berth__span *span = pool->unmarked; span; span = span->right)
        count++;
    while (count-- > 0 && pool->unmarked) {
        berth__span *oldest = pool->unmarked; /* those that fail again go to the front */
        while (oldest->right)
            oldest = oldest->right;
        berth__spans_remove(&pool->unmarked, oldest);
        any |= mark_streams(pool, oldest, wait);
    }
    return any;
}

/* ---- Collecting ---------------------------------------------------------------------------------- */

/* Moves what the stream has passed up to `ticket` to free memory. */
static void release_passed(berth__pool *pool, berth__pool_stream *known, uint64_t ticket)
{
    berth__span *next;
    for (berth__span *span = berth__index_next(&known->index, NULL); span; span = next) {
        next = berth__index_next(&known->index, span);
        if (span->ticket <= ticket)
            berth__pool_put(pool, berth__arena_take(&pool->arena, span, span->address, span->size_bytes));
    }
}

/* Asks the stream's points in order, without the lock, until one has not passed. */
static bool collect_stream(berth__pool *pool, berth__pool_stream *known, bool wait)
{
    uint64_t passed = 0;
    while (known->first) {
        berth__waiting *point = known->first;
        berth__pool_unlock(pool);
        berth_status status = wait ? berth_event_wait(point->event) : berth_event_query(point->event);
        berth__pool_relock(pool);
        /* A lost device runs nothing any more; any other failure may pass, and the block stays out of use. */
        if (status != BERTH_OK && status != BERTH_DEVICE_LOST)
            break;
        wait = false;
        known->first = point->next;
        if (!known->first)
            known->end = &known->first;
        pool->waiting_count--;
        passed = point->ticket;
        if (point->span && --point->span->ticket == 0)
            berth__pool_put(pool, point->span);
        point_spare(pool, point);
    }
    if (passed)
        release_passed(pool, known, passed);
    return passed != 0;
}

bool berth__pool_collect(berth__pool *pool, bool wait)
{
    if (pool->waiting_count == 0 && !pool->unmarked)
        return false;
    if (pool->collecting) { /* another thread is at it; its finds are for all */
        bool soon = wait || !pool->collecting_waits;
        berth__pool_unlock(pool);
        sched_yield();
        berth__pool_relock(pool);
        return soon;
    }
    pool->collecting = true;
    pool->collecting_waits = wait;
    bool any = pool->unmarked && mark_again(pool, wait);
    berth__pool_stream *gone = NULL;
    for (size_t i = 0; i < BERTH__POOL_BUCKETS; i++) {
        for (berth__pool_stream **place = &pool->streams[i]; *place;) {
            berth__pool_stream *known = *place;
            any |= collect_stream(pool, known, wait);
            /* Streams are added in front while the lock is dropped: find the place again. */
            place = &pool->streams[i];
            while (*place != known)
                place = &(*place)->next;
            if (known->users || known->first || known->index.root) {
                place = &known->next;
            } else {
                *place = known->next;
                known->next = gone;
                gone = known;
            }
        }
    }
    pool->collecting = false;
    if (gone) { /* dropping the last reference to a stream is a driver call */
        berth__pool_unlock(pool);
        while (gone) {
            berth__pool_stream *known = gone;
            gone = known->next;
            berth__stream_release(known->stream);
            berth__heap_free(known);
        }
        berth__pool_relock(pool);
    }
    return any;
}

/* With the lock, dropped and taken again: waits for the stream itself where its events do not come. False: that
 * does not help either, and work may still run on the blocks. */
static bool drain_stream(berth__pool *pool, berth__pool_stream *known)
{
    if (!known->first)
        return true;
    berth__pool_unlock(pool);
    berth_status status = berth_stream_synchronize(known->stream);
    berth__pool_relock(pool);
    if (status != BERTH_OK && status != BERTH_DEVICE_LOST)
        return false;
    while (known->first) {
        berth__waiting *point = known->first;
        known->first = point->next;
        pool->waiting_count--;
        if (point->span && --point->span->ticket == 0)
            berth__pool_put(pool, point->span);
        point_spare(pool, point);
    }
    known->end = &known->first;
    release_passed(pool, known, UINT64_MAX);
    return true;
}

bool berth__pool_wait_finish(berth__pool *pool)
{
    berth__pool_lock(pool);
    while ((pool->waiting_count || pool->unmarked) && berth__pool_collect(pool, true))
        continue;
    bool drained = !pool->unmarked;
    for (size_t i = 0; i < BERTH__POOL_BUCKETS; i++)
        for (berth__pool_stream *known = pool->streams[i]; known; known = known->next)
            drained &= drain_stream(pool, known);
    if (!drained) {
        berth__pool_unlock(pool);
        return false;
    }
    berth__waiting *spare = pool->spare_waiting;
    pool->spare_waiting = NULL;
    berth__pool_unlock(pool);
    while (spare) {
        berth__waiting *point = spare;
        spare = point->next;
        berth_event_destroy(point->event);
        berth__heap_free(point);
    }
    for (size_t i = 0; i < BERTH__POOL_BUCKETS; i++)
        while (pool->streams[i]) {
            berth__pool_stream *known = pool->streams[i];
            pool->streams[i] = known->next;
            berth__stream_release(known->stream);
            berth__heap_free(known);
        }
    return true;
}
