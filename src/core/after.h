/* What is to happen once a stream has passed the point where it is now, on a thread where its device may be used. */
#ifndef BERTH_CORE_AFTER_H
#define BERTH_CORE_AFTER_H

#include "device/device.h"

/* Calls fn(context) once `stream` has passed this point, or its device is lost: from a thread of ours, or from a later
 * call of anybody's. Any thread. BERTH_OK; on failure fn is not called. */
berth_status berth__after_stream(berth_stream *stream, void (*fn)(void *context), void *context);

/* Calls what is due. One load while nothing is waited for. Any thread. */
void berth__after_sweep(void);

#endif
