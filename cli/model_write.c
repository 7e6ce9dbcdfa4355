/* Gives a plan back: as a model that carries it, or as constants for a C program. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/model.h"
#include "cli/problem.h"
#include "cli/size.h"
#include "format/tflite.h"

/* TensorFlow Lite Micro looks offsets up by a tensor's number in its own subgraph, so that tensors of several subgraphs read one
 * place. A number stays out of the plan (the runtime then chooses) where two that need room would read it, by this count or by one
 * that goes on through all subgraphs. */
static void drop_ambiguous(const format_model *model, const format_lives *lives, int32_t *plan)
{
    const size_t count = model->tensor_count - model->scratch_count;
    for (size_t i = 0; i < count && model->subgraph_count > 1; i++) {
        const format_tensor *tensor = &model->tensors[i];
        if (lives->tensors[i].first == FORMAT_NEVER || !tensor->subgraph)
            continue;
        plan[i] = -1;
        plan[tensor->local] = -1;
    }
}

static int32_t *plan_by_tensor(const cli_model *m, const uint64_t *offsets)
{
    int32_t *plan = malloc((m->model.tensor_count + 1) * sizeof *plan);
    if (!plan)
        return NULL;
    memset(plan, 0xff, m->model.tensor_count * sizeof *plan);
    for (size_t i = 0; i < m->row_count; i++)
        if (m->model.tensors[m->rows[i]].kind != FORMAT_SCRATCH)
            plan[m->rows[i]] = offsets[i] <= INT32_MAX ? (int32_t)offsets[i] : -1;
    drop_ambiguous(&m->model, &m->lives, plan);
    return plan;
}

/* What the runtime takes with these offsets, where it chooses some itself. */
static uint64_t taken_with(const cli_model *m, const int32_t *plan)
{
    int64_t *pins = malloc((m->model.tensor_count + 1) * sizeof *pins);
    if (!pins)
        return 0;
    for (size_t i = 0; i < m->model.tensor_count; i++)
        pins[i] = plan[i];
    uint64_t taken = format_greedy(&m->model, &m->lives, m->runtime, pins, NULL);
    free(pins);
    return taken;
}

int cli_model_write(const char *verb, const cli_model *m, const uint64_t *offsets, uint64_t peak,
                    const char *path)
{
    format_error error = {0};
    uint8_t *out = NULL;
    size_t size = 0;
    if (!format_is_tflite(m->data, m->size) || m->runtime != FORMAT_MICRO)
        return cli_misuse(verb, "--write is for .tflite models as TensorFlow Lite Micro runs them");
    int32_t *plan = plan_by_tensor(m, offsets);
    if (!plan)
        return cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, path);
    uint64_t taken = taken_with(m, plan);
    berth_status status =
        format_tflite_write(m->data, m->size, plan, m->model.tensor_count - m->model.scratch_count, m->order,
                            &out, &size, &error);
    free(plan);
    if (status) {
        fprintf(stderr, "berth %s: %s\n", verb, error.words);
        return cli_exit_for(status);
    }
    int code = cli_write_whole(verb, path, out, size);
    free(out);
    if (!code && taken > peak)
        fprintf(stderr,
                "berth %s: %s: the model cannot hold every offset (%s), so that some are left to the "
                "runtime; it takes "
                "%" PRIu64 " bytes\n",
                verb, path,
                m->model.scratch_count ? "none of scratch" : "one for each number in all subgraphs", taken);
    return code;
}

/* ---- A header ----------------------------------------------------------------------------------------- */

static void put_comment(FILE *out, const char *text)
{
    for (; *text; text++)
        fputc(*text == '*' || *text == '/' || *text == '\\' ? '_' : *text, out);
}

/* What names in a header begin with: the file's name, so that a program can have several. The second is in capitals. */
typedef struct header_words {
    char small[256], large[256];
} header_words;

static header_words header_words_of(const char *path)
{
    header_words words = {{0}, {0}};
    const char *slash = strrchr(path, '/'), *from = slash ? slash + 1 : path;
    const size_t length = strlen(from) - strlen(".h");
    for (size_t i = 0; i < length && i + 1 < sizeof words.small; i++) {
        const char c = from[i];
        const bool is_small = c >= 'a' && c <= 'z', is_large = c >= 'A' && c <= 'Z';
        const bool is_other = (c >= '0' && c <= '9') || c == '_';
        words.small[i] = (char)(is_large ? c - 'A' + 'a' : is_small || is_other ? c : '_');
        words.large[i] = (char)(is_small ? c - 'a' + 'A' : is_large || is_other ? c : '_');
    }
    return words;
}

static void put_header(FILE *out, const berth_problem_file *file, const uint64_t *offsets, uint64_t peak,
                       const header_words *words)
{
    const berth_problem *problem = berth_problem_file_problem(file);
    const char *large = words->large;
    char id[CLI_ID_ROOM];
    fprintf(out,
            "/* A plan made by berth: where each buffer lies in one arena. */\n"
            "#ifndef BERTH_%s_GENERATED_H\n#define BERTH_%s_GENERATED_H\n\n"
            "#define BERTH_%s_BYTES %" PRIu64 "u\n#define BERTH_%s_BUFFERS %zuu\n\n",
            large, large, large, peak, large, problem->buffer_count);
    fprintf(
        out,
        "/* Define BERTH_%s_ARENA_BYTES as the size of the arena before this file is included. */\n"
        "#ifdef BERTH_%s_ARENA_BYTES\n#ifdef __cplusplus\n"
        "static_assert(BERTH_%s_ARENA_BYTES >= BERTH_%s_BYTES, \"the arena is too small for the plan\");\n"
        "#else\n"
        "_Static_assert(BERTH_%s_ARENA_BYTES >= BERTH_%s_BYTES, \"the arena is too small for the plan\");\n"
        "#endif\n#endif\n\n"
        "static const unsigned long long berth_%s_offsets[] = {\n",
        large, large, large, large, large, large, words->small);
    for (size_t i = 0; i < problem->buffer_count; i++) {
        fprintf(out, "    %" PRIu64 "u, /* ", offsets[i]);
        put_comment(out, cli_problem_id(file, i, id));
        fprintf(out, ", %" PRIu64 " bytes */\n", problem->buffers[i].size_bytes);
    }
    fprintf(out, "%s};\n\n#endif\n", problem->buffer_count ? "" : "    0\n");
}

int cli_header_write(const char *verb, const berth_problem_file *file, const uint64_t *offsets, uint64_t peak,
                     const char *path)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, path);
    const header_words words = header_words_of(path);
    put_header(out, file, offsets, peak, &words);
    bool done = !ferror(out);
    done = fclose(out) == 0 && done;
    int code =
        done ? cli_write_whole(verb, path, text, size) : cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, path);
    free(text);
    return code;
}
