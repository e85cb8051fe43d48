// What is known of a machine's speed, and what follows for the ring of layers in flight
// (AttentionStore section 3.2.1). Pure arithmetic: times in seconds. What a pass costs:
// pass_cost.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/rate_meter.h"
#include "base/status.h"

namespace blend {

// How fuses do beside the times of a machine: other work on it, another clock, rows that come in
// small numbers. Learnt from each. Thread-safe.
class Pace {
 public:
  // What was computed took actual_ns; by the machine's times it would have been expected_ns, which
  // is a `share` of a full prefill: fuses that compute little take longer for each row, and tell
  // nothing of those that compute most.
  void add_computed(double share, uint64_t expected_ns, uint64_t actual_ns) {
    (share < (kLittle + kMost) / 2 ? little_ : most_).add(expected_ns, actual_ns);
  }
  // Stored rows of a layer that were placed.
  void add_placed(uint64_t n_rows, uint64_t ns) { placed_.add(n_rows, ns); }

  // What computing a share takes, of the time that the machine's times give; 1 as long as nothing
  // is known.
  double compute(double share) const {
    const double little = little_.per_second() * 1e-9, most = most_.per_second() * 1e-9;
    if (little == 0 || most == 0) return 1.0 / or_one(little + most);
    const double at = std::clamp((share - kLittle) / (kMost - kLittle), 0.0, 1.0);
    return (1.0 - at) / little + at / most;
  }
  // Seconds of a row; 0 as long as nothing is known.
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

// Time of a full prefill by length, measured. Immutable; safe for concurrent use.
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
  // Straight lines between the points and from nothing to the first; after the last
  // a * n + b * n^2, what dense layers and attention cost, through the last two.
  double seconds(uint64_t n_tokens) const;

 private:
  explicit PrefillTimes(std::vector<Point> points) : points_(std::move(points)) {}
  std::vector<Point> points_;
};

// What is known of a machine's speed: a view of what its owner keeps. Both or neither.
struct MachineRates {
  const PrefillTimes* prefill = nullptr;
  Pace* pace = nullptr;  // of the fuses that were reckoned by these times
};

// One layer of a pass: seconds of the reader (0: nothing is loaded) and of the compute.
struct LayerCost {
  double load_s = 0;
  double compute_s = 0;
};

// How long a pass takes whose ring holds `depth` layers: a layer is computed once it is loaded and
// the one before is computed, and loaded once the reader is free and there is room.
double pass_seconds(std::span<const LayerCost> layers, uint32_t depth);

// Layers to hold in the ring, the one in use included: the fewest with which a pass takes no longer
// than with room for all, and one for jitter. What AttentionStore (section 3.2.1) asks of its read
// buffer, B * (T_load * L_hist - T_pref * L_new), with this pass's own head start: the layers up to
// the check layer are computed for all rows, and while they are the reader must be able to run
// ahead. At least three (two hide steady loads), except where there are fewer layers or
// `budget_bytes` holds fewer; then at least two.
uint32_t ring_depth(std::span<const LayerCost> layers, uint64_t layer_bytes, uint64_t budget_bytes);

}  // namespace blend
