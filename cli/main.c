/* The berth command: finds the verb and hands over. */
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        printf("berth %s\n", BERTH_VERSION);
        return 0;
    }
    fprintf(stderr, "usage: berth VERB ...\n");
    return 2;
}
