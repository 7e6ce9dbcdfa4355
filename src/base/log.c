/* Lines to the host's log hook, or to stderr. */
#include "base/base.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_mutex_t hook_lock = PTHREAD_MUTEX_INITIALIZER;
static berth_log_fn hook;                                  /* guard: hook_lock */
static void *hook_context;                                 /* guard: hook_lock */
static berth_log_level hook_threshold = BERTH_LOG_WARNING; /* guard: hook_lock */
static _Thread_local bool inside_hook;

void berth_log_set(berth_log_fn fn, void *context, berth_log_level threshold)
{
    pthread_mutex_lock(&hook_lock);
    hook = fn;
    hook_context = context;
    hook_threshold = fn ? threshold : BERTH_LOG_WARNING;
    pthread_mutex_unlock(&hook_lock);
}

static const char *level_word(berth_log_level level)
{
    static const char *const words[] = {"debug", "info", "warning", "error"};
    return (size_t)level < BERTH_COUNT_OF(words) ? words[level] : "note";
}

void berth__log(berth_log_level level, const char *format, ...)
{
    pthread_mutex_lock(&hook_lock);
    berth_log_fn fn = hook;
    void *context = hook_context;
    bool wanted = level >= hook_threshold;
    pthread_mutex_unlock(&hook_lock);
    if (!wanted || inside_hook)
        return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    inside_hook = true;
    if (fn)
        fn(context, level, line);
    else
        fprintf(stderr, "berth: %s: %s\n", level_word(level), line);
    inside_hook = false;
}

bool berth__assert_failed(const char *what, const char *why, const char *file, int line)
{
    berth__log(BERTH_LOG_ERROR, "%s:%d: %s does not hold: %s", file, line, what, why);
#ifndef NDEBUG
    abort();
#endif
    return false;
}
