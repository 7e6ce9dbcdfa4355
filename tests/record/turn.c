/* A library that allocates in a function that is inlined. Two are made of it, which differ in one name of the same length: loaded one
 * after the other, the second stands where the first stood. */
#include <stddef.h>
#include <stdlib.h>

void *run(size_t size);

__attribute__((always_inline)) static inline void *inlined_callee(size_t size)
{
    void *volatile p = malloc(size);
    return p;
}

__attribute__((noinline, visibility("hidden"))) void *TURN_NAME(size_t size)
{
    void *volatile p = inlined_callee(size);
    return p;
}

__attribute__((visibility("default"))) void *run(size_t size)
{
    void *volatile p = TURN_NAME(size);
    return p;
}
