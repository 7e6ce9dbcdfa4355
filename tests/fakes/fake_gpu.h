/* The stand-in for a GPU driver: two devices made of host memory and threads, which check how they are used and
 * fail where hardware fails.
 *
 *     fake_world.c   entry rules: contexts, failures on demand, capture, broken devices, fork, exit
 *     fake_stream.c  streams with a thread each, events
 *     fake_memory.c  blocks: device memory that the host cannot touch, and who may touch what
 *     fake_pieces.c  address space that is reserved and mapped in pieces
 *     fake_cuda.c    the CUDA driver's names over it, built as libfake_cuda.so
 *     fake_hip.c     the HIP runtime's names over it, built as libfake_hip.so
 *
 * Tests load the library as berth does (BERTH_CUDA_LIBRARY, BERTH_HIP_LIBRARY) and find the functions of the
 * last section by name. It knows nothing of berth's source but the declarations of the driver's functions.
 * tests/gpu/README.md lists what it enforces, and where that is documented. */
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
    FAKE_DEINITIALIZED = 4,
    FAKE_UNAVAILABLE = 46,
    FAKE_NO_DEVICE = 100,
    FAKE_INVALID_CONTEXT = 201,
    FAKE_INVALID_HANDLE = 400,
    FAKE_NOT_READY = 600,
    FAKE_ILLEGAL_ADDRESS = 700,
    FAKE_PEER_ALREADY_ENABLED = 704,
    FAKE_LOST = 719,
    FAKE_NOT_PERMITTED = 800,
    FAKE_NOT_SUPPORTED = 801,
    FAKE_CAPTURE_UNSUPPORTED = 900,
    FAKE_CAPTURE_INVALIDATED = 901,
    FAKE_CAPTURED_EVENT = 907,
};

/* What kind of block, so that it is freed by the right function. */
typedef enum fake_kind { FAKE_DEVICE_BLOCK, FAKE_HOST_BLOCK, FAKE_MANAGED_BLOCK, FAKE_ASYNC_BLOCK } fake_kind;

/* What a function asks of its caller. */
enum {
    FAKE_ANY = 0,
    FAKE_INIT = 1,    /* the driver is initialized */
    FAKE_CURRENT = 2, /* a context is current on the thread */
    FAKE_WORKS = 8,   /* and its device is not broken */
    FAKE_UNSAFE = 4,  /* not while a stream is captured, unless the thread has said that it knows */
};

/* Every entry point begins with this: counts the call, applies failures on demand, and checks the rules. 0 to go
 * on, else the answer. */
int fake_enter(const char *function, unsigned rules);

void fake_init(void);

/* Contexts: one for each device, then foreign ones, which share their device with the first. The thread's stack of
 * current contexts; -1: none. HIP's threads begin with device 0. */
enum { FAKE_CONTEXTS = 8 };
int fake_current_context(void);
int fake_current(void); /* its device */
int fake_device_of_context(int context);
void fake_push(int context);
int fake_pop(void);
void fake_set_current(int context);

int fake_take(int device, fake_kind kind, size_t size_bytes, void *stream, void **out);
int fake_give(void *p, bool host, void *stream, bool async);
int fake_copy(void *dst, const void *src, size_t size_bytes, void *stream, bool peer);
int fake_fill(void *dst, int value, size_t size_bytes, void *stream);
int fake_register(void *p, size_t size_bytes);
int fake_unregister(void *p);
void fake_memory_info(int device, size_t *free_bytes, size_t *total_bytes);

int fake_stream_create(int context, void **out);
int fake_stream_destroy(void *stream);
int fake_stream_query(void *stream);
int fake_stream_synchronize(void *stream);
int fake_stream_wait(void *stream, void *event);
int fake_stream_context(void *stream, int *context);
int fake_stream_call(void *stream, void (*fn)(void *context), void *context);
/* Modes as the drivers number them: 0 global, 1 thread local, 2 relaxed. */
int fake_capture_begin(void *stream, int mode);
int fake_capture_end(void *stream);
int fake_capture_exchange(unsigned *mode);
int fake_capture_status(void *stream, unsigned *status);

int fake_event_create(int context, void **out);
int fake_event_destroy(void *event);
int fake_event_record(void *event, void *stream);
int fake_event_query(void *event);
int fake_event_synchronize(void *event);

bool fake_peers(void);
int fake_peer_enable(int from, int to);
/* The devices that are named must be those whose memory it is. */
unsigned fake_peer_copy(void *dst, int dst_device, const void *src, int src_device, size_t size_bytes,
                        void *stream);

bool fake_is_managed(const void *p);
/* Handles for other processes: of whole blocks that are not stream-ordered and not mapped in pieces. */
int fake_share(void *p, char bytes[64]);
int fake_open_shared(const char bytes[64], void **out);
int fake_close_shared(void *p);

/* The size of pieces: 2 MiB, or what FAKE_GPU_GRANULARITY says (0 as ROCm 5.6 answers, 4096 as ROCm 6.1). */
size_t fake_granularity(void);
int fake_reserve(size_t size_bytes, size_t alignment, void **out);
int fake_unreserve(void *base, size_t size_bytes);
int fake_create(int device, size_t size_bytes, void **handle);
int fake_release(void *handle);
int fake_map(void *p, size_t size_bytes, void *handle);
int fake_set_access(void *p, size_t size_bytes, int device);
int fake_unmap(void *p, size_t size_bytes);

const char *fake_error_name(int code);

/* ---- For tests, exported by both libraries --------------------------------------------------------- */

#define FAKE_EXPORT __attribute__((visibility("default")))

/* The nth call of `function` from now answers `code` and does nothing; all after it too if `persist`. "*"
 * stands for any function. n = 0 takes the rule away. */
FAKE_EXPORT void fake_gpu_fail(const char *function, int n, int code, bool persist);
/* Every operation on a stream takes so long. */
FAKE_EXPORT void fake_gpu_delay(long nanoseconds);
/* Operations on streams of `device` wait until it is let go again; by hand instead of by the clock. */
FAKE_EXPORT void fake_gpu_hold(int device, bool held);
FAKE_EXPORT void fake_gpu_limit(uint64_t bytes_a_device);
/* The next operation that a stream of `device` runs breaks the device: it and all after it do nothing, and every
 * call answers `code` from then on. 0 mends it. */
FAKE_EXPORT void fake_gpu_break(int device, int code);
/* Freed addresses are handed out again at once; else a freed block is kept, poisoned, for a while. */
FAKE_EXPORT void fake_gpu_reuse(bool at_once);
/* Whether the two devices can reach each other's memory. */
FAKE_EXPORT void fake_gpu_peers(bool can);
/* A context of somebody else's on `device`; NULL when there are too many. */
FAKE_EXPORT void *fake_gpu_foreign_context(int device);
/* How often the driver was used wrongly, and the last time in words. */
FAKE_EXPORT int fake_gpu_misuses(char *words, size_t words_bytes);
/* Blocks, streams, events, handles and reservations that are alive. */
FAKE_EXPORT int fake_gpu_live(void);
FAKE_EXPORT uint64_t fake_gpu_bytes(void);
FAKE_EXPORT long fake_gpu_calls(const char *function);
/* The calling thread's current device (-1: none) and how many are stacked. */
FAKE_EXPORT int fake_gpu_current(int *depth);
/* Bytes of device memory, which the host cannot read where it lies. */
FAKE_EXPORT bool fake_gpu_peek(const void *p, void *out, size_t size_bytes);

#endif
