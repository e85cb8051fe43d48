// What tests of the SIMD kernels share: each runs on every target that was compiled and that this
// machine has, the scalar one included.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "cpu/convert.h"
#include "support/isa.h"

namespace blend::kernels {

// The chosen target is the process's: tests of this program run one after another.
class Kernels : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { test::compute_as(GetParam()); }
  void TearDown() override { test::compute_as(test::kUncapped); }

  std::vector<float> normal(size_t n, float scale = 1.0f) {
    std::normal_distribution<float> dist(0.0f, scale);
    std::vector<float> v(n);
    for (float& x : v) x = dist(rng_);
    return v;
  }
  size_t number(size_t low, size_t high) {
    return std::uniform_int_distribution<size_t>(low, high)(rng_);
  }

  std::mt19937 rng_{7};
};

inline constexpr DType kCacheTypes[] = {DType::f32, DType::f16, DType::bf16};

// As a KV cache of that type has them.
inline AlignedBuffer cached(const float* values, size_t n, DType dtype) {
  auto buffer = AlignedBuffer::allocate(n * static_cast<size_t>(dtype_size(dtype)));
  (void)encode_ref(values, n, dtype, buffer->data());
  return std::move(*buffer);
}
inline std::vector<float> values_of(const AlignedBuffer& cache, DType dtype) {
  std::vector<float> values(cache.bytes() / static_cast<size_t>(dtype_size(dtype)));
  decode_ref(cache.data(), dtype, values.size(), values.data());
  return values;
}

inline void expect_close(const std::vector<float>& got, const std::vector<float>& want,
                         double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 0;
  for (const float w : want) largest = std::max(largest, std::abs(static_cast<double>(w)));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * (largest + 1e-30)) << "element " << i;
  }
}

}  // namespace blend::kernels
