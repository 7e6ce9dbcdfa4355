/* Streams: a replayed block is reused without asking any device, so the order of the work on it must follow
 * from the order of the streams.
 *
 * At any time one stream (`head.stream`; NULL: the host) may use whatever has been freed so far. A request
 * for another one makes that wait for the first; a free on another one makes the first wait for that. A run
 * on one stream, the common case, never comes here. */
#include "replay/replay.h"

/* Makes `later` wait for what `earlier` has been given so far; the host if `later` is NULL. */
static berth_status follow(berth_stream *later, berth_stream *earlier)
{
    if (!later)
        return berth_stream_synchronize(earlier);
    berth_event *mark = NULL;
    berth_status status = berth_event_create(berth_stream_device(earlier), &mark);
    if (status == BERTH_OK)
        status = berth_event_record(mark, earlier);
    if (status == BERTH_OK)
        status = berth_stream_wait_event(later, mark);
    berth_event_destroy(mark);
    return status;
}

berth_status berth__streams_switch(berth__replay *r, berth_stream *stream)
{
    berth_status status = r->head.stream ? follow(stream, r->head.stream) : BERTH_OK;
    if (status == BERTH_OK)
        r->head.stream = stream;
    return status;
}

berth_status berth__streams_join(berth__replay *r, berth_stream *stream)
{
    if (stream == r->head.stream)
        return BERTH_OK;
    if (r->head.stream)
        return follow(r->head.stream, stream);
    r->head.stream = stream; /* the host's work so far comes before what is enqueued from now on */
    return BERTH_OK;
}

berth_status berth__uses_add(berth__block *b, uint32_t rank, berth_stream *stream)
{
    for (size_t i = 0; i < b->use_count; i++)
        if (b->uses[i].rank == rank && b->uses[i].stream == stream)
            return BERTH_OK;
    if (b->use_count == b->use_room) {
        size_t room = b->use_room ? b->use_room * 2 : 8;
        berth__use *larger = berth__heap_realloc(b->uses, room * sizeof *larger);
        if (!larger)
            return berth__fail(BERTH_OUT_OF_HOST_MEMORY, "no memory to note the use by a stream");
        b->uses = larger;
        b->use_room = room;
    }
    b->uses[b->use_count++] = (berth__use){rank, stream};
    return BERTH_OK;
}

berth_status berth__uses_join(berth__replay *r, uint32_t rank)
{
    berth__block *b = r->block;
    for (size_t i = 0; i < b->use_count;) {
        if (b->uses[i].rank != rank) {
            i++;
            continue;
        }
        berth_status status = berth__streams_join(r, b->uses[i].stream);
        if (status != BERTH_OK)
            return status;
        b->uses[i] = b->uses[--b->use_count];
    }
    return BERTH_OK;
}

berth_status berth__streams_begin(berth__replay *r, berth_stream *stream)
{
    berth__block *b = r->block;
    r->head.stream = r->default_stream = stream;
    if (!b->busy_pending)
        return BERTH_OK;
    berth_status status = stream ? berth_stream_wait_event(stream, b->busy) : berth_event_wait(b->busy);
    if (status == BERTH_OK)
        b->busy_pending = false;
    return status;
}

void berth__streams_end(berth__replay *r)
{
    berth__block *b = r->block;
    if (!r->head.stream)
        return;
    berth_status status = BERTH_OK;
    if (!b->busy) /* all streams that work on one block are of its device */
        status = berth_event_create(berth_stream_device(r->head.stream), &b->busy);
    if (status == BERTH_OK)
        status = berth_event_record(b->busy, r->head.stream);
    b->busy_pending = status == BERTH_OK;
    if (status != BERTH_OK && berth_stream_synchronize(r->head.stream) != BERTH_OK)
        berth__log(BERTH_LOG_ERROR, "the stream of a replay can be neither marked nor waited for: %s",
                   berth_last_error()->message);
}

void berth__streams_settle(berth__block *b)
{
    if (b->busy_pending && berth_event_wait(b->busy) != BERTH_OK)
        berth__log(BERTH_LOG_WARNING, "waiting for the last work on a planned block failed: %s",
                   berth_last_error()->message);
    b->busy_pending = false;
    berth_event_destroy(b->busy);
    b->busy = NULL;
}
