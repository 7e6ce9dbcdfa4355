/* Runs a command whose processes have no membarrier(2): the barrier is then a fence on both sides, which TSan and
 * others understand.
 *
 *     without_membarrier COMMAND ARGUMENT... */
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "refuse_call.h"

int main(int argc, char **argv)
{
    if (argc < 2)
        return fprintf(stderr, "usage: %s COMMAND ARGUMENT...\n", argv[0]), 2;
    if (!refuse_call(SYS_membarrier)) {
        perror("without_membarrier: no filter can be set here");
        return 77;
    }
    execvp(argv[1], argv + 1);
    perror(argv[1]);
    return 127;
}
