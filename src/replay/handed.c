/* The table of pointers grows and goes. */
#include "replay/handed.h"

#include <string.h>

bool berth__handed_grow(berth__handed *t)
{
    size_t places = t->places ? (t->mask + 1) * 2 : 256;
    berth__handed larger = {.count = t->count, .mask = places - 1};
    larger.shift = 64 - (uint32_t)__builtin_ctzll(places);
    larger.places = berth__heap_zalloc(places, sizeof *larger.places);
    if (!larger.places)
        return false;
    for (size_t i = 0; t->places && i <= t->mask; i++)
        if (t->places[i].address)
            *berth__handed_find(&larger, (const void *)t->places[i].address) = t->places[i];
    berth__heap_free(t->places);
    *t = larger;
    return true;
}

void berth__handed_finish(berth__handed *t)
{
    berth__heap_free(t->places);
    memset(t, 0, sizeof *t);
}
