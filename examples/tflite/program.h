/* What a program does with TensorFlow Lite, for those that have its library but not its headers: the example here, the bench
 * and the tests. A program with headers calls TfLiteModelCreateFromFile and its kin and needs none of this. */
#ifndef BERTH_EXAMPLE_TFLITE_PROGRAM_H
#define BERTH_EXAMPLE_TFLITE_PROGRAM_H

#include <tflite_abi.h>

/* Where the library is in the folder that tools/runtimes fetches. */
#if defined(__aarch64__)
#define LITE_LIBRARY_IN_FOLDER "tfjs-tflite-node/cc_deps/linux_arm64/libtensorflowlite_c.so"
#else
#define LITE_LIBRARY_IN_FOLDER "tfjs-tflite-node/cc_deps/linux_amd64/libtensorflowlite_c.so"
#endif

typedef struct lite_calls {
    char path[1024]; /* of the library */
#define LITE_FIELD(result, name, arguments) result(*name) arguments;
    LITE_BINDING_CALLS(LITE_FIELD)
    LITE_PROGRAM_CALLS(LITE_FIELD)
#undef LITE_FIELD
} lite_calls;

/* Loads FOLDER/tfjs-tflite-node/...; says on stderr what is missing. */
bool lite_load(const char *folder, lite_calls *out);

typedef struct lite_model {
    struct TfLiteModel *model;
    struct TfLiteInterpreter *interpreter;
} lite_model;

/* A model's interpreter with one thread, before its tensors are allocated. */
bool lite_open(const lite_calls *lite, const char *path, lite_model *out);
void lite_close(const lite_calls *lite, lite_model *model);

/* Fills the inputs with numbers that depend on `seed` only. */
void lite_fill(const lite_calls *lite, const lite_model *model, uint32_t seed);
/* Runs the model on these inputs; all its outputs, one behind another. The caller frees them. NULL: it fails. */
char *lite_run(const lite_calls *lite, const lite_model *model, uint32_t seed, size_t *bytes);

/* Calls `each` with every model in FOLDER that this library can run; false where there is none. */
bool lite_each_model(const lite_calls *lite, const char *folder, void (*each)(const char *path, void *self),
                     void *self);

#endif
