// Context impact: how much of a chunk depends on the text before it, row by row, measured when the
// chunk is precomputed and kept with it (Cache-Craft, Agarwal et al. 2025, section 3: attention to
// the text before a chunk compared with attention inside it).
//
//   outside(i)  the attention that row i would put before its chunk, at the first layer whose K and
//               V depend on it, if some text stood there: Q and K of the row as they are without
//               it, so that only that text has to be computed besides. Which text hardly matters
//               (docs/research/2026-11-policies-small-models.md), so it is the chunk's own
//               beginning: nothing has to be given.
//   inside(i)   the attention that the chunk's rows put on row i when the chunk is prefilled, mean
//               over layers and the rows that can see it.
// A row that attends much to preceding text and is attended to by others is one whose stored K, V
// are wrong and matter: policy/context_impact.cpp ranks by the product. Where a fuse measures the
// error, inside(i) weighs it (policy/hkvd.cpp). Cache-Craft itself takes the ratio of the two over
// a whole chunk to say how many tokens to recompute, and its outside part to say which.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/forward.h"

namespace blend {

// Gathers inside() while a chunk is prefilled. Used by one thread.
class InsideMass {
 public:
  // n_rows_before: rows computed together with the chunk's, preceding them; n_slots_before:
  // all slots before the chunk.
  InsideMass(uint32_t n_rows_before, uint32_t n_slots_before, uint32_t n_tokens)
      : n_rows_before_(n_rows_before),
        n_slots_before_(n_slots_before),
        inside_(n_tokens, 0.0f),
        mass_(size_t{n_slots_before} + n_tokens) {}

  // At every layer but the last: what finish_layer() is to fill, and then add().
  Forward::MassOut out() { return {n_rows_before_, mass_.data()}; }
  void add();
  // The last layer, its K, V being in `cache`. x: [n_rows_before + n_tokens, d_model], before the
  // layer.
  Status last_layer(Forward& forward, uint32_t layer, const KvCache& cache, const Ropes& ropes,
                    Tensor x, const uint32_t* pos, const Watch& watch);
  const std::vector<float>& inside() const { return inside_; }  // [n_tokens], summed over layers

 private:
  int64_t n_tokens() const { return static_cast<int64_t>(inside_.size()); }

  const uint32_t n_rows_before_;
  const uint32_t n_slots_before_;
  std::vector<float> inside_;
  std::vector<float> mass_;  // of one layer
};

// The layer at which outside() is measured.
uint32_t outside_layer(const ModelConfig& config);
// outside() of `tokens`, [tokens.size()]. forward, x, kv: of their own prefill at that layer,
// before finish_layer(), x and fresh K | V being of their rows alone: [tokens.size(), ...].
Result<std::vector<float>> outside_mass(const Model& model, std::span<const int32_t> tokens,
                                        Forward& forward, Tensor x, Tensor kv, const Watch& watch);

}  // namespace blend
