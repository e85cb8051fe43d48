#include "bench/copy_rate.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/buffer.h"
#include "bench/measure.h"

namespace blend::bench {

double copy_rate(ThreadPool& pool, size_t bytes) {
  using Clock = std::chrono::steady_clock;
  const size_t half = std::max<size_t>(bytes / 2, 4096), slice = half / pool.n_threads() + 1;
  auto from = must(AlignedBuffer::allocate(half)), to = must(AlignedBuffer::allocate(half));
  std::memset(from.data(), 1, half);
  std::memset(to.data(), 2, half);
  double best = 0;
  for (int repeat = 0; repeat < 8; ++repeat) {
    size_t times = 0;
    const auto begin = Clock::now();
    double seconds = 0;
    do {
      pool.parallel_for(half, slice, [&](size_t first, size_t last, uint32_t) {
        std::memcpy(to.data() + first, from.data() + first, last - first);
      });
      ++times;
      seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    } while (seconds < 0.01);
    best = std::max(best, 2.0 * static_cast<double>(half * times) / seconds);
  }
  return best;
}

}  // namespace blend::bench
