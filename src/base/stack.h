/* Call stacks that are cheap enough to keep with every block: each distinct one is stored once, for the life
 * of the process. */
#ifndef BERTH_BASE_STACK_H
#define BERTH_BASE_STACK_H

#include "base/base.h"

enum { BERTH__STACK_DEPTH = 16 };

typedef struct berth__stack {
    struct berth__stack *next; /* the depot's */
    uint64_t hash;
    uint32_t depth;
    void *frames[]; /* return addresses, innermost first */
} berth__stack;

/* Loads what unwinding needs, so that the first berth__stack_here does not have to. Any thread, again and
 * again. */
void berth__stack_prepare(void);

/* The caller's stack, BERTH__STACK_DEPTH frames at most. NULL where it cannot be told. The result lives for
 * ever and equal stacks are one object. Any thread. */
const berth__stack *berth__stack_here(void);

/* "module(function+0x12) < module(+0x34) ..." into `text`; "unknown" for NULL. */
void berth__stack_format(const berth__stack *stack, char *text, size_t capacity);

#endif
