/* A session of ONNX Runtime with tensors for its inputs. */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void model_expect(const OrtApi *api, OrtStatus *status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "%s: %s\n", what, api->GetErrorMessage(status));
    exit(1);
}

const OrtApi *model_api(const OrtApiBase *base)
{
    unsigned minor = 0;
    if (sscanf(base->GetVersionString(), "1.%u", &minor) != 1)
        return NULL;
    return base->GetApi(minor < BERTH_ORT_API_VERSION ? minor : BERTH_ORT_API_VERSION);
}

/* ---- Sessions ------------------------------------------------------------------------------------------- */

static OrtSessionOptions *make_options(const OrtApi *api, model_memory kind, berth_ort *memory, int threads)
{
    OrtSessionOptions *options = NULL;
    model_expect(api, api->CreateSessionOptions(&options), "making options");
    model_expect(api, api->SetIntraOpNumThreads(options, threads), "setting threads");
    if (kind == MODEL_HEAP)
        model_expect(api, api->DisableCpuMemArena(options), "switching the arena off");
    if ((kind == MODEL_BERTH || kind == MODEL_BERTH_PLANNED) &&
        berth_ort_use(memory, options, kind == MODEL_BERTH_PLANNED) != BERTH_OK) {
        fprintf(stderr, "%s\n", berth_last_error()->message);
        exit(1);
    }
    return options;
}

static void read_names(model *m)
{
    const OrtApi *api = m->api;
    OrtAllocator *heap = NULL;
    model_expect(api, api->GetAllocatorWithDefaultOptions(&heap), "ONNX Runtime's heap");
    model_expect(api, api->SessionGetInputCount(m->session, &m->input_count), "counting inputs");
    model_expect(api, api->SessionGetOutputCount(m->session, &m->output_count), "counting outputs");
    if (m->input_count > MODEL_TENSORS || m->output_count > MODEL_TENSORS) {
        fprintf(stderr, "the model has more than %d inputs or outputs\n", MODEL_TENSORS);
        exit(1);
    }
    for (size_t i = 0; i < m->input_count; i++)
        model_expect(api, api->SessionGetInputName(m->session, i, heap, &m->input_names[i]),
                     "an input's name");
    for (size_t i = 0; i < m->output_count; i++)
        model_expect(api, api->SessionGetOutputName(m->session, i, heap, &m->output_names[i]),
                     "an output's name");
}

void model_open(model *m, const OrtApi *api, OrtEnv *env, const void *path_or_model, size_t bytes,
                model_memory kind, berth_ort *memory, int threads)
{
    memset(m, 0, sizeof *m);
    m->api = api;
    OrtSessionOptions *options = make_options(api, kind, memory, threads);
    model_expect(api,
                 bytes ? api->CreateSessionFromArray(env, path_or_model, bytes, options, &m->session)
                       : api->CreateSession(env, path_or_model, options, &m->session),
                 "making a session");
    api->ReleaseSessionOptions(options);
    read_names(m);
}

void model_close(model *m)
{
    OrtAllocator *heap = NULL;
    model_expect(m->api, m->api->GetAllocatorWithDefaultOptions(&heap), "ONNX Runtime's heap");
    for (size_t i = 0; i < m->input_count; i++)
        model_expect(m->api, m->api->AllocatorFree(heap, m->input_names[i]), "giving a name back");
    for (size_t i = 0; i < m->output_count; i++)
        model_expect(m->api, m->api->AllocatorFree(heap, m->output_names[i]), "giving a name back");
    m->api->ReleaseSession(m->session);
    memset(m, 0, sizeof *m);
}

/* ---- Tensors -------------------------------------------------------------------------------------------- */

static OrtElementType input_type(const model *m, size_t i)
{
    OrtTypeInfo *info = NULL;
    const OrtTensorTypeAndShapeInfo *tensor = NULL;
    OrtElementType type = ORT_FLOAT;
    model_expect(m->api, m->api->SessionGetInputTypeInfo(m->session, i, &info), "an input's type");
    model_expect(m->api, m->api->CastTypeInfoToTensorInfo(info, &tensor), "an input's type");
    if (tensor)
        model_expect(m->api, m->api->GetTensorElementType(tensor, &type), "an input's type");
    m->api->ReleaseTypeInfo(info);
    return type;
}

static void fill_values(void *data, OrtElementType type, size_t count, unsigned seed, int64_t whole)
{
    uint32_t state = seed * 2654435761u + 1;
    for (size_t k = 0; k < count; k++) {
        state = state * 1664525u + 1013904223u;
        if (type == ORT_INT64)
            ((int64_t *)data)[k] = whole;
        else
            ((float *)data)[k] = (float)(state >> 8) / (float)(1 << 24);
    }
}

void model_make_inputs(const model *m, const model_shape *shapes, unsigned seed, int64_t whole,
                       OrtValue **out)
{
    OrtAllocator *heap = NULL;
    model_expect(m->api, m->api->GetAllocatorWithDefaultOptions(&heap), "ONNX Runtime's heap");
    for (size_t i = 0; i < m->input_count; i++) {
        OrtElementType type = input_type(m, i);
        size_t count = 1;
        for (size_t k = 0; k < shapes[i].rank; k++)
            count *= (size_t)shapes[i].dimensions[k];
        void *data = NULL;
        model_expect(
            m->api, m->api->CreateTensorAsOrtValue(heap, shapes[i].dimensions, shapes[i].rank, type, &out[i]),
            "making an input");
        model_expect(m->api, m->api->GetTensorMutableData(out[i], &data), "an input's memory");
        fill_values(data, type, count, seed + (unsigned)i, whole);
    }
}

void model_release(const OrtApi *api, OrtValue **values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (values[i])
            api->ReleaseValue(values[i]);
        values[i] = NULL;
    }
}

OrtStatus *model_try(const model *m, berth_ort *memory, OrtValue *const *inputs, OrtValue **outputs)
{
    const char *const *input_names = (const char *const *)m->input_names;
    const char *const *output_names = (const char *const *)m->output_names;
    const OrtValue *const *values = (const OrtValue *const *)inputs;
    memset(outputs, 0, m->output_count * sizeof *outputs);
    return memory ? berth_ort_run(memory, m->session, NULL, input_names, values, m->input_count, output_names,
                                  m->output_count, outputs)
                  : m->api->Run(m->session, NULL, input_names, values, m->input_count, output_names,
                                m->output_count, outputs);
}

void model_run(const model *m, berth_ort *memory, OrtValue *const *inputs, OrtValue **outputs)
{
    model_expect(m->api, model_try(m, memory, inputs, outputs), "running the model");
}

const void *model_bytes(const OrtApi *api, const OrtValue *value, size_t *bytes)
{
    OrtTensorTypeAndShapeInfo *info = NULL;
    OrtElementType type = ORT_FLOAT;
    size_t count = 0;
    void *data = NULL;
    model_expect(api, api->GetTensorTypeAndShape(value, &info), "an output's shape");
    model_expect(api, api->GetTensorElementType(info, &type), "an output's type");
    model_expect(api, api->GetTensorShapeElementCount(info, &count), "an output's shape");
    api->ReleaseTensorTypeAndShapeInfo(info);
    model_expect(api, api->GetTensorMutableData((OrtValue *)value, &data), "an output's memory");
    *bytes = count * (type == ORT_INT64 ? sizeof(int64_t) : sizeof(float));
    return data;
}
