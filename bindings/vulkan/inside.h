/* The inside of the Vulkan device.
 *
 *     kind ──> devices ──┬─> blocks   memory and what addresses stand for it
 *                        └─> lines    streams: a timeline semaphore, command buffers, work that has to wait on the host
 *
 * A line is made once and kept until the device goes: destroyed streams leave theirs, with its numbers, to the next one. So
 * an event is a line and a number, and a semaphore that some submission waits for is always there. */
#ifndef BERTH_VULKAN_INSIDE_H
#define BERTH_VULKAN_INSIDE_H

#include <berth/device_ops.h>
#include <pthread.h>
#include <stdatomic.h>

#define VK_NO_PROTOTYPES
#include "berth_vulkan.h"

#define BVK_COUNT_OF(array) (sizeof(array) / sizeof *(array))
#define BVK_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* ---- The driver's functions ------------------------------------------------------------------------ */

#define BVK_INSTANCE_CALLS(X)                   \
    X(vkDestroyInstance)                        \
    X(vkEnumeratePhysicalDevices)               \
    X(vkGetPhysicalDeviceProperties2)           \
    X(vkGetPhysicalDeviceFeatures2)             \
    X(vkGetPhysicalDeviceMemoryProperties2)     \
    X(vkGetPhysicalDeviceQueueFamilyProperties) \
    X(vkEnumerateDeviceExtensionProperties)     \
    X(vkCreateDevice)                           \
    X(vkGetDeviceProcAddr)

#define BVK_DEVICE_CALLS(X)          \
    X(vkDestroyDevice)               \
    X(vkGetDeviceQueue)              \
    X(vkQueueSubmit)                 \
    X(vkCreateBuffer)                \
    X(vkDestroyBuffer)               \
    X(vkGetBufferMemoryRequirements) \
    X(vkAllocateMemory)              \
    X(vkFreeMemory)                  \
    X(vkBindBufferMemory)            \
    X(vkMapMemory)                   \
    X(vkCreateSemaphore)             \
    X(vkDestroySemaphore)            \
    X(vkCreateCommandPool)           \
    X(vkDestroyCommandPool)          \
    X(vkAllocateCommandBuffers)      \
    X(vkBeginCommandBuffer)          \
    X(vkEndCommandBuffer)            \
    X(vkCmdCopyBuffer)               \
    X(vkCmdFillBuffer)               \
    X(vkCmdPipelineBarrier)

/* Core since 1.2, an extension's with KHR at the end before. */
#define BVK_TIMELINE_CALLS(X)     \
    X(vkGetSemaphoreCounterValue) \
    X(vkWaitSemaphores)           \
    X(vkSignalSemaphore)

/* NULL where the driver lacks them. */
#define BVK_OPTIONAL_CALLS(X)   \
    X(vkGetBufferDeviceAddress) \
    X(vkGetMemoryHostPointerPropertiesEXT)

#define BVK_MEMBER(name) PFN_##name name;
typedef struct bvk_instance_calls {
    BVK_INSTANCE_CALLS(BVK_MEMBER)
} bvk_instance_calls;
typedef struct bvk_calls {
    BVK_DEVICE_CALLS(BVK_MEMBER)
    BVK_TIMELINE_CALLS(BVK_MEMBER)
    BVK_OPTIONAL_CALLS(BVK_MEMBER)
} bvk_calls;
#undef BVK_MEMBER

/* ---- Blocks ---------------------------------------------------------------------------------------- */

/* One VkDeviceMemory with one VkBuffer over all of it, or over imported memory of the host.
 *
 *     buffer:  |<- offset ->|<------- size ------->|   |     the rest is what alignment or whole pages cost
 *                           base: what Berth computes with */
typedef struct bvk_block {
    VkBuffer buffer;
    VkDeviceMemory memory;
    VkDeviceSize buffer_bytes;
    VkDeviceAddress address; /* of the buffer's beginning; 0: none */
    char *base;
    size_t offset, size;
    bool touchable; /* base is a pointer of the host's, else an address that stands for memory */
    bool imported;  /* memory of the caller's, registered */
    berth_memory_kind kind;
} bvk_block;

/* ---- Devices --------------------------------------------------------------------------------------- */

typedef struct bvk_line bvk_line;
typedef struct bvk_kind bvk_kind;

typedef struct bvk_device {
    bvk_kind *kind;
    bool adopted;
    VkPhysicalDevice physical;
    uint32_t family;
    bool has_addresses, has_import; /* of the features that are optional */
    size_t import_alignment;
    VkPhysicalDeviceLimits limits;

    /* Opened on first use; what follows is constant from then on. */
    _Atomic bool open;
    pthread_mutex_t opening;
    VkDevice logical;
    VkQueue queue;
    bvk_calls call;
    uint32_t type_of[4]; /* by berth_memory_kind; NO_TYPE: the device has no such memory */
    uint64_t total_bytes;
    size_t most_bytes;
    bool pointers;           /* the device's own memory is the host's too */
    size_t offset_alignment; /* of what kernels bind */
    bvk_block *zeros;
    VkCommandPool pool;           /* of this one: */
    VkCommandBuffer show_to_host; /* what the device wrote before becomes visible to the host */

    void (*lock_queue)(void *context);
    void (*unlock_queue)(void *context);
    void *lock_context;
    pthread_mutex_t own_queue_lock; /* where the program gave no functions */

    _Atomic bool lost;
    unsigned generation; /* of the process that opened it; see bvk_generation */

    _Atomic uint32_t allocations; /* live ones; the driver has a limit */

    pthread_rwlock_t blocks_lock;
    bvk_block **blocks; /* by base; guard: blocks_lock, like the two below */
    size_t blocks_count, blocks_room;

    pthread_mutex_t lines_lock;
    bvk_line *all_lines;     /* guard: lines_lock, like the two below */
    bvk_line *idle_lines;    /* nothing is enqueued on them */
    bvk_line *closing_lines; /* their streams are gone, their work may not be */
} bvk_device;

enum { BVK_NO_TYPE = UINT32_MAX };

/* What operations get as `self`. */
struct bvk_kind {
    char name[32];
    _Atomic int32_t state; /* of bvk_kind_state */
    pthread_mutex_t loading;
    char why_not[256]; /* why there is none; constant once it failed */
    void *library;     /* libvulkan; NULL for an adopted device */
    PFN_vkGetInstanceProcAddr get_instance_proc_addr;
    VkInstance instance;
    bvk_instance_calls call;
    bvk_device *devices;
    int32_t count;
    unsigned generation; /* of the process that loaded it */
    /* Of adopted ones, once they are registered; guard: in kind.c. */
    berth_device_kind number;
    bvk_kind *next;
};

typedef enum bvk_kind_state { BVK_NOT_LOADED, BVK_LOADED, BVK_ABSENT } bvk_kind_state;

/* load.c: the loader, an instance, and which devices there are. Call under kind->loading. */
berth_status bvk_load(bvk_kind *kind);
berth_status bvk_load_instance_calls(bvk_kind *kind);
void bvk_unload(bvk_kind *kind);
/* What a physical device has; false if it is of no use to us. */
bool bvk_look(bvk_kind *kind, bvk_device *device);

/* device.c: the logical device. The device of an ordinal, opened and alive; else why not. */
berth_status bvk_open(void *self, berth_device device, bvk_device **out);
berth_status bvk_open_device(bvk_device *device);
void bvk_close_device(bvk_device *device);
/* BERTH_OK, or BERTH_DEVICE_LOST with words. */
berth_status bvk_alive(bvk_device *device);
/* Counts up in the child of a fork, where no driver works. */
extern unsigned bvk_generation;

/* error.c: what a VkResult means; keeps the words. Notes a device that is lost. `device` may be NULL. */
berth_status bvk_fail(bvk_device *device, VkResult code, const char *what);
/* For what cannot go on after this answer: the device counts as lost. BERTH_DEVICE_LOST. */
berth_status bvk_lose(bvk_device *device, VkResult code, const char *what);

/* ---- Memory: memory.c, blocks.c -------------------------------------------------------------------- */

berth_status bvk_choose_types(bvk_device *device);
berth_status bvk_block_make(bvk_device *device, berth_memory_kind kind, size_t size_bytes, size_t alignment,
                            bvk_block **out);
void bvk_block_free(bvk_device *device, bvk_block *block);

berth_status bvk_blocks_add(bvk_device *device, bvk_block *block);
/* Takes out the block that is like `as`: in base and imported, and a block of ours in size and kind as well. NULL if there is
 * none; then *size_bytes is the size of the one that begins there, 0: none does. */
bvk_block *bvk_blocks_take(bvk_device *device, const bvk_block *as, size_t *size_bytes);
bvk_block *bvk_blocks_find(bvk_device *device, const void *p);

berth_status bvk_allocate(void *self, berth_device device, berth_memory_kind kind, size_t size_bytes,
                          size_t alignment, berth_stream *stream, void **out);
berth_status bvk_release(void *self, berth_device device, berth_memory_kind kind, void *p, size_t size_bytes,
                         berth_stream *stream);
berth_status bvk_register_host(void *self, berth_device device, void *p, size_t size_bytes);
berth_status bvk_unregister_host(void *self, berth_device device, void *p);
berth_status bvk_locate(void *self, berth_device device, const void *p, berth_device_place *out);
berth_status bvk_most_bytes(void *self, berth_device device, berth_memory_kind kind, size_t *out);

/* ---- Lines: line.c, job.c -------------------------------------------------------------------------- */

/* A copy or a fill with zeros, its ends found. */
typedef struct bvk_copy {
    char *dst;
    const char *src;      /* NULL: zeros */
    bvk_block *to, *from; /* NULL: memory of the host that the driver does not know */
    size_t size;
} bvk_copy;

/* A recorded command buffer that is in use until the line has passed `number`. */
typedef struct bvk_slot {
    struct bvk_slot *next;
    VkCommandBuffer commands;
    uint64_t number;
} bvk_slot;

typedef struct bvk_point {
    VkSemaphore semaphore;
    uint64_t value;
} bvk_point;

/* Work on a line is numbered from 1. Its semaphore is signalled with the number of each piece when that is done: by the
 * queue, or by the host. `last` is the end of the line, `given` what the queue has or the host has signalled, `done` what
 * has been seen to be passed: done <= given <= last. While `deferred` is 0, given is last. */
struct bvk_line {
    berth_stream_base base; /* first: Berth's own part */
    bvk_device *device;
    bvk_line *next_of_all, *next; /* guard: the device's lines_lock */
    VkSemaphore timeline;
    _Atomic uint64_t done, given;
    _Atomic uint64_t failed_at; /* number of a deferred piece that could not be given to the queue; 0: none */
    _Atomic int failed_status, failed_code; /* of it; written while failed_at is 0 */
    bvk_block *staging; /* made when first needed, by whoever has the line to himself or holds the lock */

    /* Held while commands are recorded and given to the queue: Vulkan wants one thread at a time at a command pool, and a
     * line's numbers have to be signalled in their order. */
    pthread_mutex_t lock;
    uint64_t last;        /* guard: lock, like all below */
    uint64_t deferred;    /* jobs on the runner that are not done */
    berth_stream *runner; /* a CPU stream; NULL until something has to wait */
    VkCommandPool pool;
    bvk_slot *used_first, **used_last; /* in the order of numbers */
    bvk_slot *spare;
    bvk_point *waits; /* for the next submission; the queue has what they wait for */
    size_t waits_count, waits_room;
};

enum { BVK_STAGING_BYTES = 1 << 20 };

berth_status bvk_line_take(bvk_device *device, bvk_line **out);
/* Its work may be under way. */
void bvk_line_give(bvk_line *line);
void bvk_lines_free(bvk_device *device);

/* Has the line passed `number`? BERTH_OK, BERTH_NOT_READY, or why that cannot be known. */
berth_status bvk_line_reached(bvk_line *line, uint64_t number);
/* On failure the device is lost, or left behind in a fork's parent. */
berth_status bvk_line_await(bvk_line *line, uint64_t number);
berth_status bvk_await_point(bvk_device *device, const bvk_point *point);
/* The same for whoever has to be told if something before could not be done. */
berth_status bvk_line_query(bvk_line *line, uint64_t number);
berth_status bvk_line_wait(bvk_line *line, uint64_t number);

/* Call under the line's lock. Records and submits as `number`, which is the one after `given`. */
berth_status bvk_give_copy(bvk_line *line, const bvk_copy *copy, uint64_t number);
/* The same for a command buffer of the program's; VK_NULL_HANDLE: for nothing but the waits. */
berth_status bvk_give_commands(bvk_line *line, VkCommandBuffer commands, uint64_t number);
/* The waits that no submission has taken yet are submitted alone. */
berth_status bvk_flush_waits(bvk_line *line);
berth_status bvk_line_staging(bvk_line *line);
/* record.c: between begin and end. */
void bvk_record_copy(bvk_line *line, VkCommandBuffer commands, const bvk_copy *copy);
bool bvk_needs_staging(const bvk_copy *copy);

typedef enum bvk_job_kind { BVK_JOB_COPY, BVK_JOB_COMMANDS, BVK_JOB_CALL, BVK_JOB_WAIT } bvk_job_kind;

typedef struct bvk_job {
    bvk_line *line;
    uint64_t number;
    bvk_job_kind kind;
    bvk_copy copy;
    VkCommandBuffer commands;
    void (*fn)(void *context);
    void *context;
    bvk_point point;
} bvk_job;

/* At once if the line has no work on the host and the job is the queue's, else later. */
berth_status bvk_enqueue(bvk_line *line, const bvk_job *job);
/* What is enqueued from now on waits for the point. `given`: the queue has what will reach it, or it is reached. */
berth_status bvk_enqueue_wait(bvk_line *line, const bvk_point *point, bool given);
/* Without a line, done on return. `after`: what the device wrote before is seen; may be NULL. */
berth_status bvk_copy_now(bvk_device *device, const bvk_copy *copy, const bvk_point *after);

/* ---- The table's operations: stream.c, copy.c ------------------------------------------------------ */

berth_status bvk_op_copy(void *self, berth_device device, void *dst, const void *src, size_t size_bytes,
                         berth_copy_kind kind, berth_stream *stream);
berth_status bvk_op_zero(void *self, berth_device device, void *dst, size_t size_bytes, berth_stream *stream);
berth_status bvk_stream_create(void *self, berth_device device, berth_stream **out);
void *bvk_stream_native(void *self, berth_stream *stream);
void bvk_stream_destroy(void *self, berth_stream *stream);
berth_status bvk_stream_query(void *self, berth_stream *stream);
berth_status bvk_stream_synchronize(void *self, berth_stream *stream);
berth_status bvk_stream_wait_event(void *self, berth_stream *stream, berth_event *event);
berth_status bvk_stream_call(void *self, berth_stream *stream, void (*fn)(void *context), void *context);
berth_status bvk_event_create(void *self, berth_device device, berth_event **out);
berth_status bvk_event_record(void *self, berth_event *event, berth_stream *stream);
berth_status bvk_event_query(void *self, berth_event *event);
berth_status bvk_event_wait(void *self, berth_event *event);
void bvk_event_destroy(void *self, berth_event *event);

#endif
