// Corrector: the drift correction within one fuse.
//
// At the check layer the fresh K and V of every candidate are at hand: what they differ by from the
// stored ones is kept. At each later layer the rows that are not computed take their stored K and V
// plus what that layer's map makes of it (profile/drift_maps.h).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "profile/drift.h"

namespace blend {

// Used by the thread of one fuse. The backend must outlive it.
class Corrector {
 public:
  // capacity: slots of the cache that is corrected.
  Corrector(Backend& backend, std::shared_ptr<const Drift> drift, uint32_t kv_dim,
            uint32_t capacity);

  uint32_t check_layer() const { return drift_->check_layer(); }

  // At the check layer. kv: fresh K | V of the rows `active` (ascending, [kv.rows]); runs: the
  // stored rows among them, `first` being the place in kv. Rows of no run are never corrected.
  Status measure(Tensor kv, std::span<const StoredRun> runs, std::span<const uint32_t> active);
  // From here on rows with computed[row] != 0 need no correction; computed: [capacity].
  Status keep(const std::vector<uint8_t>& computed);
  // What place() adds at `layer`, valid until the next call; null when no row is corrected.
  Result<const Correction*> at(uint32_t layer);

  uint64_t n_rows() const { return rows_.size(); }  // that are corrected

 private:
  Tensor view(const DeviceBuffer& buffer, size_t rows, size_t cols) const {
    return {buffer.data(), static_cast<int64_t>(rows), static_cast<int64_t>(cols),
            backend_.activation_bytes()};
  }
  Result<std::unique_ptr<DeviceBuffer>> allocate(size_t rows, size_t cols) const;

  Backend& backend_;
  const std::shared_ptr<const Drift> drift_;
  const size_t n_out_;                    // 2 * kv_dim
  std::vector<uint32_t> measured_;        // prompt rows, ascending
  std::vector<uint32_t> rows_;            // those of them that are corrected, ascending
  std::vector<uint32_t> row_of_slot_;     // [capacity] into out_, or Correction::kNone
  std::unique_ptr<DeviceBuffer> inputs_;  // [measured, n_in]
  std::unique_ptr<DeviceBuffer> kept_;    // [corrected, n_in]
  std::unique_ptr<DeviceBuffer> low_;     // [corrected, rank]
  std::unique_ptr<DeviceBuffer> out_;     // [corrected, 2 * kv_dim]
  Correction correction_;
};

}  // namespace blend
