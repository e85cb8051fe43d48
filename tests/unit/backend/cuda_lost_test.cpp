// A device that is lost to the process, on the emulated one: every call says so and names the way
// out, nothing waits for ever, and all that was held can be let go.
#include "unit/backend/cuda_fuse.h"

namespace blend::cuda {
namespace {

class CudaLost : public CudaFuse {
 protected:
  static void expect_lost(const Status& status, const char* what) {
    EXPECT_EQ(status.code(), BLEND_E_INTERNAL) << what << ": " << status.message();
    EXPECT_NE(status.message().find("restarted"), std::string::npos)
        << what << ": " << status.message();
  }
};

TEST_F(CudaLost, EveryCallSaysThatTheDeviceIsLost) {
  simt::set_machine({});
  const auto pool = std::move(*ThreadPool::create(2));
  auto backend = CudaBackend::create(0, *pool);
  ASSERT_TRUE(backend.is_ok());
  Backend& b = **backend;
  ModelConfig c;
  c.n_layers = 1;
  c.n_heads = c.n_kv_heads = 2;
  c.head_dim = c.rope.rotary_dim = 16;
  auto rope = b.make_rope(c.rope, 8);
  auto cache = b.make_kv_cache(c, 8);
  auto memory = b.allocate(8 * 64 * 4), pinned = b.allocate_host(8 * 64 * 4);
  auto fence = b.fence();
  ASSERT_TRUE(rope.is_ok() && cache.is_ok() && memory.is_ok() && pinned.is_ok() && fence.is_ok());
  const Tensor kv{(*memory)->data(), 8, 64, 4}, q{(*memory)->data(), 8, 32, 4};
  const std::vector<uint32_t> pos{0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<float> host(8 * 64);
  const auto* const stored = static_cast<const std::byte*>((*pinned)->data());
  const StoredRun run{stored, stored + 8 * 32 * 4, DType::f32, 8, 0};

  simt::lose_device();
  expect_lost(b.write_kv(**cache, 0, **rope, kv, pos.data()), "write_kv");
  expect_lost(b.rope_q(**rope, pos.data(), 16, q), "rope_q");
  expect_lost(b.attention(**cache, 0, {}, q, pos.data(), q), "attention");
  expect_lost(b.fusion().scatter(**cache, 0, **rope, {&run, 1}, nullptr, nullptr), "scatter");
  expect_lost(b.download(kv, host.data()), "download");
  expect_lost(b.allocate(64).status(), "allocate");
  expect_lost(b.allocate_host(size_t{64} << 20).status(), "allocate_host");
  expect_lost(b.fence().status(), "fence");
  expect_lost(b.make_kv_cache(c, 8).status(), "make_kv_cache");
  const KeptPart part{stored, 64, 0};
  expect_lost(b.device_memory()->keep(64, {&part, 1}).status(), "keep");
  EXPECT_EQ(b.record_ops()->record({}, [] { return Status::ok(); }), nullptr)
      << "as where nothing is recorded";
  expect_lost(CudaBackend::create(0, *pool).status(), "a further backend");
  (*fence)->wait();
}  // all that was made is let go

// In every layer of a fuse, which has readers, fences and a ring of its own.
TEST_F(CudaLost, AFuseEnds) {
  for (uint64_t layer = 0; layer < kLayers; ++layer) {
    ASSERT_NO_FATAL_FAILURE(open(layer % 2 == 0 ? Codec::none : Codec::int8));
    const auto fused = run_fuse(hkvd(), *store_, [&](uint64_t layers_done) {
      if (layers_done == layer) simt::lose_device();
    });
    ASSERT_FALSE(fused.is_ok()) << layer;
    expect_lost(fused.status(), "fuse");
    model_.reset();
    store_.reset();
    prompt_.clear();
    simt::set_machine({});
  }
}

}  // namespace
}  // namespace blend::cuda
