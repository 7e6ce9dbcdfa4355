/* Loading TensorFlow Lite, opening and running models. */
#include "program.h"

#include <dlfcn.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LITE_FLOAT32 = 1 };

bool lite_load(const char *folder, lite_calls *out)
{
    snprintf(out->path, sizeof out->path, "%s/%s", folder, LITE_LIBRARY_IN_FOLDER);
    void *library = dlopen(out->path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s (tools/runtimes tflite fetches it)\n", dlerror());
        return false;
    }
#define LITE_LOAD(result, name, arguments)                 \
    *(void **)&out->name = dlsym(library, "TfLite" #name); \
    if (!out->name) {                                      \
        fprintf(stderr, "there is no TfLite" #name "\n");  \
        return false;                                      \
    }
    LITE_BINDING_CALLS(LITE_LOAD)
    LITE_PROGRAM_CALLS(LITE_LOAD)
#undef LITE_LOAD
    return true;
}

bool lite_open(const lite_calls *lite, const char *path, lite_model *out)
{
    out->interpreter = NULL;
    out->model = lite->ModelCreateFromFile(path);
    struct TfLiteInterpreterOptions *options = lite->InterpreterOptionsCreate();
    lite->InterpreterOptionsSetNumThreads(options, 1);
    if (out->model)
        out->interpreter = lite->InterpreterCreate(out->model, options);
    lite->InterpreterOptionsDelete(options);
    if (!out->interpreter)
        lite_close(lite, out);
    return out->interpreter != NULL;
}

void lite_close(const lite_calls *lite, lite_model *model)
{
    if (model->interpreter)
        lite->InterpreterDelete(model->interpreter);
    if (model->model)
        lite->ModelDelete(model->model);
    *model = (lite_model){NULL, NULL};
}

void lite_fill(const lite_calls *lite, const lite_model *model, uint32_t seed)
{
    uint32_t state = seed * 2654435761u + 12345u;
    for (int32_t i = 0; i < lite->InterpreterGetInputTensorCount(model->interpreter); i++) {
        lite_tensor *tensor = lite->InterpreterGetInputTensor(model->interpreter, i);
        size_t step = tensor->type == LITE_FLOAT32 ? sizeof(float) : 1;
        for (size_t at = 0; at + step <= tensor->bytes; at += step) {
            state = state * 1664525u + 1013904223u;
            float number = (float)(state >> 8) / (float)(1 << 24);
            if (step == sizeof number)
                memcpy(tensor->data + at, &number, sizeof number);
            else
                tensor->data[at] = (char)(state >> 29); /* small: sizes and counts stay sensible */
        }
    }
}

char *lite_run(const lite_calls *lite, const lite_model *model, uint32_t seed, size_t *bytes)
{
    lite_fill(lite, model, seed);
    if (lite->InterpreterInvoke(model->interpreter) != LITE_OK)
        return NULL;
    *bytes = 0;
    int32_t count = lite->InterpreterGetOutputTensorCount(model->interpreter);
    for (int32_t i = 0; i < count; i++)
        *bytes += lite->InterpreterGetOutputTensor(model->interpreter, i)->bytes;
    char *all = malloc(*bytes ? *bytes : 1), *end = all;
    for (int32_t i = 0; all && i < count; i++) {
        const lite_tensor *tensor = lite->InterpreterGetOutputTensor(model->interpreter, i);
        memcpy(end, tensor->data, tensor->bytes);
        end += tensor->bytes;
    }
    return all;
}

/* Some models have operators that only their own program has. */
static bool is_runnable(const lite_calls *lite, const char *path)
{
    lite_model model;
    bool runnable =
        lite_open(lite, path, &model) && lite->InterpreterAllocateTensors(model.interpreter) == LITE_OK;
    lite_close(lite, &model);
    return runnable;
}

bool lite_each_model(const lite_calls *lite, const char *folder, void (*each)(const char *path, void *self),
                     void *self)
{
    char pattern[1024];
    glob_t found;
    size_t count = 0;
    snprintf(pattern, sizeof pattern, "%s/*/*.tflite", folder);
    if (glob(pattern, 0, NULL, &found) != 0)
        return false;
    for (size_t i = 0; i < found.gl_pathc; i++)
        if (is_runnable(lite, found.gl_pathv[i])) {
            each(found.gl_pathv[i], self);
            count++;
        } else
            fprintf(stderr, "%s is left out: it has operators that this TensorFlow Lite has not\n",
                    found.gl_pathv[i] + strlen(folder) + 1);
    globfree(&found);
    return count > 0;
}
