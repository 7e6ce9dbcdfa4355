/* Sizes as people write and read them, in units of 1024. */
#include "cli/size.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char letters[] = "KMGTPE";

/* The power of 1024 that a suffix stands for; -1 if it is none. */
static int suffix_power(const char *suffix)
{
    if (!*suffix || strcmp(suffix, "B") == 0 || strcmp(suffix, "b") == 0)
        return 0;
    const char *letter = strchr(letters, toupper((unsigned char)*suffix));
    if (!letter)
        return -1;
    const char *rest = suffix + 1;
    bool known = !*rest || strcasecmp(rest, "B") == 0 || strcasecmp(rest, "iB") == 0;
    return known ? (int)(letter - letters) + 1 : -1;
}

bool cli_size_read(const char *text, uint64_t *bytes)
{
    uint64_t whole = 0, fraction = 0, scale = 1;
    const char *p = text;
    if (!isdigit((unsigned char)*p))
        return false;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole))
            return false;
    if (*p == '.')
        for (p++; isdigit((unsigned char)*p) && scale < 1000000; p++, scale *= 10)
            fraction = fraction * 10 + (uint64_t)(*p - '0');
    while (*p == ' ')
        p++;
    int power = suffix_power(p);
    if (power < 0 || (power == 0 && fraction))
        return false;
    uint64_t unit = (uint64_t)1 << (10 * power);
    if (__builtin_mul_overflow(whole, unit, &whole) || fraction > UINT64_MAX / unit)
        return false;
    return !__builtin_add_overflow(whole, fraction * unit / scale, bytes);
}

const char *cli_size_text(uint64_t bytes, char text[CLI_SIZE_ROOM])
{
    int power = 0;
    double value = (double)bytes;
    for (; value >= 1023.995 && power < (int)strlen(letters); power++)
        value /= 1024;
    if (power == 0)
        snprintf(text, CLI_SIZE_ROOM, "%u B", (unsigned)bytes);
    else
        snprintf(text, CLI_SIZE_ROOM, "%.2f %ciB", value, letters[power - 1]);
    return text;
}

const char *cli_gap_text(uint64_t bytes, uint64_t base, char text[CLI_SIZE_ROOM])
{
    double percent = base ? ((double)bytes / (double)base - 1) * 100 : 0;
    if (bytes <= base || !base)
        snprintf(text, CLI_SIZE_ROOM, "0 %%");
    else if (percent < 0.01)
        snprintf(text, CLI_SIZE_ROOM, "below +0.01 %%");
    else
        snprintf(text, CLI_SIZE_ROOM, "+%.*f %%", percent < 1 ? 2 : 1, percent);
    return text;
}

const char *cli_times_text(uint64_t bytes, uint64_t base, char text[CLI_SIZE_ROOM])
{
    enum { TIMES_FROM = 10 };
    double ratio = base ? (double)bytes / (double)base : 1;
    if (ratio < TIMES_FROM)
        snprintf(text, CLI_SIZE_ROOM, "%+.1f %%", 100 * (ratio - 1));
    else
        snprintf(text, CLI_SIZE_ROOM, ratio < 1e6 ? "%.0f x" : "%.0e x", ratio);
    return text;
}

const char *cli_time_text(double seconds, char text[CLI_SIZE_ROOM])
{
    if (seconds < 1e-3)
        snprintf(text, CLI_SIZE_ROOM, "%.0f us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(text, CLI_SIZE_ROOM, "%.1f ms", seconds * 1e3);
    else
        snprintf(text, CLI_SIZE_ROOM, "%.2f s", seconds);
    return text;
}
