/* berth record: runs any program and keeps what it does with its memory in a trace. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "berth/trace.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/options.h"
#include "cli/place.h"
#include "cli/progress.h"
#include "cli/size.h"
#include "format/repack.h"

enum { PATH_ROOM = 4096, WORDS_MOST = 1, STACKS_MOST = 64 };

struct record_options {
    const char *output;
    uint64_t stacks, min_bytes;
    bool redact, paused, quiet, no_symbols;
};

static char live_path[PATH_ROOM + 8]; /* while the program runs */
static berth_trace *live_trace;       /* so that nobody else takes the file until what is kept is written */
static bool is_paused;

/* In a signal handler: berth_trace_pause opens, maps and closes, all of which is allowed there. */
static void toggle_recording(void)
{
    int saved = errno;
    is_paused = !is_paused;
    (void)berth_trace_pause(live_path, is_paused);
    errno = saved;
}

static int read_options(int argc, char **argv, struct record_options *o, int *command)
{
    int words = 1;
    while (words < argc && strcmp(argv[words], "--") != 0)
        words++;
    const struct cli_option options[] = {
        {"--output", "-o", CLI_TEXT, &o->output},         {"--stacks", NULL, CLI_NUMBER, &o->stacks},
        {"--min-bytes", NULL, CLI_SIZE, &o->min_bytes},   {"--redact", NULL, CLI_FLAG, &o->redact},
        {"--paused", NULL, CLI_FLAG, &o->paused},         {"--quiet", "-q", CLI_FLAG, &o->quiet},
        {"--no-symbols", NULL, CLI_FLAG, &o->no_symbols},
    };
    const char *operands[WORDS_MOST];
    size_t count = 0;
    int code = cli_options_read("record", words, argv, options, sizeof options / sizeof options[0], operands,
                                WORDS_MOST, &count);
    if (code != CLI_OK)
        return code;
    if (count || words + 1 >= argc)
        return cli_misuse("record", count ? "the program to run comes after '--'"
                                          : "no program to run is given; it comes after '--'");
    if (o->stacks > STACKS_MOST)
        return cli_misuse("record", "--stacks is at most %d", STACKS_MOST);
    *command = words + 1;
    return CLI_OK;
}

/* NAME.PID.trace in the current folder, if nothing is said. */
static const char *name_output(const struct record_options *o, const char *program, char *room)
{
    if (o->output)
        return o->output;
    const char *slash = strrchr(program, '/');
    snprintf(room, PATH_ROOM, "%.200s.%d.trace", slash ? slash + 1 : program, (int)getpid());
    return room;
}

/* Where events go meanwhile: beside the output, or if that is a device or a pipe in the folder for such files. The path as it
 * is from the root: the program may change its folder. */
static bool name_live(const char *output, bool is_direct)
{
    char folder[PATH_ROOM];
    const char *temporary = getenv("TMPDIR");
    int length;
    if (is_direct)
        length = snprintf(live_path, sizeof live_path, "%s/berth.%d.live",
                          temporary && temporary[0] == '/' ? temporary : "/tmp", (int)getpid());
    else if (output[0] == '/' || !getcwd(folder, sizeof folder))
        length = snprintf(live_path, sizeof live_path, "%s.live", output);
    else
        length = snprintf(live_path, sizeof live_path, "%s/%s.live", folder, output);
    return (size_t)length < sizeof live_path;
}

/* Whether the trace can be kept is seen before the program runs, not after. */
static int prepare_live(const char *output)
{
    cli_place place;
    if (strcmp(output, "-") == 0)
        return cli_misuse("record", "a trace cannot go to the standard output, which is the program's");
    if (!cli_place_begin(&place, output) || !cli_place_end(&place, false)) {
        fprintf(stderr, "berth record: %s: it cannot be written: %s%s\n", output, cli_place_why(&place),
                strerror(errno));
        return CLI_SURROUNDINGS;
    }
    if (!name_live(output, place.is_direct))
        return cli_misuse("record", "the name of the trace is too long");
    berth_status status = berth_trace_create(live_path, NULL, &live_trace);
    if (!status && is_paused)
        status = berth_trace_pause(live_path, true);
    return !status ? CLI_OK : cli_fail("record", status, "");
}

static void set_environment(const struct record_options *o, const char *recorder)
{
    char text[32];
    cli_launch_preload(recorder);
    setenv("BERTH_RECORD", live_path, 1);
    snprintf(text, sizeof text, "%llu", (unsigned long long)o->stacks);
    setenv("BERTH_RECORD_STACKS", text, 1);
    snprintf(text, sizeof text, "%llu", (unsigned long long)o->min_bytes);
    setenv("BERTH_RECORD_MIN_BYTES", text, 1);
}

static berth_status repack(const struct record_options *o, const char *output, const char *to,
                           format_repacked *figures, format_error *error)
{
    char doing[PATH_ROOM + 32];
    snprintf(doing, sizeof doing, "packing %s", output);
    cli_progress progress;
    cli_progress_begin(&progress, doing);
    format_repack_options options = {.symbols = !o->no_symbols, .redact = o->redact};
    berth_status status =
        format_repack(live_path, to, &options, cli_progress_show, &progress, figures, error);
    cli_progress_end(&progress);
    return status;
}

/* From the live file to the one that is kept; that one appears whole or not at all. */
static int keep(const struct record_options *o, const char *output)
{
    cli_place place;
    format_repacked figures;
    format_error error;
    bool placed = cli_place_begin(&place, output);
    berth_status status = placed ? repack(o, output, place.beside, &figures, &error) : BERTH_OK;
    if (!placed || !cli_place_end(&place, !status) || status) {
        fprintf(stderr, "berth record: %s: %s%s\nWhat was recorded is in %s, which berth reads as well.\n",
                output, cli_place_why(&place), status ? error.words : strerror(errno), live_path);
        return status ? cli_exit_for(status) : CLI_SURROUNDINGS;
    }
    unlink(live_path);
    struct stat s;
    char size[CLI_SIZE_ROOM];
    if (!o->quiet && stat(output, &s) == 0)
        fprintf(stderr, "berth record: %llu event%s of %u process%s in %s (%s)\n",
                (unsigned long long)figures.events, figures.events == 1 ? "" : "s", figures.processes,
                figures.processes == 1 ? "" : "es", output, cli_size_text((uint64_t)s.st_size, size));
    if (figures.notices)
        fprintf(stderr, "berth record: %s%s\n", figures.first_notice,
                figures.notices > 1 ? ", and more like it" : "");
    if (!o->quiet && !figures.processes && !figures.notices)
        fprintf(
            stderr,
            "berth record: the program allocated nothing that the recorder saw; is it one that cleans its "
            "environment (sudo, env -i)?\n");
    return CLI_OK;
}

static int run_record(int argc, char **argv)
{
    struct record_options o = {.stacks = 16};
    char recorder[PATH_ROOM], room[PATH_ROOM];
    int command = 0, ended = 0;
    int code = read_options(argc, argv, &o, &command);
    if (code == CLI_OK)
        code = cli_launch_check("record", argv[command],
                                ", or let it write a trace itself (berth_trace_allocator_create)");
    if (code == CLI_OK)
        code = cli_launch_find("record", "libberth_record.so", "BERTH_RECORDER", recorder, sizeof recorder);
    if (code != CLI_OK)
        return code;
    const char *output = name_output(&o, argv[command], room);
    is_paused = o.paused;
    code = prepare_live(output);
    if (code != CLI_OK)
        return code;
    set_environment(&o, recorder);
    code = cli_launch("record", argv + command, toggle_recording, &ended);
    unsetenv("LD_PRELOAD");
    if (code == CLI_OK)
        code = keep(&o, output);
    else
        unlink(live_path);
    berth_trace_release(live_trace);
    if (code != CLI_OK)
        return code;
    return WIFSIGNALED(ended) ? 128 + WTERMSIG(ended) : WEXITSTATUS(ended);
}

const struct cli_verb cli_verb_record = {
    .name = "record",
    .summary = "run any program and keep what it does with its memory in a trace",
    .help = "usage: berth record [-o FILE] [--stacks DEPTH] [--min-bytes N] -- PROGRAM [ARGUMENT...]\n\n"
            "Runs PROGRAM with a recorder in front of malloc, free and their family, C++'s new and delete, "
            "and anonymous\n"
            "mappings, in all its threads and the programs that it starts. Nothing that was written is lost "
            "when it\n"
            "crashes or is killed. Signals to berth go on to the program; its exit code is berth's, 128 plus "
            "the signal's\n"
            "number if one ended it.\n\n"
            "  -o, --output FILE   the trace (NAME.PID.trace)\n"
            "      --stacks DEPTH  frames of the call stack that are kept for each allocation (16; 0: none, "
            "at most 64)\n"
            "      --min-bytes N   leave out blocks that take less, as malloc rounds them\n"
            "      --redact        leave names, paths and commands out, for a trace that is to be shared\n"
            "      --no-symbols    keep addresses only\n"
            "      --paused        begin without recording; SIGUSR1 to berth switches it on and off\n"
            "  -q, --quiet         say nothing when all is well\n\n"
            "Programs that are linked statically, or that run with rights of their own (setuid), cannot be "
            "recorded.\n\n"
            "Examples:\n"
            "  berth record -o app.trace -- ./app --model model.onnx\n"
            "  berth record --stacks 0 --min-bytes 64K -- python3 train.py\n",
    .run = run_record,
};
