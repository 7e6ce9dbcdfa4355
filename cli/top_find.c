/* The trace that a process is writing: one of the files that it has mapped. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/top.h"

static bool is_trace(const char *path)
{
    char head[8];
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool yes = file >= 0 && read(file, head, sizeof head) == (ssize_t)sizeof head &&
               memcmp(head, "BTRACE\x1a\n", sizeof head) == 0;
    if (file >= 0)
        close(file);
    return yes;
}

/* One line of /proc/PID/maps, "address rights offset device inode path": the path if it is shared and written, else NULL. */
static const char *mapped_path(char *line, uint64_t *offset)
{
    char *at = strchr(line, '/'), *rights = strchr(line, ' ');
    if (!at || !rights || strncmp(rights + 1, "rw-s ", 5) != 0)
        return NULL;
    *offset = strtoull(rights + 6, NULL, 16);
    at[strcspn(at, "\n")] = 0;
    return strlen(at) < TOP_PATH_ROOM ? at : NULL;
}

/* What a process has mapped of a trace: who writes has chunks, `berth record` the first page alone. */
enum mapped { NOT_READABLE, NOTHING, FIRST_PAGE, CHUNKS };

/* With errno if it cannot be read. */
static enum mapped find_mapped(uint64_t pid, char *path)
{
    char name[64], last[TOP_PATH_ROOM] = "", *line = NULL;
    size_t room = 0;
    enum mapped found = NOTHING;
    bool last_is_trace = false;
    snprintf(name, sizeof name, "/proc/%" PRIu64 "/maps", pid);
    FILE *maps = fopen(name, "re");
    if (!maps)
        return NOT_READABLE;
    errno = 0;
    while (found != CHUNKS && getline(&line, &room, maps) > 0) {
        uint64_t offset;
        const char *at = mapped_path(line, &offset);
        if (!at || (found == FIRST_PAGE && !offset))
            continue;
        if (strcmp(at, last) != 0)
            last_is_trace = is_trace(at);
        snprintf(last, sizeof last, "%s", at);
        if (last_is_trace) {
            found = offset ? CHUNKS : FIRST_PAGE;
            snprintf(path, TOP_PATH_ROOM, "%s", at);
        }
    }
    if (found == NOTHING && ferror(maps))
        found = NOT_READABLE;
    free(line);
    fclose(maps);
    return found;
}

/* Looks at a process's children, as far down as there are some: `berth record` itself writes nothing. */
static bool find_below(uint64_t pid, char *path, int depth)
{
    char name[96];
    bool found = false;
    snprintf(name, sizeof name, "/proc/%" PRIu64 "/task/%" PRIu64 "/children", pid, pid);
    FILE *children = depth < 8 ? fopen(name, "re") : NULL;
    uint64_t child;
    while (children && !found && fscanf(children, "%" SCNu64, &child) == 1)
        found = find_mapped(child, path) == CHUNKS || find_below(child, path, depth + 1);
    if (children)
        fclose(children);
    return found;
}

int top_find_trace(const char *verb, uint64_t pid, char *path, bool *is_own)
{
    if (pid > INT32_MAX || (kill((pid_t)pid, 0) != 0 && errno == ESRCH))
        return cli_misuse(verb, "there is no process %" PRIu64 "; a file of that name is ./%" PRIu64, pid,
                          pid);
    char below[TOP_PATH_ROOM];
    enum mapped own = find_mapped(pid, path);
    int code = errno;
    *is_own = own == CHUNKS;
    if (*is_own)
        return CLI_OK;
    if (find_below(pid, below, 0))
        memcpy(path, below, sizeof below);
    else if (own != FIRST_PAGE) /* else nothing is written yet */
        path[0] = 0;
    if (path[0])
        return CLI_OK;
    if (own == NOT_READABLE) {
        fprintf(stderr, "berth %s: process %" PRIu64 " cannot be looked into: %s\n", verb, pid,
                strerror(code));
        return CLI_SURROUNDINGS;
    }
    fprintf(stderr,
            "berth %s: process %" PRIu64
            " writes no trace. Start it under the recorder: berth record -- PROGRAM; or let it write one "
            "itself: the setting trace=FILE of its allocators\n",
            verb, pid);
    return CLI_NO;
}
