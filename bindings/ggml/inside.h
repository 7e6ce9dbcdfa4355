/* The inside of the ggml binding.
 *
 *     cgraph ──shape.c──> items and edges ──lives.c──> places with lives ──plan.c──> offsets ──graph.c──> tensors
 *
 * A shape is a graph as it was planned: its tensors by number. A later graph is compared with it number by number, so that
 * no table has to be built when the plan is still the right one. */
#ifndef BERTH_GGML_INSIDE_H
#define BERTH_GGML_INSIDE_H

#include "berth_ggml.h"
#include "ggml_abi.h"

#define BGG_NONE (-1)
#define BGG_MAX(a, b) ((a) > (b) ? (a) : (b))

/* ---- The library --------------------------------------------------------------------------------- */

typedef struct bgg_calls {
#define BGG_FIELD(result, name, parameters) result(*name) parameters;
    BGG_CALLS(BGG_FIELD)
#undef BGG_FIELD
} bgg_calls;

/* Filled once by berth_ggml_load, read-only afterwards. */
extern bgg_calls bgg_ggml;

/* Whether structures lie where ggml_abi.h says. BERTH_OK, BERTH_UNSUPPORTED with words. */
berth_status bgg_probe(const bgg_calls *ggml, const char *path);

/* ---- A graph's shape ------------------------------------------------------------------------------ */

/* One tensor of a graph. */
typedef struct bgg_item {
    struct ggml_tensor *tensor; /* of the graph that was read last */
    uint64_t size_bytes;        /* as its buffer type counts it; 0 for views and what is not ours */
    int32_t root;               /* of a view: the item that it shows; else BGG_NONE */
    int32_t type;               /* index of the buffer type */
    int32_t node;               /* when it is computed; BGG_NONE: it is there from the beginning */
    int32_t place;              /* BGG_NONE: views, and what is not ours */
    int32_t taken_from;         /* the source whose place it takes over; else BGG_NONE */
    int32_t op, marks;
    int tensor_type;
    int64_t ne[GGML_MAX_DIMS]; /* as in the tensor that was planned */
    size_t nb[GGML_MAX_DIMS];
    bool external; /* has data or a buffer already */
} bgg_item;

typedef struct bgg_place {
    uint64_t size_bytes, offset;
    int64_t lower, upper; /* in nodes */
    int32_t type, buffer; /* the buffer's number among its type's */
    char name[GGML_MAX_NAME];
} bgg_place;

/* Leaves are items 0 and up, nodes follow, and then tensors that are in neither list but used (a part of a graph). Edges
 * of node i: its sources and, last, what it is a view of. */
enum { BGG_EDGES = GGML_MAX_SRC + 1 };

typedef struct bgg_shape {
    int32_t leaf_count, node_count, item_count, place_count;
    bgg_item *items;
    int32_t *leaf_roots;
    int32_t *edges; /* BGG_EDGES a node, BGG_NONE where there is none */
    bgg_place *places;
    int32_t *uses; /* room for lives.c, two numbers an item */
    bool unlisted; /* some of the places belong to tensors in neither list */
} bgg_shape;

/* Numbers the graph's tensors. `types` are the buffer types' own, node_types and leaf_types as in berth_ggml_graph_reserve,
 * already checked. BERTH_OK, BERTH_OUT_OF_HOST_MEMORY; bgg_shape_finish in either case. */
berth_status bgg_shape_init(bgg_shape *shape, const struct ggml_cgraph *cgraph,
                            struct ggml_backend_buffer_type *const *types, const int *node_types,
                            const int *leaf_types);
void bgg_shape_finish(bgg_shape *shape);

/* Gives items their places: sizes, lives, and who takes over whose. `through_views`: a source may be reached through a view
 * of the whole of it. */
void bgg_shape_live(bgg_shape *shape, bool through_views);

/* Whether a tensor has the shape of the one that was planned. */
bool bgg_same_shape(const bgg_item *item, const struct ggml_tensor *tensor);

/* Whether two tensors have their elements at the same distances. */
bool bgg_same_layout(const struct ggml_tensor *a, const struct ggml_tensor *b);

/* ---- Plans ---------------------------------------------------------------------------------------- */

/* A buffer type of a graph and what is planned for it. */
typedef struct bgg_pool {
    struct ggml_backend_buffer_type *type;
    int32_t first; /* the same type may be given twice: the first index, which has the buffers */
    size_t alignment, max_bytes;
    size_t buffer_count;
    struct ggml_backend_buffer **buffers;
    char **bases;           /* where each buffer begins */
    uint64_t *needed_bytes; /* of each buffer, by the plan in use */
    uint64_t lower_bound_bytes;
    bool proven_optimal;
} bgg_pool;

/* Gives the places of buffer type number `index` their buffers and offsets; the buffers' sizes go to *needed, an array of
 * *count numbers that the caller frees. Statuses as berth_solve, BERTH_INVALID_ARGUMENT for a tensor that is too large. */
berth_status bgg_plan_pool(bgg_shape *shape, int32_t index, bgg_pool *pool,
                           const berth_solve_options *options, uint64_t **needed, size_t *count);

/* The problem of one buffer type: its places, whose numbers go to `which`. *buffers is the caller's to free. */
berth_status bgg_plan_problem(const bgg_shape *shape, int32_t index, size_t alignment, berth_problem *problem,
                              berth_problem_buffer **buffers, int32_t **which);

#endif
