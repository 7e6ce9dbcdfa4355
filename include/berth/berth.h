/* All of berth. */
#ifndef BERTH_BERTH_H
#define BERTH_BERTH_H

#include "berth/allocator.h"
#include "berth/buffer.h"
#include "berth/config.h"
#include "berth/decorators.h"
#include "berth/device.h"
#include "berth/device_ops.h"
#include "berth/dlpack.h"
#include "berth/host_cache.h"
#include "berth/log.h"
#include "berth/opencl.h"
#include "berth/plan.h"
#include "berth/pool.h"
#include "berth/problem.h"
#include "berth/registry.h"
#include "berth/replay.h"
#include "berth/scope.h"
#include "berth/shared.h"
#include "berth/source.h"
#include "berth/status.h"
#include "berth/trace.h"
#include "berth/tracking.h"
#include "berth/version.h"
#include "berth/virtual.h"

#endif
