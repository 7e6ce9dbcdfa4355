/* The kernels, loaded through the driver that Berth has loaded already. */
#include "kernels.h"

#include <stdio.h>
#include <string.h>

#include <dlfcn.h>

/* Both take (pointer, count, seed, bad) and stride over the words by the size of the grid. */
static const char ptx[] =
    ".version 6.0\n.target sm_50\n.address_size 64\n"
    ".visible .entry fill(.param .u64 pp, .param .u32 pn, .param .u32 ps, .param .u64 pb)\n"
    "{\n .reg .pred %q; .reg .b32 %r<12>; .reg .b64 %d<6>;\n"
    " ld.param.u64 %d1,[pp]; ld.param.u32 %r1,[pn]; ld.param.u32 %r2,[ps];\n"
    " mov.u32 %r3,%ctaid.x; mov.u32 %r4,%ntid.x; mov.u32 %r5,%tid.x; mad.lo.s32 %r6,%r3,%r4,%r5;\n"
    " mov.u32 %r7,%nctaid.x; mul.lo.s32 %r8,%r7,%r4; cvta.to.global.u64 %d2,%d1;\n"
    "LOOP: setp.ge.u32 %q,%r6,%r1; @%q bra DONE;\n"
    " mul.wide.u32 %d3,%r6,4; add.s64 %d4,%d2,%d3; add.s32 %r9,%r2,%r6; st.global.u32 [%d4],%r9;\n"
    " add.s32 %r6,%r6,%r8; bra LOOP;\nDONE: ret;\n}\n"
    ".visible .entry check(.param .u64 pp, .param .u32 pn, .param .u32 ps, .param .u64 pb)\n"
    "{\n .reg .pred %q; .reg .pred %e; .reg .b32 %r<14>; .reg .b64 %d<8>;\n"
    " ld.param.u64 %d1,[pp]; ld.param.u32 %r1,[pn]; ld.param.u32 %r2,[ps]; ld.param.u64 %d5,[pb];\n"
    " mov.u32 %r3,%ctaid.x; mov.u32 %r4,%ntid.x; mov.u32 %r5,%tid.x; mad.lo.s32 %r6,%r3,%r4,%r5;\n"
    " mov.u32 %r7,%nctaid.x; mul.lo.s32 %r8,%r7,%r4; cvta.to.global.u64 %d2,%d1; cvta.to.global.u64 "
    "%d6,%d5;\n"
    "LOOP: setp.ge.u32 %q,%r6,%r1; @%q bra DONE;\n"
    " mul.wide.u32 %d3,%r6,4; add.s64 %d4,%d2,%d3; add.s32 %r9,%r2,%r6; ld.global.u32 %r10,[%d4];\n"
    " setp.ne.u32 %e,%r9,%r10; @%e atom.global.add.u32 %r11,[%d6],1;\n"
    " add.s32 %r6,%r6,%r8; bra LOOP;\nDONE: ret;\n}\n";

static const char source[] =
    "extern \"C\" __global__ void fill(unsigned *p, unsigned n, unsigned s, unsigned *b)\n"
    "{ for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) p[i] = s "
    "+ i; }\n"
    "extern \"C\" __global__ void check(unsigned *p, unsigned n, unsigned s, unsigned *b)\n"
    "{ for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)\n"
    "    if (p[i] != s + i) atomicAdd(b, 1u); }\n";

static unsigned (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          void *, void **, void **);
static void *fill_kernel, *check_kernel;

static bool say(char *why, size_t why_bytes, const char *words)
{
    snprintf(why, why_bytes, "%s", words);
    return false;
}

static bool find_kernels(const char *load_name, const char *get_name, const char *launch_name,
                         const void *image, char *why, size_t why_bytes)
{
    unsigned (*load)(void **, const void *), (*get)(void **, void *, const char *);
    void *module = NULL;
    *(void **)&load = dlsym(RTLD_DEFAULT, load_name);
    *(void **)&get = dlsym(RTLD_DEFAULT, get_name);
    *(void **)&launch = dlsym(RTLD_DEFAULT, launch_name);
    if (!load || !get || !launch)
        return say(why, why_bytes, "this driver runs no kernels");
    if (load(&module, image) != 0 || get(&fill_kernel, module, "fill") != 0 ||
        get(&check_kernel, module, "check") != 0)
        return say(why, why_bytes, "the driver does not load the kernels");
    return true;
}

/* HIP has no portable code: its run-time compiler makes some for the current device. */
static bool load_hip(char *why, size_t why_bytes)
{
    static char image[1 << 20];
    int (*create)(void **, const char *, const char *, int, const char **, const char **);
    int (*compile)(void *, int, const char **), (*size)(void *, size_t *), (*code)(void *, char *);
    void *library = dlopen("libhiprtc.so", RTLD_NOW | RTLD_GLOBAL), *program = NULL;
    size_t bytes = 0;
    if (!library)
        library = dlopen("/opt/rocm/lib/libhiprtc.so", RTLD_NOW | RTLD_GLOBAL);
    if (!library)
        return say(why, why_bytes, "libhiprtc.so, which compiles kernels, is not here");
    *(void **)&create = dlsym(library, "hiprtcCreateProgram");
    *(void **)&compile = dlsym(library, "hiprtcCompileProgram");
    *(void **)&size = dlsym(library, "hiprtcGetCodeSize");
    *(void **)&code = dlsym(library, "hiprtcGetCode");
    if (!create || !compile || !size || !code || create(&program, source, "kernels", 0, NULL, NULL) != 0 ||
        compile(program, 0, NULL) != 0 || size(program, &bytes) != 0 || bytes > sizeof image ||
        code(program, image) != 0)
        return say(why, why_bytes, "the kernels could not be compiled");
    return find_kernels("hipModuleLoadData", "hipModuleGetFunction", "hipModuleLaunchKernel", image, why,
                        why_bytes);
}

void kernels_show_driver(bool cuda)
{
    static const char *const hip[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                      "libamdhip64.so"};
    if (cuda)
        (void)dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    for (size_t i = 0; !cuda && i < sizeof hip / sizeof hip[0]; i++)
        (void)dlopen(hip[i], RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
}

bool kernels_load(bool cuda, char *why, size_t why_bytes)
{
    kernels_show_driver(cuda);
    return cuda ? find_kernels("cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel", ptx, why,
                               why_bytes)
                : load_hip(why, why_bytes);
}

static int run(void *kernel, const void *p, uint32_t words, uint32_t seed, uint32_t *bad, void *stream)
{
    void *arguments[] = {&p, &words, &seed, &bad};
    return (int)launch(kernel, 64, 1, 1, 128, 1, 1, 0, stream, arguments, NULL);
}

int kernels_fill(void *p, uint32_t words, uint32_t seed, void *stream)
{
    return run(fill_kernel, p, words, seed, NULL, stream);
}

int kernels_check(const void *p, uint32_t words, uint32_t seed, uint32_t *bad, void *stream)
{
    return run(check_kernel, p, words, seed, bad, stream);
}
