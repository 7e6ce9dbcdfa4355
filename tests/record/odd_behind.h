/* What programs and the library behind them share. */
#ifndef BERTH_TESTS_ODD_BEHIND_H
#define BERTH_TESTS_ODD_BEHIND_H

#include <pthread.h>
#include <stdbool.h>

enum { ODD_BEFORE_FORK = 5001, ODD_AFTER_FORK = 5002 };

extern pthread_mutex_t odd_lock; /* what the library's handler takes before a fork */
extern bool odd_forks;           /* whether its handlers do anything */

#endif
