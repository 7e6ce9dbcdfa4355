/* Protobuf's wire format. */
#include "format/onnx_wire.h"

static bool wire_fail(wire *w, const char *words)
{
    if (!w->error->status)
        format_fail(w->error, BERTH_BAD_DATA, "offset %zu: %s", w->at, words);
    return false;
}

bool wire_number(wire *w, uint64_t *value)
{
    *value = 0;
    if (w->error->status || w->at >= w->end)
        return false;
    for (unsigned shift = 0; shift < 64 && w->at < w->end; shift += 7) {
        uint8_t byte = w->data[w->at++];
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return wire_fail(w, "a number does not end; this is no ONNX model, or it is damaged");
}

static bool wire_fixed(wire *w, unsigned bytes, uint64_t *value)
{
    *value = 0;
    if (w->end - w->at < bytes)
        return wire_fail(w, "the message ends inside a field");
    for (unsigned i = 0; i < bytes; i++)
        *value |= (uint64_t)w->data[w->at++] << (8 * i);
    return true;
}

bool wire_next(wire *w, wire_field *field)
{
    uint64_t key, length;
    if (w->at >= w->end || !wire_number(w, &key))
        return false;
    *field = (wire_field){.number = (uint32_t)(key >> 3)};
    if (!field->number || key >> 3 > 0x1fffffff)
        return wire_fail(w, "a field has an impossible number; this is no ONNX model, or it is damaged");
    switch (key & 7) {
    case 0:
        return wire_number(w, &field->value) || wire_fail(w, "the message ends inside a field");
    case 1:
        return wire_fixed(w, 8, &field->value);
    case 5:
        return wire_fixed(w, 4, &field->value);
    case 2:
        if (!wire_number(w, &length) || length > w->end - w->at)
            return wire_fail(w, "a field is longer than what holds it");
        field->is_bytes = true;
        field->inside = (wire){w->data, w->at, w->at + (size_t)length, w->error};
        w->at += (size_t)length;
        return true;
    default:
        return wire_fail(w, "a field of a kind that there is not; this is no ONNX model, or it is damaged");
    }
}

format_text wire_text(const wire_field *field)
{
    if (!field->is_bytes || field->inside.at == field->inside.end)
        return (format_text){"", 0};
    return (format_text){(const char *)field->inside.data + field->inside.at,
                         field->inside.end - field->inside.at};
}
