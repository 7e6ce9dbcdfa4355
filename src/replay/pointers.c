/* The table of pointers grows and goes. */
#include "replay/pointers.h"

#include <string.h>

bool berth__pointers_grow(berth__pointers *t)
{
    size_t places = t->places ? (t->mask + 1) * 2 : 256;
    berth__pointers larger = {.count = t->count, .mask = places - 1};
    larger.shift = 64 - (uint32_t)__builtin_ctzll(places);
    larger.places = berth__heap_zalloc(places, sizeof *larger.places);
    if (!larger.places)
        return false;
    for (size_t i = 0; t->places && i <= t->mask; i++)
        if (t->places[i].address)
            *berth__pointers_find(&larger, (const void *)t->places[i].address) = t->places[i];
    berth__heap_free(t->places);
    *t = larger;
    return true;
}

void berth__pointers_finish(berth__pointers *t)
{
    berth__heap_free(t->places);
    memset(t, 0, sizeof *t);
}
