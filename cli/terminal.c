/* A terminal that a verb draws on. */
#include "cli/terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static struct termios before;
static bool has_keys, is_begun;
static volatile sig_atomic_t ended_by, is_resized, is_stopped;
static sigset_t usual_signals;

static void take_signal(int number)
{
    if (number == SIGWINCH || number == SIGCONT)
        is_resized = 1;
    else if (number == SIGTSTP)
        is_stopped = 1;
    else
        ended_by = number;
}

static void enter(void)
{
    struct termios raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    if (has_keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
    fputs("\033[?1049h\033[?25l", stdout);
    fflush(stdout);
}

static void leave(void)
{
    fputs("\033[?25h\033[?1049l", stdout);
    fflush(stdout);
    if (has_keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &before);
}

static const int watched[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP, SIGCONT};
enum { WATCHED = sizeof watched / sizeof watched[0] };

bool cli_terminal_begin(void)
{
    const char *term = getenv("TERM");
    if (!isatty(STDOUT_FILENO) || !term || !*term || strcmp(term, "dumb") == 0)
        return false;
    has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &before) == 0;
    /* Signals come only while we wait: nothing is drawn or counted by halves. */
    sigset_t blocked;
    struct sigaction action = {.sa_handler = take_signal};
    sigemptyset(&blocked);
    for (int i = 0; i < WATCHED; i++) {
        sigaddset(&blocked, watched[i]);
        sigaction(watched[i], &action, NULL);
    }
    sigprocmask(SIG_BLOCK, &blocked, &usual_signals);
    is_begun = true;
    enter();
    return true;
}

void cli_terminal_end(void)
{
    if (!is_begun)
        return;
    leave();
    is_begun = false;
    for (int i = 0; i < WATCHED; i++)
        signal(watched[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &usual_signals, NULL);
    if (ended_by)
        raise(ended_by);
}

void cli_terminal_size(unsigned *width, unsigned *height)
{
    struct winsize size;
    bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col && size.ws_row;
    *width = known ? size.ws_col : 80;
    *height = known ? size.ws_row : 24;
}

/* Ctrl-Z: the shell gets its terminal as it was, and we ours when we go on. */
static void stop_for_a_while(void)
{
    is_stopped = 0;
    leave();
    raise(SIGSTOP);
    enter();
}

int cli_terminal_wait(double seconds)
{
    struct pollfd keys = {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    struct timespec most = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    sigset_t waiting = usual_signals;
    for (int i = 0; i < WATCHED; i++)
        sigdelset(&waiting, watched[i]);
    int n = ppoll(&keys, 1, &most, &waiting);
    if (is_stopped) {
        stop_for_a_while();
        return CLI_TERMINAL_RESIZED;
    }
    if (ended_by)
        return CLI_TERMINAL_SIGNAL;
    if (is_resized) {
        is_resized = 0;
        return CLI_TERMINAL_RESIZED;
    }
    unsigned char key;
    if (n <= 0)
        return CLI_TERMINAL_NOTHING;
    if (read(STDIN_FILENO, &key, 1) != 1) { /* it hung up */
        has_keys = false;
        ended_by = SIGHUP;
        return CLI_TERMINAL_SIGNAL;
    }
    return key;
}
