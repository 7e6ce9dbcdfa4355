/* Between the parts of the stand-in: what memory is alive and how the driver itself gets at it, and the lock around it
 * all. */
#ifndef BERTH_TESTS_FAKE_MEMORY_H
#define BERTH_TESTS_FAKE_MEMORY_H

#include "fake_gpu.h"

void fake_lock(void);
void fake_unlock(void);

/* The rest: call under the lock. */
int fake_misuse(int code, const char *words);
void fake_count_live(int change);
/* Waits until something has changed. */
void fake_wait_for_progress(void);
void fake_progress(void);

/* The code after which `device` does nothing more; 0: it works. The next operation may break it. */
int fake_broken(int device);
void fake_break_if_due(int device);

/* A misuse if the bytes run over the end of a block, lie in one that has been freed, or in memory that `device` has no
 * access to. */
void fake_check_range(const void *p, size_t size_bytes, int device);
int fake_free_block(void *p, bool host, bool async);
/* The device whose memory `p` is; -1: the host's. */
int fake_owner(const void *p);
/* Where the driver itself finds the byte at `p`, and how many follow it there. */
char *fake_reach(const void *p, size_t *run_bytes);

/* Physical memory of a device: an offset into its memory file. */
bool fake_charge(int device, fake_kind kind, size_t size_bytes);
void fake_refund(int device, fake_kind kind, size_t size_bytes);
bool fake_span_take(int device, size_t size_bytes, size_t alignment, size_t *offset);
void fake_span_give(int device, size_t offset);
char *fake_span_memory(int device, size_t offset);

/* fake_pieces.c: NULL if `p` is in no mapping. */
char *fake_reach_mapped(const void *p, size_t *run_bytes, int *device, bool *accessible, int by_device);
bool fake_is_reserved(const void *p);

/* fake_stream.c */
void fake_wait_for_device(int device);
/* After a fork nobody runs the streams of the parent. */
void fake_streams_after_fork(void);

#endif
