// Layers as codecs meet them: numbers to stored elements and back.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "cpu/convert.h"
#include "store/chunk/chunk.h"

namespace blend::test {

using Bytes = std::vector<std::byte>;

inline Bytes as_layer(const ChunkShape& shape, const std::vector<float>& x) {
  Bytes layer(shape.layer_bytes(0));
  EXPECT_TRUE(kernels::encode(x.data(), x.size(), shape.dtype, layer.data()));
  return layer;
}

inline std::vector<float> as_floats(const ChunkShape& shape, const Bytes& layer) {
  std::vector<float> x(layer.size() / static_cast<size_t>(dtype_size(shape.dtype)));
  kernels::decode_ref(layer.data(), shape.dtype, x.size(), x.data());
  return x;
}

}  // namespace blend::test
