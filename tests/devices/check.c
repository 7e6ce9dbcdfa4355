/* berth-device-check: loads a device from a shared library and tells, check by check, what holds.
 *
 * Each check runs in a process of its own, which loads the library anew: a device that crashes or hangs fails one check
 * and not the program. This process never loads it, since few drivers survive a fork. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "schedules.h"

enum { EXIT_HOLDS = 0, EXIT_FAILS = 1, EXIT_MISUSE = 2, EXIT_SURROUNDINGS = 4 };

static const char help[] =
    "usage: berth-device-check LIBRARY.so [--ordinal N] [--seed N] [--limit SECONDS] [--only WORDS] "
    "[--list]\n\n"
    "Loads a device of your own (berth/device_ops.h) from a shared library and tells, check by check, what "
    "holds:\n"
    "ok, FAIL with the reason, or skip where the device says that it does not have what is checked.\n"
    "The library exports the function berth_device_entry; docs/adding-a-device.md has an example.\n\n"
    "  --ordinal N        the device to check, from 0\n"
    "  --seed N           draws other random schedules\n"
    "  --limit SECONDS    how long one check may take: 60\n"
    "  --only WORDS       the checks with these words in their names\n"
    "  --list             print the checks and run none\n\n"
    "exit: 0 all holds, 1 something does not, 2 misuse, 4 the library cannot be loaded\n";

typedef struct settings {
    const char *library, *only;
    int32_t ordinal;
    unsigned limit_s;
    bool list;
} settings;

static bool read_number(const char *text, unsigned long long most, unsigned long long *out)
{
    char *rest = NULL;
    errno = 0;
    *out = text && text[0] >= '0' && text[0] <= '9' ? strtoull(text, &rest, 10) : 0;
    return rest && !*rest && errno == 0 && *out <= most;
}

static bool read_arguments(int argc, char **argv, settings *s)
{
    for (int i = 1; i < argc; i++) {
        unsigned long long number = 0;
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool takes_number =
            !strcmp(argv[i], "--ordinal") || !strcmp(argv[i], "--seed") || !strcmp(argv[i], "--limit");
        if (takes_number && !read_number(value, argv[i][2] == 's' ? UINT64_MAX : 1000000, &number))
            return false;
        bool takes_words = !strcmp(argv[i], "--only");
        if (takes_words && !value)
            return false;
        if (!strcmp(argv[i], "--list"))
            s->list = true;
        else if (takes_words)
            s->only = value;
        else if (!strcmp(argv[i], "--ordinal"))
            s->ordinal = (int32_t)number;
        else if (!strcmp(argv[i], "--seed"))
            schedules_seed = number;
        else if (!strcmp(argv[i], "--limit"))
            s->limit_s = (unsigned)number;
        else if (argv[i][0] == '-' || s->library)
            return false;
        else
            s->library = argv[i];
        i += takes_number || takes_words;
    }
    return s->list || (s->library && s->limit_s > 0);
}

/* Loads and registers; false with words in berth_last_error. */
static bool load(const settings *s)
{
    const berth_device_ops *ops = NULL;
    void *self = NULL;
    berth_device_kind kind;
    berth_device_entry_fn *entry = NULL;
    /* Without a slash the loader would look in the system's folders. */
    char path[4096];
    snprintf(path, sizeof path, "%s%s", strchr(s->library, '/') ? "" : "./", s->library);
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        (void)berth_fail(BERTH_NOT_FOUND, "%s", dlerror());
        return false;
    }
    *(void **)&entry = dlsym(library, BERTH_DEVICE_ENTRY);
    if (!entry) {
        (void)berth_fail(BERTH_NOT_FOUND, "it exports no function %s", BERTH_DEVICE_ENTRY);
        return false;
    }
    if (entry(&ops, &self) != BERTH_OK || berth_device_register(ops, self, &kind) != BERTH_OK)
        return false;
    return checks_begin((berth_device){(int32_t)kind, s->ordinal});
}

/* In the child. `check` NULL: only whether it loads, and what it is. */
static check_verdict run_here(const settings *s, const device_check *check, char *words, size_t room)
{
    if (!load(s)) {
        snprintf(words, room, "%s", berth_last_error()->message);
        return CHECK_FAILS;
    }
    if (!check) {
        snprintf(words, room, "%s:%d  %s", berth_device_kind_name((berth_device_kind)device.kind),
                 (int)device.ordinal, info.name);
        return CHECK_HOLDS;
    }
    check_verdict verdict = check_run(check, words, room);
    if (verdict == CHECK_HOLDS && berth_device_unregister((berth_device_kind)device.kind) != BERTH_OK) {
        snprintf(words, room, "%s", berth_last_error()->message);
        return CHECK_FAILS;
    }
    return verdict;
}

static check_verdict run_in_child(const settings *s, const device_check *check, char *words, size_t room)
{
    enum { LOADING_S = 60 };
    unsigned limit_s = check || s->limit_s > LOADING_S ? s->limit_s : LOADING_S; /* loading is no check */
    int ends[2], status = 0;
    words[0] = '\0';
    fflush(stdout);
    if (pipe(ends) != 0)
        return snprintf(words, room, "no pipe: %s", strerror(errno)), CHECK_FAILS;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        alarm(limit_s); /* ends the process, whatever it waits for */
        check_verdict verdict = run_here(s, check, words, room);
        ssize_t written = write(ends[1], words, strlen(words));
        _exit(written < 0 ? CHECK_FAILS : (int)verdict);
    }
    close(ends[1]);
    ssize_t got = child > 0 ? read(ends[0], words, room - 1) : 0;
    words[got > 0 ? got : 0] = '\0';
    close(ends[0]);
    if (child < 0 || waitpid(child, &status, 0) != child)
        return snprintf(words, room, "no process: %s", strerror(errno)), CHECK_FAILS;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        return snprintf(words, room, "it was not done after %u s", limit_s), CHECK_FAILS;
    if (WIFSIGNALED(status))
        return snprintf(words, room, "the process ended by signal %d (%s)", WTERMSIG(status),
                        strsignal(WTERMSIG(status))),
               CHECK_FAILS;
    return (check_verdict)WEXITSTATUS(status) <= CHECK_SKIPPED ? (check_verdict)WEXITSTATUS(status)
                                                               : CHECK_FAILS;
}

static int run_all(const settings *s)
{
    int counts[3] = {0};
    char words[1024];
    if (run_in_child(s, NULL, words, sizeof words) != CHECK_HOLDS) {
        fprintf(stderr, "berth-device-check: %s: %s\n", s->library, words);
        return EXIT_SURROUNDINGS;
    }
    printf("%s\n", words);
    for (const device_check *check = device_checks; check->title; check++) {
        if (s->only && !strstr(check->title, s->only))
            continue;
        static const char *const marks[] = {"ok  ", "FAIL", "skip"};
        check_verdict verdict = run_in_child(s, check, words, sizeof words);
        printf("%s  %s%s%s\n", marks[verdict], check->title, words[0] ? ": " : "", words);
        counts[verdict]++;
    }
    if (s->only && counts[CHECK_HOLDS] + counts[CHECK_FAILS] + counts[CHECK_SKIPPED] == 0) {
        fprintf(stderr, "berth-device-check: no check has '%s' in its name; --list names them\n", s->only);
        return EXIT_MISUSE;
    }
    printf("%d hold, %d fail, %d do not apply\n", counts[CHECK_HOLDS], counts[CHECK_FAILS],
           counts[CHECK_SKIPPED]);
    return counts[CHECK_FAILS] ? EXIT_FAILS : EXIT_HOLDS;
}

int main(int argc, char **argv)
{
    settings s = {.limit_s = 60};
    if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
        fputs(help, stdout);
        return EXIT_HOLDS;
    }
    if (!read_arguments(argc, argv, &s)) {
        fputs(help, stderr);
        return EXIT_MISUSE;
    }
    if (!s.list)
        return run_all(&s);
    for (const device_check *check = device_checks; check->title; check++)
        printf("%s\n", check->title);
    return EXIT_HOLDS;
}
