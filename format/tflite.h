/* TensorFlow Lite models: a flatbuffer whose root is a Model (file identifier "TFL3"). */
#ifndef BERTH_FORMAT_TFLITE_H
#define BERTH_FORMAT_TFLITE_H

#include "format/model.h"

/* Whether the bytes call themselves a TFLite model. */
bool format_is_tflite(const uint8_t *data, size_t size);

/* Reads the model; its names point into `data`. BERTH_OK, BERTH_BAD_DATA, BERTH_OVERFLOW, BERTH_OUT_OF_HOST_MEMORY; after a failure
 * the model is empty and `error` has words. */
berth_status format_tflite_read(const uint8_t *data, size_t size, const format_dims *dims,
                                format_runtime runtime, format_model *model, format_error *error);

/* The offsets that the metadata OfflineMemoryAllocation holds, by tensor of all subgraphs, -1 where there is none. *present says whether
 * the model has it at all. offsets has tensor_count places. */
berth_status format_tflite_offline(const uint8_t *data, size_t size, size_t tensor_count, int32_t *offsets,
                                   bool *present, format_error *error);

/* The model with this plan as its metadata, and with the operators of every subgraph in `order` (as format_lives_init takes it; NULL: as
 * they are): *out, of *out_size bytes, which the caller frees. Everything else keeps its meaning. */
berth_status format_tflite_write(const uint8_t *data, size_t size, const int32_t *offsets,
                                 size_t tensor_count, const uint32_t *order, uint8_t **out, size_t *out_size,
                                 format_error *error);

#endif
