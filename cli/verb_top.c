/* berth top: what is alive and who holds it, while a program runs or of a file. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/model.h"
#include "cli/options.h"
#include "cli/problem.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "cli/top.h"
#include "format/inputs.h"

enum { JSON_ROWS = 1000 };

typedef struct top_request {
    const char *input;
    char path[TOP_PATH_ROOM];
    uint64_t pid; /* 0: all of the trace */
    double interval;
    bool once, json;
} top_request;

static double top_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int top_fail(berth_status status, const format_error *error)
{
    fprintf(stderr, "berth top: %s\n", error->words);
    return cli_exit_for(status);
}

/* ---- A moment ------------------------------------------------------------------------------------------ */

static double duration_of(const format_history *h)
{
    return h->has_times && h->last_ns > h->first_ns ? (double)(h->last_ns - h->first_ns) * 1e-9 : 0;
}

static void print_once(const top_request *r, top_picture *p)
{
    p->seconds = duration_of(p->h);
    p->rate = p->seconds > 0 ? (double)format_tally_sum(p->tally).allocs / p->seconds : 0;
    if (r->json)
        top_print_json(stdout, p, JSON_ROWS);
    else
        top_print(stdout, p, 0, 0, "\n");
}

static void say_damage(const char *name, const berth_trace_reader *reader)
{
    for (size_t i = 0; berth_trace_damage(reader, i); i++)
        fprintf(stderr, "berth top: %s: %s\n", name, berth_trace_damage(reader, i));
}

/* ---- Files that tell all they have --------------------------------------------------------------------- */

static int top_file(const top_request *r)
{
    format_tally tally = {0};
    format_history h;
    format_error error;
    cli_progress progress;
    cli_progress_begin(&progress, "reading");
    berth_status status = format_history_count(r->path, &h, &tally, cli_progress_show, &progress, &error);
    cli_progress_end(&progress);
    if (status) {
        format_tally_finish(&tally);
        return top_fail(status, &error);
    }
    for (uint32_t i = 0; i < h.notice_count; i++)
        fprintf(stderr, "berth top: %s: %s\n", r->input, h.notices[i].words);
    top_picture p = {.name = strcmp(r->input, "-") == 0 ? "standard input" : r->input,
                     .state = h.format,
                     .h = &h,
                     .tally = &tally,
                     .order = TOP_BY_PEAK};
    print_once(r, &p);
    format_history_finish(&h);
    format_tally_finish(&tally);
    return CLI_OK;
}

/* What a model's tensors take, as berth plan counts it without options. */
static int top_model(top_request *r)
{
    char rows[CLI_ROWS_ROOM];
    int file;
    int code = cli_model_rows("top", r->path, &(cli_model_options){.labels = CLI_MODEL_NAMES}, &file, rows);
    if (code != CLI_OK)
        return code;
    snprintf(r->path, sizeof r->path, "%s", rows);
    code = top_file(r);
    close(file);
    return code;
}

/* ---- Traces that grow ---------------------------------------------------------------------------------- */

/* Whether anybody may still write: the file has its name, and a process that it tells of runs, or it tells of none. */
static bool is_growing(const char *path, const berth_trace_reader *reader)
{
    struct stat s;
    uint32_t known = 0;
    if (stat(path, &s) != 0)
        return false;
    for (uint32_t i = 0; i < berth_trace_process_count(reader); i++) {
        berth_trace_process p = BERTH_TRACE_PROCESS_INIT;
        if (berth_trace_get_process(reader, i, &p) != BERTH_OK || !p.pid || p.pid > INT32_MAX)
            continue;
        known++;
        if (kill((pid_t)p.pid, 0) == 0 || errno == EPERM)
            return true;
    }
    return known == 0;
}

static void draw(top_picture *p)
{
    unsigned width, height;
    cli_terminal_size(&width, &height);
    fputs("\033[H", stdout);
    /* The last line has no end, or the screen would move. */
    top_print(stdout, p, width, height > 1 ? height - 1 : 1, "\033[K\n");
    fputs("\033[J", stdout);
    fflush(stdout);
}

/* False: the user wants to leave. */
static bool take_key(top_picture *p, int key)
{
    switch (key) {
    case CLI_TERMINAL_SIGNAL:
    case 'q':
    case 'Q':
        return false;
    case 'h':
        p->table = TOP_HOLDERS;
        break;
    case 't':
        p->table = TOP_THREADS;
        break;
    case 'd':
        p->table = TOP_DEVICES;
        break;
    case 's':
        p->order = (top_order)((p->order + 1) % TOP_ORDERS);
        break;
    default:
        break;
    }
    return true;
}

/* Draws until the user leaves. Whoever wrote has ended: the last picture stays. */
static berth_status watch(const top_request *r, format_follow *f, top_picture *p, format_error *error)
{
    double last = top_now();
    uint64_t allocs = format_tally_sum(p->tally).allocs;
    bool growing = true;
    for (;;) {
        p->seconds = duration_of(p->h);
        p->state = growing ? "recording" : "ended";
        draw(p);
        int key = cli_terminal_wait(r->interval);
        if (!take_key(p, key))
            return BERTH_OK;
        if (key != CLI_TERMINAL_NOTHING || !growing)
            continue;
        growing = is_growing(r->path, format_follow_reader(f)); /* before: what it wrote last is read below */
        berth_status status = format_follow_more(f, NULL, NULL, error);
        if (status)
            return status;
        double now = top_now();
        uint64_t all = format_tally_sum(p->tally).allocs;
        p->rate = (double)(all - allocs) / (now - last);
        last = now;
        allocs = all;
    }
}

static int top_trace(const top_request *r)
{
    format_tally tally = {0};
    format_follow *f = NULL;
    format_error error;
    cli_progress progress;
    berth_status status = format_follow_open(r->path, &tally, r->pid, &f, &error);
    cli_progress_begin(&progress, "reading");
    if (!status)
        status = format_follow_more(f, cli_progress_show, &progress, &error);
    cli_progress_end(&progress);
    if (!status) {
        bool growing = is_growing(r->path, format_follow_reader(f));
        top_picture p = {.name = r->path,
                         .state = growing ? "recording" : "ended",
                         .h = format_follow_history(f),
                         .tally = &tally,
                         .order = growing ? TOP_BY_LIVE : TOP_BY_PEAK};
        if (growing && !r->once && cli_terminal_begin()) {
            p.is_live = true;
            status = watch(r, f, &p, &error);
            cli_terminal_end();
        } else {
            say_damage(r->input, format_follow_reader(f));
            print_once(r, &p);
        }
    }
    format_follow_close(f);
    format_tally_finish(&tally);
    return !status ? CLI_OK : top_fail(status, &error);
}

/* ---- The verb ------------------------------------------------------------------------------------------ */

/* Whether it is a trace whose times are those of its writing: it may grow. Bytes 40-43 and 44-47 of its header. */
static bool is_live_trace(const char *path)
{
    unsigned char head[48];
    struct stat s; /* what is read from a pipe does not come again */
    FILE *file = stat(path, &s) == 0 && S_ISREG(s.st_mode) ? fopen(path, "rbe") : NULL;
    bool yes = file && fread(head, 1, sizeof head, file) == sizeof head &&
               memcmp(head, "BTRACE\x1a\n", 8) == 0 && !(head[40] & 1);
    if (file)
        fclose(file);
    return yes;
}

/* A number is a process; what is recorded as FILE is in FILE.live until it ends. */
static int find_input(top_request *r)
{
    struct stat s;
    if (r->input[strspn(r->input, "0123456789")] == 0) {
        bool is_own;
        uint64_t pid = strtoull(r->input, NULL, 10);
        int code = top_find_trace("top", pid, r->path, &is_own);
        r->pid = is_own ? pid : 0;
        return code;
    }
    if ((size_t)snprintf(r->path, sizeof r->path, "%s", r->input) >= sizeof r->path - 8)
        return cli_misuse("top", "the name of the file is too long");
    if (strcmp(r->input, "-") != 0 && stat(r->path, &s) != 0 && errno == ENOENT) {
        char live[TOP_PATH_ROOM + 8];
        snprintf(live, sizeof live, "%s.live", r->input);
        if (stat(live, &s) == 0)
            memcpy(r->path, live, strlen(live) + 1);
    }
    return CLI_OK;
}

static int run_top(int argc, char **argv)
{
    top_request r = {.interval = 1};
    const struct cli_option options[] = {
        {"--once", NULL, CLI_FLAG, &r.once},
        {"--json", NULL, CLI_FLAG, &r.json},
        {"--interval", NULL, CLI_SECONDS, &r.interval},
    };
    size_t count;
    int code =
        cli_options_read("top", argc, argv, options, sizeof options / sizeof options[0], &r.input, 1, &count);
    if (code != CLI_OK)
        return code;
    if (!count)
        r.input = cli_problem_unnamed();
    if (!r.input || !*r.input)
        return cli_misuse("top", "of what? Name a process that berth record runs, or a file");
    if (r.interval > 3600)
        return cli_misuse("top", "--interval is at most 3600 seconds");
    r.once = r.once || r.json;
    code = find_input(&r);
    if (code != CLI_OK)
        return code;
    return cli_is_model(r.path) ? top_model(&r) : is_live_trace(r.path) ? top_trace(&r) : top_file(&r);
}

const struct cli_verb cli_verb_top = {
    .name = "top",
    .summary = "show live what is alive and who holds it, in a terminal",
    .help =
        "usage: berth top PID|FILE [OPTION...]\n\n"
        "Shows how much is alive, the peak, allocations a second, and who holds the most: by label or call "
        "site, by\n"
        "thread, by device. PID is a process under berth record, or berth record itself; FILE a trace that "
        "is "
        "being\n"
        "written, or any file that berth view reads, of which it prints a summary. A summary needs memory "
        "for "
        "what is\n"
        "alive at once, not for all events; - is the standard input. Without a terminal it prints once.\n\n"
        "      --once          print once and end\n"
        "      --json          print one JSON object\n"
        "      --interval SEC  time between two looks (1)\n\n"
        "Keys: q leaves, h holders, t threads, d devices, s sorts by live bytes, bytes at the peak, or "
        "allocations.\n\n"
        "Examples:\n"
        "  berth record -o app.trace -- ./app & berth top app.trace\n"
        "  berth top snapshot.pickle\n",
    .run = run_top,
};
