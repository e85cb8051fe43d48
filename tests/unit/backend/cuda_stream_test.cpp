// Streams, memory and errors of the CUDA backend's host code, on the emulated device.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "backend/cuda/cuda_backend.h"
#include "cuda/attention_plan.h"
#include "cuda/kv_rows.h"
#include "support/slots.h"

namespace blend::cuda {
namespace {

class CudaHost : public testing::Test {
 protected:
  void SetUp() override { pool_ = std::move(*ThreadPool::create(2)); }
  void TearDown() override { simt::set_machine({}); }
  Result<std::unique_ptr<Backend>> open(const simt::Machine& machine, int32_t device = 0) {
    simt::set_machine(machine);
    return CudaBackend::create(device, *pool_);
  }
  static ModelConfig config() {
    ModelConfig c;
    c.n_layers = 6;
    c.n_heads = c.n_kv_heads = 2;
    c.head_dim = c.rope.rotary_dim = 16;
    return c;
  }
  std::unique_ptr<ThreadPool> pool_;
};

TEST_F(CudaHost, SaysWhatIsMissing) {
  simt::Machine machine;
  machine.driver = false;
  EXPECT_EQ(open(machine).status().code(), BLEND_E_NO_DEVICE);
  machine = {};
  machine.n_devices = 0;
  const auto none = open(machine);
  EXPECT_EQ(none.status().code(), BLEND_E_NO_DEVICE);
  EXPECT_NE(none.status().message().find("'cpu'"), std::string::npos) << "the way out";
  machine.n_devices = 2;
  EXPECT_TRUE(open(machine, 1).is_ok());
  const auto third = open(machine, 2);
  EXPECT_EQ(third.status().code(), BLEND_E_NO_DEVICE);
  EXPECT_NE(third.status().message().find("device 2"), std::string::npos);
  EXPECT_EQ(open(machine, -1).status().code(), BLEND_E_NO_DEVICE);
}

TEST_F(CudaHost, TheCallersDeviceStaysItsOwn) {
  simt::Machine machine;
  machine.n_devices = 3;
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  auto backend = open(machine, 2);
  ASSERT_TRUE(backend.is_ok());
  EXPECT_STREQ((*backend)->name(), "cuda:2 (emulated)");
  auto buffer = (*backend)->allocate(64);
  ASSERT_TRUE(buffer.is_ok());
  buffer->reset();
  int device = -1;
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 0);
}

TEST_F(CudaHost, OnlyItsOwnDeviceGetsAContext) {
  simt::Machine machine;
  machine.n_devices = 3;
  std::thread([&] {  // one that has not chosen a device
    auto backend = open(machine, 2);
    ASSERT_TRUE(backend.is_ok()) << backend.status().message();
    {
      auto buffer = (*backend)->allocate(64);
      ASSERT_TRUE(buffer.is_ok());
      auto pinned = (*backend)->allocate_host(64);
      ASSERT_TRUE(pinned.is_ok());
    }
    EXPECT_EQ(simt::context_references(2), 1);
    backend->reset();
    EXPECT_EQ(simt::context_references(2), 0);
    EXPECT_FALSE(simt::has_context(0)) << "hundreds of MB of a device that nobody asked for";
    EXPECT_FALSE(simt::has_context(1));
  })
      .join();
}

TEST_F(CudaHost, AContextOfTheHostsOwnStaysCurrent) {
  CUcontext own = nullptr, current = nullptr;
  ASSERT_EQ(cuCtxCreate(&own, 0), CUDA_SUCCESS);
  {
    auto backend = open({});
    ASSERT_TRUE(backend.is_ok());
    auto buffer = (*backend)->allocate(64);
    ASSERT_TRUE(buffer.is_ok());
    ASSERT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, own);
    EXPECT_EQ(simt::context_references(0), 1) << "it is the primary one that is worked in";
  }
  ASSERT_EQ(cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, own);
  ASSERT_EQ(cuCtxDestroy(own), CUDA_SUCCESS);
}

TEST_F(CudaHost, AGraphThatTheHostCapturesIsNotBroken) {
  auto backend = open({});
  ASSERT_TRUE(backend.is_ok());
  simt::begin_global_capture();
  const auto pinned = (*backend)->allocate_host(size_t{64} << 20);
  EXPECT_TRUE(pinned.is_ok()) << pinned.status().message();
  EXPECT_TRUE(simt::end_global_capture());
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal) << "the thread's own is given back";
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
}

TEST_F(CudaHost, AModelThatDoesNotFitIsAnErrorWithTheBytes) {
  simt::Machine machine;
  machine.memory_bytes = size_t{100} << 20;
  auto backend = open(machine);
  ASSERT_TRUE(backend.is_ok());
  EXPECT_TRUE((*backend)->device_memory()->check_capacity(1 << 20).is_ok());
  const Status model = (*backend)->device_memory()->check_capacity(uint64_t{8} << 30);
  EXPECT_EQ(model.code(), BLEND_E_OUT_OF_MEMORY);
  EXPECT_NE(model.message().find("17179869184 bytes"), std::string::npos) << model.message();
  EXPECT_NE(model.message().find("104857600 bytes"), std::string::npos) << model.message();
  const auto cache = (*backend)->make_kv_cache(config(), 1 << 20);
  EXPECT_EQ(cache.status().code(), BLEND_E_OUT_OF_MEMORY);
  EXPECT_NE(cache.status().message().find("KV cache of 1048576 rows"), std::string::npos);
  // The bytes of 128 K rows of an 8B model are more than 32 bits hold, as is an element's place.
  ModelConfig large = config();
  large.n_layers = 32;
  large.n_heads = large.n_kv_heads = 8;
  large.head_dim = large.rope.rotary_dim = 128;
  const auto long_one = (*backend)->make_kv_cache(large, 131072);
  EXPECT_EQ(long_one.status().code(), BLEND_E_OUT_OF_MEMORY);
  EXPECT_NE(long_one.status().message().find("17179869184 bytes of device memory are needed"),
            std::string::npos)
      << long_one.status().message();
}

TEST(CudaShapes, PlacesInLargeCachesAndPlansOfManyRowsDoNotWrap) {
  kernels::cuda::KvView view;
  view.n_kv_heads = 64;
  view.head_dim = view.stride = 128;
  view.slots = 1 << 20;
  EXPECT_EQ(view.at(63, (1 << 20) - 1), (uint64_t{64} << 27) - 128);
  // A prompt of 128 K rows at once, as a plan's step may have it: keys are not split, none is lost.
  const auto plan = kernels::cuda::plan_attention(131072, 8, 8, 128, 131071, 132);
  EXPECT_EQ(plan.m_tiles, 131072u * 8 / plan.tile_rows());
  EXPECT_EQ(plan.splits, 1u);
  EXPECT_EQ(plan.part_floats(), uint64_t{8} * 131072 * 8 * 130);
}

TEST_F(CudaHost, HeadsLargerThanAnyKernelAreRefused) {
  auto backend = open({});
  ModelConfig c = config();
  c.head_dim = 512;
  EXPECT_EQ((*backend)->make_kv_cache(c, 8).status().code(), BLEND_E_UNSUPPORTED);
}

// Layers go through a small ring of pinned memory, as the fusion's loader has it: written again as
// soon as the fence is reached, and not before. What comes of it must not depend on when the device
// copies.
TEST_F(CudaHost, PinnedLayersMayBeWrittenAgainBehindTheirFence) {
  const ModelConfig c = config();
  const uint32_t rows = 40;
  const size_t plane = rows * c.kv_dim();
  for (const auto schedule : {simt::Schedule::late, simt::Schedule::early, simt::Schedule::random,
                              simt::Schedule::others_first}) {
    for (uint32_t seed = 1; seed <= (schedule == simt::Schedule::random ? 8u : 1u); ++seed) {
      simt::Machine machine;
      machine.schedule = schedule;
      machine.seed = seed;
      auto backend = open(machine);
      ASSERT_TRUE(backend.is_ok());
      Backend& b = **backend;
      auto rope = b.make_rope(c.rope, rows);
      auto cache = b.make_kv_cache(c, rows);
      std::vector<std::unique_ptr<DeviceBuffer>> ring;
      std::vector<std::unique_ptr<Fence>> fences(2);
      for (int i = 0; i < 2; ++i) ring.push_back(std::move(*b.allocate_host(2 * plane * 4)));
      const auto value = [&](uint32_t layer, size_t i) {
        return static_cast<float>((i * 7 + layer * 13) % 31) - 15.0f;
      };
      for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
        auto* const slot = static_cast<float*>(ring[layer % 2]->data());
        if (fences[layer % 2] != nullptr) fences[layer % 2]->wait();
        for (size_t i = 0; i < 2 * plane; ++i) slot[i] = value(layer, i);
        const auto* const at = reinterpret_cast<const std::byte*>(slot);
        const StoredRun run{at, at + plane * 4, DType::f32, rows, 0};
        ASSERT_TRUE(
            b.fusion().scatter(**cache, layer, **rope, {&run, 1}, nullptr, nullptr).is_ok());
        fences[layer % 2] = std::move(*b.fence());
        ASSERT_NE(fences[layer % 2], nullptr);
      }
      ring.clear();  // with copies still under way: who gets the memory next writes there
      for (int i = 0; i < 2; ++i) {
        ring.push_back(std::move(*b.allocate_host(2 * plane * 4)));
        std::memset(ring.back()->data(), 0x7f, 2 * plane * 4);
      }
      auto out = b.allocate(rows * 2 * c.kv_dim() * 4);
      const Tensor kv{(*out)->data(), rows, 2 * c.kv_dim(), 4};
      std::vector<float> got(rows * 2 * c.kv_dim());
      for (uint32_t layer = 0; layer < c.n_layers; ++layer) {
        ASSERT_TRUE(b.fusion()
                        .read_kv(**cache, layer, **rope,
                                 test::slots_from(0, static_cast<uint32_t>(kv.rows)).data(), kv)
                        .is_ok());
        ASSERT_TRUE(b.download(kv, got.data()).is_ok());
        for (size_t row = 0; row < rows; ++row) {
          for (size_t e = 0; e < c.kv_dim(); ++e) {  // V: small integers are exact in bf16
            ASSERT_EQ(got[row * 2 * c.kv_dim() + c.kv_dim() + e],
                      value(layer, plane + row * c.kv_dim() + e))
                << "layer " << layer << " seed " << seed;
          }
        }
      }
    }
  }
}

// As in the loader's ring: K | V of one chunk after those of another, at the next page.
TEST_F(CudaHost, RowsThatLieNearEachOtherAreOneCopy) {
  const ModelConfig c = config();
  constexpr uint32_t kRuns = 3, kRows = 8;
  const size_t plane = kRows * c.kv_dim();
  for (const size_t gap : {size_t{0}, size_t{64}, size_t{1} << 16}) {  // elements before the last
    auto backend = open({});
    ASSERT_TRUE(backend.is_ok());
    Backend& b = **backend;
    auto rope = b.make_rope(c.rope, kRuns * kRows);
    auto cache = b.make_kv_cache(c, kRuns * kRows);
    auto ring = b.allocate_host((2 * kRuns * plane + gap) * 4);
    auto* const at = static_cast<float*>((*ring)->data());
    std::vector<StoredRun> runs;
    for (uint32_t i = 0; i < kRuns; ++i) {
      float* const k = at + 2 * i * plane + (i + 1 == kRuns ? gap : 0);
      for (size_t e = 0; e < 2 * plane; ++e) k[e] = static_cast<float>((e + i * 5) % 29);
      runs.push_back({reinterpret_cast<const std::byte*>(k),
                      reinterpret_cast<const std::byte*>(k + plane), DType::f32, kRows, i * kRows});
    }
    const uint64_t before = simt::copies_to_device();
    ASSERT_TRUE(b.fusion().scatter(**cache, 0, **rope, runs, nullptr, nullptr).is_ok());
    EXPECT_EQ(simt::copies_to_device() - before, gap <= 64 ? 1u : 2u);
    auto out = b.allocate(kRuns * kRows * 2 * c.kv_dim() * 4);
    const Tensor kv{(*out)->data(), kRuns * kRows, 2 * c.kv_dim(), 4};
    std::vector<float> got(kRuns * kRows * 2 * c.kv_dim());
    ASSERT_TRUE(b.fusion()
                    .read_kv(**cache, 0, **rope,
                             test::slots_from(0, static_cast<uint32_t>(kv.rows)).data(), kv)
                    .is_ok());
    ASSERT_TRUE(b.download(kv, got.data()).is_ok());
    for (size_t row = 0; row < kRuns * kRows; ++row) {
      const size_t run = row / kRows;
      for (size_t e = 0; e < c.kv_dim(); ++e) {
        ASSERT_EQ(got[row * 2 * c.kv_dim() + c.kv_dim() + e],
                  static_cast<float>((plane + row % kRows * c.kv_dim() + e + run * 5) % 29));
      }
    }
  }
}

// As chunks in a store's pinned memory: the driver may place one block directly after the other,
// and a copy that begins in one must end in it.
TEST_F(CudaHost, PinnedBlocksThatTouchAreCopiedEachByItself) {
  const ModelConfig c = config();
  constexpr uint32_t kBlocks = 3, kRows = 8;
  constexpr size_t kBlock = size_t{2} << 20;  // as much as the backend pins at least
  const size_t plane = kRows * c.kv_dim();
  std::vector<std::byte> room((kBlocks + 1) * kBlock);
  auto backend = open({});
  ASSERT_TRUE(backend.is_ok());
  Backend& b = **backend;
  auto rope = b.make_rope(c.rope, kBlocks * kRows);
  auto cache = b.make_kv_cache(c, kBlocks * kRows);
  simt::pin_side_by_side(room);
  std::vector<std::unique_ptr<DeviceBuffer>> blocks;
  std::vector<StoredRun> runs;
  for (uint32_t i = 0; i < kBlocks; ++i) {
    auto block = b.allocate_host(kBlock);
    ASSERT_TRUE(block.is_ok());
    blocks.push_back(std::move(*block));
    auto* const at = static_cast<std::byte*>(blocks.back()->data());
    ASSERT_EQ(at, room.data() + i * kBlock);
    // Its K begin the block and its V end it, so that they touch those of the next.
    auto* const k = reinterpret_cast<float*>(at);
    auto* const v = reinterpret_cast<float*>(at + kBlock) - plane;
    for (size_t e = 0; e < plane; ++e) k[e] = v[e] = static_cast<float>((e + i * 5) % 29);
    runs.push_back({at, reinterpret_cast<const std::byte*>(v), DType::f32, kRows, i * kRows});
  }
  simt::pin_side_by_side({});
  const uint64_t before = simt::copies_to_device();
  ASSERT_TRUE(b.fusion().scatter(**cache, 0, **rope, runs, nullptr, nullptr).is_ok());
  EXPECT_EQ(simt::copies_to_device() - before, 2 * kBlocks);
  auto out = b.allocate(kBlocks * kRows * 2 * c.kv_dim() * 4);
  const Tensor kv{(*out)->data(), kBlocks * kRows, 2 * c.kv_dim(), 4};
  std::vector<float> got(kBlocks * kRows * 2 * c.kv_dim());
  ASSERT_TRUE(b.fusion()
                  .read_kv(**cache, 0, **rope,
                           test::slots_from(0, static_cast<uint32_t>(kv.rows)).data(), kv)
                  .is_ok());
  ASSERT_TRUE(b.download(kv, got.data()).is_ok());
  for (size_t row = 0; row < kBlocks * kRows; ++row) {
    for (size_t e = 0; e < c.kv_dim(); ++e) {
      ASSERT_EQ(got[row * 2 * c.kv_dim() + c.kv_dim() + e],
                static_cast<float>((row % kRows * c.kv_dim() + e + row / kRows * 5) % 29));
    }
  }
}

TEST_F(CudaHost, UploadsMayBeWrittenAgainAtOnce) {
  // More than the ring of small pieces holds, the source overwritten after every call.
  for (const auto schedule : {simt::Schedule::late, simt::Schedule::random}) {
    simt::Machine machine;
    machine.schedule = schedule;
    auto backend = open(machine);
    Backend& b = **backend;
    auto from = b.allocate(200 * 4), to = b.allocate(200 * 4);
    std::vector<float> table(200);
    std::iota(table.begin(), table.end(), 0.0f);
    TensorView view;
    view.name = "t";
    view.shape = {200, 1};
    view.data = reinterpret_cast<const std::byte*>(table.data());
    auto weight = b.load_table(view, false);
    ASSERT_TRUE(weight.is_ok());
    int32_t token = 0;
    for (int i = 0; i < 200; ++i) {
      token = 199 - i;
      ASSERT_TRUE(
          b.embed(**weight, &token, {static_cast<float*>((*to)->data()) + i, 1, 1, 4}).is_ok());
      token = 7;
    }
    std::vector<float> got(200);
    ASSERT_TRUE(b.download({(*to)->data(), 200, 1, 4}, got.data()).is_ok());
    for (int i = 0; i < 200; ++i) ASSERT_EQ(got[static_cast<size_t>(i)], 199.0f - i);
  }
}

// Every allocation of device memory fails once: an error, and nothing is left behind.
TEST_F(CudaHost, FailingAllocations) {
  const ModelConfig c = config();
  std::vector<float> values(64 * 33);
  std::iota(values.begin(), values.end(), 1.0f);
  TensorView view;
  view.name = "w";
  view.shape = {64, 33};
  view.data = reinterpret_cast<const std::byte*>(values.data());
  const TensorView* part = &view;
  for (int64_t n = 0;; ++n) {
    auto backend = open({});
    ASSERT_TRUE(backend.is_ok());
    Backend& b = **backend;
    const size_t before = simt::bytes_in_use();
    simt::fail_allocation(n);
    const auto all = [&]() -> Status {
      BLEND_ASSIGN(auto w, b.load_matrix({&part, 1}, WeightForm::packed));
      BLEND_ASSIGN(auto table, b.load_table(view, false));
      BLEND_ASSIGN(auto rope, b.make_rope(c.rope, 16));
      BLEND_ASSIGN(auto cache, b.make_kv_cache(c, 16));
      BLEND_ASSIGN(auto x, b.allocate(16 * 33 * 4));
      BLEND_ASSIGN(auto y, b.allocate(16 * 64 * 4));
      std::vector<int32_t> tokens(16, 3);
      std::vector<uint32_t> pos(16);
      std::iota(pos.begin(), pos.end(), 0u);
      const Tensor tx{x->data(), 16, 33, 4}, ty{y->data(), 16, 64, 4};
      BLEND_RETURN_IF_ERROR(b.embed(*table, tokens.data(), tx));
      BLEND_RETURN_IF_ERROR(b.matmul(*w, tx, ty, false));
      BLEND_RETURN_IF_ERROR(b.write_kv(*cache, 0, *rope, ty, pos.data()));
      const Tensor q{y->data(), 16, 32, 4};
      BLEND_RETURN_IF_ERROR(b.rope_q(*rope, pos.data(), 16, q));
      BLEND_RETURN_IF_ERROR(b.attention(*cache, 0, {}, q, pos.data(), q));
      std::vector<float> mass(16);
      BLEND_RETURN_IF_ERROR(b.fusion().attention_mass(*cache, 0, {}, q, pos.data(), mass.data()));
      const auto* const stored = reinterpret_cast<const std::byte*>(values.data());
      const StoredRun run{stored, stored + 32 * 16 * 4, DType::f32, 16, 0};
      BLEND_RETURN_IF_ERROR(b.fusion().scatter(*cache, 1, *rope, {&run, 1}, nullptr, nullptr));
      std::vector<float> deviation(16);
      BLEND_RETURN_IF_ERROR(b.fusion().deviation(ty, {&run, 1}, {}, deviation.data()));
      // int8 of 16 rows: steps of zeros, any bytes.
      const size_t plane = 16 * 32, k_bytes = 2 * 32 + plane, v_bytes = 2 * 16 * 2 + plane;
      const std::vector<std::byte> zeros(k_bytes + v_bytes);
      const StoredRun packed{zeros.data(),
                             zeros.data() + k_bytes,
                             DType::f16,
                             16,
                             0,
                             {Packing::int8, 16, 16, k_bytes, v_bytes}};
      BLEND_RETURN_IF_ERROR(b.fusion().scatter(*cache, 2, *rope, {&packed, 1}, nullptr, nullptr));
      BLEND_RETURN_IF_ERROR(b.fusion().deviation(ty, {&packed, 1}, {}, deviation.data()));
      const Tensor tx2{x->data(), 8, 64, 4};
      BLEND_RETURN_IF_ERROR(b.fusion().drift_inputs(ty.slice(0, 8), {}, {}, tx2));
      DriftShare share;
      BLEND_RETURN_IF_ERROR(b.fusion().drift_share(tx2, tx2, &share));
      BLEND_RETURN_IF_ERROR(b.fusion().scale_kv(tx2, share));
      std::vector<uint32_t> chosen(4);
      BLEND_RETURN_IF_ERROR(b.fusion().top_k(deviation, 4, chosen.data()));
      std::vector<std::byte> k(16 * 32 * 2), v = k;
      return b.fusion().encode_kv(ty, DType::bf16, k.data(), v.data());
    };
    const Status status = all();
    simt::fail_allocation(-1);
    std::vector<float> none(1);
    auto one = b.allocate(4);
    ASSERT_TRUE(one.is_ok());
    (void)b.download({(*one)->data(), 1, 1, 4}, none.data());  // all that was issued is done
    one->reset();
    if (status.is_ok()) {
      EXPECT_GT(n, 15) << "allocations";
      break;
    }
    ASSERT_EQ(status.code(), BLEND_E_OUT_OF_MEMORY) << n << ": " << status.message();
    backend->reset();
    ASSERT_LE(simt::bytes_in_use(), before) << n;
  }
}

TEST_F(CudaHost, NothingIsLeftWhenABackendIsGone) {
  {
    auto backend = open({});
    ASSERT_TRUE(backend.is_ok());
    auto host = (*backend)->allocate_host(5000);
    ASSERT_TRUE(host.is_ok());
    auto device = (*backend)->allocate(5000);
    ASSERT_TRUE(device.is_ok());
  }
  EXPECT_EQ(simt::bytes_in_use(), 0u);
  EXPECT_EQ(simt::pinned_bytes(), 0u);
}

TEST_F(CudaHost, PinnedMemoryIsKeptForTheNext) {
  auto backend = open({});
  void* first = nullptr;
  {
    auto host = (*backend)->allocate_host(3 << 20);
    first = (*host)->data();
  }
  const size_t pinned = simt::pinned_bytes();
  auto again = (*backend)->allocate_host((3 << 20) + 4096);  // a little longer prompt
  EXPECT_EQ((*again)->data(), first);
  EXPECT_EQ(simt::pinned_bytes(), pinned);
}

TEST_F(CudaHost, ARingOfAnySizeIsPinnedOnce) {
  auto backend = open({});
  const size_t before = simt::pinned_bytes(), large = (size_t{1} << 30) + (size_t{64} << 20);
  for (int fuse = 0; fuse < 3; ++fuse) {
    {
      auto ring = (*backend)->allocate_host(large);
      ASSERT_TRUE(ring.is_ok());
    }
    EXPECT_EQ(simt::pinned_bytes(), before + large) << "given back to the driver";
  }
}

TEST_F(CudaHost, SmallArraysDoNotQueueForACopyEngine) {
  auto backend = open({});
  const ModelConfig c = config();
  auto rope = (*backend)->make_rope(c.rope, 64);
  ASSERT_TRUE(rope.is_ok());
  for (const uint32_t rows : {1u, 3u, 33u}) {
    auto q = (*backend)->allocate(size_t{rows} * 32 * 2);
    std::vector<uint32_t> pos(rows);
    std::iota(pos.begin(), pos.end(), 5u);
    Tensor t;
    t.data = (*q)->data();
    t.rows = rows;
    t.cols = 32;
    t.elem_bytes = 2;
    const uint64_t copies = simt::copies_to_device(), launches = simt::kernel_launches();
    EXPECT_TRUE((*backend)->rope_q(**rope, pos.data(), 16, t).is_ok());
    EXPECT_EQ(simt::copies_to_device(), copies);
    EXPECT_EQ(simt::kernel_launches() - launches, 2u) << "the positions' and its own";
  }
}

TEST(CudaCheck, AnErrorThatStaysSaysSo) {
  EXPECT_NE(check(cudaErrorIllegalAddress, "x").message().find("restarted"), std::string::npos);
  EXPECT_EQ(check(cudaErrorInvalidValue, "x").message().find("restarted"), std::string::npos);
}

}  // namespace
}  // namespace blend::cuda
