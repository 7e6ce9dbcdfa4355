/* Judges what a driver that is made to refuse calls has answered, through the shim: see insist.h. */
#define INSIST_BY_HAND
#include "insist.h"

#include <CL/cl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_IN_A_ROW = 50 };

int32_t insist_code;
_Atomic long insist_refusals;
static long (*shim_failures_here)(void);
static _Thread_local int in_a_row;

void insist_begin(void *shim)
{
    *(void **)&shim_failures_here = dlsym(shim, "shim_failures_here");
}

/* A shortage of resources is a shortage of memory to who asked for that, else an error of the device. */
static bool says_so(const berth_error *error)
{
    int32_t code = (int32_t)error->driver_code;
    if (code != insist_code && code != CL_OUT_OF_RESOURCES && code != CL_MEM_OBJECT_ALLOCATION_FAILURE)
        return false;
    if (error->message[0] == '\0' || strncmp(error->driver_words, "CL_", 3) != 0)
        return false;
    switch (code) {
    case CL_OUT_OF_HOST_MEMORY:
        return error->status == BERTH_OUT_OF_HOST_MEMORY;
    case CL_OUT_OF_RESOURCES:
        return error->status == BERTH_DEVICE_ERROR || error->status == BERTH_OUT_OF_DEVICE_MEMORY ||
               error->status == BERTH_OUT_OF_HOST_MEMORY;
    default:
        return error->status == BERTH_OUT_OF_DEVICE_MEMORY || error->status == BERTH_OUT_OF_HOST_MEMORY;
    }
}

bool insist_again(berth_status status)
{
    static _Thread_local long judged;
    const berth_error *error = berth_last_error();
    const long made_to_fail = shim_failures_here() - judged; /* else it is refused for a reason of its own */
    judged += made_to_fail;
    if (made_to_fail == 0 || status == BERTH_OK || status == BERTH_NOT_READY || error->status != status ||
        !says_so(error) || ++in_a_row > MOST_IN_A_ROW) {
        in_a_row = 0;
        return false;
    }
    atomic_fetch_add(&insist_refusals, 1);
    return true;
}

bool insist_again_for(berth_status status, const void *given)
{
    if (status == BERTH_OK || !given)
        return insist_again(status);
    fprintf(stderr, "a call that answers %s gives something\n", berth_status_name(status));
    return false;
}

static bool is_onto_itself(const char *dst, const char *src, size_t size_bytes)
{
    return dst < src + size_bytes && src < dst + size_bytes;
}

berth_status insist_copy(berth_device on, void *dst, const void *src, size_t size_bytes, berth_copy_kind kind,
                         berth_stream *stream, bool need_sync)
{
    if (kind != BERTH_COPY_DEVICE_TO_DEVICE || !is_onto_itself(dst, src, size_bytes))
        return INSIST(berth_copy(on, dst, src, size_bytes, kind, stream, need_sync));
    char *first = (const char *)dst < (const char *)src ? dst : (char *)(uintptr_t)src;
    const char *last = (const char *)dst < (const char *)src ? src : dst;
    size_t span = (size_t)(last - first) + size_bytes;
    char *kept = malloc(span);
    if (!kept)
        return BERTH_INTERNAL;
    berth_status status = INSIST(berth_copy(on, kept, first, span, BERTH_COPY_DEVICE_TO_HOST, stream, true));
    for (int i = 0; status == BERTH_OK; i++) {
        status = berth_copy(on, dst, src, size_bytes, kind, stream, need_sync);
        if (i == MOST_IN_A_ROW || !insist_again(status))
            break;
        /* Not always as many calls between two attempts, or every Nth may be the same one of each. */
        for (int again = 0; again <= i % 3 && (again == 0 || status == BERTH_OK); again++)
            status = INSIST(berth_copy(on, first, kept, span, BERTH_COPY_HOST_TO_DEVICE, stream, true));
    }
    free(kept);
    return status;
}
