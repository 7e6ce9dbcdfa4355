/* What the files of the virtual-time device share.
 *
 *     virtual.c         devices, memory, failing calls, the table
 *     virtual_stream.c  streams, events and the steps that move them
 *     virtual_state.c   save and restore
 *
 * There are no locks: the public header asks for one caller at a time. Only the table of devices is shared. */
#ifndef BERTH_DEVICE_VIRTUAL_H
#define BERTH_DEVICE_VIRTUAL_H

#include "berth/virtual.h"
#include "device/device.h"

enum { VIRTUAL_CALLS = BERTH_VIRTUAL_MAP + 1 };

typedef struct virtual_stream virtual_stream;
typedef struct virtual_event virtual_event;

typedef struct virtual_rule {
    uint64_t countdown; /* 0: none */
    berth_status status;
    bool persist;
} virtual_rule;

/* Lives until it has been ended and the last stream and event are gone; only then its ordinal is free again. */
typedef struct virtual_device {
    int32_t ordinal;
    bool ended;
    bool waits_run;
    bool rules_set;                        /* any rule at all: the common case looks no further */
    uint64_t members;                      /* streams and events */
    virtual_stream *streams, *streams_end; /* oldest first */
    virtual_event *events;
    virtual_rule rules[VIRTUAL_CALLS];
    _Atomic uint64_t calls[VIRTUAL_CALLS]; /* added to without locking: exact for one caller at a time */
    uint64_t limit_bytes;
    _Atomic uint64_t bytes_in_use;
} virtual_device;

typedef enum virtual_task_kind { VIRTUAL_COPY, VIRTUAL_ZERO, VIRTUAL_CALL, VIRTUAL_WAIT } virtual_task_kind;

typedef struct virtual_task {
    virtual_task_kind kind;
    union {
        struct {
            void *dst;
            const void *src;
            size_t size_bytes;
        } copy; /* and zero */
        struct {
            void (*fn)(void *context);
            void *context;
        } call;
        struct {
            virtual_stream *stream; /* held; NULL: a lost event, which never comes */
            uint64_t number;
        } wait;
    } u;
} virtual_task;

enum { VIRTUAL_INLINE_TASKS = 8 };

/* Goes away when its user has released it, nothing is enqueued, no event still has to hear of it, and no
 * other stream waits for it. */
struct virtual_stream {
    berth_stream base;
    virtual_device *device;
    virtual_stream *next, *previous; /* in the device */
    uint64_t enqueued, completed, visible;
    uint64_t lose;  /* events to be lost */
    uint64_t holds; /* waiting tasks of other streams */
    bool late;
    bool released;         /* by its user */
    bool stepping;         /* a task is running: nobody frees it */
    virtual_event *events; /* recorded on it */
    virtual_task *ring;    /* inline_ring until it grows */
    size_t capacity, head;
    virtual_task inline_ring[VIRTUAL_INLINE_TASKS];
};

struct virtual_event {
    berth_event base;
    virtual_device *device;
    virtual_event *next, *previous; /* in the device */
    virtual_stream *stream;         /* NULL: never recorded, or passed and its stream is gone */
    virtual_event *stream_next, *stream_previous;
    uint64_t number;
    bool lost;
};

static inline size_t virtual_pending(const virtual_stream *stream)
{
    return (size_t)(stream->enqueued - stream->completed);
}
static inline virtual_task *virtual_task_at(virtual_stream *stream, size_t index)
{
    return &stream->ring[(stream->head + index) & (stream->capacity - 1)];
}

/* The device of an ordinal; NULL, with words, when there is none or it has been ended. */
virtual_device *berth__virtual_find(berth_device device);
/* BERTH_OK, or what a rule for this call says; BERTH_DEVICE_LOST once the device has ended. */
berth_status berth__virtual_allow(virtual_device *device, berth_virtual_call call);
/* One stream or event less; frees the device after the last. */
void berth__virtual_leave(virtual_device *device);

/* Drops what has not run, counts everything as passed, and forgets late and lost. */
void berth__virtual_streams_reset(virtual_device *device);
/* Makes room in the ring for `count` tasks. */
bool berth__virtual_ring_fit(virtual_stream *stream, size_t count);
/* Drops what is enqueued and the holds it has on other streams. */
void berth__virtual_drop_tasks(virtual_stream *stream);
void berth__virtual_mark(virtual_event *event, virtual_stream *stream, uint64_t number, bool lost);
void berth__virtual_free_if_done(virtual_stream *stream);

berth_status berth__virtual_enqueue(virtual_stream *stream, const virtual_task *task);
berth_status berth__virtual_stream_create(void *self, berth_device device, berth_stream **out);
void berth__virtual_stream_destroy(void *self, berth_stream *stream);
berth_status berth__virtual_stream_query(void *self, berth_stream *stream);
berth_status berth__virtual_stream_synchronize(void *self, berth_stream *stream);
berth_status berth__virtual_stream_wait_event(void *self, berth_stream *stream, berth_event *event);
berth_status berth__virtual_stream_call(void *self, berth_stream *stream, void (*fn)(void *context),
                                        void *context);
berth_status berth__virtual_event_create(void *self, berth_device device, berth_event **out);
berth_status berth__virtual_event_record(void *self, berth_event *event, berth_stream *stream);
berth_status berth__virtual_event_query(void *self, berth_event *event);
berth_status berth__virtual_event_wait(void *self, berth_event *event);
void berth__virtual_event_destroy(void *self, berth_event *event);

#endif
