/* A model of a neural network as a problem: which tensors live when, and what the runtime itself would take. */
#ifndef BERTH_CLI_MODEL_H
#define BERTH_CLI_MODEL_H

#include "berth/problem_file.h"
#include "cli/json.h"
#include "cli/options.h"
#include "format/model.h"

/* What the label of a row tells; its id is the tensor's name. */
typedef enum cli_model_labels {
    CLI_MODEL_SHAPES,    /* "f32 [1 64] Relu" */
    CLI_MODEL_NAMES,     /* "act1 (f32 [1 64] Relu)", for readers who look at labels alone */
    CLI_MODEL_OPERATORS, /* "act1 (Relu)", the same when shapes change */
} cli_model_labels;

/* What a verb may say about how a model is read. */
typedef struct cli_model_options {
    cli_list dims;
    bool inplace;          /* operators may write over their inputs */
    const char *scratch;   /* a file with what kernels need; NULL: none */
    const char *runtime;   /* micro, tflite or ort; NULL: by the format */
    const char *device;    /* of a history: whose memory; NULL: where the peak is largest */
    const uint32_t *order; /* as format_lives_init takes it; NULL: the file's */
    cli_model_labels labels;
} cli_model_options;

/* The rows of the options that belong to models, for a verb's table. */
#define CLI_MODEL_OPTIONS(options)                                                                 \
    {"--dim", NULL, CLI_LIST, &(options).dims}, {"--runtime", NULL, CLI_TEXT, &(options).runtime}, \
        {"--scratch", NULL, CLI_TEXT, &(options).scratch},                                         \
    {                                                                                              \
        "--inplace", NULL, CLI_FLAG, &(options).inplace                                            \
    }

typedef struct cli_model {
    const uint8_t *data;
    size_t size;
    format_model model;
    format_lives lives;
    format_runtime runtime;
    cli_model_labels labels;
    char *text; /* the problem as CSV */
    size_t text_bytes;
    uint32_t *groups; /* by tensor, NULL: every tensor has a place of its own */
    uint32_t *rows;   /* the tensor of each row */
    size_t row_count;
    uint64_t greedy_bytes; /* 0: not known */
    uint64_t variable_bytes, persistent_bytes;
    bool has_scratch;          /* a file said what kernels need */
    uint32_t *order;           /* of its operators; NULL: the file's */
    uint64_t file_order_bytes; /* the peak in the file's order, if another one was looked for; else 0 */
    uint64_t order_bound;      /* what no order can do without; 0: not known */
    int32_t *carried; /* by tensor: the plan in its metadata, if that has a place for every row; else NULL */
} cli_model;

/* Whether the file is a model, by its bytes or its name. False for what cannot be read: another reader complains. */
bool cli_is_model(const char *path);

/* CLI_OK if `path` is a model or the options say nothing about one; else CLI_MISUSE after a complaint. */
int cli_model_options_check(const char *verb, const char *path, const cli_model_options *options);

/* CLI_OK with *out, or the exit code after a complaint. */
int cli_model_read(const char *verb, const char *path, const cli_model_options *options, cli_model **out);
void cli_model_destroy(cli_model *model);

/* The model's problem as rows in a file without a name, for readers of files: *file, which the caller closes, by the path in `rows`.
 * CLI_OK, or the exit code after a complaint. */
enum { CLI_ROWS_ROOM = 32 };
int cli_model_rows(const char *verb, const char *path, const cli_model_options *options, int *file,
                   char rows[CLI_ROWS_ROOM]);

/* Reads a file of scratch into the model. CLI_OK, or the exit code after a complaint. */
int cli_scratch_read(const char *verb, const char *path, format_model *model);

/* The name of the operator that runs at a time, with its number. */
enum { CLI_OPERATOR_ROOM = 96 };
const char *cli_model_operator(const cli_model *model, int64_t time, char text[CLI_OPERATOR_ROOM]);

/* What the report says beyond the plan. */
void cli_model_report(FILE *out, const cli_model *model, const berth_certificate *certificate);
void cli_model_json(cli_json *json, const cli_model *model, const berth_certificate *certificate,
                    const uint64_t *offsets);

/* An order of the operators that holds less at once: *order, which the caller frees, NULL if none was found; *bound is what no order can
 * do without, 0 if that is not known. CLI_OK, or the exit code after a complaint. */
int cli_model_find_order(const char *verb, const char *path, const cli_model *model, bool inplace,
                         uint32_t **order, uint64_t *bound);

/* Writes the model with the plan in its metadata. CLI_OK, or the exit code after a complaint. */
int cli_model_write(const char *verb, const cli_model *model, const uint64_t *offsets, uint64_t peak,
                    const char *path);

/* Writes any plan as constants for C and C++. The same. */
int cli_header_write(const char *verb, const berth_problem_file *file, const uint64_t *offsets, uint64_t peak,
                     const char *path);

#endif
