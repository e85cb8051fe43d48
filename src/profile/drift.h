// Drift: a profile's drift maps as the backend's weights, ready to be applied in a fuse.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "profile/drift_maps.h"

namespace blend {

// Immutable; safe for concurrent use. The backend must outlive it.
class Drift {
 public:
  // NUMERIC when a map holds a NaN or infinity.
  static Result<std::shared_ptr<const Drift>> load(Backend& backend, const DriftMaps& maps);

  DriftInputs inputs() const { return inputs_; }
  uint32_t check_layer() const { return first_layer_ - 1; }
  uint32_t n_in() const { return n_in_; }
  uint32_t rank() const { return rank_; }  // 0: full matrices
  // For one row at one layer; a multiply-add counts as two.
  double flops() const {
    const double in = n_in_, rank = rank_, out = n_out_;
    return 2.0 * (rank_ == 0 ? in * out : rank * (in + out));
  }
  size_t bytes() const { return bytes_; }  // of memory

  // out = x A_l: the correction of the stored K | V at `layer`, a layer after the check layer.
  // x: [rows, n_in]; low: [rows, rank()] of scratch, unused when that is 0; out: [rows, 2 *
  // kv_dim].
  Status apply(uint32_t layer, Tensor x, Tensor low, Tensor out) const;

 private:
  explicit Drift(Backend& backend) : backend_(backend) {}

  Backend& backend_;
  DriftInputs inputs_;
  uint32_t first_layer_ = 0;
  uint32_t n_in_ = 0;
  uint32_t n_out_ = 0;
  uint32_t rank_ = 0;
  size_t bytes_ = 0;
  std::vector<std::vector<std::unique_ptr<Weight>>> maps_;  // [n_maps][1 or 2]
};

}  // namespace blend
