// Products of a few rows of x with weights of every type, against their scalar references.
#include "cpu/few_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "cpu/block_decode.h"
#include "cpu/int8_rows.h"
#include "support/random_blocks.h"
#include "unit/kernels/kernels_case.h"

namespace blend::kernels {
namespace {

// Every type (-3: integers with a step a row), counts of rows that leave every rest, and rows of x
// and W that begin anywhere.
TEST_P(Kernels, FewRows) {
  test::SplitMix random(7);
  for (int type = -3; type < kBlockTypes; ++type) {
    const auto blocks = type <= 0 ? BlockType::none : static_cast<BlockType>(type);
    const auto dtype = type == -2 ? DType::bf16 : type == -1 ? DType::f16 : DType::f32;
    for (const size_t k : {size_t{5}, size_t{83}, 3 * block_elements(blocks)}) {
      if (k % block_elements(blocks) != 0) continue;
      constexpr size_t kMostRows = 15, n = 7, kStride = n + 2;
      const size_t row_bytes = weight_row_bytes(dtype, blocks, k);
      std::vector<std::byte> w(1 + n * row_bytes);
      const auto steps = normal(n);
      if (type == -3) {
        for (std::byte& b : w) b = static_cast<std::byte>(rng_());
      } else if (blocks == BlockType::none) {
        (void)encode(normal(n * k).data(), n * k, dtype, w.data() + 1);
      } else {
        const std::string bytes = test::random_blocks(blocks, n * k, 1.0, random);
        std::memcpy(w.data() + 1, bytes.data(), bytes.size());
      }
      const auto x = normal(kMostRows * k), y0 = normal(kMostRows * kStride);
      for (size_t m = 1; m <= kMostRows; ++m) {
        for (const bool accumulate : {false, true}) {
          auto got = y0, want = y0;
          std::vector<float> packed(m * few_rows_padded(k));
          few_rows_pack(x.data(), m, k, 0, few_rows_groups(m).n, packed.data());
          FewRows p{packed.data(), w.data() + 1, got.data(), m,         k, n,
                    kStride,       dtype,        blocks,     accumulate};
          if (type == -3) p.steps = steps.data();
          few_rows(p);
          p.x = x.data();
          p.y = want.data();
          few_rows_ref(p);
          for (size_t i = 0; i < got.size(); ++i) {
            const bool written = i / kStride < m && i % kStride < n;
            if (written) {
              const float size = type == -3 ? 127.0f : 1.0f;
              ASSERT_NEAR(got[i], want[i], 2e-5f * size * std::sqrt(static_cast<float>(k)))
                  << block_type_name(blocks) << " " << dtype_name(dtype) << " " << m << " " << i;
            } else {
              ASSERT_EQ(got[i], y0[i]) << "beside y: " << m << " " << i;
            }
          }
        }
      }
    }
  }
}

// Sums that go on from one part of k to the next, more rows of W than go by together, and a row of
// y that does not depend on how many there are.
TEST_P(Kernels, FewRowsInParts) {
  test::SplitMix random(9);
  for (int type = -3; type < kBlockTypes; ++type) {
    const auto blocks = type <= 0 ? BlockType::none : static_cast<BlockType>(type);
    const auto dtype = type == -2 ? DType::bf16 : type == -1 ? DType::f16 : DType::f32;
    const size_t k = blocks == BlockType::none ? 2309 : 9 * 256;
    constexpr size_t n = 2 * kFewRowsStep + 3;
    std::vector<std::byte> w(n * weight_row_bytes(dtype, blocks, k));
    const auto steps = normal(n), x = normal(kFewRowsMost * k);
    if (type == -3) {
      for (std::byte& b : w) b = static_cast<std::byte>(rng_());
    } else if (blocks == BlockType::none) {
      (void)encode(normal(n * k).data(), n * k, dtype, w.data());
    } else {
      const std::string bytes = test::random_blocks(blocks, n * k, 1.0, random);
      std::memcpy(w.data(), bytes.data(), bytes.size());
    }
    const auto product = [&](size_t m, const float* rows, bool reference) {
      std::vector<float> y(m * n), packed(m * few_rows_padded(k));
      few_rows_pack(rows, m, k, 0, few_rows_groups(m).n, packed.data());
      FewRows p{reference ? rows : packed.data(), w.data(), y.data(), m, k, n, n, dtype, blocks};
      if (type == -3) p.steps = steps.data();
      reference ? few_rows_ref(p) : few_rows(p);
      return y;
    };
    const auto want = product(kFewRowsMost, x.data(), true);
    std::vector<float> alone;
    for (size_t i = 0; i < kFewRowsMost; ++i) {
      const auto y = product(1, x.data() + i * k, false);
      alone.insert(alone.end(), y.begin(), y.end());
    }
    for (const size_t columns : {size_t{256}, k, size_t{1} << 26}) {
      EXPECT_GE(few_rows_most(dtype, blocks, columns), kFewRowsAlways);
      EXPECT_LE(few_rows_most(dtype, blocks, columns), kFewRowsMost);
    }
    const float size = type == -3 ? 127.0f : 1.0f;
    for (const size_t m : {size_t{1}, size_t{2}, size_t{3}, size_t{5}, size_t{8}, kFewRowsMost}) {
      const auto y = product(m, x.data(), false);
      for (size_t i = 0; i < y.size(); ++i) {
        ASSERT_NEAR(y[i], want[i], 2e-5f * size * std::sqrt(static_cast<float>(k)))
            << block_type_name(blocks) << " " << dtype_name(dtype) << " " << m << " " << i;
        ASSERT_EQ(y[i], alone[i]) << block_type_name(blocks) << " " << dtype_name(dtype) << " " << m
                                  << " " << i;
      }
    }
  }
}

TEST_P(Kernels, Int8Rows) {
  for (const size_t n : {size_t{1}, size_t{7}, size_t{16}, size_t{61}, size_t{150}}) {
    for (const float shift : {0.0f, 40.0f, -40.0f}) {
      for (const float scale : {1e-35f, 1e-3f, 1e4f}) {
        auto x = normal(n, scale);
        for (float& v : x) v += shift * scale;
        std::vector<uint8_t> q(n), want(n);
        const Int8Row row = quantize_row(x.data(), n, q.data());
        const Int8Row reference = quantize_row_ref(x.data(), n, want.data());
        EXPECT_EQ(row.scale, reference.scale);
        EXPECT_EQ(row.zero, reference.zero);
        EXPECT_EQ(q, want);
        for (size_t i = 0; i < n; ++i) {  // no further off than half a step
          EXPECT_NEAR(row.scale * static_cast<float>(q[i] - row.zero), x[i],
                      std::max(0.502f * row.scale, 1e-30f));
        }
      }
    }
  }
  // NaN and infinity are detected anywhere, and so is a range that f32 does not hold.
  for (const float odd : {NAN, INFINITY, -INFINITY}) {
    for (size_t at = 0; at < 21; ++at) {
      auto x = normal(21);
      x[at] = odd;
      std::vector<uint8_t> q(21);
      EXPECT_TRUE(std::isnan(quantize_row(x.data(), 21, q.data()).scale)) << odd << " at " << at;
    }
  }
  const float wide[] = {3e38f, -3e38f};
  uint8_t q[2];
  EXPECT_TRUE(std::isnan(quantize_row(wide, 2, q).scale));
}

}  // namespace
}  // namespace blend::kernels
