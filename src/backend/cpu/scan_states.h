// ScanStates: the states of a layer that a cache keeps (backend/scan_ops.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/buffer.h"

namespace blend::cpu {

// Of a layer after its first n_rows rows, in f32: [v_heads][tiles][k_dim][kernels::kScanTile].
struct ScanState {
  uint32_t n_rows = 0;
  std::shared_ptr<AlignedBuffer> buffer;  // null: all zeros, or there is none
  bool shared = false;                    // another cache may have the buffer too
};

// Derived from a cache's rows, so whoever writes rows must say so. Used by one thread at a time,
// as its cache's layer is.
class ScanStates {
 public:
  // The last state of at most n_rows rows; of none where none is kept.
  ScanState before(uint32_t n_rows) const;
  // The same, which is no longer kept: its owner may change it.
  ScanState take(uint32_t n_rows);
  // `last` is kept, and `start`, that before the rows of a call, instead of any other.
  void keep(ScanState start, ScanState last);
  // Rows from `first` on are other ones.
  void changed(uint32_t first);
  // This layer's first n_rows rows are those of another's.
  void adopt(ScanStates& from, uint32_t n_rows);

 private:
  std::array<ScanState, 2> kept_;
};

}  // namespace blend::cpu
