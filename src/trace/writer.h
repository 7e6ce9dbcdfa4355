/* The inside of a trace that is written. */
#ifndef BERTH_TRACE_WRITER_H
#define BERTH_TRACE_WRITER_H

#include "base/lock.h"
#include "base/thread.h"
#include "trace/decode.h"
#include "trace/definitions.h"
#include "trace/table.h"

/* A gathered chunk: larger than a live one, since it packs better. */
enum { BERTH__TRACE_GATHERED_BYTES = 1 << 19 };

/* One thread's chunk. Its thread's own. */
struct berth__trace_slot {
    berth__trace_chunk chunk;
    uint32_t process, thread, sequence;
    uint64_t last;                       /* tick of the last event, over chunks */
    char name[BERTH__TRACE_THREAD_NAME]; /* as it was told last */
};

struct berth_trace {
    _Atomic uint32_t references;
    _Atomic bool failed; /* said once */
    bool times_given;
    uint32_t generation; /* of the process that made it (base/thread.h) */
    uint32_t tick_ns;
    berth__trace_live live; /* with times_given only its file */
    berth_trace_pack_fn pack;
    void *context;
    unsigned char *columns, *packed; /* room for packing; guard: lock */
    uint32_t slot_count;
    /* One a thread by its number, the last for those without one (guard: lock); with times_given one a thread that came
     * up, in that order (guard: lock). */
    _Atomic(struct berth__trace_slot *) *slots;
    berth__spin lock;
    struct berth__trace_slot definitions;                        /* guard: lock */
    berth__trace_table texts, frames, devices, modules, threads; /* guard: lock */
    char path[];
};

#endif
