/* The start: what BERTH_MALLOC asks for, before the first constructor of anybody else (the library is linked with
 * -z initfirst). The environment comes from the loader: the C library has not looked at it yet. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "berth/log.h"
#include "preload/malloc/malloc.h"

enum { SETTINGS_MOST = 2048 };

static char **environment;

static const char *look_up(const char *name)
{
    size_t length = strlen(name);
    for (char **at = environment; at && *at; at++)
        if (strncmp(*at, name, length) == 0 && (*at)[length] == '=')
            return *at + length + 1;
    return NULL;
}

/* What Berth asks of the environment (the linker sends getenv here). BERTH_CONF and its kin are meant for the library that
 * the program itself uses, if it does. */
char *__wrap_getenv(const char *name);
char *__wrap_getenv(const char *name)
{
    return strcmp(name, "BERTH_LOG") == 0 ? (char *)look_up(name) : NULL;
}

static void log_line(void *context, berth_log_level level, const char *line)
{
    (void)context;
    report_line("%s: %s", level >= BERTH_LOG_ERROR ? "error" : "warning", line);
}

/* ---- Settings ------------------------------------------------------------------------------------------ */

struct start_settings {
    uint64_t limit_bytes;
    char report[BERTH__CONFIG_PATH];
    char stack[SETTINGS_MOST]; /* all other settings */
};

/* Those that choose a source, which is the pool here. */
static bool is_of_source(const char *word)
{
    static const char *const keys[] = {"huge_pages=", "numa_node=", "prefault=", "lock_pages=", "pool="};
    for (size_t i = 0; i < BERTH_COUNT_OF(keys); i++)
        if (strncmp(word, keys[i], strlen(keys[i])) == 0)
            return true;
    return false;
}

static berth_status read_word(const char *word, struct start_settings *out)
{
    if (strncmp(word, "report=", 7) == 0) {
        const char *value = word + 7;
        if (strcmp(value, "yes") == 0 || strcmp(value, "1") == 0)
            value = "-";
        else if (strcmp(value, "no") == 0 || strcmp(value, "0") == 0)
            value = "";
        if (strlen(value) >= sizeof out->report)
            return berth__fail(BERTH_INVALID_ARGUMENT, "the report's name is too long");
        memcpy(out->report, value, strlen(value) + 1);
        return BERTH_OK;
    }
    if (is_of_source(word))
        return berth__fail(BERTH_INVALID_ARGUMENT, "%s: malloc's memory is always the pool's", word);
    berth__config config;
    berth_status status = berth__config_read(word, &config);
    if (status)
        return status;
    if (strncmp(word, "limit=", 6) == 0) {
        out->limit_bytes = (uint64_t)config.limit_bytes;
        return BERTH_OK;
    }
    size_t length = strlen(out->stack); /* all of them are no longer than what they came from */
    snprintf(out->stack + length, sizeof out->stack - length, "%s%s", length ? ";" : "", word);
    return BERTH_OK;
}

static char *without_blanks(char *word)
{
    word += strspn(word, " \t");
    size_t length = strlen(word);
    while (length && (word[length - 1] == ' ' || word[length - 1] == '\t'))
        word[--length] = 0;
    return word;
}

static berth_status read_settings(const char *text, struct start_settings *out)
{
    char copy[SETTINGS_MOST], *rest = NULL;
    size_t length = strlen(text);
    if (length >= sizeof copy)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the settings are longer than %zu bytes", sizeof copy - 1);
    memcpy(copy, text, length + 1);
    for (char *word = strtok_r(copy, ";", &rest); word; word = strtok_r(NULL, ";", &rest)) {
        word = without_blanks(word);
        berth_status status = *word ? read_word(word, out) : BERTH_OK;
        if (status)
            return status;
    }
    return BERTH_OK;
}

static void complain(const char *text, const char *words)
{
    report_line("error: BERTH_MALLOC=%s is ignored: %s", text, words);
}

/* ---- The start ------------------------------------------------------------------------------------------ */

__attribute__((constructor(101))) static void start_first(int argc, char **argv, char **envp)
{
    (void)argc, (void)argv;
    environment = envp;
    environ =
        envp; /* as the C library will: a library that is loaded from here on begins that too, with what stands here */
    forks_watch_bookkeeping();
}

/* After Berth's own constructors. */
__attribute__((constructor(300))) static void start_last(void)
{
    struct start_settings settings = {.limit_bytes = 0}, defaults = {.limit_bytes = 0};
    const char *text = look_up("BERTH_MALLOC");
    if (!look_up("BERTH_LOG")) /* else its lines go where that says */
        berth_log_set(log_line, NULL, BERTH_LOG_ERROR);
    if (text && read_settings(text, &settings) != BERTH_OK) {
        complain(text, berth_last_error()->message);
        settings = defaults;
    }
    large_settings wanted = {settings.limit_bytes, settings.stack};
    if (large_start(&wanted) != BERTH_OK)
        report_line("error: there is no pool, and malloc does without: %s", berth_last_error()->message);
    forks_watch_all();
    report_at_exit(settings.report);
    berth_clear_last_error();
}
