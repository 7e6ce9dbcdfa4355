/* Lines to the host's log hook, or to stderr. */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/lock.h"

static berth__spin hook_lock;
static berth_log_fn hook;                                  /* guard: hook_lock */
static void *hook_context;                                 /* guard: hook_lock */
static berth_log_level hook_threshold = BERTH_LOG_WARNING; /* guard: hook_lock */
static FILE *hook_file; /* guard: hook_lock. From BERTH_LOG; NULL: stderr */
static _Thread_local bool inside_hook;

/* Past the check of ranks: what that finds is told here. */
static void lock_hook(void)
{
    berth__fork_enter(BERTH__RANK_LOG);
    if (atomic_exchange_explicit(&hook_lock.word, 1, memory_order_acquire) != 0)
        berth__spin_wait_ranked(&hook_lock, BERTH__RANK_LOG);
}

static void unlock_hook(void)
{
    atomic_store_explicit(&hook_lock.word, 0, memory_order_release);
    berth__fork_leave(BERTH__RANK_LOG);
}

void berth_log_set(berth_log_fn fn, void *context, berth_log_level threshold)
{
    lock_hook();
    hook = fn;
    hook_context = context;
    hook_threshold = threshold;
    unlock_hook();
}

/* BERTH_LOG=LEVEL[:FILE]. Before other constructors of ours may have something to say. */
__attribute__((constructor(150))) static void read_environment(void)
{
    static const char *const words[] = {"debug", "info", "warning", "error", "none"};
    const char *setting = getenv("BERTH_LOG");
    if (!setting || !*setting)
        return;
    size_t length = strcspn(setting, ":"), level = 0;
    while (level < BERTH_COUNT_OF(words) &&
           (strlen(words[level]) != length || strncmp(words[level], setting, length) != 0))
        level++;
    if (level == BERTH_COUNT_OF(words)) {
        char word[32];
        snprintf(word, sizeof word, "%.*s", (int)(length < 31 ? length : 31), setting);
        const char *near = berth__nearest(word, words, BERTH_COUNT_OF(words));
        fprintf(stderr, "berth: error: BERTH_LOG=%s is ignored: there is no level '%s'; %s%s%s\n", setting,
                word, near ? "did you mean '" : "it is debug, info, warning, error or none", near ? near : "",
                near ? "'?" : "");
        return;
    }
    if (setting[length] == ':') {
        hook_file = fopen(setting + length + 1, "a");
        if (!hook_file)
            fprintf(stderr, "berth: error: BERTH_LOG: %s cannot be opened; lines go to stderr\n",
                    setting + length + 1);
    }
    hook_threshold = (berth_log_level)level;
}

static const char *level_word(berth_log_level level)
{
    static const char *const words[] = {"debug", "info", "warning", "error"};
    return (size_t)level < BERTH_COUNT_OF(words) ? words[level] : "note";
}

void berth__log(berth_log_level level, const char *format, ...)
{
    lock_hook();
    berth_log_fn fn = hook;
    void *context = hook_context;
    FILE *file = hook_file ? hook_file : stderr;
    bool wanted = level >= hook_threshold;
    unlock_hook();
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
        fprintf(file, "berth: %s: %s\n", level_word(level), line);
    if (!fn && file != stderr)
        fflush(file); /* what a crash would lose is what is wanted most */
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
