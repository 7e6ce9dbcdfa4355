/* A library between Berth and the OpenCL loader, loaded through BERTH_OPENCL_LIBRARY. It forwards to the real
 * loader and driver, behaves on demand like drivers that are not here, and complains, by abort, when a rule of
 * the specification is broken.
 *
 *     shim.c        what is asked of it: settings, failures to come, counts
 *     shim_rules.c  what it remembers: blocks, queues, events; the rules
 *     shim_calls.c  the driver's functions that are not simply passed on
 *
 * Settings, in the environment variable BERTH_SHIM or by shim_set, separated by commas:
 *
 *     coarse      the device has coarse-grained memory alone. The host gets addresses without memory, which
 *                 are backed only between a map and an unmap: touching them otherwise is a fault
 *     nosvm       it has no shared virtual memory at all
 *     slow        copies and fills wait a while first, every other one longer; on an out-of-order queue later
 *                 commands overtake them
 *     late=N      a marker looks unfinished to the first N questions
 *     most=N      larger blocks than N bytes are refused; the device does not say so beforehand
 *     honest      with most=N: the device does say so (CL_DEVICE_MAX_MEM_ALLOC_SIZE)
 *     flaky=N     of the calls that may run out of something, every Nth fails once with CL_OUT_OF_RESOURCES */
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
/* Blocks of shared memory that nobody has freed. */
SHIM_EXPORT long shim_blocks(void);
/* The flags of the last map. */
SHIM_EXPORT uint64_t shim_map_flags(void);
/* The driver has something to say to who made a context. */
SHIM_EXPORT void shim_notify(const char *words);

/* ---- Inside -------------------------------------------------------------------------------------- */

typedef struct shim_settings {
    bool coarse, nosvm, slow, honest;
    long late, flaky;
    size_t most_bytes; /* 0: no limit */
} shim_settings;
shim_settings shim_settings_now(void);

void *shim_next(const char *function); /* the real one */
/* CL_SUCCESS, or the code that this call is to answer. */
cl_int shim_enter(const char *function);
_Noreturn void shim_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
cl_int shim_take_marker_code(void);

/* Blocks. `shown` is what Berth has; `real` is what the driver has. */
void shim_block_add(cl_context context, void *shown, void *real, size_t size_bytes);
/* Takes the block out; complains if there is none or the context is another. NULL shown: NULL. */
void *shim_block_remove(cl_context context, void *shown);
/* The driver's address for one of ours; any other comes back as it is (host memory). Complains when a block
 * belongs to another context than the queue, or ends before the range does. */
void *shim_real(cl_command_queue queue, const void *p, size_t size_bytes, bool must_be_block);
/* Backs or hides the range, in mode coarse. */
void shim_map_range(void *p, size_t size_bytes, bool invalidate);
void shim_unmap_range(void *p);

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

#endif
