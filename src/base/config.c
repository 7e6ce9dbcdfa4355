/* Reads settings: the table of keys, their values, and the nearest key to one that is not known. */
#include "base/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(name) offsetof(berth__config, name)

const berth__setting berth__settings[] = {
    {"stats", "off, basic or full", "figures of the source; full adds sizes, ids, labels and a leak report",
     FIELD(stats), BERTH__SETTING_STATS},
    {"limit", "BYTES", "a hard budget for everything that is allocated", FIELD(limit_bytes),
     BERTH__SETTING_BYTES},
    {"guard", "yes or no", "red zones and a quarantine: finds overflow, double free and late writes",
     FIELD(guard), BERTH__SETTING_FLAG},
    {"quarantine", "BYTES", "freed memory that the guard keeps back (1M)", FIELD(quarantine_bytes),
     BERTH__SETTING_BYTES},
    {"zero_on_free", "yes or no", "the guard wipes freed blocks with zeros", FIELD(zero_on_free),
     BERTH__SETTING_FLAG},
    {"scopes", "yes or no", "true peaks of scopes and labels", FIELD(scopes), BERTH__SETTING_FLAG},
    {"retry_ms", "NUMBER", "an allocation that finds no room waits this long for frees", FIELD(retry_ms),
     BERTH__SETTING_NUMBER},
    {"event_log", "FILE", "a line of CSV for each allocation and free", FIELD(event_log),
     BERTH__SETTING_PATH},
    {"trace", "FILE", "every allocation and free in a trace, for berth view and its kin", FIELD(trace),
     BERTH__SETTING_PATH},
    {"explain", "yes or no", "out-of-memory messages say who holds what, and what would help", FIELD(explain),
     BERTH__SETTING_FLAG},
    {"huge_pages", "yes or no", "large blocks ask for huge pages; blocks are mappings", FIELD(huge_pages),
     BERTH__SETTING_FLAG},
    {"numa_node", "NUMBER", "memory comes from this node; blocks are mappings", FIELD(numa_node),
     BERTH__SETTING_NUMBER},
    {"prefault", "yes or no", "pages are there before the first touch; blocks are mappings", FIELD(prefault),
     BERTH__SETTING_FLAG},
    {"lock_pages", "yes or no", "pages stay in memory; blocks are mappings", FIELD(lock_pages),
     BERTH__SETTING_FLAG},
    {"pool", "yes or no", "a pool cuts blocks from such memory, instead of a mapping for each", FIELD(pool),
     BERTH__SETTING_FLAG},
};
const size_t berth__setting_count = BERTH_COUNT_OF(berth__settings);

/* ---- Near words ---------------------------------------------------------------------------------- */

enum { WORD_MAX = 32 };

static size_t config_least(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* How many letters must be changed, added or left out; words beyond WORD_MAX are far. */
static size_t distance(const char *a, const char *b)
{
    size_t length_a = strlen(a), length_b = strlen(b), row[WORD_MAX + 1];
    if (length_a > WORD_MAX || length_b > WORD_MAX)
        return WORD_MAX;
    for (size_t j = 0; j <= length_b; j++)
        row[j] = j;
    for (size_t i = 1; i <= length_a; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            size_t above = row[j];
            row[j] = config_least(row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[length_b];
}

const char *berth__nearest(const char *word, const char *const *words, size_t count)
{
    const char *best = NULL;
    size_t best_distance = strlen(word) / 2 + 2; /* further away is no help */
    for (size_t i = 0; i < count; i++) {
        size_t away = distance(word, words[i]);
        if (away < best_distance) {
            best_distance = away;
            best = words[i];
        }
    }
    return best;
}

/* ---- Values -------------------------------------------------------------------------------------- */

static bool read_flag(const char *value, int64_t *out)
{
    static const char *const yes[] = {"yes", "1", "true", "on"}, *const no[] = {"no", "0", "false", "off"};
    for (size_t i = 0; i < BERTH_COUNT_OF(yes); i++) {
        if (strcmp(value, yes[i]) == 0 || strcmp(value, no[i]) == 0) {
            *out = strcmp(value, yes[i]) == 0;
            return true;
        }
    }
    return false;
}

/* A number from 0, with K, M, G or T behind it where that is allowed. */
static bool read_number(const char *value, bool bytes, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (end == value || errno || number < 0)
        return false;
    const char *units = "KMGT", *unit = *end && bytes ? strchr(units, *end) : NULL;
    for (int i = 0; unit && i <= unit - units; i++)
        if (__builtin_mul_overflow(number, 1024, &number))
            return false;
    *out = number;
    return end[unit ? 1 : 0] == 0;
}

static bool read_stats(const char *value, int64_t *out)
{
    static const char *const modes[] = {"off", "basic", "full"}; /* in the order of berth_stats_mode */
    for (size_t i = 0; i < BERTH_COUNT_OF(modes); i++)
        if (strcmp(value, modes[i]) == 0) {
            *out = (int64_t)i;
            return true;
        }
    return false;
}

static bool read_value(const berth__setting *setting, const char *value, berth__config *out)
{
    void *field = (char *)out + setting->offset;
    switch (setting->kind) {
    case BERTH__SETTING_FLAG:
        return read_flag(value, field);
    case BERTH__SETTING_NUMBER:
        return read_number(value, false, field);
    case BERTH__SETTING_BYTES:
        return read_number(value, true, field);
    case BERTH__SETTING_STATS:
        return read_stats(value, field);
    case BERTH__SETTING_PATH:
        break;
    }
    size_t length = strlen(value);
    if (length == 0 || length >= BERTH__CONFIG_PATH)
        return false;
    memcpy(field, value, length + 1);
    return true;
}

/* ---- Settings ------------------------------------------------------------------------------------ */

static berth_status unknown_key(const char *key)
{
    const char *keys[BERTH_COUNT_OF(berth__settings)];
    for (size_t i = 0; i < BERTH_COUNT_OF(keys); i++)
        keys[i] = berth__settings[i].key;
    const char *near = berth__nearest(key, keys, BERTH_COUNT_OF(keys));
    if (near)
        return berth__fail(BERTH_INVALID_ARGUMENT, "there is no setting '%s'; did you mean '%s'?", key, near);
    return berth__fail(BERTH_INVALID_ARGUMENT,
                       "there is no setting '%s'; 'berth help environment' lists them all", key);
}

static berth_status read_one(char *word, berth__config *out)
{
    char *equals = strchr(word, '=');
    if (equals)
        *equals = 0;
    for (size_t i = 0; i < berth__setting_count; i++) {
        const berth__setting *setting = &berth__settings[i];
        if (strcmp(setting->key, word) != 0)
            continue;
        if (!equals || !read_value(setting, equals + 1, out))
            return berth__fail(BERTH_INVALID_ARGUMENT, "%s takes %s, not '%s'", setting->key, setting->values,
                               equals ? equals + 1 : "");
        return BERTH_OK;
    }
    return unknown_key(word);
}

static char *config_trim(char *word)
{
    word += strspn(word, " \t");
    size_t length = strlen(word);
    while (length && (word[length - 1] == ' ' || word[length - 1] == '\t'))
        word[--length] = 0;
    return word;
}

berth_status berth__config_read(const char *text, berth__config *out)
{
    static const berth__config defaults = {.stats = 1, .quarantine_bytes = 1 << 20, .numa_node = -1};
    berth__config read = defaults;
    *out = defaults;
    char copy[2048], *rest = NULL;
    size_t length = strlen(text);
    if (length >= sizeof copy)
        return berth__fail(BERTH_INVALID_ARGUMENT, "the settings are longer than %zu bytes", sizeof copy - 1);
    memcpy(copy, text, length + 1);
    for (char *word = strtok_r(copy, ";", &rest); word; word = strtok_r(NULL, ";", &rest)) {
        word = config_trim(word);
        berth_status status = *word ? read_one(word, &read) : BERTH_OK;
        if (status)
            return status;
    }
    *out = read;
    return BERTH_OK;
}
