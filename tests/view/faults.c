/* Every allocation of `berth view` fails once, those of the command and its readers and those of the library: either words and no
 * page, or the page as it would be; and nothing is left behind.
 *
 * usage: view_faults FOLDER INPUT...     FOLDER is for the pages */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "cli/verbs.h"
#include "tests/view/heap.h"

/* ---- The heap ------------------------------------------------------------------------------------------ */

static atomic_size_t taken, live; /* the planner may have threads */
static size_t until_failure;

static bool heap_fails(void)
{
    size_t number = atomic_fetch_add(&taken, 1) + 1;
    if (number != until_failure)
        return false;
    errno = ENOMEM;
    return true;
}

void *heap_malloc(size_t size)
{
    void *block = heap_fails() ? NULL : malloc(size);
    live += block != NULL;
    return block;
}

void *heap_calloc(size_t count, size_t size)
{
    void *block = heap_fails() ? NULL : calloc(count, size);
    live += block != NULL;
    return block;
}

void *heap_realloc(void *old, size_t size)
{
    void *block = heap_fails() ? NULL : realloc(old, size);
    live += block != NULL && !old;
    return block;
}

void heap_free(void *block)
{
    live -= block != NULL;
    free(block);
}

/* Its text is the caller's to free. */
FILE *heap_open_memstream(char **text, size_t *size)
{
    FILE *stream = heap_fails() ? NULL : open_memstream(text, size);
    live += stream != NULL;
    return stream;
}

FILE *heap_fopen(const char *path, const char *mode)
{
    return heap_fails() ? NULL : fopen(path, mode);
}

/* ---- One run ------------------------------------------------------------------------------------------- */

static char page_path[4096];
static const char *input_path, *kind;
static int words_file; /* where the standard error goes */

static void check(bool condition, const char *words)
{
    if (condition)
        return;
    dprintf(STDOUT_FILENO, "%s %s: failure at %zu: %s\n", input_path, kind, until_failure, words);
    exit(1);
}

/* The page, which the caller frees; NULL: there is none. */
static char *page_text(size_t *size)
{
    int file = open(page_path, O_RDONLY);
    struct stat info;
    if (file < 0)
        return NULL;
    char *text = fstat(file, &info) ? NULL : malloc((size_t)info.st_size + 1);
    check(text && read(file, text, (size_t)info.st_size) == info.st_size, "the page cannot be read");
    *size = (size_t)info.st_size;
    close(file);
    return text;
}

static int view_once(char **page, size_t *size)
{
    char *words[8] = {"view", (char *)(uintptr_t)input_path, "-q", "-o", page_path};
    int count = 5;
    if (*kind)
        words[count++] = (char *)(uintptr_t)kind;
    taken = 0;
    check(ftruncate(words_file, 0) == 0 && lseek(words_file, 0, SEEK_SET) == 0, "no file for words");
    unlink(page_path);
    uint64_t library = berth__heap_live();
    int code = cli_verb_view.run(count, words);
    check(berth__heap_live() == library, "something of the library is left");
    check(live == 0, "something is left");
    *page = page_text(size);
    return code;
}

struct wanted {
    int code;
    char *page;
    size_t size;
};

static void compare(const struct wanted *wanted, int code, const char *page, size_t size)
{
    struct stat words;
    check(fstat(words_file, &words) == 0 && (!code || words.st_size > 20), "no words");
    if (code == wanted->code && (code || (size == wanted->size && memcmp(page, wanted->page, size) == 0)))
        return;
    check(code == CLI_SURROUNDINGS, "another answer, or another page");
    check(!page, "a page is left");
}

/* How many failures there were. */
static size_t sweep(void)
{
    struct wanted wanted = {0};
    size_t failures = 0;
    until_failure = 0;
    wanted.code = view_once(&wanted.page, &wanted.size);
    check(!wanted.code == (wanted.page != NULL), "a page for an error, or none");
    const size_t count = taken;
    for (until_failure = 1; until_failure <= count; until_failure++, failures++) {
        char *page;
        size_t size = 0;
        int code = view_once(&page, &size);
        compare(&wanted, code, page, size);
        free(page);
    }
    until_failure = 0;
    for (uint64_t n = 1;; n++, failures++) { /* those of the library */
        char *page;
        size_t size = 0;
        berth__heap_fail_at(n, false);
        int code = view_once(&page, &size);
        bool failed = berth__heap_fail_left() == 0;
        berth__heap_fail_at(0, false);
        compare(&wanted, code, page, size);
        free(page);
        if (!failed)
            break;
    }
    free(wanted.page);
    return failures;
}

int main(int argc, char **argv)
{
    static const char *const kinds[] = {"", "--svg", "--json"};
    size_t failures = 0;
    if (argc < 3)
        return 2;
    words_file = memfd_create("words", MFD_CLOEXEC);
    if (words_file < 0 || dup2(words_file, STDERR_FILENO) < 0)
        return 1;
    snprintf(page_path, sizeof page_path, "%s/faults.%ld.page", argv[1], (long)getpid());
    for (int i = 2; i < argc; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            input_path = argv[i];
            kind = kinds[k];
            failures += sweep();
        }
    unlink(page_path);
    printf("%d files, %zu allocations that failed once each\n", argc - 2, failures);
    return failures > 100 ? 0 : 1;
}
