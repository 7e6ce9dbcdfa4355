/* The events of all threads of a trace in the order of time. */
#include "trace/reader.h"

/* ---- Cursors ----------------------------------------------------------------------------------------- */

static void cursor_unload(berth__trace_cursor *c)
{
    berth__heap_free(c->bytes);
    c->bytes = NULL;
    c->loaded = false;
}

/* Nothing more of its thread is in the file for now: it goes on in the chunk `sequence` behind the rows that it has told. */
static void cursor_rest(berth__trace_cursor *c, uint32_t sequence, size_t passed)
{
    cursor_unload(c);
    c->piece = 0;
    c->sequence = sequence;
    c->passed = passed;
}

/* To the next chunk of its thread, which is loaded when its time comes. */
static void cursor_leave(const berth_trace_reader *r, berth__trace_cursor *c)
{
    const berth__trace_piece *p = &r->pieces[c->piece - 1];
    bool may_grow = c->bytes && !c->whole && c->at == c->end;
    if (may_grow && (p->finished || c->stale || !p->next)) {
        uint32_t same = p->finished || c->stale ? c->piece : 0;
        cursor_rest(c, p->sequence, (size_t)(c->at - c->bytes));
        c->piece = same;
        return;
    }
    cursor_rest(c, p->sequence + 1, 0);
    c->piece = p->next;
    if (c->piece && r->pieces[c->piece - 1].tick_first > c->tick)
        c->tick = r->pieces[c->piece - 1].tick_first;
}

/* Takes the next event of a chunk that is loaded; at its end, or where it is damaged, leaves it. */
static void cursor_step(berth_trace_reader *r, berth__trace_cursor *c)
{
    c->loaded = berth__trace_decode(&c->at, c->end, &c->state, &c->event);
    if (c->loaded) {
        if (c->state.tick > c->tick)
            c->tick = c->state.tick;
        return;
    }
    if (c->at < c->end)
        berth__trace_note(r, "the chunk at byte %llu breaks off at its byte %llu: the rest of it is left out",
                          (unsigned long long)r->pieces[c->piece - 1].offset,
                          (unsigned long long)(c->at - c->bytes));
    cursor_leave(r, c);
}

/* *turned: its bytes are elsewhere by now, since its thread has begun the next chunk in the same place. */
static berth_status cursor_load(berth_trace_reader *r, berth__trace_cursor *c, bool *turned)
{
    const berth__trace_piece *p = &r->pieces[c->piece - 1];
    uint64_t offset = p->offset;
    berth__trace_chunk_header h;
    size_t size_bytes = 0;
    size_t passed = p->sequence == c->sequence ? c->passed : 0;
    if (!berth__trace_read_header(r, offset, &h)) {
        if (p->finished)
            berth__trace_note(r, "the chunk at byte %llu has changed since the trace was opened",
                              (unsigned long long)offset);
        *turned = !p->finished;
        cursor_rest(c, p->sequence + p->finished, p->finished ? 0 : passed);
        c->piece = p->finished ? p->next : 0;
        return BERTH_OK;
    }
    berth_status status =
        h.sequence != p->sequence ? BERTH_OK : berth__trace_load(r, offset, &h, &c->bytes, &size_bytes);
    if (status)
        return status;
    if (!c->bytes) {
        if (p->finished)
            cursor_leave(r, c);
        else
            cursor_rest(c, p->sequence, passed);
        *turned = !p->finished;
        return BERTH_OK;
    }
    if (passed > size_bytes)
        passed = size_bytes;
    c->sequence = p->sequence;
    c->whole = h.payload_checksum != 0;
    c->stale = false;
    c->at = c->bytes + passed;
    c->end = c->bytes + size_bytes;
    if (!passed)
        berth__trace_state_begin(&c->state, h.tick_first);
    cursor_step(r, c);
    return BERTH_OK;
}

/* ---- The heap ---------------------------------------------------------------------------------------- */

/* What is to be loaded comes before events of its moment, since it may hold an earlier one; frees before allocations. */
static unsigned cursor_rank(const berth__trace_cursor *c)
{
    if (!c->loaded)
        return 0;
    return c->event.kind == BERTH_TRACE_FREE || c->event.kind == BERTH_TRACE_UNMAP ? 1 : 2;
}

static bool is_before(const berth_trace_reader *r, uint32_t a, uint32_t b)
{
    const berth__trace_cursor *x = &r->cursors[a], *y = &r->cursors[b];
    if (x->tick != y->tick)
        return x->tick < y->tick;
    unsigned rank_x = cursor_rank(x), rank_y = cursor_rank(y);
    return rank_x != rank_y ? rank_x < rank_y : a < b;
}

static void sift_down(berth_trace_reader *r, uint32_t at)
{
    uint32_t moved = r->heap[at];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= r->heap_count)
            break;
        if (child + 1 < r->heap_count && is_before(r, r->heap[child + 1], r->heap[child]))
            child++;
        if (!is_before(r, r->heap[child], moved))
            break;
        r->heap[at] = r->heap[child];
        at = child;
    }
    r->heap[at] = moved;
}

static void sift_up(berth_trace_reader *r, uint32_t at)
{
    for (uint32_t moved = r->heap[at]; at > 0 && is_before(r, moved, r->heap[(at - 1) / 2]);
         at = (at - 1) / 2) {
        r->heap[at] = r->heap[(at - 1) / 2];
        r->heap[(at - 1) / 2] = moved;
    }
}

/* After the cursor at `at` has moved on. */
static void heap_settle(berth_trace_reader *r, uint32_t at)
{
    if (!r->cursors[r->heap[at]].piece)
        r->heap[at] = r->heap[--r->heap_count];
    if (at >= r->heap_count)
        return;
    sift_down(r, at);
    sift_up(r, at);
}

/* ---- Events of one tick ------------------------------------------------------------------------------ */

/* An address that one thread takes and gives back within a tick, and another takes then, must come in this order. What a thread
 * has in the tick is told by the bytes that lie ahead: few, since an event takes as long as a tick or longer. */
enum { TIES_MOST = 8, AHEAD_MOST = 4 };

/* Whether `c` gives back, later in the tick in which it stands, what `taker` takes now. */
static bool cursor_gives(const berth__trace_cursor *c, const berth__trace_cursor *taker)
{
    berth_trace_kind gives = taker->event.kind == BERTH_TRACE_ALLOC ? BERTH_TRACE_FREE : BERTH_TRACE_UNMAP;
    berth__trace_state state = c->state;
    const unsigned char *at = c->at;
    berth_trace_event e;
    for (int i = 0; i < AHEAD_MOST && c->process == taker->process; i++) {
        if (!berth__trace_decode(&at, c->end, &state, &e) || state.tick > c->tick)
            return false;
        if (e.kind == gives && e.address == taker->event.address && e.device == taker->event.device)
            return true;
    }
    return false;
}

/* Whether the cursor at `at` takes what another one of the tick is still to give back. */
static bool must_wait(const berth_trace_reader *r, uint32_t at, const uint32_t *ties, uint32_t count)
{
    const berth__trace_cursor *c = &r->cursors[r->heap[at]];
    if (c->event.kind != BERTH_TRACE_ALLOC && c->event.kind != BERTH_TRACE_MAP)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (ties[i] != at && cursor_gives(&r->cursors[r->heap[ties[i]]], c))
            return true;
    return false;
}

/* The place in the heap of what comes next: its top, or another of the same tick if that one must wait. All are loaded, since what
 * is not would be the top. */
static uint32_t heap_pick(const berth_trace_reader *r)
{
    uint32_t ties[TIES_MOST] = {0}, count = 1, best = 0;
    uint64_t tick = r->cursors[r->heap[0]].tick;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t child = 2 * ties[i] + 1; child <= 2 * ties[i] + 2 && child < r->heap_count; child++)
            if (count < TIES_MOST && r->cursors[r->heap[child]].tick == tick)
                ties[count++] = child;
    if (count == 1 || !must_wait(r, 0, ties, count))
        return 0;
    for (uint32_t i = 1; i < count; i++)
        if ((!best || is_before(r, r->heap[ties[i]], r->heap[best])) && !must_wait(r, ties[i], ties, count))
            best = ties[i];
    return best;
}

/* ---- Where threads go on ----------------------------------------------------------------------------- */

/* The chunk in which a cursor goes on, or a later one; 0: none. */
static uint32_t cursor_piece(const berth_trace_reader *r, const berth__trace_cursor *c)
{
    uint32_t piece = c->first;
    while (piece && r->pieces[piece - 1].sequence < c->sequence)
        piece = r->pieces[piece - 1].next;
    return piece;
}

bool berth__trace_all_there(const berth_trace_reader *r)
{
    for (uint32_t i = 0; i < r->cursor_count; i++) {
        const berth__trace_cursor *c = &r->cursors[i];
        uint32_t piece = cursor_piece(r, c);
        if (piece ? r->pieces[piece - 1].sequence != c->sequence : c->bytes || c->passed)
            return false;
    }
    return true;
}

void berth__trace_resume(berth_trace_reader *r)
{
    r->heap_count = 0;
    for (uint32_t i = 0; i < r->cursor_count; i++) {
        berth__trace_cursor *c = &r->cursors[i];
        uint32_t piece = cursor_piece(r, c);
        bool elsewhere = c->bytes && (!piece || r->pieces[piece - 1].sequence != c->sequence);
        c->piece = elsewhere ? 0 : piece; /* what it holds is told when its chunk is found again */
        c->stale = true;
        if (!c->piece)
            continue;
        if (!c->bytes && r->pieces[piece - 1].tick_first > c->tick)
            c->tick = r->pieces[piece - 1].tick_first;
        r->heap[r->heap_count++] = i;
    }
    for (uint32_t i = r->heap_count / 2; i-- > 0;)
        sift_down(r, i);
}

void berth_trace_rewind(berth_trace_reader *reader)
{
    if (!reader)
        return;
    reader->last_ns = 0;
    for (uint32_t i = 0; i < reader->cursor_count; i++) {
        cursor_rest(&reader->cursors[i], 0, 0);
        reader->cursors[i].tick = 0;
    }
    berth__trace_resume(reader);
}

/* ---- Events ------------------------------------------------------------------------------------------ */

/* Ticks are of one length, which two moments far apart tell. */
static uint64_t to_ns(const berth_trace_reader *r, uint64_t tick)
{
    if (r->header.tick_ns)
        return tick * r->header.tick_ns;
    uint64_t from = r->header.tick;
    if (tick <= from || r->tick <= from || r->clock_ns <= r->header.clock_ns)
        return r->header.clock_ns;
    unsigned __int128 ns =
        (unsigned __int128)(tick - from) * (r->clock_ns - r->header.clock_ns) / (r->tick - from);
    return r->header.clock_ns + (uint64_t)ns;
}

static void merge_tell(berth_trace_reader *r, const berth__trace_cursor *c, berth_trace_event *event)
{
    size_t struct_size = event->struct_size;
    *event = c->event;
    event->struct_size = struct_size;
    event->process = c->process;
    event->thread = c->thread;
    event->time_ns = to_ns(r, c->tick);
    if (event->kind == BERTH_TRACE_FAIL)
        event->picture =
            berth__trace_find_picture(r, c->process, c->thread, c->sequence, c->state.refusals - 1);
    if (event->time_ns < r->last_ns)
        event->time_ns = r->last_ns;
    r->last_ns = event->time_ns;
}

berth_status berth_trace_next(berth_trace_reader *reader, berth_trace_event *event)
{
    if (!reader || !event || event->struct_size < sizeof *event)
        return berth__fail(BERTH_INVALID_ARGUMENT,
                           "the next event of a trace goes into a berth_trace_event from "
                           "BERTH_TRACE_EVENT_INIT");
    while (reader->heap_count) {
        berth__trace_cursor *c = &reader->cursors[reader->heap[0]];
        if (c->tick > reader->tick_most)
            break;
        if (c->loaded) {
            uint32_t picked = heap_pick(reader);
            c = &reader->cursors[reader->heap[picked]];
            merge_tell(reader, c, event);
            cursor_step(reader, c);
            heap_settle(reader, picked);
            return BERTH_OK;
        }
        bool turned = false;
        berth_status status = cursor_load(reader, c, &turned);
        /* Who follows wants all up to a moment, and the copy holds what is before it. Who does not would never come to an end. */
        bool again = turned && reader->tick_most != UINT64_MAX;
        if (!status && again)
            status = berth__trace_look_again(reader);
        if (status)
            return status;
        if (!again)
            heap_settle(reader, 0);
    }
    return BERTH_NOT_FOUND;
}
