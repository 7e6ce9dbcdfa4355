/* A line that says how far long work is. */
#include "cli/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void cli_progress_begin(cli_progress *p, const char *doing)
{
    *p = (cli_progress){.doing = doing, .started = now(), .on_terminal = isatty(STDERR_FILENO)};
}

void cli_progress_show(void *context, uint64_t done, uint64_t all)
{
    cli_progress *p = context;
    if (!p->on_terminal)
        return;
    double time = now();
    if (time - p->started < 0.5 || time - p->shown < 0.1)
        return;
    p->shown = time;
    p->visible = true;
    if (all)
        fprintf(stderr, "\r\033[K%s: %.0f %%", p->doing,
                done < all ? 100.0 * (double)done / (double)all : 100.0);
    else
        fprintf(stderr, "\r\033[K%s: %llu", p->doing, (unsigned long long)done);
    fflush(stderr);
}

void cli_progress_end(cli_progress *p)
{
    if (p->visible)
        fputs("\r\033[K", stderr);
    p->visible = false;
}
