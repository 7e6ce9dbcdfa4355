/* Streams: a replayed block is reused without asking any device, so the order of the work on it must follow
 * from the order of the streams.
 *
 * At any time one stream (`head.stream`; NULL: the host) may use whatever has been freed so far. A request
 * for another one makes that wait for the first; a free on another one makes the first wait for that. A run
 * on one stream, the common case, never comes here.
 *
 * A block keeps a mark for each stream that works on it: the stream itself, retained, while more work may
 * come, and after that an event behind which the next scope queues. Marks belong to whoever has the block
 * running; uses, which any thread may note, to the lock. */
#include "replay/replay.h"

#include "device/device.h"

/* ---- Marks ------------------------------------------------------------------------------------------- */

static berth__mark *mark_of(berth__block *b, const berth_stream *stream)
{
    for (size_t i = 0; i < b->mark_count; i++)
        if (b->marks[i].stream == stream)
            return &b->marks[i];
    return NULL;
}

static berth__mark *spare_mark(berth__block *b)
{
    for (size_t i = 0; i < b->mark_count; i++)
        if (!b->marks[i].stream && !b->marks[i].pending)
            return &b->marks[i];
    if (b->mark_count == b->mark_room) {
        size_t room = b->mark_room ? b->mark_room * 2 : 4;
        berth__mark *larger = berth__heap_realloc(b->marks, room * sizeof *larger);
        if (!larger)
            return NULL;
        b->marks = larger;
        b->mark_room = room;
    }
    b->marks[b->mark_count] = (berth__mark){0};
    return &b->marks[b->mark_count++];
}

/* Holds on to `stream`; NULL, the host, needs no mark. */
static berth_status note_stream(berth__block *b, berth_stream *stream)
{
    if (!stream || mark_of(b, stream))
        return BERTH_OK;
    berth__mark *mark = spare_mark(b);
    if (!mark)
        return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to keep a stream that works on a block");
    mark->stream = berth__stream_retain(stream);
    mark->owed = false;
    return BERTH_OK;
}

static void let_go(berth__mark *mark)
{
    BERTH_DCHECK(!mark->owed || berth__is_child(), "[R9] a stream is let go of once it is marked");
    berth__stream_release(mark->stream);
    mark->stream = NULL;
    mark->owed = false;
}

/* Marks what the stream has been given so far; if it cannot be marked, waits for it. */
static berth_status mark_now(berth__mark *mark)
{
    BERTH_DCHECK(!berth__planned_is_locked(), "[B2] no driver is called under a lock");
    BERTH_DCHECK(mark->stream, "[R9] what is marked is a stream");
    berth_status status = BERTH_OK;
    if (mark->event && !berth_device_equal(mark->event->device, mark->stream->device)) {
        berth_event_destroy(mark->event);
        mark->event = NULL;
    }
    if (!mark->event)
        status = berth_event_create(berth_stream_device(mark->stream), &mark->event);
    if (!status)
        status = berth_event_record(mark->event, mark->stream);
    mark->pending = !status;
    if (status)
        status = berth_stream_synchronize(mark->stream);
    mark->owed = status; /* neither: the block is not used before one of them works */
    return status;
}

/* `later` (NULL: the host) waits for a mark; what is owed is marked first. It stays pending. */
static berth_status wait_for(berth_stream *later, berth__mark *mark)
{
    BERTH_DCHECK(!mark->owed || mark->stream || berth__is_child(),
                 "[R9] a stream that is to be marked is held");
    BERTH_DCHECK(!mark->pending || mark->event || berth__is_child(), "[R9] what is waited for has an event");
    berth_status status = mark->owed ? mark_now(mark) : BERTH_OK;
    if (!status && mark->pending)
        status = later ? berth_stream_wait_event(later, mark->event) : berth_event_wait(mark->event);
    return status;
}

/* Stragglers were freed while others stayed, so that nobody had to put the block away: what streams still do there comes
 * before the run. What is freed from now on lies where it does not go. */
static void owe_loose_uses(berth__planned *p, berth__block *b)
{
    berth_stream *stream;
    do {
        berth__planned_lock(p);
        stream = berth__uses_take(b, BERTH__NOWHERE);
        berth__planned_unlock(p);
        if (stream)
            berth__marks_owe(b, stream);
    } while (stream);
}

berth_status berth__streams_begin(berth__replay *r, berth_stream *stream, bool inhabited)
{
    berth__block *b = r->block;
    BERTH_DCHECK(b->state == BERTH__BLOCK_RUNNING && b->plan, "[R14] marks are the runner's");
    if (r->follows_uses)
        owe_loose_uses(r->planned, b);
    for (size_t i = 0; i < b->mark_count; i++) {
        berth_status status = wait_for(stream, &b->marks[i]);
        if (status)
            return status;
    }
    /* Only now: had one failed, the next to begin must wait for all of them. */
    for (size_t i = 0; i < b->mark_count; i++) {
        b->marks[i].pending = false;
        if (inhabited && b->marks[i].stream)
            b->marks[i].owed = true; /* stragglers may be in use there still */
        else
            let_go(&b->marks[i]);
    }
    berth_status status = note_stream(b, stream);
    if (!status)
        r->head.stream = r->default_stream = stream;
    return status;
}

static void record_mark(berth__mark *mark)
{
    if (mark_now(mark) != BERTH_OK)
        berth__log(BERTH_LOG_ERROR,
                   "a stream that used a planned block can be neither marked nor waited for; the block is "
                   "kept: %s",
                   berth_last_error()->message);
}

void berth__streams_end(berth__replay *r, bool inhabited)
{
    berth__block *b = r->block;
    BERTH_DCHECK(b->state == BERTH__BLOCK_RUNNING && !b->plan, "[R14] marks are the runner's");
    BERTH_DCHECK(!r->head.stream || mark_of(b, r->head.stream),
                 "[R9] the stream that uses the block is held");
    for (size_t i = 0; i < b->mark_count; i++) {
        berth__mark *mark = &b->marks[i];
        if (!mark->stream)
            continue;
        if (mark->owed || mark->stream == r->head.stream)
            record_mark(mark);
        if (inhabited)
            mark->owed = true;
        else if (!mark->owed)
            let_go(mark);
    }
}

void berth__marks_owe(berth__block *b, berth_stream *stream)
{
    BERTH_DCHECK(b->state == BERTH__BLOCK_RUNNING && stream, "[R14] marks are the runner's");
    if (note_stream(b, stream) == BERTH_OK)
        mark_of(b, stream)->owed = true;
    else if (berth_stream_synchronize(stream) != BERTH_OK)
        berth__log(BERTH_LOG_ERROR,
                   "a stream that uses a planned block can be neither kept nor waited for: %s",
                   berth_last_error()->message);
    berth__stream_release(stream);
}

bool berth__marks_owes(const berth__block *b)
{
    for (size_t i = 0; i < b->mark_count; i++)
        if (b->marks[i].owed)
            return true;
    return false;
}

void berth__marks_pay(berth__block *b)
{
    BERTH_DCHECK(b->state == BERTH__BLOCK_RUNNING, "[R14] marks are the runner's");
    for (size_t i = 0; i < b->mark_count; i++) {
        if (b->marks[i].owed)
            record_mark(&b->marks[i]);
        if (b->marks[i].stream && !b->marks[i].owed)
            let_go(&b->marks[i]);
    }
}

bool berth__marks_passed(berth__block *b)
{
    BERTH_DCHECK(!berth__planned_is_locked(), "[B2] no driver is called under a lock");
    for (size_t i = 0; i < b->mark_count; i++)
        if (b->marks[i].owed || (b->marks[i].pending && berth_event_query(b->marks[i].event) != BERTH_OK))
            return false;
    return true;
}

berth_status berth__marks_settle(berth__block *b)
{
    berth_status worst = BERTH_OK;
    BERTH_DCHECK(!berth__planned_is_locked(), "[B2] no driver is called under a lock");
    BERTH_DCHECK(!b->plan || berth__is_child(), "[R5] nobody waits for the streams of a block that runs");
    for (size_t i = 0; i < b->mark_count; i++) {
        berth_status status = wait_for(NULL, &b->marks[i]);
        if (!status)
            b->marks[i].pending = false;
        else if (status != BERTH_DEVICE_LOST) /* work of a lost device never runs */
            worst = status;
    }
    return worst;
}

void berth__marks_finish(berth__block *b)
{
    for (size_t i = 0; i < b->mark_count; i++) {
        berth_event_destroy(b->marks[i].event);
        if (b->marks[i].stream)
            berth__stream_release(b->marks[i].stream);
    }
    for (size_t i = 0; i < b->use_count; i++)
        berth__stream_release(b->uses[i].stream);
    berth__heap_free(b->marks);
    berth__heap_free(b->uses);
}

/* ---- Inside a scope ---------------------------------------------------------------------------------- */

static berth_status follow_now(berth_stream *later, berth_stream *earlier)
{
    if (!later)
        return berth_stream_synchronize(earlier);
    berth_event *mark = NULL;
    berth_status status = berth_event_create(berth_stream_device(earlier), &mark);
    if (!status)
        status = berth_event_record(mark, earlier);
    if (!status)
        status = berth_stream_wait_event(later, mark);
    berth_event_destroy(mark);
    return status;
}

/* Makes `later` wait for what `earlier` has been given so far; the host if `later` is NULL. Work of a lost device never
 * runs, so that nothing waits for it. */
static berth_status streams_follow(berth_stream *later, berth_stream *earlier)
{
    BERTH_DCHECK(!berth__planned_is_locked(), "[B2] no driver is called under a lock");
    BERTH_DCHECK(earlier && later != earlier, "[R9] one stream waits for another");
    berth_status status = follow_now(later, earlier);
    bool is_lost = status == BERTH_DEVICE_LOST && berth_stream_query(earlier) == BERTH_DEVICE_LOST;
    return is_lost ? BERTH_OK : status;
}

berth_status berth__streams_switch(berth__replay *r, berth_stream *stream)
{
    BERTH_DCHECK(stream != r->head.stream, "[R9] the run goes on on another stream");
    berth_status status = note_stream(r->block, stream);
    if (!status && r->head.stream)
        status = streams_follow(stream, r->head.stream);
    if (!status)
        r->head.stream = stream;
    return status;
}

berth_status berth__streams_join(berth__replay *r, berth_stream *stream)
{
    if (stream == r->head.stream)
        return BERTH_OK;
    if (r->head.stream)
        return streams_follow(r->head.stream, stream);
    if (note_stream(r->block, stream) != BERTH_OK)
        return berth_stream_synchronize(stream);
    r->head.stream = stream; /* the host's work so far comes before what is enqueued from now on */
    return BERTH_OK;
}

/* ---- Uses; those with the lock say so ---------------------------------------------------------------- */

berth_status berth__uses_add(berth__block *b, uint64_t offset, berth_stream *stream, bool *added)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] uses are any thread's, with the lock");
    BERTH_DCHECK(stream && b->use_count <= b->use_room,
                 "[R9] a stream is noted, and there is room for those before");
    *added = false;
    for (size_t i = 0; i < b->use_count; i++)
        if (b->uses[i].offset == offset && b->uses[i].stream == stream)
            return BERTH_OK;
    if (b->use_count == b->use_room) {
        size_t room = b->use_room ? b->use_room * 2 : 8;
        berth__replay_use *larger = berth__heap_realloc(b->uses, room * sizeof *larger);
        if (!larger)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to note the use by a stream");
        b->uses = larger;
        b->use_room = room;
    }
    b->uses[b->use_count++] = (berth__replay_use){offset, berth__stream_retain(stream), false};
    *added = true;
    return BERTH_OK;
}

void berth__uses_loosen(berth__block *b, uint64_t offset)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] uses are any thread's, with the lock");
    for (size_t i = 0; i < b->use_count; i++)
        if (b->uses[i].offset == offset)
            b->uses[i] = (berth__replay_use){BERTH__NOWHERE, b->uses[i].stream, false};
}

berth_stream *berth__uses_take(berth__block *b, uint64_t offset)
{
    BERTH_DCHECK(berth__planned_is_locked(), "[B1] uses are any thread's, with the lock");
    for (size_t i = 0; i < b->use_count; i++) {
        if (b->uses[i].offset != offset)
            continue;
        berth_stream *stream = b->uses[i].stream;
        b->uses[i] = b->uses[--b->use_count];
        return stream;
    }
    return NULL;
}

/* The stream of a use at `offset`, with a reference of the caller's. */
static berth_stream *use_at(berth__replay *r, uint64_t offset)
{
    berth_stream *stream = NULL;
    berth__planned_lock(r->planned);
    for (size_t i = 0; i < r->block->use_count && !stream; i++)
        if (r->block->uses[i].offset == offset)
            stream = berth__stream_retain(r->block->uses[i].stream);
    berth__planned_unlock(r->planned);
    return stream;
}

static void forget_use(berth__replay *r, uint64_t offset, berth_stream *stream)
{
    berth__block *b = r->block;
    bool gone = false;
    berth__planned_lock(r->planned);
    for (size_t i = 0; i < b->use_count && !gone; i++) {
        if (b->uses[i].offset != offset || b->uses[i].stream != stream)
            continue;
        BERTH_DCHECK(r->own_uses >= b->uses[i].counted, "[R9] what is forgotten was counted");
        r->own_uses -= b->uses[i].counted;
        b->uses[i] = b->uses[--b->use_count];
        gone = true;
    }
    berth__planned_unlock(r->planned);
    if (gone)
        berth__stream_release(stream);
}

berth_status berth__uses_join(berth__replay *r, uint64_t offset)
{
    for (berth_stream *stream; (stream = use_at(r, offset)) != NULL;) {
        berth_status status = berth__streams_join(r, stream);
        if (!status)
            forget_use(r, offset, stream);
        berth__stream_release(stream);
        if (status)
            return status;
    }
    return BERTH_OK;
}
