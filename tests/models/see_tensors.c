/* What TensorFlow Lite's interpreter makes of a model: a delegate that takes no node is shown every tensor. Built by check_real.py against
 * the headers and the library of the package that it fetched.
 *
 * usage: see_tensors MODEL
 *
 * A line a tensor: "tensor INDEX KIND BYTES ADDRESS", KIND as in TfLiteAllocationType, and a line for each temporary of a node: "temporary NODE
 * TENSOR". */
#include <stdint.h>
#include <stdio.h>

#include <tensorflow/lite/c/c_api.h>
#include <tensorflow/lite/c/common.h>

enum { MOST_NODES = 4096 };
static TfLiteContext *seen;
static const TfLiteNode *nodes[MOST_NODES];
static int node_numbers[MOST_NODES], node_count;

/* Nodes can be asked for only here; what they need is known after they are prepared. */
static TfLiteStatus see(TfLiteContext *context, struct TfLiteDelegate *delegate)
{
    TfLiteIntArray *plan = NULL;
    (void)delegate;
    if (seen) /* another subgraph */
        return kTfLiteOk;
    seen = context;
    if (context->GetExecutionPlan(context, &plan) != kTfLiteOk)
        return kTfLiteError;
    for (int i = 0; i < plan->size && node_count < MOST_NODES; i++) {
        TfLiteNode *node;
        TfLiteRegistration *registration;
        if (context->GetNodeAndRegistration(context, plan->data[i], &node, &registration) != kTfLiteOk)
            return kTfLiteError;
        node_numbers[node_count] = plan->data[i];
        nodes[node_count++] = node;
    }
    return kTfLiteOk;
}

static void print_tensors(void)
{
    for (size_t i = 0; i < seen->tensors_size; i++) {
        const TfLiteTensor *t = &seen->tensors[i];
        printf("tensor %zu %d %zu %zu\n", i, (int)t->allocation_type, t->bytes,
               (size_t)(uintptr_t)t->data.raw);
    }
    for (int i = 0; i < node_count; i++)
        for (int k = 0; nodes[i]->temporaries && k < nodes[i]->temporaries->size; k++)
            printf("temporary %d %d\n", node_numbers[i], nodes[i]->temporaries->data[k]);
}

int main(int argc, char **argv)
{
    TfLiteDelegate delegate = {.Prepare = see, .flags = kTfLiteDelegateFlagsAllowDynamicTensors};
    TfLiteModel *model = argc == 2 ? TfLiteModelCreateFromFile(argv[1]) : NULL;
    TfLiteInterpreterOptions *options = TfLiteInterpreterOptionsCreate();
    TfLiteInterpreterOptionsAddDelegate(options, &delegate);
    TfLiteInterpreter *interpreter = model ? TfLiteInterpreterCreate(model, options) : NULL;
    if (!interpreter || TfLiteInterpreterAllocateTensors(interpreter) != kTfLiteOk || !seen)
        return 1;
    print_tensors();
    return 0;
}
