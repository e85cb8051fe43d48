// What a layer of a fuse costs in launches, copies and small uploads, counted by the emulated
// device. Speed is a card's to show; these are why it can be had.
#include <gtest/gtest.h>

#include "engine/device_readable.h"
#include "unit/backend/cuda_fuse.h"

namespace blend::cuda {
namespace {

// Issued between two reports of progress, which come once a layer.
struct Cost {
  uint64_t launches = 0;  // products, and the kernels that upload, among them
  uint64_t products = 0;
  uint64_t copies = 0;
  bool operator==(const Cost&) const = default;
  static Cost now() {
    return {simt::kernel_launches(), simt::gemm_calls(), simt::copies_to_device()};
  }
};
Cost operator-(const Cost& a, const Cost& b) {
  return {a.launches - b.launches, a.products - b.products, a.copies - b.copies};
}
std::ostream& operator<<(std::ostream& out, const Cost& c) {
  return out << c.launches << " launches, " << c.products << " products, " << c.copies << " copies";
}

class CudaLayerCost : public CudaFuse, public testing::WithParamInterface<Codec> {
 protected:
  static constexpr uint32_t kSteady = 3;  // the choice at layer 1 has its mask at layer 2

  void SetUp() override { ASSERT_NO_FATAL_FAILURE(open(GetParam())); }

  // The cost of each layer, the last with the logits; `logits`: of the fuse.
  std::vector<Cost> fuse_and_count(const FuseOptions& options, Store* store = nullptr,
                                   std::vector<float>* logits = nullptr) {
    std::vector<Cost> costs;
    Cost last = Cost::now();
    auto fused = run_fuse(options, store == nullptr ? *store_ : *store, [&](uint64_t layers_done) {
      const Cost now = Cost::now();
      if (layers_done > 0) costs.push_back(now - last);
      last = now;
    });
    EXPECT_TRUE(fused.is_ok()) << fused.status().message();
    if (logits != nullptr && fused.is_ok()) *logits = fused->sequence->logits();
    return costs;
  }
};

TEST_P(CudaLayerCost, SteadyLayersAreTenLaunchesAndOneCopy) {
  const std::vector<Cost> costs = fuse_and_count(hkvd());
  ASSERT_EQ(costs.size(), size_t{kLayers});
  // Norm, Q | K | V, their places, stored rows, attention, its product, norm, gate | up, SwiGLU,
  // down. Nothing else is launched, so nothing is uploaded.
  const Cost steady{10, 4, 1};
  for (uint32_t layer = kSteady; layer + 1 < kLayers; ++layer) {
    EXPECT_EQ(costs[layer], steady) << layer;
  }
  // The check layer measures against the stored rows, too.
  for (const Cost& cost : costs) EXPECT_LE(cost.copies, 2u) << cost;
}

// Layers that a store keeps in pinned memory go over from there, a chunk by one copy: nothing is
// gathered first.
TEST_P(CudaLayerCost, LayersInMemoryAreReadWhereTheyLie) {
  const FuseOptions options = hkvd();
  std::vector<float> from_disk, first, second;
  StoreOptions with_memory;
  with_memory.codec = GetParam();
  with_memory.ram_bytes = uint64_t{64} << 20;
  with_memory.host_memory = device_readable_memory(model_->runtime());
  (void)fuse_and_count(options, nullptr, &from_disk);
  const std::string path = dir_.file("store");
  store_.reset();
  auto store = Store::open(path, with_memory, {});
  ASSERT_TRUE(store.is_ok()) << store.status().message();
  (void)fuse_and_count(options, store->get(), &first);
  const size_t pinned = simt::pinned_bytes();
  const std::vector<Cost> costs = fuse_and_count(options, store->get(), &second);
  EXPECT_EQ(simt::pinned_bytes(), pinned) << "memory of the first fuse is used again";
  for (uint32_t layer = kSteady; layer + 1 < kLayers; ++layer) {
    EXPECT_EQ(costs[layer].copies, kChunks) << layer;
  }
  if (GetParam() == Codec::none) {
    EXPECT_EQ(first, from_disk);
  }
  EXPECT_EQ(second, first);
}

INSTANTIATE_TEST_SUITE_P(Codecs, CudaLayerCost,
                         testing::Values(Codec::none, Codec::int8, Codec::int4),
                         [](const auto& tested) { return codec_name(tested.param); });

}  // namespace
}  // namespace blend::cuda
