// ThrottledStore: a store in memory whose layers come at a stated bandwidth, as from a device.
#pragma once

#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>

#include "calibrate/memory_store.h"

namespace blend::bench {

// One device: reads queue behind each other, and cost the CPU nothing while they wait. Thread-safe.
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
    device_.wait_for(meta().shape.layer_bytes(), asked);
    return status;
  }

 private:
  const std::unique_ptr<ChunkSource> source_;
  Device& device_;
};

// Thread-safe.
class ThrottledStore final : public ChunkStore {
 public:
  Device& device() { return device_; }

  Result<std::unique_ptr<StoreSnapshot>> snapshot() override {
    return std::unique_ptr<StoreSnapshot>(new Snapshot(*this));
  }
  Result<bool> contains(const Sha256& id) override { return memory_.contains(id); }
  Status put(const ChunkRecord& record) override { return memory_.put(record); }
  Status put_async(std::shared_ptr<const ChunkRecord> record) override {
    return memory_.put_async(std::move(record));
  }
  void report_damage(const Sha256&, const Status&) override {}

 private:
  class Snapshot final : public StoreSnapshot {
   public:
    explicit Snapshot(ThrottledStore& store) : store_(store) {}

   private:
    Result<std::unique_ptr<ChunkSource>> open_of(const Sha256& id,
                                                 const TenantTag* /*tenant*/) override {
      auto record = store_.memory_.find(id);
      if (record == nullptr) return Status{BLEND_E_NOT_FOUND, "no such chunk"};
      return std::unique_ptr<ChunkSource>(
          new ThrottledSource(make_memory_source(std::move(record)), store_.device_));
    }

    ThrottledStore& store_;
  };

  MemoryStore memory_;
  Device device_;
};

}  // namespace blend::bench
