/* A device with one fault, which BROKEN names; for the test that berth-device-check tells each. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <berth/device_ops.h>

BERTH_API berth_status berth_device_entry(const berth_device_ops **ops, void **self);

static bool broken(const char *fault)
{
    const char *chosen = getenv("BROKEN");
    return chosen && strcmp(chosen, fault) == 0;
}

static berth_status count(void *self, int32_t *out)
{
    (void)self;
    *out = 1;
    return BERTH_OK;
}

static berth_status describe(void *self, berth_device device, berth_device_info *info)
{
    (void)self, (void)device;
    strcpy(info->name, "broken");
    info->memory_kinds = 1u << BERTH_MEMORY_DEVICE;
    return BERTH_OK;
}

static berth_status allocate(void *self, berth_device device, berth_memory_kind kind, size_t size_bytes,
                             size_t alignment, berth_stream *on, void **out)
{
    (void)self, (void)device, (void)kind, (void)on;
    if (broken("empty"))
        return BERTH_OK;
    if (posix_memalign(out, alignment < sizeof(void *) ? sizeof(void *) : alignment, size_bytes) != 0)
        return berth_fail(BERTH_OUT_OF_DEVICE_MEMORY, "the host has no %zu bytes", size_bytes);
    return BERTH_OK;
}

static berth_status release(void *self, berth_device device, berth_memory_kind kind, void *p,
                            size_t size_bytes, berth_stream *on)
{
    (void)self, (void)device, (void)kind, (void)size_bytes, (void)on;
    free(p);
    return BERTH_OK;
}

/* Byte by byte from the front, so that what overlaps forwards is smeared. */
static berth_status copy(void *self, berth_device device, void *dst, const void *src, size_t size_bytes,
                         berth_copy_kind kind, berth_stream *on)
{
    (void)self, (void)device, (void)kind, (void)on;
    if (!broken("overlap")) {
        memmove(dst, src, size_bytes);
        return BERTH_OK;
    }
    for (size_t i = 0; i < size_bytes; i++)
        ((volatile char *)dst)[i] = ((const char *)src)[i];
    return BERTH_OK;
}

static berth_status zero(void *self, berth_device device, void *dst, size_t size_bytes, berth_stream *on)
{
    (void)self, (void)device, (void)on;
    if (broken("crash"))
        abort();
    if (broken("hang"))
        for (;;)
            pause();
    memset(dst, 0, broken("short") ? size_bytes & ~(size_t)15 : size_bytes);
    return BERTH_OK;
}

berth_status berth_device_entry(const berth_device_ops **ops, void **self)
{
    static const berth_device_ops table = {.struct_size = sizeof(berth_device_ops),
                                           .name = "broken",
                                           .memory_kinds = 1u << BERTH_MEMORY_DEVICE,
                                           .count = count,
                                           .describe = describe,
                                           .allocate = allocate,
                                           .release = release,
                                           .copy = copy,
                                           .zero = zero};
    *ops = &table;
    *self = NULL;
    return broken("entry") ? berth_fail(BERTH_UNSUPPORTED, "no driver here") : BERTH_OK;
}
