/* Names of ONNX tensors, by space. */
#include <stdlib.h>
#include <string.h>

#include "format/onnx_reader.h"

static size_t name_hash(format_text name, uint32_t space)
{
    uint64_t hash = 14695981039346656037u ^ space;
    for (size_t i = 0; i < name.length; i++)
        hash = (hash ^ (unsigned char)name.bytes[i]) * 1099511628211u;
    return (size_t)(hash ^ hash >> 29);
}

static onnx_name *name_place(const onnx_names *map, format_text name, uint32_t space)
{
    for (size_t at = name_hash(name, space);; at++) {
        onnx_name *entry = &map->entries[at & (map->room - 1)];
        if (entry->id == UINT32_MAX || (entry->space == space && entry->name.length == name.length &&
                                        memcmp(entry->name.bytes, name.bytes, name.length) == 0))
            return entry;
    }
}

bool onnx_name_put(onnx_names *map, format_text name, uint32_t space, uint32_t id)
{
    if (map->count * 2 >= map->room) {
        onnx_names larger = {.room = map->room ? map->room * 2 : 256, .count = map->count};
        larger.entries = malloc(larger.room * sizeof *larger.entries);
        if (!larger.entries)
            return false;
        for (size_t i = 0; i < larger.room; i++)
            larger.entries[i].id = UINT32_MAX;
        for (size_t i = 0; i < map->room; i++)
            if (map->entries[i].id != UINT32_MAX)
                *name_place(&larger, map->entries[i].name, map->entries[i].space) = map->entries[i];
        free(map->entries);
        *map = larger;
    }
    onnx_name *entry = name_place(map, name, space);
    map->count += entry->id == UINT32_MAX;
    *entry = (onnx_name){name, space, id};
    return true;
}

uint32_t onnx_name_get(const onnx_names *map, format_text name, uint32_t space)
{
    return map->room ? name_place(map, name, space)->id : UINT32_MAX;
}
