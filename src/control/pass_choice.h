// choose_pass(): of one prompt, which stored parts are loaded, which are computed, and how much is
// recomputed of those that are loaded, chosen by how long the pass would take (pass_cost.h). A fuse
// with BLEND_RATIO_AUTO does what it says (fusion/auto_ratio.h), and blend_machine_advise tells it
// beforehand (advise.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "control/pass_cost.h"

namespace blend {

// What layers take beside a pass, of what they took: reader and compute share the cores, and a
// device waits while the reader waits for one.
inline constexpr double kReadsBeside = 1.1;

// What a fuse does with a prompt.
struct PassRules {
  std::function<Schedule(double ratio)> schedule;
  std::optional<uint32_t> asks_upto = {};  // rows_by_layer()
  uint32_t first_stored_layer = 0;
};

// Rows that are stored together, as a chunk is, as far as their cost goes.
struct StoredPart {
  size_t id = 0;  // the caller's
  uint64_t n_rows = 0;
  bool exact = false;
  bool counts = false;  // the ratio is a share of it too
  bool known = false;   // what loading it takes; false: it stays
  double layer_s = 0;
  double latency_s = 0;
  bool loaded = true;
};

// A prompt whose pass is to be chosen. What it points to must outlive the call.
struct PassQuestion {
  const ModelConfig* config = nullptr;
  MachineRates machine;
  PassRules rules;
  uint64_t n_rows = 0;
  uint64_t n_always = 0;  // computed in every layer
  std::vector<StoredPart> parts;
  double spent_s = 0;  // before the pass
};

// What is chosen, and by what.
struct RatioChoice {
  double ratio = 0;
  double ttft_s = 0;             // of what is chosen, of which, beside each other,
  double load_s = 0;             // loading and
  double compute_s = 0;          // computing
  double computing_s = 0;        // computing all of it
  uint64_t n_rows_computed = 0;  // stored, and computed because that is sooner
  bool late = false;             // the host gives less than the soonest takes
};

// The prompt with some of its stored parts computed: what its pass costs. Not thread-safe.
class PassModel {
 public:
  explicit PassModel(const PassQuestion& question);

  bool knows_anything() const;
  std::span<const StoredPart> parts() const { return parts_; }
  // slower: factor on all that is computed.
  PassCost cost(double ratio, double slower = 1) const;
  // The largest ratio, not below `least`, with which the pass takes no longer than this.
  double largest_ratio(double least, double seconds, double slower) const;

  // Computes instead of loading what makes the pass shorter.
  void compute_what_is_dear(double ratio);
  void compute_all();

 private:
  size_t budget(double ratio) const;
  double try_all(double ratio);
  double try_some(double ratio);
  bool turn_if_shorter(std::initializer_list<StoredPart*> some, double ratio, double& best);

  const PassRules& rules_;
  const uint32_t n_layers_;
  const double full_s_;
  RowCost row_;
  const Pace* pace_;
  uint64_t n_always_ = 0;
  std::vector<StoredPart> parts_;  // the dearest to load of its rows first, of equals the longest
};

// The soonest is found with the ratio `least`. It then rises as far as that costs no time, or no
// more than the host gives (target_s; 0: it gives none), up to computing everything. Which parts
// are loaded is written into the question. Nothing where loading takes nobody knows how long.
std::optional<RatioChoice> choose_pass(PassQuestion& question, double least, double target_s);

}  // namespace blend
