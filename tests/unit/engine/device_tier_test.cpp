// Chunks kept in device memory, on the emulated device.
#include "engine/device_tier.h"

#include <gtest/gtest.h>

#include <cstring>

#include "backend/cuda/cuda_backend.h"
#include "fusion/load/layer_loader.h"
#include "support/slots.h"

namespace blend {
namespace {

using Key = DeviceTier::Key;

class DeviceTierTest : public testing::Test {
 protected:
  static constexpr uint32_t kLayers = 3, kTokens = 7, kKvDim = 32;
  static constexpr uint64_t kLayerBytes = 2 * 512;  // 7 x 32 x 2 bytes, aligned

  void SetUp() override {
    simt::set_machine({});
    pool_ = std::move(*ThreadPool::create(1));
    auto backend = cuda::CudaBackend::create(0, *pool_);
    ASSERT_TRUE(backend.is_ok());
    backend_ = std::move(backend.value());
    staged_.resize(shape().layer_bytes(0));
  }
  void TearDown() override {
    backend_.reset();
    EXPECT_EQ(simt::bytes_in_use(), 0u);
  }

  static ChunkShape shape() { return {kLayers, kTokens, kKvDim, DType::bf16, kKvDim}; }
  static Key key(uint8_t tag, uint64_t version = 1) {
    Key k;
    k.id.fill(tag);
    k.version = version;
    return k;
  }
  // A layer in two pieces, as direct reads give it.
  std::vector<RowRun> rows() const {
    const std::byte *const k = staged_.data(), *const v = k + shape().plane_bytes(0);
    const size_t row = kKvDim * 2;
    return {{k, v, 0, 3}, {k + 3 * row, v + 3 * row, 3, 4}};
  }
  // Every layer of a chunk, of bf16 numbers that say which.
  DeviceTier::ChunkRef fill(DeviceTier& tier, const Key& k, float value) {
    DeviceTier::ChunkRef chunk = tier.admit(k, kLayers, DeviceTier::bytes_of(shape(), rows()));
    for (uint32_t layer = 0; chunk != nullptr && layer < kLayers; ++layer) {
      const uint16_t h = f32_to_bf16(value + static_cast<float>(layer));
      for (size_t i = 0; i < staged_.size(); i += 2) std::memcpy(&staged_[i], &h, 2);
      if (tier.keep(chunk, layer, shape(), rows()) == nullptr) return nullptr;
    }
    return chunk;
  }
  // V of a kept layer, by way of a cache.
  float value_of(const DeviceTier::LayerRef& layer) {
    ModelConfig c;
    c.n_layers = 1;
    c.n_heads = c.n_kv_heads = 1;
    c.head_dim = kKvDim;
    auto rope = backend_->make_rope(c.rope, kTokens);
    auto cache = backend_->make_kv_cache(c, kTokens);
    const RowRun& run = layer->rows.front();
    StoredRun stored{run.k, run.v, DType::bf16, run.n, run.first, run.packed};
    stored.kept = layer->memory.get();
    EXPECT_EQ(run.n, kTokens) << "in one piece";
    EXPECT_TRUE(
        backend_->fusion().scatter(**cache, 0, **rope, {&stored, 1}, nullptr, nullptr).is_ok());
    auto out = backend_->allocate(kTokens * 2 * kKvDim * 4);
    const Tensor kv{(*out)->data(), kTokens, 2 * kKvDim, 4};
    EXPECT_TRUE(backend_->fusion()
                    .read_kv(**cache, 0, **rope, test::slots_from(0, kTokens).data(), kv)
                    .is_ok());
    std::vector<float> got(kTokens * 2 * kKvDim);
    EXPECT_TRUE(backend_->download(kv, got.data()).is_ok());
    for (const float x : got) EXPECT_EQ(x, got[0]);
    return got[0];
  }

  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Backend> backend_;
  std::vector<std::byte> staged_;
};

TEST_F(DeviceTierTest, GivesBackWhatWasKept) {
  DeviceTier tier(*backend_->device_memory(), 1 << 20);
  EXPECT_EQ(tier.find(key(1)), nullptr);
  ASSERT_NE(fill(tier, key(1), 10), nullptr);
  ASSERT_NE(fill(tier, key(2), 20), nullptr);
  EXPECT_EQ(tier.bytes(), 2 * kLayers * kLayerBytes);
  const auto one = tier.find(key(1)), two = tier.find(key(2));
  ASSERT_TRUE(one != nullptr && two != nullptr);
  EXPECT_EQ(value_of(tier.layer(one, 0)), 10);
  EXPECT_EQ(value_of(tier.layer(one, 2)), 12);
  EXPECT_EQ(value_of(tier.layer(two, 1)), 21);
}

TEST_F(DeviceTierTest, OtherBytesUnderTheSameIdAreNotServed) {
  DeviceTier tier(*backend_->device_memory(), 1 << 20);
  ASSERT_NE(fill(tier, key(1, 5), 10), nullptr);
  EXPECT_EQ(tier.find(key(1, 6)), nullptr);
  EXPECT_EQ(tier.bytes(), 0u) << "nobody will ask for the old ones";
  EXPECT_EQ(tier.admit(key(1, 0), kLayers, 16), nullptr) << "bytes that nothing tells apart";
}

TEST_F(DeviceTierTest, WhatWasUnusedLongestLeavesButNotWhatIsInUse) {
  DeviceTier tier(*backend_->device_memory(), 2 * kLayers * kLayerBytes + 100);
  fill(tier, key(1), 1);
  fill(tier, key(2), 2);
  (void)tier.find(key(1));
  fill(tier, key(3), 3);
  EXPECT_EQ(tier.find(key(2)), nullptr);
  const auto one = tier.find(key(1)), three = tier.find(key(3));
  ASSERT_TRUE(one != nullptr && three != nullptr);
  EXPECT_EQ(fill(tier, key(4), 4), nullptr) << "a fuse has both";
  EXPECT_EQ(value_of(tier.layer(one, 1)), 2);
  EXPECT_LE(tier.bytes(), 2 * kLayers * kLayerBytes);
  EXPECT_EQ(tier.admit(key(5), kLayers, kLayerBytes * 3), nullptr) << "more than the whole budget";
}

TEST_F(DeviceTierTest, WithoutMemoryItIsAsIfThereWereNone) {
  DeviceTier tier(*backend_->device_memory(), 1 << 20);
  const size_t before = simt::bytes_in_use();
  simt::fail_allocation(1);  // the second layer
  EXPECT_EQ(fill(tier, key(1), 1), nullptr);
  simt::fail_allocation(-1);
  EXPECT_EQ(tier.find(key(1)), nullptr);
  EXPECT_EQ(tier.bytes(), 0u);
  float none = 0;
  auto one = backend_->allocate(4);
  EXPECT_TRUE(backend_->download({(*one)->data(), 1, 1, 4}, &none).is_ok());
  one->reset();
  EXPECT_TRUE(backend_->fence().is_ok());
  EXPECT_LE(simt::bytes_in_use(), before + 4 + 512);
}

// A chunk whose layers are numbers that say which.
class Numbers final : public ChunkSource {
 public:
  explicit Numbers(const ChunkShape& shape) {
    meta_.shape = shape;
    meta_.id.fill(9);
  }
  const ChunkMeta& meta() const override { return meta_; }
  void prefetch(uint32_t) override {}
  uint64_t version() const override { return 4; }
  Status read_layer(uint32_t layer, std::byte* out) override {
    ++n_reads;
    const uint16_t h = f32_to_bf16(50 + static_cast<float>(layer));
    for (size_t i = 0; i < meta_.shape.layer_bytes(0); i += 2) std::memcpy(out + i, &h, 2);
    return Status::ok();
  }
  int n_reads = 0;

 private:
  ChunkMeta meta_;
};

// Layers that nobody reads are given back at once, with no fence; what is copied to the device of
// them must not be overwritten. The second time nothing is read at all.
TEST_F(DeviceTierTest, ALoaderKeepsWhatItReadsAndReadsNotWhatIsKept) {
  simt::Machine machine;
  machine.schedule = simt::Schedule::late;
  simt::set_machine(machine);
  DeviceTier tier(*backend_->device_memory(), 1 << 20);
  const Stopwatch clock;
  Numbers source(shape());
  for (const bool again : {false, true}) {
    auto loader = LayerLoader::start(*backend_, {{&source, 0}}, kLayers, 1, clock, &tier);
    ASSERT_TRUE(loader.is_ok()) << loader.status().message();
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      const auto staged = loader.value()->acquire(layer);
      ASSERT_TRUE(staged.is_ok());
      EXPECT_EQ(staged.value()->origins[0] == Origin::device, again);
      EXPECT_EQ(staged.value()->load.bytes, again ? 0 : shape().layer_bytes(0));
      EXPECT_EQ(staged.value()->load.device_bytes, again ? shape().layer_bytes(0) : 0);
      loader.value()->release(layer);
    }
  }
  EXPECT_EQ(source.n_reads, static_cast<int>(kLayers));
  Key k;
  k.id.fill(9);
  k.version = 4;
  const auto kept = tier.find(k);
  ASSERT_NE(kept, nullptr);
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(value_of(tier.layer(kept, layer)), 50 + static_cast<float>(layer));
  }
}

// A device whose memory others have used up.
class FullMemory final : public DeviceMemory {
 public:
  Result<std::unique_ptr<DeviceBuffer>> keep(size_t /*bytes*/,
                                             std::span<const KeptPart> /*parts*/) override {
    return Status::out_of_memory();
  }
  Status check_capacity(uint64_t /*n_elements*/) override { return Status::out_of_memory(); }
};

TEST_F(DeviceTierTest, AChunkThatFindsNoMemoryLeaves) {
  FullMemory full;
  DeviceTier tier(full, 1 << 20);
  EXPECT_EQ(fill(tier, key(1), 1), nullptr);
  EXPECT_EQ(tier.bytes(), 0u);
}

}  // namespace
}  // namespace blend
