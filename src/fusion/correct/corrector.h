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
//
// Rows that were left out before layer 0 have no fresh K and V anywhere. They have maps of their
// own, whose inputs are what is stored; the same rows judge these, at each layer by the maps' own
// account of them.
#pragma once

#include <functional>
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

// Stored rows of the layer at hand: those of the given prompt rows, ascending, `first` being the
// place among them.
using StoredOf = std::function<std::vector<StoredRun>(std::span<const uint32_t> rows)>;

// What a fuse corrects by; null: not so. The check layer's maps, those of stored rows.
struct CorrectorMaps {
  std::shared_ptr<const Drift> check;
  std::shared_ptr<const Drift> stored;
};

// Used by the thread of one fuse. The backend must outlive it.
class Corrector {
 public:
  // capacity: slots of the cache that is corrected.
  Corrector(Backend& backend, CorrectorMaps maps, uint32_t kv_dim, uint32_t capacity, bool guarded);

  // Whether at() has something to do at `layer`.
  bool is_due(uint32_t layer) const {
    return leaves_out(layer) || (maps_.check != nullptr && layer > maps_.check->check_layer());
  }
  bool measures_at(uint32_t layer) const {
    return maps_.check != nullptr && layer == maps_.check->check_layer();
  }

  // Rows that were left out before layer 0, ascending. features: by row of the prompt, of these
  // and of every stored row that is computed.
  void leave_out(std::vector<uint32_t> rows, std::vector<StoredFeatures> features);
  // At the check layer. Rows of no run are never corrected, nor does the guard judge by them.
  Status measure(const FreshRows& fresh);
  // From here on rows with computed[row] != 0 need no correction; computed: [capacity]. Without the
  // check layer's maps nothing happens.
  Status keep(const std::vector<uint8_t>& computed);
  // The rows that the guard judges by, ascending: measured and still computed. Empty without it, or
  // where nothing is corrected.
  const std::vector<uint32_t>& judges() const { return judges_; }
  // Whether the guard looks at fresh rows at `layer`; which ones: at().
  bool is_judged(uint32_t layer) const {
    return guarded_ && is_due(layer) && (!judges_.empty() || leaves_out(layer));
  }
  // Whether rows that were left out before layer 0 are corrected at `layer`.
  bool leaves_out(uint32_t layer) const {
    return maps_.stored != nullptr && layer > 0 && !left_.empty();
  }
  // What place() adds at `layer`, valid until the next call; null where nothing is. fresh: of this
  // layer, judges() among its rows; of rows that were left out all its stored rows are judges.
  // stored_of: not called where none were.
  Result<const Correction*> at(uint32_t layer, const FreshRows& fresh,
                               const StoredOf& stored_of = {});
  // The share of the correction that the last at() took, mean over the rows. 1 where nobody judged.
  DriftShare share() const { return share_; }
  // Mean over K and V of all layers so far at which rows were corrected; 0: at none.
  double mean_share() const { return n_layers_ > 0 ? sum_ / (2.0 * n_layers_) : 0; }

  uint64_t n_rows() const { return rows_.size() + left_.size(); }  // that are corrected
  // Operations of the last at().
  double flops() const { return flops_; }

 private:
  Tensor view(const DeviceBuffer& buffer, size_t rows, size_t cols) const {
    return {buffer.data(), static_cast<int64_t>(rows), static_cast<int64_t>(cols),
            backend_.traits().activation_bytes};
  }
  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t rows, size_t cols) const;
  // Of the check layer's maps, into out_ from its first row on.
  Result<DriftShare> correct_measured(uint32_t layer, const FreshRows& fresh);
  // Of the stored rows' maps, into out_ from row `first` on.
  Result<DriftShare> correct_left(uint32_t layer, const FreshRows& fresh, const StoredOf& stored_of,
                                  int64_t first);
  // The share of what the map made of the rows at `places` of fresh.kv, against their drift.
  Result<DriftShare> judge(Tensor foretold, const FreshRows& fresh,
                           const std::vector<uint32_t>& places);
  Status scale(Tensor kv, DriftShare share);

  Backend& backend_;
  const CorrectorMaps maps_;
  const size_t n_out_;  // 2 * kv_dim
  const bool guarded_;
  std::vector<uint32_t> measured_;        // prompt rows, ascending
  std::vector<uint32_t> rows_;            // those of them that are corrected, ascending
  std::vector<uint32_t> judges_;          // the others
  std::vector<uint32_t> left_;            // rows left out before layer 0, ascending
  std::vector<StoredFeatures> features_;  // by row of the prompt
  std::vector<uint32_t> row_of_slot_;     // [capacity] into out_, or Correction::kNone
  std::unique_ptr<DeviceBuffer> inputs_;  // [measured, n_in]
  std::unique_ptr<DeviceBuffer> kept_;    // [corrected + judges, n_in]
  std::unique_ptr<DeviceBuffer> out_;     // [corrected + judges, left + judges; 2 * kv_dim]
  DriftShare share_;
  double flops_ = 0;
  double sum_ = 0;  // of the shares of K and V
  uint32_t n_layers_ = 0;
  Correction correction_;
};

}  // namespace blend
