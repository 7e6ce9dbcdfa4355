/* Text from files, which may be in no encoding at all. */
#ifndef BERTH_FORMAT_TEXT_H
#define BERTH_FORMAT_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Whether the character there turns what stands around it the other way: a name would be read as another. */
static inline bool format_text_turns_around(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    return c[0] == 0xe2 &&
           ((c[1] == 0x80 && c[2] >= 0xaa && c[2] <= 0xae) || (c[1] == 0x81 && c[2] >= 0xa6 && c[2] <= 0xa9));
}

/* The bytes of the UTF-8 character at `text`; 0 if there is none that is right. */
static inline size_t format_text_character(const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    size_t length = c[0] < 0x80   ? 1
                    : c[0] < 0xc2 ? 0
                    : c[0] < 0xe0 ? 2
                    : c[0] < 0xf0 ? 3
                    : c[0] < 0xf5 ? 4
                                  : 0;
    for (size_t i = 1; i < length; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    /* too long for what they say, halves of pairs, and past the end of Unicode */
    if ((c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] > 0x9f) || (c[0] == 0xf0 && c[1] < 0x90) ||
        (c[0] == 0xf4 && c[1] > 0x8f))
        return 0;
    return length;
}

/* Makes a text harmless for a terminal: control characters, and bytes that are no UTF-8, become question marks. A character that
 * is cut off at the end goes. */
static inline char *format_text_clean(char *text)
{
    for (char *c = text; *c;) {
        const unsigned char *byte = (const unsigned char *)c;
        size_t length = format_text_character(c);
        if (!length && byte[0] >= 0xc2 && byte[0] < 0xf5) {
            size_t end = 1;
            while (end < 4 && (byte[end] & 0xc0) == 0x80)
                end++;
            if (!byte[end] && end < (byte[0] < 0xe0 ? 2U : byte[0] < 0xf0 ? 3U : 4U)) {
                *c = 0;
                break;
            }
        }
        /* the second kind of control characters is U+0080 to U+009F: some terminals obey them */
        if (!length || byte[0] < ' ' || byte[0] == 127 || (byte[0] == 0xc2 && byte[1] < 0xa0)) {
            for (size_t left = length ? length : 1; left; left--)
                *c++ = '?';
        } else {
            c += length;
        }
    }
    return text;
}

/* The same of a text of `length` bytes that was copied as far as it fits into `room`: three dots where it did not. */
static inline char *format_text_fit(char *text, size_t room, size_t length)
{
    if (length < room)
        return format_text_clean(text);
    text[room - 4] = 0;
    memcpy(text + strlen(format_text_clean(text)), "...", 4);
    return text;
}

#endif
