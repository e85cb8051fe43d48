// The op tests for the CPU backend: one thread, two, and more than this machine may have; and on
// every SIMD target.
#include "support/isa.h"
#include "unit/backend/ops_test.h"

namespace blend::test {
namespace {

BackendCase cpu(std::string name, uint32_t n_threads, const std::string& isa = kUncapped,
                DType cache = DType::f32) {
  BackendCase c;
  c.name = std::move(name);
  c.n_threads = n_threads;
  // K and V are rounded; those of rows that were moved twice.
  if (cache != DType::f32) c.tolerance_16 = cache == DType::f16 ? 2e-3 : 1.6e-2;
  // Kernels are compared on every target by themselves, too; sanitized, these rounds are long.
  if (isa != kUncapped || cache != DType::f32) c.rounds = 0.5;
  c.make = [isa, cache](ThreadPool& pool) {
    compute_as(isa);
    return make_cpu_backend(pool, cache);
  };
  return c;
}

std::vector<BackendCase> cases() {
  std::vector<BackendCase> all = {cpu("Threads1", 1), cpu("Threads2", 2), cpu("Threads5", 5),
                                  cpu("CacheF16", 2, kUncapped, DType::f16),
                                  cpu("CacheBf16", 2, kUncapped, DType::bf16)};
  for (const std::string& isa : machine_simd()) {
    if (isa != kUncapped) all.push_back(cpu(isa_test_name(isa), 2, isa));
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cpu, BackendOps, testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

INSTANTIATE_TEST_SUITE_P(Cpu, BackendMove, testing::ValuesIn(cases()),
                         [](const auto& tested) { return tested.param.name; });

// Callers plan with these: what they are not told, a CPU does not have.
TEST(CpuTraits, AreThoseOfHostMemory) {
  const auto pool = std::move(*ThreadPool::create(1));
  for (const DType dtype : kDTypes) {
    const auto backend = std::move(*make_cpu_backend(*pool, dtype));
    EXPECT_EQ(backend->traits().cache_bytes, dtype_size(dtype));
    EXPECT_EQ(backend->traits().operand_bytes, 4);
    EXPECT_TRUE(backend->traits().takes(WeightForm::mapped));
    EXPECT_TRUE(backend->traits().takes(WeightForm::int8));
    EXPECT_FALSE(backend->traits().decodes_packed);
    EXPECT_FALSE(backend->traits().pads_steps);
    EXPECT_EQ(backend->device_memory(), nullptr);
    EXPECT_EQ(backend->packed_qkv(), nullptr);
    EXPECT_EQ(backend->record_ops(), nullptr);
    EXPECT_EQ(*backend->fence(), nullptr);
  }
}

// What a cache of each type gives back, and what it refuses.
TEST(CpuCache, RoundsToItsTypeAndSaysWhatDoesNotFit) {
  const auto pool = std::move(*ThreadPool::create(2));
  ModelConfig c;
  c.n_layers = 2;
  c.n_heads = c.n_kv_heads = 2;
  c.head_dim = 8;
  c.rope.rotary_dim = 8;
  const std::vector<uint32_t> pos = {0, 1, 2};
  for (const DType dtype : kDTypes) {
    const auto backend = std::move(*make_cpu_backend(*pool, dtype));
    const auto cache = std::move(*backend->make_kv_cache(c, 3));
    const auto rope = std::move(*backend->make_rope(c.rope, 3));
    std::vector<float> rows(3 * 32, 1.0f + 0x1p-9f + 0x1p-13f);
    const Tensor kv{rows.data(), 3, 32, 4};
    ASSERT_TRUE(backend->write_kv(*cache, 1, *rope, kv, pos.data()).is_ok());
    std::vector<float> back(rows.size());
    ASSERT_TRUE(
        backend->fusion().read_kv(*cache, 1, *rope, pos.data(), {back.data(), 3, 32, 4}).is_ok());
    const float want = dtype == DType::f32 ? rows[0] : dtype == DType::f16 ? 1.0f + 0x1p-9f : 1.0f;
    for (const size_t v : {16, 31, 95}) EXPECT_EQ(back[v], want) << dtype_name(dtype);
    EXPECT_EQ(back[0], want) << "K at position 0, which is not turned";
    EXPECT_NEAR(back[64], rows[0], dtype == DType::bf16 ? 1e-2 : 1e-3);

    // K and V each, fresh and stored.
    for (const size_t bad : {size_t{32 + 5}, size_t{64 + 20}}) {
      rows.assign(rows.size(), 1.0f);
      rows[bad] = 1e5f;
      const bool fits = dtype != DType::f16;
      const Status fresh = backend->write_kv(*cache, 1, *rope, kv, pos.data());
      EXPECT_EQ(fresh.code(), fits ? BLEND_OK : BLEND_E_NUMERIC);
      if (!fits) {
        EXPECT_NE(fresh.message().find("layer 1"), std::string::npos) << fresh.message();
        EXPECT_NE(fresh.message().find("bf16 or f32"), std::string::npos) << fresh.message();
      }
      const size_t column = bad % 32;
      std::vector<float> k(3 * 16, 1.0f), v(3 * 16, 1.0f);
      (column < 16 ? k[column] : v[column - 16]) = 1e5f;
      const StoredRun run{reinterpret_cast<const std::byte*>(k.data()),
                          reinterpret_cast<const std::byte*>(v.data()), DType::f32, 3, 0};
      EXPECT_EQ(backend->fusion().scatter(*cache, 1, *rope, {&run, 1}, nullptr, nullptr).code(),
                fits ? BLEND_OK : BLEND_E_NUMERIC);
    }
  }
}

}  // namespace
}  // namespace blend::test
