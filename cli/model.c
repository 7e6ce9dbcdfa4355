/* A model of a neural network as a problem: read, counted, and written as rows. */
#include "cli/model.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/size.h"
#include "format/onnx.h"
#include "format/tflite.h"

/* A protobuf has no mark of its own: the name tells. */
static bool is_onnx(const char *path)
{
    size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".onnx") == 0;
}

bool cli_is_model(const char *path)
{
    uint8_t head[8] = {0};
    struct stat about;
    /* a pipe is not even opened: who writes to it would be ended when it is closed */
    int file = stat(path, &about) == 0 && S_ISREG(about.st_mode) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return false;
    ssize_t got = pread(file, head, sizeof head, 0);
    close(file);
    return got > 0 && (format_is_tflite(head, (size_t)got) || is_onnx(path));
}

int cli_model_options_check(const char *verb, const char *path, const cli_model_options *options)
{
    if (!(options->dims.count || options->runtime || options->inplace || options->scratch) ||
        cli_is_model(path))
        return CLI_OK;
    return cli_misuse(verb, "'%s' is no model; --dim, --runtime, --inplace and --scratch are for models",
                      path);
}

/* Maps the file: of a large model the weights are most, and nobody looks at them. */
static int model_map(const char *verb, const char *path, cli_model *m)
{
    struct stat about;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    void *data = MAP_FAILED;
    if (file >= 0 && fstat(file, &about) == 0 && about.st_size > 0)
        data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    int reason = errno;
    if (file >= 0)
        close(file);
    if (data == MAP_FAILED) {
        fprintf(stderr, "berth %s: %s: it cannot be read: %s\n", verb, path, strerror(reason));
        return CLI_SURROUNDINGS;
    }
    m->data = data;
    m->size = (size_t)about.st_size;
    madvise(data, m->size, MADV_RANDOM);
    return CLI_OK;
}

/* ---- Options ------------------------------------------------------------------------------------------ */

static int model_runtime(const char *verb, const char *path, const cli_model_options *options, cli_model *m)
{
    static const char *const words[] = {"micro", "tflite", "ort"};
    m->runtime = is_onnx(path) ? FORMAT_ORT : FORMAT_MICRO;
    if (!options->runtime)
        return CLI_OK;
    for (int k = 0; k < 3; k++)
        if (strcmp(options->runtime, words[k]) == 0) {
            m->runtime = (format_runtime)k;
            return CLI_OK;
        }
    return cli_misuse(verb, "--runtime is micro, tflite or ort, not '%s'", options->runtime);
}

static int model_check_dims(const char *verb, const cli_model_options *options)
{
    for (size_t i = 0; i < options->dims.count; i++)
        if (!format_dims_valid(options->dims.items[i]))
            return cli_misuse(verb, "--dim wants NAME=N, TENSOR:AXIS=N, *:AXIS=N or *=N, not '%s'",
                              options->dims.items[i]);
    return CLI_OK;
}

/* ---- Rows --------------------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b, void *context)
{
    const format_tensor *tensors = context;
    const format_tensor *x = &tensors[*(const uint32_t *)a], *y = &tensors[*(const uint32_t *)b];
    size_t shorter = x->name.length < y->name.length ? x->name.length : y->name.length;
    int order = memcmp(x->name.bytes, y->name.bytes, shorter);
    if (order)
        return order;
    return x->name.length < y->name.length ? -1 : x->name.length > y->name.length;
}

/* Which rows need more than the tensor's name to be told apart. */
static bool *rows_repeated(const cli_model *m)
{
    bool *repeated = calloc(m->row_count + 1, sizeof *repeated);
    uint32_t *sorted = calloc(m->row_count + 1, sizeof *sorted);
    uint32_t *row_of = calloc(m->model.tensor_count + 1, sizeof *row_of);
    if (repeated && sorted && row_of) {
        for (size_t i = 0; i < m->row_count; i++) {
            sorted[i] = m->rows[i];
            row_of[m->rows[i]] = (uint32_t)i;
        }
        qsort_r(sorted, m->row_count, sizeof *sorted, compare_names, m->model.tensors);
        for (size_t i = 1; i < m->row_count; i++)
            if (compare_names(&sorted[i - 1], &sorted[i], m->model.tensors) == 0)
                repeated[row_of[sorted[i - 1]]] = repeated[row_of[sorted[i]]] = true;
    } else {
        free(repeated);
        repeated = NULL;
    }
    free(sorted);
    free(row_of);
    return repeated;
}

static void put_name(FILE *out, format_text name)
{
    for (size_t i = 0; i < name.length; i++) {
        unsigned char c = (unsigned char)name.bytes[i];
        if (c == '"')
            fputc('"', out);
        fputc(c < ' ' || c == 127 ? '?' : c, out);
    }
}

static void put_id(FILE *out, const cli_model *m, uint32_t index, bool repeated)
{
    const format_tensor *tensor = &m->model.tensors[index];
    put_name(out, tensor->name);
    if (tensor->kind == FORMAT_SCRATCH)
        fprintf(out, "scratch %u of operator %u:%u", tensor->local, tensor->subgraph,
                m->model.operators[tensor->owner].local);
    else if (repeated || !tensor->name.length)
        fprintf(out, "%s#%u:%u", tensor->name.length ? " " : "tensor ", tensor->subgraph, tensor->local);
}

static void put_label(FILE *out, const cli_model *m, uint32_t index, bool repeated, uint32_t producer)
{
    const format_tensor *tensor = &m->model.tensors[index];
    const bool has_shape = m->labels != CLI_MODEL_OPERATORS, has_name = m->labels != CLI_MODEL_SHAPES;
    if (has_name)
        put_id(out, m, index, repeated);
    if (has_name && (has_shape || producer != UINT32_MAX))
        fputs(" (", out);
    if (has_shape) {
        fprintf(out, "%s [", tensor->type);
        for (uint32_t i = 0; i < tensor->rank; i++)
            fprintf(out, "%s%" PRId64, i ? " " : "", m->model.dims[tensor->dim_first + i]);
        fputc(']', out);
    }
    if (producer != UINT32_MAX) {
        fputs(has_shape ? " " : "", out);
        put_name(out, m->model.operators[producer].type);
    }
    if (has_name && (has_shape || producer != UINT32_MAX))
        fputc(')', out);
}

static void put_row(FILE *out, const cli_model *m, size_t row, bool repeated, uint32_t producer)
{
    const uint32_t index = m->rows[row];
    const format_tensor *tensor = &m->model.tensors[index];
    const format_life *life = &m->lives.tensors[index];
    fputc('"', out);
    put_id(out, m, index, repeated);
    fprintf(out, "\",%" PRId64 ",%" PRId64 ",%" PRIu64 ",%" PRIu64 ",", life->first, life->last + 1,
            format_lives_size(&m->lives, tensor), m->lives.alignment);
    if (m->groups && m->groups[index])
        fprintf(out, "g%u", m->groups[index]);
    if (m->groups)
        fputc(',', out);
    if (m->carried)
        fprintf(out, "%d,", m->carried[index]);
    fputc('"', out);
    put_label(out, m, index, repeated, producer);
    fputs("\"\n", out);
}

/* Who makes each tensor. */
static uint32_t *model_producers(const format_model *model)
{
    uint32_t *producers = malloc((model->tensor_count + 1) * sizeof *producers);
    if (!producers)
        return NULL;
    memset(producers, 0xff, model->tensor_count * sizeof *producers);
    for (size_t k = model->operator_count; k-- > 0;) {
        const format_operator *op = &model->operators[k];
        for (uint32_t i = 0; i < op->output_count; i++)
            if (model->links[op->output_first + i] >= 0)
                producers[model->links[op->output_first + i]] = (uint32_t)k;
    }
    for (size_t i = model->tensor_count - model->scratch_count; i < model->tensor_count; i++)
        producers[i] = model->tensors[i].owner;
    return producers;
}

/* The plan that the model carries already, if it says where every row lies. */
static bool model_carried(const char *verb, const char *path, cli_model *m)
{
    format_error error = {0};
    bool present = false;
    int32_t *plan = malloc((m->model.tensor_count + 1) * sizeof *plan);
    if (!plan)
        return false;
    /* where scratch lies, no model says */
    if (m->runtime != FORMAT_MICRO || m->model.scratch_count || !format_is_tflite(m->data, m->size)) {
        free(plan);
        return true;
    }
    if (format_tflite_offline(m->data, m->size, m->model.tensor_count, plan, &present, &error))
        fprintf(stderr, "berth %s: %s: the plan in its metadata is not looked at: %s\n", verb, path,
                error.words);
    for (size_t i = 0; i < m->model.tensor_count; i++)
        if (present && m->lives.tensors[i].first != FORMAT_NEVER && plan[i] < 0)
            present = false;
    if (present)
        m->carried = plan;
    else
        free(plan);
    return true;
}

/* The problem as text, which the reader of problems takes like a file. */
static bool model_rows(cli_model *m)
{
    m->rows = calloc(m->model.tensor_count + 1, sizeof *m->rows);
    for (size_t i = 0; m->rows && i < m->model.tensor_count; i++)
        if (m->lives.tensors[i].first != FORMAT_NEVER)
            m->rows[m->row_count++] = (uint32_t)i;
    bool *repeated = m->rows ? rows_repeated(m) : NULL;
    uint32_t *producers = model_producers(&m->model);
    FILE *out = repeated && producers ? open_memstream(&m->text, &m->text_bytes) : NULL;
    bool done = false;
    if (out) {
        fprintf(out, "id,lower,upper,size,alignment,%s%slabel\n", m->groups ? "alias," : "",
                m->carried ? "offset," : "");
        for (size_t i = 0; i < m->row_count; i++)
            put_row(out, m, i, repeated[i], producers[m->rows[i]]);
        done = !ferror(out);
        done = fclose(out) == 0 && done;
    }
    free(repeated);
    free(producers);
    return done;
}

/* ---- Reading ------------------------------------------------------------------------------------------ */

static void model_sum(cli_model *m)
{
    for (size_t i = 0; i < m->model.tensor_count; i++) {
        const format_tensor *tensor = &m->model.tensors[i];
        uint64_t size = format_lives_size(&m->lives, tensor);
        if (tensor->kind == FORMAT_VARIABLE)
            m->variable_bytes += size;
        if (tensor->kind == FORMAT_PERSISTENT)
            m->persistent_bytes += size;
    }
}

static int model_parse(const char *verb, const char *path, const cli_model_options *options, cli_model *m)
{
    format_error error = {0};
    bool used[CLI_LIST_ROOM] = {0};
    format_dims dims = {options->dims.items, options->dims.count, used};
    berth_status status = format_is_tflite(m->data, m->size)
                              ? format_tflite_read(m->data, m->size, &dims, m->runtime, &m->model, &error)
                              : format_onnx_read(m->data, m->size, &dims, &m->model, &error);
    if (!status && options->scratch) {
        int code = cli_scratch_read(verb, options->scratch, &m->model);
        if (code)
            return code;
        m->has_scratch = true;
    }
    if (!status)
        status = format_lives_init(&m->lives, &m->model, m->runtime, options->order, &error);
    if (status) {
        fprintf(stderr, "berth %s: %s: %s\n", verb, path, error.words);
        return cli_exit_for(status);
    }
    for (size_t i = 0; i < dims.count; i++)
        if (!used[i])
            return cli_misuse(verb, "--dim %s: the model leaves no such dimension open", dims.items[i]);
    m->labels = options->labels;
    if (options->order) {
        m->order = malloc((m->model.operator_count + 1) * sizeof *m->order);
        if (!m->order)
            return cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, path);
        memcpy(m->order, options->order, m->model.operator_count * sizeof *m->order);
    }
    m->greedy_bytes = format_greedy(&m->model, &m->lives, m->runtime, NULL, NULL);
    model_sum(m);
    if (options->inplace) {
        m->groups = malloc((m->model.tensor_count + 1) * sizeof *m->groups);
        if (!m->groups)
            return cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, path);
        format_inplace(&m->model, &m->lives, m->groups);
    }
    return model_carried(verb, path, m) && model_rows(m) ? CLI_OK
                                                         : cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, path);
}

int cli_model_read(const char *verb, const char *path, const cli_model_options *options, cli_model **out)
{
    *out = NULL;
    cli_model *m = calloc(1, sizeof *m);
    if (!m)
        return cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, path);
    int code = model_check_dims(verb, options);
    if (!code)
        code = model_runtime(verb, path, options, m);
    if (!code)
        code = model_map(verb, path, m);
    if (!code)
        code = model_parse(verb, path, options, m);
    if (code) {
        cli_model_destroy(m);
        return code;
    }
    *out = m;
    return CLI_OK;
}

int cli_model_rows(const char *verb, const char *path, const cli_model_options *options, int *file,
                   char rows[CLI_ROWS_ROOM])
{
    cli_model *m;
    int code = cli_model_read(verb, path, options, &m);
    if (code || !m)
        return code;
    *file = memfd_create("rows", MFD_CLOEXEC);
    bool kept = *file >= 0;
    for (size_t at = 0; kept && at < m->text_bytes;) {
        ssize_t n = write(*file, m->text + at, m->text_bytes - at);
        kept = n > 0;
        at += kept ? (size_t)n : 0;
    }
    if (!kept) {
        fprintf(stderr, "berth %s: %s: its rows cannot be kept: %s\n", verb, path, strerror(errno));
        if (*file >= 0)
            close(*file);
        *file = -1;
        code = CLI_SURROUNDINGS;
    } else {
        snprintf(rows, CLI_ROWS_ROOM, "/proc/self/fd/%d", *file);
    }
    cli_model_destroy(m);
    return code;
}

int cli_model_find_order(const char *verb, const char *path, const cli_model *m, bool inplace,
                         uint32_t **order, uint64_t *bound)
{
    format_error error = {0};
    *order = malloc((m->model.operator_count + 1) * sizeof **order);
    if (!*order)
        return cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, path);
    berth_status status = format_reorder(&m->model, &m->lives, m->runtime, inplace, *order, bound, &error);
    bool other = false;
    for (size_t i = 0; i < m->model.operator_count; i++)
        other = other || (*order)[i] != i;
    if (status || !other) {
        free(*order);
        *order = NULL;
    }
    if (!status)
        return CLI_OK;
    fprintf(stderr, "berth %s: %s: %s\n", verb, path, error.words);
    return cli_exit_for(status);
}

void cli_model_destroy(cli_model *m)
{
    if (!m)
        return;
    format_lives_finish(&m->lives);
    format_model_finish(&m->model);
    free(m->text);
    free(m->rows);
    free(m->carried);
    free(m->groups);
    free(m->order);
    if (m->data)
        munmap((void *)(uintptr_t)m->data, m->size);
    free(m);
}
