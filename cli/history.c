/* A history that a verb was given. */
#include "cli/history.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "format/inputs.h"
#include "format/outputs.h"

enum { HEAD_BYTES = 4096 };

/* What waits in a pipe stays there: tee copies it. */
static ssize_t peek_pipe(int pipe_end, void *head, size_t room)
{
    int copy[2];
    if (pipe(copy) != 0)
        return -1;
    ssize_t n = tee(pipe_end, copy[1], room, 0);
    if (n > 0)
        n = read(copy[0], head, (size_t)n);
    close(copy[0]);
    close(copy[1]);
    return n;
}

/* Opens what can be looked at and stays as it is: a file, or a pipe that somebody else holds open (the shell's /dev/fd/63). A pipe by
 * name is not opened: who writes to it would be ended when it is closed. */
static int peek_open(const char *path)
{
    struct stat about;
    if (strcmp(path, "-") == 0)
        return dup(STDIN_FILENO);
    bool can = stat(path, &about) == 0 &&
               (S_ISREG(about.st_mode) || (S_ISFIFO(about.st_mode) && strncmp(path, "/dev/fd/", 8) == 0));
    return can ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

static ssize_t peek(int file, void *head, size_t room)
{
    struct stat about;
    if (fstat(file, &about) != 0)
        return -1;
    if (S_ISREG(about.st_mode))
        return pread(file, head, room, 0);
    return S_ISFIFO(about.st_mode) ? peek_pipe(file, head, room) : -1;
}

bool cli_is_history(const char *path)
{
    unsigned char head[HEAD_BYTES];
    const char *looks_like;
    int file = peek_open(path);
    ssize_t n = file >= 0 ? peek(file, head, sizeof head) : -1;
    if (file >= 0)
        close(file);
    format_input input = n > 0 ? format_recognise(head, (size_t)n, &looks_like) : FORMAT_INPUT_UNKNOWN;
    /* a model from a pipe: who reads it as a history says that it needs a file */
    return format_input_is_history(input) || input == FORMAT_INPUT_TFLITE;
}

static void say_notices(const char *verb, const char *name, const format_history *h)
{
    for (uint32_t i = 0; i < h->notice_count; i++)
        fprintf(stderr, "berth %s: %s: %s\n", verb, name, h->notices[i].words);
    if (h->unknown_frees)
        fprintf(stderr, "berth %s: %s: %" PRIu64 " free%s from before the recording %s left out\n", verb,
                name, h->unknown_frees, h->unknown_frees == 1 ? " of a block" : "s of blocks",
                h->unknown_frees == 1 ? "is" : "are");
    if (h->lost_frees)
        fprintf(stderr, "berth %s: %s: %" PRIu64 " block%s freed without a word: the address came again\n",
                verb, name, h->lost_frees, h->lost_frees == 1 ? " was" : "s were");
}

int cli_history_read(const char *verb, const char *path, const cli_model_options *options, format_history *h)
{
    cli_model_options how = options ? *options : (cli_model_options){0};
    char rows[CLI_ROWS_ROOM];
    int file = -1;
    if (how.labels == CLI_MODEL_SHAPES) /* a history has no place for ids */
        how.labels = CLI_MODEL_NAMES;
    int code = cli_model_options_check(verb, path, &how);
    if (!code && cli_is_model(path))
        code = cli_model_rows(verb, path, &how, &file, rows);
    if (code)
        return code;
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    char doing[256];
    cli_progress progress;
    format_error error;
    snprintf(doing, sizeof doing, "reading %.200s", name);
    cli_progress_begin(&progress, doing);
    berth_status status =
        format_history_read(file >= 0 ? rows : path, h, cli_progress_show, &progress, &error);
    cli_progress_end(&progress);
    if (file >= 0)
        close(file);
    if (status) {
        fprintf(stderr, "berth %s: %s\n", verb, error.words);
        return cli_exit_for(status);
    }
    say_notices(verb, name, h);
    return CLI_OK;
}

static const char *device_name(const format_history *h, uint32_t device)
{
    return device ? format_history_words(h, h->devices[device].name) : "host";
}

int cli_history_device(const char *verb, const format_history *h, const char *name, uint16_t *device)
{
    if (!name) {
        *device = format_main_device(h);
        if (format_used_devices(h) > 1)
            fprintf(stderr,
                    "berth %s: of several devices %s is taken, which has the largest peak; --device "
                    "names another\n",
                    verb, device_name(h, *device));
        return CLI_OK;
    }
    *device = format_find_device(h, name);
    if (*device != FORMAT_ANY_DEVICE)
        return CLI_OK;
    char all[256] = "host";
    for (uint32_t i = 1; i < h->device_count && strlen(all) < 200; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), ", %.40s", device_name(h, i));
    return cli_misuse(verb, "there is no device '%s' in it; there are %s", name, all);
}
