/* Proof that ggml's structures lie where ggml_abi.h says. Tensors and graphs are made by the library and looked at. For
 * the two tables of functions it is asked to call through a longer one of ours, each entry of which notes its own number:
 * a table that has grown in the middle shows, and nothing is called that is not there. */
#include <string.h>

#include "inside.h"

enum { PROBE_SLOTS = 16, PROBE_BYTES = 6, PROBE_MEMORY = 64 * 1024, PROBE_NODES = 8 };

static _Thread_local int probe_called; /* the slot that ggml went through */

#define PROBE_SLOT(n)                  \
    static size_t probe_slot_##n(void) \
    {                                  \
        probe_called = n;              \
        return 1;                      \
    }
PROBE_SLOT(0)
PROBE_SLOT(1)
PROBE_SLOT(2)
PROBE_SLOT(3)
PROBE_SLOT(4)
PROBE_SLOT(5)
PROBE_SLOT(6)
PROBE_SLOT(7)
PROBE_SLOT(8)
PROBE_SLOT(9)
PROBE_SLOT(10)
PROBE_SLOT(11)
PROBE_SLOT(12)
PROBE_SLOT(13)
PROBE_SLOT(14)
PROBE_SLOT(15)

typedef size_t (*probe_fn)(void);
static const probe_fn probe_slots[PROBE_SLOTS] = {probe_slot_0,  probe_slot_1,  probe_slot_2,  probe_slot_3,
                                                  probe_slot_4,  probe_slot_5,  probe_slot_6,  probe_slot_7,
                                                  probe_slot_8,  probe_slot_9,  probe_slot_10, probe_slot_11,
                                                  probe_slot_12, probe_slot_13, probe_slot_14, probe_slot_15};

/* Which function of a table is meant; offsets become numbers of slots. */
#define PROBE_WANT(table, member) ((int)(offsetof(struct table, member) / sizeof(probe_fn)))
#define PROBE_THROUGH(call, slot) (probe_called = BGG_NONE, (void)(call), probe_called == (slot))

static bool probe_tensor(const bgg_calls *ggml, struct ggml_context *context)
{
    struct ggml_tensor *a = ggml->ggml_new_tensor_1d(context, GGML_TYPE_F32, PROBE_BYTES);
    struct ggml_tensor *view = ggml->ggml_view_1d(context, a, 2, sizeof(float));
    struct ggml_tensor *sum = ggml->ggml_add(context, view, view);
    if (ggml->ggml_tensor_overhead() != sizeof(struct ggml_tensor) + GGML_OBJECT_BYTES)
        return false;
    (void)ggml->ggml_set_name(a, "berth");
    ggml->ggml_set_input(a);
    if (a->flags != GGML_TENSOR_FLAG_INPUT)
        return false;
    ggml->ggml_set_output(a);
    return a->flags == (GGML_TENSOR_FLAG_INPUT | GGML_TENSOR_FLAG_OUTPUT) && a->type == GGML_TYPE_F32 &&
           a->ne[0] == PROBE_BYTES && a->nb[0] == sizeof(float) && a->nb[1] == PROBE_BYTES * sizeof(float) &&
           a->op == GGML_OP_NONE && !a->data && !a->buffer && !a->view_src && strcmp(a->name, "berth") == 0 &&
           view->view_src == a && view->view_offs == sizeof(float) && view->src[0] == a &&
           strcmp(ggml->ggml_op_name(view->op), "VIEW") == 0 && sum->src[0] == view && sum->src[1] == view &&
           strcmp(ggml->ggml_op_name(sum->op), "ADD") == 0 && ggml->ggml_op_can_inplace(sum->op) &&
           !ggml->ggml_op_can_inplace(view->op);
}

static bool probe_graph(const bgg_calls *ggml, struct ggml_context *context)
{
    struct ggml_tensor *a = ggml->ggml_new_tensor_1d(context, GGML_TYPE_F32, PROBE_BYTES);
    struct ggml_tensor *b = ggml->ggml_add(context, a, a), *c = ggml->ggml_add(context, b, a);
    struct ggml_cgraph *graph = ggml->ggml_new_graph_custom(context, PROBE_NODES, false);
    ggml->ggml_build_forward_expand(graph, c);
    return graph->size == PROBE_NODES && ggml->ggml_graph_n_nodes(graph) == 2 && graph->n_nodes == 2 &&
           graph->n_leafs == 1 && graph->nodes[0] == b && graph->nodes[1] == c && graph->leafs[0] == a;
}

static bool probe_type(const bgg_calls *ggml)
{
    struct {
        probe_fn slots[PROBE_SLOTS];
    } table;
    struct ggml_backend_buffer_type *type = (struct ggml_backend_buffer_type *)(void *)&table;
    memcpy(table.slots, probe_slots, sizeof table.slots);
    return PROBE_THROUGH(ggml->ggml_backend_buft_name(type),
                         PROBE_WANT(ggml_backend_buffer_type_i, get_name)) &&
           PROBE_THROUGH(ggml->ggml_backend_buft_alloc_buffer(type, 1),
                         PROBE_WANT(ggml_backend_buffer_type_i, alloc_buffer)) &&
           PROBE_THROUGH(ggml->ggml_backend_buft_get_alignment(type),
                         PROBE_WANT(ggml_backend_buffer_type_i, get_alignment)) &&
           PROBE_THROUGH(ggml->ggml_backend_buft_get_max_size(type),
                         PROBE_WANT(ggml_backend_buffer_type_i, get_max_size)) &&
           PROBE_THROUGH(ggml->ggml_backend_buft_is_host(type),
                         PROBE_WANT(ggml_backend_buffer_type_i, is_host)) &&
           (void *)ggml->ggml_backend_buft_get_device(type) ==
               *(void **)((char *)&table + offsetof(struct ggml_backend_buffer_type, device));
}

/* The call that takes the table by value, with a longer table: the library copies what it thinks its own is long. */
typedef struct probe_table {
    probe_fn slots[PROBE_SLOTS];
} probe_table;
typedef struct ggml_backend_buffer *(*probe_init_fn)(struct ggml_backend_buffer_type *, probe_table, void *,
                                                     size_t);

static bool probe_buffer(const bgg_calls *ggml)
{
    struct ggml_backend_buffer_type type = {.device = NULL};
    struct ggml_tensor tensor = {.type = GGML_TYPE_F32};
    probe_table table;
    memcpy(table.slots, probe_slots, sizeof table.slots);
    struct ggml_backend_buffer *buffer =
        ((probe_init_fn)(void (*)(void))ggml->ggml_backend_buffer_init)(&type, table, &tensor, PROBE_BYTES);
    ggml->ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_COMPUTE);
    bool right =
        buffer->buft == &type && buffer->context == &tensor && buffer->size == PROBE_BYTES &&
        buffer->usage == GGML_BACKEND_BUFFER_USAGE_COMPUTE &&
        PROBE_THROUGH(ggml->ggml_backend_buffer_get_base(buffer),
                      PROBE_WANT(ggml_backend_buffer_i, get_base)) &&
        PROBE_THROUGH(ggml->ggml_backend_buffer_init_tensor(buffer, &tensor),
                      PROBE_WANT(ggml_backend_buffer_i, init_tensor)) &&
        PROBE_THROUGH(ggml->ggml_backend_buffer_clear(buffer, 0), PROBE_WANT(ggml_backend_buffer_i, clear)) &&
        PROBE_THROUGH(ggml->ggml_backend_buffer_reset(buffer), PROBE_WANT(ggml_backend_buffer_i, reset));
    ggml->ggml_backend_buffer_free(buffer);
    return right;
}

berth_status bgg_probe(const bgg_calls *ggml, const char *path)
{
    struct ggml_init_params params = {.mem_size = PROBE_MEMORY, .no_alloc = true};
    struct ggml_context *context = ggml->ggml_init(params);
    const char *what = NULL;
    if (!context)
        return berth_fail(BERTH_OUT_OF_HOST_MEMORY, "%s cannot make a context of %d bytes", path,
                          PROBE_MEMORY);
    if (!probe_tensor(ggml, context))
        what = "tensors";
    else if (!probe_graph(ggml, context))
        what = "graphs";
    else if (!probe_type(ggml))
        what = "buffer types";
    else if (!probe_buffer(ggml))
        what = "buffers";
    ggml->ggml_free(context);
    return what ? berth_fail(BERTH_UNSUPPORTED,
                             "%s calls itself ggml %s, but its %s are laid out otherwise than in llama.cpp "
                             "b8390 (commit %s)",
                             path, ggml->ggml_version(), what, ggml->ggml_commit())
                : BERTH_OK;
}
