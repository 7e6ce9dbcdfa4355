/* Protobuf's wire format: fields one after the other, each with its number. */
#ifndef BERTH_FORMAT_ONNX_WIRE_H
#define BERTH_FORMAT_ONNX_WIRE_H

#include "format/model.h"

/* A message, or the rest of one. */
typedef struct wire {
    const uint8_t *data; /* of the file */
    size_t at, end;
    format_error *error; /* the first failure is kept */
} wire;

typedef struct wire_field {
    uint32_t number;
    uint64_t value; /* of a number; a float's bits */
    bool is_bytes;  /* `inside` holds it */
    wire inside;
} wire_field;

/* The next field; false at the end and after a failure. */
bool wire_next(wire *message, wire_field *field);
format_text wire_text(const wire_field *field);
/* One number of a packed list; false at its end. */
bool wire_number(wire *list, uint64_t *value);

#endif
