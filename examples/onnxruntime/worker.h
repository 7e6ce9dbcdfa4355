/* A model in a process of its own, driven one run at a time: so that ways to get memory can take turns, and each one's memory is its
 * own. Example and bench share it. */
#ifndef EXAMPLE_WORKER_H
#define EXAMPLE_WORKER_H

#include "model.h"

#include <sys/types.h>

typedef struct worker_task {
    const char *library, *file;
    model_memory kind;
    bool keeps_idle;         /* Berth's pool gives nothing back by itself, however slow the machine */
    const char *plan_output; /* where the plan of the last run is written when all is done; NULL: nowhere */
} worker_task;

typedef struct worker {
    pid_t process;
    int line; /* a socket */
} worker;

/* Forks; before any thread is made. Ends the program with words if that fails. */
worker worker_start(const worker_task *task);

/* One run with an input of this size; its time, the processor's time, and a hash of the outputs. */
typedef struct worker_run_answer {
    double ms, cpu_ms;
    uint64_t hash;
} worker_run_answer;
/* A shape for each of the model's inputs, MODEL_TENSORS of them. */
worker_run_answer worker_run(worker *w, const model_shape *shapes);

/* What is held now: by the allocator, by the process; and after the allocator was asked to give idle memory back. */
typedef struct worker_figures {
    uint64_t held_bytes, resident_bytes;
    uint64_t peak_bytes; /* the most that was in use at once; of Berth's pool alone */
    uint64_t trimmed_held_bytes, trimmed_resident_bytes;
    berth_ort_figures ort;
} worker_figures;
worker_figures worker_finish(worker *w);

#endif
