/* The recorder that `berth record` preloads into programs: what the hooks tell goes into the trace that the command has
 * made. Nothing here takes memory from the program's heap, and no lock is on the way of an event.
 *
 *     hooks (malloc, new, mmap) -> recorder_alloc, _free, _map, _unmap -> the thread's chunk of the mapped file
 *
 * The environment tells: BERTH_RECORD the trace, BERTH_RECORD_STACKS how deep call stacks go, BERTH_RECORD_MIN_BYTES what is
 * too small to be told. */
#ifndef BERTH_PRELOAD_RECORDER_H
#define BERTH_PRELOAD_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/live.h"

/* What a thread needs; all zero at its start. */
typedef struct recorder_thread {
    berth__trace_chunk chunk;
    uint32_t generation; /* of the process in which the chunk was begun: a child of fork leaves it alone */
    uint32_t number;
    uint32_t inside;      /* not 0: in a hook already, what it allocates itself is not told */
    uint32_t in_operator; /* so many of them are an operator new, in which malloc may refuse */
    bool numbered, watched;
    bool is_forking;                     /* between the handlers of a fork */
    char name[BERTH__TRACE_THREAD_NAME]; /* as it was told last */
} recorder_thread;

extern _Thread_local recorder_thread recorder_here __attribute__((visibility("hidden")));

/* What was asked for; written once before the first event. */
typedef struct recorder_settings {
    uint32_t stack_depth; /* 0: none */
    size_t min_bytes;
} recorder_settings;
extern recorder_settings recorder_options;

/* Whether events are wanted now. The first call opens the trace. */
bool recorder_is_on(void);

/* Tells an allocation after it has been made, a free before it is done; `tick` is when. Nothing is told inside of hooks. */
void recorder_alloc(const void *p, size_t size_bytes, uint64_t tick, uint32_t stack);
void recorder_free(const void *p, uint64_t tick);
void recorder_fail(size_t size_bytes, uint32_t stack); /* one that was refused */
void recorder_map(const void *p, size_t size_bytes, uint32_t stack);
void recorder_unmap(const void *p, size_t size_bytes, uint64_t tick);

/* Writes a definition and gives it its number: `counter` is one of the file header's. 0: it could not be written. */
uint32_t recorder_define(unsigned kind, _Atomic uint32_t *counter, uint64_t *values, const char *text);
berth__trace_file_header *recorder_header(void);
uint32_t recorder_process(void);

/* The number of the caller's stack, without its own frame; `site` is where that returns to. 0: it cannot be told. */
uint32_t recorder_stack(const void *site);
/* Before main. */
void recorder_stacks_begin(void);
/* Around a fork, in the parent: meanwhile no other thread has the loader's lock for us. */
void recorder_stacks_before_fork(void);
void recorder_stacks_after_fork(void);
void recorder_stacks_in_child(void);
/* Libraries may have gone: what stood at their addresses may be another's the next time. */
void recorder_stacks_unloaded(void);
/* What the calling thread remembers of its stacks goes. */
void recorder_stacks_thread_ended(void);

/* Pages of our own for tables. NULL: no memory. */
void *recorder_pages(size_t size_bytes);
void recorder_pages_give(void *pages, size_t size_bytes);

/* A lock for what is rare. */
typedef struct recorder_lock {
    _Atomic uint32_t word;
} recorder_lock;
void recorder_lock_take(recorder_lock *lock);
void recorder_lock_give(recorder_lock *lock);

#endif
