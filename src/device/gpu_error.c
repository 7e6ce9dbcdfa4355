/* What the codes of CUDA and HIP mean to us. */
#include "device/gpu.h"

/* Both drivers number these alike; HIP has fewer. What each means stands in the comments of CUresult (cuda.h) and
 * hipError_t (hip_runtime_api.h): a code is "lost" where they say that the process must end to use the device again,
 * or that the context is gone, and "busy" where another process has what we need for now. */
static const struct {
    int code;
    berth_status status;
} gpu_meanings[] = {
    {GPU_NOT_INITIALIZED, BERTH_DEVICE_LOST}, /* of a driver that was initialized: we are in a forked child */
    {GPU_SHUTTING_DOWN, BERTH_DEVICE_LOST},   /* the driver has left before us */
    {46, BERTH_BUSY},         /* device unavailable: exclusive mode, and somebody else has it */
    {214, BERTH_DEVICE_LOST}, /* uncorrectable memory error */
    {220, BERTH_DEVICE_LOST}, /* uncorrectable error of the link between devices */
    {226, BERTH_DEVICE_LOST}, /* contained: the error was kept to this process, which must end */
    {700, BERTH_DEVICE_LOST}, /* illegal address */
    {702, BERTH_DEVICE_LOST}, /* launch timeout */
    {709, BERTH_DEVICE_LOST}, /* the context is destroyed; after a device reset too */
    {710, BERTH_DEVICE_LOST}, /* assert on the device */
    {714, BERTH_DEVICE_LOST}, /* hardware stack error */
    {715, BERTH_DEVICE_LOST}, /* illegal instruction */
    {716, BERTH_DEVICE_LOST}, /* misaligned address */
    {717, BERTH_DEVICE_LOST}, /* invalid address space */
    {718, BERTH_DEVICE_LOST}, /* invalid program counter */
    {719, BERTH_DEVICE_LOST}, /* launch failed */
    {721, BERTH_DEVICE_LOST}, /* tensor memory was not given back */
    {GPU_NOT_SUPPORTED, BERTH_UNSUPPORTED},
    {802, BERTH_BUSY},        /* system not ready: services are still starting */
    {806, BERTH_DEVICE_LOST}, /* the MPS server does not answer */
    {807, BERTH_BUSY},        /* the MPS server is not ready for new clients */
    {808, BERTH_BUSY},        /* too many clients of the MPS server */
    {809, BERTH_BUSY},        /* too many connections to the MPS server */
    {810, BERTH_DEVICE_LOST}, /* this client was ended by the MPS server */
    {911, BERTH_DEVICE_LOST}, /* an asynchronous error outside of the device ended its context */
};

static berth_status gpu_meaning(int code, berth_status shortage)
{
    if (code == GPU_OUT_OF_MEMORY)
        return shortage;
    for (size_t i = 0; i < BERTH_COUNT_OF(gpu_meanings); i++)
        if (gpu_meanings[i].code == code)
            return gpu_meanings[i].status;
    return BERTH_DEVICE_ERROR;
}

berth_status berth__gpu_fail(gpu_device *device, int code, berth_status shortage, const char *what)
{
    const char *words = device->driver->words(code), *works = NULL;
    berth_status status = gpu_meaning(code, shortage);
    device->driver->forget_error();
    int none = 0;
    if (status == BERTH_DEVICE_LOST)
        (void)atomic_compare_exchange_strong(&device->lost_code, &none, code);
    if (status == BERTH_DEVICE_LOST && atomic_compare_exchange_strong(&device->lost, &works, words) &&
        code != GPU_SHUTTING_DOWN)
        berth__log(BERTH_LOG_ERROR, "%s device %d is lost (%s): everything on it fails from now on",
                   device->driver->title, (int)device->ordinal, words);
    return berth__fail_driver(
        status, code, words, "%s device %d: %s failed: %s%s", device->driver->title, (int)device->ordinal,
        what, words, status == BERTH_BUSY ? "; another process has it for now, try again later" : "");
}

berth_status berth__gpu_not_captured(const gpu_stream *stream, const char *what)
{
    bool capturing = false;
    int code = stream->device->driver->stream_capturing(stream->native, &capturing);
    if (code != GPU_SUCCESS)
        return berth__gpu_fail(stream->device, code, BERTH_OUT_OF_HOST_MEMORY,
                               "asking whether a stream is captured");
    if (!capturing)
        return BERTH_OK;
    return berth__fail(
        BERTH_UNSUPPORTED,
        "stream %llu is being captured into a graph, and nothing of it runs until the graph does: "
        "%s is not possible before the capture has ended",
        (unsigned long long)stream->base.id, what);
}
