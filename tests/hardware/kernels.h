/* Two kernels on whatever driver is loaded: one writes a pattern that depends on the place, one counts where it is not. PTX
 * for CUDA, source compiled at run time for HIP. Nothing here links a driver. */
#ifndef BERTH_TESTS_HARDWARE_KERNELS_H
#define BERTH_TESTS_HARDWARE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Berth loads drivers for itself alone; from here on their names are found by dlsym. */
void kernels_show_driver(bool cuda);
/* False with words when this driver has no kernels, as the stand-ins. The device is current on the thread. */
bool kernels_load(bool cuda, char *why, size_t why_bytes);
/* Words p[i] = seed + i; enqueued on the native stream. 0 for success, else the driver's code. */
int kernels_fill(void *p, uint32_t words, uint32_t seed, void *stream);
/* Adds to *bad how many words are not seed + i. */
int kernels_check(const void *p, uint32_t words, uint32_t seed, uint32_t *bad, void *stream);

#endif
