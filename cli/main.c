/* The berth command: finds the verb and hands over. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "berth/version.h"
#include "cli/drive.h"
#include "cli/place.h"
#include "cli/verbs.h"

const struct cli_verb *const cli_verbs[] = {
#define VERB_ADDRESS(name) &cli_verb_##name,
    CLI_VERBS(VERB_ADDRESS)
#undef VERB_ADDRESS
        NULL,
};

static const struct cli_verb *find_verb(const char *name)
{
    for (size_t i = 0; cli_verbs[i]; i++)
        if (strcmp(cli_verbs[i]->name, name) == 0)
            return cli_verbs[i];
    return NULL;
}

static int unknown_verb(const char *word)
{
    const char *names[sizeof cli_verbs / sizeof cli_verbs[0]];
    size_t count = 0;
    for (; cli_verbs[count]; count++)
        names[count] = cli_verbs[count]->name;
    const char *near = cli_nearest(word, names, count);
    fprintf(stderr, "berth: there is no verb '%s'", word);
    if (near)
        fprintf(stderr, "; did you mean '%s'?", near);
    fprintf(stderr, "\nTry 'berth help' for all of them.\n");
    return CLI_MISUSE;
}

/* `berth plan --help`, or -h, is `berth help plan`; what follows "--" is not an option. */
static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

/* Large inputs are mapped: somebody who cuts one short meanwhile takes away the pages behind its new end. */
static void input_is_gone(int number, siginfo_t *info, void *context)
{
    static const char words[] = "berth: a file was cut short, or its disk failed, while it was read; try "
                                "again when nobody writes to it\n";
    (void)context;
    if (info->si_code != BUS_ADRERR) {
        signal(number, SIG_DFL); /* a fault of our own: comes again when this returns */
        return;
    }
    cli_place_drop();
    ssize_t written = write(STDERR_FILENO, words, sizeof words - 1);
    _exit(written < 0 ? CLI_SURROUNDINGS : CLI_BAD_INPUT);
}

static void watch_inputs(void)
{
    struct sigaction action = {.sa_flags = (int)SA_SIGINFO};
    action.sa_sigaction = input_is_gone;
    sigaction(SIGBUS, &action, NULL);
}

/* A stream that the caller has closed would be the number of the next file that is opened, and a report would go there. Whoever
 * uses one of these is told, as if it were closed. */
static void hold_streams(void)
{
    static const int ways[] = {O_WRONLY, O_RDONLY, O_RDONLY};
    for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
        if (fcntl(file, F_GETFD) < 0 && open("/dev/null", ways[file] | O_CLOEXEC) < 0)
            return;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: berth VERB [INPUT] [OUTPUT] [OPTION...]\nTry 'berth help'.\n");
        return CLI_MISUSE;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        printf("berth %s\n", berth_version());
        return CLI_OK;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        return cli_verb_help.run(argc - 1, argv + 1);
    const struct cli_verb *verb = find_verb(word);
    if (!verb)
        return unknown_verb(word);
    if (asks_for_help(argc - 1, argv + 1)) {
        if (verb == &cli_verb_help)
            return verb->run(1, argv + 1);
        fputs(verb->help, stdout);
        return CLI_OK;
    }
    return verb->run(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], DRIVE_WORD) == 0) /* before anything that would change what is measured */
        return drive_main(argc, argv);
#ifdef M_MMAP_THRESHOLD
    /* glibc raises this by itself once something large is freed, and then keeps what is freed: half as much again
     * for a million rows. */
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
    watch_inputs();
    hold_streams();
    int code = dispatch(argc, argv);
    /* A full disk shows only when the last bytes leave the buffer; a result that was lost is not a success.
     */
    const bool flushed = fflush(stdout) == 0;
    const char *reason = flushed ? "" : strerror(errno); /* what failed earlier left no reason */
    if (!flushed || ferror(stdout)) {
        fprintf(stderr, "berth: the output could not be written%s%s\n", flushed ? "" : ": ", reason);
        return CLI_SURROUNDINGS;
    }
    return code;
}
