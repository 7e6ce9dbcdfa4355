/* Writing a file whole or not at all. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/place.h"

/* Closes; false with errno if not all of it was written. */
static bool write_all(FILE *out, const void *data, size_t size)
{
    bool done = fwrite(data, 1, size, out) == size;
    int reason = errno;
    bool closed = fclose(out) == 0;
    if (!done)
        errno = reason;
    return done && closed;
}

static bool write_beside(cli_place *p, const void *data, size_t size)
{
    FILE *out = fopen(p->beside, "wb");
    bool done = out && write_all(out, data, size);
    int reason = errno;
    bool moved = cli_place_end(p, done);
    if (!done)
        errno = reason;
    return done && moved;
}

int cli_write_whole(const char *verb, const char *path, const void *data, size_t size)
{
    cli_place place;
    if (cli_is_stdout(path)) {
        if (fwrite(data, 1, size, stdout) == size)
            return CLI_OK;
        fprintf(stderr, "berth %s: the output could not be written: %s\n", verb, strerror(errno));
        return CLI_SURROUNDINGS;
    }
    if (cli_place_begin(&place, path) && write_beside(&place, data, size))
        return CLI_OK;
    fprintf(stderr, "berth %s: %s: it cannot be written: %s%s\n", verb, path, cli_place_why(&place),
            strerror(errno));
    return CLI_SURROUNDINGS;
}
