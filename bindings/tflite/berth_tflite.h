/* TensorFlow Lite's tensors placed by Berth: libberth_tflite.so. The interpreter has an arena in which it finds tensors a
 * place by its own rule; with Berth they stand in one block of Berth's allocator, where the planner puts them, and that
 * arena stays empty:
 *
 *     berth_tflite *berth = NULL;
 *     berth_tflite_create(NULL, &berth);
 *     berth_tflite_apply(berth, interpreter); // before TfLiteInterpreterAllocateTensors
 *
 * It is a delegate that takes no operator. Results are the same bit for bit; Invoke runs no code of Berth's.
 *
 * What is placed: inputs (kept from run to run, as there, unless the options say otherwise), outputs, intermediate tensors and operators' temporaries. What
 * stays with the interpreter: constants, and tensors kept from run to run (variables; constants that are dequantized
 * once), which share memory with nothing. Models with tensors whose size is known only while they run are left alone.
 * Inputs that are resized are planned anew by the next TfLiteInterpreterAllocateTensors; plans of shapes that were seen
 * are kept. */
#ifndef BERTH_TFLITE_H
#define BERTH_TFLITE_H

#include <berth/plan.h>
#include <berth/source.h>

#ifdef __cplusplus
extern "C" {
#endif

struct TfLiteDelegate;
struct TfLiteInterpreter;

/* Serves any number of interpreters, one after another or at once. */
typedef struct berth_tflite berth_tflite;

typedef struct berth_tflite_options {
    size_t struct_size;
    /* TensorFlow Lite's library. NULL: the one that the program has linked or loaded for all to see, else what
     * BERTH_TFLITE_LIBRARY names, else libtensorflowlite_c.so. It must be the one that the interpreters are of. */
    const char *library;
    /* Where blocks come from; NULL: berth_cpu_allocator(). Must be memory of the host. Retained. */
    berth_allocator *allocator;
    /* A delegate that runs operators (XNNPACK): it takes its share of the graph first, and what is left is placed. Stays
     * the program's, and must outlive the interpreters, as TensorFlow Lite asks. NULL: none. */
    struct TfLiteDelegate *inner;
    /* The program fills every input before every Invoke, so that others may have an input's memory once it was read. The
     * interpreter itself keeps inputs. Inputs of graphs that loops and branches call are kept in any case, and what the model
     * hands out unchanged; the latter is not known to a delegate in the interpreter's options (berth_tflite_delegate). */
    bool reuse_inputs;
    /* Only looks: tensors stay in the interpreter's arena, and the figures tell what a plan would need. */
    bool watch;
    const berth_solve_options *solve; /* how hard to plan; read at creation. NULL: the default */
} berth_tflite_options;

#define BERTH_TFLITE_OPTIONS_INIT                                          \
    {                                                                      \
        sizeof(berth_tflite_options), NULL, NULL, NULL, false, false, NULL \
    }

/* Finds the library and checks its version. `options` may be NULL. The caller owns the result. Any thread. BERTH_OK,
 * BERTH_INVALID_ARGUMENT, BERTH_UNSUPPORTED (no library, not TensorFlow Lite 2.9, or an allocator whose memory the host does
 * not reach: the words tell which), BERTH_OUT_OF_HOST_MEMORY. */
BERTH_API berth_status berth_tflite_create(const berth_tflite_options *options, berth_tflite **out);

/* May come before or after the interpreters' end: those that are left keep what they need. NULL is a no-op. Any thread. */
BERTH_API void berth_tflite_destroy(berth_tflite *berth);

/* Places the tensors of an interpreter. One that was allocated before keeps the arena that it has, so that nothing is
 * gained; and its tensors' memory changes: pointers from TfLiteTensorData are asked for again, inputs filled again. Another
 * delegate is named in the options; if one is applied later, tensors go back to the interpreter's arena. On the thread
 * that uses the interpreter. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_UNSUPPORTED (its sizes are known only while it runs),
 * BERTH_BUSY (another berth_tflite has it), what berth_solve and berth_allocate answer. After a failure the interpreter
 * works as before. */
BERTH_API berth_status berth_tflite_apply(berth_tflite *berth, struct TfLiteInterpreter *interpreter);

/* The same for TfLiteInterpreterOptionsAddDelegate, as the last delegate; the interpreter is then not created where
 * berth_tflite_apply would answer BERTH_UNSUPPORTED. Belongs to `berth`. Any thread. */
BERTH_API struct TfLiteDelegate *berth_tflite_delegate(berth_tflite *berth);

/* What was done with one graph. */
typedef struct berth_tflite_figures {
    size_t struct_size;
    bool placed;
    size_t tensors;             /* that have a place in the plan */
    uint64_t arena_bytes;       /* what the plan needs */
    uint64_t bound_bytes;       /* no plan needs less */
    uint64_t separate_bytes;    /* the sum of all sizes */
    uint64_t interpreter_bytes; /* of the interpreter's arena that tensors take now */
    size_t persistent_tensors;  /* kept from run to run, in the interpreter's other arena */
    uint64_t persistent_bytes;
    size_t dynamic_tensors; /* that get memory while the model runs: left alone */
    uint64_t plannings;     /* how often it was planned */
    char words[192];        /* if not placed: why */
} berth_tflite_figures;

#define BERTH_TFLITE_FIGURES_INIT                                          \
    {                                                                      \
        sizeof(berth_tflite_figures), false, 0, 0, 0, 0, 0, 0, 0, 0, 0, "" \
    }

/* The figures of the graph with this index from 0: one for each interpreter that lives, in the order in which they came, or
 * several for a model of several subgraphs. The caller sets out->struct_size. Not while the graph's interpreter is at
 * work on another thread. BERTH_OK, BERTH_NOT_FOUND (no more), BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_tflite_figures_get(berth_tflite *berth, size_t index, berth_tflite_figures *out);

/* The graph's plan, with tensors' names as labels; time is counted in allocations, in the operators' order. The caller gets
 * a reference. As berth_tflite_figures_get; BERTH_NOT_FOUND also if it is not planned. */
BERTH_API berth_status berth_tflite_plan_get(berth_tflite *berth, size_t index, berth_plan **out);

#ifdef __cplusplus
}
#endif
#endif
