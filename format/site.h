/* Who asked for memory: the first frame of a call stack that is not a general way to do so. */
#ifndef BERTH_FORMAT_SITE_H
#define BERTH_FORMAT_SITE_H

#include "format/history.h"

/* Whether a frame allocates for somebody else (operator new, std::, png_malloc): whoever called it is the one to name. */
bool format_site_is_general(const format_history *h, const format_frame *f);

/* How much of a function's words is the type of its result: 5 in "void f<int>(int)". */
size_t format_site_result_length(const char *function);

#endif
