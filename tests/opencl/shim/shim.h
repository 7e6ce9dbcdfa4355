/* A library between Berth and the OpenCL loader, loaded through BERTH_OPENCL_LIBRARY. It forwards to the real
 * loader and driver, behaves on demand like drivers that are not here, and complains, by abort, when a rule of
 * the specification is broken.
 *
 *     shim.c        what is asked of it: settings, failures to come, counts
 *     shim_rules.c  what it remembers: blocks, queues, events; the rules
 *     shim_calls.c  the driver's functions that are not simply passed on
 *     shim_usm.c    the extension cl_intel_unified_shared_memory, made of shared virtual memory
 *
 * Settings, in the environment variable BERTH_SHIM or by shim_set, separated by commas:
 *
 *     coarse      the device has coarse-grained memory alone. The host gets addresses without memory, which
 *                 are backed only between a map and an unmap: touching them otherwise is a fault
 *     nosvm       it is of OpenCL 1.2, without shared virtual memory: calling what came later is against the rules
 *     old         it is of OpenCL 1.1
 *     usm         it has Intel's extension instead of shared virtual memory. Device memory is no memory to the host:
 *                 touching it is a fault
 *     slow        copies and fills wait a while first, every other one longer; on an out-of-order queue later
 *                 commands overtake them
 *     late=N      a marker looks unfinished to the first N questions
 *     most=N      larger blocks than N bytes are refused; the device does not say so beforehand
 *     honest      with most=N: the device does say so (CL_DEVICE_MAX_MEM_ALLOC_SIZE)
 *     align=N     sub-buffers begin at multiples of N bytes (CL_DEVICE_MEM_BASE_ADDR_ALIGN)
 *     failing=N   every Nth call of each function that may run out of something fails (in turns with the N + 1st, so that
 *                 no loop of N calls meets a failure at the same place each time), counted on each thread. These
 *                 functions allocate, enqueue, flush, wait, ask an event or set a callback
 *     code=C      with failing=N: the code that they answer (CL_OUT_OF_RESOURCES if there is none, and from functions
 *                 that must not answer that code) */
#ifndef BERTH_TESTS_OPENCL_SHIM_H
#define BERTH_TESTS_OPENCL_SHIM_H

#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHIM_EXPORT __attribute__((visibility("default")))

/* ---- For tests: found by dlsym ------------------------------------------------------------------- */

SHIM_EXPORT void shim_set(const char *settings); /* replaces all settings */
/* The calls of `function` from the nth on (1 is the next one), `times` of them, answer `code`. */
SHIM_EXPORT void shim_fail(const char *function, long nth, long times, int32_t code);
SHIM_EXPORT long shim_calls(const char *function);
/* The next marker fails with `code`: a command before it did. */
SHIM_EXPORT void shim_fail_marker(int32_t code);
/* Commands of the queue that were enqueued since it was last flushed. */
SHIM_EXPORT long shim_unflushed(cl_command_queue queue);
/* Blocks of shared memory that nobody has freed, and buffers that nobody has released. */
SHIM_EXPORT long shim_blocks(void);
/* These, and every reference to a context, a queue or an event that Berth has and has not given back. */
SHIM_EXPORT long shim_live(void);
/* Calls that failing=N has made fail; the calling thread's alone. */
SHIM_EXPORT long shim_failures(void);
SHIM_EXPORT long shim_failures_here(void);
/* The flags of the last map. */
SHIM_EXPORT uint64_t shim_map_flags(void);
/* The driver has something to say to who made a context. */
SHIM_EXPORT void shim_notify(const char *words);

/* ---- Inside -------------------------------------------------------------------------------------- */

typedef struct shim_settings {
    bool coarse, nosvm, old, usm, slow, honest;
    long late, failing;
    cl_int code;
    size_t align_bytes; /* 0: as the driver says */
    size_t most_bytes;  /* 0: no limit */
} shim_settings;
shim_settings shim_settings_now(void);

void *shim_next(const char *function); /* the real one */
/* CL_SUCCESS, or the code that this call is to answer. */
cl_int shim_enter(const char *function);
_Noreturn void shim_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
cl_int shim_take_marker_code(void);

/* References that Berth has. One more is given back than there are: a complaint. */
void shim_hold(const char *what, const void *object);
/* Returns how many are left. */
long shim_let_go(const char *what, const void *object);

/* Blocks. `shown` is what Berth has; `real` is what the driver has. */
void shim_block_add(cl_context context, void *shown, void *real, size_t size_bytes);
/* Takes the block out; complains if there is none or the context is another. NULL shown: NULL. */
void *shim_block_remove(cl_context context, void *shown);
/* The driver's address for one of ours; any other comes back as it is (host memory). Complains when a block
 * belongs to another context than the queue, or ends before the range does. */
void *shim_real(cl_command_queue queue, const void *p, size_t size_bytes, bool must_be_block);
void shim_check_overlap(const void *dst, const void *src, size_t size_bytes);
/* Backs or hides the range, in mode coarse. */
void shim_map_range(void *p, size_t size_bytes, bool invalidate);
void shim_unmap_range(void *p);

/* A command of a queue uses the block at `p`, if there is one, until that event. */
void shim_block_used(cl_command_queue queue, const void *p, cl_event until);
/* Waits for the commands that use it. Complains about one that was not flushed. */
void shim_block_wait(const void *p);

/* Buffers that were made through the shim, until they are released there. */
void shim_buffer_add(cl_context context, cl_mem id, size_t size_bytes);
void shim_buffer_remove(cl_mem id);
/* Complains when the buffer is nobody's, belongs to another context than the queue, ends before the range does, or is
 * used by a command while it is mapped. */
void shim_buffer_check(cl_command_queue queue, cl_mem id, size_t from, size_t size_bytes);
void shim_buffer_map(cl_mem id, const void *p);
void shim_buffer_unmap(cl_mem id, const void *p);
size_t shim_buffer_bytes(cl_mem id);

/* Commands. `event` may be NULL. */
void shim_command(cl_command_queue queue, cl_event event, cl_int code, bool blocking);
/* Returns the number of the last command that is flushed. */
long shim_flushed(cl_command_queue queue);
/* Somebody has waited for the queue's commands up to that number. */
void shim_finished(cl_command_queue queue, long up_to);
void shim_forget_queue(cl_command_queue queue);
void shim_check_waits(cl_command_queue queue, cl_uint count, const cl_event *events);
void shim_check_asked(cl_event event);
void shim_wait_flushes(cl_uint count, const cl_event *events);
/* What the event's status is said to be, given the true one. */
cl_int shim_status(cl_event event, cl_int status);
/* Somebody has waited for it. Returns what it is said to have failed with. */
cl_int shim_waited(cl_event event);
void shim_forget_event(cl_event event);
void shim_user_event(cl_context context, cl_event event, bool set);
void shim_check_release(cl_context context, const char *what);
/* Mode slow: an event that takes a while, for the next command to wait for; else NULL. */
cl_event shim_delay(cl_command_queue queue, cl_uint waits, const cl_event *list);

/* A function of the extension; NULL if it has none of the name. */
void *shim_usm_function(const char *name);

/* ---- For the functions ---------------------------------------------------------------------------- */

/* The real function, with its own type. */
#define NEXT(function) ((__typeof__(&(function)))shim_next(#function))
#define ENTER(function)                         \
    do {                                        \
        cl_int entered = shim_enter(#function); \
        if (entered != CL_SUCCESS)              \
            return entered;                     \
    } while (0)

/* What every command here does: checks, waits in mode slow, runs `call`, is counted; its code is left in `answered`. */
#define RUN_COMMAND(queue, blocking, waits, list, out, call) \
    shim_check_waits(queue, waits, list);                    \
    cl_event slowly = shim_delay(queue, waits, list);        \
    if (slowly) {                                            \
        (waits) = 1;                                         \
        (list) = &slowly;                                    \
    }                                                        \
    cl_int answered = (call);                                \
    if (slowly)                                              \
        (void)NEXT(clReleaseEvent)(slowly);                  \
    if (answered == CL_SUCCESS)                              \
    shim_command(queue, (out) ? *(out) : NULL, CL_SUCCESS, blocking)

#define COMMAND(queue, blocking, waits, list, out, call)      \
    do {                                                      \
        RUN_COMMAND(queue, blocking, waits, list, out, call); \
        return answered;                                      \
    } while (0)

#endif
