/* Traces: every allocation and free of a program in one file, which can be read while it is written and after a
 * crash. docs/trace-format.md describes the bytes. Recorders write them (berth record, allocators wrapped by
 * berth_trace_allocator_create); berth view and its kin read them. Files are untrusted: reading goes up to any
 * damage and behind it, and names it. */
#ifndef BERTH_TRACE_H
#define BERTH_TRACE_H

#include <stdbool.h>

#include "berth/allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- What a trace tells ---------------------------------------------------------------------------- */

typedef enum berth_trace_kind {
    BERTH_TRACE_ALLOC = 1,    /* address, size, stack, label, device, stream, id */
    BERTH_TRACE_FREE = 2,     /* address, stream */
    BERTH_TRACE_USE = 3,      /* address, stream: that stream uses the block too */
    BERTH_TRACE_MAP = 4,      /* address, size: pages taken from the system, a cache's segment */
    BERTH_TRACE_UNMAP = 5,    /* address, size: given back, perhaps a part of what was taken */
    BERTH_TRACE_FAIL = 6,     /* size, stack, label, picture: an allocation that was refused */
    BERTH_TRACE_MARK = 7,     /* label: a moment that the program has named */
    BERTH_TRACE_CAPACITY = 8, /* size: what the device has in all */
} berth_trace_kind;

#define BERTH_TRACE_CALLER UINT32_MAX /* as a thread: the calling one */

/* How it stood inside an allocator when it refused. */
typedef struct berth_trace_picture {
    size_t struct_size;
    uint64_t waiting_bytes; /* freed, but streams use them */
    uint64_t free_bytes;    /* in holes */
    uint64_t largest_bytes; /* of one hole */
    uint64_t unused_bytes;  /* of pieces of memory in which nothing is alive */
} berth_trace_picture;

#define BERTH_TRACE_PICTURE_INIT                \
    {                                           \
        sizeof(berth_trace_picture), 0, 0, 0, 0 \
    }

/* One event. Numbers of texts, stacks and devices are those of the definitions below; 0 is none, and device 0 is the
 * host. What a kind does not use is 0. */
typedef struct berth_trace_event {
    size_t struct_size;
    berth_trace_kind kind;
    uint32_t process; /* from 0, in order of appearance: each has addresses of its own */
    uint32_t thread;  /* from 0 in its process; to write, BERTH_TRACE_CALLER: the calling one */
    uint32_t device;
    uint32_t stack;
    uint32_t label;
    uint64_t time_ns; /* of a clock that only grows; written unless options.times_given: now */
    uint64_t address;
    uint64_t size_bytes;
    uint64_t stream; /* 0: none, or the device's default */
    uint64_t id;     /* the allocator's own number; 0: none */
    /* NULL: not known. What is read belongs to the reader, until its next call. */
    const berth_trace_picture *picture;
} berth_trace_event;

#define BERTH_TRACE_EVENT_INIT                                                                            \
    {                                                                                                     \
        sizeof(berth_trace_event), BERTH_TRACE_ALLOC, 0, BERTH_TRACE_CALLER, 0, 0, 0, 0, 0, 0, 0, 0, NULL \
    }

/* One frame of a stack: where, and what stands there as far as it is known. */
typedef struct berth_trace_frame {
    size_t struct_size;
    uint32_t caller;   /* the stack that called it; 0: it is the outermost */
    uint32_t module;   /* 0: unknown */
    uint64_t address;  /* of the instruction; 0 where the program has none (Python) */
    uint32_t function; /* texts; 0: unknown */
    uint32_t file;
    uint32_t line;
    bool is_inlined; /* into `caller`, whose address it shares */
} berth_trace_frame;

#define BERTH_TRACE_FRAME_INIT                             \
    {                                                      \
        sizeof(berth_trace_frame), 0, 0, 0, 0, 0, 0, false \
    }

/* A file that was mapped into a process for running. */
typedef struct berth_trace_module {
    size_t struct_size;
    uint32_t process;
    uint32_t path;     /* text */
    uint32_t build_id; /* text, in hexadecimal digits; 0: it has none */
    uint64_t base;     /* what is added to the addresses in the file */
    uint64_t start, end;
} berth_trace_module;

#define BERTH_TRACE_MODULE_INIT                      \
    {                                                \
        sizeof(berth_trace_module), 0, 0, 0, 0, 0, 0 \
    }

typedef struct berth_trace_device {
    size_t struct_size;
    uint32_t name; /* text: "cuda:0", "pinned" */
    uint32_t kind; /* berth_device_kind */
    uint32_t ordinal;
} berth_trace_device;

#define BERTH_TRACE_DEVICE_INIT             \
    {                                       \
        sizeof(berth_trace_device), 0, 0, 0 \
    }

typedef struct berth_trace_process {
    size_t struct_size;
    uint64_t pid;     /* the system's number */
    uint32_t parent;  /* process + 1; 0: none of this trace */
    uint32_t command; /* text */
} berth_trace_process;

#define BERTH_TRACE_PROCESS_INIT             \
    {                                        \
        sizeof(berth_trace_process), 0, 0, 0 \
    }

/* The name of a thread, as debuggers show it. */
typedef struct berth_trace_thread {
    size_t struct_size;
    uint32_t process, thread; /* as events have them */
    uint32_t name;            /* text */
} berth_trace_thread;

#define BERTH_TRACE_THREAD_INIT             \
    {                                       \
        sizeof(berth_trace_thread), 0, 0, 0 \
    }

/* ---- Writing --------------------------------------------------------------------------------------- */

typedef struct berth_trace berth_trace;

/* Makes the first `size_bytes` bytes at `from` smaller, into `to` with room for `room`. How many it took, or 0 if it
 * cannot be done. */
typedef size_t (*berth_trace_pack_fn)(void *context, const void *from, size_t size_bytes, void *to,
                                      size_t room);
/* The way back: whether exactly `size_bytes` bytes came out. */
typedef bool (*berth_trace_unpack_fn)(void *context, const void *from, size_t packed_bytes, void *to,
                                      size_t size_bytes);

typedef struct berth_trace_options {
    size_t struct_size;
    /* Times come with the events (berth_trace_event.time_ns), and threads with their numbers: for traces that are made
     * from something else. Chunks are then gathered in memory; else events go straight into the mapped file, and nothing
     * is lost when the process is killed. */
    bool times_given;
    uint32_t tick_ns;         /* with times_given: the steps in which times are kept; 0: 1 ns */
    berth_trace_pack_fn pack; /* with times_given: zstd's compression, for smaller files; NULL: none */
    void *context;
} berth_trace_options;

#define BERTH_TRACE_OPTIONS_INIT                          \
    {                                                     \
        sizeof(berth_trace_options), false, 0, NULL, NULL \
    }

/* Begins a trace at `path`, in the place of what is there. `options` may be NULL. The caller owns one reference. A file that is
 * being written, by another process or this one, is left alone: BERTH_BUSY. A lock of the kernel's tells, so a writer that was
 * killed is in nobody's way. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_BUSY, BERTH_IO, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_trace_create(const char *path, const berth_trace_options *options,
                                          berth_trace **out);

/* Counted references; an allocator that writes to a trace holds one. The last release ends the file. Release accepts
 * NULL. Any thread. */
BERTH_API berth_trace *berth_trace_retain(berth_trace *trace);
BERTH_API void berth_trace_release(berth_trace *trace);

/* Adds an event. A thread has a chunk of its own, so that threads do not meet. Where times are given, a thread's come
 * in order (an earlier one counts as the last), and one thread at a time writes. Any thread; in a child after fork
 * nothing is written. BERTH_OK, BERTH_INVALID_ARGUMENT,
 * BERTH_IO (the disk is full: nothing is written from then on), BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_trace_write(berth_trace *trace, const berth_trace_event *event);

/* Definitions. Each answers with the number by which events and other definitions mean it. A text, a frame or a device
 * that was defined before has the number that it had; texts are cut at 4,095 bytes. Any thread. BERTH_OK,
 * BERTH_INVALID_ARGUMENT, BERTH_IO, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_trace_define_text(berth_trace *trace, const char *text, size_t length,
                                               uint32_t *out);
BERTH_API berth_status berth_trace_define_frame(berth_trace *trace, const berth_trace_frame *frame,
                                                uint32_t *out);
BERTH_API berth_status berth_trace_define_device(berth_trace *trace, const berth_trace_device *device,
                                                 uint32_t *out);
BERTH_API berth_status berth_trace_define_module(berth_trace *trace, const berth_trace_module *module,
                                                 uint32_t *out);
/* The same for the process of this number, which is the caller's to choose: 0, 1, 2, … */
BERTH_API berth_status berth_trace_define_process(berth_trace *trace, uint32_t number,
                                                  const berth_trace_process *process);
/* The name of a thread; the last one given counts. A trace whose times are not given names its threads by itself, as the system
 * has them when a thread begins a chunk of 64 KiB: this is for traces made from something else. */
BERTH_API berth_status berth_trace_define_thread(berth_trace *trace, const berth_trace_thread *thread);

/* Whether all that was written so far is in the file: where times are given, what is gathered goes there now. Before the last
 * release of a trace that must be whole, since that one has no answer. Where times are given, no other thread writes meanwhile.
 * BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_IO, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_trace_flush(berth_trace *trace);

/* Lets all who write the live trace at `path`, in this process or another, leave events out, or go on. Any thread.
 * BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_IO, BERTH_BAD_DATA (it is no trace, or finished). */
BERTH_API berth_status berth_trace_pause(const char *path, bool paused);

/* ---- Allocators that write -------------------------------------------------------------------------- */

/* An allocator around `inner` that writes what is allocated, freed, used on streams and refused to `trace`, with label,
 * device, stream and id; for its first 256 refusals it asks `inner` for a snapshot and writes how it stood. `stack_depth` is
 * how many frames of the call stack each allocation has; 0: none. What cannot be written is not told to the caller. Retains
 * both. The caller owns one reference. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_IO, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_trace_allocator_create(berth_allocator *inner, berth_trace *trace,
                                                    uint32_t stack_depth, berth_allocator **out);

/* Writes what berth_snapshot shows of `a` now to a trace at `path`, in the place of what is there, for berth view and its kin: live
 * blocks since they were taken, as far as their age is known, those that wait for streams, which their label says, and the memory that
 * blocks are cut from. BERTH_UNSUPPORTED where `a` has no snapshot. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_UNSUPPORTED,
 * BERTH_BUSY, BERTH_IO, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_snapshot_write(berth_allocator *a, const char *path);

/* ---- Reading --------------------------------------------------------------------------------------- */

typedef struct berth_trace_reader berth_trace_reader;

typedef struct berth_trace_reader_options {
    size_t struct_size;
    berth_trace_unpack_fn unpack; /* zstd's way back; NULL: packed chunks count as damage */
    void *context;
} berth_trace_reader_options;

#define BERTH_TRACE_READER_OPTIONS_INIT                \
    {                                                  \
        sizeof(berth_trace_reader_options), NULL, NULL \
    }

/* Opens a trace, which may still be written: what is in it now is read. The file must be an ordinary one. Memory grows
 * with definitions and threads and by 40 bytes a chunk, not with events. `options` may be NULL. The caller destroys the
 * result. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_IO, BERTH_BAD_DATA (no trace, or of a later version),
 * BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_trace_reader_open(const char *path, const berth_trace_reader_options *options,
                                               berth_trace_reader **out);
BERTH_API void berth_trace_reader_destroy(berth_trace_reader *reader); /* NULL is a no-op */

/* The next event in the order of time, those of all threads; of one moment frees come first. event->struct_size is set
 * by the caller. One thread at a time, as for all below. BERTH_OK, BERTH_NOT_FOUND (that was all),
 * BERTH_INVALID_ARGUMENT, BERTH_IO, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_trace_next(berth_trace_reader *reader, berth_trace_event *event);

/* Begins again with the first event. */
BERTH_API void berth_trace_rewind(berth_trace_reader *reader);

/* Looks again at a trace that is being written: berth_trace_next goes on with what was added up to this call, and new
 * definitions are known. Called before the first event too, every round tells the events of all threads up to one moment, in
 * order. An event that its thread is about to write at that moment comes in the next round. What was damaged is told anew. A
 * finished trace stays as it is. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_IO, BERTH_OUT_OF_HOST_MEMORY: the reader may only
 * be destroyed then. */
BERTH_API berth_status berth_trace_follow(berth_trace_reader *reader);

/* How many events and bytes the file's chunks hold, as their headers say: for progress. */
BERTH_API uint64_t berth_trace_event_count(const berth_trace_reader *reader);

/* What was damaged or missing so far, in words with the place in the file: a sentence for index 0, 1, …; NULL past the
 * last. Belongs to the reader; the first 64 are kept. */
BERTH_API const char *berth_trace_damage(const berth_trace_reader *reader, size_t index);

/* The text of a number, closed by a zero, "" for a number that has none. Belongs to the reader. */
BERTH_API const char *berth_trace_text(const berth_trace_reader *reader, uint32_t number);
/* How many there are of each; their numbers run from 1 to this. */
BERTH_API uint32_t berth_trace_text_count(const berth_trace_reader *reader);
BERTH_API uint32_t berth_trace_frame_count(const berth_trace_reader *reader);
BERTH_API uint32_t berth_trace_module_count(const berth_trace_reader *reader);
BERTH_API uint32_t berth_trace_device_count(const berth_trace_reader *reader);
BERTH_API uint32_t berth_trace_process_count(const berth_trace_reader *reader); /* numbers from 0 */
BERTH_API uint32_t berth_trace_thread_count(const berth_trace_reader *reader);  /* with names; from 0 */
/* A definition; `out->struct_size` is set by the caller. BERTH_OK, BERTH_NOT_FOUND, BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_trace_get_frame(const berth_trace_reader *reader, uint32_t number,
                                             berth_trace_frame *out);
BERTH_API berth_status berth_trace_get_module(const berth_trace_reader *reader, uint32_t number,
                                              berth_trace_module *out);
BERTH_API berth_status berth_trace_get_device(const berth_trace_reader *reader, uint32_t number,
                                              berth_trace_device *out);
BERTH_API berth_status berth_trace_get_process(const berth_trace_reader *reader, uint32_t number,
                                               berth_trace_process *out);
BERTH_API berth_status berth_trace_get_thread(const berth_trace_reader *reader, uint32_t number,
                                              berth_trace_thread *out);

#ifdef __cplusplus
}
#endif
#endif
