// DriftFit, StoredFit: the drift maps of a model (profile/drift_maps.h), fitted by ridge regression
// (ridge_map.h) from rows that come in a stream, prompt after prompt.
//
// DriftFit has the maps after a check layer: one matrix of inputs for all layers, and memory of
// 2 * (n_in^2 + n_maps * n_in * 2 kv_dim) doubles. StoredFit has the maps for rows of which
// nothing is computed: each layer has its own inputs, so its own matrix, n_layers times as
// much. Both keep sums of two halves of the prompts, used to choose a ridge; StoredFit for one
// layer.
#pragma once

#include <span>
#include <vector>

#include "base/threads/cancel.h"
#include "base/threads/thread_pool.h"
#include "calibrate/ridge_map.h"
#include "profile/drift_maps.h"

namespace blend {

// Lets cross-validation choose the ridge.
inline constexpr double kRidgeAuto = -1;

// Used by one thread at a time; works on the pool, which must outlive it.
class DriftFit {
 public:
  // Maps for layers check_layer + 1 .. n_layers - 1.
  DriftFit(ThreadPool& pool, DriftInputs inputs, uint32_t kv_dim, uint32_t check_layer,
           uint32_t n_layers);

  uint32_t check_layer() const { return first_layer_ - 1; }
  uint64_t n_rows() const { return n_rows_; }

  // The following rows belong to another prompt.
  void begin_prompt();
  // One reused row in layer order: fresh(l) and stored(l) give its K | V, [2 * kv_dim], K before
  // RoPE, of the check layer and every later one. Rows are gathered and added in blocks.
  template <typename Fresh, typename Stored>
  void add(const Fresh& fresh, const Stored& stored) {
    begin_row(fresh(check_layer()), stored(check_layer()));
    for (uint32_t i = 0; i < n_maps_; ++i) {
      add_drift(i, fresh(first_layer_ + i), stored(first_layer_ + i));
    }
    end_row();
  }

  // ridge: relative to each input's own power, or kRidgeAuto. rank 0: full matrices; otherwise the
  // best maps of that rank in the fitted rows' own measure. f16 unless a value does not fit.
  // NUMERIC when there are too few rows for the ridge; INVALID_ARGUMENT without any row.
  Result<DriftMaps> solve(double ridge, uint32_t rank, const Watch& watch);

 private:
  void begin_row(const float* fresh, const float* stored);
  void add_drift(uint32_t map, const float* fresh, const float* stored);
  void end_row();
  void flush();

  ThreadPool& pool_;
  const DriftInputs inputs_;
  const uint32_t kv_dim_;
  const uint32_t first_layer_;
  const uint32_t n_maps_;
  const size_t n_in_;
  const size_t n_out_;  // 2 * kv_dim
  uint64_t n_rows_ = 0;
  RidgeSums halves_[2];
  uint32_t half_ = 1;  // that rows are added to

  size_t n_waiting_ = 0;                // rows in the two blocks
  std::vector<double> x_;               // [kBlock, n_in]
  std::vector<std::vector<double>> y_;  // [n_maps] [kBlock, n_out]
};

// Used by one thread at a time; works on the pool, which must outlive it.
class StoredFit {
 public:
  // Maps for layers 1 .. n_layers - 1: the K and V of layer 0 depend only on their own row.
  StoredFit(ThreadPool& pool, uint32_t kv_dim, uint32_t n_layers);

  void begin_prompt();
  // One reused row, with its chunk's facts about it: fresh(l), stored(l) as above, from layer 1 on.
  template <typename Fresh, typename Stored>
  void add(const StoredFeatures& features, const Fresh& fresh, const Stored& stored) {
    for (uint32_t i = 0; i < n_maps_; ++i) add_layer(i, features, fresh(1 + i), stored(1 + i));
    end_row();
  }

  // As for DriftFit; the ridge is chosen once for all layers.
  Result<DriftMaps> solve(double ridge, uint32_t rank, const Watch& watch);

 private:
  void add_layer(uint32_t map, const StoredFeatures& features, const float* fresh,
                 const float* stored);
  void end_row();
  void flush();

  ThreadPool& pool_;
  const uint32_t kv_dim_;
  const uint32_t n_maps_;
  const size_t n_in_;
  const size_t n_out_;  // 2 * kv_dim
  uint64_t n_rows_ = 0;
  // [n_maps] of all prompts; of the first map only, one half; and then the other half.
  std::vector<RidgeSums> halves_[2];
  uint32_t half_ = 1;

  size_t n_waiting_ = 0;
  std::vector<std::vector<double>> x_;  // [n_maps] [kBlock, n_in]
  std::vector<std::vector<double>> y_;  // [n_maps] [kBlock, n_out]
};

}  // namespace blend
