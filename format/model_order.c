/* Another order for the operators of a model: every subgraph as a graph of steps, the called before their callers.
 *
 * An operator that needs nothing but constants (DEQUANTIZE of weights) and serves one other can wait until right before that one: less is
 * there until then. It becomes a part of the other's step, which leaves far fewer orders to look at.
 *
 * An operator waits for those that make its inputs. Those that keep a state stay in the order of the file among themselves, and so do all
 * that touch a tensor which is made twice or used before it is made. */
#include <stdlib.h>
#include <string.h>

#include "format/model.h"
#include "format/order.h"

typedef struct reorder {
    const format_model *model;
    const format_lives *lives; /* of the file's order: which tensors are planned */
    format_runtime runtime;
    bool inplace;
    uint32_t *order;
    uint32_t *thing_of; /* by tensor; ORDER_NONE */
    uint64_t *peaks;    /* by subgraph: what it takes at most by itself */
    bool *seen, *stateful;
    bool exact;
} reorder;

#define SEVERAL (ORDER_NONE - 1)

/* What is being made of one subgraph. */
typedef struct steps {
    const format_subgraph *s;
    uint32_t index;
    order_graph g;
    order_pair *touch, *touched, *made, *before, *following;
    size_t touch_count, made_count, before_count, before_room;
    uint32_t *first_touch, *last_touch; /* by thing: the steps, so far */
    uint32_t *maker;                    /* by thing: the step that made it last */
    uint32_t *user;                     /* by thing: the only other step that touches it, SEVERAL */
    bool *odd;                          /* by thing: made twice, or used before it is made */
    uint32_t *owner;                    /* by step: the step that it is a part of */
    order_lists parts;                  /* by step: its parts */
} steps;

static bool reorder_calls(const reorder *r, const format_operator *op)
{
    for (uint32_t i = 0; i < op->call_count; i++)
        if (r->stateful[r->model->links[op->call_first + i]])
            return true;
    return op->stateful;
}

static bool steps_wait(steps *t, uint32_t step, uint32_t for_step)
{
    if (step == for_step)
        return true;
    if (t->before_count == t->before_room) {
        const size_t room = t->before_room ? 2 * t->before_room : 256;
        order_pair *larger = realloc(t->before, room * sizeof *larger);
        if (!larger)
            return false;
        t->before = larger;
        t->before_room = room;
    }
    t->before[t->before_count++] = (order_pair){step, for_step};
    return true;
}

/* The links of one operator that lead to things of this subgraph. */
static bool steps_links(reorder *r, steps *t, uint32_t step, uint32_t first, uint32_t count, bool makes)
{
    bool fine = true;
    for (uint32_t i = 0; i < count && fine; i++) {
        const int32_t tensor = r->model->links[first + i];
        const uint32_t thing = tensor < 0 ? ORDER_NONE : r->thing_of[tensor];
        if (thing == ORDER_NONE)
            continue;
        t->touch[t->touch_count] = (order_pair){step, thing};
        t->touched[t->touch_count++] = (order_pair){thing, step};
        if (makes)
            t->made[t->made_count++] = (order_pair){thing, step};
        if (t->odd[thing] && t->last_touch[thing] != ORDER_NONE)
            fine = steps_wait(t, step, t->last_touch[thing]);
        else if (!makes && t->maker[thing] != ORDER_NONE)
            fine = steps_wait(t, step, t->maker[thing]);
        t->last_touch[thing] = step;
        if (makes)
            t->maker[thing] = step;
    }
    return fine;
}

/* Gives the tensors of the subgraph numbers and finds those that are made twice or used too early. */
static void steps_find_odd(reorder *r, steps *t)
{
    for (uint32_t step = 0; step < t->s->operator_count; step++) {
        const format_operator *op = &r->model->operators[t->s->operator_first + step];
        for (uint32_t i = 0; i < op->input_count; i++) {
            const int32_t tensor = r->model->links[op->input_first + i];
            const uint32_t thing = tensor < 0 ? ORDER_NONE : r->thing_of[tensor];
            if (thing == ORDER_NONE)
                continue;
            if (t->first_touch[thing] == ORDER_NONE)
                t->first_touch[thing] = step;
            t->user[thing] = t->user[thing] == ORDER_NONE || t->user[thing] == step ? step : SEVERAL;
        }
        for (uint32_t i = 0; i < op->output_count; i++) {
            const int32_t tensor = r->model->links[op->output_first + i];
            const uint32_t thing = tensor < 0 ? ORDER_NONE : r->thing_of[tensor];
            if (thing == ORDER_NONE)
                continue;
            t->odd[thing] |= t->first_touch[thing] != ORDER_NONE;
            t->g.initial[thing] |= t->first_touch[thing] != ORDER_NONE && t->maker[thing] == ORDER_NONE;
            if (t->first_touch[thing] == ORDER_NONE)
                t->first_touch[thing] = step;
            t->maker[thing] = step;
        }
    }
    for (uint32_t thing = 0; thing < t->g.thing_count; thing++) {
        t->g.initial[thing] |= t->maker[thing] == ORDER_NONE;
        t->maker[thing] = ORDER_NONE;
    }
}

/* The only operator that needs what this one makes, if this one needs nothing that is made; else itself. */
static uint32_t steps_owner(const reorder *r, const steps *t, uint32_t step)
{
    const format_operator *op = &r->model->operators[t->s->operator_first + step];
    uint32_t owner = ORDER_NONE;
    if (reorder_calls(r, op) || op->call_count || t->g.work[step])
        return step;
    for (uint32_t i = 0; i < op->input_count; i++) {
        const int32_t tensor = r->model->links[op->input_first + i];
        if (tensor >= 0 && r->model->tensors[tensor].kind != FORMAT_CONSTANT)
            return step;
    }
    for (uint32_t i = 0; i < op->output_count; i++) {
        const int32_t tensor = r->model->links[op->output_first + i];
        const uint32_t thing = tensor < 0 ? ORDER_NONE : r->thing_of[tensor];
        if (thing == ORDER_NONE || t->odd[thing] || t->g.kept[thing] || t->user[thing] >= SEVERAL ||
            (owner != ORDER_NONE && t->user[thing] != owner))
            return step;
        owner = t->user[thing];
    }
    return owner == ORDER_NONE ? step : owner;
}

static void steps_mark(const reorder *r, bool *flags, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const int32_t tensor = r->model->links[first + i];
        if (tensor >= 0 && r->thing_of[tensor] != ORDER_NONE)
            flags[r->thing_of[tensor]] = true;
    }
}

static bool steps_operators(reorder *r, steps *t)
{
    const format_model *model = r->model;
    uint32_t last_stateful = ORDER_NONE;
    bool fine = true;
    for (uint32_t step = 0; step < t->s->operator_count && fine; step++) {
        const format_operator *op = &model->operators[t->s->operator_first + step];
        const uint32_t owner = t->owner[step] = steps_owner(r, t, step);
        fine = steps_links(r, t, owner, op->input_first, op->input_count, false) &&
               steps_links(r, t, owner, op->output_first, op->output_count, true);
        if (reorder_calls(r, op)) {
            r->stateful[t->index] = true;
            if (last_stateful != ORDER_NONE)
                fine = steps_wait(t, step, last_stateful) && fine;
            last_stateful = step;
        }
        uint64_t inside = 0;
        for (uint32_t i = 0; i < op->call_count; i++)
            if (r->peaks[model->links[op->call_first + i]] > inside)
                inside = r->peaks[model->links[op->call_first + i]];
        t->g.work[step] += inside;
        if (r->inplace && (op->elementwise || op->reshapes) && op->output_count == 1 &&
            model->links[op->output_first] >= 0)
            t->g.over[step] = r->thing_of[model->links[op->output_first]];
    }
    return fine;
}

static bool steps_parts(steps *t)
{
    size_t count = 0;
    order_pair *pairs = malloc(((size_t)t->g.step_count + 1) * sizeof *pairs);
    if (!pairs)
        return false;
    for (uint32_t i = 0; i < t->g.step_count; i++)
        if (t->owner[i] != i)
            pairs[count++] = (order_pair){t->owner[i], i};
    const bool fine = order_lists_make(&t->parts, t->g.step_count, pairs, count);
    free(pairs);
    return fine;
}

static bool steps_lists(steps *t)
{
    order_graph *g = &t->g;
    t->following = malloc((t->before_count + 1) * sizeof *t->following);
    if (!t->following)
        return false;
    for (size_t i = 0; i < t->before_count; i++)
        t->following[i] = (order_pair){t->before[i].item, t->before[i].list};
    return order_lists_make(&g->touch, g->step_count, t->touch, t->touch_count) &&
           order_lists_make(&g->touched, g->thing_count, t->touched, t->touch_count) &&
           order_lists_make(&g->made, g->thing_count, t->made, t->made_count) &&
           order_lists_make(&g->before, g->step_count, t->before, t->before_count) &&
           order_lists_make(&g->following, g->step_count, t->following, t->before_count) && steps_parts(t);
}

static bool steps_make(reorder *r, steps *t)
{
    const format_model *model = r->model;
    uint32_t things = 0;
    size_t links = 1;
    for (size_t i = 0; i < model->tensor_count; i++)
        r->thing_of[i] = model->tensors[i].subgraph == t->index && model->tensors[i].kind != FORMAT_SCRATCH
                             ? things++
                             : ORDER_NONE;
    for (uint32_t i = 0; i < t->s->operator_count; i++)
        links += model->operators[t->s->operator_first + i].input_count +
                 model->operators[t->s->operator_first + i].output_count;
    if (!order_graph_init(&t->g, t->s->operator_count, things))
        return false;
    t->touch = malloc(links * sizeof *t->touch);
    t->touched = malloc(links * sizeof *t->touched);
    t->made = malloc(links * sizeof *t->made);
    uint32_t *numbers = malloc(((size_t)things + 1) * 4 * sizeof *numbers);
    t->first_touch = numbers;
    t->owner = malloc(((size_t)t->s->operator_count + 1) * sizeof *t->owner);
    t->odd = calloc((size_t)things + 1, sizeof *t->odd);
    if (!t->touch || !t->touched || !t->made || !numbers || !t->odd || !t->owner)
        return false;
    memset(numbers, 0xff, ((size_t)things + 1) * 4 * sizeof *numbers);
    t->last_touch = numbers + things + 1;
    t->maker = numbers + 2 * ((size_t)things + 1);
    t->user = numbers + 3 * ((size_t)things + 1);
    for (size_t i = 0; i < model->tensor_count; i++)
        if (r->thing_of[i] != ORDER_NONE && r->lives->tensors[i].first != FORMAT_NEVER)
            t->g.size[r->thing_of[i]] = format_lives_size(r->lives, &model->tensors[i]);
    for (size_t i = model->tensor_count - model->scratch_count; i < model->tensor_count; i++)
        if (model->tensors[i].subgraph == t->index && r->lives->tensors[i].first != FORMAT_NEVER)
            t->g.work[model->tensors[i].owner - t->s->operator_first] +=
                format_lives_size(r->lives, &model->tensors[i]);
    steps_find_odd(r, t);
    steps_mark(r, t->g.initial, t->s->input_first, t->s->input_count);
    steps_mark(r, t->g.kept, t->s->output_first, t->s->output_count);
    if (r->runtime == FORMAT_TFLITE && t->index == 0)
        steps_mark(r, t->g.kept, t->s->input_first, t->s->input_count);
    return steps_operators(r, t) && steps_lists(t);
}

/* A tensor that nobody uses is there before the start, and is no part of any order. */
static void steps_drop_unused(steps *t)
{
    for (uint32_t i = 0; i < t->g.thing_count; i++)
        if (t->g.touched.first[i] == t->g.touched.first[i + 1] && !t->g.kept[i] &&
            t->first_touch[i] == ORDER_NONE)
            t->g.initial[i] = false;
}

/* The order with every part right before the step that it is a part of. */
static void steps_write(reorder *r, const steps *t, const uint32_t *local)
{
    const uint32_t count = t->g.step_count;
    uint32_t *at = r->order + t->s->operator_first;
    for (uint32_t i = 0; i < count; i++) {
        if (t->owner[local[i]] != local[i])
            continue;
        for (uint32_t k = t->parts.first[local[i]]; k < t->parts.first[local[i] + 1]; k++)
            *at++ = t->s->operator_first + t->parts.items[k];
        *at++ = t->s->operator_first + local[i];
    }
}

static bool steps_solve(reorder *r, steps *t)
{
    uint32_t *local = malloc(((size_t)t->g.step_count + 1) * sizeof *local);
    bool exact = false;
    if (!local)
        return false;
    for (uint32_t i = 0; i < t->g.step_count; i++)
        local[i] = i;
    steps_drop_unused(t);
    const bool fine = order_improve(&t->g, local, &exact);
    r->exact = r->exact && exact;
    r->peaks[t->index] = order_peak(&t->g, local, NULL);
    steps_write(r, t, local);
    free(local);
    return fine;
}

static void steps_finish(steps *t)
{
    order_graph_finish(&t->g);
    free(t->touch);
    free(t->touched);
    free(t->made);
    free(t->before);
    free(t->following);
    free(t->first_touch);
    free(t->odd);
    free(t->owner);
    free(t->parts.first);
    free(t->parts.items);
}

/* The model was walked before, so that no subgraph calls itself. */
static bool reorder_subgraph(reorder *r, uint32_t index)
{
    const format_subgraph *s = &r->model->subgraphs[index];
    if (r->seen[index])
        return true;
    r->seen[index] = true;
    for (uint32_t i = 0; i < s->operator_count; i++) {
        const format_operator *op = &r->model->operators[s->operator_first + i];
        for (uint32_t k = 0; k < op->call_count; k++) {
            r->exact = false; /* what a called one holds lives longer if it is called again */
            if (!reorder_subgraph(r, (uint32_t)r->model->links[op->call_first + k]))
                return false;
        }
    }
    steps t = {.s = s, .index = index};
    const bool fine = steps_make(r, &t) && steps_solve(r, &t);
    steps_finish(&t);
    return fine;
}

berth_status format_reorder(const format_model *model, const format_lives *lives, format_runtime runtime,
                            bool inplace, uint32_t *order, uint64_t *bound, format_error *error)
{
    reorder r = {.model = model, .lives = lives, .runtime = runtime, .inplace = inplace, .order = order};
    r.exact = !inplace;
    r.thing_of = malloc((model->tensor_count + 1) * sizeof *r.thing_of);
    r.peaks = calloc(model->subgraph_count + 1, sizeof *r.peaks);
    r.seen = calloc(model->subgraph_count + 1, sizeof *r.seen);
    r.stateful = calloc(model->subgraph_count + 1, sizeof *r.stateful);
    bool fine = r.thing_of && r.peaks && r.seen && r.stateful;
    for (size_t i = 0; i < model->operator_count; i++)
        order[i] = (uint32_t)i;
    if (fine && model->subgraph_count)
        fine = reorder_subgraph(&r, 0);
    *bound = fine && r.exact ? r.peaks[0] : 0;
    free(r.thing_of);
    free(r.peaks);
    free(r.seen);
    free(r.stateful);
    return fine ? BERTH_OK
                : format_fail(error, BERTH_OUT_OF_HOST_MEMORY,
                              "no memory to look for an order of %zu operators", model->operator_count);
}
