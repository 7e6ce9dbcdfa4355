/* What a runtime's own planner makes of a model, so that it can stand beside ours.
 *
 * TensorFlow Lite Micro takes tensors by size, the largest first and the later first among equals, and puts each into the lowest
 * gap that holds it among those that live at some time with it. The large interpreter takes what lives throughout first, then by
 * size, and the smallest gap. ONNX Runtime takes them as they come, in the smallest gap. */
#include <stdlib.h>

#include "format/model.h"

/* These planners are quadratic. */
enum { MOST_TENSORS = 8192 };

typedef struct item {
    uint64_t size;
    int64_t first, last, pin;
    uint32_t tensor, order;
    bool throughout;
} item;

typedef struct placed {
    uint64_t offset, end;
    int64_t first, last;
} placed;

static int compare_micro(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if ((x->pin >= 0) != (y->pin >= 0))
        return x->pin >= 0 ? -1 : 1;
    if (x->pin < 0 && x->size != y->size)
        return x->size > y->size ? -1 : 1;
    /* it fills its list from the back before it sorts, so that the later of two equals comes first */
    return (x->pin >= 0) == (x->order < y->order) ? -1 : 1;
}

static int compare_tflite(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->throughout != y->throughout)
        return x->throughout ? -1 : 1;
    if (!x->throughout && x->size != y->size)
        return x->size > y->size ? -1 : 1;
    if (!x->throughout && x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->tensor < y->tensor ? -1 : 1;
}

static int compare_time(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->order < y->order ? -1 : 1;
}

static size_t items_collect(const format_model *model, const format_lives *lives, const int64_t *pins,
                            bool as_believed, item *items)
{
    size_t count = 0;
    for (size_t i = 0; i < model->tensor_count; i++) {
        const format_life *life = &lives->tensors[i];
        if (life->first == FORMAT_NEVER)
            continue;
        int64_t first = as_believed ? life->reborn : life->first;
        items[count] = (item){.size = format_lives_size(lives, &model->tensors[i]),
                              .first = first,
                              .last = life->last,
                              .pin = pins ? pins[i] : -1,
                              .tensor = (uint32_t)i,
                              .order = (uint32_t)count,
                              .throughout = first <= 0 && life->last == lives->step_count - 1};
        count++;
    }
    return count;
}

/* The lowest gap that holds the item, or the smallest. `all` is in the order of offsets. */
static uint64_t gap_find(const placed *all, size_t count, const item *it, uint64_t alignment, bool smallest)
{
    uint64_t at = 0, best = UINT64_MAX, best_gap = UINT64_MAX;
    for (size_t k = 0; k < count; k++) {
        const placed *p = &all[k];
        if (p->last < it->first || p->first > it->last)
            continue;
        uint64_t aligned = (at + alignment - 1) / alignment * alignment;
        if (p->offset >= aligned && p->offset - aligned >= it->size && p->offset - aligned < best_gap) {
            best = aligned;
            best_gap = p->offset - at;
            if (!smallest)
                return best;
        }
        at = p->end > at ? p->end : at;
    }
    return best != UINT64_MAX ? best : (at + alignment - 1) / alignment * alignment;
}

static void place_insert(placed *all, size_t count, placed p)
{
    size_t k = count;
    for (; k > 0 && all[k - 1].offset > p.offset; k--)
        all[k] = all[k - 1];
    all[k] = p;
}

uint64_t format_greedy(const format_model *model, const format_lives *lives, format_runtime runtime,
                       const int64_t *pins, int64_t *offsets)
{
    size_t planned = 0;
    for (size_t i = 0; i < model->tensor_count; i++)
        planned += lives->tensors[i].first != FORMAT_NEVER;
    if (planned > MOST_TENSORS)
        return 0;
    item *items = malloc((planned + 1) * sizeof *items);
    placed *all = malloc((planned + 1) * sizeof *all);
    uint64_t total = 0;
    if (items && all) {
        size_t count = items_collect(model, lives, pins, runtime == FORMAT_MICRO, items);
        qsort(items, count, sizeof *items,
              runtime == FORMAT_MICRO    ? compare_micro
              : runtime == FORMAT_TFLITE ? compare_tflite
                                         : compare_time);
        for (size_t i = 0; i < count; i++) {
            uint64_t offset = items[i].pin >= 0
                                  ? (uint64_t)items[i].pin
                                  : gap_find(all, i, &items[i], lives->alignment, runtime != FORMAT_MICRO);
            uint64_t end = offset + items[i].size;
            place_insert(all, i, (placed){offset, end, items[i].first, items[i].last});
            total = end > total ? end : total;
            if (offsets)
                offsets[items[i].tensor] = (int64_t)offset;
        }
    }
    free(items);
    free(all);
    return total;
}
