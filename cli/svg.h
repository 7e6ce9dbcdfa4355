/* A plan as a picture. */
#ifndef BERTH_CLI_SVG_H
#define BERTH_CLI_SVG_H

#include <stdio.h>

#include "berth/problem_file.h"

/* Writes a valid plan as SVG: time across, address upward, a patch a buffer. CLI_OK, or the exit code after a complaint. */
int cli_svg_write(const char *verb, const berth_problem_file *file, const uint64_t *offsets,
                  uint64_t peak_bytes, const char *path);

/* Writes a text so that nothing in it is taken for markup. */
void cli_svg_text(FILE *out, const char *text);

#endif
