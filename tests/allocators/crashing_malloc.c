/* A malloc that ends the process at the first large block. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

__attribute__((visibility("default"))) void *malloc(size_t size)
{
    if (size >= 100000)
        abort();
    size_t *p = mmap(NULL, size + 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    p[0] = size;
    return p + 2;
}
__attribute__((visibility("default"))) void free(void *p)
{
    (void)p;
}
__attribute__((visibility("default"))) void *calloc(size_t count, size_t size)
{
    return malloc(count * size);
}
__attribute__((visibility("default"))) void *realloc(void *p, size_t size)
{
    void *q = malloc(size);
    if (p && q)
        memcpy(q, p, ((size_t *)p)[-2] < size ? ((size_t *)p)[-2] : size);
    return q;
}
