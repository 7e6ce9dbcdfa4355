/* What the files of this binding share.
 *
 *     berth_tflite (delegate.c)    the delegate; lives until its owner and the last graph let go
 *       bt_graph (graph.c)         one subgraph of one interpreter, found by its context; lives as long as the interpreter
 *         lives (lives.c)          which operator first and last needs each tensor
 *         place (place.c)          plan, block, and tensors that point into it */
#ifndef BERTH_TFLITE_INSIDE_H
#define BERTH_TFLITE_INSIDE_H

#include <stdatomic.h>

#include "berth_tflite.h"
#include "tflite_abi.h"

#define BT_HIDDEN __attribute__((visibility("hidden")))
#define BT_TO_THE_END INT32_MAX

/* Of the library that was found. */
typedef struct bt_calls {
    void *library; /* from dlopen; NULL: the program's own */
#define BT_FIELD(result, name, arguments) result(*name) arguments;
    LITE_BINDING_CALLS(BT_FIELD)
#undef BT_FIELD
} bt_calls;

struct berth_tflite {
    struct TfLiteDelegate delegate;
    atomic_size_t references; /* the owner's and one for each graph */
    bt_calls call;
    berth_allocator *allocator;
    struct TfLiteDelegate *inner;
    berth_plan_cache *plans; /* by sizes, lives and names */
    berth_solve_options solve;
    bool watch, reuse_inputs;
};

/* The operators first needed and last needed by, as positions in the order of execution. */
typedef struct bt_life {
    int first, last; /* first < 0: no operator knows it */
} bt_life;

typedef struct bt_graph {
    struct bt_graph *next; /* guarded by graph.c's lock; all else belongs to the interpreter's thread */
    berth_tflite *owner;
    lite_context *context;
    const void *interpreter;   /* what the graphs of one interpreter share */
    bool is_main;              /* the one that the program invokes */
    lite_get_node_fn get_node; /* kept: a context offers it to delegates only */
    lite_ints *order;          /* nodes in the order of execution */
    lite_ints *outputs;        /* tensors */
    lite_ints *handed_out;     /* the program's outputs where it was asked, NULL elsewhere */
    lite_prepare_fn first_prepare, last_prepare; /* the operators' own, called by ours */
    bool armed; /* the delegate was applied, and what follows is its one placing */
    char failure[sizeof(((berth_tflite_figures *)0)->words)]; /* why that placing failed; "": it did not */
    berth_plan *plan;
    char *block;
    size_t block_bytes;
    int *placed; /* tensors that point into the block */
    size_t placed_count;
    berth_tflite_figures figures;
} bt_graph;

/* load.c */
BT_HIDDEN berth_status bt_load(const char *path, bt_calls *out);
BT_HIDDEN void bt_unload(bt_calls *calls);

/* delegate.c */
BT_HIDDEN void bt_release(berth_tflite *berth);

/* graph.c: the list of graphs, and the two operators of each whose prepare is ours. */
BT_HIDDEN bt_graph *bt_graph_find(const lite_context *context);
BT_HIDDEN berth_status bt_graph_create(berth_tflite *owner, lite_context *context, bt_graph **out);
BT_HIDDEN void bt_graph_destroy(bt_graph *graph);
/* Counted from 0 among those of `owner`; NULL past the last. */
BT_HIDDEN bt_graph *bt_graph_at(const berth_tflite *owner, size_t index);
BT_HIDDEN berth_status bt_graph_hook(bt_graph *graph, const lite_ints *order);
BT_HIDDEN void bt_graph_unhook(bt_graph *graph, const lite_ints *order);
/* What failed inside the interpreter's call on this thread; BERTH_OK: nothing of ours. */
BT_HIDDEN berth_status bt_failure_take(void);
BT_HIDDEN int bt_failure_set(lite_context *context, berth_status status);

/* lives.c. The caller frees the result, context->tensors_size long. */
BT_HIDDEN berth_status bt_lives_read(const bt_graph *graph, bt_life **out);
BT_HIDDEN bool bt_is_planned(const lite_tensor *tensor, const bt_life *life);

/* place.c */
BT_HIDDEN berth_status bt_place(bt_graph *graph);
BT_HIDDEN void bt_unplace(bt_graph *graph);
BT_HIDDEN void bt_leave_alone(bt_graph *graph, const char *why);

BT_HIDDEN lite_ints *bt_ints_copy(const lite_ints *ints);

#endif
