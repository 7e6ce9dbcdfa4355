/* What is asked of the shim: settings, failures to come, counts of calls; and the real functions. */
#include "shim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FUNCTIONS = 128 };

typedef struct called {
    char name[48];
    long calls;
    long fail_from, fail_to; /* by number of call, from 1; 0: none */
    cl_int code;
    void *next;
} called;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static called functions[MOST_FUNCTIONS]; /* guard: lock */
static int function_count;               /* guard: lock */
static long failures;                    /* guard: lock */
static cl_int marker_code;               /* guard: lock */
static shim_settings settings;           /* guard: lock */
static pthread_once_t ready = PTHREAD_ONCE_INIT;
/* Mode failing: each function's calls since the last failure but one. By thread, so that what fails where does not depend on
 * how threads meet, and no call fails twice in a row. */
static _Thread_local unsigned char calls_since[MOST_FUNCTIONS];
static _Thread_local long failures_here;

_Noreturn void shim_complain(const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "OpenCL used against its rules: ");
    va_start(arguments, format);
    vfprintf(stderr, format, arguments); /* NOLINT(clang-analyzer-valist.Uninitialized): it is, above */
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

static long number_after(const char *words, const char *name)
{
    const char *at = strstr(words, name);
    return at ? strtol(at + strlen(name), NULL, 10) : 0;
}

static void shim_apply(const char *words)
{
    shim_settings wanted = {
        .coarse = strstr(words, "coarse") != NULL,
        .nosvm = strstr(words, "nosvm") != NULL,
        .old = strstr(words, "old") != NULL,
        .usm = strstr(words, "usm") != NULL,
        .slow = strstr(words, "slow") != NULL,
        .honest = strstr(words, "honest") != NULL,
        .late = number_after(words, "late="),
        .failing = number_after(words, "failing="),
        .code = (cl_int)number_after(words, "code="),
        .most_bytes = (size_t)number_after(words, "most="),
        .align_bytes = (size_t)number_after(words, "align="),
    };
    pthread_mutex_lock(&lock);
    settings = wanted;
    pthread_mutex_unlock(&lock);
}

static void from_environment(void)
{
    const char *words = getenv("BERTH_SHIM");
    if (words)
        shim_apply(words);
}

void shim_set(const char *words)
{
    pthread_once(&ready, from_environment); /* which comes first, and not again */
    shim_apply(words);
}

shim_settings shim_settings_now(void)
{
    pthread_once(&ready, from_environment);
    pthread_mutex_lock(&lock);
    shim_settings now = settings;
    pthread_mutex_unlock(&lock);
    return now;
}

/* With the lock held. */
static called *function_named(const char *name)
{
    for (int i = 0; i < function_count; i++)
        if (strcmp(functions[i].name, name) == 0)
            return &functions[i];
    if (function_count == MOST_FUNCTIONS)
        shim_complain("more functions than the shim has room for");
    called *made = &functions[function_count++];
    snprintf(made->name, sizeof made->name, "%s", name);
    return made;
}

void *shim_next(const char *name)
{
    static void *loader; /* guard: lock */
    pthread_mutex_lock(&lock);
    called *function = function_named(name);
    if (!loader)
        loader = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!function->next && loader)
        function->next = dlsym(loader, name);
    void *next = function->next;
    pthread_mutex_unlock(&lock);
    if (!next)
        shim_complain("the loader has no %s", name);
    return next;
}

/* What gives back or asks something simple does not fail: a driver that fails there leaves nothing to be done. */
static bool may_run_out(const char *name)
{
    static const char *const beginnings[] = {"clEnqueue",       "clCreate",       "clSVMAlloc",
                                             "clFlush",         "clFinish",       "clSetEventCallback",
                                             "clWaitForEvents", "clGetEventInfo", NULL};
    for (int i = 0; beginnings[i]; i++)
        if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return strstr(name, "MemAllocINTEL") != NULL;
}

/* The specification names this code for functions on memory objects alone. */
static cl_int code_of(const char *name, cl_int wanted)
{
    if (wanted == 0 || (wanted == CL_MEM_OBJECT_ALLOCATION_FAILURE && !strstr(name, "Buffer")))
        return CL_OUT_OF_RESOURCES;
    return wanted;
}

/* With the lock held. */
static cl_int failing_code(const called *function, shim_settings now)
{
    unsigned char *since = &calls_since[function - functions];
    if (!now.failing || !may_run_out(function->name))
        return CL_SUCCESS;
    ++*since;
    if (*since != now.failing && *since <= 2 * now.failing)
        return CL_SUCCESS;
    if (*since > now.failing)
        *since = 0;
    failures++;
    failures_here++;
    return code_of(function->name, now.code);
}

cl_int shim_enter(const char *name)
{
    shim_settings now = shim_settings_now();
    pthread_mutex_lock(&lock);
    called *function = function_named(name);
    long number = ++function->calls;
    cl_int code = number >= function->fail_from && number < function->fail_to ? function->code
                                                                              : failing_code(function, now);
    pthread_mutex_unlock(&lock);
    return code;
}

long shim_failures(void)
{
    pthread_mutex_lock(&lock);
    long count = failures;
    pthread_mutex_unlock(&lock);
    return count;
}

long shim_failures_here(void)
{
    return failures_here;
}

void shim_fail(const char *name, long nth, long times, int32_t code)
{
    pthread_mutex_lock(&lock);
    called *function = function_named(name);
    function->fail_from = function->calls + nth;
    function->fail_to = function->fail_from + times;
    function->code = code;
    pthread_mutex_unlock(&lock);
}

long shim_calls(const char *name)
{
    pthread_mutex_lock(&lock);
    long calls = function_named(name)->calls;
    pthread_mutex_unlock(&lock);
    return calls;
}

void shim_fail_marker(int32_t code)
{
    pthread_mutex_lock(&lock);
    marker_code = code;
    pthread_mutex_unlock(&lock);
}

cl_int shim_take_marker_code(void)
{
    pthread_mutex_lock(&lock);
    cl_int code = marker_code;
    marker_code = CL_SUCCESS;
    pthread_mutex_unlock(&lock);
    return code;
}
