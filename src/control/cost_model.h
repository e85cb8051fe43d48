// The measured speed of a machine, and the depth of the ring of layers in flight that follows from
// it (AttentionStore section 3.2.1). Pure arithmetic, times in seconds. pass_cost.h has the time of
// a pass.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rate_meter.h"
#include "base/status.h"

namespace blend {

// How much longer fuses take than the machine's measured times say: because of other work on it,
// another clock rate, or few rows at a time. Every fuse updates it. Thread-safe.
class Pace {
 public:
  // Adds a fuse whose computing took actual_ns, where the machine's times say expected_ns. `share`
  // is what it computed, relative to a full prefill. Fuses with a small share take longer for each
  // row, so they are kept apart from those with a large one.
  void add_computed(double share, uint64_t expected_ns, uint64_t actual_ns) {
    (share < (kLittle + kMost) / 2 ? little_ : most_).add(expected_ns, actual_ns);
  }
  // Adds the scatter of n_rows stored rows of a layer.
  void add_placed(uint64_t n_rows, uint64_t ns) { placed_.add(n_rows, ns); }

  // Factor on the machine's time for computing this share of a prefill; 1 while nothing is known.
  double compute(double share) const {
    const double little = little_.per_second() * 1e-9, most = most_.per_second() * 1e-9;
    if (little == 0 || most == 0) return 1.0 / or_one(little + most);
    const double at = std::clamp((share - kLittle) / (kMost - kLittle), 0.0, 1.0);
    return (1.0 - at) / little + at / most;
  }
  // Seconds to scatter a row; 0 while nothing is known.
  double place_s() const {
    const double rows = placed_.per_second();
    return rows > 0 ? 1.0 / rows : 0.0;
  }

 private:
  static constexpr double kLittle = 0.25, kMost = 0.75;
  static double or_one(double x) { return x > 0 ? x : 1.0; }
  RateMeter little_, most_;
  RateMeter placed_;
};

// Measured times of full prefills, by length. Immutable; safe for concurrent use.
class PrefillTimes {
 public:
  struct Point {
    uint64_t n_tokens = 0;
    uint64_t ns = 0;
    bool operator==(const Point&) const = default;
  };
  // INVALID_ARGUMENT unless the points are in ascending order of tokens, and each takes some time.
  static Result<PrefillTimes> create(std::vector<Point> points);

  const std::vector<Point>& points() const { return points_; }
  // Linear between the points, and from 0 to the first. After the last point a * n + b * n^2 (dense
  // layers and attention) through the last two points.
  double seconds(uint64_t n_tokens) const;

 private:
  explicit PrefillTimes(std::vector<Point> points) : points_(std::move(points)) {}
  std::vector<Point> points_;
};

// A view of a machine's speed, whose owner keeps it. Both pointers are set, or neither.
struct MachineRates {
  const PrefillTimes* prefill = nullptr;
  Pace* pace = nullptr;  // of the fuses that were estimated by these times
};

// One layer of a pass: seconds of the reader (0: nothing is loaded) and of the compute.
struct LayerCost {
  double load_s = 0;
  double compute_s = 0;
};

// How long a pass takes if its ring holds `depth` layers. A layer is computed when it is loaded and
// the layer before it is computed. It is loaded when the reader is free and the ring has a free
// slot.
double pass_seconds(std::span<const LayerCost> layers, uint32_t depth);

// Number of slots of the ring, the one in use included: the fewest with which a pass takes no
// longer than with a slot for every layer, and one for jitter. AttentionStore (section 3.2.1) sizes
// its read buffer by B * (T_load * L_hist - T_pref * L_new); here this pass's own times decide. The
// layers up to the check layer are computed for all rows, and meanwhile the reader must be able to
// run ahead. At least three (two are enough for steady loads), or as many as there are layers or
// `budget_bytes` holds, but at least two.
uint32_t ring_depth(std::span<const LayerCost> layers, uint64_t layer_bytes, uint64_t budget_bytes);

}  // namespace blend
