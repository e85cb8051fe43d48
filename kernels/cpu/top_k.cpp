#include "cpu/top_k.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace blend::kernels {
namespace {

// Unsigned order = descending order of the scores.
uint32_t descending_key(float score) {
  if (std::isnan(score)) return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);  // -0 becomes +0
  const uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return ~ascending;  // at least 0x7fffff for +inf: NaN stays in front
}

}  // namespace

void top_k(const float* scores, size_t n, size_t k, uint64_t* keys, uint32_t* out) {
  // The index in the low half breaks ties, so every key is distinct and the cut is unique.
  for (size_t i = 0; i < n; ++i) {
    keys[i] = (static_cast<uint64_t>(descending_key(scores[i])) << 32) | i;
  }
  if (k < n) std::nth_element(keys, keys + k, keys + n);
  for (size_t i = 0; i < k; ++i) out[i] = static_cast<uint32_t>(keys[i]);
  std::sort(out, out + k);
}

void top_k_ref(const float* scores, size_t n, size_t k, uint32_t* out) {
  size_t written = 0;
  for (size_t i = 0; i < n; ++i) {
    size_t better = 0;
    for (size_t j = 0; j < n; ++j) {
      const bool nan_i = std::isnan(scores[i]), nan_j = std::isnan(scores[j]);
      const bool greater = nan_j ? !nan_i : !nan_i && scores[j] > scores[i];
      const bool equal = nan_i ? nan_j : scores[i] == scores[j];
      better += greater || (equal && j < i) ? 1 : 0;
    }
    if (better < k) out[written++] = static_cast<uint32_t>(i);
  }
}

}  // namespace blend::kernels
