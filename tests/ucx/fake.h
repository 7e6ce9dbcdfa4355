/* What a test tells the stand-in for libucp (fake.c), and what that tells the test; found by dlsym as "fake_ucx". */
#ifndef BERTH_TESTS_UCX_FAKE_H
#define BERTH_TESTS_UCX_FAKE_H

#include <stddef.h>

typedef struct fake_ucx_controls {
    int fail_at;                           /* the how manieth call that can fail does; 0: none */
    int calls;                             /* that can fail, so far */
    size_t max_bytes;                      /* of one registration; 0: no limit */
    int contexts, configs, memories, keys; /* live */
} fake_ucx_controls;

#endif
