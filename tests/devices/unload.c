/* A program that loads libberth.so, uses a stream and lets go of the library: the stream's thread is still
 * there, so the library must be too. Argument: the library's path. */
#include <dlfcn.h>
#include <stdio.h>

#include "berth/device.h"

int main(int argc, char **argv)
{
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) {
        fprintf(stderr, "%s\n", argc > 1 ? dlerror() : "which library?");
        return 1;
    }
    berth_status (*create)(berth_device, berth_stream **) = NULL;
    berth_status (*copy)(berth_device, void *, const void *, size_t, berth_copy_kind, berth_stream *, bool) =
        NULL;
    void (*destroy)(berth_stream *) = NULL;
    *(void **)&create = dlsym(library, "berth_stream_create");
    *(void **)&copy = dlsym(library, "berth_copy");
    *(void **)&destroy = dlsym(library, "berth_stream_destroy");
    const berth_device cpu = {BERTH_DEVICE_CPU, 0};
    berth_stream *stream = NULL;
    char from[4] = "abc", to[4] = "...";
    if (!create || !copy || !destroy || create(cpu, &stream) != BERTH_OK ||
        copy(cpu, to, from, sizeof to, BERTH_COPY_INFER, stream, true) != BERTH_OK || to[0] != 'a')
        return 2;
    destroy(stream);
    dlclose(library);
    return dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD) ? 0 : 3;
}
