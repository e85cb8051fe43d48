#include "fusion/auto_ratio.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "fusion/clock.h"
#include "fusion/policy/policy.h"

namespace blend {
namespace {

// A place is asked for a layer at least, and no more once it has taken so much.
constexpr uint64_t kProbeBytes = 4ull << 20;
constexpr uint64_t kProbeNs = 20'000'000;

// What is no sooner by more than this is as soon.
constexpr double kAsSoon = 1.005;
constexpr double kRounding = 1 + 1e-9;
// Rows that are to hide behind loading are reckoned slower than they are, and loading no slower
// than it came: a guess that fails costs time.
constexpr double kHiding = 1.25 * kReadsBeside;
// And of the time that the host gives a little is kept.
constexpr double kKept = 0.95;
constexpr int kHalvings = 10;
constexpr int kRounds = 4;
constexpr size_t kMostSwapped = 32;
constexpr size_t kFew = 6;  // of these every set is tried

// A segment that is not computed anyway, as far as its cost goes.
struct Stored {
  size_t segment = 0;
  uint64_t n_rows = 0;
  bool exact = false;
  bool counts = false;  // the ratio is a share of it too
  bool known = false;   // what loading it takes; false: it stays
  double layer_s = 0;
  double latency_s = 0;
  bool loaded = true;
};

uint32_t first_layer(const PromptSegment& s, const PassRules& rules) {
  return s.exact ? 0 : std::min(rules.first_stored_layer, s.chunk->meta().shape.n_layers);
}

bool lies_on_disk(const PromptSegment& s) {
  return s.reused() && s.source == Source::store && s.chunk->origin() == Origin::disk;
}

// Reads what the fuse will read again anyway, warmer then. Damage is found again by the fuse.
// What lies behind a network tells its rate itself, and comes only once it is chosen.
void probe(const Prompt& prompt, const PassRules& rules, ReadRates& reads) {
  for (const PromptSegment& s : prompt.segments) {
    if (!lies_on_disk(s)) continue;
    const ChunkMeta& meta = s.chunk->meta();
    if (reads.per_second(Origin::disk, meta.codec) > 0) continue;
    auto buffer = AlignedBuffer::allocate(meta.shape.layer_bytes());
    if (!buffer.is_ok()) return;
    const Stopwatch clock;
    uint64_t bytes = 0;
    for (uint32_t layer = first_layer(s, rules); layer < meta.shape.n_layers; ++layer) {
      if (!s.chunk->read_layer(layer, buffer->data()).is_ok()) break;
      bytes += meta.shape.layer_bytes();
      if (bytes >= kProbeBytes || clock.now_ns() > kProbeNs) break;
    }
    const uint64_t ns = clock.now_ns();
    reads.add(s.chunk->origin(), meta.codec, bytes, ns);
    reads.add_all(bytes, ns);
  }
}

// What loading the segment takes, as far as it is known.
void price(const PromptSegment& s, const PassRules& rules, const ReadRates& reads, Stored& out) {
  if (s.source != Source::store) return;  // in memory, prefilled a moment ago
  const ChunkMeta& meta = s.chunk->meta();
  if (s.chunk->origin() != Origin::remote) {
    const double rate = reads.per_second(s.chunk->origin(), meta.codec);
    out.known = rate > 0;
    if (out.known)
      out.layer_s = kReadsBeside * static_cast<double>(meta.shape.layer_bytes()) / rate;
    return;
  }
  // Without a rate nothing came from there yet, or it is on its way already.
  const ChunkSource::RemoteCost cost = s.chunk->remote_cost();
  out.known = cost.bytes_per_s > 0;
  if (!out.known) return;
  // All its layers come, as they are encoded.
  const uint32_t n_layers = std::max(1u, meta.shape.n_layers - first_layer(s, rules));
  out.layer_s = kReadsBeside * static_cast<double>(meta.stored_bytes) / cost.bytes_per_s / n_layers;
  out.latency_s = cost.latency_s;
}

// The prompt with some of its stored segments computed.
class Choice {
 public:
  Choice(const KnownCosts& known, const PassRules& rules, const Prompt& prompt)
      : rules_(rules),
        n_layers_(known.config->n_layers),
        full_s_(known.machine.prefill->seconds(prompt.n_rows())),
        row_(RowCost::of(*known.config, prompt.n_rows(), full_s_)),
        pace_(known.machine.pace) {
    row_.place_s = pace_->place_s();
    for (size_t i = 0; i < prompt.segments.size(); ++i) {
      const PromptSegment& s = prompt.segments[i];
      if (!s.reused()) {
        n_always_ += s.n_rows;
        continue;
      }
      Stored& stored = stored_.emplace_back();
      stored.segment = i;
      stored.n_rows = s.n_rows;
      stored.exact = s.exact;
      stored.counts = s.kind == SegmentKind::chunk;
      price(s, rules, *known.reads, stored);
    }
    const auto load_s = [&](const Stored& s) {
      return s.layer_s * (n_layers_ - (s.exact ? 0 : rules.first_stored_layer)) + s.latency_s;
    };
    // The dearest to load of its rows first, of equals the longest.
    std::stable_sort(stored_.begin(), stored_.end(), [&](const Stored& a, const Stored& b) {
      const double a_s = load_s(a) * static_cast<double>(b.n_rows);
      const double b_s = load_s(b) * static_cast<double>(a.n_rows);
      return a_s != b_s ? a_s > b_s : a.n_rows > b.n_rows;
    });
  }

  bool knows_anything() const {
    return std::any_of(stored_.begin(), stored_.end(), [](const Stored& s) { return s.known; });
  }
  std::span<const Stored> stored() const { return stored_; }

  // slower: factor on all that is computed.
  PassCost cost(double ratio, double slower = 1) const {
    RowCounts rows;
    LoadCost load;
    rows.n_always = n_always_;
    for (const Stored& s : stored_) {
      if (!s.loaded) {
        rows.n_always += s.n_rows;
        continue;
      }
      (s.exact ? rows.n_exact : rows.n_candidates) += s.n_rows;
      if (s.counts) rows.n_reused += s.n_rows;
      (s.exact ? load.exact_s : load.stale_s) += s.layer_s;
      load.latency_s = std::max(load.latency_s, s.latency_s);
    }
    const bool chooses = rows.n_candidates > 0;
    const std::vector<LayerRows> layers = rows_by_layer(
        chooses ? rules_.schedule(ratio) : Schedule{}, rules_.asks_upto, rows, n_layers_);
    RowCost row = row_;
    const double pace = pace_->compute(computed_seconds(layers, row) / full_s_);
    row.kv_s *= pace;
    row.rest_s *= pace;
    return pass_cost(layers, rows, row, load, rules_.first_stored_layer, slower);
  }

  // Computes instead of loading what makes the pass shorter.
  void compute_what_is_dear(double ratio) {
    const double best = stored_.size() <= kFew ? try_all(ratio) : try_some(ratio);
    // Where each by itself brings little all may bring something: nothing is waited for or placed.
    Choice all = *this;
    all.compute_all();
    if (all.cost(ratio).seconds <= best * kAsSoon) stored_ = std::move(all.stored_);
  }

  void compute_all() {
    for (Stored& s : stored_) s.loaded = s.loaded && !s.known;
  }

  // The largest ratio, not below `least`, with which the pass takes no longer than this.
  double largest_ratio(double least, double seconds, double slower) const {
    const bool any = std::any_of(stored_.begin(), stored_.end(),
                                 [](const Stored& s) { return s.loaded && !s.exact; });
    if (!any || !(cost(least, slower).seconds <= seconds)) return least;
    if (cost(1, slower).seconds <= seconds) return 1;
    double low = least, high = 1;
    for (int i = 0; i < kHalvings; ++i) {
      const double middle = (low + high) / 2;
      (cost(middle, slower).seconds <= seconds ? low : high) = middle;
    }
    return budget(low) > budget(least) ? low : least;
  }

 private:
  size_t budget(double ratio) const {
    uint64_t n = 0;
    for (const Stored& s : stored_) n += s.loaded && s.counts ? s.n_rows : 0;
    return recompute_budget(ratio, n);
  }

  // Each set of chunks: seconds of the soonest, which is taken.
  double try_all(double ratio) {
    double best = cost(ratio).seconds;
    std::vector<Stored> soonest = stored_;
    for (size_t set = 1; set < size_t{1} << stored_.size(); ++set) {
      for (size_t i = 0; i < stored_.size(); ++i) {
        stored_[i].loaded = (set >> i & 1) == 0 || !stored_[i].known;
      }
      const double then = cost(ratio).seconds;
      if (then * kAsSoon >= best) continue;
      best = then;
      soonest = stored_;
    }
    stored_ = std::move(soonest);
    return best;
  }

  // One after the other, and by twos.
  double try_some(double ratio) {
    double best = cost(ratio).seconds;
    for (int round = 0; round < kRounds; ++round) {
      bool shorter = false;
      for (Stored& s : stored_) shorter = turn_if_shorter({&s}, ratio, best) || shorter;
      // One that was too long a step may be a good one in the place of another.
      for (size_t i = 0; i < stored_.size() && stored_.size() <= kMostSwapped; ++i) {
        for (size_t j = 0; j < i; ++j) {
          if (stored_[i].loaded == stored_[j].loaded) continue;
          shorter = turn_if_shorter({&stored_[i], &stored_[j]}, ratio, best) || shorter;
        }
      }
      if (!shorter) break;
    }
    return best;
  }

  // What is loaded is computed, and the other way round, if that is shorter.
  bool turn_if_shorter(std::initializer_list<Stored*> some, double ratio, double& best) {
    const auto turn = [&] {
      for (Stored* const s : some) s->loaded = !s->loaded;
    };
    for (const Stored* const s : some) {
      if (!s->known) return false;
    }
    turn();
    const double then = cost(ratio).seconds;
    if (then * kAsSoon < best) {
      best = then;
      return true;
    }
    turn();
    return false;
  }

  const PassRules& rules_;
  const uint32_t n_layers_;
  const double full_s_;
  RowCost row_;
  const Pace* pace_;
  uint64_t n_always_ = 0;
  std::vector<Stored> stored_;
};

}  // namespace

std::optional<RatioChoice> choose_by_cost(const KnownCosts& known, const PassRules& rules,
                                          double least, double target_s, Prompt& prompt) {
  if (known.machine.prefill == nullptr || known.reads == nullptr) return std::nullopt;
  probe(prompt, rules, *known.reads);
  Choice choice(known, rules, prompt);
  if (!choice.knows_anything()) return std::nullopt;
  Choice all = choice;
  all.compute_all();

  RatioChoice out;
  out.computing_s = all.cost(least).seconds;
  choice.compute_what_is_dear(least);
  const double soonest_s = choice.cost(least).seconds;
  const double given_s = target_s > 0 ? kKept * (target_s - known.spent_s) : 0;
  out.ratio = least;
  if (given_s >= out.computing_s) {
    choice.compute_all();  // nothing answers better
  } else if (given_s > soonest_s) {
    out.ratio = choice.largest_ratio(least, given_s, 1);
  } else {
    out.ratio = choice.largest_ratio(least, kRounding * soonest_s, 1);
    const double slow_s = kRounding * choice.cost(least, kHiding).seconds;
    out.ratio = std::min(out.ratio, choice.largest_ratio(least, slow_s, kHiding));
    out.late = target_s > 0 && target_s - known.spent_s < soonest_s;
  }
  const PassCost cost = choice.cost(out.ratio);
  out.ttft_s = known.spent_s + cost.seconds;
  out.load_s = cost.load_s;
  out.compute_s = cost.compute_s;
  for (const Stored& s : choice.stored()) {
    if (s.loaded) continue;
    PromptSegment& segment = prompt.segments[s.segment];
    segment.chunk.reset();
    segment.source = Source::computed;
    segment.exact = false;
    out.n_rows_computed += s.n_rows;
  }
  return out;
}

}  // namespace blend
