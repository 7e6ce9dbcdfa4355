/* Sizes in words, text put together in pieces, and the labels that hold the most. */
#include "base/words.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *berth__size_words(uint64_t size_bytes, char words[BERTH__SIZE_WORDS])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (size_bytes < 1024) {
        snprintf(words, BERTH__SIZE_WORDS, "%u byte%s", (unsigned)size_bytes, size_bytes == 1 ? "" : "s");
        return words;
    }
    size_t unit = 0;
    double value = (double)size_bytes / 1024;
    for (; value >= 1023.5 && unit + 1 < BERTH_COUNT_OF(units); unit++)
        value /= 1024;
    char number[16];
    int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    int length = snprintf(number, sizeof number, "%.*f", digits, value);
    /* 2.00 is 2, and 1.50 is 1.5: the exact figure stands beside it. */
    while (digits > 0 && length > 1 && (number[length - 1] == '0' || number[length - 1] == '.')) {
        bool point = number[length - 1] == '.';
        number[--length] = '\0';
        if (point)
            break;
    }
    snprintf(words, BERTH__SIZE_WORDS, "%s %s (%llu bytes)", number, units[unit],
             (unsigned long long)size_bytes);
    return words;
}

void berth__say(berth__text *text, const char *format, ...)
{
    size_t at = text->length < text->capacity ? text->length : text->capacity;
    va_list args;
    va_start(args, format);
    int more = vsnprintf(text->start ? text->start + at : NULL, text->capacity - at, format, args);
    va_end(args);
    text->length += more > 0 ? (size_t)more : 0;
}

void berth__holders_add(berth__holders *holders, const char *label, uint64_t bytes)
{
    size_t smallest = 0;
    if (!label || !*label)
        label = "no label";
    for (size_t i = 0; i < holders->count; i++) {
        if (strcmp(holders->sums[i].label, label) == 0) {
            holders->sums[i].bytes += bytes;
            return;
        }
        if (holders->sums[i].bytes < holders->sums[smallest].bytes)
            smallest = i;
    }
    if (holders->count < BERTH__HOLDERS_SEEN)
        holders->sums[holders->count++] = (struct berth__holder_sum){label, bytes};
    else if (holders->sums[smallest].bytes < bytes)
        holders->sums[smallest] = (struct berth__holder_sum){label, bytes};
}

void berth__holders_sort(berth__holders *holders)
{
    for (size_t i = 0; i < holders->count && i < BERTH__HOLDERS_TOLD; i++)
        for (size_t j = i + 1; j < holders->count; j++)
            if (holders->sums[j].bytes > holders->sums[i].bytes) {
                struct berth__holder_sum swap = holders->sums[i];
                holders->sums[i] = holders->sums[j];
                holders->sums[j] = swap;
            }
}

void berth__holders_say(berth__holders *holders, berth__text *text)
{
    berth__holders_sort(holders);
    for (size_t i = 0; i < holders->count && i < BERTH__HOLDERS_TOLD; i++)
        berth__say(text, "%s%s %s", i ? ", " : "", holders->sums[i].label,
                   BERTH__SIZE(holders->sums[i].bytes));
}
