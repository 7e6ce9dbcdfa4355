/* What the report of a plan says about a model. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/model.h"
#include "cli/size.h"
#include "format/text.h"

static const char *runtime_name(format_runtime runtime)
{
    return runtime == FORMAT_MICRO    ? "TensorFlow Lite Micro"
           : runtime == FORMAT_TFLITE ? "TensorFlow Lite"
                                      : "ONNX Runtime";
}

/* What the interpreter of TensorFlow Lite Micro keeps on a 32-bit machine beside tensors: a record for each tensor and operator with
 * its options and the kernel's data, two numbers for each quantized channel, and its own objects. An estimate: kernels differ. */
static uint64_t model_interpreter_bytes(const cli_model *m)
{
    enum { OWN = 1024, EACH_TENSOR = 12, EACH_OPERATOR = 32 + 32 + 48, EACH_CHANNEL = 8 };
    return OWN + EACH_TENSOR * (uint64_t)(m->model.tensor_count - m->model.scratch_count) +
           EACH_OPERATOR * (uint64_t)m->model.operator_count + EACH_CHANNEL * m->model.channel_count;
}

const char *cli_model_operator(const cli_model *m, int64_t time, char text[CLI_OPERATOR_ROOM])
{
    uint32_t index = time >= 0 && time < m->lives.step_count ? m->lives.steps[time] : UINT32_MAX;
    if (index == UINT32_MAX) {
        snprintf(text, CLI_OPERATOR_ROOM, "the start of %s", time <= 0 ? "the model" : "a subgraph");
        return text;
    }
    const format_operator *op = &m->model.operators[index];
    int used = snprintf(text, CLI_OPERATOR_ROOM, "%.*s, operator %u",
                        op->type.length < 32 ? (int)op->type.length : 32, op->type.bytes, op->local);
    if (op->subgraph)
        used += snprintf(text + used, CLI_OPERATOR_ROOM - (size_t)used, " of subgraph %u", op->subgraph);
    if (op->name.length)
        snprintf(text + used, CLI_OPERATOR_ROOM - (size_t)used, " '%.*s'",
                 op->name.length < 24 ? (int)op->name.length : 24, op->name.bytes);
    return format_text_clean(text);
}

/* What all scratch takes, as if nothing were reused. */
static uint64_t model_scratch_bytes(const cli_model *m)
{
    uint64_t bytes = 0;
    for (size_t i = m->model.tensor_count - m->model.scratch_count; i < m->model.tensor_count; i++)
        bytes += format_lives_size(&m->lives, &m->model.tensors[i]);
    return bytes;
}

static void report_greedy(FILE *out, const cli_model *m, uint64_t peak)
{
    char size[CLI_SIZE_ROOM];
    if (!m->greedy_bytes)
        return;
    fprintf(out, "  runtime's    %12s  ", cli_size_text(m->greedy_bytes, size));
    if (m->runtime == FORMAT_ORT)
        fprintf(out, "best fit in the order of time, close to what %s does", runtime_name(m->runtime));
    else
        fprintf(out, "what %s's own planner takes", runtime_name(m->runtime));
    if (m->greedy_bytes > peak && peak)
        fprintf(out, ", %.2f times the peak", (double)m->greedy_bytes / (double)peak);
    fputc('\n', out);
}

/* How many operators do not run where the file has them. */
static size_t model_moved(const cli_model *m)
{
    size_t moved = 0;
    for (size_t i = 0; m->order && i < m->model.operator_count; i++)
        moved += m->order[i] != i;
    return moved;
}

/* Whether no order of the operators takes less. */
static bool model_order_proven(const cli_model *m, const berth_certificate *c)
{
    return m->order_bound && c->peak_bytes == m->order_bound;
}

static void report_order(FILE *out, const cli_model *m, const berth_certificate *c)
{
    char size[CLI_SIZE_ROOM];
    const size_t moved = model_moved(m);
    if (!m->file_order_bytes)
        return;
    fprintf(out, "  file's order %12s  ", cli_size_text(m->file_order_bytes, size));
    if (moved)
        fprintf(out, "%.2f times the peak; %zu operator%s moved%s\n",
                (double)m->file_order_bytes / (double)c->peak_bytes, moved, moved == 1 ? " is" : "s are",
                model_order_proven(m, c) ? ", and no order takes less" : "");
    else
        fprintf(out, "kept: %s\n",
                model_order_proven(m, c) ? "no order takes less" : "none that takes less was found");
}

void cli_model_report(FILE *out, const cli_model *m, const berth_certificate *c)
{
    char size[CLI_SIZE_ROOM], name[CLI_OPERATOR_ROOM];
    report_greedy(out, m, c->peak_bytes);
    report_order(out, m, c);
    fprintf(out, "\n%s model for %s: %zu operator%s, %zu subgraph%s, %s of constants\n", m->model.format,
            runtime_name(m->runtime), m->model.operator_count, m->model.operator_count == 1 ? "" : "s",
            m->model.subgraph_count, m->model.subgraph_count == 1 ? "" : "s",
            cli_size_text(m->model.constant_bytes, size));
    fprintf(out, "  activations  %12s  planned and proven; most at %s\n", cli_size_text(c->peak_bytes, size),
            cli_model_operator(m, c->binding_time, name));
    fprintf(out, "  variables    %12s  kept from run to run\n", cli_size_text(m->variable_bytes, size));
    if (m->persistent_bytes)
        fprintf(out, "  computed     %12s  once and kept: DEQUANTIZE of constants\n",
                cli_size_text(m->persistent_bytes, size));
    if (m->runtime == FORMAT_MICRO)
        fprintf(out, "  interpreter  %12s  an estimate of its own structures on a 32-bit machine\n",
                cli_size_text(model_interpreter_bytes(m), size));
    if (m->has_scratch)
        fprintf(out, "  scratch      %12s  of kernels, %zu buffer%s: part of the plan\n",
                cli_size_text(model_scratch_bytes(m), size), m->model.scratch_count,
                m->model.scratch_count == 1 ? "" : "s");
    else
        fprintf(out, "  scratch      %12s  of kernels: not modelled; --scratch FILE adds it\n", "unknown");
    if (m->model.free_dimensions)
        fprintf(out, "  %zu dimension%s left open by the file %s the stored size; --dim sets them\n",
                m->model.free_dimensions, m->model.free_dimensions == 1 ? "" : "s",
                m->model.free_dimensions == 1 ? "has" : "have");
    if (m->runtime == FORMAT_TFLITE && m->model.subgraph_count > 1)
        fprintf(out, "  the runtime gives each subgraph an arena of its own; here they share one\n");
}

/* How many bytes the character at `text` takes if it is good UTF-8, else 0. */
static size_t character_bytes(const unsigned char *text, size_t room)
{
    size_t bytes = text[0] < 0x80                      ? 1
                   : text[0] >= 0xc2 && text[0] < 0xe0 ? 2
                   : text[0] >= 0xe0 && text[0] < 0xf0 ? 3
                   : text[0] >= 0xf0 && text[0] < 0xf5 ? 4
                                                       : 0;
    for (size_t i = 1; i < bytes; i++)
        if (i >= room || (text[i] & 0xc0) != 0x80)
            return 0;
    return bytes;
}

/* A name as JSON may hold it: what is no UTF-8 is made harmless, a very long one shortened. */
static const char *json_name(format_text name, char *text, size_t room)
{
    size_t used = 0;
    for (size_t i = 0; i < name.length;) {
        size_t bytes = character_bytes((const unsigned char *)name.bytes + i, name.length - i);
        if (used + (bytes ? bytes : 1) >= room)
            break;
        if (bytes && name.bytes[i])
            memcpy(text + used, name.bytes + i, bytes);
        else
            text[used] = '?';
        used += bytes ? bytes : 1;
        i += bytes ? bytes : 1;
    }
    text[used] = 0;
    return text;
}

static void json_tensors(cli_json *json, const cli_model *m, const uint64_t *offsets, bool scratch)
{
    char name[256];
    cli_json_list_begin(json, scratch ? "scratch" : "tensors");
    for (size_t i = 0; i < m->row_count; i++) {
        const format_tensor *tensor = &m->model.tensors[m->rows[i]];
        const format_life *life = &m->lives.tensors[m->rows[i]];
        if ((tensor->kind == FORMAT_SCRATCH) != scratch)
            continue;
        cli_json_item_begin(json);
        if (!scratch)
            cli_json_text(json, "name", json_name(tensor->name, name, sizeof name));
        cli_json_number(json, "subgraph", tensor->subgraph);
        if (scratch)
            cli_json_number(json, "operator", m->model.operators[tensor->owner].local);
        cli_json_number(json, "index", tensor->local);
        cli_json_signed(json, "lower", life->first);
        cli_json_signed(json, "upper", life->last + 1);
        cli_json_number(json, "size", format_lives_size(&m->lives, tensor));
        cli_json_number(json, "offset", offsets[i]);
        cli_json_item_end(json);
    }
    cli_json_list_end(json);
}

/* In which order operators run, each by its number in the file. */
static void json_order(cli_json *json, const cli_model *m, const berth_certificate *c)
{
    cli_json_number(json, "file_order_peak", m->file_order_bytes);
    cli_json_bool(json, "order_proven", model_order_proven(m, c));
    if (!m->order) {
        cli_json_null(json, "order");
        return;
    }
    cli_json_list_begin(json, "order");
    for (size_t i = 0; i < m->model.operator_count; i++) {
        const format_operator *op = &m->model.operators[m->order[i]];
        cli_json_item_begin(json);
        cli_json_number(json, "subgraph", op->subgraph);
        cli_json_number(json, "operator", op->local);
        cli_json_item_end(json);
    }
    cli_json_list_end(json);
}

void cli_model_json(cli_json *json, const cli_model *m, const berth_certificate *c, const uint64_t *offsets)
{
    char name[CLI_OPERATOR_ROOM];
    cli_json_text(json, "format", m->model.format);
    cli_json_text(json, "runtime", runtime_name(m->runtime));
    cli_json_number(json, "operators", m->model.operator_count);
    char clean[2 * CLI_OPERATOR_ROOM];
    cli_model_operator(m, c->binding_time, name);
    cli_json_text(json, "peak_operator", json_name((format_text){name, strlen(name)}, clean, sizeof clean));
    if (m->greedy_bytes)
        cli_json_number(json, "runtime_bytes", m->greedy_bytes);
    else
        cli_json_null(json, "runtime_bytes");
    cli_json_number(json, "constant_bytes", m->model.constant_bytes);
    cli_json_number(json, "variable_bytes", m->variable_bytes);
    cli_json_number(json, "persistent_bytes", m->persistent_bytes);
    if (m->runtime == FORMAT_MICRO)
        cli_json_number(json, "interpreter_estimate_bytes", model_interpreter_bytes(m));
    else
        cli_json_null(json, "interpreter_estimate_bytes");
    if (m->has_scratch)
        cli_json_number(json, "scratch_bytes", model_scratch_bytes(m));
    else
        cli_json_null(json, "scratch_bytes");
    if (m->file_order_bytes)
        json_order(json, m, c);
    json_tensors(json, m, offsets, false);
    if (m->has_scratch)
        json_tensors(json, m, offsets, true);
}
