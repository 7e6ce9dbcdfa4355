/* berth run: runs any program with its malloc over Berth's pool. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "berth/config.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/options.h"

enum { PATH_ROOM = 4096, SETTINGS_ROOM = 2048 };

struct run_options {
    const char *report, *settings;
    uint64_t limit_bytes;
};

static int read_options(int argc, char **argv, struct run_options *o, int *command)
{
    int words = 1;
    while (words < argc && strcmp(argv[words], "--") != 0)
        words++;
    const struct cli_option options[] = {
        {"--limit", NULL, CLI_SIZE, &o->limit_bytes},
        {"--report", NULL, CLI_TEXT, &o->report},
        {"--settings", NULL, CLI_TEXT, &o->settings},
    };
    const char *operands[1];
    size_t count = 0;
    int code = cli_options_read("run", words, argv, options, sizeof options / sizeof options[0], operands, 1,
                                &count);
    if (code != CLI_OK)
        return code;
    if (count || words + 1 >= argc)
        return cli_misuse("run", count ? "the program to run comes after '--'"
                                       : "no program to run is given; it comes after '--'");
    if (o->settings && berth_config_check(o->settings) != BERTH_OK)
        return cli_misuse("run", "%s", berth_last_error()->message);
    *command = words + 1;
    return CLI_OK;
}

/* The path as it is from the root: the program may change its folder. */
static void name_report(const char *report, char *path, size_t room)
{
    char folder[PATH_ROOM];
    if (report[0] == '/' || strcmp(report, "-") == 0 || !getcwd(folder, sizeof folder))
        snprintf(path, room, "%s", report);
    else
        snprintf(path, room, "%s/%s", folder, report);
}

/* BERTH_MALLOC as it was, and what was asked for behind it. */
static int set_environment(const struct run_options *o)
{
    char text[SETTINGS_ROOM], report[2 * PATH_ROOM], limit[64];
    const char *before = getenv("BERTH_MALLOC");
    report[0] = limit[0] = 0;
    if (o->report)
        name_report(o->report, report, sizeof report);
    if (strchr(report, ';')) /* it would end the setting, and the program would run without all of them */
        return cli_misuse("run", "the path of the report, %s, has a ';', which separates settings", report);
    if (o->limit_bytes)
        snprintf(limit, sizeof limit, "limit=%llu", (unsigned long long)o->limit_bytes);
    int n = snprintf(text, sizeof text, "%s;%s;%s;%s%s", before ? before : "", o->settings ? o->settings : "",
                     limit, report[0] ? "report=" : "", report);
    if (n < 0 || (size_t)n >= sizeof text)
        return cli_misuse("run", "the settings are too long");
    setenv("BERTH_MALLOC", text, 1);
    return CLI_OK;
}

static int run_run(int argc, char **argv)
{
    struct run_options o = {.report = NULL};
    char library[PATH_ROOM];
    int command = 0;
    int code = read_options(argc, argv, &o, &command);
    if (code == CLI_OK)
        code = cli_launch_check("run", argv[command], ", with Berth's own allocators");
    if (code == CLI_OK)
        code = set_environment(&o);
    if (code == CLI_OK)
        code = cli_launch_find("run", "libberth_malloc.so", "BERTH_MALLOC_LIBRARY", library, sizeof library);
    if (code != CLI_OK)
        return code;
    cli_launch_preload(library);
    execvp(argv[command], argv + command);
    fprintf(stderr, "berth run: %s: %s\n", argv[command], strerror(errno));
    return CLI_SURROUNDINGS;
}

const struct cli_verb cli_verb_run = {
    .name = "run",
    .summary = "run any program with its malloc over Berth's pool",
    .help = "usage: berth run [--limit N] [--report FILE] [--settings TEXT] -- PROGRAM [ARGUMENT...]\n\n"
            "Runs PROGRAM with libberth_malloc.so in front: malloc, free and their family come from Berth's "
            "pool, in\n"
            "it and in the programs that it starts. berth becomes PROGRAM: signals and the exit code are its "
            "own.\n\n"
            "  --limit N        never take more than N bytes from the system for malloc; what would exceed "
            "that gets\n"
            "                   NULL (ENOMEM)\n"
            "  --report FILE    add the figures of each process to FILE when it exits; '-' is its stderr\n"
            "  --settings TEXT  more of BERTH_MALLOC, as 'scopes=yes;guard=yes': every block is then one of "
            "that\n"
            "                   stack, which is slower; 'berth help environment' lists the settings\n\n"
            "Programs that are linked statically, or that run with rights of their own (setuid), cannot be "
            "run so.\n\n"
            "Examples:\n"
            "  berth run --report - -- python3 train.py\n"
            "  berth run --limit 2G -- ./app\n"
            "  berth run --settings guard=yes -- ./app\n",
    .run = run_run,
};
