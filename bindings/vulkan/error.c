/* What the driver's answers mean. */
#include "inside.h"

static const char *name_of(VkResult code)
{
    switch (code) {
#define NAME(code) \
    case code:     \
        return #code;
        NAME(VK_ERROR_OUT_OF_HOST_MEMORY)
        NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY)
        NAME(VK_ERROR_INITIALIZATION_FAILED)
        NAME(VK_ERROR_DEVICE_LOST)
        NAME(VK_ERROR_MEMORY_MAP_FAILED)
        NAME(VK_ERROR_LAYER_NOT_PRESENT)
        NAME(VK_ERROR_EXTENSION_NOT_PRESENT)
        NAME(VK_ERROR_FEATURE_NOT_PRESENT)
        NAME(VK_ERROR_INCOMPATIBLE_DRIVER)
        NAME(VK_ERROR_TOO_MANY_OBJECTS)
        NAME(VK_ERROR_INVALID_EXTERNAL_HANDLE)
        NAME(VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS)
        NAME(VK_ERROR_UNKNOWN)
#undef NAME
    default:
        return "";
    }
}

static berth_status status_of(VkResult code)
{
    switch (code) {
    case VK_ERROR_OUT_OF_HOST_MEMORY:
        return BERTH_OUT_OF_HOST_MEMORY;
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
    case VK_ERROR_TOO_MANY_OBJECTS: /* there are ever so many allocations; see maxMemoryAllocationCount */
    case VK_ERROR_MEMORY_MAP_FAILED:
        return BERTH_OUT_OF_DEVICE_MEMORY;
    case VK_ERROR_DEVICE_LOST:
        return BERTH_DEVICE_LOST;
    case VK_ERROR_EXTENSION_NOT_PRESENT:
    case VK_ERROR_FEATURE_NOT_PRESENT:
    case VK_ERROR_INCOMPATIBLE_DRIVER:
        return BERTH_UNSUPPORTED;
    default:
        return BERTH_DEVICE_ERROR;
    }
}

berth_status bvk_fail(bvk_device *device, VkResult code, const char *what)
{
    const char *name = name_of(code);
    if (code == VK_ERROR_DEVICE_LOST && device)
        atomic_store(&device->lost, true);
    return berth_fail_driver(status_of(code), code, name, "%s: Vulkan answers %d %s", what, (int)code, name);
}

berth_status bvk_lose(bvk_device *device, VkResult code, const char *what)
{
    const char *name = name_of(code);
    atomic_store(&device->lost, true);
    return berth_fail_driver(BERTH_DEVICE_LOST, code, name,
                             "%s: Vulkan answers %d %s, and the device is lost", what, (int)code, name);
}
