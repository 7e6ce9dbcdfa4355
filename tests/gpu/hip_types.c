/* Berth's own declarations of the HIP runtime's functions against its headers: this file compiles only if
 * every function has the same type in both. Nothing is linked or called. */
#include <stdio.h>

#define __HIP_PLATFORM_AMD__ 1 /* NOLINT(bugprone-reserved-identifier): the header asks for it */
#define __HIP_PLATFORM_HCC__ 1 /* NOLINT(bugprone-reserved-identifier): and older ones for this */
#include <hip/hip_runtime_api.h>

#include "device/hip.h"

#define SAME(need, result, name, parameters) functions->name = (__typeof__(&name))0;
static void compare(hip_functions *functions)
{
    HIP_FUNCTIONS(SAME)
}

#if HIP_VERSION >= 50300000
_Static_assert(offsetof(hip_properties, type) == offsetof(hipMemAllocationProp, type), "layout");
_Static_assert(offsetof(hip_properties, location) == offsetof(hipMemAllocationProp, location), "layout");
_Static_assert(offsetof(hip_properties, windows_only) == offsetof(hipMemAllocationProp, win32HandleMetaData),
               "layout");
_Static_assert(sizeof(hip_properties) >= sizeof(hipMemAllocationProp), "layout");
#endif
_Static_assert(sizeof(hip_access) == sizeof(hipMemAccessDesc), "layout");
_Static_assert(offsetof(hip_access, flags) == offsetof(hipMemAccessDesc, flags), "layout");
_Static_assert(offsetof(hip_location, id) == offsetof(hipMemLocation, id), "layout");
_Static_assert((int)HIP_STREAM_NON_BLOCKING == hipStreamNonBlocking, "flag");
_Static_assert((int)HIP_EVENT_DISABLE_TIMING == hipEventDisableTiming, "flag");
_Static_assert((int)HIP_HOST_PORTABLE == hipHostMallocPortable, "flag");
_Static_assert((int)HIP_ATTACH_GLOBAL == hipMemAttachGlobal, "flag");
_Static_assert((int)HIP_COPY_DEFAULT == hipMemcpyDefault, "value");
_Static_assert((int)HIP_ALLOCATION_PINNED == hipMemAllocationTypePinned, "value");
_Static_assert((int)HIP_LOCATION_DEVICE == hipMemLocationTypeDevice, "value");
_Static_assert((int)HIP_ACCESS_READ_WRITE == hipMemAccessFlagsProtReadWrite, "value");
/* The codes of gpu.h, which CUDA and HIP share. */
_Static_assert(hipErrorOutOfMemory == 2 && hipErrorDeinitialized == 4 && hipErrorNoDevice == 100, "code");
_Static_assert(hipErrorNotReady == 600 && hipErrorNotSupported == 801, "code");
_Static_assert(hipErrorECCNotCorrectable == 214 && hipErrorIllegalAddress == 700, "code");
_Static_assert(hipErrorLaunchTimeOut == 702 && hipErrorContextIsDestroyed == 709, "code");
_Static_assert(hipErrorAssert == 710 && hipErrorLaunchFailure == 719, "code");

int main(void)
{
    hip_functions functions;
    compare(&functions);
    printf("compared with the headers of HIP %d.%d\n", HIP_VERSION_MAJOR, HIP_VERSION_MINOR);
    return functions.hipInit != 0;
}
