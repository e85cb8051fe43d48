// LayerLoader: the reader thread that brings stored layers into memory ahead of the compute.
//
// A ring of `depth` slots holds the staged layers: while layer l is computed, layers l+1 .. l+depth
// are read, checked and gathered (AttentionStore 3.2.1, layer-wise pre-loading; CacheBlend 5,
// loading pipelined with recompute). The compute thread takes layers in order and gives each back.
//
// One thread copies and checks some GB/s, while a device's bus takes 50. So, if a device computes
// and the thread pool is free, the pool finishes the chunks of a layer in parallel. Rows in memory
// that the device can read are not copied at all.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "backend/backend.h"
#include "base/threads/guarded.h"
#include "engine/device_tier.h"
#include "fusion/request/clock.h"
#include "store/chunk/chunk.h"

namespace blend {

// The cost of loading a layer.
struct LayerLoad {
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  uint64_t stall_ns = 0;  // the reader waited: the ring had no free slot
  uint64_t bytes = 0;
  uint64_t shared_bytes = 0;  // not in `bytes`: loaded for another place of the chunk (LayerFeed)
  uint64_t memory_bytes = 0;  // part of `bytes` that was in host memory (LayerFeed)
  uint64_t remote_bytes = 0;  // part of `bytes` that came over a network (LayerFeed)
  uint64_t device_bytes = 0;  // not in `bytes`: were in device memory
  uint64_t device_rows = 0;   // of chunks whose layers so far all were there (LayerFeed)
  uint64_t memory_rows = 0;   // of chunks whose layers so far all came from memory (LayerFeed)
};

// One layer of every loaded chunk, ready to be scattered into the cache.
struct StagedLayer {
  uint32_t layer = 0;
  std::vector<std::vector<RowRun>> chunks;  // [n_chunks]: all rows in order; empty: not loaded
  std::vector<Origin> origins;              // [n_chunks]
  std::vector<DeviceTier::LayerRef> kept;   // [n_chunks]: where the rows lie; null: host memory
  std::vector<uint64_t> read_ns;            // [n_chunks]: time of each chunk
  LayerLoad load;
};

// acquire/release: one thread. The reader thread lives from start() to destruction, and is the only
// one that touches the sources.
class LayerLoader {
 public:
  struct Item {
    ChunkSource* source = nullptr;
    uint32_t first_layer = 0;  // earlier layers of this chunk are not needed
  };
  // Reads layers first .. n_layers-1, where first is the least first_layer, into host memory of
  // `backend`, which must outlive the loader. Layers that `tier` (may be null) has are not read;
  // layers that are read are kept there. `helpers` finish the chunks of a layer; null: the reader
  // does.
  static Result<std::unique_ptr<LayerLoader>> start(Backend& backend, std::vector<Item> items,
                                                    uint32_t n_layers, uint32_t depth,
                                                    const Stopwatch& clock,
                                                    DeviceTier* tier = nullptr,
                                                    ThreadPool* helpers = nullptr);
  ~LayerLoader();
  LayerLoader(const LayerLoader&) = delete;
  LayerLoader& operator=(const LayerLoader&) = delete;

  // Blocks until `layer` is staged. Layers must be taken in order and released before `depth` more
  // are taken. After a failure failed_item() is the item whose read failed.
  Result<const StagedLayer*> acquire(uint32_t layer);
  // `fence` (may be null): work that still reads the layer; its memory is not reused before that
  // ends.
  void release(uint32_t layer, std::unique_ptr<Fence> fence = nullptr);
  size_t failed_item() const { return failed_item_; }

 private:
  LayerLoader(Backend& backend, std::vector<Item> items, uint32_t n_layers, uint32_t depth,
              const Stopwatch& clock, DeviceTier* tier, ThreadPool* helpers);
  void reader_main();
  void start_layer(uint32_t layer);
  Status finish_layer(uint32_t layer, size_t& failed);
  // Finishes the rows of each chunk; `failed` is the first that fails.
  Status finish_chunks(uint32_t layer, size_t& failed);
  Status stage(uint32_t layer, size_t& failed);
  DeviceTier::LayerRef on_device(size_t item, uint32_t layer) const;
  void keep(size_t item, uint32_t layer, StagedLayer& staged);
  void abandon_all();
  std::byte* slot(uint32_t layer) const {
    return static_cast<std::byte*>(slots_[layer % depth_]->data());
  }

  Backend& backend_;
  const std::vector<Item> items_;
  const uint32_t n_layers_;
  const uint32_t depth_;
  const Stopwatch& clock_;
  DeviceTier* const tier_;
  ThreadPool* const helpers_;
  // Used by the reader thread: [items], null: not in the tier; and [depth]: running copies to it.
  std::vector<DeviceTier::ChunkRef> chunks_;
  std::vector<std::unique_ptr<Fence>> keeping_;
  uint32_t first_layer_ = 0;
  uint32_t next_started_ = 0;    // layers below are read or being read; used by the reader thread
  std::vector<size_t> offsets_;  // of each item inside a slot
  std::vector<std::unique_ptr<DeviceBuffer>> slots_;  // [depth]
  std::vector<StagedLayer> staged_;                   // [depth]

  Mutex mutex_;
  CondVar changed_;
  uint32_t next_staged_ BLEND_GUARDED_BY(mutex_) = 0;    // layers below are staged
  uint32_t next_released_ BLEND_GUARDED_BY(mutex_) = 0;  // layers below are free again
  // [depth]: who still reads.
  std::vector<std::unique_ptr<Fence>> fences_ BLEND_GUARDED_BY(mutex_);
  bool stop_ BLEND_GUARDED_BY(mutex_) = false;
  Status error_ BLEND_GUARDED_BY(mutex_);
  size_t failed_item_ = 0;  // written before error_
  std::thread reader_;
};

}  // namespace blend
