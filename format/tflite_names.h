/* The names of TFLite's types and operators, by number. */
#ifndef BERTH_FORMAT_TFLITE_NAMES_H
#define BERTH_FORMAT_TFLITE_NAMES_H

#include <stdint.h>

/* Operators that the reader must know. */
enum {
    TFLITE_DEQUANTIZE = 6,
    TFLITE_CUSTOM = 32,
    TFLITE_IF = 118,
    TFLITE_WHILE = 119,
    TFLITE_PLACEHOLDER = 127, /* codes from here on are in the wider field only */
    TFLITE_CALL_ONCE = 129,
};

/* NULL: no such type. `bits` of an element; 0: not known before it runs. */
const char *tflite_type(unsigned type, unsigned *bits);
const char *tflite_operator(unsigned code);

#endif
