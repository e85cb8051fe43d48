// choose_pass(): chooses for a prompt which stored parts are loaded, which are computed instead,
// and how much of the loaded ones is recomputed, by how long the pass would take (pass_cost.h). A
// fuse with BLEND_RATIO_AUTO follows it (fusion/resolve/auto_ratio.h), and blend_machine_advise
// predicts it (advise.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "control/pass_cost.h"

namespace blend {

// Times that differ by less than this factor are equal but for rounding errors.
inline constexpr double kRounding = 1 + 1e-9;

// Factor on the measured time of loading a layer, for loading during a pass: reader and compute
// share the cores, and the storage idles while the reader waits for a core.
inline constexpr double kReadsBeside = 1.1;

// How a fuse of this prompt works.
struct PassRules {
  std::function<Schedule(double ratio)> schedule;
  std::optional<uint32_t> asks_upto = {};  // rows_by_layer()
  uint32_t first_stored_layer = 0;
};

// Rows that are stored together, such as a chunk: their number and cost.
struct StoredPart {
  size_t id = 0;  // set by the caller
  uint64_t n_rows = 0;
  bool exact = false;
  bool counts = false;  // its rows count as reused: the ratio is a share of them
  bool known = false;   // its loading time is known; otherwise it is always loaded
  double layer_s = 0;
  double latency_s = 0;
  bool loaded = true;
};

// A prompt whose pass is to be chosen. The objects it points to must outlive the call.
struct PassQuestion {
  const ModelConfig* config = nullptr;
  MachineRates machine;
  PassRules rules;
  uint64_t n_rows = 0;
  uint64_t n_always = 0;  // computed in every layer
  std::vector<StoredPart> parts;
  double spent_s = 0;  // before the pass
};

// The choice, and the times that it was based on.
struct RatioChoice {
  double ratio = 0;
  double ttft_s = 0;             // of the choice; loading and computing overlap in it
  double load_s = 0;             // of the choice: loading
  double compute_s = 0;          // of the choice: computing
  double computing_s = 0;        // if everything were computed
  uint64_t n_rows_computed = 0;  // stored rows that are computed because that is sooner
  bool late = false;             // even the soonest choice misses the host's target
};

// The cost of a prompt's pass, with some stored parts computed instead of loaded. Not thread-safe.
class PassModel {
 public:
  explicit PassModel(const PassQuestion& question);

  bool knows_anything() const;
  std::span<const StoredPart> parts() const { return parts_; }
  // slower: factor on all computing.
  PassCost cost(double ratio, double slower = 1) const;
  // The largest ratio, at least `least`, with which the pass takes at most `seconds`.
  double largest_ratio(double least, double seconds, double slower) const;

  // Computes parts instead of loading them if that makes the pass shorter.
  void compute_slow_parts(double ratio);
  void compute_all();

 private:
  // What the parts come to: a flip of one changes it, so that a choice among thousands of parts
  // does not add them all up each time.
  struct Totals {
    uint64_t n_computed = 0;  // rows
    uint64_t n_exact = 0;
    uint64_t n_candidates = 0;
    uint64_t n_reused = 0;
    double exact_s = 0;
    double stale_s = 0;
    std::multiset<double> latencies;  // of parts that have one

    void add(const StoredPart& part);
    void remove(const StoredPart& part);
  };

  void add_up();
  void flip(StoredPart& part);
  size_t budget(double ratio) const;
  double try_all(double ratio);
  double try_some(double ratio);
  bool flip_if_shorter(std::initializer_list<StoredPart*> some, double ratio, double& best);

  const PassRules& rules_;
  const uint32_t n_layers_;
  const double full_s_;
  RowCost row_;
  const Pace* pace_;
  uint64_t n_always_ = 0;
  std::vector<StoredPart> parts_;  // by load time per row, then by row count, both descending
  Totals totals_;
};

// Finds the soonest pass at the ratio `least`. Then it raises the ratio as far as that costs no
// time, or with a target_s (0: none) as far as the target allows, up to computing everything. It
// writes to the question which parts are loaded. Nothing if no part's loading time is known.
std::optional<RatioChoice> choose_pass(PassQuestion& question, double least, double target_s);

}  // namespace blend
