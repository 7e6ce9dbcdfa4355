/* A tree over columns that knows the lowest pin of a stretch. */
#include "planner/place/pins.h"

/* Calls BODY with `node` for the largest nodes that make up [lower, upper). */
#define FOR_NODES(pins, lower, upper, BODY)                                                            \
    for (uint32_t left_ = (lower) + (pins)->leaves, right_ = (upper) + (pins)->leaves; left_ < right_; \
         left_ /= 2, right_ /= 2) {                                                                    \
        if (left_ & 1) {                                                                               \
            const uint32_t node = left_++;                                                             \
            BODY                                                                                       \
        }                                                                                              \
        if (right_ & 1) {                                                                              \
            const uint32_t node = --right_;                                                            \
            BODY                                                                                       \
        }                                                                                              \
    }

static uint32_t own_lowest(const berth__pins *pins, uint32_t node)
{
    const uint32_t at = pins->first[node] + pins->passed[node];
    BERTH_DCHECK(node < 2 * pins->leaves && at <= pins->first[node + 1],
                 "[L12] no more pins of a node are reached than it has");
    return at < pins->first[node + 1] ? pins->list[at] : BERTH__NO_PIN;
}

static uint32_t lower_of(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static void update(berth__pins *pins, uint32_t node)
{
    uint32_t lowest = own_lowest(pins, node);
    if (node < pins->leaves)
        lowest = lower_of(lowest, lower_of(pins->lowest[2 * node], pins->lowest[2 * node + 1]));
    pins->lowest[node] = lowest;
}

/* Counts how many hang at each node, then lists them; in order of number, which is that of offsets. */
static bool hang_up(berth__pins *pins, uint32_t count)
{
    const uint32_t nodes = 2 * pins->leaves;
    for (uint32_t k = 0; k < count; k++)
        FOR_NODES(pins, pins->pin[k].lower, pins->pin[k].upper, { pins->first[node + 1]++; })
    for (uint32_t node = 0; node < nodes; node++)
        pins->first[node + 1] += pins->first[node];
    pins->list = berth__heap_alloc(((size_t)pins->first[nodes] + 1) * sizeof *pins->list);
    if (!pins->list)
        return false;
    for (uint32_t k = 0; k < count; k++)
        FOR_NODES(pins, pins->pin[k].lower, pins->pin[k].upper,
                  { pins->list[pins->first[node] + pins->passed[node]++] = k; })
    for (uint32_t node = nodes; node-- > 1;) {
        BERTH_DCHECK(pins->first[node] + pins->passed[node] == pins->first[node + 1],
                     "[L12] every pin hangs where it was counted");
        pins->passed[node] = 0;
        update(pins, node);
    }
    return true;
}

bool berth__pins_init(berth__pins *pins, const berth__pin *pin, uint32_t count, uint32_t columns)
{
    *pins = (berth__pins){.pin = pin, .leaves = 1};
    while (pins->leaves < columns)
        pins->leaves *= 2;
    const size_t nodes = (size_t)pins->leaves * 2;
    pins->first = berth__heap_zalloc(nodes + 1, sizeof *pins->first);
    pins->passed = berth__heap_zalloc(nodes, sizeof *pins->passed);
    pins->lowest = berth__heap_zalloc(nodes, sizeof *pins->lowest);
    return pins->first && pins->passed && pins->lowest && hang_up(pins, count);
}

void berth__pins_finish(berth__pins *pins)
{
    berth__heap_free(pins->first);
    berth__heap_free(pins->list);
    berth__heap_free(pins->passed);
    berth__heap_free(pins->lowest);
    *pins = (berth__pins){0};
}

/* Whatever hangs above a border of the stretch covers that border. */
uint32_t berth__pins_lowest(const berth__pins *pins, uint32_t lower, uint32_t upper)
{
    BERTH_DCHECK(lower < upper && upper <= pins->leaves, "[L7] a stretch of columns is asked for");
    uint32_t lowest = BERTH__NO_PIN;
    FOR_NODES(pins, lower, upper, { lowest = lower_of(lowest, pins->lowest[node]); })
    for (uint32_t node = (lower + pins->leaves) / 2; node; node /= 2)
        lowest = lower_of(lowest, own_lowest(pins, node));
    for (uint32_t node = (upper - 1 + pins->leaves) / 2; node; node /= 2)
        lowest = lower_of(lowest, own_lowest(pins, node));
    return lowest;
}

void berth__pins_take(berth__pins *pins, uint32_t number)
{
    const berth__pin *pin = &pins->pin[number];
    BERTH_DCHECK(berth__pins_lowest(pins, pin->lower, pin->upper) == number,
                 "[L12] the lowest pin is taken first");
    FOR_NODES(pins, pin->lower, pin->upper, {
        BERTH_DCHECK(own_lowest(pins, node) == number, "[L12] pins are reached from below");
        pins->passed[node]++;
        update(pins, node);
    })
    for (uint32_t node = (pin->lower + pins->leaves) / 2; node; node /= 2)
        update(pins, node);
    for (uint32_t node = (pin->upper - 1 + pins->leaves) / 2; node; node /= 2)
        update(pins, node);
}
