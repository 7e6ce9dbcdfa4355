/* The stand-in for a GPU driver: two devices made of host memory and threads, which check how they are used.
 *
 *     fake_gpu.c   the devices: memory, streams, events, address space, failures on demand
 *     fake_cuda.c  the CUDA driver's names over it, built as libfake_cuda.so
 *     fake_hip.c   the HIP runtime's names over it, built as libfake_hip.so
 *
 * Tests load the library as berth does (BERTH_CUDA_LIBRARY, BERTH_HIP_LIBRARY) and find the functions of the
 * last section by name. It knows nothing of berth's source but the declarations of the driver's functions. */
#ifndef BERTH_TESTS_FAKE_GPU_H
#define BERTH_TESTS_FAKE_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    FAKE_DEVICES = 2,
    FAKE_OK = 0,
    FAKE_INVALID_VALUE = 1,
    FAKE_OUT_OF_MEMORY = 2,
    FAKE_NOT_INITIALIZED = 3,
    FAKE_NO_DEVICE = 100,
    FAKE_INVALID_CONTEXT = 201,
    FAKE_INVALID_HANDLE = 400,
    FAKE_NOT_READY = 600,
    FAKE_LOST = 719,
    FAKE_NOT_PERMITTED = 800,
    FAKE_NOT_SUPPORTED = 801,
};

/* What kind of block, so that it is freed by the right function. */
typedef enum fake_kind { FAKE_DEVICE_BLOCK, FAKE_HOST_BLOCK, FAKE_MANAGED_BLOCK, FAKE_ASYNC_BLOCK } fake_kind;

/* Every entry point begins with this: counts the call, applies failures on demand, and checks the order of
 * calls. `current` is the device that must be current on the thread, -1 if none need be. 0 to go on, else the
 * answer. */
int fake_enter(const char *function, bool needs_init, bool needs_current);

void fake_init(void);
/* The thread's stack of current devices; -1: none. HIP's threads begin with device 0. */
int fake_current(void);
void fake_push(int device);
int fake_pop(void);
void fake_set_current(int device);

int fake_take(int device, fake_kind kind, size_t size_bytes, void *stream, void **out);
int fake_give(void *p, bool host, void *stream, bool async);
int fake_copy(void *dst, const void *src, size_t size_bytes, void *stream);
int fake_fill(void *dst, int value, size_t size_bytes, void *stream);

int fake_stream_create(int device, void **out);
int fake_stream_destroy(void *stream);
int fake_stream_query(void *stream);
int fake_stream_synchronize(void *stream);
int fake_stream_wait(void *stream, void *event);
/* Waits until no operation of the stream that is enqueued now touches the block that begins at `p`. */
int fake_stream_wait_for_block(void *stream, const void *p);
int fake_stream_call(void *stream, void (*fn)(void *context), void *context);

int fake_event_create(int device, void **out);
int fake_event_destroy(void *event);
int fake_event_record(void *event, void *stream);
int fake_event_query(void *event);
int fake_event_synchronize(void *event);

enum { FAKE_PIECE = 64 << 10 };
int fake_reserve(size_t size_bytes, size_t alignment, void **out);
int fake_unreserve(void *base, size_t size_bytes);
int fake_create(int device, size_t size_bytes, void **handle);
int fake_release(void *handle);
int fake_map(void *p, size_t size_bytes, void *handle);
int fake_set_access(void *p, size_t size_bytes);
int fake_unmap(void *p, size_t size_bytes);

const char *fake_error_name(int code);

/* ---- For tests, exported by both libraries --------------------------------------------------------- */

#define FAKE_EXPORT __attribute__((visibility("default")))

/* The nth call of `function` from now answers `code` and does nothing; all after it too if `persist`. "*"
 * stands for any function. n = 0 takes the rule away. */
FAKE_EXPORT void fake_gpu_fail(const char *function, int n, int code, bool persist);
/* Every operation on a stream takes so long. */
FAKE_EXPORT void fake_gpu_delay(long nanoseconds);
FAKE_EXPORT void fake_gpu_limit(uint64_t bytes_a_device);
/* How often the driver was used wrongly, and the last time in words. */
FAKE_EXPORT int fake_gpu_misuses(char *words, size_t words_bytes);
/* Blocks, streams, events, handles and reservations that are alive. */
FAKE_EXPORT int fake_gpu_live(void);
FAKE_EXPORT uint64_t fake_gpu_bytes(void);
FAKE_EXPORT long fake_gpu_calls(const char *function);
/* The calling thread's current device (-1: none) and how many are stacked. */
FAKE_EXPORT int fake_gpu_current(int *depth);

#endif
