/* Berth as libtorch's CPU allocator. From C++: link libberth_torch and call berth_torch_install before the
 * first tensor that should come from it; from Python: import berth_torch, which calls this. Everything else
 * is berth's own interface, on the allocator that berth_torch_allocator returns. */
#ifndef BERTH_TORCH_H
#define BERTH_TORCH_H

#include <berth/berth.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum berth_torch_source {
    BERTH_TORCH_POOL = 0,   /* blocks are cut from a pool and reused */
    BERTH_TORCH_SYSTEM = 1, /* the C heap, always tracked */
} berth_torch_source;

/* The stack, from the bottom: source, limit, guard, scope meter, tracking, explain, planned. */
typedef struct berth_torch_options {
    size_t struct_size;
    int32_t source;         /* berth_torch_source */
    uint32_t tracking;      /* 1: every live block is known, for leak reports */
    uint32_t stack_depth;   /* with tracking: C frames kept for each live block; 0: none */
    uint32_t python_stacks; /* with tracking: how many Python frames label each block; 0: none */
    uint32_t guard;         /* 1: red zones and quarantine */
    uint32_t compacting;    /* 1: the pool saves memory before page faults */
    uint64_t limit_bytes;   /* for all CPU tensors together, those that live already too; 0: none */
    uint32_t keeps_idle;    /* 1: idle memory goes back with later calls only, not after ten quiet seconds */
} berth_torch_options;

#define BERTH_TORCH_OPTIONS_INIT                                           \
    {                                                                      \
        sizeof(berth_torch_options), BERTH_TORCH_POOL, 0, 0, 0, 0, 0, 0, 0 \
    }

/* Makes berth the CPU allocator of libtorch in this process, or puts another stack in place of the one
 * before: tensors that are alive keep the stack they came from, and options that were given before bring
 * their stack back. `options` may be NULL and is copied. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT,
 * BERTH_OUT_OF_HOST_MEMORY, BERTH_OVERFLOW (64 different stacks were made), BERTH_UNSUPPORTED (libtorch has
 * an allocator of a higher priority than 100). */
BERTH_API berth_status berth_torch_install(const berth_torch_options *options);

/* New tensors come from libtorch's own allocator again; those that are alive stay valid. Any thread. */
BERTH_API void berth_torch_uninstall(void);

/* The top of the present stack, a planned allocator: for berth_stats_get, berth_record_begin and the like.
 * Borrowed, and valid for ever. NULL before berth_torch_install. Any thread. */
BERTH_API berth_allocator *berth_torch_allocator(void);

/* The kind of the scope that is open on the calling thread (berth_run_kind), and whose it is; 0: none. */
BERTH_API int berth_torch_scope(berth_allocator **allocator);

/* The tracker in the present stack, NULL if there is none. Borrowed, and valid for ever. Any thread. */
BERTH_API berth_allocator *berth_torch_tracker(void);

/* Writes what CPU tensors allocate, free and are refused to a trace at `path`, in the place of what is there, until
 * berth_torch_trace_end or the end of the process: for berth view, show, what-if and explain-oom. What lives already stands
 * at its begin; tensors of libtorch's own allocator are not in it. The label is the innermost scope (berth/scope.h) or else
 * the operator that runs; up to `python_stacks` Python frames (at most 32; 0: none) are the call stack. Tensors wait
 * while this works. In a child after fork nothing is written, and it may begin a trace of its own. Any thread. BERTH_OK,
 * BERTH_INVALID_ARGUMENT, BERTH_BUSY (a trace is being written already), BERTH_IO, BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_torch_trace_begin(const char *path, uint32_t python_stacks);

/* Ends the trace: the file is complete. Any thread. BERTH_OK, BERTH_NOT_FOUND (none is being written). */
BERTH_API berth_status berth_torch_trace_end(void);

#ifdef __cplusplus
}
#endif
#endif
