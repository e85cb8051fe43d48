// The emulated device itself: what it makes of warps, barriers, fragments, copies and streams, and
// that it does not forgive.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cuda/device.cuh"
#include "cuda/ptx.cuh"

namespace blend::kernels::cuda {
namespace {

class Simt : public testing::TestWithParam<simt::Order> {
 protected:
  void SetUp() override { simt::set_order(GetParam()); }
  void TearDown() override { simt::set_order(simt::Order::ascending); }
  static void run(unsigned threads, size_t shared, const std::function<void()>& kernel) {
    simt::run_grid({1, 1, 1}, {threads, 1, 1}, shared, kernel);
  }
};

uint16_t bf16_of(int i) { return f32_to_bf16(static_cast<float>(i % 17 - 8)); }

// ldmatrix feeds mma: a [16, 16] in rows; b [16, 8] as eight rows of its transpose (as K lies), or
// in rows of its own, read transposed (as V lies).
template <bool kTransposed>
std::vector<float> product(const std::vector<uint16_t>& a, const std::vector<uint16_t>& b) {
  std::vector<float> d(16 * 16);
  simt::run_grid({1, 1, 1}, {32, 1, 1}, 4096, [&] {
    auto* const sa = reinterpret_cast<uint16_t*>(dynamic_shared());
    uint16_t* const sb = sa + 256;
    for (unsigned i = threadIdx.x; i < 256; i += 32) {
      sa[i] = a[i];
      sb[i] = b[i];
    }
    __syncthreads();
    const unsigned lane = threadIdx.x;
    uint32_t fa[4], fb[4];
    ldmatrix_x4<false>(fa, sa + lane % 16 * 16 + lane / 16 * 8);
    float first[4] = {1, 1, 1, 1}, second[4] = {1, 1, 1, 1};  // it is added to
    if (kTransposed) {
      ldmatrix_x4<true>(fb, sb + lane % 16 * 16 + lane / 16 * 8);
    } else {
      ldmatrix_x4<false>(fb, sb + (lane % 8 + lane / 16 * 8) * 16 + lane / 8 % 2 * 8);
    }
    mma_bf16(first, fa, fb[0], fb[1]);
    mma_bf16(second, fa, fb[2], fb[3]);
    for (unsigned e = 0; e < 4; ++e) {
      const unsigned row = lane / 4 + 8 * (e / 2), col = 2 * (lane % 4) + e % 2;
      d[row * 16 + col] = first[e];
      d[row * 16 + 8 + col] = second[e];
    }
  });
  return d;
}

TEST_P(Simt, FragmentsMakeAMatrixProduct) {
  std::vector<uint16_t> a(256), b(256);
  for (int i = 0; i < 256; ++i) {
    a[static_cast<size_t>(i)] = bf16_of(7 * i + i / 16);
    b[static_cast<size_t>(i)] = bf16_of(5 * i + i / 11);
  }
  const auto as_k = product<false>(a, b), as_v = product<true>(a, b);
  for (size_t row = 0; row < 16; ++row) {
    for (size_t col = 0; col < 16; ++col) {
      float k = 1, v = 1;
      for (size_t e = 0; e < 16; ++e) {
        k += bf16_to_f32(a[row * 16 + e]) * bf16_to_f32(b[col * 16 + e]);
        v += bf16_to_f32(a[row * 16 + e]) * bf16_to_f32(b[e * 16 + col]);
      }
      ASSERT_EQ(as_k[row * 16 + col], k) << row << ", " << col;
      ASSERT_EQ(as_v[row * 16 + col], v) << row << ", " << col;
    }
  }
}

TEST_P(Simt, ReductionsOfWarpsAndBlocks) {
  std::vector<float> sums(96), largest(96);
  run(96, 0, [&] {
    static float parts[32];  // as __shared__
    const auto x = static_cast<float>(threadIdx.x + 1);
    sums[threadIdx.x] = block_sum(x, parts);
    largest[threadIdx.x] = block_max(-x, parts);
  });
  EXPECT_EQ(sums, std::vector<float>(96, 96.0f * 97 / 2));
  EXPECT_EQ(largest, std::vector<float>(96, -1.0f));
}

TEST_P(Simt, ABallotAndAShuffle) {
  run(64, 0, [&] {
    const unsigned lane = threadIdx.x % 32;
    ASSERT_EQ(__ballot_sync(0xffffffffu, lane % 3 == 0), 0x49249249u);
    ASSERT_EQ(__shfl_up_sync(0xffffffffu, lane, 4), lane < 4 ? lane : lane - 4);
    ASSERT_EQ(__shfl_sync(0xffffffffu, lane * 2, 5), 10u);
  });
}

TEST_P(Simt, AsynchronousCopiesArriveWhenTheyAreWaitedFor) {
  alignas(16) const uint32_t from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  run(32, 64, [&] {
    if (threadIdx.x != 0) return;
    auto* const to = reinterpret_cast<uint32_t*>(dynamic_shared());
    copy_async_16(to, from, true);
    copy_async_commit();
    copy_async_16(to + 4, from + 4, false);
    copy_async_commit();
    const bool late = GetParam() == simt::Order::ascending;  // else at once
    EXPECT_EQ(to[0], late ? 0xffffffffu : 1u) << "on its way";
    copy_async_wait<1>();
    EXPECT_EQ(to[3], 4u);
    EXPECT_EQ(to[4], late ? 0xffffffffu : 0u) << "the newer group";
    copy_async_wait<0>();
    EXPECT_EQ(to[4], 0u) << "not present: zeros";
  });
}

INSTANTIATE_TEST_SUITE_P(Orders, Simt,
                         testing::Values(simt::Order::ascending, simt::Order::descending),
                         [](const auto& tested) {
                           return tested.param == simt::Order::ascending ? "Ascending"
                                                                         : "Descending";
                         });

// Warp 1 reads what warp 0 writes without a barrier in between: one of the orders shows it.
TEST(SimtStrictness, AMissingBarrierShowsInOneOrder) {
  std::vector<uint32_t> seen;
  for (const auto order : {simt::Order::ascending, simt::Order::descending}) {
    simt::set_order(order);
    uint32_t got = 0;
    simt::run_grid({1, 1, 1}, {64, 1, 1}, 16, [&] {
      auto* const shared = reinterpret_cast<uint32_t*>(dynamic_shared());
      if (threadIdx.x == 0) *shared = 7;
      if (threadIdx.x == 63) got = *shared;
    });
    seen.push_back(got);
  }
  simt::set_order(simt::Order::ascending);
  EXPECT_EQ(seen, (std::vector<uint32_t>{7, 0xffffffffu}));
}

TEST(SimtStrictnessDeathTest, WhatADeviceWouldHangOn) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(simt::run_grid({1, 1, 1}, {64, 1, 1}, 0,
                              [] {
                                if (threadIdx.x < 32) {
                                  __syncthreads();
                                } else {
                                  __syncthreads();
                                }
                              }),
               "two barriers");
  EXPECT_DEATH(simt::run_grid({1, 1, 1}, {32, 1, 1}, 0,
                              [] {
                                if (threadIdx.x != 3) (void)__shfl_xor_sync(0xffffffffu, 1, 1);
                              }),
               "ended|deadlock");
  EXPECT_DEATH(simt::run_grid({1, 1, 1}, {32, 1, 1}, 0,
                              [] {
                                alignas(16) char to[32];
                                copy_async_16(to + 8, to, true);
                              }),
               "unaligned");
}

}  // namespace
}  // namespace blend::kernels::cuda
