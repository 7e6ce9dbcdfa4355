/* In front of the sources of `berth view`: their heap is the one that fails on request, streams included. */
#ifndef BERTH_TESTS_VIEW_HEAP_H
#define BERTH_TESTS_VIEW_HEAP_H

#include <stdio.h>
#include <stdlib.h>

void *heap_malloc(size_t size);
void *heap_calloc(size_t count, size_t size);
void *heap_realloc(void *old, size_t size);
void heap_free(void *block);
FILE *heap_open_memstream(char **text, size_t *size);
FILE *heap_fopen(const char *path, const char *mode);

#ifndef HEAP_OWN
#define malloc heap_malloc
#define calloc heap_calloc
#define realloc heap_realloc
#define free heap_free
#define open_memstream heap_open_memstream
#define fopen heap_fopen
#endif

#endif
