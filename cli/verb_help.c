/* berth help: the verbs and topics, or one of them in full. */
#include <stdio.h>
#include <string.h>

#include "cli/verbs.h"

enum { LONGEST_LIST = 64 };

static void print_overview(void)
{
    printf("usage: berth VERB [INPUT] [OUTPUT] [OPTION...]\n\n"
           "Memory for tensor programs: plans it, checks plans, and shows what a program does with it.\n\n"
           "Verbs:\n");
    for (size_t i = 0; cli_verbs[i]; i++)
        printf("  %-16s %s\n", cli_verbs[i]->name, cli_verbs[i]->summary);
    printf("\nTopics:\n");
    for (size_t i = 0; cli_topics[i].name; i++)
        printf("  %-16s %s\n", cli_topics[i].name, cli_topics[i].summary);
    printf("\n'berth help VERB' or 'berth VERB --help' says more; 'berth --version' prints the version.\n");
}

static int help_run(int argc, char **argv)
{
    if (argc > 2)
        return cli_misuse("help", "one verb or topic at a time");
    if (argc < 2) {
        print_overview();
        return CLI_OK;
    }
    const char *names[LONGEST_LIST];
    size_t count = 0;
    for (size_t i = 0; cli_verbs[i] && count < LONGEST_LIST; i++) {
        if (strcmp(cli_verbs[i]->name, argv[1]) == 0) {
            fputs(cli_verbs[i]->help, stdout);
            return CLI_OK;
        }
        names[count++] = cli_verbs[i]->name;
    }
    for (size_t i = 0; cli_topics[i].name && count < LONGEST_LIST; i++) {
        if (strcmp(cli_topics[i].name, argv[1]) == 0) {
            fputs(cli_topics[i].text, stdout);
            return CLI_OK;
        }
        names[count++] = cli_topics[i].name;
    }
    const char *near = cli_nearest(argv[1], names, count);
    if (near)
        return cli_misuse("help", "there is no verb or topic '%s'; did you mean '%s'?", argv[1], near);
    return cli_misuse("help", "there is no verb or topic '%s'", argv[1]);
}

const struct cli_verb cli_verb_help = {
    .name = "help",
    .summary = "show the verbs, or one verb or topic in full",
    .help = "usage: berth help [VERB|TOPIC]\n\n"
            "Without a name: all verbs and topics. With one: everything about it.\n",
    .run = help_run,
};
