/* The arrays of a model, and the dimensions that a user sets. */
#include "format/model.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

berth_status format_fail(format_error *error, berth_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    error->status = status;
    vsnprintf(error->words, sizeof error->words, format, args);
    va_end(args);
    return status;
}

bool format_text_is(format_text text, const char *words)
{
    return strlen(words) == text.length && memcmp(text.bytes, words, text.length) == 0;
}

/* Room for one more element; NULL: out of memory. */
static void *array_grow(void *array, size_t count, size_t *room, size_t element)
{
    if (count < *room)
        return array;
    size_t wanted = *room ? *room * 2 : 64;
    void *larger = wanted > SIZE_MAX / element ? NULL : realloc(array, wanted * element);
    if (larger)
        *room = wanted;
    return larger;
}

format_tensor *format_add_tensor(format_model *model)
{
    format_tensor *grown =
        array_grow(model->tensors, model->tensor_count, &model->tensor_room, sizeof *grown);
    if (!grown)
        return NULL;
    model->tensors = grown;
    grown += model->tensor_count++;
    *grown = (format_tensor){.type = "?", .name.bytes = ""};
    return grown;
}

bool format_add_scratch(format_model *model, uint32_t operator, uint64_t size_bytes)
{

    format_tensor *tensor = format_add_tensor(model);
    if (!tensor)
        return false;
    tensor->kind = FORMAT_SCRATCH;
    tensor->type = "scratch";
    tensor->size_bytes = size_bytes;
    tensor->owner = operator;
    tensor->local = (uint32_t)model->scratch_count;
    tensor->subgraph = model->operators[operator].subgraph;
    model->scratch_count++;
    return true;
}

format_operator *format_add_operator(format_model *model)
{
    format_operator *grown =
        array_grow(model->operators, model->operator_count, &model->operator_room, sizeof *grown);
    if (!grown)
        return NULL;
    model->operators = grown;
    grown += model->operator_count++;
    *grown = (format_operator){.type.bytes = "", .name.bytes = ""};
    return grown;
}

format_subgraph *format_add_subgraph(format_model *model)
{
    format_subgraph *grown =
        array_grow(model->subgraphs, model->subgraph_count, &model->subgraph_room, sizeof *grown);
    if (!grown)
        return NULL;
    model->subgraphs = grown;
    grown += model->subgraph_count++;
    *grown = (format_subgraph){.name.bytes = ""};
    return grown;
}

bool format_add_link(format_model *model, int64_t link)
{
    if (link > INT32_MAX)
        return false;
    int32_t *grown = array_grow(model->links, model->link_count, &model->link_room, sizeof *grown);
    if (!grown)
        return false;
    model->links = grown;
    model->links[model->link_count++] = (int32_t)link;
    return true;
}

bool format_add_dim(format_model *model, int64_t size)
{
    int64_t *grown = array_grow(model->dims, model->dim_count, &model->dim_room, sizeof *grown);
    if (!grown)
        return false;
    model->dims = grown;
    model->dims[model->dim_count++] = size;
    return true;
}

void format_model_finish(format_model *model)
{
    free(model->tensors);
    free(model->operators);
    free(model->subgraphs);
    free(model->links);
    free(model->dims);
    free(model->owned);
    *model = (format_model){0};
}

/* ---- Dimensions from the command line ----------------------------------------------------------------- */

/* The number behind the last '=', or -1. */
static int64_t dims_number(const char *text)
{
    const char *equals = strrchr(text, '=');
    char *end;
    if (!equals || equals == text || equals[1] < '0' || equals[1] > '9')
        return -1;
    errno = 0;
    long long number = strtoll(equals + 1, &end, 10);
    return *end || errno || number > INT32_MAX ? -1 : number;
}

bool format_dims_valid(const char *text)
{
    return dims_number(text) >= 0;
}

/* Whether the part before '=' names this place: 2, by its name; 1, by its axis alone ("*:1"); 0. */
static int dims_names(const char *item, size_t length, format_text symbol, format_text tensor, uint32_t axis)
{
    char number[16];
    if (symbol.length && symbol.length == length && memcmp(item, symbol.bytes, length) == 0)
        return 2;
    const size_t digits = (size_t)snprintf(number, sizeof number, ":%u", axis);
    if (length == tensor.length + digits && memcmp(item, tensor.bytes, tensor.length) == 0 &&
        memcmp(item + tensor.length, number, digits) == 0)
        return 2;
    return length == 1 + digits && *item == '*' && memcmp(item + 1, number, digits) == 0;
}

/* The setting that names the place most exactly and at least so (0: "*" does too), SIZE_MAX if none does. */
static size_t dims_best(const format_dims *dims, format_text symbol, format_text tensor, uint32_t axis,
                        int least)
{
    size_t found = SIZE_MAX;
    int best = least - 1;
    for (size_t i = 0; i < dims->count; i++) {
        const char *item = dims->items[i];
        const size_t length = (size_t)(strrchr(item, '=') - item);
        const int exact = dims_names(item, length, symbol, tensor, axis);
        if (exact > best && (exact || (length == 1 && *item == '*'))) {
            best = exact;
            found = i;
        }
    }
    if (found != SIZE_MAX && dims->used)
        dims->used[found] = true;
    return found;
}

int64_t format_dims_exact(const format_dims *dims, format_text tensor, uint32_t axis, bool or_axis)
{
    const size_t found = dims_best(dims, (format_text){"", 0}, tensor, axis, or_axis ? 1 : 2);
    return found == SIZE_MAX ? -1 : dims_number(dims->items[found]);
}

int64_t format_dims_find(const format_dims *dims, format_text symbol, format_text tensor, uint32_t axis)
{
    const size_t found = dims_best(dims, symbol, tensor, axis, 0);
    return found == SIZE_MAX ? -1 : dims_number(dims->items[found]);
}
