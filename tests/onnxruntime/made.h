/* Small ONNX models, written as protobuf by hand. */
#ifndef TESTS_ONNXRUNTIME_MADE_H
#define TESTS_ONNXRUNTIME_MADE_H

#include <stddef.h>

#define MADE_MOST ((size_t)1 << 15)

/* y of x, a matrix of any size: `blocks` times softmax(x x^T) x, attention without weights. Returns the bytes of the model
 * that is written to `out`. */
size_t made_chain(unsigned char *out, int blocks);

/* y = NonZero(x) as floats: the size of what it makes depends on what x holds, down to 0 bytes. */
size_t made_nonzero(unsigned char *out);

#endif
