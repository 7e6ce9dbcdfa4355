/* When the tensors of a model live, counted as its runtime counts.
 *
 * Time goes on by one for each operator, and by one more where an operator starts a subgraph: those of IF, WHILE and
 * CALL_ONCE run inside the time of their operator, so that what it holds is live throughout. TensorFlow Lite Micro numbers
 * its allocation scopes in this way. */
#include <stdlib.h>
#include <string.h>

#include "format/model.h"

/* A model whose subgraphs call each other is unrolled; one that would take longer than this is refused. */
enum { LONGEST_RUN = 1 << 22, DEEPEST_CALL = 64 };

typedef struct walk {
    const format_model *model;
    format_lives *lives;
    format_error *error;
    const uint32_t *order;
    bool *active; /* by subgraph: it runs now */
    int64_t time;
    size_t step_room;
    unsigned depth;
} walk;

static void life_create(walk *w, int32_t tensor)
{
    format_life *life = &w->lives->tensors[tensor];
    if (life->first == FORMAT_NEVER || life->provisional)
        life->first = w->time;
    life->provisional = false;
    life->reborn = w->time;
    if (life->last < w->time)
        life->last = w->time;
}

/* An output that no operator makes is there from the start; where one does, its life begins anew. */
static void life_provide(walk *w, int32_t tensor)
{
    format_life *life = &w->lives->tensors[tensor];
    bool is_new = life->first == FORMAT_NEVER;
    life_create(w, tensor);
    life->provisional = is_new;
}

/* A tensor that nobody makes is there before the first operator: the runtime counts it so. */
static void life_use(walk *w, int32_t tensor)
{
    format_life *life = &w->lives->tensors[tensor];
    if (life->first == FORMAT_NEVER)
        life->first = life->reborn = -1;
    if (life->last < w->time)
        life->last = w->time;
}

static void life_each(walk *w, uint32_t first, uint32_t count, void (*mark)(walk *, int32_t))
{
    for (uint32_t i = 0; i < count; i++)
        if (w->model->links[first + i] >= 0)
            mark(w, w->model->links[first + i]);
}

/* Notes who runs at the present time. */
static berth_status walk_step(walk *w, uint32_t operator)
{
    format_lives *lives = w->lives;
    if (w->time >= LONGEST_RUN)
        return format_fail(w->error, BERTH_BAD_DATA,
                           "the subgraphs call each other so often that a run has more than %d steps",
                           LONGEST_RUN);
    if ((size_t)w->time >= w->step_room) {
        size_t room = w->step_room ? w->step_room * 2 : 256;
        uint32_t *steps = realloc(lives->steps, room * sizeof *steps);
        if (!steps)
            return format_fail(w->error, BERTH_OUT_OF_HOST_MEMORY, "no memory for %zu steps", room);
        lives->steps = steps;
        w->step_room = room;
    }
    lives->steps[w->time] = operator;
    lives->step_count = w->time + 1;
    return BERTH_OK;
}

static berth_status walk_subgraph(walk *w, uint32_t index);

static berth_status walk_calls(walk *w, const format_operator *op)
{
    for (uint32_t i = 0; i < op->call_count; i++) {
        w->time++;
        berth_status status = walk_subgraph(w, (uint32_t)w->model->links[op->call_first + i]);
        if (status)
            return status;
    }
    return BERTH_OK;
}

static berth_status walk_operator(walk *w, uint32_t index)
{
    const format_operator *op = &w->model->operators[index];
    w->time++;
    berth_status status = walk_step(w, index);
    life_each(w, op->output_first, op->output_count, life_create);
    if (!status)
        status = walk_calls(w, op);
    life_each(w, op->input_first, op->input_count, life_use);
    life_each(w, op->output_first, op->output_count, life_use);
    return status;
}

static berth_status walk_subgraph(walk *w, uint32_t index)
{
    const format_subgraph *s = &w->model->subgraphs[index];
    if (w->active[index])
        return format_fail(w->error, BERTH_BAD_DATA, "subgraph %u calls itself", index);
    if (w->depth == DEEPEST_CALL)
        return format_fail(w->error, BERTH_BAD_DATA, "subgraphs call each other more than %d deep",
                           DEEPEST_CALL);
    w->active[index] = true;
    w->depth++;
    berth_status status = walk_step(w, UINT32_MAX);
    life_each(w, s->input_first, s->input_count, life_create);
    life_each(w, s->output_first, s->output_count, life_provide);
    for (uint32_t i = 0; !status && i < s->operator_count; i++) {
        uint32_t at = s->operator_first + i;
        status = walk_operator(w, w->order ? w->order[at] : at);
    }
    life_each(w, s->output_first, s->output_count, life_use);
    w->depth--;
    w->active[index] = false;
    return status;
}

/* The large interpreter keeps inputs, and outputs to the end. */
static void lives_keep(const format_model *model, format_lives *lives, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int32_t tensor = model->links[first + i];
        if (tensor >= 0 && lives->tensors[tensor].first != FORMAT_NEVER)
            lives->tensors[tensor].last = lives->step_count - 1;
    }
}

static bool lives_planned(const format_tensor *tensor)
{
    return (tensor->kind == FORMAT_ACTIVATION || tensor->kind == FORMAT_SCRATCH) && tensor->size_bytes > 0;
}

/* Scratch lives while its operator runs, from the first run to the last. */
static bool lives_scratch(const format_model *model, format_lives *lives)
{
    format_life *runs = model->scratch_count ? malloc((model->operator_count + 1) * sizeof *runs) : NULL;
    if (!runs)
        return !model->scratch_count;
    for (size_t i = 0; i < model->operator_count; i++)
        runs[i] = (format_life){FORMAT_NEVER, -1, -1, false};
    for (int64_t time = 0; time < lives->step_count; time++)
        if (lives->steps[time] < model->operator_count) { /* others are no operator's */
            format_life *run = &runs[lives->steps[time]];
            run->first = run->first == FORMAT_NEVER ? time : run->first;
            run->last = run->reborn = time;
        }
    for (size_t i = model->tensor_count - model->scratch_count; i < model->tensor_count; i++)
        lives->tensors[i] = runs[model->tensors[i].owner];
    free(runs);
    return true;
}

berth_status format_lives_init(format_lives *lives, const format_model *model, format_runtime runtime,
                               const uint32_t *order, format_error *error)
{
    *lives = (format_lives){.alignment = runtime == FORMAT_MICRO ? 16 : 64,
                            .rounding = runtime == FORMAT_MICRO ? 16
                                        : runtime == FORMAT_ORT ? 64
                                                                : 1};
    walk w = {.model = model, .lives = lives, .error = error, .order = order};
    w.active = calloc(model->subgraph_count + 1, sizeof *w.active);
    lives->tensors = calloc(model->tensor_count + 1, sizeof *lives->tensors);
    if (!w.active || !lives->tensors) {
        free(w.active);
        format_lives_finish(lives);
        return format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for %zu tensors", model->tensor_count);
    }
    berth_status status = BERTH_OK;
    for (size_t i = 0; i < model->tensor_count; i++)
        lives->tensors[i] = (format_life){FORMAT_NEVER, -1, -1, false};
    if (!status && model->subgraph_count)
        status = walk_subgraph(&w, 0);
    free(w.active);
    if (status) {
        format_lives_finish(lives);
        return status;
    }
    if (runtime == FORMAT_TFLITE && model->subgraph_count)
        lives_keep(model, lives, model->subgraphs[0].input_first, model->subgraphs[0].input_count);
    if (!lives_scratch(model, lives)) {
        format_lives_finish(lives);
        return format_fail(error, BERTH_OUT_OF_HOST_MEMORY, "no memory for %zu operators",
                           model->operator_count);
    }
    for (size_t i = 0; i < model->tensor_count; i++) {
        format_life *life = &lives->tensors[i];
        if (!lives_planned(&model->tensors[i]))
            life->first = FORMAT_NEVER;
        else if (life->first == FORMAT_NEVER && runtime == FORMAT_MICRO &&
                 model->tensors[i].kind == FORMAT_ACTIVATION)
            *life = (format_life){-1, -1, -1, false}; /* nobody's tensor, yet Micro gives it room */
    }
    return BERTH_OK;
}

void format_lives_finish(format_lives *lives)
{
    free(lives->tensors);
    free(lives->steps);
    *lives = (format_lives){0};
}

uint64_t format_lives_size(const format_lives *lives, const format_tensor *tensor)
{
    return (tensor->size_bytes + lives->rounding - 1) / lives->rounding * lives->rounding;
}
