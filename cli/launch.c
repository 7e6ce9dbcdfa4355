/* Running a program with one of our libraries in front. */
#include "cli/launch.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "cli/cli.h"

enum { PATH_ROOM = 4096 };

static int launch_fail(const char *verb, const char *what, const char *why, int code)
{
    fprintf(stderr, "berth %s: %s: %s\n", verb, what, why);
    return code;
}

/* ---- The library -------------------------------------------------------------------------------------- */

/* The system's loader takes a list, and knows no way to write a path with what ends an entry. */
static int launch_listable(const char *verb, const char *path, const char *variable)
{
    char why[256];
    if (!strpbrk(path, " :"))
        return CLI_OK;
    snprintf(why, sizeof why,
             "LD_PRELOAD cannot name a path with a space or a colon; copy the library elsewhere and set %s",
             variable);
    return launch_fail(verb, path, why, CLI_SURROUNDINGS);
}

int cli_launch_find(const char *verb, const char *library, const char *variable, char *path, size_t room)
{
    const char *given = getenv(variable);
    char command[PATH_ROOM], why[256];
    ssize_t length = readlink("/proc/self/exe", command, sizeof command - 1);
    command[length > 0 ? length : 0] = 0;
    char *slash = strrchr(command, '/');
    if (slash)
        *slash = 0;
    static const char *const places[] = {"", "../" BERTH_LIBDIR "/berth/"};
    if (given) {
        snprintf(path, room, "%s", given);
        return access(path, R_OK) == 0 ? launch_listable(verb, path, variable)
                                       : launch_fail(verb, given, strerror(errno), CLI_SURROUNDINGS);
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char tried[2 * PATH_ROOM];
        snprintf(tried, sizeof tried, "%s/%s%s", command, places[i], library);
        char *real = realpath(tried, NULL);
        if (real) {
            snprintf(path, room, "%s", real);
            free(real);
            return launch_listable(verb, path, variable);
        }
    }
    snprintf(why, sizeof why, "it is neither beside the command nor installed; %s may name it", variable);
    return launch_fail(verb, library, why, CLI_SURROUNDINGS);
}

void cli_launch_preload(const char *library)
{
    char text[2 * PATH_ROOM];
    const char *before = getenv("LD_PRELOAD");
    snprintf(text, sizeof text, "%s%s%s", library, before && *before ? ":" : "", before ? before : "");
    setenv("LD_PRELOAD", text, 1);
}

/* ---- The program --------------------------------------------------------------------------------------- */

/* The file that a shell would run. */
static bool find_program(const char *name, char *path, size_t room)
{
    if (strchr(name, '/')) {
        snprintf(path, room, "%s", name);
        return access(path, X_OK) == 0;
    }
    const char *folders = getenv("PATH");
    for (const char *at = folders ? folders : "/usr/bin:/bin"; *at;) {
        size_t length = strcspn(at, ":");
        snprintf(path, room, "%.*s/%s", (int)length, length ? at : ".", name);
        struct stat s;
        if (access(path, X_OK) == 0 && stat(path, &s) == 0 && S_ISREG(s.st_mode))
            return true;
        at += length + (at[length] == ':');
    }
    return false;
}

static const char linked_statically[] =
    "it is linked statically: nothing can be preloaded into it. Link it with -dynamic";

/* NULL, or why nothing can be preloaded. `next` gets the interpreter of a script. */
static const char *why_not(const char *path, char *next, size_t room)
{
    struct stat s;
    unsigned char head[4096];
    next[0] = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return geteuid() == 0 || errno != EACCES ? strerror(errno)
                                                 : NULL; /* it may run and not be read: we do not know */
    ssize_t n = read(file, head, sizeof head - 1);
    bool has_stat = fstat(file, &s) == 0;
    close(file);
    if (n <= 0 || !has_stat)
        return "it cannot be read";
    head[n] = 0;
    if ((s.st_mode & (S_ISUID | S_ISGID)) && geteuid() != 0)
        return "it runs with the rights of its owner (setuid), and the system lets nobody look into such "
               "programs";
    if (getxattr(path, "security.capability", NULL, 0) > 0 && geteuid() != 0)
        return "it has capabilities, and the system lets nobody look into such programs";
    if (head[0] == '#' && head[1] == '!') {
        const char *word = (const char *)head + 2 + strspn((const char *)head + 2, " \t");
        snprintf(next, room, "%.*s", (int)strcspn(word, " \t\r\n"), word);
        return NULL;
    }
    if (n < (ssize_t)sizeof(Elf64_Ehdr) || memcmp(head, ELFMAG, SELFMAG) != 0)
        return NULL; /* what the system makes of it we shall see */
    Elf64_Ehdr h;
    memcpy(&h, head, sizeof h);
    if (h.e_ident[EI_CLASS] != ELFCLASS64)
        return "it is a program for 32 bits, and what would be preloaded is for 64";
    for (unsigned i = 0; i < h.e_phnum; i++) {
        Elf64_Phdr p;
        if (h.e_phoff + (i + 1) * sizeof p > (size_t)n)
            return NULL;
        memcpy(&p, head + h.e_phoff + i * sizeof p, sizeof p);
        if (p.p_type == PT_INTERP)
            return NULL;
    }
    return linked_statically;
}

int cli_launch_check(const char *verb, const char *name, const char *instead)
{
    char path[PATH_ROOM], next[PATH_ROOM];
    if (!find_program(name, path, sizeof path))
        return launch_fail(verb, name, "no such program, or it may not be run", CLI_MISUSE);
    for (int depth = 0; depth < 4; depth++) {
        const char *why = why_not(path, next, sizeof next);
        char both[512];
        if (why == linked_statically) {
            snprintf(both, sizeof both, "%s%s", why, instead);
            why = both;
        }
        if (why)
            return launch_fail(verb, path, why, CLI_BAD_INPUT);
        if (!next[0])
            break;
        memcpy(path, next, sizeof path);
    }
    return CLI_OK;
}

/* ---- Running -------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t child_pid;
static pid_t session; /* whose leader the command may be */
static void (*on_toggle)(void);

/* A key or a new size of the terminal is a signal from the kernel to the whole group in front: the program has it already, and
 * would count it twice. Not so when the terminal goes: that is told (SIGHUP, SIGCONT) to the leader of its session alone. */
static bool program_has_it(int number, const siginfo_t *info)
{
    if (info->si_code != SI_KERNEL)
        return false;
    return (number != SIGHUP && number != SIGCONT) || session != getpid();
}

static void hand_on(int number, siginfo_t *info, void *context)
{
    (void)context;
    if (number == SIGUSR1)
        on_toggle();
    else if (child_pid > 0 && !program_has_it(number, info))
        kill((pid_t)child_pid, number);
}

static const int handed_on[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT, SIGWINCH};

int cli_launch(const char *verb, char *const *argv, void (*toggle)(void), int *ended)
{
    int report[2];
    on_toggle = toggle;
    if (pipe2(report, O_CLOEXEC))
        return launch_fail(verb, argv[0], strerror(errno), CLI_SURROUNDINGS);
    sigset_t all, before;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    pid_t child = fork();
    if (child == 0) {
        sigprocmask(SIG_SETMASK, &before, NULL);
        execvp(argv[0], argv);
        int code = errno;
        (void)!write(report[1], &code, sizeof code);
        _exit(127);
    }
    child_pid = child;
    session = getsid(0);
    struct sigaction action = {.sa_sigaction = hand_on, .sa_flags = SA_RESTART | SA_SIGINFO};
    action.sa_mask = all; /* one is handed on before the next one comes */
    for (size_t i = 0; child > 0 && i < sizeof handed_on / sizeof handed_on[0]; i++)
        sigaction(handed_on[i], &action, NULL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(report[1]);
    int code = child < 0 ? errno : 0;
    if (child > 0 && read(report[0], &code, sizeof code) != sizeof code)
        code = 0;
    close(report[0]);
    while (child > 0 && waitpid(child, ended, 0) < 0 && errno == EINTR)
        ;
    child_pid = 0;
    return code ? launch_fail(verb, argv[0], strerror(code), CLI_SURROUNDINGS) : CLI_OK;
}
