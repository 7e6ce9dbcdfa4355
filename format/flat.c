/* Flatbuffers, read where they lie. */
#include "format/flat.h"

#include <inttypes.h>
#include <string.h>

bool flat_failed(const flat *f)
{
    return f->error->status;
}

void flat_fail(flat *f, size_t at, const char *field, const char *words)
{
    if (!flat_failed(f))
        format_fail(f->error, BERTH_BAD_DATA, "offset %zu, field `%s`: %s", at, field, words);
}

uint64_t flat_read(const uint8_t *data, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)data[i] << (8 * i);
    return value;
}

static bool flat_inside(const flat *f, uint64_t at, uint64_t bytes)
{
    return at <= f->size && bytes <= f->size - at;
}

static flat_table flat_table_at(flat *f, uint64_t at, const char *field)
{
    flat_table none = {0}, t = {.at = (size_t)at};
    if (flat_failed(f))
        return none;
    if (!at || !flat_inside(f, at, 4)) {
        flat_fail(f, (size_t)at, field, "this table lies outside the file");
        return none;
    }
    int64_t vtable = (int64_t)at - (int32_t)(uint32_t)flat_read(f->data + at, 4);
    if (vtable < 0 || !flat_inside(f, (uint64_t)vtable, 4)) {
        flat_fail(f, t.at, field, "the list of fields of this table lies outside the file");
        return none;
    }
    t.vtable = (size_t)vtable;
    uint64_t bytes = flat_read(f->data + vtable, 2);
    t.bytes = (uint16_t)flat_read(f->data + vtable + 2, 2);
    if (bytes < 4 || bytes % 2 || !flat_inside(f, t.vtable, bytes) || t.bytes < 4 ||
        !flat_inside(f, at, t.bytes)) {
        flat_fail(f, t.at, field, "this table has an impossible size");
        return none;
    }
    t.fields = (uint16_t)((bytes - 4) / 2);
    return t;
}

flat_table flat_root(flat *f, const char *identifier)
{
    if (f->size < 8 || memcmp(f->data + 4, identifier, 4) != 0) {
        flat_fail(f, 4, "file_identifier", "this is no such file");
        return (flat_table){0};
    }
    return flat_table_at(f, flat_read(f->data, 4), "root");
}

size_t flat_field(flat *f, flat_table t, unsigned id, unsigned bytes, const char *field)
{
    if (!t.at || id >= t.fields || flat_failed(f))
        return 0;
    uint64_t place = flat_read(f->data + t.vtable + 4 + 2 * id, 2);
    if (!place)
        return 0;
    if (place < 4 || place + bytes > t.bytes) {
        flat_fail(f, t.at, field, "it lies outside its table");
        return 0;
    }
    return t.at + place;
}

uint64_t flat_number(flat *f, flat_table t, unsigned id, unsigned bytes, uint64_t absent, const char *field)
{
    size_t at = flat_field(f, t, id, bytes, field);
    return at ? flat_read(f->data + at, bytes) : absent;
}

/* Where an offset at `at` leads; 0 after a failure. */
static uint64_t flat_follow(flat *f, size_t at, const char *field)
{
    uint64_t to = at + flat_read(f->data + at, 4);
    if (to == at || !flat_inside(f, to, 4)) {
        flat_fail(f, at, field, "it leads outside the file");
        return 0;
    }
    return to;
}

flat_table flat_child(flat *f, flat_table t, unsigned id, const char *field)
{
    size_t at = flat_field(f, t, id, 4, field);
    uint64_t to = at ? flat_follow(f, at, field) : 0;
    return to ? flat_table_at(f, to, field) : (flat_table){0};
}

flat_vector flat_list(flat *f, flat_table t, unsigned id, unsigned element, const char *field)
{
    size_t at = flat_field(f, t, id, 4, field);
    uint64_t to = at ? flat_follow(f, at, field) : 0;
    if (!to)
        return (flat_vector){0};
    uint64_t count = flat_read(f->data + to, 4);
    if (!flat_inside(f, to + 4, count * element)) {
        flat_fail(f, (size_t)to, field, "it has more elements than the file has bytes");
        return (flat_vector){0};
    }
    return (flat_vector){.at = (size_t)to + 4, .count = (uint32_t)count, .present = true};
}

format_text flat_string(flat *f, flat_table t, unsigned id, const char *field)
{
    flat_vector v = flat_list(f, t, id, 1, field);
    return (format_text){v.count ? (const char *)f->data + v.at : "", v.count};
}

flat_table flat_item(flat *f, flat_vector v, uint32_t index, const char *field)
{
    if (flat_failed(f) || index >= v.count)
        return (flat_table){0};
    uint64_t to = flat_follow(f, v.at + 4 * (size_t)index, field);
    return to ? flat_table_at(f, to, field) : (flat_table){0};
}

int32_t flat_int(const flat *f, flat_vector v, uint32_t index)
{
    return (int32_t)(uint32_t)flat_read(f->data + v.at + 4 * (size_t)index, 4);
}
