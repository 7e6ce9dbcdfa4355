/* In front of the readers' sources: their heap is the one that fails on request. */
#ifndef BERTH_TESTS_MODELS_HEAP_H
#define BERTH_TESTS_MODELS_HEAP_H

#include <stdlib.h>

void *heap_malloc(size_t size);
void *heap_calloc(size_t count, size_t size);
void *heap_realloc(void *old, size_t size);
void heap_free(void *block);

#ifndef HEAP_OWN
#define malloc heap_malloc
#define calloc heap_calloc
#define realloc heap_realloc
#define free heap_free
#endif

#endif
