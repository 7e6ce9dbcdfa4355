/* The shim's rules, each broken on purpose: it says so and aborts, where a driver would do what it likes. Each case runs in
 * a process of its own, through the shim's functions. Argument: the shim's path; a second names the case to run alone. */
#include <CL/cl.h>
#include <CL/cl_ext.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 8192 };

static void *library;
static cl_context context, other_context;
static cl_device_id device;
static cl_platform_id platform;
static cl_command_queue queue, other_queue;

/* The shim's function. */
#define SHIM(function) ((__typeof__(&(function)))dlsym(library, #function))
#define USM(function) ((function##_fn)SHIM(clGetExtensionFunctionAddressForPlatform)(platform, #function))

/* What must work before the rule is broken. */
static void must(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "%s does not work\n", what);
    _exit(1);
}
#define OK(call) must((call) == CL_SUCCESS, #call)

static void set_up(const char *mode)
{
    static cl_int code;
    void (*set)(const char *) = NULL;
    *(void **)&set = dlsym(library, "shim_set");
    set(mode);
    OK(clGetPlatformIDs(1, &platform, NULL));
    OK(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    context = SHIM(clCreateContext)(NULL, 1, &device, NULL, NULL, &code);
    other_context = SHIM(clCreateContext)(NULL, 1, &device, NULL, NULL, &code);
    queue = SHIM(clCreateCommandQueue)(context, device, 0, &code);
    other_queue = SHIM(clCreateCommandQueue)(context, device, 0, &code);
    must(context && other_context && queue && other_queue, "a context with two queues");
}

static cl_command_queue queue_elsewhere(void)
{
    static cl_int code;
    return SHIM(clCreateCommandQueue)(other_context, device, 0, &code);
}

static char *svm(void)
{
    char *p = SHIM(clSVMAlloc)(context, CL_MEM_READ_WRITE, BYTES, 0);
    must(p, "clSVMAlloc");
    return p;
}

static cl_mem buffer(void)
{
    static cl_int code;
    cl_mem made = SHIM(clCreateBuffer)(context, CL_MEM_READ_WRITE, BYTES, NULL, &code);
    must(made, "clCreateBuffer");
    return made;
}

static char *usm(bool on_device)
{
    static cl_int code;
    char *p = on_device ? USM(clDeviceMemAllocINTEL)(context, device, NULL, BYTES, 0, &code)
                        : USM(clHostMemAllocINTEL)(context, NULL, BYTES, 0, &code);
    must(p, "an allocation of the extension's");
    return p;
}

static cl_event marker(cl_command_queue on)
{
    cl_event event = NULL;
    OK(SHIM(clEnqueueMarkerWithWaitList)(on, 0, NULL, &event));
    return event;
}

static void user_event(void)
{
    static cl_int code;
    must(SHIM(clCreateUserEvent)(context, &code), "clCreateUserEvent");
}

static void map(char *p)
{
    OK(SHIM(clEnqueueSVMMap)(queue, CL_TRUE, CL_MAP_WRITE, p, BYTES, 0, NULL, NULL));
}

static cl_int copy(cl_command_queue on, void *dst, const void *src, size_t size_bytes)
{
    return SHIM(clEnqueueSVMMemcpy)(on, CL_TRUE, dst, src, size_bytes, 0, NULL, NULL);
}

static cl_int usm_copy(cl_command_queue on, void *dst, const void *src, size_t size_bytes)
{
    return USM(clEnqueueMemcpyINTEL)(on, CL_TRUE, dst, src, size_bytes, 0, NULL, NULL);
}

static char host[2 * BYTES];
static volatile char seen;

/* ---- Map before touch ------------------------------------------------------------------------------- */

static void touch_unmapped(void)
{
    seen = svm()[5];
}

static void touch_unmapped_again(void)
{
    char *p = svm();
    map(p);
    p[5] = 1; /* now it may */
    OK(SHIM(clEnqueueSVMUnmap)(queue, p, 0, NULL, NULL));
    seen = p[5];
}

static void touch_usm_of_device(void)
{
    usm(false)[5] = 1; /* the host's */
    seen = usm(true)[5];
}

static void use_mapped(void)
{
    char *p = svm();
    map(p);
    (void)copy(queue, host, p, 8);
}

static void free_mapped(void)
{
    char *p = svm();
    map(p);
    SHIM(clSVMFree)(context, p);
}

static void map_twice(void)
{
    char *p = svm();
    map(p);
    map(p);
}

static void unmap_unmapped(void)
{
    (void)SHIM(clEnqueueSVMUnmap)(queue, svm(), 0, NULL, NULL);
}

static void *map_buffer(cl_mem b)
{
    static cl_int code;
    return SHIM(clEnqueueMapBuffer)(queue, b, CL_TRUE, CL_MAP_READ, 0, BYTES, 0, NULL, NULL, &code);
}

static void use_mapped_buffer(void)
{
    cl_mem b = buffer();
    must(map_buffer(b), "a map");
    (void)SHIM(clEnqueueReadBuffer)(queue, b, CL_TRUE, 0, 8, host, 0, NULL, NULL);
}

static void release_mapped_buffer(void)
{
    cl_mem b = buffer();
    must(map_buffer(b), "a map");
    (void)SHIM(clReleaseMemObject)(b);
}

static void unmap_buffer_elsewhere(void)
{
    cl_mem b = buffer();
    must(map_buffer(b), "a map");
    (void)SHIM(clEnqueueUnmapMemObject)(queue, b, host, 0, NULL, NULL);
}

/* ---- The context of every pointer, and its block ---------------------------------------------------- */

static void use_in_another_context(void)
{
    (void)copy(queue_elsewhere(), host, svm(), 8);
}

static void use_usm_in_another_context(void)
{
    (void)usm_copy(queue_elsewhere(), host, usm(true), 8);
}

static void use_buffer_in_another_context(void)
{
    (void)SHIM(clEnqueueReadBuffer)(queue_elsewhere(), buffer(), CL_TRUE, 0, 8, host, 0, NULL, NULL);
}

static void free_in_another_context(void)
{
    SHIM(clSVMFree)(other_context, svm());
}

static void free_usm_in_another_context(void)
{
    (void)USM(clMemBlockingFreeINTEL)(other_context, usm(true));
}

static void free_twice(void)
{
    char *p = svm();
    SHIM(clSVMFree)(context, p);
    SHIM(clSVMFree)(context, p);
}

static void free_usm_twice(void)
{
    char *p = usm(true);
    OK(USM(clMemBlockingFreeINTEL)(context, p));
    (void)USM(clMemBlockingFreeINTEL)(context, p);
}

static void release_buffer_twice(void)
{
    cl_mem b = buffer();
    OK(SHIM(clReleaseMemObject)(b));
    (void)SHIM(clReleaseMemObject)(b);
}

static void copy_past_the_end(void)
{
    (void)copy(queue, host, svm(), BYTES + 1);
}

static void copy_usm_past_the_end(void)
{
    (void)usm_copy(queue, host, usm(true), BYTES + 1);
}

static void read_buffer_past_the_end(void)
{
    (void)SHIM(clEnqueueReadBuffer)(queue, buffer(), CL_TRUE, 1, BYTES, host, 0, NULL, NULL);
}

static void fill_foreign(void)
{
    (void)SHIM(clEnqueueSVMMemFill)(queue, host, "", 1, 8, 0, NULL, NULL);
}

static void fill_foreign_usm(void)
{
    (void)USM(clEnqueueMemFillINTEL)(queue, host, "", 1, 8, 0, NULL, NULL);
}

static void fill_in_odd_steps(void)
{
    (void)SHIM(clEnqueueSVMMemFill)(queue, svm(), "0123456789abcdef", 16, 24, 0, NULL, NULL);
}

static void fill_usm_in_odd_steps(void)
{
    (void)USM(clEnqueueMemFillINTEL)(queue, usm(true), "0123456789abcdef", 16, 24, 0, NULL, NULL);
}

static void fill_buffer_in_odd_steps(void)
{
    (void)SHIM(clEnqueueFillBuffer)(queue, buffer(), "0123456789abcdef", 16, 0, 24, 0, NULL, NULL);
}

static void copy_overlaps(void)
{
    char *p = svm();
    (void)copy(queue, p + 8, p, 64);
}

static void copy_usm_overlaps(void)
{
    char *p = usm(true);
    (void)usm_copy(queue, p, p + 63, 64);
}

static void copy_buffer_overlaps(void)
{
    cl_mem b = buffer();
    (void)SHIM(clEnqueueCopyBuffer)(queue, b, b, 0, 8, 64, 0, NULL, NULL);
}

static void part_past_the_end(void)
{
    static cl_int code;
    const cl_buffer_region region = {4096, BYTES};
    (void)SHIM(clCreateSubBuffer)(buffer(), 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &code);
}

/* ---- Flush before waiting across queues ------------------------------------------------------------- */

static void wait_unflushed(void)
{
    cl_event event = marker(queue);
    (void)SHIM(clEnqueueBarrierWithWaitList)(other_queue, 1, &event, NULL);
}

static void ask_unflushed(void)
{
    cl_int state;
    (void)SHIM(clGetEventInfo)(marker(queue), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL);
}

/* A gate before it, so that it cannot be over. */
static void free_usm_unflushed(void)
{
    char *p = usm(true);
    static cl_int code;
    cl_event gate = SHIM(clCreateUserEvent)(context, &code);
    OK(SHIM(clEnqueueBarrierWithWaitList)(queue, 1, &gate, NULL));
    OK(USM(clEnqueueMemFillINTEL)(queue, p, "", 1, 8, 0, NULL, NULL));
    (void)USM(clMemBlockingFreeINTEL)(context, p);
}

/* ---- No release with unset user events; references --------------------------------------------------- */

static void release_queue_with_user_event(void)
{
    user_event();
    (void)SHIM(clReleaseCommandQueue)(other_queue);
}

static void release_context_with_user_event(void)
{
    user_event();
    (void)SHIM(clReleaseContext)(context);
}

static void release_buffer_with_user_event(void)
{
    cl_mem b = buffer();
    user_event();
    (void)SHIM(clReleaseMemObject)(b);
}

static void release_event_twice(void)
{
    cl_event event = marker(queue);
    OK(clRetainEvent(event)); /* so that the driver still has it */
    OK(SHIM(clReleaseEvent)(event));
    (void)SHIM(clReleaseEvent)(event);
}

static void release_queue_twice(void)
{
    OK(clRetainCommandQueue(queue));
    OK(SHIM(clReleaseCommandQueue)(queue));
    (void)SHIM(clReleaseCommandQueue)(queue);
}

static void release_context_twice(void)
{
    OK(clRetainContext(other_context));
    OK(SHIM(clReleaseContext)(other_context));
    (void)SHIM(clReleaseContext)(other_context);
}

/* ---- Functions that the device does not have ------------------------------------------------------- */

static void svm_without_svm(void)
{
    (void)SHIM(clSVMAlloc)(context, CL_MEM_READ_WRITE, BYTES, 0);
}

static void svm_copy_without_svm(void)
{
    (void)copy(queue, host, host + BYTES, 8);
}

static void queue_of_2(void)
{
    static cl_int code;
    (void)SHIM(clCreateCommandQueueWithProperties)(context, device, NULL, &code);
}

/* ---- Running them ---------------------------------------------------------------------------------- */

/* `words`: what the shim says; NULL: the touch is a fault. */
static const struct broken {
    const char *mode, *words;
    void (*run)(void);
} cases[] = {
#define CASE(mode, words, run) \
    {                          \
        mode, words, run       \
    }
    CASE("coarse", NULL, touch_unmapped),
    CASE("coarse", NULL, touch_unmapped_again),
    CASE("usm", NULL, touch_usm_of_device),
    CASE("coarse", "while the host has it mapped", use_mapped),
    CASE("coarse", "is freed while the host has some of it mapped", free_mapped),
    CASE("coarse", "while the host has it mapped", map_twice),
    CASE("coarse", "is unmapped and was not mapped", unmap_unmapped),
    CASE("nosvm", "a buffer is used by a command while the host has it mapped", use_mapped_buffer),
    CASE("nosvm", "a buffer is released while it is mapped", release_mapped_buffer),
    CASE("nosvm", "was not mapped there", unmap_buffer_elsewhere),
    CASE("", "belongs to another context than the queue", use_in_another_context),
    CASE("usm", "belongs to another context than the queue", use_usm_in_another_context),
    CASE("nosvm", "a buffer belongs to another context than the queue", use_buffer_in_another_context),
    CASE("", "is freed in another context", free_in_another_context),
    CASE("usm", "is freed in another context", free_usm_in_another_context),
    CASE("", "is freed and is no block", free_twice),
    CASE("usm", "is freed and is no block", free_usm_twice),
    CASE("nosvm", "is used as a buffer and is none", release_buffer_twice),
    CASE("", "run past the end of the block", copy_past_the_end),
    CASE("usm", "run past the end of the block", copy_usm_past_the_end),
    CASE("nosvm", "run past the end of a buffer", read_buffer_past_the_end),
    CASE("", "is used as shared memory and is not", fill_foreign),
    CASE("usm", "is used as shared memory and is not", fill_foreign_usm),
    CASE("", "is not in steps of 16", fill_in_odd_steps),
    CASE("usm", "is not in steps of 16", fill_usm_in_odd_steps),
    CASE("nosvm", "is not in steps of 16", fill_buffer_in_odd_steps),
    CASE("", "overlaps", copy_overlaps),
    CASE("usm", "overlaps", copy_usm_overlaps),
    CASE("nosvm", "overlaps", copy_buffer_overlaps),
    CASE("nosvm", "is asked for of a buffer", part_past_the_end),
    CASE("", "waits for a command of another one, which was not flushed", wait_unflushed),
    CASE("", "whose queue was not flushed", ask_unflushed),
    CASE("usm", "waits for a command that was not flushed", free_usm_unflushed),
    CASE("", "a queue is released while a user event is not set", release_queue_with_user_event),
    CASE("usm", "a context is released while a user event is not set", release_context_with_user_event),
    CASE("nosvm", "a buffer is released while a user event is not set", release_buffer_with_user_event),
    CASE("", "the event is released that nobody has", release_event_twice),
    CASE("", "the queue is released that nobody has", release_queue_twice),
    CASE("", "the context is released that nobody has", release_context_twice),
    CASE("usm", "clSVMAlloc is called for a device without shared virtual memory", svm_without_svm),
    CASE("nosvm", "clSVMAlloc is called for a device of OpenCL 1.2", svm_without_svm),
    CASE("usm", "clEnqueueSVMMemcpy is called for a device without", svm_copy_without_svm),
    CASE("nosvm", "clCreateCommandQueueWithProperties is called for a device of", queue_of_2),
#undef CASE
};
enum { CASES = sizeof cases / sizeof cases[0] };

/* In the child: until it is ended. */
static void break_rule(const struct broken *one, int output)
{
    const struct rlimit no_core = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &no_core);
    dup2(output, STDERR_FILENO);
    signal(SIGSEGV, SIG_DFL); /* not a sanitizer's */
    signal(SIGABRT, SIG_DFL);
    alarm(60);
    set_up(one->mode);
    one->run();
    _exit(0);
}

static bool is_noticed(int number)
{
    const struct broken *one = &cases[number];
    char said[4096] = "";
    int ends[2], status = 0;
    size_t length = 0;
    must(pipe(ends) == 0, "a pipe");
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        break_rule(one, ends[1]);
    close(ends[1]);
    for (ssize_t got;
         length < sizeof said - 1 && (got = read(ends[0], said + length, sizeof said - 1 - length)) > 0;)
        length += (size_t)got;
    close(ends[0]);
    waitpid(child, &status, 0);
    int ended_by = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    bool noticed = one->words ? ended_by == SIGABRT && strstr(said, one->words) : ended_by == SIGSEGV;
    if (!noticed)
        printf("FAIL  case %d, mode \"%s\": ended by signal %d, saying: %s\n", number, one->mode, ended_by,
               said);
    return noticed;
}

int main(int argc, char **argv)
{
    int missed = 0;
    cl_uint count = 0;
    if (argc < 2)
        return 1;
    library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    must(library, "the shim");
    pid_t child = fork(); /* nothing of the driver's is to be in this process */
    if (child == 0)
        _exit(clGetPlatformIDs(0, NULL, &count) != CL_SUCCESS || count == 0);
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) {
        printf("no OpenCL device here\n");
        return 77;
    }
    for (int i = 0; i < CASES; i++)
        if (argc < 3 || atoi(argv[2]) == i)
            missed += !is_noticed(i);
    printf("%d rules broken, %d not noticed\n", CASES, missed);
    return missed > 0;
}
