/* berth bench-allocators: which allocator suits what a program does. */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "berth/config.h"
#include "cli/bench.h"
#include "cli/cli.h"
#include "cli/history.h"
#include "cli/options.h"
#include "cli/problem.h"
#include "cli/progress.h"
#include "cli/size.h"

static const char verb[] = "bench-allocators";

typedef struct bench_request {
    const char *input, *output, *device;
    cli_list lists; /* of allocators, as they were given */
    uint64_t runs;
    bool no_touch, no_calls, json, quiet;
    char *names;                                           /* the lists, cut at their commas */
    char paths[BENCH_ALLOCATORS_MOST][512];                /* of libraries */
    drive_allocator allocators[BENCH_ALLOCATORS_MOST + 1]; /* the first is the driver alone */
    uint32_t allocator_count;
} bench_request;

/* ---- Which allocators --------------------------------------------------------------------------------- */

/* Libraries that are known by a short name, and their files. */
static const struct {
    const char *name, *files[3];
} known_libraries[] = {
    {"mimalloc", {"libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so"}},
    {"jemalloc", {"libjemalloc.so.2", "libjemalloc.so.1", "libjemalloc.so"}},
    {"tcmalloc", {"libtcmalloc.so.4", "libtcmalloc_minimal.so.4", "libtcmalloc_minimal.so"}}};

/* Where libraries are: beside the C library, and where people put them. */
static bool find_library(const char *const files[3], char path[512])
{
    Dl_info about;
    char beside[400] = "/usr/lib";
    if (dladdr(dlsym(RTLD_DEFAULT, "getpid"), &about) && about.dli_fname && strrchr(about.dli_fname, '/'))
        snprintf(beside, sizeof beside, "%.*s", (int)(strrchr(about.dli_fname, '/') - about.dli_fname),
                 about.dli_fname);
    const char *const folders[] = {beside, "/usr/local/lib", "/usr/lib", "/usr/lib64", "/lib64"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
        for (size_t k = 0; k < 3; k++) {
            snprintf(path, 512, "%s/%s", folders[i], files[k]);
            if (access(path, R_OK) == 0)
                return true;
        }
    return false;
}

static int known_library(const char *name, drive_allocator *a, char path[512])
{
    for (size_t i = 0; i < sizeof known_libraries / sizeof known_libraries[0]; i++) {
        if (strcmp(name, known_libraries[i].name) != 0)
            continue;
        if (!find_library(known_libraries[i].files, path)) {
            fprintf(stderr,
                    "berth %s: %s is not installed where it was looked for; name its library by its path\n",
                    verb, name);
            return CLI_SURROUNDINGS;
        }
        *a = (drive_allocator){DRIVE_LIBRARY, name, path};
        return CLI_OK;
    }
    const char *const names[] = {"glibc", "malloc", "berth", "mimalloc", "jemalloc", "tcmalloc"};
    const char *near = cli_nearest(name, names, sizeof names / sizeof names[0]);
    return cli_misuse(
        verb,
        "'%s' is no allocator: glibc, berth, mimalloc, jemalloc, tcmalloc, settings such as pool=yes, or "
        "the path of a library%s%s%s",
        name, near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

static int read_allocator(const char *name, drive_allocator *a, char path[512])
{
    if (strcmp(name, "glibc") == 0 || strcmp(name, "malloc") == 0 || strcmp(name, "libc") == 0)
        *a = (drive_allocator){DRIVE_MALLOC, name, NULL};
    else if (strcmp(name, "berth") == 0)
        *a = (drive_allocator){DRIVE_BERTH, name, NULL};
    else if (strchr(name, '=')) {
        if (berth_config_check(name) != BERTH_OK)
            return cli_fail(verb, BERTH_INVALID_ARGUMENT, name);
        *a = (drive_allocator){DRIVE_SETTINGS, name, name};
    } else if (strchr(name, '/') || strstr(name, ".so")) {
        char *real = realpath(name, NULL);
        if (!real || access(real, R_OK) != 0 || strlen(real) >= 512 || strpbrk(real, " :")) {
            fprintf(stderr, "berth %s: %s: %s\n", verb, name,
                    real ? "its path is too long, or has a blank or a colon, which cannot be preloaded"
                         : strerror(errno));
            free(real);
            return CLI_SURROUNDINGS;
        }
        memcpy(path, real, strlen(real) + 1);
        free(real);
        const char *slash = strrchr(name, '/');
        *a = (drive_allocator){DRIVE_LIBRARY, slash ? slash + 1 : name, path};
    } else
        return known_library(name, a, path);
    return CLI_OK;
}

/* Cuts the lists at their commas. */
static int read_allocators(bench_request *r)
{
    size_t room = 1;
    char *saved = NULL;
    if (!r->lists.count)
        r->lists.items[r->lists.count++] = "glibc,berth";
    for (size_t i = 0; i < r->lists.count; i++)
        room += strlen(r->lists.items[i]) + 1;
    r->names = calloc(room, 1);
    if (!r->names)
        return cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, "");
    for (size_t i = 0; i < r->lists.count; i++) {
        const size_t used = strlen(r->names);
        snprintf(r->names + used, room - used, "%s,", r->lists.items[i]);
    }
    r->allocators[r->allocator_count++] = (drive_allocator){DRIVE_EMPTY, "the driver alone", NULL};
    for (char *name = strtok_r(r->names, ",", &saved); name; name = strtok_r(NULL, ",", &saved)) {
        if (r->allocator_count > BENCH_ALLOCATORS_MOST)
            return cli_misuse(verb, "at most %d allocators are compared", BENCH_ALLOCATORS_MOST);
        int code = read_allocator(name, &r->allocators[r->allocator_count], r->paths[r->allocator_count - 1]);
        if (code != CLI_OK)
            return code;
        r->allocator_count++;
    }
    return r->allocator_count > 1 ? CLI_OK : cli_misuse(verb, "--allocator names none");
}

/* ---- Running ------------------------------------------------------------------------------------------ */

/* A recording of a large device may be more than the host has. */
static int check_room(const bench_request *r, const drive_script *s)
{
    unsigned long long kib = 0;
    char line[256], live[CLI_SIZE_ROOM], free_size[CLI_SIZE_ROOM];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
            break;
    if (file)
        fclose(file);
    if (!kib || r->no_touch || s->live_bytes / 1024 < kib / 10 * 9)
        return CLI_OK;
    fprintf(stderr,
            "berth %s: %s has %s alive at once, and %s of memory are free here; --no-touch drives it without "
            "writing to the blocks\n",
            verb, r->input, cli_size_text(s->live_bytes, live), cli_size_text(kib * 1024, free_size));
    return CLI_NO;
}

static void run_once(drive_script *s, int file, bench_row *row)
{
    if (row->words[0])
        return;
    if (drive_run(s, file, &row->allocator, NULL))
        row->runs[row->run_count++] = s->result;
    else
        snprintf(row->words, sizeof row->words, "%s", s->result.words);
}

static void count_calls(bench *b, drive_script *s, int file)
{
    for (uint32_t i = 0; i < b->row_count && !b->calls_words[0]; i++) {
        bench_row *row = &b->rows[i];
        if (!row->run_count)
            continue;
        if (!drive_run(s, file, &row->allocator, &row->calls) && i == 0)
            snprintf(b->calls_words, sizeof b->calls_words, "%s", s->result.words);
    }
}

/* In turn, so that what slows the machine down for a while slows all of them. */
static void run_all(const bench_request *r, bench *b, drive_script *s, int file)
{
    cli_progress progress;
    const uint64_t all = r->runs * b->row_count;
    cli_progress_begin(&progress, "driving");
    for (uint64_t run = 0; run < r->runs; run++)
        for (uint32_t i = 0; i < b->row_count; i++) {
            cli_progress_show(&progress, run * b->row_count + i, all);
            run_once(s, file, &b->rows[i]);
        }
    if (r->no_calls)
        snprintf(b->calls_words, sizeof b->calls_words, "%s", "--no-calls");
    else
        count_calls(b, s, file);
    cli_progress_end(&progress);
}

static int write_picture(const bench_request *r, const bench *b)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out)
        bench_print_svg(b, out);
    const bool done = out && fclose(out) == 0;
    const int code = done ? cli_write_whole(verb, r->output, text, size)
                          : cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, r->output);
    free(text);
    return code;
}

static int bench_tell(const bench_request *r, const bench *b)
{
    int code = CLI_OK;
    if (r->json)
        bench_print_json(b, stdout);
    else if (!r->quiet)
        bench_print(b, stdout);
    if (r->output)
        code = write_picture(r, b);
    for (uint32_t i = 0; i < b->row_count; i++)
        if (b->rows[i].words[0]) {
            fprintf(stderr, "berth %s: %s: %s\n", verb, b->rows[i].allocator.name, b->rows[i].words);
            code = code == CLI_OK ? CLI_NO : code;
        }
    return code;
}

static int bench_drive(const bench_request *r, drive_script *s, int file, uint32_t thread_count)
{
    int code = check_room(r, s);
    if (code != CLI_OK)
        return code;
    bench b = {.input = r->input,
               .script = s,
               .thread_count = thread_count,
               .run_count = (uint32_t)r->runs,
               .rows = calloc(r->allocator_count, sizeof *b.rows),
               .row_count = r->allocator_count};
    if (!b.rows)
        return cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, r->input);
    for (uint32_t i = 0; i < b.row_count; i++)
        b.rows[i].allocator = r->allocators[i];
    run_all(r, &b, s, file);
    code = bench_tell(r, &b);
    free(b.rows);
    return code;
}

static int bench_history(const bench_request *r, const format_history *h)
{
    uint16_t device;
    uint32_t processes, threads = 0;
    int file, code = cli_history_device(verb, h, r->device, &device);
    if (code != CLI_OK)
        return code;
    const uint16_t process = drive_main_process(h, device, &processes);
    if (!processes) {
        fprintf(stderr, "berth %s: %s has no block that was ever alive\n", verb, r->input);
        return CLI_NO;
    }
    if (processes > 1)
        fprintf(stderr, "berth %s: of %u processes the one with the most blocks is driven\n", verb,
                processes);
    drive_script *s = drive_script_create(h, device, process, !r->no_touch, &threads, &file);
    if (!s)
        return cli_fail(verb, BERTH_OUT_OF_HOST_MEMORY, r->input);
    if (threads > DRIVE_LANES_MOST)
        fprintf(stderr, "berth %s: %u threads share %d\n", verb, threads, DRIVE_LANES_MOST);
    code = bench_drive(r, s, file, threads);
    drive_script_destroy(s, file);
    return code;
}

static int bench_options(int argc, char **argv, bench_request *r)
{
    const struct cli_option options[] = {
        {"--allocator", "-a", CLI_LIST, &r->lists},   {"--runs", NULL, CLI_NUMBER, &r->runs},
        {"--output", "-o", CLI_TEXT, &r->output},     {"--device", NULL, CLI_TEXT, &r->device},
        {"--no-touch", NULL, CLI_FLAG, &r->no_touch}, {"--no-calls", NULL, CLI_FLAG, &r->no_calls},
        {"--json", NULL, CLI_FLAG, &r->json},         {"--quiet", "-q", CLI_FLAG, &r->quiet},
    };
    size_t count;
    int code =
        cli_options_read(verb, argc, argv, options, sizeof options / sizeof options[0], &r->input, 1, &count);
    if (code != CLI_OK)
        return code;
    if (!count)
        r->input = cli_problem_unnamed();
    if (!r->input)
        return cli_misuse(verb, "which recording? Name one, or - for the standard input");
    if (r->runs < 1 || r->runs > BENCH_RUNS_MOST)
        return cli_misuse(verb, "--runs is from 1 to %d", BENCH_RUNS_MOST);
    if (r->output && cli_is_stdout(r->output) && (!r->quiet || r->json))
        return cli_misuse(
            verb,
            "the picture and the table cannot both go to the standard output; --quiet leaves the table out");
    return read_allocators(r);
}

static int bench_run(int argc, char **argv)
{
    static bench_request r;
    format_history h;
    r = (bench_request){.runs = 3};
    int code = bench_options(argc, argv, &r);
    if (code == CLI_OK)
        code = cli_history_read(verb, r.input, NULL, &h);
    if (code == CLI_OK) {
        code = bench_history(&r, &h);
        format_history_finish(&h);
    }
    free(r.names);
    return code;
}

const struct cli_verb cli_verb_bench_allocators = {
    .name = "bench-allocators",
    .summary = "drive allocators with a recording: time, memory, system calls",
    .help =
        "usage: berth bench-allocators INPUT [--allocator A,B,...] [OPTION...]\n\n"
        "Does every allocation and free of a recording again, on as many threads as it had, with one "
        "allocator "
        "after the\n"
        "other, each in a process of its own, and compares time, peak resident memory, waste and system "
        "calls. "
        "Blocks are\n"
        "written to. A free waits for the allocation where that is another thread's. What the driver takes "
        "itself "
        "is measured\n"
        "with an allocator that does nothing, and shown. INPUT is anything that tells a history.\n\n"
        "  -a, --allocator LIST  with commas, or given several times (glibc,berth):\n"
        "                          glibc             the C library's malloc\n"
        "                          berth             berth_cpu_allocator\n"
        "                          pool=yes;guard=no settings of a stack of Berth's, as in BERTH_CONF\n"
        "                          mimalloc, jemalloc, tcmalloc   where they are installed\n"
        "                          PATH.so           malloc of any library\n"
        "      --runs N          of each, in turn; times are the median (3)\n"
        "  -o, --output FILE     also a picture, as SVG\n"
        "      --device NAME     of several devices this one's blocks (the one with the largest peak)\n"
        "      --no-touch        do not write to the blocks\n"
        "      --no-calls        do not count system calls\n"
        "      --json            print one JSON object\n"
        "  -q, --quiet           no table\n\n"
        "Examples:\n"
        "  berth record -o app.trace -- ./app && berth bench-allocators app.trace -a glibc,berth,mimalloc\n"
        "  berth bench-allocators app.trace -a 'berth,pool=yes;huge_pages=yes' -o allocators.svg\n",
    .run = bench_run,
};
