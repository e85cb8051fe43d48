// Corrector: the drift correction within one fuse, and its guard.
//
// At the check layer the fresh K and V of every candidate are at hand: what they differ by from the
// stored ones is kept. At each later layer the rows that are not computed take their stored K and V
// plus what that layer's map makes of it (profile/drift_maps.h).
//
// The maps were fitted on other text than this prompt's, and off it they can do harm. But the rows
// that are computed are at hand at every layer, fresh and stored, so their true drift is known: the
// map is applied to them too, and what it makes of the others is scaled by how much of what it
// foretold is there, share = clip(<drift, foretold> / <foretold, foretold>, 0, 1), of K and of V.
// An offset estimated from recomputed rows is the idea of AgentKVShift (arXiv 2607.21604); here it
// is not added but judges what was learned before.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "profile/drift.h"

namespace blend {

// Fresh K, V of rows that are computed, beside what is stored of them, at one layer.
struct FreshRows {
  Tensor kv;                        // [rows.size(), 2 * kv_dim], K before RoPE
  std::span<const StoredRun> runs;  // the stored rows among them, `first` being the place in kv
  std::span<const uint32_t> rows;   // of the prompt, ascending
};

// Used by the thread of one fuse. The backend must outlive it.
class Corrector {
 public:
  // capacity: slots of the cache that is corrected.
  Corrector(Backend& backend, std::shared_ptr<const Drift> drift, uint32_t kv_dim,
            uint32_t capacity, bool guarded);

  uint32_t check_layer() const { return drift_->check_layer(); }

  // At the check layer. Rows of no run are never corrected, nor does the guard judge by them.
  Status measure(const FreshRows& fresh);
  // From here on rows with computed[row] != 0 need no correction; computed: [capacity].
  Status keep(const std::vector<uint8_t>& computed);
  // The rows that the guard judges by, ascending: measured and still computed. Empty without it, or
  // where nothing is corrected.
  const std::vector<uint32_t>& judges() const { return judges_; }
  // What place() adds at `layer`, valid until the next call; null where nothing is. fresh: of this
  // layer, judges() among its rows and no other judged by.
  Result<const Correction*> at(uint32_t layer, const FreshRows& fresh);
  // Of the last at(): what was taken of the correction. 1 where nobody judged.
  DriftShare share() const { return share_; }
  // Mean over K and V of all layers so far at which rows were corrected; 0: at none.
  double mean_share() const { return n_layers_ > 0 ? sum_ / (2.0 * n_layers_) : 0; }

  uint64_t n_rows() const { return rows_.size(); }  // that are corrected

 private:
  Tensor view(const DeviceBuffer& buffer, size_t rows, size_t cols) const {
    return {buffer.data(), static_cast<int64_t>(rows), static_cast<int64_t>(cols),
            backend_.activation_bytes()};
  }
  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t rows, size_t cols) const;
  Status judge(Tensor foretold, const FreshRows& fresh);

  Backend& backend_;
  const std::shared_ptr<const Drift> drift_;
  const size_t n_out_;  // 2 * kv_dim
  const bool guarded_;
  std::vector<uint32_t> measured_;        // prompt rows, ascending
  std::vector<uint32_t> rows_;            // those of them that are corrected, ascending
  std::vector<uint32_t> judges_;          // the others
  std::vector<uint32_t> row_of_slot_;     // [capacity] into out_, or Correction::kNone
  std::unique_ptr<DeviceBuffer> inputs_;  // [measured, n_in]
  std::unique_ptr<DeviceBuffer> kept_;    // [corrected + judges, n_in]
  std::unique_ptr<DeviceBuffer> low_;     // [corrected + judges, rank]
  std::unique_ptr<DeviceBuffer> out_;     // [corrected + judges, 2 * kv_dim]
  DriftShare share_;
  double sum_ = 0;  // of the shares of K and V
  uint32_t n_layers_ = 0;
  Correction correction_;
};

}  // namespace blend
