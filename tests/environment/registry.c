/* Prints the whole registry, and refers to as little of the library as can be: one symbol, or those of the
 * argument that CMake gives. */
#include <berth/registry.h>
#include <stdio.h>

static bool print_entry(void *context, const berth_registration *r)
{
    (void)context;
    printf("%s %d 0x%x\n", r->name, (int)r->priority, (unsigned)r->attributes);
    return true;
}

int main(void)
{
    berth_status status = berth_registry_visit(print_entry, NULL);
#ifdef ASK_FOR_BEST
    berth_allocator *best = NULL;
    if (berth_registry_best(&best) == BERTH_OK)
        printf("best: %s\n", berth_allocator_name(best));
    if (berth_registry_best_for(BERTH_ON_HOST, &best) == BERTH_OK)
        printf("for the host: %s\n", berth_allocator_name(best));
#endif
    return (int)status;
}
