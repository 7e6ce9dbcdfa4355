/* Settings in words: stacks of allocators from a line of text, and the environment variables that use it.
 *
 *     BERTH_CONF=key=value;key=value   decorates berth_cpu_allocator() in every program that uses berth
 *     BERTH_LOG=LEVEL[:FILE]           debug, info, warning, error or none; lines go to FILE, not stderr
 *     BERTH_SHOW_STATS=1               prints a table of figures to stderr when the program ends
 *
 * They are read when the library is loaded. A mistake in one is said on stderr, and that variable is ignored
 * as a whole: a program does not run with half of its settings. `berth help environment` lists all keys. */
#ifndef BERTH_CONFIG_H
#define BERTH_CONFIG_H

#include "berth/allocator.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the allocator that `settings` describes, "limit=64M;guard=yes", around `inner`; with `inner` NULL
 * around a new source of host memory, which some keys choose. From the inside: pool (over `inner` or the
 * source, unless that is one), stats=full (a tracker, which tells of the blocks that are live when the stack is
 * released), guard, scopes, limit, retry, event_log, trace, explain. The caller owns one reference. Any thread.
 * BERTH_OK; BERTH_INVALID_ARGUMENT for an
 * unknown key or a value that does not suit it, with words that name the nearest known one; else what the
 * parts answer. */
BERTH_API berth_status berth_stack_create(const char *settings, berth_allocator *inner,
                                          berth_allocator **out);

/* Whether `settings` can be read, without making anything. BERTH_OK, BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_config_check(const char *settings);

/* Returns false to end the visit. */
typedef bool (*berth_setting_fn)(void *context, const char *key, const char *values, const char *meaning);

/* Shows every key of BERTH_CONF, what it takes, and what it does. BERTH_OK, BERTH_INVALID_ARGUMENT. */
BERTH_API berth_status berth_config_visit(berth_setting_fn visit, void *context);

#ifdef __cplusplus
}
#endif
#endif
