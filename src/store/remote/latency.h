// Latency: how long requests took, as percentiles, in constant memory.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>

namespace blend {

// Thread-safe. Buckets are an eighth of a power of two wide, so percentiles are right to a tenth.
class Latency {
 public:
  void add(uint64_t us) { counts_[bucket_of(us)].fetch_add(1, std::memory_order_relaxed); }
  // 0 .. 1; 0: nothing was added.
  uint64_t percentile_us(double share) const {
    uint64_t all = 0;
    for (const auto& count : counts_) all += count.load(std::memory_order_relaxed);
    if (all == 0) return 0;
    const double wanted = share * static_cast<double>(all);
    uint64_t sum = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      sum += counts_[i].load(std::memory_order_relaxed);
      if (static_cast<double>(sum) >= wanted) return end_of(i);
    }
    return end_of(counts_.size() - 1);
  }

 private:
  static constexpr uint32_t kBits = 3;
  static constexpr size_t kBuckets = 33u << kBits;
  static size_t bucket_of(uint64_t us) {
    if (us < (1u << kBits)) return us;
    const auto exponent = static_cast<uint32_t>(std::bit_width(us)) - 1 - kBits;
    const size_t at = (size_t{exponent} << kBits) + (us >> exponent);
    return at < kBuckets ? at : kBuckets - 1;
  }
  static uint64_t end_of(size_t bucket) {
    if (bucket < (2u << kBits)) return bucket;
    const size_t exponent = (bucket >> kBits) - 1;
    const uint64_t head = (bucket & ((1u << kBits) - 1)) + (1u << kBits);
    return (head + 1) << exponent;
  }
  std::array<std::atomic<uint64_t>, kBuckets> counts_{};
};

}  // namespace blend
