/* Complaints of the command: misuse, failures in berth's own words, and the name that was probably meant. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

int cli_misuse(const char *verb, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "berth %s: ", verb);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\nTry 'berth help%s%s'.\n", strcmp(verb, "help") == 0 ? "" : " ",
            strcmp(verb, "help") == 0 ? "" : verb);
    va_end(args);
    return CLI_MISUSE;
}

bool cli_is_stdout(const char *path)
{
    struct stat named, open_one;
    if (strcmp(path, "-") == 0)
        return true;
    if (stat(path, &named) != 0 || fstat(STDOUT_FILENO, &open_one) != 0 || named.st_dev != open_one.st_dev ||
        named.st_ino != open_one.st_ino)
        return false;
    return S_ISREG(named.st_mode) || S_ISFIFO(named.st_mode) || isatty(STDOUT_FILENO);
}

int cli_exit_for(berth_status status)
{
    switch (status) {
    case BERTH_OK:
        return CLI_OK;
    case BERTH_INFEASIBLE:
    case BERTH_MISMATCH:
    case BERTH_NOT_READY:
    case BERTH_TIMED_OUT:
    case BERTH_CANCELLED:
        return CLI_NO;
    case BERTH_BAD_DATA:
    case BERTH_OVERFLOW:
        return CLI_BAD_INPUT;
    case BERTH_INVALID_ARGUMENT:
    case BERTH_NOT_FOUND:
        return CLI_MISUSE;
    default:
        return CLI_SURROUNDINGS;
    }
}

int cli_fail(const char *verb, berth_status status, const char *where)
{
    const berth_error *error = berth_last_error();
    const char *words =
        error->status == status && error->message[0] ? error->message : berth_status_words(status);
    fprintf(stderr, "berth %s: %s%s%s\n", verb, where, where[0] ? ": " : "", words);
    return cli_exit_for(status);
}

static size_t smallest(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Insertions, deletions and replacements between two words; two neighbours swapped count as one. */
static size_t edits(const char *a, const char *b)
{
    enum { LONGEST = 32 };
    size_t n = strlen(a), m = strlen(b);
    if (n > LONGEST || m > LONGEST)
        return LONGEST;
    size_t rows[3][LONGEST + 1];
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *row = rows[i % 3], *last = rows[(i - 1) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = smallest(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = smallest(row[j], row[j], before[j - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

const char *cli_nearest(const char *word, const char *const *names, size_t count)
{
    const char *nearest = NULL;
    /* a slip in every third letter, three at most; more is another word */
    size_t fewest = strlen(word) / 3 + 1 < 4 ? strlen(word) / 3 + 1 : 4;
    for (size_t i = 0; i < count; i++) {
        size_t n = edits(word, names[i]);
        if (n < fewest && n < strlen(names[i])) {
            fewest = n;
            nearest = names[i];
        }
    }
    return nearest;
}
