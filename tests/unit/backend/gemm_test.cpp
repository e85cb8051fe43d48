// The CPU GEMM by itself: every form of weights under every instruction set of this machine,
// against loops in double, and the tile plan.
#include "backend/cpu/gemm.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "backend/cpu/grain.h"
#include "backend/cpu/int8_gemm.h"
#include "backend/cpu/sizes.h"
#include "cpu/gemm_f32.h"
#include "cpu/int8_rows.h"
#include "support/isa.h"
#include "support/random_blocks.h"
#include "unit/backend/ops_test.h"

namespace blend::cpu {
namespace {

using test::make_stored;

class GemmTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    test::compute_as(GetParam());
    auto pool = ThreadPool::create(3);
    ASSERT_TRUE(pool.is_ok());
    pool_ = std::move(pool.value());
    gemm_ = std::make_unique<Gemm>(*pool_, scratch_);
  }
  void TearDown() override { test::compute_as(test::kUncapped); }
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

TEST_P(GemmTest, PackedPartsOfEveryType) {
  // Large enough for tiles in both directions with remainders, and two of the depth's parts.
  const int64_t k = 300, n = 1100;
  for (const DType dtype : test::kDTypes) {
    const auto w = make_stored("w", normal(static_cast<size_t>(n * k)), {n, k}, dtype);
    const TensorView* part = &w->view;
    auto packed = gemm_->pack({&part, 1});
    ASSERT_TRUE(packed.is_ok()) << packed.status().message();
    const bool narrow = dtype == DType::bf16 || (dtype == DType::f16 && kernels::gemm_widens_f16());
    EXPECT_EQ((*packed)->dtype(), narrow ? dtype : DType::f32);
    EXPECT_GE((*packed)->bytes(), static_cast<size_t>(n * k) * (narrow ? 2 : 4));
    for (const int64_t m : {1, 2, 3, 4, 5, 9, 200, 519}) {
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
                << dtype_name(dtype) << " " << m << ": " << i << ", " << j;
          }
        }
      }
    }
  }
}

TEST_P(GemmTest, PartsOfSeveralTypesAreOneOfF32) {
  const int64_t k = 40;
  const auto a = make_stored("a", normal(30 * 40), {30, k}, DType::f16);
  const auto b = make_stored("b", normal(7 * 40), {7, k}, DType::bf16);
  const TensorView* parts[] = {&a->view, &b->view};
  auto packed = gemm_->pack(parts);
  ASSERT_TRUE(packed.is_ok());
  EXPECT_EQ((*packed)->dtype(), DType::f32);
  const auto x = normal(40);
  std::vector<float> y(37);
  ASSERT_TRUE(gemm_->run(**packed, x.data(), 1, y.data(), false).is_ok());
  for (size_t j = 0; j < 37; ++j) {
    const float* const row = j < 30 ? a->values.data() + j * 40 : b->values.data() + (j - 30) * 40;
    double want = 0;
    for (size_t e = 0; e < 40; ++e) want += static_cast<double>(x[e]) * static_cast<double>(row[e]);
    EXPECT_NEAR(y[j], want, 1e-4);
  }
}

TEST_P(GemmTest, ARowHasTheSameBitsAloneAmongOthersAndOnAnyThreads) {
  const int64_t k = 600, n = 500, m = 300;
  const auto w = make_stored("w", normal(static_cast<size_t>(n * k)), {n, k}, DType::f16);
  const TensorView* part = &w->view;
  auto packed = gemm_->pack({&part, 1});
  ASSERT_TRUE(packed.is_ok());
  const auto x = normal(static_cast<size_t>(m * k));
  std::vector<float> all(static_cast<size_t>(m * n)), some(all.size());
  ASSERT_TRUE(gemm_->run(**packed, x.data(), m, all.data(), false).is_ok());
  const auto one = std::move(*ThreadPool::create(1));
  Gemm alone(*one, scratch_);
  for (const int64_t rows : {1, 4, 5, 77, 300}) {
    for (Gemm* gemm : {gemm_.get(), &alone}) {
      ASSERT_TRUE(gemm->run(**packed, x.data(), rows, some.data(), false).is_ok());
      EXPECT_EQ(std::memcmp(some.data(), all.data(), static_cast<size_t>(rows * n) * 4), 0) << rows;
    }
  }
}

TEST_P(GemmTest, MappedPartsOfEveryType) {
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
    for (const int64_t m : {1, 7, 24, 25, 32, 33, 48, 49, 300, 530}) {
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

// A row's bits are the same however many rows a step has, though the form of x changes with their
// number.
TEST_P(GemmTest, MappedStepsHaveTheBitsOfOneAlone) {
  test::SplitMix random(4);
  const int64_t k = 512, n_plain = 40, n_blocks = 90, n = n_plain + n_blocks, most = 24;
  const auto plain =
      make_stored("w", normal(static_cast<size_t>(n_plain * k)), {n_plain, k}, DType::f16);
  const std::string q4 =
      test::random_blocks(BlockType::q4_k, static_cast<uint64_t>(n_blocks * k), 1.0, random);
  TensorView views[] = {plain->view, plain->view};
  views[1].dtype = DType::f32;
  views[1].shape = {n_blocks, k}, views[1].blocks = BlockType::q4_k;
  views[1].data = reinterpret_cast<const std::byte*>(q4.data());
  const TensorView* parts[] = {&views[0], &views[1]};
  auto stacked = StackedParts::of(parts);
  ASSERT_TRUE(stacked.is_ok());
  const MappedMatrix mapped(std::move(*stacked));
  const auto x = normal(static_cast<size_t>(most * k));
  std::vector<float> alone(static_cast<size_t>(most * n)), y(alone.size());
  for (int64_t i = 0; i < most; ++i) {
    ASSERT_TRUE(gemm_->run(mapped, x.data() + i * k, 1, alone.data() + i * n, false).is_ok());
  }
  for (const int64_t m : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{8}, most}) {
    std::fill(y.begin(), y.end(), 0.0f);
    ASSERT_TRUE(gemm_->run(mapped, x.data(), m, y.data(), false, true).is_ok());
    EXPECT_EQ(std::memcmp(y.data(), alone.data(), static_cast<size_t>(m * n) * 4), 0) << m;
    std::fill(y.begin(), y.end(), 0.0f);
    const Gemm::Product product{&mapped, x.data(), m, y.data(), true};
    ASSERT_TRUE(gemm_->run_each({&product, 1}).is_ok());
    EXPECT_EQ(std::memcmp(y.data(), alone.data(), static_cast<size_t>(m * n) * 4), 0) << m;
  }
}

TEST_P(GemmTest, PartsMustFit) {
  const auto a = make_stored("a", normal(6), {2, 3}, DType::f32);
  const auto b = make_stored("b", normal(8), {2, 4}, DType::f32);
  const TensorView* parts[] = {&a->view, &b->view};
  EXPECT_EQ(StackedParts::of(parts).status().code(), BLEND_E_INTERNAL);
  EXPECT_EQ(gemm_->pack(parts).status().code(), BLEND_E_INTERNAL);
  EXPECT_EQ(StackedParts::of({}).status().code(), BLEND_E_INTERNAL);
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
    int8_ = std::make_unique<Int8Gemm>(*pool_, scratch_);
  }
  std::unique_ptr<Int8Gemm> int8_;

  static bool is_int8(const CpuMatrix& w) { return w.kind() == CpuMatrix::Kind::int8; }
  Status run(const CpuMatrix& w, const std::vector<float>& x, int64_t m, float* y,
             bool accumulate) {
    if (is_int8(w)) {
      return int8_->run(static_cast<const Int8Matrix&>(w), x.data(), m, y, accumulate);
    }
    return gemm_->run(static_cast<const DecodedMatrix&>(w), x.data(), m, y, accumulate);
  }
};

TEST_P(Int8GemmTest, ProductsOfBytesInBothArithmetics) {
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
      EXPECT_FALSE(is_int8(w));
    }
    EXPECT_LT(w.bytes(), static_cast<size_t>(kIn * kOut) * 2 + 8192);
    for (const int64_t m : {1, 5, 260}) {
      auto x = normal(static_cast<size_t>(m * kIn));
      if (m > 1) {
        std::fill_n(x.begin() + kIn, kIn, 0.0f);  // a row of zeros, one that is never negative
        for (int64_t e = 0; e < kIn; ++e) x[static_cast<size_t>(2 * kIn + e)] += 100.0f;
      }
      const auto want = int8_product(values, x, m, kOut, kIn, is_int8(w));
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

TEST_P(Int8GemmTest, ARowIsTheSameAloneAndAmongOthers) {
  const auto w = make_stored("w", normal(static_cast<size_t>(kIn * kOut)), {kOut, kIn}, DType::f16);
  const TensorView* part = &w->view;
  auto packed = int8_->pack({&part, 1});
  ASSERT_TRUE(packed.is_ok());
  // Without integer products f32 is used instead.
  if (!is_int8(**packed)) return;
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

TEST_P(Int8GemmTest, NoRowsAreNoProduct) {
  const auto w = make_stored("w", normal(static_cast<size_t>(kIn * kOut)), {kOut, kIn}, DType::f16);
  const TensorView* part = &w->view;
  auto f32 = gemm_->pack({&part, 1});
  ASSERT_TRUE(f32.is_ok());
  EXPECT_TRUE(gemm_->run(**f32, nullptr, 0, nullptr, false).is_ok());
  for (const auto arithmetic : {Int8Gemm::Arithmetic::best, Int8Gemm::Arithmetic::f32}) {
    auto packed = int8_->pack({&part, 1}, arithmetic);
    ASSERT_TRUE(packed.is_ok());
    EXPECT_TRUE(run(**packed, {}, 0, nullptr, true).is_ok());
  }
}

TEST_P(Int8GemmTest, RowsTooLongFor32BitsAreSummedAsFloats) {
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

TEST_P(Int8GemmTest, NumbersThatAreNoneComeThrough) {
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

INSTANTIATE_TEST_SUITE_P(Isas, GemmTest, testing::ValuesIn(test::machine_isas()),
                         [](const auto& tested) { return test::isa_test_name(tested.param); });
INSTANTIATE_TEST_SUITE_P(Isas, Int8GemmTest, testing::ValuesIn(test::machine_isas()),
                         [](const auto& tested) { return test::isa_test_name(tested.param); });

// Register tiles of each shape.
constexpr TileUnits kUnits[] = {{14, 32, 1024}, {6, 16, 256}, {12, 8, 128}, {14, 32, 3}};

TEST(TilePlan, CoversEveryShapeOnce) {
  for (const TileUnits& units : kUnits) {
    for (const int64_t m : {1, 7, 14, 77, 257, 512, 3137}) {
      for (const int64_t n : {1, 31, 32, 65, 576, 2048, 128256}) {
        for (const uint32_t threads : {1u, 2u, 7u, 64u}) {
          for (const int64_t most_columns : {int64_t{100}, int64_t{1024}, INT64_MAX}) {
            TileUnits limited = units;
            limited.most_columns = most_columns;
            const TilePlan p = plan_tiles(m, n, 2048, threads, limited);
            ASSERT_EQ(p.columns % units.columns, 0);
            ASSERT_EQ(p.rows % units.rows, 0);
            ASSERT_LE(p.columns, align(std::min(n, most_columns), units.columns));
            ASSERT_LE(p.rows, align(std::max(units.rows, units.most_rows), units.rows));
            std::set<std::pair<int64_t, int64_t>> seen;
            int64_t elements = 0;
            for (size_t i = 0; i < p.n_tiles(); ++i) {
              const Tile t = p.tile(i);
              ASSERT_TRUE(seen.insert({t.row, t.column}).second);
              ASSERT_EQ(t.row % p.rows, 0);
              ASSERT_EQ(t.column % p.columns, 0);
              ASSERT_EQ(t.rows, std::min(p.rows, m - t.row));
              ASSERT_EQ(t.columns, std::min(p.columns, n - t.column));
              elements += t.rows * t.columns;
            }
            ASSERT_EQ(elements, m * n);
          }
        }
      }
    }
  }
}

// Threads that begin together do not share columns, and all rows go by before new columns come.
TEST(TilePlan, NeighboursTakeColumnsInTurn) {
  for (const TileUnits& units : {kUnits[0], kUnits[1], kUnits[2]}) {
    for (const uint32_t threads : {2u, 3u, 8u}) {
      const TilePlan p = plan_tiles(512, 8192, 2048, threads, units);
      if (p.column_tiles < threads) continue;
      const int64_t together = p.row_tiles * threads;
      for (int64_t i = 0; i + threads <= p.column_tiles / threads * together; i += threads) {
        std::set<int64_t> columns;
        for (uint32_t t = 0; t < threads; ++t) {
          columns.insert(p.tile(static_cast<size_t>(i + t)).column / p.columns);
        }
        ASSERT_EQ(columns.size(), threads);
        ASSERT_EQ(*columns.begin(), i / together * threads);
        ASSERT_EQ(*columns.rbegin(), i / together * threads + threads - 1);
      }
    }
  }
}

TEST(TilePlan, ThreadsHaveNearlyTheSame) {
  for (const TileUnits& units : {kUnits[0], kUnits[1], kUnits[2]}) {
    for (const int64_t m : {77, 512, 3072}) {
      for (const int64_t n : {576, 1536, 2048, 8192}) {
        for (const uint32_t threads : {2u, 4u, 8u}) {
          const TilePlan p = plan_tiles(m, n, 2048, threads, units);
          EXPECT_GE(p.n_tiles(), 2 * threads);
          const int64_t most =
              ceil_div(static_cast<int64_t>(p.n_tiles()), threads) * p.rows * p.columns;
          EXPECT_LT(static_cast<double>(most) * threads, 1.3 * static_cast<double>(m * n))
              << units.columns << ": " << m << " x " << n << " on " << threads;
        }
      }
    }
  }
}

// 576 columns in panels of 32 on two threads: of four tiles, 160, 160, 160 and 96 wide, one thread
// would have 320 columns and the other 256.
TEST(TilePlan, LastTilesThatAreSmallerDoNotCount) {
  const TilePlan p = plan_tiles(77, 576, 576, 2, kUnits[0]);
  int64_t work[2] = {};
  for (size_t i = 0; i < p.n_tiles(); ++i) {
    const Tile t = p.tile(i);
    work[i % 2] += align(t.rows, 14) * t.columns;
  }
  EXPECT_EQ(work[0], work[1]);
}

TEST(TilePlan, NextColumnIsThatOfTheThreadsNextTile) {
  const TilePlan p = plan_tiles(77, 2048, 2048, 2, kUnits[0]);
  ASSERT_EQ(p.row_tiles, 1);
  for (size_t i = 0; i + 2 < p.n_tiles(); ++i) {
    EXPECT_EQ(p.next_column(i), p.tile(i + 2).column) << i;
  }
  EXPECT_FALSE(p.next_column(p.n_tiles() - 2));
  EXPECT_FALSE(p.next_column(p.n_tiles() - 1));
  // A column whose rows are computed first is there already.
  const TilePlan rows = plan_tiles(3072, 2048, 2048, 2, kUnits[0]);
  ASSERT_GT(rows.row_tiles, 1);
  EXPECT_FALSE(rows.next_column(0));
}

TEST(Grain, GivesThreadsAsManyPieces) {
  EXPECT_EQ(even_grain(6, 2, 2), 3u);   // two pieces, not three
  EXPECT_EQ(even_grain(6, 6, 2), 6u);   // one piece stays one
  EXPECT_EQ(even_grain(37, 2, 2), 3u);  // 13 pieces
  EXPECT_EQ(even_grain(3, 1, 8), 1u);   // fewer than threads: as they are
  EXPECT_EQ(even_grain(1000, 1, 4), 1u);
}

TEST(TilePlan, PiecesOfFewRowsCoverAllPanels) {
  EXPECT_EQ(panels_per_piece(18, 576 * 32, 1, 2), 2);    // four a thread
  EXPECT_EQ(panels_per_piece(256, 2048 * 32, 1, 2), 8);  // 512 Ki weights
  EXPECT_EQ(panels_per_piece(4008, 2048 * 32, 1, 64), 8);
  EXPECT_EQ(panels_per_piece(3, 100, 1, 8), 3);  // not worth sharing
  EXPECT_EQ(panels_per_piece(5, 1 << 20, 1, 8), 1);
}

}  // namespace
}  // namespace blend::cpu
