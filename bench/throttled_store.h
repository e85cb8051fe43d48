// ThrottledStore: a store whose layers come at a stated bandwidth, as from a device: their bytes as
// they are stored.
#pragma once

#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>

#include "calibrate/memory_store.h"

namespace blend::bench {

// One device: reads queue one after another, and cost the CPU nothing while they wait. Thread-safe.
class Device {
 public:
  void set_bytes_per_s(double bytes_per_s) {
    std::lock_guard lock(mutex_);
    bytes_per_s_ = bytes_per_s;
  }
  // Returns when a read of `bytes` that was asked for at `asked` would be done.
  void wait_for(uint64_t bytes, std::chrono::steady_clock::time_point asked) {
    std::chrono::steady_clock::time_point done;
    {
      std::lock_guard lock(mutex_);
      const std::chrono::duration<double> takes(static_cast<double>(bytes) / bytes_per_s_);
      free_at_ = std::max(free_at_, asked) +
                 std::chrono::duration_cast<std::chrono::steady_clock::duration>(takes);
      done = free_at_;
    }
    std::this_thread::sleep_until(done);
  }

 private:
  std::mutex mutex_;
  double bytes_per_s_ = std::numeric_limits<double>::infinity();
  std::chrono::steady_clock::time_point free_at_{};
};

class ThrottledSource final : public ChunkSource {
 public:
  ThrottledSource(std::unique_ptr<ChunkSource> source, Device& device)
      : source_(std::move(source)), device_(device) {}
  const ChunkMeta& meta() const override { return source_->meta(); }
  void prefetch(uint32_t layer) override { source_->prefetch(layer); }
  Status read_layer(uint32_t layer, std::byte* out) override {
    const auto asked = std::chrono::steady_clock::now();
    const Status status = source_->read_layer(layer, out);
    device_.wait_for(stored_layer_bytes(), asked);
    return status;
  }

 private:
  uint64_t stored_layer_bytes() const {
    const uint64_t stored = meta().stored_bytes;  // 0: it was never encoded
    return stored == 0 ? meta().shape.layer_bytes(0) : stored / meta().shape.n_layers;
  }

  const std::unique_ptr<ChunkSource> source_;
  Device& device_;
};

// Thread-safe.
class ThrottledStore final : public ChunkStore {
 public:
  explicit ThrottledStore(std::shared_ptr<ChunkStore> below = std::make_shared<MemoryStore>())
      : below_(std::move(below)) {}
  Device& device() { return device_; }

  Result<std::unique_ptr<StoreSnapshot>> snapshot() override {
    auto below = below_->snapshot();
    if (!below.is_ok()) return below.status();
    return std::unique_ptr<StoreSnapshot>(new Snapshot(device_, std::move(*below)));
  }
  Result<bool> contains(const Sha256& id) override { return below_->contains(id); }
  Status put(const ChunkRecord& record) override { return below_->put(record); }
  Status put_async(std::shared_ptr<const ChunkRecord> record) override {
    return below_->put_async(std::move(record));
  }
  void report_damage(const Sha256&, const Status&) override {}

 private:
  class Snapshot final : public StoreSnapshot {
   public:
    Snapshot(Device& device, std::unique_ptr<StoreSnapshot> below)
        : device_(device), below_(std::move(below)) {}
    Result<bool> holds(const Sha256& id) override { return below_->holds(id); }

   private:
    Result<std::unique_ptr<ChunkSource>> open_of(const Sha256& id,
                                                 const TenantTag* tenant) override {
      auto source = tenant == nullptr ? below_->open(id) : below_->open(id, *tenant);
      if (!source.is_ok()) return source;
      return std::unique_ptr<ChunkSource>(new ThrottledSource(std::move(*source), device_));
    }

    Device& device_;
    const std::unique_ptr<StoreSnapshot> below_;
  };

  const std::shared_ptr<ChunkStore> below_;
  Device device_;
};

}  // namespace blend::bench
