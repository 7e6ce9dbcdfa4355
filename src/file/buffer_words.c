/* The planner speaks of buffers by number; people know them by id and line. */
#include <ctype.h>
#include <string.h>

#include "base/words.h"
#include "file/problem_file.h"

enum { ID_ROOM = 64 };

/* As in the file, but nothing that a terminal would obey, and no more than one can read. */
static void say_buffer(berth__text *t, const berth_problem_file *file, size_t buffer)
{
    char id[ID_ROOM];
    size_t length = berth_problem_file_id(file, buffer, id, sizeof id);
    for (char *c = id; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            *c = '?';
    berth__say(t, "'%s%s' (line %zu)", id, length < sizeof id ? "" : "...",
               berth_problem_file_line(file, buffer));
}

/* Reads a number; false, and nothing is read, if there is none or no such buffer. */
static bool read_buffer(const berth_problem_file *file, const char **at, size_t *buffer)
{
    const char *p = *at;
    size_t number = 0, count = berth_problem_file_problem(file)->buffer_count;
    if (!isdigit((unsigned char)*p))
        return false;
    for (; isdigit((unsigned char)*p) && number < count; p++)
        number = number * 10 + (size_t)(*p - '0');
    if (number >= count)
        return false;
    *buffer = number;
    *at = p;
    return true;
}

static bool skip(const char **at, const char *words)
{
    size_t length = strlen(words);
    if (strncmp(*at, words, length) != 0)
        return false;
    *at += length;
    return true;
}

/* "buffer 3" or "buffers 3 and 5" at *at: says it, and goes on behind it. */
static bool rename_at(berth__text *t, const berth_problem_file *file, const char **at)
{
    const char *p = *at;
    size_t first = 0, second = 0;
    bool two = skip(&p, "buffers ");
    if (!two && !skip(&p, "buffer "))
        return false;
    if (!read_buffer(file, &p, &first) || (two && (!skip(&p, " and ") || !read_buffer(file, &p, &second))))
        return false;
    say_buffer(t, file, first);
    if (two) {
        berth__say(t, " and ");
        say_buffer(t, file, second);
    }
    *at = p;
    return true;
}

size_t berth_problem_file_words(const berth_problem_file *file, const char *words, char *text, size_t room)
{
    berth__text t = {.start = text, .capacity = text ? room : 0};
    if (t.capacity)
        text[0] = '\0';
    const char *at = words ? words : "";
    while (*at) {
        bool begins = at == words || !isalnum((unsigned char)at[-1]);
        if (file && begins && rename_at(&t, file, &at))
            continue;
        size_t plain = 1;
        while (at[plain] && at[plain] != 'b')
            plain++;
        berth__say(&t, "%.*s", (int)plain, at);
        at += plain;
    }
    return t.length;
}
