/* The bytes of a chunk back into events, and as columns, in which they pack better. Bytes are untrusted. */
#ifndef BERTH_TRACE_DECODE_H
#define BERTH_TRACE_DECODE_H

#include "trace/encode.h"

/* Takes the next event from [*at, end); contexts on the way count for it. `e` gets all but process, thread and time;
 * s->tick is its tick. False where the bytes end or are not of the form: then *at is where. */
bool berth__trace_decode(const unsigned char **at, const unsigned char *end, berth__trace_state *s,
                         berth_trace_event *e);

/* Rows of numbers as columns: first all tags, then all ticks, then for each place behind them the numbers that stand
 * there. Both have room for `size_bytes` + BERTH__TRACE_COLUMNS_EXTRA. How many bytes `to` took; 0 if `from` is not of
 * the form. */
enum { BERTH__TRACE_COLUMNS = 7, BERTH__TRACE_COLUMNS_EXTRA = BERTH__TRACE_COLUMNS * 4 };
size_t berth__trace_to_columns(const unsigned char *from, size_t size_bytes, unsigned char *to);
/* And back, into `to` with room for `room`. How many bytes; 0 if `from` is not of the form. */
size_t berth__trace_from_columns(const unsigned char *from, size_t size_bytes, unsigned char *to,
                                 size_t room);

#endif
