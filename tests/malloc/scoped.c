/* A program that uses Berth's scopes, and malloc inside of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "berth/scope.h"

int main(void)
{
    void *volatile kept = NULL;
    BERTH_SCOPE("weights")
    {
        kept = malloc(5000000);
        BERTH_SCOPE("inner")
        {
            void *volatile p = malloc(300000);
            free(p);
        }
    }
    puts(kept ? "ok" : "no memory");
    free(kept);
    return 0;
}
