/* The table of pointers grows and goes. */
#include "replay/handed.h"

#include <string.h>

bool berth__handed_is_valid(const berth__handed *t)
{
    size_t count = 0;
    if (t->mask >= 512)
        return true;
    for (size_t i = 0; t->places && i <= t->mask; i++) {
        const berth__handed_place *place = &t->places[i];
        if (place->address && berth__handed_find(t, (const void *)place->address) != place)
            return false;
        count += place->address != 0;
    }
    return count == t->count;
}

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
    BERTH_DCHECK(berth__handed_is_valid(t), "[R12] the larger table has all that the smaller one had");
    return true;
}

void berth__handed_finish(berth__handed *t)
{
    berth__heap_free(t->places);
    memset(t, 0, sizeof *t);
}
