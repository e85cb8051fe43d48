#include "cpu/digit_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "cpu/few_rows.h"
#include "formats/weight_blocks.h"
#include "support/isa.h"
#include "support/random_blocks.h"

namespace blend::kernels {
namespace {

class DigitRows : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { test::compute_as(GetParam()); }
  void TearDown() override { test::compute_as(test::kUncapped); }

  std::vector<float> normal(size_t n) {
    std::normal_distribution<float> dist;
    std::vector<float> v(n);
    for (float& x : v) x = dist(rng_);
    return v;
  }
  // y = x W^T of rows of W that begin at an odd address, into rows that are apart.
  std::vector<float> product(BlockType blocks, const std::string& w, const std::vector<float>& x,
                             size_t first, size_t m, size_t n, bool reference) {
    const size_t k = x.size() / kRows;
    std::vector<std::byte> odd(1 + w.size());
    std::memcpy(odd.data() + 1, w.data(), w.size());
    std::vector<float> y(m * (n + 2), 7.0f);
    FewRows p{x.data() + first * k, odd.data() + 1, y.data(), m, k, n, n + 2, DType::f32, blocks};
    p.accumulate = true;
    if (reference) {
      few_rows_ref(p);
    } else {
      auto packed = AlignedBuffer::allocate(m * DigitRow::bytes(k));
      digit_rows_pack(p.x, m, k, packed->data());
      p.x = nullptr;
      p.digits = packed->data();
      digit_rows(p);
    }
    return y;
  }
  std::vector<BlockType> taken() const {
    std::vector<BlockType> types;
    for (int type = 1; type < kBlockTypes; ++type) {
      if (digit_rows_take(static_cast<BlockType>(type))) {
        types.push_back(static_cast<BlockType>(type));
      }
    }
    return types;
  }

  static constexpr size_t kRows = 5;
  std::mt19937 rng_{11};
};

// Elsewhere the other tests have nothing to look at.
TEST_P(DigitRows, AreTakenWithAvx2AndVnni) {
  const bool taking = std::string(simd_name()) == "AVX2" || int8_path() == Int8Path::avx512_vnni;
  EXPECT_EQ(!taken().empty(), taking);
}

// Lengths that leave units of fewer than eight blocks, counts of rows of W and of x that leave
// rests.
TEST_P(DigitRows, AreTheProduct) {
  test::SplitMix random(5);
  for (const BlockType blocks : taken()) {
    for (const size_t units : {size_t{1}, size_t{3}, size_t{11}}) {
      const size_t k = units * block_elements(blocks), n = 7;
      const std::string w = test::random_blocks(blocks, n * k, 1.0, random);
      const auto x = normal(kRows * k);
      const auto want = product(blocks, w, x, 0, kRows, n, true);
      for (const size_t m : {size_t{1}, size_t{2}, size_t{3}, kRows}) {
        for (size_t first = 0; first + m <= kRows; ++first) {
          const auto y = product(blocks, w, x, first, m, n, false);
          for (size_t i = 0; i < m * (n + 2); ++i) {
            // Half of what few_rows may be off by.
            const double near = i % (n + 2) < n ? 1e-5 * std::sqrt(static_cast<double>(k)) : 0.0;
            ASSERT_NEAR(y[i], want[first * (n + 2) + i], near)
                << block_type_name(blocks) << " k " << k << " m " << m << " element " << i;
          }
        }
      }
    }
  }
}

TEST_P(DigitRows, OfARowDoNotDependOnOthers) {
  test::SplitMix random(6);
  for (const BlockType blocks : taken()) {
    const size_t k = 9 * 256, n = 5;
    const std::string w = test::random_blocks(blocks, n * k, 1.0, random);
    const auto x = normal(kRows * k);
    const auto all = product(blocks, w, x, 0, kRows, n, false);
    for (size_t i = 0; i < kRows; ++i) {
      const auto alone = product(blocks, w, x, i, 1, n, false);
      for (size_t j = 0; j < n; ++j) {
        ASSERT_EQ(alone[j], all[i * (n + 2) + j]) << block_type_name(blocks) << " " << i;
      }
    }
  }
}

// All bits of x, the greatest digits and codes: no sum of two products may be cut.
TEST_P(DigitRows, DoNotOverflow) {
  for (const BlockType blocks : taken()) {
    const size_t k = 256, n = 2;
    std::string w(n * weight_row_bytes(DType::f32, blocks, k), '\xff');
    // Halves of one where a scale is, which of all ones would be no number.
    std::vector<float> decoded(n * k);
    const auto set_halves = [&](size_t at, size_t stride) {
      for (size_t i = at; i + 1 < w.size(); i += stride) w[i] = '\x00', w[i + 1] = '\x38';
    };
    const size_t bytes = block_bytes(blocks);
    for (const size_t at : {size_t{0}, size_t{2}, bytes - 4, bytes - 2}) {
      blend::decode_blocks(blocks, reinterpret_cast<const std::byte*>(w.data()), n * k,
                           decoded.data());
      const bool finite =
          std::all_of(decoded.begin(), decoded.end(), [](float v) { return std::isfinite(v); });
      if (!finite) set_halves(at, bytes);
    }
    blend::decode_blocks(blocks, reinterpret_cast<const std::byte*>(w.data()), n * k,
                         decoded.data());
    if (!std::isfinite(decoded[0])) continue;  // MXFP4 of the greatest exponent
    for (const float sign : {1.0f, -1.0f}) {
      const std::vector<float> x(kRows * k, sign * 1.99999994f);
      const auto want = product(blocks, w, x, 0, 1, n, true);
      const auto y = product(blocks, w, x, 0, 1, n, false);
      for (size_t j = 0; j < n; ++j) {
        EXPECT_NEAR(y[j], want[j], 4e-6 * std::abs(want[j])) << block_type_name(blocks);
      }
    }
  }
}

// 20 bits of the greatest of 32 are kept, whatever its size; what is not finite stays so.
TEST_P(DigitRows, KeepWhatTheyAreOf) {
  if (taken().empty()) GTEST_SKIP() << "not with " << GetParam();
  const size_t k = 96;
  for (const float size : {1e-29f, 1e-12f, 1.0f, 3e4f, 1e38f}) {
    std::vector<float> x = normal(k);
    for (float& v : x) v *= size * 0.3f;
    auto packed = AlignedBuffer::allocate(DigitRow::bytes(k));
    digit_rows_pack(x.data(), 1, k, packed->data());
    const DigitRow row(packed->data(), k);
    for (size_t g = 0; g < k / kDigitGroup; ++g) {
      float greatest = 0;
      double sums[2] = {};
      for (size_t i = 0; i < kDigitGroup; ++i) {
        const auto digit = [&](size_t d) {
          return static_cast<int>(row.digits[DigitRow::at(g) + d * DigitRow::kDigitStride + i]);
        };
        for (size_t d = 0; d < 3; ++d) ASSERT_LE(std::abs(digit(d)), 64);
        const double got =
            static_cast<double>(row.scale[g]) * (digit(0) + digit(1) * 128.0 + digit(2) * 16384.0);
        greatest = std::max(greatest, std::abs(x[g * kDigitGroup + i]));
        ASSERT_NEAR(got, x[g * kDigitGroup + i], 0.5001 * row.scale[g]);
        sums[i / 16] += got;
      }
      EXPECT_LE(row.scale[g], greatest * 0x1p-19f);
      for (size_t half = 0; half < 2; ++half) {
        EXPECT_EQ(row.half_scale[2 * g + half], row.scale[g]);
        EXPECT_NEAR(row.half_sum[2 * g + half], sums[half], 1e-6 * 16 * greatest);
      }
      EXPECT_NEAR(row.sum[g], sums[0] + sums[1], 1e-6 * 32 * greatest);
    }
  }
  test::SplitMix random(8);
  const std::string w = test::random_blocks(BlockType::q5_0, k, 1.0, random);
  for (const float odd : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x(kRows * k, 1.0f);
    x[40] = odd;
    EXPECT_TRUE(std::isnan(product(BlockType::q5_0, w, x, 0, 1, 1, false)[0])) << odd;
    EXPECT_TRUE(std::isfinite(product(BlockType::q5_0, w, x, 1, 1, 1, false)[0]));
  }
  for (const float tiny : {0.0f, 1e-38f, 1e-42f}) {  // less than any weight makes visible
    const std::vector<float> x(kRows * k, tiny);
    EXPECT_EQ(product(BlockType::q5_0, w, x, 0, 1, 1, false)[0], 7.0f) << tiny;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, DigitRows, testing::ValuesIn(test::machine_isas()),
                         [](const auto& tested) { return test::isa_test_name(tested.param); });

}  // namespace
}  // namespace blend::kernels
