/* What a device answers to an operation that its table lacks. */
#ifndef BERTH_DEVICE_DEVICE_ABSENT_H
#define BERTH_DEVICE_DEVICE_ABSENT_H

#include "device/device.h"

/* Copies `given` into `out` and fills what it lacks with operations that answer BERTH_UNSUPPORTED. False, and
 * an assertion, for a short or half-filled table. */
bool berth__device_ops_complete(berth__device_ops *out, const berth__device_ops *given);

#endif
