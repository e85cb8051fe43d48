#include "bench/peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/peak.cpp"
#include <hwy/foreach_target.h>
// after foreach_target
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace blend::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns the FLOPs done; `sink` keeps the sums alive.
double MultiplyAdd(size_t rounds, float* sink) {
  const hn::CappedTag<float, 16> d;
  // More than latency x units of any core; few enough for 16 registers.
  constexpr size_t kChains = 12;
  hn::Vec<decltype(d)> sum[kChains];
  for (size_t c = 0; c < kChains; ++c) sum[c] = hn::Set(d, static_cast<float>(c));
  const auto a = hn::Set(d, 0.999f), b = hn::Set(d, 0.001f);
  for (size_t i = 0; i < rounds; ++i) {
    BLEND_UNROLL
    for (size_t c = 0; c < kChains; ++c) sum[c] = hn::MulAdd(sum[c], a, b);
  }
  for (size_t c = 1; c < kChains; ++c) sum[0] = hn::Add(sum[0], sum[c]);
  *sink = hn::GetLane(hn::SumOfLanes(d, sum[0]));
  return 2.0 * static_cast<double>(rounds * kChains * hn::Lanes(d));
}

const char* Target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace blend::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace blend::bench {

HWY_EXPORT(MultiplyAdd);
HWY_EXPORT(Target);

const char* simd_target() { return HWY_DYNAMIC_DISPATCH(Target)(); }

double peak_flops(ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kRounds = 4'000'000;  // some 10 ms
  double best = 0;
  for (int repeat = 0; repeat < 8; ++repeat) {
    std::atomic<double> flops{0};
    const auto begin = Clock::now();
    pool.parallel_for(pool.n_threads(), 1, [&](size_t first, size_t last, uint32_t) {
      float sink = 0;
      for (; first < last; ++first) flops += HWY_DYNAMIC_DISPATCH(MultiplyAdd)(kRounds, &sink);
      volatile float keep = sink;
      (void)keep;
    });
    best =
        std::max(best, flops.load() / std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

}  // namespace blend::bench
#endif  // HWY_ONCE
