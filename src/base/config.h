/* Settings as text: reads "key=value;key=value" into a struct, and says what is wrong with it. */
#ifndef BERTH_BASE_CONFIG_H
#define BERTH_BASE_CONFIG_H

#include "base/base.h"

enum { BERTH__CONFIG_PATH = 256 };

/* What BERTH_CONF can say; see the table in config.c. */
typedef struct berth__config {
    int64_t stats; /* berth_stats_mode */
    int64_t limit_bytes;
    int64_t guard;
    int64_t quarantine_bytes;
    int64_t zero_on_free;
    int64_t scopes;
    int64_t retry_ms;
    int64_t explain;
    int64_t huge_pages;
    int64_t numa_node;
    int64_t prefault;
    int64_t lock_pages;
    int64_t pool;
    char event_log[BERTH__CONFIG_PATH]; /* "": none */
    char trace[BERTH__CONFIG_PATH];     /* "": none */
} berth__config;

typedef struct berth__setting {
    const char *key;
    const char *values;
    const char *meaning;
    size_t offset; /* in berth__config */
    enum {
        BERTH__SETTING_FLAG,
        BERTH__SETTING_NUMBER,
        BERTH__SETTING_BYTES,
        BERTH__SETTING_STATS,
        BERTH__SETTING_PATH
    } kind;
} berth__setting;

extern const berth__setting berth__settings[];
extern const size_t berth__setting_count;

/* Reads `text`. BERTH_OK, or BERTH_INVALID_ARGUMENT with words and *out as by default. */
berth_status berth__config_read(const char *text, berth__config *out);

/* The one of `count` words that `word` was probably meant to be; NULL if none is near. */
const char *berth__nearest(const char *word, const char *const *words, size_t count);

#endif
