// What each layer of a chunk keeps, as it is written into records and export files (FORMAT.md,
// "Layers of other kinds"): only of a chunk where a layer keeps something else than K and V.
#pragma once

#include <cstddef>

#include "base/wire.h"
#include "store/chunk/chunk.h"

namespace blend {

inline constexpr size_t kLayerShapeBytes = 1 + 2 * 4;

inline size_t layer_shape_bytes(const ChunkShape& shape) {
  return shape.layers.size() * kLayerShapeBytes;
}

inline void put_layer_shapes(ByteWriter& out, const ChunkShape& shape) {
  for (const LayerShape& l : shape.layers) {
    out.put<uint8_t>(static_cast<uint8_t>(l.keep));
    out.put<uint32_t>(l.width);
    out.put<uint32_t>(l.n_rows);
  }
}

// Those of all of shape.n_layers layers. False: too few bytes, or no chunk has this shape.
inline bool get_layer_shapes(ByteReader& in, ChunkShape& shape) {
  if (shape.n_layers > kMostListedLayers) return false;
  if (in.remaining() / kLayerShapeBytes < shape.n_layers) return false;
  shape.layers.resize(shape.n_layers);
  for (LayerShape& l : shape.layers) {
    l.keep = static_cast<LayerShape::Keep>(in.get<uint8_t>());
    l.width = in.get<uint32_t>();
    l.n_rows = in.get<uint32_t>();
  }
  return in.ok() && shape_is_sane(shape);
}

}  // namespace blend
