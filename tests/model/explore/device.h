/* A device for programs under the explorer, in place of src/device: memory from a counter, and two streams whose work
 * is done when the program says so. A driver call is one step. */
#ifndef BERTH_TESTS_EXPLORE_DEVICE_H
#define BERTH_TESTS_EXPLORE_DEVICE_H

#include "berth/device.h"

berth_stream *device_stream(int which);
void device_enqueue(int which);  /* work behind what the stream has */
void device_complete(int which); /* all of it */
bool device_has_passed(const berth_event *event);
uint64_t device_bytes(void); /* handed out and not given back */

#endif
