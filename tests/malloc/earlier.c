/* A library that is initialised before every other (it is linked with -z initfirst, and the last one so linked wins): with it
 * the program's own first functions run before libberth_malloc.so is ready. */
#include <stdlib.h>

static void *volatile kept;
__attribute__((constructor)) static void earlier_begin(void)
{
    kept = malloc(100000);
    free(kept);
    kept = malloc(10);
}
