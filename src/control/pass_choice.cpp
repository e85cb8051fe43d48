#include "control/pass_choice.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace blend {
namespace {

// Passes whose times differ by less than this factor count as equal.
constexpr double kAsSoon = 1.005;
// Rows that are recomputed only because loading takes as long are estimated slower than measured,
// because a wrong estimate would cost time.
constexpr double kHiding = 1.25 * kReadsBeside;
// Share of the host's target that is used; the rest is a margin.
constexpr double kKept = 0.95;
constexpr int kHalvings = 10;
constexpr int kRounds = 4;
constexpr size_t kMostSwapped = 32;
constexpr size_t kFew = 6;  // up to this many parts every subset is tried

}  // namespace

PassModel::PassModel(const PassQuestion& q)
    : rules_(q.rules),
      n_layers_(q.config->n_kept()),
      full_s_(q.machine.prefill->seconds(q.n_rows)),
      row_(RowCost::of(*q.config, q.n_rows, full_s_)),
      pace_(q.machine.pace),
      n_always_(q.n_always),
      parts_(q.parts) {
  row_.place_s = pace_->place_s();
  const auto load_s = [&](const StoredPart& s) {
    return s.layer_s * (n_layers_ - (s.exact ? 0 : rules_.first_stored_layer)) + s.latency_s;
  };
  std::stable_sort(parts_.begin(), parts_.end(), [&](const StoredPart& a, const StoredPart& b) {
    const double a_s = load_s(a) * static_cast<double>(b.n_rows);
    const double b_s = load_s(b) * static_cast<double>(a.n_rows);
    return a_s != b_s ? a_s > b_s : a.n_rows > b.n_rows;
  });
  add_up();
}

void PassModel::Totals::add(const StoredPart& part) {
  if (!part.loaded) {
    n_computed += part.n_rows;
    return;
  }
  (part.exact ? n_exact : n_candidates) += part.n_rows;
  if (part.counts) n_reused += part.n_rows;
  (part.exact ? exact_s : stale_s) += part.layer_s;
  if (part.latency_s > 0) latencies.insert(part.latency_s);
}

void PassModel::Totals::remove(const StoredPart& part) {
  if (!part.loaded) {
    n_computed -= part.n_rows;
    return;
  }
  (part.exact ? n_exact : n_candidates) -= part.n_rows;
  if (part.counts) n_reused -= part.n_rows;
  double& load_s = part.exact ? exact_s : stale_s;
  load_s = std::max(0.0, load_s - part.layer_s);
  if (part.latency_s > 0) latencies.erase(latencies.find(part.latency_s));
}

void PassModel::add_up() {
  totals_ = {};
  for (const StoredPart& part : parts_) totals_.add(part);
}

void PassModel::flip(StoredPart& part) {
  totals_.remove(part);
  part.loaded = !part.loaded;
  totals_.add(part);
}

bool PassModel::knows_anything() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const StoredPart& s) { return s.known; });
}

PassCost PassModel::cost(double ratio, double slower) const {
  const RowCounts rows{n_always_ + totals_.n_computed, totals_.n_reused, totals_.n_candidates,
                       totals_.n_exact};
  const LoadCost load{totals_.exact_s, totals_.stale_s,
                      totals_.latencies.empty() ? 0 : *totals_.latencies.rbegin()};
  const bool chooses = rows.n_candidates > 0;
  const std::vector<LayerRows> layers = rows_by_layer(chooses ? rules_.schedule(ratio) : Schedule{},
                                                      rules_.asks_upto, rows, n_layers_);
  const double pace = pace_->compute(computed_seconds(layers, row_) / full_s_);
  return pass_cost(layers, rows, row_.paced(pace), load, rules_.first_stored_layer, slower);
}

void PassModel::compute_slow_parts(double ratio) {
  const double best = parts_.size() <= kFew ? try_all(ratio) : try_some(ratio);
  // Computing all parts may save time even if computing some does not: then the pass waits for no
  // loading.
  PassModel all = *this;
  all.compute_all();
  if (all.cost(ratio).seconds <= best * kAsSoon) parts_ = std::move(all.parts_);
  add_up();
}

void PassModel::compute_all() {
  for (StoredPart& s : parts_) s.loaded = s.loaded && !s.known;
  add_up();
}

double PassModel::largest_ratio(double least, double seconds, double slower) const {
  const bool any = std::any_of(parts_.begin(), parts_.end(),
                               [](const StoredPart& s) { return s.loaded && !s.exact; });
  if (!any || !(cost(least, slower).seconds <= seconds)) return least;
  if (cost(1, slower).seconds <= seconds) return 1;
  double low = least, high = 1;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (cost(middle, slower).seconds <= seconds ? low : high) = middle;
  }
  return budget(low) > budget(least) ? low : least;
}

size_t PassModel::budget(double ratio) const { return recompute_budget(ratio, totals_.n_reused); }

// Tries every subset of parts and takes the soonest; returns its seconds.
double PassModel::try_all(double ratio) {
  double best = cost(ratio).seconds;
  std::vector<StoredPart> soonest = parts_;
  for (size_t set = 1; set < size_t{1} << parts_.size(); ++set) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      parts_[i].loaded = (set >> i & 1) == 0 || !parts_[i].known;
    }
    add_up();
    const double then = cost(ratio).seconds;
    if (then * kAsSoon >= best) continue;
    best = then;
    soonest = parts_;
  }
  parts_ = std::move(soonest);
  return best;
}

// Tries single parts, then pairs; returns the seconds of the best set.
double PassModel::try_some(double ratio) {
  double best = cost(ratio).seconds;
  for (int round = 0; round < kRounds; ++round) {
    bool shorter = false;
    for (StoredPart& s : parts_) shorter = flip_if_shorter({&s}, ratio, best) || shorter;
    // Two parts may exchange their roles where flipping one alone does not help.
    for (size_t i = 0; i < parts_.size() && parts_.size() <= kMostSwapped; ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (parts_[i].loaded == parts_[j].loaded) continue;
        shorter = flip_if_shorter({&parts_[i], &parts_[j]}, ratio, best) || shorter;
      }
    }
    if (!shorter) break;
  }
  return best;
}

// Loads the computed ones of these parts and computes the loaded ones, if that is shorter.
bool PassModel::flip_if_shorter(std::initializer_list<StoredPart*> some, double ratio,
                                double& best) {
  const auto flip_all = [&] {
    for (StoredPart* const s : some) flip(*s);
  };
  for (const StoredPart* const s : some) {
    if (!s->known) return false;
  }
  flip_all();
  const double then = cost(ratio).seconds;
  if (then * kAsSoon < best) {
    best = then;
    return true;
  }
  flip_all();
  return false;
}

std::optional<RatioChoice> choose_pass(PassQuestion& q, double least, double target_s) {
  PassModel model(q);
  if (!model.knows_anything()) return std::nullopt;
  PassModel all = model;
  all.compute_all();

  RatioChoice out;
  out.computing_s = all.cost(least).seconds;
  model.compute_slow_parts(least);
  const double soonest_s = model.cost(least).seconds;
  const double given_s = target_s > 0 ? kKept * (target_s - q.spent_s) : 0;
  out.ratio = least;
  if (given_s >= out.computing_s) {
    model.compute_all();  // the exact answer, in time
  } else if (given_s > soonest_s) {
    out.ratio = model.largest_ratio(least, given_s, 1);
  } else {
    out.ratio = model.largest_ratio(least, kRounding * soonest_s, 1);
    const double slow_s = kRounding * model.cost(least, kHiding).seconds;
    out.ratio = std::min(out.ratio, model.largest_ratio(least, slow_s, kHiding));
    out.late = target_s > 0 && target_s - q.spent_s < soonest_s;
  }
  const PassCost cost = model.cost(out.ratio);
  out.ttft_s = q.spent_s + cost.seconds;
  out.load_s = cost.load_s;
  out.compute_s = cost.compute_s;
  for (const StoredPart& s : model.parts()) {
    if (!s.loaded) out.n_rows_computed += s.n_rows;
  }
  q.parts.assign(model.parts().begin(), model.parts().end());
  return out;
}

}  // namespace blend
