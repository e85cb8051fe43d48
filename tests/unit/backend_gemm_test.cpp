// The CPU GEMM by itself: packed and mapped weights, the tile plan, and what it leaves of OpenMP's
// state.
#include <gtest/gtest.h>
#include <omp.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "backend/cpu/gemm.h"
#include "backend/cpu/int8_gemm.h"
#include "cpu/int8_rows.h"
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
    gemm_ = std::make_unique<Gemm>(*pool_, scratch_, matmuls_);
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
  MatmulCache matmuls_;
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
    for (const int64_t m : {1, 7, 24, 25, 300, 530}) {
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

// W and x as their nearest 8-bit numbers, multiplied in double.
std::vector<double> int8_product(const std::vector<float>& w, const std::vector<float>& x,
                                 int64_t m, int64_t n, int64_t k, bool bytes_of_x) {
  std::vector<double> wq(w.size()), xq(x.size());
  for (int64_t j = 0; j < n; ++j) {
    float most = 0;
    for (int64_t e = 0; e < k; ++e) {
      most = std::max(most, std::abs(w[static_cast<size_t>(j * k + e)]));
    }
    const double step = static_cast<double>(most) / 127;
    for (int64_t e = 0; e < k; ++e) {
      const auto at = static_cast<size_t>(j * k + e);
      wq[at] = step == 0 ? 0 : std::nearbyint(static_cast<double>(w[at]) / step) * step;
    }
  }
  std::vector<uint8_t> q(static_cast<size_t>(k));
  for (int64_t i = 0; i < m; ++i) {
    const float* const row = x.data() + i * k;
    const auto r = kernels::quantize_row_ref(row, q.size(), q.data());
    for (int64_t e = 0; e < k; ++e) {
      xq[static_cast<size_t>(i * k + e)] =
          bytes_of_x ? static_cast<double>(r.scale) * (q[static_cast<size_t>(e)] - r.zero)
                     : static_cast<double>(row[e]);
    }
  }
  std::vector<double> y(static_cast<size_t>(m * n), 0);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t e = 0; e < k; ++e) {
        y[static_cast<size_t>(i * n + j)] +=
            xq[static_cast<size_t>(i * k + e)] * wq[static_cast<size_t>(j * k + e)];
      }
    }
  }
  return y;
}

class Int8GemmTest : public GemmTest {
 protected:
  // Fewer elements than a block of the library's format, and more; a last panel that is not full.
  static constexpr int64_t kIn = 150, kOut = 610;
  void SetUp() override {
    GemmTest::SetUp();
    int8_ = std::make_unique<Int8Gemm>(*pool_, scratch_, matmuls_);
  }
  std::unique_ptr<Int8Gemm> int8_;

  Status run(const CpuMatrix& w, const std::vector<float>& x, int64_t m, float* y,
             bool accumulate) {
    if (w.int8()) {
      return int8_->run(static_cast<const Int8Matrix&>(w), x.data(), m, y, accumulate);
    }
    return gemm_->run(static_cast<const FloatMatrix&>(w), x.data(), m, y, accumulate);
  }
};

TEST_F(Int8GemmTest, ProductsOfBytesInBothArithmetics) {
  // Two parts, one row of zeros, one of values that are all of one sign.
  auto values = normal(static_cast<size_t>(kIn * kOut));
  std::fill_n(values.begin() + 3 * kIn, kIn, 0.0f);
  for (int64_t e = 0; e < kIn; ++e)
    values[static_cast<size_t>(70 * kIn + e)] = -1.0f - static_cast<float>(e);
  const auto split = values.begin() + 100 * kIn;
  const auto a = make_stored("a", {values.begin(), split}, {100, kIn}, DType::f32);
  const auto b = make_stored("b", {split, values.end()}, {kOut - 100, kIn}, DType::f32);
  const TensorView* const parts[] = {&a->view, &b->view};
  for (const auto arithmetic : {Int8Gemm::Arithmetic::best, Int8Gemm::Arithmetic::f32}) {
    auto packed = int8_->pack(parts, arithmetic);
    ASSERT_TRUE(packed.is_ok()) << packed.status().message();
    const CpuMatrix& w = **packed;
    if (arithmetic == Int8Gemm::Arithmetic::f32) {
      EXPECT_FALSE(w.int8());
    }
    EXPECT_LT(w.bytes(), static_cast<size_t>(kIn * kOut) * 2 + 8192);
    for (const int64_t m : {1, 5, 260}) {
      auto x = normal(static_cast<size_t>(m * kIn));
      if (m > 1) {
        std::fill_n(x.begin() + kIn, kIn, 0.0f);  // a row of zeros, one that is never negative
        for (int64_t e = 0; e < kIn; ++e) x[static_cast<size_t>(2 * kIn + e)] += 100.0f;
      }
      const auto want = int8_product(values, x, m, kOut, kIn, w.int8());
      const auto before = normal(static_cast<size_t>(m * kOut));
      for (const bool accumulate : {false, true}) {
        auto y = before;
        ASSERT_TRUE(run(w, x, m, y.data(), accumulate).is_ok());
        for (size_t i = 0; i < y.size(); ++i) {
          const double expected = want[i] + (accumulate ? static_cast<double>(before[i]) : 0.0);
          ASSERT_NEAR(y[i], expected, 1e-3 + 1e-5 * std::abs(expected)) << m << ": " << i;
        }
      }
    }
  }
}

TEST_F(Int8GemmTest, ARowIsTheSameAloneAndAmongOthers) {
  const auto w = make_stored("w", normal(static_cast<size_t>(kIn * kOut)), {kOut, kIn}, DType::f16);
  const TensorView* part = &w->view;
  auto packed = int8_->pack({&part, 1});
  ASSERT_TRUE(packed.is_ok());
  if (!(*packed)->int8()) GTEST_SKIP() << "no integer products on this machine";
  constexpr int64_t kRows = 300;
  const auto x = normal(kRows * kIn);
  std::vector<float> all(kRows * kOut), one(kOut);
  ASSERT_TRUE(run(**packed, x, kRows, all.data(), false).is_ok());
  for (const int64_t i : {0, 77, 299}) {
    const std::vector<float> row(x.begin() + i * kIn, x.begin() + (i + 1) * kIn);
    ASSERT_TRUE(run(**packed, row, 1, one.data(), false).is_ok());
    EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + i * kOut)) << i;
  }
}

TEST_F(Int8GemmTest, RowsTooLongFor32BitsAreSummedAsFloats) {
  // 255 * 127 * k would be more than an int32 holds.
  constexpr int64_t kLong = 70000;
  const auto w = make_stored("w", std::vector<float>(kLong, 0.5f), {1, kLong}, DType::f32);
  const TensorView* part = &w->view;
  auto packed = int8_->pack({&part, 1});
  ASSERT_TRUE(packed.is_ok());
  float y = 0;
  ASSERT_TRUE(run(**packed, std::vector<float>(kLong, 2.0f), 1, &y, false).is_ok());
  EXPECT_NEAR(y, 70000.0f, 1.0f);
}

TEST_F(Int8GemmTest, NumbersThatAreNoneComeThrough) {
  const auto w = make_stored("w", normal(static_cast<size_t>(kIn * kOut)), {kOut, kIn}, DType::f32);
  const TensorView* part = &w->view;
  auto packed = int8_->pack({&part, 1});
  ASSERT_TRUE(packed.is_ok());
  for (const float odd : {NAN, INFINITY, -INFINITY}) {
    for (const size_t at : {size_t{0}, size_t{kIn - 1}}) {
      auto x = normal(2 * kIn);
      x[at] = odd;
      std::vector<float> y(2 * kOut);
      ASSERT_TRUE(run(**packed, x, 2, y.data(), false).is_ok());
      for (int64_t j = 0; j < kOut; ++j) {
        ASSERT_FALSE(std::isfinite(y[static_cast<size_t>(j)])) << odd;
        ASSERT_TRUE(std::isfinite(y[static_cast<size_t>(kOut + j)])) << odd;
      }
    }
  }
  std::vector<float> values = normal(static_cast<size_t>(kIn * kOut));
  values[200 * kIn + 5] = NAN;
  const auto damaged = make_stored("damaged", values, {kOut, kIn}, DType::f32);
  part = &damaged->view;
  const auto refused = int8_->pack({&part, 1});
  ASSERT_EQ(refused.status().code(), BLEND_E_NUMERIC);
  EXPECT_NE(refused.status().message().find("'damaged' holds a NaN at [200, 5]"), std::string::npos)
      << refused.status().message();
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

TEST(TilePlan, SmallProductsOfManyRowsAreWholeRows) {
  for (const int64_t m : {256, 300, 512, 513, 3072}) {
    const TilePlan p = plan_tiles(m, 576, 576, 2);
    EXPECT_EQ(p.columns, 576) << m;
    EXPECT_EQ(p.column_tiles, 1) << m;
    EXPECT_EQ(p.row_tiles % 2, 0) << m;
  }
  EXPECT_GT(plan_tiles(512, 8192, 2048, 2).column_tiles, 1);  // W is read once
  EXPECT_GT(plan_tiles(77, 576, 576, 2).column_tiles, 1);     // each thread would have few rows
  EXPECT_EQ(plan_tiles(512, 576, 576, 2, 256).columns, 256);  // no more than was asked
}

}  // namespace
}  // namespace blend::cpu
