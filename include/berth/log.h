/* The log hook: how a host program hears warnings and reports. */
#ifndef BERTH_LOG_H
#define BERTH_LOG_H

#include "berth/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum berth_log_level {
    BERTH_LOG_DEBUG = 0,
    BERTH_LOG_INFO = 1,
    BERTH_LOG_WARNING = 2,
    BERTH_LOG_ERROR = 3,
    BERTH_LOG_NONE = 4, /* as a threshold: nothing is reported */
} berth_log_level;

/* Receives one line without a newline. Called with no lock of berth held, on the thread that has
 * something to say; it may call berth, and what it logs from inside is dropped. */
typedef void (*berth_log_fn)(void *context, berth_log_level level, const char *line);

/* Sends lines at or above `threshold` to `fn`, or where it is NULL to stderr (or to the file that BERTH_LOG
 * names). At the start: NULL with BERTH_LOG_WARNING, or the level of BERTH_LOG. BERTH_LOG_NONE silences, with or
 * without a function. Any thread; a line under way on another thread may still reach the old hook. */
BERTH_API void berth_log_set(berth_log_fn fn, void *context, berth_log_level threshold);

#ifdef __cplusplus
}
#endif
#endif
