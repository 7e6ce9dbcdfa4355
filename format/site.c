/* Functions that are passed over where a call stack is asked who wants memory. The list stands here and nowhere else: the verbs and
 * the tally ask, and the page is told frame by frame. */
#include "format/site.h"

#include <string.h>
#include <strings.h>

/* Functions that allocate for somebody else: whoever called them is the one to name. */
static const char *const site_names[] = {"free",    "reallocarray", "memalign", "posix_memalign",
                                         "strndup", "__strndup",    "mmap",     "mmap64",
                                         "mremap",  "g_malloc_n"};
static const char *const site_prefixes[] = {"operator new",
                                            "std::",
                                            "__gnu_cxx::",
                                            "_Zn", /* mangled names: nobody was there to demangle them */
                                            "_ZNSt",
                                            "_ZNKSt",
                                            "_ZSt",
                                            "_ZN9__gnu_cxx",
                                            "berth_",
                                            "mi_",
                                            "je_",
                                            "PyMem_",
                                            "_PyMem",
                                            "_PyObject_",
                                            "c10::",
                                            "at::detail::empty",
                                            "at::empty",
                                            "at::native::empty",
                                            "at::_ops::empty",
                                            "torch::unwind::",
                                            "torch::CapturedTraceback",
                                            "rmm::mr::"};
/* Modules of which nothing else is known but that they are allocators. */
static const char *const site_modules[] = {"libjemalloc", "libmimalloc", "libtcmalloc", "libberth"};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Spaces inside <> and () belong to arguments; "operator new" has one that does not end a type. */
size_t format_site_result_length(const char *function)
{
    size_t name = 0;
    int depth = 0;
    for (size_t i = 0; function[i]; i++) {
        const char c = function[i];
        if (strncmp(function + i, "operator", 8) == 0)
            break;
        if (c == '(' && depth == 0 && strncmp(function + i, "(anonymous", 10) != 0)
            break;
        depth += c == '<' || c == '(' ? 1 : c == '>' || c == ')' ? -1 : 0;
        if (c == ' ' && depth == 0)
            name = i + 1;
    }
    return function[name] ? name : 0;
}

/* Where a function's own name ends, before template arguments and parameters, and where it begins behind namespaces. */
static const char *site_own_name(const char *name, size_t *length)
{
    const size_t end = strcspn(name, "<(");
    size_t begin = end;
    while (begin > 0 && name[begin - 1] != ':')
        begin--;
    *length = end - begin;
    return name + begin;
}

/* Programs wrap malloc in functions of their own, which are called like it: png_malloc, av_mallocz, Arena::allocate. Their callers are
 * whom one looks for. */
static bool is_called_like_malloc(const char *name)
{
    static const char *const ends[] = {"alloc",   "allocate", "mallocz", "malloc0",
                                       "calloc0", "zalloc0",  "strdup",  "memdup"};
    size_t length;
    const char *own = site_own_name(name, &length);
    for (size_t i = 0; i < COUNT(ends); i++)
        if (length >= strlen(ends[i]) &&
            strncasecmp(own + length - strlen(ends[i]), ends[i], strlen(ends[i])) == 0)
            return true;
    return false;
}

static bool site_is_general_function(const char *function)
{
    const char *name = function + format_site_result_length(function);
    if (is_called_like_malloc(name))
        return true;
    for (size_t i = 0; i < COUNT(site_names); i++)
        if (strcmp(name, site_names[i]) == 0)
            return true;
    for (size_t i = 0; i < COUNT(site_prefixes); i++)
        if (strncmp(name, site_prefixes[i], strlen(site_prefixes[i])) == 0)
            return true;
    return false;
}

static const char *site_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

bool format_site_is_general(const format_history *h, const format_frame *f)
{
    const char *function = format_history_words(h, f->function);
    if (*function)
        return site_is_general_function(function);
    const char *module = site_file_name(format_history_words(h, f->module));
    for (size_t i = 0; i < COUNT(site_modules); i++)
        if (strncmp(module, site_modules[i], strlen(site_modules[i])) == 0)
            return true;
    return false;
}
