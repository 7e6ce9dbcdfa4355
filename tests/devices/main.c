/* The suite as a test: on a device of the kind named as argument (see own_device.h; with the ordinal that follows, else
 * the first). What does not apply to a device is told, and is no failure. */
#include <stdlib.h>

#include "own_device.h"

#include "harness.h" /* last: its `device` is that of all checks */

/* The stand-in drivers of tests/fakes know whether they were used as they should be. */
static int misuses(void)
{
    static const char *const variables[] = {"BERTH_CUDA_LIBRARY", "BERTH_HIP_LIBRARY",
                                            "BERTH_OPENCL_LIBRARY"};
    int count = 0;
    for (size_t i = 0; i < BERTH_COUNT_OF(variables); i++) {
        const char *path = getenv(variables[i]);
        void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
        int (*ask)(char *, size_t) = NULL;
        if (library)
            *(void **)&ask = dlsym(library, "fake_gpu_misuses");
        count += ask ? ask(NULL, 0) : 0;
    }
    return count;
}

/* A registered device goes when nothing of it is left. */
static int leftovers(void)
{
    if (device.kind < BERTH_DEVICE_REGISTERED ||
        berth_device_unregister((berth_device_kind)device.kind) == BERTH_OK)
        return 0;
    printf("left over: %s\n", berth_last_error()->message);
    return 1;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cpu";
    int failed = 0;
    if (!checks_begin((berth_device){device_kind_for(name), argc > 2 ? atoi(argv[2]) : 0})) {
        fprintf(stderr, "no %s device here: %s\n", name, berth_last_error()->message);
        /* ctest: skipped; but a library that was named must load, if it finds no driver then */
        return device.kind == BERTH_DEVICE_UNKNOWN && strchr(name, '/') ? 1 : 77;
    }
    for (const device_check *check = device_checks; check->title; check++) {
        char words[1024];
        check_verdict verdict = check_run(check, words, sizeof words);
        printf("%s  %s%s%s\n",
               verdict == CHECK_HOLDS   ? "ok  "
               : verdict == CHECK_FAILS ? "FAIL"
                                        : "skip",
               check->title, words[0] ? ": " : "", words);
        failed += verdict == CHECK_FAILS;
    }
    return failed + misuses() + (failed ? 0 : leftovers()) > 0;
}
