/* The return addresses of a call stack, without asking the compiler's unwinder where that can be spared.
 *
 * That one reads the tables of each frame anew, 0.1 us a frame and more. Nearly all frames are of one kind (x86-64): the canonical
 * frame address is the stack pointer or rbp and so many bytes, the return address stands right below, and rbp is unchanged or in
 * the frame. What the tables say of a return address is kept, for all threads, in one word. */
#ifndef BERTH_PRELOAD_UNWIND_H
#define BERTH_PRELOAD_UNWIND_H

#include <stdbool.h>
#include <stdint.h>

enum { RECORDER_DEPTH_MOST = 64 };

typedef struct recorder_walk {
    uint64_t frames[RECORDER_DEPTH_MOST];       /* return addresses, innermost first */
    const uint64_t *slots[RECORDER_DEPTH_MOST]; /* where each stands; higher and higher */
    /* Places of the values of rbp by which frames were found: those may be of any size, so that what stands in the slots does not
     * tell where the next one is. Two more: the recorder's own frames. */
    const uint64_t *pointers[RECORDER_DEPTH_MOST + 2];
    uint32_t depth, pointer_count, most, skipped;
    bool has_slots;
} recorder_walk;

/* Fills `w` with at most w->most frames, without the first `skip` (the function that calls is one). False: a frame is of another
 * kind, or its tables cannot be found; nothing is said then. Any thread, also in a signal's handler. */
bool recorder_unwind(recorder_walk *w, uint32_t skip);

/* Forgets what is known: libraries have gone. Before anybody walks through what has come since. */
void recorder_unwind_forget(void);

#endif
