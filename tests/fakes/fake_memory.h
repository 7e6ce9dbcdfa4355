/* Between the two halves of the stand-in: what memory is alive, and the lock around it all. */
#ifndef BERTH_TESTS_FAKE_MEMORY_H
#define BERTH_TESTS_FAKE_MEMORY_H

#include "fake_gpu.h"

void fake_lock(void);
void fake_unlock(void);

/* The rest: call under the lock. */
int fake_misuse(int code, const char *words);
void fake_count_live(int change);
/* A misuse if the bytes run over the end of a block, or lie in one that has been freed. */
void fake_check_range(const void *p, size_t size_bytes);
int fake_free_block(void *p, bool host, bool async);
/* Whether `p` lies in a live block, and whether it is the beginning of one of the host's. */
bool fake_is_block(const void *p);
bool fake_is_host_block(const void *p);
/* Whether `p` lies in the live block that begins at `beginning`. */
bool fake_same_block(const void *p, const void *beginning);

#endif
