// DriftFit: the drift maps of one check layer by ridge regression, from rows that come in a stream.
//
// Per layer l the rows give X^T X and X^T Y_l, with x the row's inputs at the check layer and y its
// drift at layer l (both in drift_maps.h), so memory does not grow with the number of prompts:
// n_in^2 + n_maps * n_in * 2 kv_dim doubles. The solution is
//   A_l = (X^T X + ridge * diag(X^T X))^-1 X^T Y_l
// where the ridge is taken of each input's own size, so that it means the same for inputs of any
// scale; the constant is not held back.
#pragma once

#include <span>
#include <vector>

#include "base/cancel.h"
#include "base/thread_pool.h"
#include "profile/drift_maps.h"

namespace blend {

// Used by one thread at a time; works on the pool, which must outlive it.
class DriftFit {
 public:
  // Maps for layers check_layer + 1 .. n_layers - 1.
  DriftFit(ThreadPool& pool, DriftInputs inputs, uint32_t kv_dim, uint32_t check_layer,
           uint32_t n_layers);

  uint32_t check_layer() const { return first_layer_ - 1; }
  uint64_t n_rows() const { return n_rows_; }

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

  // rank 0: whole matrices; otherwise the best maps of that rank in the fitted rows' own measure
  // (reduced-rank regression, Izenman 1975). f16 unless a value does not fit. NUMERIC when there
  // are fewer rows than the ridge can make up for; INVALID_ARGUMENT without any row.
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
  std::vector<double> gram_;                // X^T X: [n_in, n_in]
  std::vector<std::vector<double>> cross_;  // [n_maps] X^T Y: [n_in, n_out]
  std::vector<std::vector<double>> power_;  // [n_maps] sum of y^2: [n_out]

  size_t n_waiting_ = 0;                // rows in the two blocks
  std::vector<double> x_;               // [kBlock, n_in]
  std::vector<std::vector<double>> y_;  // [n_maps] [kBlock, n_out]
};

}  // namespace blend
