// Context impact: how much of a chunk depends on the text before it, row by row, measured when the
// chunk is precomputed and kept with it (Cache-Craft, Agarwal et al. 2025, section 3: attention to
// the text before a chunk compared with attention inside it).
//
//   outside(i)  the attention that row i would put before its chunk, at the first layer whose K and
//               V depend on it, if some text stood there: Q and K of the row as they are without
//               it. Which text hardly matters (docs/research/2026-11-policies-small-models.md), so
//               it is the chunk's own beginning: nothing has to be given.
//   inside(i)   the attention that the chunk's rows put on row i when the chunk is prefilled, mean
//               over layers and the rows that can see it.
// A row that attends much to preceding text and is attended to by others is one whose stored K, V
// are wrong and matter: policy/context_impact.cpp ranks by the product. Where a fuse measures the
// error, inside(i) weighs it (policy/hkvd.cpp). Cache-Craft itself takes the ratio of the two over
// a whole chunk to say how many tokens to recompute, and its outside part to say which.
#pragma once

#include <cstdint>
#include <memory>
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

// Measures outside(). The text before a chunk is one token and the chunk's own beginning. The token
// draws the attention that the first token of a prompt draws; it is computed once for all chunks.
// The rows of the beginning are those that the chunk's prefill has computed. Used by one thread.
class OutsideMass {
 public:
  // first: the token that prompts begin with; negative: there is none. The model must outlive it.
  static Result<OutsideMass> create(const Model& model, int32_t first, const Watch& watch);

  // outside() of a chunk's rows. forward, x, kv: of its prefill at outside_layer(), before
  // finish_layer(), x and fresh K | V being of the chunk's rows alone: [n_tokens, ...].
  Result<std::vector<float>> of(Forward& forward, Tensor x, Tensor kv, const Watch& watch) const;

 private:
  explicit OutsideMass(const Model& model) : model_(&model) {}

  const Model* model_;
  std::unique_ptr<Forward> first_;  // has the first token's K | V; null: there is none
};

}  // namespace blend
