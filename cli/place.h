/* Where an output goes while it is written: beside its place, and moved there when it is whole, so that a failure leaves
 * what was there. A link stays one, and what it leads to is replaced; the file's mode and owner stay. Another hard link of
 * the file keeps what it had: only writing in place would reach it, and a failure would reach it too. */
#ifndef BERTH_CLI_PLACE_H
#define BERTH_CLI_PLACE_H

#include <stdbool.h>
#include <sys/stat.h>

enum { CLI_PLACE_ROOM = 4096 };

typedef struct cli_place {
    char beside
        [CLI_PLACE_ROOM]; /* to be written: an empty file beside the place, or a device or a pipe itself */
    char target[CLI_PLACE_ROOM]; /* the place, links followed */
    struct stat old;             /* of the target, if `replaces` */
    bool replaces, is_direct;
    bool no_room_beside; /* why it failed: the file may be written, its folder not */
} cli_place;

/* Makes the file beside. False with errno: nothing can be written there. */
bool cli_place_begin(cli_place *p, const char *path);
/* Puts words before those of errno, after a failure: "" or what was refused. */
const char *cli_place_why(const cli_place *p);
/* Moves it to its place, or with `keep` false takes it away. False with errno: it could not be moved, and is gone. A zeroed
 * one is a no-op. */
bool cli_place_end(cli_place *p, bool keep);

/* Around a call of the library that writes rows to `path`: it makes a file of its own beside, and what a signal leaves of that goes
 * too. */
void cli_place_rows_begin(const char *path);
void cli_place_rows_end(void);

/* Takes away what is half written, for who ends the command in a signal handler. */
void cli_place_drop(void);

#endif
