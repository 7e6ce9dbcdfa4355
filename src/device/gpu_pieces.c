/* Address space of CUDA and HIP devices: reserved once, mapped and unmapped in pieces.
 *
 * The drivers unmap only what one call has mapped, so we map piece by piece, and any run of pieces can go. Each piece
 * costs a handle and some microseconds; access is asked for once a run. So that tens of gigabytes map in a fraction of a
 * second, pieces grow with the device: one has at most some thousands. */
#include "device/gpu.h"

enum { LEAST_PIECE = 2 << 20, MOST_PIECE = 32 << 20, PIECES_A_DEVICE = 4096 };

/* BERTH_OK with the device current, or why not. */
static berth_status pieces_enter(gpu_device *device, gpu_visit *visit)
{
    if (!device->pieces)
        return berth__fail(BERTH_UNSUPPORTED, "%s device %d, or its driver, cannot map memory in pieces",
                           device->driver->title, (int)device->ordinal);
    return berth__gpu_enter(device, visit);
}

static berth_status pieces_leave(gpu_device *device, const gpu_visit *visit, int code, const char *what)
{
    berth__gpu_leave(device, visit);
    return code == GPU_SUCCESS ? BERTH_OK : berth__gpu_fail(device, code, BERTH_OUT_OF_DEVICE_MEMORY, what);
}

static int pieces_unmap(gpu_device *device, char *p, size_t size_bytes, size_t piece)
{
    int worst = GPU_SUCCESS;
    for (size_t done = 0; done < size_bytes; done += piece) {
        int code = device->driver->unmap(p + done, piece);
        worst = worst == GPU_SUCCESS ? code : worst;
    }
    return worst;
}

static int pieces_map(gpu_device *device, char *p, size_t size_bytes, size_t piece)
{
    gpu_device *peers[GPU_MOST_DEVICES];
    size_t done = 0;
    int code = GPU_SUCCESS;
    for (; done < size_bytes && code == GPU_SUCCESS; done += piece)
        code = device->driver->map(device, p + done, piece);
    if (code != GPU_SUCCESS)
        done -= piece; /* of the piece that failed nothing is there */
    else
        code = device->driver->access(peers, berth__gpu_peers(device, peers), p, size_bytes);
    if (code != GPU_SUCCESS)
        (void)pieces_unmap(device, p, done, piece);
    return code;
}

/* Whether all of it works, on one piece. Drivers have had functions that are there and fail, or that answer success
 * and do not do it. */
static int pieces_try(gpu_device *device, size_t piece)
{
    void *base = NULL;
    int code = device->driver->reserve(piece, piece, &base);
    if (code != GPU_SUCCESS)
        return code;
    code = pieces_map(device, base, piece, piece);
    if (code == GPU_SUCCESS)
        code = pieces_unmap(device, base, piece, piece);
    int given = device->driver->unreserve(base, piece);
    return code == GPU_SUCCESS ? given : code;
}

/* The size of a piece, from what the driver says and how large the device is. 0: the driver does not know. */
static size_t piece_size(const gpu_device *device, size_t granularity)
{
    size_t piece = granularity;
    if (granularity == 0 || !berth__is_power_of_two(granularity))
        return 0;
    while (piece < LEAST_PIECE || (piece < MOST_PIECE && device->total_bytes / piece > PIECES_A_DEVICE))
        piece *= 2;
    return piece;
}

/* Asked and tried once; the device is current. A device that is merely full or in trouble is asked again later. */
static int piece_of(gpu_device *device, size_t *out)
{
    size_t granularity = 0;
    *out = atomic_load_explicit(&device->granularity, memory_order_relaxed);
    if (*out > 0)
        return GPU_SUCCESS;
    int code = device->driver->granularity(device, &granularity);
    *out = code == GPU_SUCCESS ? piece_size(device, granularity) : 0;
    if (code == GPU_SUCCESS)
        code = *out > 0 ? pieces_try(device, *out) : GPU_NOT_SUPPORTED;
    if (code == GPU_SUCCESS) {
        atomic_store_explicit(&device->granularity, *out, memory_order_relaxed);
    } else if (code != GPU_OUT_OF_MEMORY) {
        berth__log(BERTH_LOG_INFO,
                   "%s device %d does not map memory in pieces (%s): pools on it take segments",
                   device->driver->title, (int)device->ordinal, device->driver->words(code));
        device->pieces = false;
    }
    return code;
}

berth_status berth__gpu_granularity(void *self, berth_device device, size_t *out)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    *out = atomic_load_explicit(&gpu->granularity, memory_order_relaxed);
    if (*out > 0)
        return BERTH_OK;
    berth_status status = pieces_enter(gpu, &visit);
    if (status)
        return status;
    return pieces_leave(gpu, &visit, piece_of(gpu, out), "asking for the size of pieces");
}

berth_status berth__gpu_reserve(void *self, berth_device device, size_t size_bytes, void **out)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    size_t piece = 0;
    berth_status status = pieces_enter(gpu, &visit);
    if (status)
        return status;
    int code = piece_of(gpu, &piece);
    if (code == GPU_SUCCESS)
        code = gpu->driver->reserve(size_bytes, piece, out);
    return pieces_leave(gpu, &visit, code, "reserving address space");
}

berth_status berth__gpu_unreserve(void *self, berth_device device, void *base, size_t size_bytes)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    berth_status status = pieces_enter(gpu, &visit);
    if (status)
        return status;
    return pieces_leave(gpu, &visit, gpu->driver->unreserve(base, size_bytes), "giving address space back");
}

berth_status berth__gpu_map(void *self, berth_device device, void *p, size_t size_bytes)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    size_t piece = 0;
    berth_status status = pieces_enter(gpu, &visit);
    if (status)
        return status;
    int code = piece_of(gpu, &piece);
    if (code == GPU_SUCCESS)
        code = pieces_map(gpu, p, size_bytes, piece);
    return pieces_leave(gpu, &visit, code, "mapping memory");
}

berth_status berth__gpu_unmap(void *self, berth_device device, void *p, size_t size_bytes)
{
    (void)self;
    gpu_device *gpu = berth__gpu_device(device);
    gpu_visit visit;
    size_t piece = 0;
    berth_status status = pieces_enter(gpu, &visit);
    if (status)
        return status;
    int code = piece_of(gpu, &piece);
    if (code == GPU_SUCCESS)
        code = pieces_unmap(gpu, p, size_bytes, piece);
    return pieces_leave(gpu, &visit, code, "unmapping memory");
}
