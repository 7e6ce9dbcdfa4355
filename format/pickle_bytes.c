/* Numbers and texts of a pickle, out of its bytes. */
#include "format/pickle_machine.h"

#include <stdlib.h>
#include <string.h>

enum { LINE_MOST = 4096 };

static void push_words(format_pickle *p, const char *words, size_t length)
{
    uint32_t text = format_history_text(p->history, words, length);
    if (p->history->no_memory)
        (void)pickle_refuse(p);
    pickle_push(p, (format_pickle_value){FORMAT_PICKLE_TEXT, {.number = text}});
}

void format_pickle_push_text(format_pickle *p, uint64_t length)
{
    const unsigned char *bytes = pickle_take(p, length);
    if (bytes)
        push_words(p, (const char *)bytes, (size_t)length);
}

void format_pickle_push_long(format_pickle *p, uint64_t length)
{
    const unsigned char *bytes = pickle_take(p, length);
    uint64_t n = 0;
    for (uint64_t i = 0; bytes && i < length && i < 8; i++)
        n |= (uint64_t)bytes[i] << 8 * i;
    if (bytes && length && length < 8 && bytes[length - 1] & 0x80)
        n |= UINT64_MAX << 8 * length;
    if (bytes)
        pickle_push_number(p, (int64_t)n);
}

/* Big-endian, unlike all else. */
void format_pickle_push_real(format_pickle *p)
{
    const unsigned char *bytes = pickle_take(p, 8);
    uint64_t bits = 0;
    double real;
    for (int i = 0; bytes && i < 8; i++)
        bits = bits << 8 | bytes[i];
    memcpy(&real, &bits, sizeof real);
    if (bytes)
        pickle_push(p, (format_pickle_value){FORMAT_PICKLE_FLOAT, {.real = real}});
}

/* The rest of a line, without its end, in `line`. */
static bool take_line(format_pickle *p, char line[LINE_MOST])
{
    const unsigned char *end = memchr(p->at, '\n', (size_t)(p->end - p->at));
    if (!end) {
        pickle_fail(p, "it ends in the middle");
        return false;
    }
    size_t length = (size_t)(end - p->at);
    size_t kept = length < LINE_MOST ? length : LINE_MOST - 1;
    memcpy(line, p->at, kept);
    line[kept] = 0;
    p->at = end + 1;
    return true;
}

bool format_pickle_skip_lines(format_pickle *p, unsigned count)
{
    char line[LINE_MOST];
    for (unsigned i = 0; i < count; i++)
        if (!take_line(p, line))
            return false;
    return true;
}

void format_pickle_push_line_number(format_pickle *p)
{
    char line[LINE_MOST];
    if (take_line(p, line))
        pickle_push_number(p, strcmp(line, "01") == 0 ? 1 : strtoll(line, NULL, 10));
}

void format_pickle_push_line_real(format_pickle *p)
{
    char line[LINE_MOST];
    if (take_line(p, line))
        pickle_push(p, (format_pickle_value){FORMAT_PICKLE_FLOAT, {.real = strtod(line, NULL)}});
}

void format_pickle_push_line_text(format_pickle *p)
{
    char line[LINE_MOST];
    if (take_line(p, line))
        push_words(p, line, strlen(line));
}

uint64_t format_pickle_line_number(format_pickle *p)
{
    char line[LINE_MOST];
    return take_line(p, line) ? strtoull(line, NULL, 10) : 0;
}
