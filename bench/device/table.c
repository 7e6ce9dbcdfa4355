/* Registers the processor's table as a program would register its own. */
#include "device/table.h"

#include "device/device.h"

berth_device_kind bench_register_cpu(void)
{
    berth_device_kind kind = BERTH_DEVICE_UNKNOWN;
    berth_device_ops ops = berth__cpu_device_ops;
    ops.name = "cpu-again";
    (void)berth_device_register(&ops, NULL, &kind);
    return kind;
}
