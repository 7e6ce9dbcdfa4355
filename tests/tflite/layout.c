/* Our tables beside the package's own headers: every field that we name stands where theirs does. Compiled by layout.sh. */
#include <stdio.h>
#define TfLiteDelegate TheirDelegate /* one name, two descriptions */
#include <tensorflow/lite/c/common.h>
#undef TfLiteDelegate
#include "../../bindings/tflite/tflite_abi.h"

static int wrong;

#define SAME(ours, field, theirs, their_field)                                                     \
    do {                                                                                           \
        if (offsetof(ours, field) != offsetof(theirs, their_field) ||                              \
            sizeof(((ours *)0)->field) != sizeof(((theirs *)0)->their_field))                      \
            wrong = printf("%s.%s is not where %s.%s is\n", #ours, #field, #theirs, #their_field); \
    } while (0)
#define EQUAL(a, b)                                   \
    do {                                              \
        if ((int)(a) != (int)(b))                     \
            wrong = printf("%s is not %s\n", #a, #b); \
    } while (0)

static void tensors(void)
{
#define T(field, theirs) SAME(lite_tensor, field, TfLiteTensor, theirs)
    T(type, type);
    T(data, data);
    T(dims, dims);
    T(params, params);
    T(allocation_type, allocation_type);
    T(bytes, bytes);
    T(allocation, allocation);
    T(name, name);
    T(delegate, delegate);
    T(buffer_handle, buffer_handle);
    T(data_is_stale, data_is_stale);
    T(is_variable, is_variable);
    T(quantization, quantization);
    T(sparsity, sparsity);
    T(dims_signature, dims_signature);
    SAME(lite_ints, size, TfLiteIntArray, size);
    EQUAL(offsetof(lite_ints, data), offsetof(TfLiteIntArray, data));
    EQUAL(sizeof(lite_tensor), sizeof(TfLiteTensor));
}

static void operators(void)
{
#define N(field) SAME(lite_node, field, TfLiteNode, field)
    N(inputs);
    N(outputs);
    N(intermediates);
    N(temporaries);
    N(user_data);
    N(builtin_data);
    N(custom_initial_data);
    N(custom_initial_data_size);
    N(delegate);
    N(might_have_side_effect);
#define R(field) SAME(lite_registration, field, TfLiteRegistration, field)
    R(init);
    R(free);
    R(prepare);
    R(invoke);
    R(profiling_string);
    R(builtin_code);
    R(custom_name);
    R(version);
    EQUAL(sizeof(lite_registration), sizeof(TfLiteRegistration));
    SAME(lite_part, nodes, TfLiteDelegateParams, nodes_to_replace);
    SAME(lite_part, inputs, TfLiteDelegateParams, input_tensors);
    SAME(lite_part, outputs, TfLiteDelegateParams, output_tensors);
    EQUAL(sizeof(lite_part), sizeof(TfLiteDelegateParams));
}

static void contexts(void)
{
#define C(field, theirs) SAME(lite_context, field, TfLiteContext, theirs)
    C(tensors_size, tensors_size);
    C(get_plan, GetExecutionPlan);
    C(tensors, tensors);
    C(report_error, ReportError);
    C(get_node, GetNodeAndRegistration);
    C(replace_nodes, ReplaceNodeSubsetsWithDelegateKernels);
    C(recommended_num_threads, recommended_num_threads);
    C(profiler, profiler);
    C(get_external_context, GetExternalContext);
    C(preview_parts, PreviewDelegatePartitioning);
#define D(field, theirs) SAME(struct TfLiteDelegate, field, TheirDelegate, theirs)
    D(data, data_);
    D(prepare, Prepare);
    D(copy_from_buffer_handle, CopyFromBufferHandle);
    D(copy_to_buffer_handle, CopyToBufferHandle);
    D(free_buffer_handle, FreeBufferHandle);
    D(flags, flags);
    EQUAL(sizeof(struct TfLiteDelegate), sizeof(TheirDelegate));
}

int main(void)
{
    tensors();
    operators();
    contexts();
    EQUAL(LITE_OK, kTfLiteOk);
    EQUAL(LITE_APPLICATION_ERROR, kTfLiteApplicationError);
    EQUAL(LITE_CONSTANT, kTfLiteMmapRo);
    EQUAL(LITE_ARENA, kTfLiteArenaRw);
    EQUAL(LITE_PERSISTENT, kTfLiteArenaRwPersistent);
    EQUAL(LITE_DYNAMIC, kTfLiteDynamic);
    EQUAL(LITE_CUSTOM, kTfLiteCustom);
    EQUAL(LITE_CPU_BACKEND_CONTEXT, kTfLiteCpuBackendContext);
    EQUAL(LITE_NO_TENSOR, kTfLiteOptionalTensor);
    EQUAL(LITE_NO_HANDLE, kTfLiteNullBufferHandle);
    return wrong != 0;
}
