/* Events into the bytes of a chunk. Nothing is allocated and nothing waits: a recorder inside malloc uses this.
 *
 *     event:  tag, ticks since the event before, then by kind:
 *       alloc   [size] [stack] address [id]         map    size stack address       capacity  size
 *       free    address                             unmap  size address             mark      (its label is the context's)
 *       use     address                             fail   size stack               context   device stream label
 *
 * The tag's lower half is the kind. A context holds for the events behind it. Every chunk begins from nothing, so that
 * each can be read without the others. An address is the number of steps back among the last 16 freed ones (for an
 * allocation) or allocated ones (for what is freed or used), which is what caches of all allocators hand out again; or
 * 16 and above: the distance from the address before, in steps of 16 bytes where both are multiples of it. */
#ifndef BERTH_TRACE_ENCODE_H
#define BERTH_TRACE_ENCODE_H

#include "berth/trace.h"
#include "trace/format.h"

enum {
    BERTH__TRACE_CONTEXT = 9,    /* a kind of the bytes only */
    BERTH__TRACE_SAME_SIZE = 16, /* flags of an allocation: as the one before */
    BERTH__TRACE_SAME_STACK = 32,
    BERTH__TRACE_HAS_ID = 64,
    BERTH__TRACE_RECENT = 16,
    BERTH__TRACE_EVENT_MOST = 128, /* a context and an event take less */
};

/* Addresses seen last, newest at `next` - 1. */
typedef struct berth__trace_recent {
    uint64_t address[BERTH__TRACE_RECENT];
    uint32_t next;
} berth__trace_recent;

/* What both sides know before an event. */
typedef struct berth__trace_state {
    uint64_t tick;
    uint64_t address, size, id, stream;
    uint32_t stack, device, label;
    uint32_t refusals; /* so far in the chunk: a picture names one by it */
    berth__trace_recent allocated, freed;
} berth__trace_state;

static inline void berth__trace_state_begin(berth__trace_state *s, uint64_t tick)
{
    memset(s, 0, sizeof *s);
    s->tick = tick;
}

static inline void berth__trace_remember(berth__trace_recent *r, uint64_t address)
{
    r->address[r->next++ % BERTH__TRACE_RECENT] = address;
}

static inline unsigned char *berth__trace_put_address(unsigned char *to, berth__trace_state *s,
                                                      const berth__trace_recent *recent, uint64_t address)
{
    for (uint32_t back = 0; back < BERTH__TRACE_RECENT; back++)
        if (recent->address[(recent->next - 1 - back) % BERTH__TRACE_RECENT] == address) {
            *to++ = (unsigned char)back;
            s->address = address;
            return to;
        }
    uint64_t distance = address - s->address;
    bool fine = ((address | s->address) & 15) != 0;
    uint64_t steps = fine ? distance : (uint64_t)((int64_t)distance >> 4);
    s->address = address;
    /* One bit less than 64 would be left for the widest distances: those are written as two numbers. */
    uint64_t zigzag = berth__trace_zigzag(steps);
    if (zigzag >> 60) {
        to = berth__trace_put(to, BERTH__TRACE_RECENT);
        return berth__trace_put(to, address);
    }
    return berth__trace_put(to, (zigzag << 1 | fine) + BERTH__TRACE_RECENT + 1);
}

static inline unsigned char *berth__trace_put_context(unsigned char *to, berth__trace_state *s,
                                                      const berth_trace_event *e)
{
    *to++ = BERTH__TRACE_CONTEXT;
    *to++ = 0;
    to = berth__trace_put(to, s->device = e->device);
    to = berth__trace_put(to, s->stream = e->stream);
    return berth__trace_put(to, s->label = e->label);
}

static inline unsigned char *berth__trace_put_alloc(unsigned char *to, unsigned char *tag,
                                                    berth__trace_state *s, const berth_trace_event *e)
{
    if (e->size_bytes == s->size)
        *tag |= BERTH__TRACE_SAME_SIZE;
    else
        to = berth__trace_put(to, s->size = e->size_bytes);
    if (e->stack == s->stack)
        *tag |= BERTH__TRACE_SAME_STACK;
    else
        to = berth__trace_put(to, s->stack = e->stack);
    to = berth__trace_put_address(to, s, &s->freed, e->address);
    berth__trace_remember(&s->allocated, e->address);
    if (e->id) {
        *tag |= BERTH__TRACE_HAS_ID;
        to = berth__trace_put(to, berth__trace_zigzag(e->id - s->id - 1));
        s->id = e->id;
    }
    return to;
}

/* Writes `e` at `tick`, which is not before the last one's, to `to` with room for BERTH__TRACE_EVENT_MOST bytes. Returns
 * the end. A kind that is none is left out. */
static inline unsigned char *berth__trace_encode(unsigned char *to, berth__trace_state *s,
                                                 const berth_trace_event *e, uint64_t tick)
{
    if (BERTH_UNLIKELY(e->device != s->device || e->stream != s->stream || e->label != s->label))
        to = berth__trace_put_context(to, s, e);
    unsigned char *tag = to++;
    *tag = (unsigned char)e->kind;
    uint64_t passed = tick > s->tick ? tick - s->tick : 0;
    s->tick += passed;
    to = berth__trace_put(to, passed);
    switch (e->kind) {
    case BERTH_TRACE_ALLOC:
        return berth__trace_put_alloc(to, tag, s, e);
    case BERTH_TRACE_FREE:
        to = berth__trace_put_address(to, s, &s->allocated, e->address);
        berth__trace_remember(&s->freed, e->address);
        return to;
    case BERTH_TRACE_USE:
        return berth__trace_put_address(to, s, &s->allocated, e->address);
    case BERTH_TRACE_MAP:
        to = berth__trace_put(berth__trace_put(to, e->size_bytes), e->stack);
        return berth__trace_put_address(to, s, &s->freed, e->address);
    case BERTH_TRACE_UNMAP:
        return berth__trace_put_address(berth__trace_put(to, e->size_bytes), s, &s->allocated, e->address);
    case BERTH_TRACE_FAIL:
        s->refusals++;
        return berth__trace_put(berth__trace_put(to, e->size_bytes), e->stack);
    case BERTH_TRACE_CAPACITY:
        return berth__trace_put(to, e->size_bytes);
    case BERTH_TRACE_MARK:
        return to;
    }
    return tag;
}

#endif
