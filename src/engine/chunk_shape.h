// The shape of a model's chunks: what each of its layers keeps of a row.
#pragma once

#include "model/config.h"
#include "store/chunk/chunk.h"

namespace blend {

inline ChunkShape chunk_shape(const ModelConfig& c, uint32_t n_tokens, DType dtype) {
  ChunkShape shape{c.n_kept(), n_tokens, c.kv_dim(), dtype, c.head_dim};
  const auto plain = [&](uint32_t i) { return !c.mixer.has(i) && c.row_dim(i) == 2 * c.kv_dim(); };
  bool all_plain = true;
  for (uint32_t i = 0; i < shape.n_layers; ++i) all_plain = all_plain && plain(i);
  if (all_plain) return shape;
  for (uint32_t i = 0; i < shape.n_layers; ++i) {
    shape.layers.push_back(
        {c.mixer.has(i) ? LayerShape::Keep::rows : LayerShape::Keep::kv, c.row_dim(i) / 2, 0});
  }
  return shape;
}

// Whether a chunk's layers keep what those of the model do.
inline bool has_layers_of(const ChunkShape& shape, const ModelConfig& c) {
  const ChunkShape own = chunk_shape(c, shape.n_tokens, shape.dtype);
  return shape.n_layers == own.n_layers && shape.kv_dim == own.kv_dim && shape.layers == own.layers;
}

}  // namespace blend
