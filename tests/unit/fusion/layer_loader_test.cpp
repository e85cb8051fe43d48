#include "fusion/load/layer_loader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <future>
#include <mutex>
#include <set>
#include <vector>

namespace blend {
namespace {

// A source whose bytes tell chunk and layer, and which remembers what was read when.
class FakeSource : public ChunkSource {
 public:
  FakeSource(uint8_t tag, uint32_t n_tokens) : tag_(tag) {
    meta_.shape = {6, n_tokens, 4, DType::f16};
  }
  const ChunkMeta& meta() const override { return meta_; }
  void prefetch(uint32_t layer) override {
    std::lock_guard lock(mutex_);
    prefetched_.insert(layer);
  }
  Status read_layer(uint32_t layer, std::byte* out) override {
    std::lock_guard lock(mutex_);
    if (layer == fail_at) return make_error(BLEND_E_CORRUPT, "layer %u is damaged", layer);
    std::memset(out, tag_ * 16 + static_cast<int>(layer), meta_.shape.layer_bytes(0));
    n_read_ = layer + 1;
    changed_.notify_all();
    return Status::ok();
  }
  // True once layers below n were read; false if that does not happen.
  bool wait_read(uint32_t n) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return n_read_ >= n; });
  }
  uint32_t n_read() {
    std::lock_guard lock(mutex_);
    return n_read_;
  }
  std::set<uint32_t> prefetched() {
    std::lock_guard lock(mutex_);
    return prefetched_;
  }
  uint32_t fail_at = 1000;

 private:
  const uint8_t tag_;
  ChunkMeta meta_;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint32_t n_read_ = 0;
  std::set<uint32_t> prefetched_;
};

std::unique_ptr<LayerLoader> start(std::vector<LayerLoader::Item> items, uint32_t depth,
                                   const Stopwatch& clock) {
  static const auto pool = std::move(*ThreadPool::create(1));
  static const auto backend = std::move(*make_cpu_backend(*pool));
  auto loader = LayerLoader::start(*backend, std::move(items), 6, depth, clock);
  EXPECT_TRUE(loader.is_ok());
  return std::move(*loader);
}

TEST(LayerLoader, StagesEveryLayerOfEveryChunkInOrder) {
  const Stopwatch clock;
  FakeSource a(1, 5);
  FakeSource b(2, 3);
  auto loader = start({{&a, 0}, {&b, 2}}, 2, clock);
  for (uint32_t layer = 0; layer < 6; ++layer) {
    auto staged = loader->acquire(layer);
    ASSERT_TRUE(staged.is_ok());
    const StagedLayer& s = **staged;
    ASSERT_EQ(s.chunks.size(), 2u);
    for (size_t i = 0; i < a.meta().shape.layer_bytes(0); ++i) {
      ASSERT_EQ(static_cast<uint32_t>(s.chunks[0][0].k[i]), 16 + layer);
    }
    if (layer < 2) {
      EXPECT_TRUE(s.chunks[1].empty());
      EXPECT_EQ(s.load.bytes, a.meta().shape.layer_bytes(0));
    } else {
      for (size_t i = 0; i < b.meta().shape.layer_bytes(0); ++i) {
        ASSERT_EQ(static_cast<uint32_t>(s.chunks[1][0].k[i]), 32 + layer);
      }
      EXPECT_EQ(s.load.bytes, a.meta().shape.layer_bytes(0) + b.meta().shape.layer_bytes(0));
    }
    EXPECT_LE(s.load.begin_ns, s.load.end_ns);
    loader->release(layer);
  }
}

// The point of the thread: layers come in while an earlier one is still being worked on, and never
// more of them than the ring holds.
TEST(LayerLoader, ReadsAheadWhileALayerIsHeldAndStopsAtTheRingsEnd) {
  const Stopwatch clock;
  FakeSource a(1, 5);
  auto loader = start({{&a, 0}}, 3, clock);
  auto staged = loader->acquire(0);
  ASSERT_TRUE(staged.is_ok());
  EXPECT_TRUE(a.wait_read(3));  // layers 1 and 2 while 0 is held
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(a.n_read(), 3u);  // slot 0 is ours: layer 3 must wait
  EXPECT_EQ(static_cast<uint32_t>((*staged)->chunks[0][0].k[0]), 16u);
  loader->release(0);
  EXPECT_TRUE(a.wait_read(4));
}

// A device that is slow to copy a layer: its memory must not be written meanwhile.
TEST(LayerLoader, WaitsForWhoStillReadsALayerThatWasGivenBack) {
  class SlowReader final : public Fence {
   public:
    SlowReader(const std::byte* data, std::promise<uint32_t> seen)
        : data_(data), seen_(std::move(seen)) {}
    void wait() override {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      seen_.set_value(static_cast<uint32_t>(*data_));
    }

   private:
    const std::byte* data_;
    std::promise<uint32_t> seen_;
  };
  const Stopwatch clock;
  FakeSource a(1, 5);
  auto loader = start({{&a, 0}}, 2, clock);
  auto staged = loader->acquire(0);
  ASSERT_TRUE(staged.is_ok());
  std::promise<uint32_t> promise;
  auto seen = promise.get_future();
  loader->release(0, std::make_unique<SlowReader>((*staged)->chunks[0][0].k, std::move(promise)));
  ASSERT_TRUE(loader->acquire(1).is_ok());
  loader->release(1);
  ASSERT_TRUE(loader->acquire(2).is_ok());  // in the slot of layer 0
  ASSERT_EQ(seen.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_EQ(seen.get(), 16u) << "layer 0 was overwritten before it was read";
}

// Reads of all layers that the ring has room for are under way before the first is waited for, and
// none is when the slots go.
TEST(LayerLoader, StartsWhatTheRingHoldsAndGivesUpTheRest) {
  class Started final : public FakeSource {
   public:
    using FakeSource::FakeSource;
    void start_layer(uint32_t layer, std::byte* space) override {
      EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(space) % 4096);
      EXPECT_TRUE(under_way.insert(layer).second);
    }
    Status finish_layer(uint32_t layer, std::byte* space, std::vector<RowRun>& rows) override {
      EXPECT_EQ(1u, under_way.count(layer));
      if (layer == 0) {
        EXPECT_EQ(1u, under_way.count(1) * under_way.count(2));
      }
      under_way.erase(layer);
      return FakeSource::finish_layer(layer, space, rows);
    }
    void abandon() override { under_way.clear(); }
    std::set<uint32_t> under_way;  // touched by the reader thread alone, while it lives
  };
  const Stopwatch clock;
  Started a(1, 5);
  Started b(2, 700);
  auto loader = start({{&a, 0}, {&b, 0}}, 3, clock);
  ASSERT_TRUE(loader->acquire(0).is_ok());
  EXPECT_TRUE(b.wait_read(1));
  loader.reset();
  EXPECT_TRUE(a.under_way.empty());
  EXPECT_TRUE(b.under_way.empty());
}

// One thread copies and checks slower than a device's bus: the chunks of a layer go side by side.
TEST(LayerLoader, HelpersFinishTheChunksOfALayerSideBySide) {
  class Meeting final : public FakeSource {
   public:
    Meeting(uint8_t tag, std::atomic<uint32_t>& here) : FakeSource(tag, 5), here_(here) {}
    Status finish_layer(uint32_t layer, std::byte* space, std::vector<RowRun>& rows) override {
      ++here_;
      const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (here_ < 2 * (layer + 1) && std::chrono::steady_clock::now() < late) {
        std::this_thread::yield();
      }
      met = met && here_ >= 2 * (layer + 1);
      return FakeSource::finish_layer(layer, space, rows);
    }
    std::atomic<bool> met{true};

   private:
    std::atomic<uint32_t>& here_;
  };
  const auto pool = std::move(*ThreadPool::create(2));
  const auto backend = std::move(*make_cpu_backend(*pool));
  const Stopwatch clock;
  std::atomic<uint32_t> here{0};
  Meeting a(1, here), b(2, here);
  auto loader =
      std::move(*LayerLoader::start(*backend, {{&a, 0}, {&b, 0}}, 6, 2, clock, nullptr, &*pool));
  for (uint32_t layer = 0; layer < 6; ++layer) {
    auto staged = loader->acquire(layer);
    ASSERT_TRUE(staged.is_ok());
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_EQ(static_cast<uint32_t>((*staged)->chunks[i][0].v[3]), (i + 1) * 16 + layer);
    }
    loader->release(layer);
  }
  EXPECT_TRUE(a.met && b.met);
}

TEST(LayerLoader, StartsAtTheFirstLayerThatAnyChunkNeeds) {
  const Stopwatch clock;
  FakeSource a(1, 5);
  FakeSource b(2, 5);
  auto loader = start({{&a, 3}, {&b, 4}}, 2, clock);
  auto staged = loader->acquire(3);
  ASSERT_TRUE(staged.is_ok());
  EXPECT_TRUE((*staged)->chunks[1].empty());
  EXPECT_EQ(a.prefetched().count(2), 0u);
}

TEST(LayerLoader, TellsTheKernelAboutEveryLayerBeforeItIsRead) {
  const Stopwatch clock;
  FakeSource a(1, 5);
  auto loader = start({{&a, 1}}, 2, clock);
  for (uint32_t layer = 1; layer < 6; ++layer) {
    ASSERT_TRUE(loader->acquire(layer).is_ok());
    EXPECT_EQ(a.prefetched().count(layer), 1u);
    loader->release(layer);
  }
}

TEST(LayerLoader, AFailedReadNamesItsChunk) {
  const Stopwatch clock;
  FakeSource a(1, 5);
  FakeSource b(2, 5);
  b.fail_at = 1;
  auto loader = start({{&a, 0}, {&b, 0}}, 2, clock);
  Status status;
  for (uint32_t layer = 0; layer < 6 && status.is_ok(); ++layer) {
    auto staged = loader->acquire(layer);
    status = staged.status();
    if (status.is_ok()) loader->release(layer);
  }
  EXPECT_EQ(status.code(), BLEND_E_CORRUPT);
  EXPECT_EQ(loader->failed_item(), 1u);
}

// Hangs if broken: the reader thread waits for a slot that nobody gives back.
TEST(LayerLoader, MayBeDroppedAtAnyTime) {
  const Stopwatch clock;
  for (uint32_t taken = 0; taken <= 6; ++taken) {
    FakeSource a(1, 50);
    auto loader = start({{&a, 0}}, 2, clock);
    for (uint32_t layer = 0; layer < taken; ++layer) {
      ASSERT_TRUE(loader->acquire(layer).is_ok());
      if (layer + 1 < taken) loader->release(layer);
    }
  }
}

}  // namespace
}  // namespace blend
