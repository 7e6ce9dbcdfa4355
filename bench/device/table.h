/* The processor's own table, registered once more under another name. */
#ifndef BERTH_BENCH_DEVICE_TABLE_H
#define BERTH_BENCH_DEVICE_TABLE_H

#include <berth/device_ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* BERTH_DEVICE_UNKNOWN, with words kept, if that fails. */
berth_device_kind bench_register_cpu(void);

#ifdef __cplusplus
}
#endif
#endif
