// Drift maps: how the deviation of a stored row at the check layer goes on in later layers.
//
// A row that is not recomputed keeps its stored K and V, which lack what the row would have taken
// from the chunks before it. Its fresh K and V are known at the check layer, and their difference
// there predicts, linearly, what the stored ones lack later: layer l uses
//   [K | V]_stored(l) + x A_l,   x = [fresh - stored | fresh | 1] at the check layer, K before RoPE
// (the last two parts are optional). A_l is fitted offline, per model, by ridge regression
// (calibrate/drift_fit.h). The paper (CacheBlend) has no such step.
//
// For a row that was left out before layer 0 nothing fresh is known at any layer. But the stored
// row says what it would take up, and its chunk's statistics how much: layer l uses
//   [K | V]_stored(l) + x_l S_l,   x_l made of [K | V]_stored(l) and of StoredFeatures
// with a map S_l of its own, from layer 1 on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/drift.h"
#include "formats/half.h"
#include "model/model_source.h"

namespace blend {

// The maps as a profile holds them. A plain value; empty() says that there are none.
struct DriftMaps {
  DriftInputs inputs;
  uint32_t kv_dim = 0;
  uint32_t first_layer = 0;  // the check layer + 1
  uint32_t n_maps = 0;       // layers first_layer .. first_layer + n_maps - 1
  uint32_t rank = 0;         // 0: full matrices
  DType dtype = DType::f16;
  double ridge = 0;  // ridge of the fit
  // Share of the squared drift that the maps took away where they were fitted; [n_maps] each.
  std::vector<float> explained_k;
  std::vector<float> explained_v;
  // A_l transposed, one layer after the other: [2 kv_dim, n_in], or [2 kv_dim, rank] and then
  // [rank, n_in], whose product it is.
  std::vector<std::byte> data;

  bool empty() const { return n_maps == 0; }
  size_t n_in() const { return inputs.size(kv_dim); }
  size_t n_out() const { return 2 * size_t{kv_dim}; }
  size_t layer_elements() const { return rank == 0 ? n_out() * n_in() : rank * (n_out() + n_in()); }
  size_t layer_bytes() const { return layer_elements() * static_cast<size_t>(dtype_size(dtype)); }

  // The matrices of map i in the order in which they are multiplied: [n_out, n_in], or
  // [rank, n_in] and [n_out, rank]. They point into `data`.
  std::vector<TensorView> matrices(uint32_t i) const {
    const auto in = static_cast<int64_t>(n_in()), out = static_cast<int64_t>(n_out());
    const std::byte* const at = data.data() + i * layer_bytes();
    const std::string name = "drift." + std::to_string(first_layer + i);
    if (rank == 0) return {{name, dtype, {out, in}, at}};
    const size_t first_bytes = n_out() * rank * static_cast<size_t>(dtype_size(dtype));
    const auto r = static_cast<int64_t>(rank);
    return {{name + ".in", dtype, {r, in}, at + first_bytes}, {name + ".out", dtype, {out, r}, at}};
  }
};

}  // namespace blend
