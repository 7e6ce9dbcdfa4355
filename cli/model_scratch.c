/* Reads a file of scratch: what kernels ask for while they are prepared, a row a buffer. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/model.h"
#include "cli/size.h"

enum { COLUMN_OPERATOR, COLUMN_BYTES, COLUMN_SUBGRAPH, COLUMN_COUNT, MOST_FIELDS = 16 };
static const char *const columns[COLUMN_COUNT] = {"operator", "bytes", "subgraph"};

typedef struct scratch_file {
    const char *verb, *path;
    format_model *model;
    size_t line;
    int places[COLUMN_COUNT]; /* of the columns, -1 where there is none */
    int field_count;
} scratch_file;

static int scratch_fail(const scratch_file *f, const char *column, const char *value, const char *words)
{
    fprintf(stderr, "berth %s: %s: line %zu", f->verb, f->path, f->line);
    if (column)
        fprintf(stderr, ", column `%s`: '%s'", column, value);
    fprintf(stderr, "%s%s\n", column ? " " : ": ", words);
    return CLI_BAD_INPUT;
}

/* Cuts the line at commas, blanks around fields taken off. How many there are. */
static int scratch_split(char *line, char *fields[MOST_FIELDS])
{
    int count = 0;
    for (char *at = line; at && count < MOST_FIELDS;) {
        char *comma = strchr(at, ',');
        if (comma)
            *comma = 0;
        while (isspace((unsigned char)*at))
            at++;
        for (char *end = at + strlen(at); end > at && isspace((unsigned char)end[-1]);)
            *--end = 0;
        fields[count++] = at;
        at = comma ? comma + 1 : NULL;
    }
    return count;
}

static int scratch_header(scratch_file *f, char *fields[MOST_FIELDS], int count)
{
    f->field_count = count;
    for (int k = 0; k < COLUMN_COUNT; k++) {
        f->places[k] = -1;
        for (int i = 0; i < count; i++)
            if (strcmp(fields[i], columns[k]) == 0)
                f->places[k] = i;
    }
    if (f->places[COLUMN_OPERATOR] < 0 || f->places[COLUMN_BYTES] < 0)
        return scratch_fail(f, NULL, NULL,
                            "the header must name the columns operator and bytes, and may name subgraph");
    return CLI_OK;
}

/* A field as a whole number; false if it is none. */
static bool scratch_number(const char *text, uint64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return isdigit((unsigned char)*text) && !*end && !errno;
}

static int scratch_row(scratch_file *f, char *fields[MOST_FIELDS], int count)
{
    uint64_t operator, bytes, subgraph = 0;
    const char *graph = f->places[COLUMN_SUBGRAPH] >= 0 && f->places[COLUMN_SUBGRAPH] < count
                            ? fields[f->places[COLUMN_SUBGRAPH]]
                            : "";
    if (count != f->field_count)
        return scratch_fail(f, NULL, NULL, "the row has not as many fields as the header");
    const char *number = fields[f->places[COLUMN_OPERATOR]], *size = fields[f->places[COLUMN_BYTES]];
    if (*graph && (!scratch_number(graph, &subgraph) || subgraph >= f->model->subgraph_count))
        return scratch_fail(f, "subgraph", graph, "is no subgraph of the model");
    const format_subgraph *s = f->model->subgraph_count ? &f->model->subgraphs[subgraph] : NULL;
    if (!s || !scratch_number(number, &operator) || operator>= s->operator_count)
        return scratch_fail(f, "operator", number,
                            "is no operator of the subgraph; they are numbered from 0");
    if (!cli_size_read(size, &bytes))
        return scratch_fail(f, "bytes", size, "is no number of bytes such as 4096, 512K or 1.5M");
    if (bytes > UINT64_MAX >> 12)
        return scratch_fail(f, "bytes", size, "is more than can be counted");
    if (!format_add_scratch(f->model, s->operator_first + (uint32_t) operator, bytes))
        return cli_fail(f->verb, BERTH_OUT_OF_HOST_MEMORY, f->path);
    return CLI_OK;
}

int cli_scratch_read(const char *verb, const char *path, format_model *model)
{
    scratch_file f = {.verb = verb, .path = path, .model = model};
    FILE *file = fopen(path, "re");
    char line[1024], *fields[MOST_FIELDS];
    int code = CLI_OK;
    bool has_header = false;
    if (!file) {
        fprintf(stderr, "berth %s: %s: cannot be opened: %s\n", verb, path, strerror(errno));
        return CLI_SURROUNDINGS;
    }
    while (!code && fgets(line, sizeof line, file)) {
        f.line++;
        if (!strchr(line, '\n') && !feof(file)) {
            code = scratch_fail(&f, NULL, NULL, "the line is longer than 1023 characters");
            break;
        }
        const int count = scratch_split(line, fields);
        if (count == 1 && !*fields[0])
            continue;
        code = has_header ? scratch_row(&f, fields, count) : scratch_header(&f, fields, count);
        has_header = true;
    }
    if (!code && ferror(file)) {
        fprintf(stderr, "berth %s: %s: it cannot be read: %s\n", verb, path, strerror(errno));
        code = CLI_SURROUNDINGS;
    }
    fclose(file);
    return code;
}
