/* What a test tells the stand-in for libucp (fake.c), and what that tells the test; found by dlsym as "fake_ucx". */
#ifndef BERTH_TESTS_UCX_FAKE_H
#define BERTH_TESTS_UCX_FAKE_H

#include <stddef.h>

typedef struct fake_ucx_controls {
    int fail_at;                           /* the how manieth call that can fail does; 0: none */
    int calls;                             /* that can fail, so far */
    size_t max_bytes;                      /* of one registration; 0: no limit */
    int contexts, configs, memories, keys; /* live */
    /* The peer's side: an endpoint leads to this process itself, if it may. */
    int reaches;  /* keys can be unpacked */
    int requests; /* live, and keys that were unpacked */
    int rkeys;
    int done_after; /* requests are done after so many calls of progress; 0: at once, and there is none */
    int progress;   /* what each call of it answers */
    void (*between)(void *); /* called when the data of a put or get of more than a number has been moved */
    void *between_context;
} fake_ucx_controls;

#endif
