/* ONNX models: a protobuf whose root is a ModelProto. Walked where it lies; weights are not touched. */
#ifndef BERTH_FORMAT_ONNX_H
#define BERTH_FORMAT_ONNX_H

#include "format/model.h"

/* Reads the model and infers the shapes that it leaves out; its names point into `data`. BERTH_OK, BERTH_BAD_DATA,
 * BERTH_INVALID_ARGUMENT (a dimension is open and `dims` does not set it), BERTH_OVERFLOW, BERTH_OUT_OF_HOST_MEMORY; after a
 * failure the model is empty and `error` has words. */
berth_status format_onnx_read(const uint8_t *data, size_t size, const format_dims *dims, format_model *model,
                              format_error *error);

#endif
