/* How long each tensor of a graph needs its bytes, and which operations work in place. Time is counted in nodes: a tensor
 * lives from the node that makes it (from the beginning, if none does or it is an input) to the end of the last that uses
 * it or a view of it. The rules are those of ggml_gallocr; berth_ggml.h names the differences. */
#include <string.h>

#include "inside.h"

/* An item's two numbers in shape->uses. */
enum { USE_COUNT = 0, USE_LAST = 1, USE_NUMBERS = 2 };
#define USE_FOREVER INT32_MAX

static int32_t *use_of(const bgg_shape *shape, int32_t item)
{
    return shape->uses + (size_t)item * USE_NUMBERS;
}

/* The item whose bytes an item's are. ggml gives views of views the first source. */
static int32_t owner_of(const bgg_shape *shape, int32_t item)
{
    return shape->items[item].root == BGG_NONE ? item : shape->items[item].root;
}

static void use_until(const bgg_shape *shape, int32_t item, int32_t node)
{
    int32_t *last = use_of(shape, owner_of(shape, item)) + USE_LAST;
    if (node > *last)
        *last = node;
}

static void count_uses(const bgg_shape *shape)
{
    for (int32_t i = 0; i < shape->item_count; i++) {
        use_of(shape, i)[USE_COUNT] = 0;
        use_of(shape, i)[USE_LAST] = BGG_NONE;
    }
    for (int32_t i = 0; i < shape->node_count; i++) {
        const int32_t *edges = shape->edges + (size_t)i * BGG_EDGES;
        for (int j = 0; j < GGML_MAX_SRC; j++)
            if (edges[j] != BGG_NONE) {
                use_of(shape, edges[j])[USE_COUNT]++;
                use_until(shape, edges[j], i);
            }
        use_until(shape, shape->leaf_count + i, i);
    }
    for (int32_t i = 0; i < shape->item_count; i++) {
        const bgg_item *item = &shape->items[i];
        bool is_view = item->root != BGG_NONE;
        /* Views that only say in which order things happen (of no operation) are never results. */
        bool is_result = use_of(shape, i)[USE_COUNT] == 0 && !(is_view && item->op == GGML_OP_NONE);
        if (item->marks & GGML_TENSOR_FLAG_OUTPUT || is_result)
            use_until(shape, i, USE_FOREVER);
    }
}

/* How many of a node's sources lie in the bytes of `owner`. */
static int count_sources(const bgg_shape *shape, const int32_t *edges, int32_t owner)
{
    int count = 0;
    for (int j = 0; j < GGML_MAX_SRC; j++)
        count += edges[j] != BGG_NONE && owner_of(shape, edges[j]) == owner;
    return count;
}

static bool may_take(const bgg_shape *shape, int32_t node, int32_t source, bool through_views)
{
    const bgg_item *item = &shape->items[shape->leaf_count + node], *from = &shape->items[source];
    int32_t owner = owner_of(shape, source);
    const bgg_item *own = &shape->items[owner];
    if (own->place == BGG_NONE || own->type != item->type || use_of(shape, owner)[USE_LAST] != node ||
        !bgg_same_layout(item->tensor, from->tensor))
        return false;
    if (from->root != BGG_NONE &&
        (!through_views || from->tensor->view_offs != 0 || own->size_bytes != item->size_bytes))
        return false;
    return count_sources(shape, shape->edges + (size_t)node * BGG_EDGES, owner) == 1;
}

/* Sources that an operation reads again after it has written there, though ggml_op_can_inplace is true for it (the CPU's kernels of
 * 0.9.7; gallocr does not know them, and outputs are wrong then). */
static bool is_read_again(int op, int source)
{
    static const struct {
        const char *name;
        int source;
    } known[] = {{"RMS_NORM_BACK", 0}, {"SOFT_MAX_BACK", 1}, {"ADD_ID", 1}};
    const char *name = bgg_ggml.ggml_op_name(op);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (source == known[i].source && strcmp(name, known[i].name) == 0)
            return true;
    return false;
}

static int32_t find_taken(const bgg_shape *shape, int32_t node, bool through_views)
{
    const bgg_item *item = &shape->items[shape->leaf_count + node];
    const int32_t *edges = shape->edges + (size_t)node * BGG_EDGES;
    if (item->marks & GGML_TENSOR_FLAG_INPUT || !bgg_ggml.ggml_op_can_inplace(item->op))
        return BGG_NONE;
    for (int j = 0; j < GGML_MAX_SRC; j++)
        if (edges[j] != BGG_NONE && may_take(shape, node, edges[j], through_views) &&
            !is_read_again(item->op, j))
            return edges[j];
    return BGG_NONE;
}

static void place_item(bgg_shape *shape, int32_t index)
{
    bgg_item *item = &shape->items[index];
    int32_t last = use_of(shape, index)[USE_LAST];
    bool from_start = item->node == BGG_NONE || item->marks & GGML_TENSOR_FLAG_INPUT;
    int64_t upper = last == USE_FOREVER ? BGG_MAX(shape->node_count, 1) : (int64_t)last + 1;
    bgg_place *place;
    if (item->taken_from != BGG_NONE) {
        item->place = shape->items[owner_of(shape, item->taken_from)].place;
        place = &shape->places[item->place];
        place->size_bytes = BGG_MAX(place->size_bytes, item->size_bytes);
        place->upper = upper;
        return;
    }
    item->place = shape->place_count++;
    place = &shape->places[item->place];
    *place = (bgg_place){.size_bytes = item->size_bytes,
                         .lower = from_start ? 0 : item->node,
                         .upper = upper,
                         .type = item->type};
    memcpy(place->name, item->tensor->name, sizeof place->name);
    place->name[sizeof place->name - 1] = '\0';
}

void bgg_shape_live(bgg_shape *shape, bool through_views)
{
    int32_t listed = shape->leaf_count + shape->node_count;
    count_uses(shape);
    shape->place_count = 0;
    for (int32_t i = 0; i < shape->item_count; i++)
        shape->items[i].place = shape->items[i].taken_from = BGG_NONE;
    for (int32_t i = 0; i < shape->item_count; i++) { /* what is there from the beginning */
        bgg_item *item = &shape->items[i];
        bool is_node = i >= shape->leaf_count && i < listed;
        if (!item->external && item->root == BGG_NONE && (!is_node || item->marks & GGML_TENSOR_FLAG_INPUT))
            place_item(shape, i);
    }
    for (int32_t node = 0; node < shape->node_count; node++) {
        bgg_item *item = &shape->items[shape->leaf_count + node];
        if (item->external || item->root != BGG_NONE || item->place != BGG_NONE)
            continue;
        item->taken_from = find_taken(shape, node, through_views);
        place_item(shape, shape->leaf_count + node);
    }
}
