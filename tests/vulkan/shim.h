/* A Vulkan loader that stands before the real one and makes its devices otherwise than they are; loaded by
 * BERTH_VULKAN_LIBRARY. BERTH_VK_SHIM, a list: "handles" (a card: its own memory is not the host's, so that addresses stand
 * for it), "few" (8 allocations are permitted), "noimport" (no VK_EXT_external_memory_host). */
#ifndef BERTH_TESTS_VULKAN_SHIM_H
#define BERTH_TESTS_VULKAN_SHIM_H

/* What tests find in it by dlsym. */
typedef struct shim_controls {
    /* The call of that number, counted from 1 now, fails with `code`; 0: none. Calls that make, map, bind, record, submit,
     * signal, wait and ask count. */
    void (*fail_at)(int number, int code);
    int (*failed)(void); /* has it come to that? 2: it was a wait, a question or a signal; 1: another call */
    void (*lose)(void);  /* from now on the device is lost */
    /* The next waits for a semaphore, and the next questions where it stands, find no memory on the host. */
    void (*fail_asking)(int waits, int questions);
    int (*waits)(void); /* since then, failed or not */
    int (*live)(
        void); /* buffers, memory, semaphores, pools, devices and instances that were made and not destroyed */
    int (*most_live_memory)(void);
    int (*misuses)(void); /* mapped what cannot be, or waited for the queue or the device */
} shim_controls;

#endif
