/* Berth inside ggml: libberth_ggml.so. Buffer types over any allocator of Berth's, for weights, caches and compute buffers;
 * and a graph allocator that gives a ggml_cgraph the planner's offsets, in the place of ggml_gallocr.
 *
 *     berth_ggml_buffer_type_create(allocator, NULL, &type);
 *     berth_ggml_graph_create(&type, 1, NULL, &graph);
 *     berth_ggml_graph_allocate(graph, cgraph);            (then ggml_backend_graph_compute, as ever)
 *
 * ggml is loaded at run time and must be version 0.9.7 (llama.cpp b8390); another is refused with words. The header stands
 * alone or beside ggml's own: its types are only named here. */
#ifndef BERTH_GGML_H
#define BERTH_GGML_H

#include <berth/allocator.h>
#include <berth/problem.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_cgraph;
struct ggml_backend_device;
struct ggml_backend_buffer_type;

/* ---- The library ------------------------------------------------------------------------------------- */

/* Finds ggml and proves that it is one whose tables are known here: its version, and the layout of tensors, graphs, buffers
 * and buffer types. `path` is libggml-base.so or the folder that holds it; NULL: the ggml that the program has linked or
 * loaded, else what BERTH_GGML_LIBRARY names, else libggml-base.so. The first ggml that is found is kept for good; a later
 * call answers for it, whatever its path. The calls below load with NULL by themselves. Any thread. BERTH_OK,
 * BERTH_UNSUPPORTED (absent, another version or layout: words). */
BERTH_API berth_status berth_ggml_load(const char *path);

/* Version and commit of the ggml in use, "0.9.7 57bea3d"; "" before one is loaded. Any thread. */
BERTH_API const char *berth_ggml_version(void);

/* ---- Buffer types ------------------------------------------------------------------------------------ */

typedef struct berth_ggml_buffer_type_options {
    size_t struct_size;
    const char *name; /* copied; NULL: "Berth" and the allocator's name */
    size_t alignment; /* of tensors, a power of two; 0: what ggml's vector kernels want, 64 */
    size_t max_bytes; /* of one buffer; 0: no limit */
    struct ggml_backend_device
        *device; /* what the type answers as its device; NULL: none. libllama wants the CPU's */
} berth_ggml_buffer_type_options;

#define BERTH_GGML_BUFFER_TYPE_OPTIONS_INIT                      \
    {                                                            \
        sizeof(berth_ggml_buffer_type_options), NULL, 0, 0, NULL \
    }

/* A buffer type whose buffers are blocks of `allocator`, which it retains: a pool, a host cache, a limit, a device's
 * memory (berth_device_allocator_create). Its memory counts as the host's for ggml (is_host) where host code may touch it
 * in place. A buffer that cannot be had is NULL for ggml, with words in berth_last_error and in ggml's log. The caller owns
 * one reference; every buffer holds another, so that a released type goes with its last buffer. Any thread. BERTH_OK,
 * BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY, and as berth_ggml_load. */
BERTH_API berth_status berth_ggml_buffer_type_create(berth_allocator *allocator,
                                                     const berth_ggml_buffer_type_options *options,
                                                     struct ggml_backend_buffer_type **out);
/* NULL is a no-op. ggml must not be given the type any more; buffers of it live on. Any thread. */
BERTH_API void berth_ggml_buffer_type_release(struct ggml_backend_buffer_type *type);

typedef struct berth_ggml_buffer_figures {
    size_t struct_size;
    uint64_t buffers;       /* live */
    uint64_t bytes;         /* of live buffers, as ggml asked for them */
    uint64_t max_bytes;     /* the most that were live at once */
    uint64_t total_buffers; /* so far */
    uint64_t refused;       /* buffers that could not be had */
    uint64_t
        failed_copies; /* copies and fills that the device refused: ggml has no way to hear of it but the log */
} berth_ggml_buffer_figures;

#define BERTH_GGML_BUFFER_FIGURES_INIT                      \
    {                                                       \
        sizeof(berth_ggml_buffer_figures), 0, 0, 0, 0, 0, 0 \
    }

/* The caller sets out->struct_size. Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_NOT_FOUND for a type that is not
 * of berth_ggml_buffer_type_create. */
BERTH_API berth_status berth_ggml_buffer_type_figures(struct ggml_backend_buffer_type *type,
                                                      berth_ggml_buffer_figures *out);

/* ---- Graphs ------------------------------------------------------------------------------------------ */

/* Gives the tensors of a graph their places, as ggml_gallocr does and by its rules: tensors that have data or a buffer stay
 * where they are; leaves and inputs hold their bytes from the beginning until their last use; outputs, and what nobody
 * uses, until the end; a view is where its source is and keeps it; an operation for which ggml_op_can_inplace is true
 * takes the place of a source that nobody uses afterwards. Differs in this: a source may also be reached through a view
 * that shows the whole of it (a reshape), an output keeps its place when only a view of it is marked, sources that ggml's kernels
 * read again after they have written are not taken over (README.md names them), and the sizes come from the planner. As with gallocr, inputs may be overwritten by a run: set them before each.
 *
 * One thread at a time a graph. */
typedef struct berth_ggml_graph berth_ggml_graph;

/* `types` are the buffer types (of Berth or any other) that node_types and leaf_types below index; copied. `options` may be
 * NULL; its strings and context must outlive the graph. The caller owns the graph, and the types must outlive it. Any
 * thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OUT_OF_HOST_MEMORY, and as berth_ggml_load. */
BERTH_API berth_status berth_ggml_graph_create(struct ggml_backend_buffer_type *const *types, size_t count,
                                               const berth_solve_options *options, berth_ggml_graph **out);
/* Frees the buffers: tensors in them must not be used any more. NULL is a no-op. */
BERTH_API void berth_ggml_graph_destroy(berth_ggml_graph *graph);

/* Plans `cgraph`, usually the largest that will come, and gets the buffers. node_types[i] is the buffer type of node i,
 * leaf_types[i] that of leaf i; NULL: the first for all. Tensors are not touched, but for those that an earlier call put
 * into this graph's buffers: they lose their places and what they hold, also where that buffer has gone since (of such a
 * buffer some 100 bytes stay until the graph is destroyed, so that it is known). BERTH_OK, BERTH_INVALID_ARGUMENT (a type's index; a
 * tensor larger than its type's buffers may be), BERTH_OUT_OF_HOST_MEMORY, BERTH_OUT_OF_DEVICE_MEMORY (the words say how
 * much for which type), and as berth_solve. */
BERTH_API berth_status berth_ggml_graph_reserve(berth_ggml_graph *graph, struct ggml_cgraph *cgraph,
                                                const int *node_types, const int *leaf_types);

/* Gives every tensor of `cgraph` its place. A graph like the one planned last (same operations, sources, views and marks; no
 * tensor larger) takes its plan at the cost of a comparison; any other is planned anew, with the first buffer type for all
 * (BERTH_MISMATCH where there are several: reserve it with its types). Statuses as berth_ggml_graph_reserve. */
BERTH_API berth_status berth_ggml_graph_allocate(berth_ggml_graph *graph, struct ggml_cgraph *cgraph);

typedef struct berth_ggml_graph_figures {
    size_t struct_size;
    uint64_t buffer_bytes;      /* held in buffers of this type */
    uint64_t planned_bytes;     /* needed by the plan in use */
    uint64_t lower_bound_bytes; /* no plan of these lives is smaller */
    uint64_t tensors;           /* with a place of their own or taken over */
    uint64_t in_place;          /* of these, those that took over a source's place */
    uint64_t buffers;
    uint64_t plans;  /* made so far, for all types */
    uint64_t reuses; /* graphs that took the plan there was */
    bool proven_optimal;
} berth_ggml_graph_figures;

#define BERTH_GGML_GRAPH_FIGURES_INIT                                   \
    {                                                                   \
        sizeof(berth_ggml_graph_figures), 0, 0, 0, 0, 0, 0, 0, 0, false \
    }

/* Of one buffer type; the caller sets out->struct_size. BERTH_OK, BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_ggml_graph_figures_get(const berth_ggml_graph *graph, size_t type,
                                                    berth_ggml_graph_figures *out);

/* Writes the plan in use of one buffer type as CSV, time counted in nodes, for `berth show` and `berth view` ("-": the
 * standard output). Several buffers of a type lie behind one another. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_NOT_FOUND
 * (nothing is planned), and as berth_problem_write. */
BERTH_API berth_status berth_ggml_graph_write(const berth_ggml_graph *graph, size_t type, const char *path);

#ifdef __cplusplus
}
#endif
#endif
