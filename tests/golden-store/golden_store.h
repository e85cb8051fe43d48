// What the golden stores hold: chunks of every codec and dtype, made of numbers that are the same
// on every machine.
#pragma once

#include <cmath>

#include "store/codec/codec.h"
#include "unit/store/store_testing.h"

namespace blend::test {

// Small whole multiples of 1/64, exact in every dtype; channels differ as those of K do.
inline void fill_golden(ChunkRecord& record, uint32_t seed) {
  const ChunkShape& s = record.meta.shape;
  uint32_t state = seed * 2654435761u + 1;
  for (size_t i = 0; i < s.total_bytes() / static_cast<size_t>(dtype_size(s.dtype)); ++i) {
    state = state * 1664525u + 1013904223u;
    const int channel = static_cast<int>(i % s.kv_dim);
    const float x = static_cast<float>(static_cast<int>(state >> 26) - 32 + channel % 3 * 16) / 64;
    std::byte* to = record.data.data() + i * static_cast<size_t>(dtype_size(s.dtype));
    if (s.dtype == DType::f32) {
      std::memcpy(to, &x, 4);
    } else {
      const uint16_t h = s.dtype == DType::f16 ? f32_to_f16(x) : f32_to_bf16(x);
      std::memcpy(to, &h, 2);
    }
  }
}

// What stores had until format version 2. The first is the one that is damaged: codec none, its
// rows in pages of their own.
inline std::vector<std::shared_ptr<ChunkRecord>> golden_records() {
  std::vector<std::shared_ptr<ChunkRecord>> all;
  uint32_t seed = 0;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (const Codec codec : {Codec::none, Codec::zstd, Codec::int8, Codec::int4}) {
      const ChunkShape shape{2, 40, 48, dtype, 16};
      auto record = make_record(++seed, shape);
      fill_golden(*record, seed);
      record->codec = codec;
      all.push_back(record);
    }
  }
  return all;
}

// From the time when layers of a chunk could keep something else than K and V.
inline std::vector<std::shared_ptr<ChunkRecord>> golden_kinds_records() {
  using Keep = LayerShape::Keep;
  std::vector<std::shared_ptr<ChunkRecord>> all;
  uint32_t seed = 200;
  for (const Codec codec : {Codec::none, Codec::zstd, Codec::int8, Codec::int4}) {
    ChunkShape shape{4, 40, 48, DType::f16, 16};
    shape.layers = {
        {Keep::kv, 48, 0}, {Keep::rows, 40, 0}, {Keep::state, 24, 3}, {Keep::kv, 48, 0}};
    auto record = make_record(++seed, shape);
    fill_golden(*record, seed);
    record->codec = codec;
    all.push_back(record);
  }
  return all;
}

// What came with version 3: codec rans, with and without the rows' attention.
inline std::vector<std::shared_ptr<ChunkRecord>> golden_rans_records() {
  std::vector<std::shared_ptr<ChunkRecord>> all;
  uint32_t seed = 100;
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (const bool has_impact : {false, true}) {
      const ChunkShape shape{2, 90, 64, dtype, 16};
      auto record = make_record(++seed, shape);
      fill_golden(*record, seed);
      record->codec = Codec::rans;
      record->meta.impact.clear();
      for (uint32_t t = 0; has_impact && t < shape.n_tokens; ++t) {
        record->meta.impact.push_back({0.25f, t % 5 == 0 ? 0.5f : 0.0625f});
      }
      all.push_back(record);
    }
  }
  return all;
}

}  // namespace blend::test
