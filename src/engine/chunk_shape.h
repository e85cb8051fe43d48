// The shape of a model's chunks: what each of its layers keeps of a row.
#pragma once

#include "model/config.h"
#include "store/chunk/chunk.h"

namespace blend {

inline ChunkShape chunk_shape(const ModelConfig& c, uint32_t n_tokens, DType dtype) {
  ChunkShape shape{c.n_layers, n_tokens, c.kv_dim(), dtype, c.head_dim};
  if (c.conv.taps == 0) return shape;
  for (uint32_t i = 0; i < c.n_layers; ++i) {
    shape.layers.push_back(
        {c.conv.has(i) ? LayerShape::Keep::rows : LayerShape::Keep::kv, c.row_dim(i) / 2, 0});
  }
  return shape;
}

// Whether a chunk's layers keep what those of the model do.
inline bool has_layers_of(const ChunkShape& shape, const ModelConfig& c) {
  const ChunkShape own = chunk_shape(c, shape.n_tokens, shape.dtype);
  return shape.n_layers == own.n_layers && shape.kv_dim == own.kv_dim && shape.layers == own.layers;
}

}  // namespace blend
