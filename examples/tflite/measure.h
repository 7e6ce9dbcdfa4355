/* One model, run one way in a process of its own, so that its resident memory is its own. For the demo and the bench. */
#ifndef BERTH_EXAMPLE_TFLITE_MEASURE_H
#define BERTH_EXAMPLE_TFLITE_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum measure_way {
    MEASURE_OWN,    /* the interpreter alone */
    MEASURE_WATCH,  /* the same, and Berth looks */
    MEASURE_PLACED, /* places of Berth's */
    MEASURE_REUSED, /* and inputs reused */
    MEASURE_WAYS
} measure_way;

typedef struct measure_result {
    unsigned long long arena_bytes;       /* of the plan */
    unsigned long long bound_bytes;       /* of any plan */
    unsigned long long interpreter_bytes; /* of the interpreter's arena */
    unsigned long long tensors_kib;       /* resident memory that came with allocating tensors and running */
    unsigned long long process_kib;       /* resident memory of the process */
    unsigned long long outputs;           /* a hash of them */
    unsigned long long run_ns;            /* processor time of the fastest run */
} measure_result;

/* A program that measures calls this first: it is run again for each model, and then does not come back. */
void measure_main(int argc, char **argv);

/* False: the model could not be run this way; the process has told why. `plan_file` may be NULL, else the plan is
 * written there. */
bool measure_run(const char *folder, const char *model, measure_way way, int runs, const char *plan_file,
                 measure_result *out);

#endif
