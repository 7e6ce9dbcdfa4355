/* JSON as the verbs print it: one object, a fact a line; a fact may be a list of such objects. */
#ifndef BERTH_CLI_JSON_H
#define BERTH_CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct cli_json {
    FILE *out;
    bool started; /* the innermost object or list has something in it */
    int depth;    /* of lists and their items */
} cli_json;

void cli_json_begin(cli_json *json, FILE *out);
void cli_json_end(cli_json *json);
void cli_json_text(cli_json *json, const char *key, const char *value); /* NULL: null */
void cli_json_number(cli_json *json, const char *key, uint64_t value);
void cli_json_signed(cli_json *json, const char *key, int64_t value);
void cli_json_real(cli_json *json, const char *key, double value);
void cli_json_bool(cli_json *json, const char *key, bool value);
void cli_json_numbers(cli_json *json, const char *key, const uint64_t *values,
                      size_t count); /* on one line */
void cli_json_null(cli_json *json, const char *key);
/* A list of objects under `key`; between item_begin and item_end facts go into the item. */
void cli_json_list_begin(cli_json *json, const char *key);
void cli_json_item_begin(cli_json *json);
void cli_json_item_end(cli_json *json);
void cli_json_list_end(cli_json *json);

#endif
