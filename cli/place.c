/* Where an output goes while it is written, and how it gets to its place. */
#include "cli/place.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PLACE_LINKS_MOST = 40, PLACE_TRIES = 100 }; /* as many links as the system follows */

/* Copies what fits. False with errno. */
static bool place_join(char out[CLI_PLACE_ROOM], const char *folder, size_t length, const char *name)
{
    int put = snprintf(out, CLI_PLACE_ROOM, "%.*s%s", (int)length, folder, name);
    if (put >= 0 && put < CLI_PLACE_ROOM)
        return true;
    errno = ENAMETOOLONG;
    return false;
}

/* Bytes up to the last slash, with it. */
static size_t place_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash + 1 - path) : 0;
}

/* The name behind all links, whether there is a file by that name or not. */
static bool place_follow(cli_place *p, const char *path)
{
    char link[CLI_PLACE_ROOM], next[CLI_PLACE_ROOM];
    if (!place_join(p->target, "", 0, path))
        return false;
    for (int links = 0;; links++) {
        ssize_t length = readlink(p->target, link, sizeof link);
        if (length < 0)
            return true; /* no link, or nothing: opening it says what is wrong with it */
        if (links == PLACE_LINKS_MOST || length == (ssize_t)sizeof link) {
            errno = links == PLACE_LINKS_MOST ? ELOOP : ENAMETOOLONG;
            return false;
        }
        link[length] = 0;
        size_t folder = link[0] == '/' ? 0 : place_folder(p->target);
        if (!place_join(next, p->target, folder, link))
            return false;
        memcpy(p->target, next, sizeof next);
    }
}

/* ---- Signals ------------------------------------------------------------------------------------------- */

/* What is half written goes when the command is ended from outside: its name begins with a dot, and nobody would look for it. Signals that
 * somebody handles or ignores are left alone: berth record hands them on. */
static const int place_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
enum { PLACE_SIGNALS = sizeof place_signals / sizeof place_signals[0] };
static char half_written[CLI_PLACE_ROOM];

static void drop_half_written(int number)
{
    unlink(half_written);
    raise(number); /* comes when this returns, and does what it always does */
}

void cli_place_drop(void)
{
    if (half_written[0])
        unlink(half_written);
}

static void place_watch(const char *path)
{
    struct sigaction watch = {.sa_handler = drop_half_written, .sa_flags = (int)SA_RESETHAND}, now;
    snprintf(half_written, sizeof half_written, "%s", path);
    for (int i = 0; i < PLACE_SIGNALS; i++)
        if (sigaction(place_signals[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            sigaction(place_signals[i], &watch, NULL);
}

static void place_unwatch(void)
{
    struct sigaction usual = {.sa_handler = SIG_DFL}, now;
    for (int i = 0; i < PLACE_SIGNALS; i++)
        if (sigaction(place_signals[i], NULL, &now) == 0 && now.sa_handler == drop_half_written)
            sigaction(place_signals[i], &usual, NULL);
}

/* Named as berth__output_open does at its first try; later ones are for names that another process has left behind. */
void cli_place_rows_begin(const char *path)
{
    cli_place p = {0};
    char name[64];
    snprintf(name, sizeof name, ".berth.%ld.0.tmp", (long)getpid());
    if (strcmp(path, "-") != 0 && place_follow(&p, path) &&
        place_join(p.beside, p.target, place_folder(p.target), name) && access(p.beside, F_OK) != 0)
        place_watch(p.beside);
}

void cli_place_rows_end(void)
{
    place_unwatch();
    half_written[0] = '\0';
}

/* ---- Places -------------------------------------------------------------------------------------------- */

/* Makes a file of a new name beside the place. Its descriptor, or -1 with errno. */
static int place_make_beside(cli_place *p)
{
    size_t folder = place_folder(p->target);
    for (int k = 0; k < PLACE_TRIES; k++) {
        char name[64];
        snprintf(name, sizeof name, ".berth.%ld.%d.tmp", (long)getpid(), k);
        if (!place_join(p->beside, p->target, folder, name))
            return -1;
        int file = open(p->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, p->replaces ? 0600 : 0666);
        if (file >= 0 || errno != EEXIST)
            return file;
    }
    return -1;
}

/* The same, with no signal between the making and the watching. */
static int place_make_watched(cli_place *p)
{
    sigset_t those, before;
    sigemptyset(&those);
    for (int i = 0; i < PLACE_SIGNALS; i++)
        sigaddset(&those, place_signals[i]);
    sigprocmask(SIG_BLOCK, &those, &before);
    int file = place_make_beside(p), reason = errno;
    if (file >= 0)
        place_watch(p->beside);
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = reason;
    return file;
}

/* A file that replaces another one is nobody else's to read until it is whole and has the other's mode and owner. */
static bool place_make(cli_place *p)
{
    struct stat made;
    p->beside[0] = 0;
    int file = place_make_watched(p);
    p->no_room_beside = file < 0 && p->replaces;
    if (file < 0)
        return false;
    bool ours = !p->replaces ||
                (fstat(file, &made) == 0 && made.st_uid == p->old.st_uid && made.st_gid == p->old.st_gid) ||
                fchown(file, p->old.st_uid, p->old.st_gid) == 0;
    int reason = errno;
    close(file);
    if (!ours) {
        unlink(p->beside);
        place_unwatch();
    }
    errno = reason;
    return ours;
}

bool cli_place_begin(cli_place *p, const char *path)
{
    struct stat found;
    *p = (cli_place){0};
    if (!place_follow(p, path))
        return false;
    bool exists = stat(path, &p->old) == 0;
    if (exists && S_ISDIR(p->old.st_mode)) {
        errno = EISDIR;
        return false;
    }
    p->replaces = exists && S_ISREG(p->old.st_mode);
    /* A device or a pipe: a file moved there would take its place, /dev/null for all if root does it. And a file that has no
     * name any more (/dev/fd/3). */
    bool same = exists && stat(p->target, &found) == 0 && found.st_dev == p->old.st_dev &&
                found.st_ino == p->old.st_ino;
    if (exists && (!p->replaces || !same)) {
        p->is_direct = true;
        return place_join(p->beside, "", 0, path);
    }
    if (p->replaces && access(p->target, W_OK) != 0)
        return false; /* a move would replace a file that may not be written */
    return place_make(p);
}

const char *cli_place_why(const cli_place *p)
{
    return p->no_room_beside ? "no new file can be made in its folder: " : "";
}

bool cli_place_end(cli_place *p, bool keep)
{
    if (p->is_direct || !p->beside[0])
        return true;
    bool moved = keep && (!p->replaces || chmod(p->beside, p->old.st_mode & 07777) == 0) &&
                 rename(p->beside, p->target) == 0;
    int reason = errno;
    if (!moved)
        unlink(p->beside);
    place_unwatch();
    errno = reason;
    return moved || !keep;
}
