// The CPU GEMM by itself: packed and mapped weights, the tile plan, and what it leaves of OpenMP's
// state.
#include <gtest/gtest.h>
#include <omp.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "backend/cpu/gemm.h"
#include "support/random_blocks.h"
#include "unit/backend_ops_test.h"

namespace blend::cpu {
namespace {

using test::make_stored;

size_t threads_of_process() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task"))
    ++n;
  return n;
}

class GemmTest : public testing::Test {
 protected:
  void SetUp() override {
    auto pool = ThreadPool::create(3);
    ASSERT_TRUE(pool.is_ok());
    pool_ = std::move(pool.value());
    gemm_ = std::make_unique<Gemm>(*pool_, scratch_);
  }
  std::vector<float> normal(size_t n) {
    std::normal_distribution<float> dist;
    std::vector<float> v(n);
    for (float& x : v) x = dist(rng_);
    return v;
  }

  std::mt19937 rng_{5};
  std::unique_ptr<ThreadPool> pool_;
  ScratchPool scratch_;
  std::unique_ptr<Gemm> gemm_;
};

TEST_F(GemmTest, LargeShapesInBothPackings) {
  // Large enough for tiles in both directions with remainders.
  const int64_t k = 150, n = 1100;
  const auto w = make_stored("w", normal(static_cast<size_t>(n * k)), {n, k}, DType::bf16);
  const TensorView* part = &w->view;
  for (const auto packing : {Gemm::Packing::best, Gemm::Packing::rows}) {
    auto packed = gemm_->pack({&part, 1}, packing);
    ASSERT_TRUE(packed.is_ok()) << packed.status().message();
    EXPECT_GE((*packed)->bytes(), static_cast<size_t>(n * k) * 4);
    for (const int64_t m : {1, 2, 9, 200, 519, 520}) {
      const auto x = normal(static_cast<size_t>(m * k)), y0 = normal(static_cast<size_t>(m * n));
      for (const bool accumulate : {false, true}) {
        auto y = y0;
        ASSERT_TRUE(gemm_->run(**packed, x.data(), m, y.data(), accumulate).is_ok());
        for (int64_t i = 0; i<m; i += m> 9 ? 13 : 1) {
          for (int64_t j = 0; j < n; j += 7) {
            double want =
                accumulate ? static_cast<double>(y0[static_cast<size_t>(i * n + j)]) : 0.0;
            for (int64_t e = 0; e < k; ++e) {
              want += static_cast<double>(x[static_cast<size_t>(i * k + e)]) *
                      static_cast<double>(w->values[static_cast<size_t>(j * k + e)]);
            }
            ASSERT_NEAR(y[static_cast<size_t>(i * n + j)], want, 2e-4)
                << m << ": " << i << ", " << j;
          }
        }
      }
    }
  }
}

TEST_F(GemmTest, MappedPartsOfEveryType) {
  // Parts of a plain type and of two quantized ones, whose borders lie inside slices; few rows and
  // enough for several tiles of them, with fewer and with more slices than threads want.
  test::SplitMix random(3);
  for (const int64_t k : {256, 4096}) {
    const int64_t rows[] = {100, 36, 333};
    const int64_t n = rows[0] + rows[1] + rows[2];
    const auto plain =
        make_stored("w", normal(static_cast<size_t>(rows[0] * k)), {rows[0], k}, DType::f16);
    const std::string q4 =
        test::random_blocks(BlockType::q4_k, static_cast<uint64_t>(rows[1] * k), 1.0, random);
    const std::string q8 =
        test::random_blocks(BlockType::q8_0, static_cast<uint64_t>(rows[2] * k), 1.0, random);
    TensorView views[] = {plain->view, plain->view, plain->view};
    views[1].dtype = views[2].dtype = DType::f32;
    views[1].shape = {rows[1], k}, views[1].blocks = BlockType::q4_k;
    views[1].data = reinterpret_cast<const std::byte*>(q4.data());
    views[2].shape = {rows[2], k}, views[2].blocks = BlockType::q8_0;
    views[2].data = reinterpret_cast<const std::byte*>(q8.data());
    std::vector<float> w(plain->values);
    w.resize(static_cast<size_t>(n * k));
    for (int part = 1; part < 3; ++part) {
      float* const to = w.data() + (part == 1 ? rows[0] : rows[0] + rows[1]) * k;
      decode_blocks(views[part].blocks, views[part].data, static_cast<size_t>(rows[part] * k), to);
    }
    const TensorView* parts[] = {&views[0], &views[1], &views[2]};
    auto stacked = StackedParts::of(parts);
    ASSERT_TRUE(stacked.is_ok());
    const MappedMatrix mapped(std::move(*stacked));
    ASSERT_EQ(mapped.out(), n);
    for (const int64_t m : {1, 8, 9, 300, 530}) {
      const auto x = normal(static_cast<size_t>(m * k)), y0 = normal(static_cast<size_t>(m * n));
      for (const bool accumulate : {false, true}) {
        auto y = y0;
        ASSERT_TRUE(gemm_->run(mapped, x.data(), m, y.data(), accumulate).is_ok());
        for (int64_t i = 0; i<m; i += m> 9 ? 53 : 1) {
          for (int64_t j = 0; j < n; j += 7) {
            const auto at = static_cast<size_t>(i * n + j);
            double want = accumulate ? static_cast<double>(y0[at]) : 0.0;
            for (int64_t e = 0; e < k; ++e) {
              want += static_cast<double>(x[static_cast<size_t>(i * k + e)]) *
                      static_cast<double>(w[static_cast<size_t>(j * k + e)]);
            }
            ASSERT_NEAR(y[at], want, 2e-3) << m << ": " << i << ", " << j;
          }
        }
      }
    }
  }
}

TEST_F(GemmTest, PartsMustFit) {
  const auto a = make_stored("a", normal(6), {2, 3}, DType::f32);
  const auto b = make_stored("b", normal(8), {2, 4}, DType::f32);
  const TensorView* parts[] = {&a->view, &b->view};
  EXPECT_EQ(StackedParts::of(parts).status().code(), BLEND_E_INTERNAL);
  EXPECT_EQ(gemm_->pack(parts).status().code(), BLEND_E_INTERNAL);
  EXPECT_EQ(StackedParts::of({}).status().code(), BLEND_E_INTERNAL);
}

TEST_F(GemmTest, LeavesOpenMpAlone) {
  const int64_t k = 256, n = 512, m = 64;
  const auto w = make_stored("w", normal(static_cast<size_t>(n * k)), {n, k}, DType::f32);
  const TensorView* part = &w->view;
  const int before = omp_get_max_threads();
  omp_set_num_threads(7);  // as a host with OMP_NUM_THREADS=7
  const size_t threads = threads_of_process();
  auto packed = gemm_->pack({&part, 1});
  ASSERT_TRUE(packed.is_ok());
  const auto x = normal(static_cast<size_t>(m * k));
  std::vector<float> y(static_cast<size_t>(m * n));
  for (int64_t rows = 1; rows <= m; ++rows) {
    ASSERT_TRUE(gemm_->run(**packed, x.data(), rows, y.data(), rows % 2 == 0).is_ok());
  }
  EXPECT_EQ(omp_get_max_threads(), 7);
  EXPECT_EQ(threads_of_process(), threads) << "OpenMP started threads of its own";
  omp_set_num_threads(before);
}

TEST_F(GemmTest, ManyShapesStayCorrect) {
  // More shapes than primitives are kept, each twice.
  const int64_t k = 8, n = 8;
  const auto w = make_stored("w", std::vector<float>(64, 0.5f), {n, k}, DType::f32);
  const TensorView* part = &w->view;
  auto packed = gemm_->pack({&part, 1});
  ASSERT_TRUE(packed.is_ok());
  const std::vector<float> x(600 * 8, 1.0f);
  for (int round = 0; round < 2; ++round) {
    for (int64_t m = 1; m <= 600; ++m) {
      std::vector<float> y(static_cast<size_t>(m * n), -1.0f);
      ASSERT_TRUE(gemm_->run(**packed, x.data(), m, y.data(), false).is_ok());
      ASSERT_EQ(y, std::vector<float>(y.size(), 4.0f)) << m;
    }
  }
}

TEST(TilePlan, CoversEveryShape) {
  for (const int64_t m : {1, 7, 64, 77, 255, 256, 257, 512, 3072, 3137}) {
    for (const int64_t n : {1, 63, 64, 65, 576, 2048, 8192, 128256}) {
      for (const uint32_t threads : {1u, 2u, 8u, 64u}) {
        const TilePlan p = plan_tiles(m, n, 2048, threads);
        ASSERT_EQ(p.columns % kPanelColumns, 0);
        ASSERT_GE(p.row_tiles * p.rows, m);
        ASSERT_LT((p.row_tiles - 1) * p.rows, m);
        ASSERT_GE(p.column_tiles * p.columns, n);
        ASSERT_LT((p.column_tiles - 1) * p.columns, n);
        ASSERT_LE(p.rows, 256);
      }
    }
  }
}

}  // namespace
}  // namespace blend::cpu
