/* Solving with a clock, a progress line and Ctrl-C. */
#include "cli/solving.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/size.h"

/* Progress is for those who wait: not before this, and not more often than the second. */
#define PATIENCE_SECONDS 0.5
#define REFRESH_SECONDS 0.1

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Closes the phase that ran until now. */
static void end_phase(cli_solving *s, double time, uint64_t steps)
{
    if (!s->phase_count)
        return;
    cli_phase *phase = &s->phases[s->phase_count - 1];
    phase->seconds += time - s->phase_started;
    phase->steps += steps - s->phase_steps;
    phase->best_bytes = s->best_bytes;
}

static void follow_phases(cli_solving *s, const berth_progress *progress, double time)
{
    bool new_phase = !s->phase_count || s->phases[s->phase_count - 1].name != progress->phase;
    s->best_bytes = progress->best_bytes;
    if (!new_phase)
        return;
    end_phase(s, time, progress->steps);
    if (s->phase_count < CLI_PHASES)
        s->phases[s->phase_count++] = (cli_phase){.name = progress->phase, .best_bytes = UINT64_MAX};
    s->phase_started = time;
    s->phase_steps = progress->steps;
}

static void show(cli_solving *s, const berth_progress *progress, double time)
{
    char best[CLI_SIZE_ROOM], bound[CLI_SIZE_ROOM], gap[CLI_SIZE_ROOM];
    if (progress->best_bytes == UINT64_MAX)
        fprintf(stderr, "\r\033[K%.1f s  %s  no plan yet", time - s->started, progress->phase);
    else
        fprintf(stderr, "\r\033[K%.1f s  %s  best %s  bound %s  %s", time - s->started, progress->phase,
                cli_size_text(progress->best_bytes, best), cli_size_text(progress->lower_bound_bytes, bound),
                cli_gap_text(progress->best_bytes, progress->lower_bound_bytes, gap));
    fflush(stderr);
    s->shown = time;
}

/* A plan is still proven when the search has ended, which looks at every buffer as often as preparing did and takes
 * about as long: the search ends that much earlier. */
static bool time_is_up(const cli_solving *s, double time)
{
    return s->budget_seconds > 0 && time - s->started + s->prepared_seconds >= s->budget_seconds;
}

static berth_stop on_progress(void *context, const berth_progress *progress)
{
    cli_solving *s = context;
    double time = now();
    if (s->prepared_seconds == 0)
        s->prepared_seconds = time - s->started;
    follow_phases(s, progress, time);
    if (s->talks && time - s->started >= PATIENCE_SECONDS && time - s->shown >= REFRESH_SECONDS)
        show(s, progress, time);
    if (interrupted)
        return BERTH_STOP_CANCELLED;
    return time_is_up(s, time) ? BERTH_STOP_CLOCK : BERTH_STOP_DONE;
}

berth_status cli_solve(cli_solving *s, berth_problem_file *file, const berth_problem *problem,
                       uint64_t *offsets)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND}, before;
    s->options.struct_size = sizeof s->options;
    s->options.progress = on_progress;
    s->options.context = s;
    s->certificate.struct_size = sizeof s->certificate;
    s->talks = isatty(STDERR_FILENO);
    s->best_bytes = UINT64_MAX;
    s->prepared_seconds = 0;
    interrupted = 0;
    sigaction(SIGINT, &action, &before);
    s->started = s->shown = now();
    berth_status status = berth_problem_file_solve(file, problem->capacity_bytes, problem->alignment,
                                                   &s->options, offsets, &s->certificate);
    double time = now();
    sigaction(SIGINT, &before, NULL);
    if (s->shown > s->started)
        fputs("\r\033[K", stderr);
    s->seconds = time - s->started;
    if (!status) {
        s->best_bytes = s->certificate.peak_bytes;
        end_phase(s, time, s->certificate.steps);
    }
    return status;
}

const char *cli_fits_word(berth_fits fits)
{
    return fits == BERTH_FITS_YES ? "yes" : fits == BERTH_FITS_NO ? "no" : "unknown";
}

const char *cli_stop_word(berth_stop stop)
{
    static const char *const words[] = {"done",  "optimal", "fits",     "infeasible",
                                        "steps", "clock",   "cancelled"};
    return (size_t)stop < sizeof words / sizeof words[0] ? words[stop] : "unknown";
}
