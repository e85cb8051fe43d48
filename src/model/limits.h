#pragma once

#include <algorithm>
#include <cstdint>

#include "base/status.h"
#include "model/config.h"

namespace blend {

// Bounds of a model's description, whatever its format. Far above any model, so that products of
// two of them stay inside 32 bits where a reader multiplies them and inside 64 everywhere.
inline constexpr uint32_t kMaxLayers = 1 << 16;
inline constexpr uint32_t kMaxHeads = 1 << 14;
inline constexpr uint32_t kMaxHeadDim = 1 << 14;
inline constexpr uint32_t kMaxWidth = 1 << 26;
inline constexpr uint32_t kMaxExperts = 1 << 12;
inline constexpr uint32_t kMaxTaps = 64;
inline constexpr uint32_t kMaxStreams = 16;
// Elements of a layer's states, each value head's of whole tiles. The largest of a model have 2^22.
inline constexpr uint64_t kMaxState = uint64_t{1} << 24;
inline constexpr uint64_t kStateTile = 16;
inline constexpr uint32_t kMaxExpertGroups = 1 << 6;
inline constexpr uint32_t kMaxContext = 16 << 20;
inline constexpr uint32_t kMaxVocab = 1 << 26;

// What is wrong with the heads of layers with states; the names are those of the two numbers of
// heads.
inline Status check_state_heads(const RowMixer& m, const char* k_heads, const char* v_heads) {
  if (m.v_heads % m.k_heads != 0) {
    return make_error(BLEND_E_FORMAT, "%s is %u, no multiple of %s, %u", v_heads, m.v_heads,
                      k_heads, m.k_heads);
  }
  const uint64_t row = 2 * uint64_t{m.k_heads} * m.k_dim + uint64_t{m.v_heads} * (m.v_dim + 2);
  if (row > kMaxWidth) {
    return make_error(BLEND_E_FORMAT, "%s and %s give rows of %llu elements", k_heads, v_heads,
                      static_cast<unsigned long long>(row));
  }
  const uint64_t columns = (m.v_dim + kStateTile - 1) / kStateTile * kStateTile * m.v_heads;
  if (columns * m.k_dim > kMaxState) {
    return make_error(BLEND_E_FORMAT, "%s and %s give states of %llu times %u elements", k_heads,
                      v_heads, static_cast<unsigned long long>(columns), m.k_dim);
  }
  if (m.row_dim() % 2 == 0) return Status::ok();
  return make_error(BLEND_E_UNSUPPORTED, "%s: %u values a row, an odd number", v_heads,
                    m.row_dim());
}

// What is wrong with latent rows; `rank` is the name of theirs.
inline Status check_latent(const Latent& l, uint32_t n_heads, const char* rank) {
  // Rows are kept in two halves, and what rotates is in the first.
  if (l.rope % 2 != 0 || l.row() % 2 != 0 || l.rope > l.rank) {
    return make_error(BLEND_E_UNSUPPORTED,
                      "%s: latent rows of %u elements, of which %u rotate: libblend needs even "
                      "numbers, and no more to rotate than not",
                      rank, l.row(), l.rope);
  }
  const uint64_t widest = uint64_t{n_heads} * std::max(l.row(), std::max(l.q_dim(), l.value));
  if (widest <= kMaxWidth) return Status::ok();
  return make_error(BLEND_E_FORMAT, "%s: %u heads make rows of %llu elements; %u are the most",
                    rank, n_heads, static_cast<unsigned long long>(widest), kMaxWidth);
}

}  // namespace blend
