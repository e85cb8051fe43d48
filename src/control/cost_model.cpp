#include "control/cost_model.h"

#include <algorithm>
#include <cmath>

namespace blend {
namespace {

constexpr uint32_t kSteadyDepth = 3;  // one in use, one ahead, one for jitter
constexpr uint32_t kLeastDepth = 2;
constexpr double kNoLonger = 1.001;  // than with room for all layers

double number(uint64_t n) { return static_cast<double>(n); }

// Share of the layers that are computed for all candidates.
double checked_share(const FuseShape& s) {
  return s.n_layers == 0 ? 0.0 : number(s.n_check_layers) / number(s.n_layers);
}

}  // namespace

Result<PrefillTimes> PrefillTimes::create(std::vector<Point> points) {
  uint64_t before = 0;
  for (const Point& p : points) {
    // More tokens than a context may have: as doubles two such counts may be one.
    if (p.n_tokens <= before || p.ns == 0 || p.n_tokens > UINT32_MAX) {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "prefill times must be of ascending lengths and not 0: %llu tokens, %llu "
                        "ns behind %llu tokens",
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

double compute_seconds(const FuseShape& shape, double ratio, double prefill_s) {
  if (shape.n_rows == 0) return 0.0;
  const double checked = checked_share(shape);
  const double chosen = std::min(ratio * number(shape.n_reused), number(shape.n_candidates));
  const double rows =
      number(shape.n_always) + checked * number(shape.n_candidates) + (1.0 - checked) * chosen;
  return prefill_s * rows / number(shape.n_rows);
}

double hidden_ratio(const FuseShape& shape, double prefill_s, double load_s) {
  const double least = compute_seconds(shape, 0.0, prefill_s);
  const double most = compute_seconds(shape, 1.0, prefill_s);
  if (!(load_s > least)) return 0.0;
  if (load_s >= most) return 1.0;
  // Linear in the ratio until every candidate is recomputed.
  const double per_ratio =
      prefill_s * (1.0 - checked_share(shape)) * number(shape.n_reused) / number(shape.n_rows);
  return std::min(1.0, (load_s - least) / per_ratio);
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

bool prefill_first_is_sooner(uint64_t n_tokens, const FuseShape& shape, double ratio,
                             const PrefillTimes& prefill) {
  if (shape.n_rows == 0) return false;
  const double prefill_s = prefill.seconds(shape.n_rows);
  FuseShape in_pass = shape, reused = shape;
  in_pass.n_always = n_tokens;
  reused.n_reused = reused.n_candidates = n_tokens;
  in_pass.n_reused = in_pass.n_candidates = reused.n_always = 0;
  return prefill.seconds(n_tokens) + compute_seconds(reused, ratio, prefill_s) <
         compute_seconds(in_pass, ratio, prefill_s);
}

}  // namespace blend
