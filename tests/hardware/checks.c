/* What to try on hardware, one check a process: hardware_checks KIND CHECK. Prints "ok", "not here: why" or "FAILED: why",
 * with figures before it; exits 0, 77 or 1. tools/on-hardware runs them all. On the stand-ins the same program runs in the
 * tests, so that whoever has a GPU begins with checks that work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "berth/berth.h"
#include "device/device.h"
#include "kernels.h"

static berth_device device;
static int32_t device_count;

enum { NOT_HERE = 77 };

static int failed(const char *what)
{
    printf("FAILED: %s: %s\n", what, berth_last_error()->message);
    return 1;
}

static int not_here(const char *why)
{
    printf("not here: %s\n", why);
    return NOT_HERE;
}

#define TRY(condition)                 \
    do {                               \
        if (!(condition))              \
            return failed(#condition); \
    } while (0)

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool is_gpu(void)
{
    return device.kind == BERTH_DEVICE_CUDA || device.kind == BERTH_DEVICE_HIP;
}

/* ---- Threads and streams ----------------------------------------------------------------------------- */

static int use_everything(void)
{
    berth_stream *stream = NULL;
    berth_event *event = NULL;
    char host[256] = "abc", back[256] = "";
    void *p = NULL;
    TRY(berth_stream_create(device, &stream) == BERTH_OK);
    TRY(berth_event_create(device, &event) == BERTH_OK);
    TRY(berth_device_allocate(device, BERTH_MEMORY_DEVICE, sizeof host, 64, stream, &p) == BERTH_OK);
    TRY(berth_copy(device, p, host, sizeof host, BERTH_COPY_HOST_TO_DEVICE, stream, false) == BERTH_OK);
    TRY(berth_event_record(event, stream) == BERTH_OK);
    TRY(berth_stream_wait_event(stream, event) == BERTH_OK);
    TRY(berth_copy(device, back, p, sizeof host, BERTH_COPY_DEVICE_TO_HOST, stream, true) == BERTH_OK);
    TRY(strcmp(back, "abc") == 0);
    TRY(berth_event_wait(event) == BERTH_OK);
    TRY(berth_event_query(event) == BERTH_OK);
    TRY(berth_stream_query(stream) == BERTH_OK);
    TRY(berth_device_release(device, BERTH_MEMORY_DEVICE, p, sizeof host, stream) == BERTH_OK);
    berth_event_destroy(event);
    berth_stream_destroy(stream);
    return 0;
}

static void *run_everything(void *unused)
{
    (void)unused;
    return (void *)(intptr_t)use_everything();
}

/* A thread that has never seen the driver. */
static int check_threads(void)
{
    for (int i = 0; i < 8; i++) {
        pthread_t thread;
        void *result = NULL;
        TRY(pthread_create(&thread, NULL, run_everything, NULL) == 0);
        TRY(pthread_join(thread, &result) == 0);
        if (result)
            return 1;
    }
    return 0;
}

/* The default stream of the second device, while the first is current. */
static int check_default_stream(void)
{
    if (device_count < 2 || !is_gpu())
        return not_here("two devices with default streams are needed");
    const berth_device second = {device.kind, 1};
    const size_t size = (size_t)64 << 20;
    berth_stream *plain = NULL;
    char *host = calloc(1, size), *p = NULL;
    TRY(host && use_everything() == 0); /* makes the first one current where that sticks */
    TRY(berth_stream_wrap(second, NULL, &plain) == BERTH_OK);
    TRY(berth_device_allocate(second, BERTH_MEMORY_DEVICE, size, 64, NULL, (void **)&p) == BERTH_OK);
    memset(host, 7, size);
    for (int i = 0; i < 20; i++) {
        TRY(berth_zero(second, p, size, plain, false) == BERTH_OK);
        TRY(berth_copy(second, p, host, size, BERTH_COPY_HOST_TO_DEVICE, plain, false) == BERTH_OK);
        TRY(berth_stream_synchronize(plain) == BERTH_OK);
        char last = 0;
        TRY(berth_copy(second, &last, p + size - 1, 1, BERTH_COPY_DEVICE_TO_HOST, NULL, false) == BERTH_OK);
        TRY(last == 7);
    }
    TRY(berth_device_release(second, BERTH_MEMORY_DEVICE, p, size, NULL) == BERTH_OK);
    berth_stream_destroy(plain);
    free(host);
    return 0;
}

/* ---- Mapping ----------------------------------------------------------------------------------------- */

static int map_once(size_t piece, size_t size_bytes)
{
    char *base = NULL;
    size_t size = (size_bytes + piece - 1) / piece * piece;
    TRY(berth__device_reserve(device, size, (void **)&base) == BERTH_OK);
    double began = seconds();
    TRY(berth__device_map(device, base, size) == BERTH_OK);
    double mapped = seconds();
    TRY(berth__device_unmap(device, base, size) == BERTH_OK);
    printf("  %5.1f GiB in pieces of %zu MiB: mapped in %.1f ms, unmapped in %.1f ms\n",
           (double)size / (double)(1 << 30), piece >> 20, (mapped - began) * 1e3, (seconds() - mapped) * 1e3);
    TRY(berth__device_unreserve(device, base, size) == BERTH_OK);
    return 0;
}

static int check_mapping(void)
{
    static const size_t sizes[] = {(size_t)1 << 28, (size_t)1 << 30, (size_t)8 << 30, (size_t)40 << 30};
    uint64_t left = 0, whole = 0;
    size_t piece = 0;
    if (berth__device_granularity(device, &piece) != BERTH_OK)
        return not_here(berth_last_error()->message);
    if (berth_device_memory(device, &left, &whole) != BERTH_OK)
        left = (uint64_t)1 << 30;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (sizes[i] <= left - left / 8 && map_once(piece, sizes[i]) != 0)
            return 1;
    return 0;
}

/* ---- Reuse under stress ------------------------------------------------------------------------------ */

enum { STRESS_STREAMS = 4, STRESS_STEPS = 2000, STRESS_WORDS = 1 << 16 };

/* Without kernels the pattern comes from the host. */
static int write_and_check(bool kernels, void *p, uint32_t words, uint32_t seed, uint32_t *bad,
                           berth_stream *stream)
{
    static uint32_t pattern[STRESS_WORDS], back[STRESS_WORDS];
    if (kernels) {
        TRY(kernels_fill(p, words, seed, berth_stream_native(stream)) == 0);
        TRY(kernels_check(p, words, seed, bad, berth_stream_native(stream)) == 0);
        return 0;
    }
    for (uint32_t i = 0; i < words; i++)
        pattern[i] = seed + i;
    TRY(berth_copy(device, p, pattern, (size_t)words * 4, BERTH_COPY_HOST_TO_DEVICE, stream, true) ==
        BERTH_OK);
    TRY(berth_copy(device, back, p, (size_t)words * 4, BERTH_COPY_DEVICE_TO_HOST, stream, true) == BERTH_OK);
    return memcmp(pattern, back, (size_t)words * 4) == 0 ? 0 : failed("the pattern");
}

/* Blocks go from stream to stream; each is freed at once and may be reused only in order. */
static int stress_pool(berth_allocator *pool, bool kernels)
{
    berth_stream *streams[STRESS_STREAMS];
    uint32_t *bad = NULL, count = 0, random = 1;
    TRY(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 256, 64, NULL, (void **)&bad) == BERTH_OK);
    TRY(berth_zero(device, bad, 256, NULL, false) == BERTH_OK);
    for (int i = 0; i < STRESS_STREAMS; i++)
        TRY(berth_stream_create(device, &streams[i]) == BERTH_OK);
    for (uint32_t step = 0; step < STRESS_STEPS; step++) {
        random = random * 1664525u + 1013904223u;
        berth_stream *stream = streams[random >> 30 & 3];
        uint32_t words = 1 + (random >> 8) % STRESS_WORDS;
        berth_request request = BERTH_REQUEST_INIT;
        request.stream = stream;
        void *p = NULL;
        TRY(berth_allocate(pool, (size_t)words * 4, 64, &request, &p) == BERTH_OK);
        if (write_and_check(kernels, p, words, random, bad, stream) != 0)
            return 1;
        TRY(berth_deallocate(pool, p, 0, stream) == BERTH_OK);
    }
    for (int i = 0; i < STRESS_STREAMS; i++) {
        TRY(berth_stream_synchronize(streams[i]) == BERTH_OK);
        berth_stream_destroy(streams[i]);
    }
    TRY(berth_copy(device, &count, bad, 4, BERTH_COPY_DEVICE_TO_HOST, NULL, false) == BERTH_OK);
    TRY(berth_device_release(device, BERTH_MEMORY_DEVICE, bad, 256, NULL) == BERTH_OK);
    printf("  %d steps on %d streams, patterns by %s, %u wrong words\n", STRESS_STEPS, STRESS_STREAMS,
           kernels ? "kernels" : "copies", count);
    return count == 0 ? 0 : failed("patterns were damaged");
}

static int check_stress(void)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *pool = NULL;
    char why[200] = "kernels are for GPUs";
    options.device = device;
    TRY(berth_pool_create(&options, &pool) == BERTH_OK);
    void *context = NULL;
    (void)berth_device_native(device, &context);
    bool kernels = is_gpu() && kernels_load(device.kind == BERTH_DEVICE_CUDA, why, sizeof why);
    if (!kernels)
        printf("  without kernels: %s\n", why);
    int result = stress_pool(pool, kernels);
    berth_allocator_release(pool);
    return result;
}

/* ---- The limit --------------------------------------------------------------------------------------- */

static int fill_up(uint64_t *most)
{
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *pool = NULL;
    void *p = NULL;
    options.device = device;
    TRY(berth_pool_create(&options, &pool) == BERTH_OK);
    berth_status status = BERTH_OK;
    *most = 0;
    static void *taken[4096];
    size_t count = 0;
    while (count < 4096 && (status = berth_allocate(pool, (size_t)64 << 20, 64, NULL, &p)) == BERTH_OK) {
        taken[count++] = p;
        *most += (uint64_t)64 << 20;
    }
    TRY(count == 4096 || status == BERTH_OUT_OF_DEVICE_MEMORY);
    printf("  %llu MiB taken until \"%s\"\n", (unsigned long long)(*most >> 20), berth_last_error()->message);
    while (count > 0)
        TRY(berth_deallocate(pool, taken[--count], 0, NULL) == BERTH_OK);
    TRY(berth_trim(pool, 0, NULL) == BERTH_OK);
    TRY(berth_allocate(pool, (size_t)64 << 20, 64, NULL, &p) == BERTH_OK);
    TRY(berth_deallocate(pool, p, 0, NULL) == BERTH_OK);
    berth_allocator_release(pool);
    return 0;
}

static int check_limit(void)
{
    uint64_t left = 0, whole = 0, most = 0;
    if (!is_gpu())
        return not_here("only GPUs have memory of their own to fill");
    TRY(berth_device_memory(device, &left, &whole) == BERTH_OK);
    printf("  %llu of %llu MiB free\n", (unsigned long long)(left >> 20), (unsigned long long)(whole >> 20));
    return fill_up(&most);
}

/* ---- Two devices ------------------------------------------------------------------------------------- */

static int check_between(void)
{
    if (device_count < 2)
        return not_here("two devices are needed");
    const berth_device second = {device.kind, 1};
    const size_t size = (size_t)8 << 20;
    char *host = malloc(size), *back = malloc(size), *a = NULL, *b = NULL;
    TRY(host && back);
    for (size_t i = 0; i < size; i++)
        host[i] = (char)(i * 7);
    TRY(berth_device_allocate(device, BERTH_MEMORY_DEVICE, size, 64, NULL, (void **)&a) == BERTH_OK);
    TRY(berth_device_allocate(second, BERTH_MEMORY_DEVICE, size, 64, NULL, (void **)&b) == BERTH_OK);
    TRY(berth_copy(device, a, host, size, BERTH_COPY_HOST_TO_DEVICE, NULL, false) == BERTH_OK);
    double began = seconds();
    berth_status status = berth_copy_between(second, b, device, a, size, NULL, false);
    if (status == BERTH_UNSUPPORTED)
        return not_here(berth_last_error()->message);
    TRY(status == BERTH_OK);
    printf("  %zu MiB between two devices in %.2f ms\n", size >> 20, (seconds() - began) * 1e3);
    TRY(berth_copy(second, back, b, size, BERTH_COPY_DEVICE_TO_HOST, NULL, false) == BERTH_OK);
    TRY(memcmp(host, back, size) == 0);
    TRY(berth_device_release(device, BERTH_MEMORY_DEVICE, a, size, NULL) == BERTH_OK);
    TRY(berth_device_release(second, BERTH_MEMORY_DEVICE, b, size, NULL) == BERTH_OK);
    free(host);
    free(back);
    return 0;
}

/* ---- Captures ---------------------------------------------------------------------------------------- */

static void *busy_pool(void *context)
{
    berth_allocator *pool = context;
    for (int i = 1; i <= 200; i++) {
        void *p = NULL;
        if (berth_allocate(pool, (size_t)i << 14, 64, NULL, &p) != BERTH_OK ||
            berth_deallocate(pool, p, 0, NULL) != BERTH_OK || berth_trim(pool, 0, NULL) != BERTH_OK)
            return pool;
    }
    return NULL;
}

/* A stream is captured into a graph while another thread uses a pool: the capture must end well. */
static int check_capture(void)
{
    if (!is_gpu())
        return not_here("captures are for GPUs");
    bool cuda = device.kind == BERTH_DEVICE_CUDA;
    unsigned (*begin)(void *, unsigned), (*end)(void *, void **), (*push)(void *);
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    berth_allocator *pool = NULL;
    berth_stream *stream = NULL;
    pthread_t thread;
    void *context = NULL, *graph = NULL, *failure = NULL;
    options.device = device;
    TRY(berth_pool_create(&options, &pool) == BERTH_OK);
    TRY(berth_stream_create(device, &stream) == BERTH_OK);
    kernels_show_driver(cuda);
    *(void **)&begin = dlsym(RTLD_DEFAULT, cuda ? "cuStreamBeginCapture_v2" : "hipStreamBeginCapture");
    *(void **)&end = dlsym(RTLD_DEFAULT, cuda ? "cuStreamEndCapture" : "hipStreamEndCapture");
    *(void **)&push = dlsym(RTLD_DEFAULT, "cuCtxPushCurrent_v2");
    if (!begin || !end)
        return not_here("this driver captures nothing");
    if (cuda && push && berth_device_native(device, &context) == BERTH_OK)
        TRY(push(context) == 0);
    TRY(begin(berth_stream_native(stream), 0) == 0);
    TRY(pthread_create(&thread, NULL, busy_pool, pool) == 0);
    TRY(pthread_join(thread, &failure) == 0);
    TRY(failure == NULL && busy_pool(pool) == NULL);
    TRY(berth_stream_synchronize(stream) == BERTH_UNSUPPORTED);
    TRY(end(berth_stream_native(stream), &graph) == 0);
    berth_stream_destroy(stream);
    berth_allocator_release(pool);
    return 0;
}

/* ---- What a process does not survive ------------------------------------------------------------------ */

/* A kernel writes where nothing is, in the middle of other work. */
static int check_illegal(void)
{
    char why[200] = "";
    void *context = NULL, *p = NULL;
    berth_stream *stream = NULL;
    if (!is_gpu())
        return not_here("kernels are for GPUs");
    TRY(berth_stream_create(device, &stream) == BERTH_OK);
    (void)berth_device_native(device, &context);
    if (!kernels_load(device.kind == BERTH_DEVICE_CUDA, why, sizeof why)) {
        berth_stream_destroy(stream);
        return not_here(why);
    }
    TRY(kernels_fill((void *)16, 1 << 20, 1, berth_stream_native(stream)) == 0);
    berth_status status = berth_stream_synchronize(stream);
    printf("  after an illegal access: %s\n", berth_last_error()->message);
    TRY(status == BERTH_DEVICE_LOST);
    TRY(berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p) == BERTH_DEVICE_LOST);
    berth_stream_destroy(stream);
    return 0;
}

static int check_fork(void)
{
    TRY(use_everything() == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        void *p = NULL;
        alarm(30);
        berth_status status = berth_device_allocate(device, BERTH_MEMORY_DEVICE, 64, 64, NULL, &p);
        _exit(is_gpu() ? status != BERTH_DEVICE_LOST : 0);
    }
    int status = 0;
    TRY(waitpid(child, &status, 0) == child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return failed("the child was not told that its device is lost");
    return use_everything();
}

/* The process ends with everything alive: a crash or a hang shows in its exit. */
static int check_exit(void)
{
    static berth_allocator *pool;
    static berth_stream *stream;
    berth_pool_options options = BERTH_POOL_OPTIONS_INIT;
    void *p = NULL;
    options.device = device;
    TRY(berth_pool_create(&options, &pool) == BERTH_OK);
    TRY(berth_stream_create(device, &stream) == BERTH_OK);
    TRY(berth_allocate(pool, 1 << 20, 64, NULL, &p) == BERTH_OK);
    TRY(berth_zero(device, p, 1 << 20, stream, false) == BERTH_OK);
    return 0;
}

/* ---- All of them ------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int (*run)(void);
} checks[] = {{"threads", check_threads}, {"default-stream", check_default_stream},
              {"mapping", check_mapping}, {"stress", check_stress},
              {"limit", check_limit},     {"between", check_between},
              {"capture", check_capture}, {"illegal", check_illegal},
              {"fork", check_fork},       {"exit", check_exit}};

int main(int argc, char **argv)
{
    static const berth_device_kind kinds[] = {BERTH_DEVICE_CPU, BERTH_DEVICE_CUDA, BERTH_DEVICE_HIP,
                                              BERTH_DEVICE_OPENCL};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
            puts(checks[i].name);
        return 0;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (argc > 1 && strcmp(berth_device_kind_name(kinds[i]), argv[1]) == 0)
            device.kind = (int32_t)kinds[i];
    if (argc != 3 || device.kind == BERTH_DEVICE_UNKNOWN) {
        fprintf(stderr, "usage: hardware_checks --list | cpu|cuda|hip|opencl CHECK\n");
        return 2;
    }
    if (berth_device_count((berth_device_kind)device.kind, &device_count) != BERTH_OK)
        return not_here(berth_last_error()->message);
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
        if (strcmp(checks[i].name, argv[2]) == 0) {
            int code = checks[i].run();
            if (code == 0)
                puts("ok");
            return code;
        }
    fprintf(stderr, "there is no check '%s'; see --list\n", argv[2]);
    return 2;
}
