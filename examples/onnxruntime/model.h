/* A session of ONNX Runtime with tensors for its inputs: what example, bench and tests share. Whatever fails ends the
 * program with words. */
#ifndef EXAMPLE_MODEL_H
#define EXAMPLE_MODEL_H

#include <stdbool.h>

#include <berth_onnxruntime.h>
#include <ort_api.h>

#define MODEL_TENSORS 8
#define MODEL_DIMENSIONS 6

typedef struct model {
    const OrtApi *api;
    OrtSession *session;
    size_t input_count, output_count;
    char *input_names[MODEL_TENSORS], *output_names[MODEL_TENSORS];
} model;

typedef struct model_shape {
    size_t rank;
    int64_t dimensions[MODEL_DIMENSIONS];
} model_shape;

/* Ends the program with the status's words if it is one. */
void model_expect(const OrtApi *api, OrtStatus *status, const char *what);

/* The interface of a loaded library, as new as it is known here. */
const OrtApi *model_api(const OrtApiBase *base);

/* How a session gets its memory. */
typedef enum model_memory {
    MODEL_ARENA,         /* ONNX Runtime's own arena and memory pattern */
    MODEL_HEAP,          /* its arena off: the system's heap */
    MODEL_BERTH,         /* Berth's allocator behind its memory pattern */
    MODEL_BERTH_PLANNED, /* runs planned by Berth */
} model_memory;

/* `bytes` 0: `path_or_model` is a file's name. One thread unless said otherwise. */
void model_open(model *m, const OrtApi *api, OrtEnv *env, const void *path_or_model, size_t bytes,
                model_memory kind, berth_ort *memory, int threads);
void model_close(model *m);

/* Inputs of the types that the model has, filled with numbers that depend on `seed` alone; 64-bit ones with `whole`. */
void model_make_inputs(const model *m, const model_shape *shapes, unsigned seed, int64_t whole,
                       OrtValue **out);
void model_release(const OrtApi *api, OrtValue **values, size_t count);

/* Runs, by `memory` or where it is NULL by ONNX Runtime alone; outputs are made anew. */
OrtStatus *model_try(const model *m, berth_ort *memory, OrtValue *const *inputs, OrtValue **outputs);
void model_run(const model *m, berth_ort *memory, OrtValue *const *inputs, OrtValue **outputs);

/* The bytes of a tensor, of float or 64-bit elements, and how many there are. */
const void *model_bytes(const OrtApi *api, const OrtValue *value, size_t *bytes);

#endif
