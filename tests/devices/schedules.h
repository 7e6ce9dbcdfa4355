/* Random schedules as one of the checks of a device. */
#ifndef BERTH_TESTS_DEVICES_SCHEDULES_H
#define BERTH_TESTS_DEVICES_SCHEDULES_H

#include <stdint.h>

/* Another seed draws other schedules. */
extern uint64_t schedules_seed;

void random_schedules(void);

#endif
