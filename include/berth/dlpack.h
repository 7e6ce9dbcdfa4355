/* DLPack: tensors that go to and come from NumPy, PyTorch, JAX and others without a copy.
 *
 * The structs below are DLPack's binary form (versions 1.x, and the form without a version before it), under names of our
 * own, so that this header and dlpack/dlpack.h can be included together: `struct DLManagedTensor *` is the same type in
 * both. A program without that header casts it to berth_dl_managed. */
#ifndef BERTH_DLPACK_H
#define BERTH_DLPACK_H

#include "berth/buffer.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

#ifdef __cplusplus
extern "C" {
#endif

#define BERTH_DL_MAJOR 1
#define BERTH_DL_MINOR 0

/* What an element is. */
enum {
    BERTH_DL_INT = 0,
    BERTH_DL_UINT = 1,
    BERTH_DL_FLOAT = 2,
    BERTH_DL_HANDLE = 3,
    BERTH_DL_BFLOAT = 4,
    BERTH_DL_COMPLEX = 5,
    BERTH_DL_BOOL = 6,
};

/* Whose memory it is. */
enum {
    BERTH_DL_CPU = 1,
    BERTH_DL_CUDA = 2,
    BERTH_DL_CUDA_HOST = 3,
    BERTH_DL_OPENCL = 4,
    BERTH_DL_ROCM = 10,
    BERTH_DL_ROCM_HOST = 11,
    BERTH_DL_OTHER = 12, /* an extension: only those who know each other use it */
    BERTH_DL_CUDA_MANAGED = 13,
};

enum {
    BERTH_DL_READ_ONLY = 1,
    BERTH_DL_COPIED = 2,         /* nobody else sees the memory until the deleter is called */
    BERTH_DL_SUB_BYTE_PADDED = 4 /* elements of less than a byte take a byte each */
};

typedef struct berth_dl_type {
    uint8_t code; /* BERTH_DL_FLOAT ... */
    uint8_t bits; /* of one lane */
    uint16_t lanes;
} berth_dl_type;

typedef struct berth_dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t dims;
    berth_dl_type type;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: rows lie one after the other */
    uint64_t byte_offset;
} berth_dl_tensor;

typedef struct berth_dl_managed { /* struct DLManagedTensor */
    berth_dl_tensor tensor;
    void *context;
    void (*deleter)(struct DLManagedTensor *self); /* may be NULL */
} berth_dl_managed;

typedef struct berth_dl_versioned { /* struct DLManagedTensorVersioned */
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct DLManagedTensorVersioned *self); /* may be NULL */
    uint64_t flags;
    berth_dl_tensor tensor;
} berth_dl_versioned;

/* ---- A tensor over a buffer --------------------------------------------------------------------------------- */

#define BERTH_DIMS_MAX 32

typedef struct berth_tensor {
    size_t struct_size;
    berth_buffer *buffer;  /* where the elements lie */
    uint64_t offset_bytes; /* of the first element, from the buffer's start */
    berth_dl_type type;
    int32_t dims;
    uint32_t flags;   /* BERTH_DL_READ_ONLY ... */
    bool has_strides; /* false: rows lie one after the other, `strides` is not read */
    int64_t shape[BERTH_DIMS_MAX];
    int64_t strides[BERTH_DIMS_MAX]; /* in elements; may be 0 or negative */
} berth_tensor;

#define BERTH_TENSOR_INIT                                           \
    {                                                               \
        sizeof(berth_tensor), NULL, 0, {0, 0, 1}, 0, 0, false, {0}, \
        {                                                           \
            0                                                       \
        }                                                           \
    }

/* Lends a tensor to a consumer of DLPack. What is made keeps the buffer alive until its deleter is called, which the
 * consumer does once, on any thread. The elements must lie inside the buffer.
 *
 * `from` is the stream that fills it and `to` the one on which the consumer will use it; NULL: the host. What `from` has been
 * given so far comes before what `to` is given from now on: by an event, or by waiting where `to` is NULL. The block is not
 * reused before `to` has passed the point of its free (berth_record_use). A consumer's native handle becomes a stream by
 * berth_stream_wrap.
 *
 * The tensor's `data` is the first element's address. On a device of OpenCL without pointers it is the cl_mem, and byte_offset
 * leads from there; memory of the device that is no cl_mem (shared virtual memory, and the extension's) is BERTH_UNSUPPORTED.
 * Pinned and managed memory of OpenCL is lent as the host's.
 *
 * Any thread. BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OVERFLOW, BERTH_OUT_OF_HOST_MEMORY, BERTH_UNSUPPORTED, and what the
 * streams answer. */
BERTH_API berth_status berth_dlpack_export(const berth_tensor *tensor, berth_stream *from, berth_stream *to,
                                           struct DLManagedTensorVersioned **out);

/* The same in the form before versions, which older consumers take (NumPy before 2.1). It has no flags: a tensor that is
 * read-only, or has padded elements of less than a byte, is BERTH_UNSUPPORTED. */
BERTH_API berth_status berth_dlpack_export_unversioned(const berth_tensor *tensor, berth_stream *from,
                                                       berth_stream *to, struct DLManagedTensor **out);

/* Takes a producer's tensor over: *out describes it, and out->buffer is the caller's, one reference to memory that is
 * not copied; the last release calls the producer's deleter. The buffer begins at the lowest element, which is not the first
 * where strides are negative. Set out->struct_size. `has_strides` is false where rows lie one after the other; the strides
 * are filled in either way. If this fails the tensor is still the caller's, whose duty it is to call its deleter.
 *
 * The producer sees to it that the data is there: a consumer tells it its stream when it asks for the tensor. Any thread.
 * BERTH_OK, BERTH_INVALID_ARGUMENT, BERTH_OVERFLOW, BERTH_OUT_OF_HOST_MEMORY; BERTH_UNSUPPORTED: another major version, too
 * many dimensions, a device that Berth does not have, a buffer of OpenCL. */
BERTH_API berth_status berth_dlpack_import(struct DLManagedTensorVersioned *managed, berth_tensor *out);
BERTH_API berth_status berth_dlpack_import_unversioned(struct DLManagedTensor *managed, berth_tensor *out);

#ifdef __cplusplus
}
#endif
#endif
