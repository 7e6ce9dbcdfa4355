/* JSON as the verbs print it. */
#include "cli/json.h"

#include <inttypes.h>

#include "format/text.h"

/* Names come from files, in any encoding; JSON is UTF-8. */
static void put_string(FILE *out, const char *text)
{
    fputc('"', out);
    while (*text) {
        unsigned char c = (unsigned char)*text;
        size_t length = format_text_character(text);
        if (!length)
            fputs("\\ufffd", out);
        else if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < ' ' || c == 127)
            fprintf(out, "\\u%04x", c);
        else
            fwrite(text, 1, length, out);
        text += length ? length : 1;
    }
    fputc('"', out);
}

/* A new line for the next thing in the innermost object or list. */
static void next_line(cli_json *json)
{
    fprintf(json->out, "%s\n%*s", json->started ? "," : "", 2 + 2 * json->depth, "");
    json->started = true;
}

static void key_of(cli_json *json, const char *key)
{
    next_line(json);
    put_string(json->out, key);
    fputs(": ", json->out);
}

void cli_json_begin(cli_json *json, FILE *out)
{
    *json = (cli_json){.out = out};
    fputc('{', out);
}

void cli_json_end(cli_json *json)
{
    fputs("\n}\n", json->out);
}

void cli_json_text(cli_json *json, const char *key, const char *value)
{
    if (!value) {
        cli_json_null(json, key);
        return;
    }
    key_of(json, key);
    put_string(json->out, value);
}

void cli_json_number(cli_json *json, const char *key, uint64_t value)
{
    key_of(json, key);
    fprintf(json->out, "%" PRIu64, value);
}

void cli_json_numbers(cli_json *json, const char *key, const uint64_t *values, size_t count)
{
    key_of(json, key);
    fputc('[', json->out);
    for (size_t i = 0; i < count; i++)
        fprintf(json->out, "%s%" PRIu64, i ? ", " : "", values[i]);
    fputc(']', json->out);
}

void cli_json_signed(cli_json *json, const char *key, int64_t value)
{
    key_of(json, key);
    fprintf(json->out, "%" PRId64, value);
}

void cli_json_real(cli_json *json, const char *key, double value)
{
    key_of(json, key);
    fprintf(json->out, "%.6f", value);
}

void cli_json_bool(cli_json *json, const char *key, bool value)
{
    key_of(json, key);
    fputs(value ? "true" : "false", json->out);
}

void cli_json_null(cli_json *json, const char *key)
{
    key_of(json, key);
    fputs("null", json->out);
}

static void open_with(cli_json *json, char bracket)
{
    fputc(bracket, json->out);
    json->depth++;
    json->started = false;
}

static void close_with(cli_json *json, char bracket)
{
    json->depth--;
    if (json->started)
        fprintf(json->out, "\n%*s", 2 + 2 * json->depth, "");
    fputc(bracket, json->out);
    json->started = true;
}

void cli_json_list_begin(cli_json *json, const char *key)
{
    key_of(json, key);
    open_with(json, '[');
}

void cli_json_item_begin(cli_json *json)
{
    next_line(json);
    open_with(json, '{');
}

void cli_json_item_end(cli_json *json)
{
    close_with(json, '}');
}

void cli_json_list_end(cli_json *json)
{
    close_with(json, ']');
}
