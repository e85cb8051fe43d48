// ChunkShift: the recomputed rows of a chunk correct its other rows.
//
// At every layer the fuse knows how far the rows that it recomputes moved from what was stored.
// Rows of one chunk move together, for they lack the same context. So every other row of the chunk
// is shifted by a mean of these movements (backend/chunk_shift.h), of K before RoPE and of V. It
// needs nothing that was learned or stored. It is for rows that were chosen before layer 0 by
// something else than their deviation: the mean over rows that were chosen because they moved far
// says little about the others.
//
// An offset estimated from recomputed rows is the idea of AgentKVShift (arXiv 2607.21604).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace blend {

// Used by the thread of one fuse. The backend and the configuration must outlive it.
class ChunkShift {
 public:
  // chunks: the rows of the chunks that are not exact, in prompt order; their moved rows are found
  // here. computed: by row of the prompt. Rows of the prompt are slots of its cache.
  static Result<ChunkShift> create(Backend& backend, const ModelConfig& config,
                                   std::span<const ShiftedChunk> chunks,
                                   std::span<const uint8_t> computed);

  // Whether rows are shifted at `layer`. K and V of layer 0 depend on no other row.
  bool is_due(uint32_t layer) const {
    return layer > 0 && n_shifted_ > 0 && !config_->mixer.has(layer);
  }
  uint64_t n_rows() const { return n_shifted_; }  // that are shifted
  // The recomputed rows, ascending.
  const std::vector<uint32_t>& moved() const { return moved_; }

  // ---- What moved() moved by at `layer`; kv: fresh K | V of `rows`, which moved() is among
  // In two steps, where the cache holds them as they are stored until fresh ones replace them.
  Status hold_stored(uint32_t layer, const KvCache& cache, const RopeTable& rope);
  Status measure_held(uint32_t layer, Tensor kv, std::span<const uint32_t> rows);
  // Where they are still beside the cache. stored: moved(), `first` being the place there.
  Status measure(uint32_t layer, Tensor kv, std::span<const uint32_t> rows,
                 std::span<const StoredRun> stored);

  // After one of these, with all stored rows of the layer in the cache.
  Status shift(uint32_t layer, KvCache& cache, const RopeTable& rope) const;

 private:
  ChunkShift(Backend& backend, const ModelConfig& config) : backend_(&backend), config_(&config) {}
  Tensor view(const DeviceBuffer& buffer, uint32_t layer) const {
    return {buffer.data(), static_cast<int64_t>(moved_.size()), config_->row_dim(layer),
            backend_->traits().activation_bytes};
  }
  // moved() of kv, into `to`.
  Status take(Tensor kv, std::span<const uint32_t> rows, Tensor to);

  Backend* backend_;
  const ModelConfig* config_;
  std::vector<ShiftedChunk> chunks_;
  std::vector<uint32_t> moved_;
  uint64_t n_shifted_ = 0;
  std::unique_ptr<DeviceBuffer> stored_, moves_;  // [moved(), row_dim]
};

}  // namespace blend
