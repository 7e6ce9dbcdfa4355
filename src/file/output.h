/* Text on its way to a file, which appears whole or not at all. */
#ifndef BERTH_FILE_OUTPUT_H
#define BERTH_FILE_OUTPUT_H

#include "base/base.h"

typedef struct berth__output berth__output;

/* Begins writing `path`; "-" is the standard output, as is any name of the ordinary file or pipe that is open as
 * such (/dev/stdout). Everything that is no ordinary file (a device, a pipe) is written in place. An ordinary
 * file, also one that a link leads to, is written beside its place with the mode and the owner of the one that
 * is there, and moved there by berth__output_close. BERTH_OK with *out, which berth__output_close ends,
 * BERTH_IO, BERTH_OUT_OF_HOST_MEMORY. */
berth_status berth__output_open(const char *path, berth__output **out);

/* A failure shows at the end. */
void berth__output_put(berth__output *output, const char *text, size_t length);
void berth__output_number(berth__output *output, uint64_t n);
void berth__output_signed(berth__output *output, int64_t n);

/* Ends the writing. `status` is how it went so far: unless that is BERTH_OK, what was there stays. `status`, or
 * BERTH_IO. */
berth_status berth__output_close(berth__output *output, berth_status status);

#endif
