#include "control/cost_model.h"

#include <algorithm>
#include <cmath>

namespace blend {
namespace {

constexpr uint32_t kSteadyDepth = 3;  // one in use, one ahead, one for jitter
constexpr uint32_t kLeastDepth = 2;
constexpr double kNoLonger = 1.001;  // than with a slot for every layer

double number(uint64_t n) { return static_cast<double>(n); }

}  // namespace

Result<PrefillTimes> PrefillTimes::create(std::vector<Point> points) {
  uint64_t before = 0;
  for (const Point& p : points) {
    // Counts above UINT32_MAX, more than a context may have, could be equal as doubles.
    if (p.n_tokens <= before || p.ns == 0 || p.n_tokens > UINT32_MAX) {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "prefill times must be of ascending lengths and not 0: %llu tokens, %llu "
                        "ns after %llu tokens",
                        static_cast<unsigned long long>(p.n_tokens),
                        static_cast<unsigned long long>(p.ns),
                        static_cast<unsigned long long>(before));
    }
    before = p.n_tokens;
  }
  if (points.empty()) return Status{BLEND_E_INVALID_ARGUMENT, "there are no prefill times"};
  return PrefillTimes(std::move(points));
}

double PrefillTimes::seconds(uint64_t n_tokens) const {
  const double n = number(n_tokens);
  const auto next = std::find_if(points_.begin(), points_.end(),
                                 [&](const Point& p) { return p.n_tokens >= n_tokens; });
  if (next == points_.begin()) return number(next->ns) * 1e-9 * n / number(next->n_tokens);
  const Point& last = *(next - 1);
  const double n0 = number(last.n_tokens), t0 = number(last.ns) * 1e-9;
  if (next != points_.end()) {
    const double n1 = number(next->n_tokens), t1 = number(next->ns) * 1e-9;
    return t0 + (t1 - t0) * (n - n0) / (n1 - n0);
  }
  if (points_.size() < 2) return t0 * n / n0;
  const Point& earlier = *(next - 2);
  const double n1 = number(earlier.n_tokens), t1 = number(earlier.ns) * 1e-9;
  const double b = std::max(0.0, (t0 / n0 - t1 / n1) / (n0 - n1));
  return (t0 / n0 + b * (n - n0)) * n;  // a = t0 / n0 - b * n0
}

double pass_seconds(std::span<const LayerCost> layers, uint32_t depth) {
  std::vector<double> freed;  // when the slot of the i-th loaded layer is free again
  double loaded = 0, computed = 0;
  for (const LayerCost& layer : layers) {
    if (layer.load_s > 0) {
      const double room = freed.size() < depth ? 0.0 : freed[freed.size() - depth];
      loaded = std::max(loaded, room) + layer.load_s;
      computed = std::max(computed, loaded);
      freed.push_back(computed);  // staged rows are placed before the layer is computed
    }
    computed += layer.compute_s;
  }
  return computed;
}

uint32_t ring_depth(std::span<const LayerCost> layers, uint64_t layer_bytes,
                    uint64_t budget_bytes) {
  const auto n_loaded = static_cast<uint32_t>(
      std::count_if(layers.begin(), layers.end(), [](const LayerCost& l) { return l.load_s > 0; }));
  const double least = pass_seconds(layers, std::max(1u, n_loaded)) * kNoLonger;
  uint32_t depth = 1;
  while (depth < n_loaded && pass_seconds(layers, depth) > least) ++depth;
  depth = std::max(depth + 1, kSteadyDepth);
  if (layer_bytes > 0) {
    depth = static_cast<uint32_t>(std::min<uint64_t>(depth, budget_bytes / layer_bytes));
  }
  return std::max(kLeastDepth, std::min(depth, n_loaded));
}

}  // namespace blend
