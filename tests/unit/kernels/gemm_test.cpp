// The register tiles of the GEMM, under every instruction set of this machine, against scalar
// references; and that their bits do not depend on where an element stands.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "base/buffer.h"
#include "cpu/gemm_f32.h"
#include "cpu/gemm_int8.h"
#include "cpu/gemm_pack.h"
#include "formats/half.h"
#include "support/isa.h"

namespace blend::kernels {
namespace {

class GemmKernels : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { test::compute_as(GetParam()); }
  void TearDown() override { test::compute_as(test::kUncapped); }

  std::vector<float> normal(size_t n) {
    std::normal_distribution<float> dist;
    std::vector<float> v(n);
    for (float& x : v) x = dist(rng_);
    return v;
  }
  std::mt19937 rng_{17};
};

// Rows of `k` elements of four bytes, in blocks or panels of `unit`.
template <class T>
AlignedBuffer in_units(const std::vector<T>& rows, size_t n, size_t k, size_t unit) {
  const size_t n_units = (n + unit - 1) / unit;
  auto out = AlignedBuffer::allocate(n_units * unit * k * sizeof(T));
  for (size_t i = 0; i < n_units; ++i) {
    interleave_rows(rows.data() + i * unit * k, std::min(unit, n - i * unit), k, unit, unit,
                    out->template as<T>() + i * unit * k);
  }
  return std::move(*out);
}

TEST_P(GemmKernels, InterleavesRows) {
  for (const size_t k : {size_t{1}, size_t{3}, size_t{4}, size_t{9}, size_t{70}}) {
    for (const size_t width :
         {size_t{1}, size_t{2}, size_t{4}, size_t{6}, size_t{12}, size_t{14}}) {
      for (size_t n = 1; n <= width; ++n) {
        const auto rows = normal(n * k);
        const size_t stride = width + 3;
        std::vector<float> got(stride * k, 9.0f), want = got;
        interleave_rows(rows.data(), n, k, width, stride, got.data());
        interleave_rows_ref(rows.data(), n, k, width, stride, want.data());
        ASSERT_EQ(got, want) << n << " of " << width << " rows of " << k;
        std::vector<uint16_t> halves(n * k), to(stride * k, 7);
        for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(rng_());
        interleave_rows_16(halves.data(), n, k, width, stride, to.data());
        for (size_t e = 0; e < k; ++e) {
          for (size_t i = 0; i < stride; ++i) {
            const int expected = i >= width ? 7 : i < n ? halves[i * k + e] : 0;
            ASSERT_EQ(to[e * stride + i], expected);
          }
        }
      }
    }
  }
}

// A product of packed operands.
struct Product {
  size_t m, n, k;
  std::vector<float> x, w, y0;
  DType dtype = DType::f32;

  std::vector<float> run(bool accumulate, bool reference, bool as_it_is = false,
                         bool keeps_sums = false) const {
    const GemmShape shape = gemm_shape();
    const AlignedBuffer blocks = in_units(x, m, k, shape.rows);
    AlignedBuffer panels = in_units(w, n, k, shape.columns);
    if (dtype != DType::f32) {
      const size_t elements = panels.bytes() / 4;
      auto narrow = AlignedBuffer::allocate(elements * 2);
      for (size_t i = 0; i < elements; ++i) {
        const float value = panels.as<float>()[i];
        narrow->as<uint16_t>()[i] = dtype == DType::f16 ? f32_to_f16(value) : f32_to_bf16(value);
      }
      panels = std::move(*narrow);
    }
    auto scratch = AlignedBuffer::allocate(kGemmDepth * shape.columns * sizeof(float));
    const auto up = [](size_t a, size_t unit) { return (a + unit - 1) / unit * unit; };
    std::vector<float> sums(up(m, shape.rows) * up(n, shape.columns), std::nanf(""));
    const size_t stride = n + 5;
    std::vector<float> y(m * stride, 77.0f), out(m * n);
    for (size_t i = 0; i < m; ++i) std::copy_n(y0.data() + i * n, n, y.data() + i * stride);
    const GemmTile tile{m,
                        n,
                        k,
                        as_it_is ? x.data() : blocks.as<float>(),
                        as_it_is,
                        panels.data(),
                        dtype,
                        y.data(),
                        stride,
                        accumulate,
                        scratch->as<float>(),
                        keeps_sums ? sums.data() : nullptr};
    reference ? gemm_tile_ref(tile) : gemm_tile(tile);
    for (size_t i = 0; i < m; ++i) {
      std::copy_n(y.data() + i * stride, n, out.data() + i * n);
      for (size_t j = n; j < stride; ++j) EXPECT_EQ(y[i * stride + j], 77.0f);
    }
    return out;
  }
};

TEST_P(GemmKernels, TilesOfEveryHeight) {
  const GemmShape shape = gemm_shape();
  for (size_t m = 1; m <= 2 * shape.rows + 1; ++m) {
    for (const size_t n : {size_t{1}, shape.columns - 1, shape.columns, 5 * shape.columns + 3}) {
      for (const size_t k : {size_t{1}, size_t{7}, kGemmDepth + 13, 2 * kGemmDepth + 13}) {
        for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
          if (k == 7 && dtype != DType::f32) continue;
          const Product p{m, n, k, normal(m * k), normal(n * k), normal(m * n), dtype};
          for (const bool accumulate : {false, true}) {
            const auto got = p.run(accumulate, false), want = p.run(accumulate, true);
            for (size_t i = 0; i < got.size(); ++i) {
              ASSERT_NEAR(got[i], want[i], 1e-4)
                  << m << " x " << n << " x " << k << " " << dtype_name(dtype) << ": " << i;
            }
            // To the bit.
            ASSERT_EQ(p.run(accumulate, false, false, true), got);
            if (m > kRowsAsTheyAre) continue;
            ASSERT_EQ(p.run(accumulate, false, true), got);
          }
        }
      }
    }
  }
}

TEST_P(GemmKernels, ARowHasTheSameBitsAmongAnyOthers) {
  const size_t k = 2 * kGemmDepth + 40, n = 70, m = 31;
  for (const DType dtype : {DType::f32, DType::f16}) {
    Product all{m, n, k, normal(m * k), normal(n * k), normal(m * n), dtype};
    const auto want = all.run(true, false);
    for (const size_t first : {size_t{0}, size_t{5}, size_t{30}}) {
      for (const size_t rows : {size_t{1}, size_t{2}, size_t{4}, size_t{5}, size_t{20}}) {
        if (first + rows > m) continue;
        Product some = all;
        some.m = rows;
        some.x.assign(all.x.begin() + static_cast<long>(first * k),
                      all.x.begin() + static_cast<long>((first + rows) * k));
        some.y0.assign(all.y0.begin() + static_cast<long>(first * n),
                       all.y0.begin() + static_cast<long>((first + rows) * n));
        const auto got = some.run(true, false, rows <= kRowsAsTheyAre);
        ASSERT_EQ(std::memcmp(got.data(), want.data() + first * n, got.size() * sizeof(float)), 0)
            << rows << " rows from " << first;
      }
    }
  }
}

// A product of bytes.
struct Int8Product {
  size_t m, n, k;
  std::vector<uint8_t> q;
  std::vector<int8_t> w;
  std::vector<Int8Row> rows;
  std::vector<float> steps, y0;

  std::vector<float> run(bool accumulate, bool reference, bool as_it_is = false) const {
    const Int8Path path = int8_path();
    const Int8Shape shape = int8_shape(path);
    const size_t n_groups = (k + shape.group - 1) / shape.group;
    std::vector<uint32_t> groups(m * n_groups);
    std::vector<Int8Row> scales = rows;
    for (size_t i = 0; i < m; ++i) {
      int8_groups(path, q.data() + i * k, k, groups.data() + i * n_groups, scales[i]);
    }
    const AlignedBuffer blocks = in_units(groups, m, n_groups, shape.rows);
    const size_t padded = (n + shape.columns - 1) / shape.columns * shape.columns;
    std::vector<int8_t> panels(padded * n_groups * shape.group, 0);
    std::vector<int32_t> sums(padded, 0);
    std::vector<float> all_steps(padded, 0.0f);
    for (size_t j = 0; j < n; ++j) {
      all_steps[j] = steps[j];
      for (size_t e = 0; e < k; ++e) {
        const size_t panel = j / shape.columns * n_groups + e / shape.group;
        panels[(panel * shape.columns + j % shape.columns) * shape.group + e % shape.group] =
            w[j * k + e];
        sums[j] += w[j * k + e];
      }
    }
    std::vector<float> y = y0;
    const size_t units = (m + shape.rows - 1) / shape.rows * shape.rows * padded;
    auto widened = AlignedBuffer::allocate(
        std::max<size_t>(1, shape.depth * shape.columns * shape.group * sizeof(int16_t)));
    auto so_far = AlignedBuffer::allocate(units * sizeof(int32_t));
    if (!widened || !so_far) std::abort();
    std::memset(so_far->data(), 0x77, units * sizeof(int32_t));
    const Int8Tile tile{m,
                        n,
                        n_groups,
                        as_it_is ? groups.data() : blocks.as<uint32_t>(),
                        as_it_is,
                        scales.data(),
                        panels.data(),
                        all_steps.data(),
                        sums.data(),
                        y.data(),
                        n,
                        accumulate,
                        widened->as<int16_t>(),
                        so_far->as<int32_t>()};
    reference ? int8_tile_ref(path, tile) : int8_tile(path, tile);
    return y;
  }
};

Int8Product random_int8(size_t m, size_t n, size_t k, std::mt19937& rng) {
  Int8Product p{m, n, k, {}, {}, {}, {}, {}};
  // Extremes often: what saturates anywhere shows.
  for (size_t i = 0; i < m * k; ++i) {
    p.q.push_back(rng() % 3 == 0 ? uint8_t{255} : static_cast<uint8_t>(rng()));
  }
  for (size_t i = 0; i < n * k; ++i) {
    const auto some = static_cast<int8_t>(static_cast<int>(rng() % 255) - 127);
    p.w.push_back(rng() % 3 == 0 ? int8_t{127} : rng() % 3 == 0 ? int8_t{-127} : some);
  }
  for (size_t i = 0; i < m; ++i) {
    p.rows.push_back({0.01f + 1e-4f * static_cast<float>(i), static_cast<int32_t>(rng() % 256)});
  }
  for (size_t j = 0; j < n; ++j) p.steps.push_back(1e-3f * static_cast<float>(1 + rng() % 100));
  for (size_t i = 0; i < m * n; ++i) p.y0.push_back(static_cast<float>(rng() % 100));
  return p;
}

TEST_P(GemmKernels, ProductsOfBytes) {
  const Int8Shape shape = int8_shape(int8_path());
  if (shape.group == 0) return;  // f32 takes its place here (Int8Rows)
  std::vector<size_t> counts(2 * shape.rows + 1);
  std::iota(counts.begin(), counts.end(), size_t{1});
  counts.push_back(shape.whole / 3 * 3 + 4);  // for which k is cut
  for (const size_t m : counts) {
    for (const size_t n : {size_t{1}, shape.columns - 1, 5 * shape.columns + 3}) {
      // The last is of some parts where k is cut.
      for (const size_t k : {size_t{1}, size_t{6}, size_t{301}, size_t{2557}}) {
        if (k > 301 && m % 3 != 1) continue;  // some, for the references' time
        const Int8Product p = random_int8(m, n, k, rng_);
        for (const bool accumulate : {false, true}) {
          const auto got = p.run(accumulate, false), want = p.run(accumulate, true);
          for (size_t i = 0; i < got.size(); ++i) {
            ASSERT_NEAR(got[i], want[i], 1e-6 * std::abs(want[i]) + 1e-5)
                << m << " x " << n << " x " << k << ": " << i;
          }
          if (m > kInt8RowsAsTheyAre) continue;
          ASSERT_EQ(p.run(accumulate, false, true), got);
          ASSERT_EQ(p.run(accumulate, true, true), want);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, GemmKernels, testing::ValuesIn(test::machine_isas()),
                         [](const auto& tested) { return test::isa_test_name(tested.param); });

constexpr uint64_t kFusedHash = 8294841733796292051u, kBytesHash = 18412109752235215657u;

// These inputs are the same on every machine: numbers of few bits from a generator that the
// standard fixes, and sums whose order is fixed.
uint64_t hash_of(const std::vector<float>& y) {
  uint64_t hash = 1469598103934665603u;  // FNV-1a
  for (const float v : y) {
    uint32_t bits = 0;
    std::memcpy(&bits, &v, sizeof bits);
    for (int i = 0; i < 32; i += 8) hash = (hash ^ (bits >> i & 0xff)) * 1099511628211u;
  }
  return hash;
}

TEST(GemmBits, DoNotDependOnTheMachine) {
  std::mt19937 rng(23);
  const auto number = [&] {
    return static_cast<float>(static_cast<int>(rng() % 20001) - 10000) * 0x1p-13f;
  };
  Product p{29, 75, kGemmDepth + 30, {}, {}, {}, DType::f32};
  for (size_t i = 0; i < p.m * p.k; ++i) p.x.push_back(number());
  for (size_t i = 0; i < p.n * p.k; ++i) p.w.push_back(number());
  for (size_t i = 0; i < p.m * p.n; ++i) p.y0.push_back(number());
  const Int8Product bytes = random_int8(29, 75, 130, rng);
  for (const std::string& isa : test::machine_isas()) {
    test::compute_as(isa);
    if (std::string(simd_name()) != "SSE4") {  // which rounds twice
      EXPECT_EQ(hash_of(p.run(true, false)), kFusedHash) << isa;
    }
    if (int8_shape(int8_path()).group == 0) continue;
    EXPECT_EQ(hash_of(bytes.run(true, false)), kBytesHash) << isa;
  }
  test::compute_as(test::kUncapped);
}

}  // namespace
}  // namespace blend::kernels
