/* A suite of tests/devices while the driver refuses every Nth call of each function that may run out of something, with
 * one code after the other. What is refused must be said clearly and have no effect; the suite asks again (insist.h), and
 * every check holds. In the end nothing is left of Berth's: no block, queue, event or context of the driver's, no memory. On
 * PoCL, through the shim. Arguments: the shim's path, the mode that it was started in; a third: how often N is, alone. */
#define INSIST_BY_HAND
#include "insist.h"

#include <CL/cl.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/after.h"
#include "devices/harness.h"

/* Under ThreadSanitizer a third of the rounds takes as long as all do without. */
#ifdef __SANITIZE_THREAD__
enum { IS_SLOW = true };
#else
enum { IS_SLOW = false };
#endif

static void (*shim_set)(const char *);
static long (*shim_live)(void);
static long (*shim_failures)(void);
static const char *mode;

/* ---- Rounds ---------------------------------------------------------------------------------------- */

/* The driver puts some things away on a thread of its own, a moment later; and what waits for a stream that could not be
 * waited for goes when somebody comes by. */
static bool comes_to(long (*ask)(void), long wanted)
{
    const struct timespec moment = {0, 1000000};
    for (int i = 0; i < 10000 && ask() != wanted; i++) {
        berth__after_sweep();
        nanosleep(&moment, NULL);
    }
    return ask() == wanted;
}

static long heap_live(void)
{
    return (long)berth__heap_live();
}

static cl_context context_now;
static long is_released(void)
{
    berth_status status = berth_opencl_release(context_now);
    return status == BERTH_OK || status == BERTH_NOT_FOUND;
}

static int run_checks(void)
{
    int failed = 0;
    for (const device_check *check = device_checks; check->title; check++) {
        char words[1024];
        if (check_run(check, words, sizeof words) != CHECK_FAILS)
            continue;
        printf("FAIL  %s: %s\n", check->title, words);
        failed++;
    }
    return failed;
}

/* In a context of its own, which is given back with all that is in it. */
static int run_round(int32_t code, int every)
{
    void *id = NULL;
    berth_device adopted = {0};
    int32_t count = 0;
    char words[128];
    static long heap = -1; /* after the first round: it leaves what is made once and kept */
    const long live = shim_live(), failures = shim_failures();
    atomic_store(&insist_refusals, 0);
    insist_code = code;
    if (berth_opencl_device_id((berth_device){BERTH_DEVICE_OPENCL, 0}, &id) == BERTH_OK)
        context_now = clCreateContext(NULL, 1, (cl_device_id *)&id, NULL, NULL, NULL);
    if (!context_now || berth_opencl_adopt(context_now, &adopted, 1, &count) != BERTH_OK ||
        !checks_begin(adopted)) {
        printf("no context: %s\n", berth_last_error()->message);
        return 1;
    }
    snprintf(words, sizeof words, "%s,failing=%d,code=%d", mode, every, code);
    shim_set(words);
    int failed = run_checks();
    shim_set(mode);
    printf("%s with %d at every %d: %ld refused, %ld of them said\n", mode, code, every,
           shim_failures() - failures, atomic_load(&insist_refusals));
    if (failed)
        return failed; /* what a check has left behind is not Berth's doing */
    if (!comes_to(is_released, 1))
        printf("FAIL  something is left: %s\n", berth_last_error()->message), failed++;
    if (!failed && !comes_to(shim_live, live))
        printf("FAIL  %ld objects of the driver's are left\n", shim_live() - live), failed++;
    if (heap < 0)
        heap = heap_live();
    if (!failed && !comes_to(heap_live, heap))
        printf("FAIL  %ld pieces of memory are left\n", heap_live() - heap), failed++;
    if (shim_failures() == failures || atomic_load(&insist_refusals) == 0)
        printf("FAIL  nothing was refused\n"), failed++;
    clReleaseContext(context_now);
    return failed;
}

int main(int argc, char **argv)
{
    static const int32_t codes[] = {CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY,
                                    CL_MEM_OBJECT_ALLOCATION_FAILURE};
    static const int every[] = {4, 7, 16};
    void *library = argc > 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int32_t count = 0;
    int failed = 0;
    if (!library) {
        fprintf(stderr, "%s\n", argc > 2 ? dlerror() : "which shim, and in which mode?");
        return 1;
    }
    *(void **)&shim_set = dlsym(library, "shim_set");
    *(void **)&shim_live = dlsym(library, "shim_live");
    *(void **)&shim_failures = dlsym(library, "shim_failures");
    insist_begin(library);
    mode = argv[2];
    if (berth_device_count(BERTH_DEVICE_OPENCL, &count) != BERTH_OK) {
        fprintf(stderr, "no OpenCL device here: %s\n", berth_last_error()->message);
        return 77;
    }
    for (size_t i = 0; i < BERTH_COUNT_OF(codes) && !failed; i++)
        for (size_t k = 0; k < BERTH_COUNT_OF(every) && !failed; k++)
            if (argc > 3 ? atoi(argv[3]) == every[k] : !IS_SLOW || i == k)
                failed = run_round(codes[i], every[k]);
    return failed != 0;
}
