#include "fusion/auto_ratio.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fusion/clock.h"

namespace blend {
namespace {

uint64_t stored_bytes(const PromptSegment& s, uint32_t check_layer) {
  if (s.source != Source::store || !s.reused()) return 0;
  const ChunkShape& shape = s.chunk->meta().shape;
  const uint32_t skipped = s.exact ? 0 : std::min(check_layer, shape.n_layers);
  return shape.layer_bytes() * (shape.n_layers - skipped);
}

constexpr double kNoTime = 1e15;  // bytes a second

// Enough to time, little beside any prompt's whole load.
constexpr uint64_t kProbeBytes = 4ull << 20;

// Reads what the fuse will read again anyway, warmer then. Damage is found again by the fuse.
void probe(const Prompt& prompt, uint32_t check_layer, uint32_t n_layers, RateMeter& reads) {
  uint64_t bytes = 0;
  const Stopwatch clock;
  for (const PromptSegment& s : prompt.segments) {
    // What lies behind a network tells its rate itself, and comes only once it is chosen.
    if (stored_bytes(s, check_layer) == 0 || s.chunk->origin() == Origin::remote) continue;
    auto buffer = AlignedBuffer::allocate(s.chunk->meta().shape.layer_bytes());
    if (!buffer.is_ok()) return;
    for (uint32_t layer = check_layer; layer < n_layers && bytes < kProbeBytes; ++layer) {
      if (!s.chunk->read_layer(layer, buffer->data()).is_ok()) return;
      bytes += s.chunk->meta().shape.layer_bytes();
    }
  }
  reads.add(bytes, clock.now_ns());
}

// What loading the segment takes, if it lies behind a network whose rate is known; else 0.
double remote_seconds(const PromptSegment& s, uint32_t check_layer) {
  if (stored_bytes(s, check_layer) == 0) return 0;
  const ChunkSource::RemoteCost cost = s.chunk->remote_cost();
  if (!(cost.bytes_per_s > 0)) return 0;
  // All its layers come, as they are encoded.
  return cost.latency_s + static_cast<double>(s.chunk->meta().stored_bytes) / cost.bytes_per_s;
}

double load_seconds(const Prompt& prompt, uint32_t check_layer, double bytes_per_s) {
  double load_s = 0;
  for (const PromptSegment& s : prompt.segments) {
    const double remote_s = remote_seconds(s, check_layer);
    load_s +=
        remote_s > 0 ? remote_s : static_cast<double>(stored_bytes(s, check_layer)) / bytes_per_s;
  }
  return load_s;
}

void compute(PromptSegment& s) {
  s.chunk.reset();
  s.source = Source::computed;
}

// Chunks behind a network that are sooner computed than loaded are computed: the one that takes
// longest to load first, as long as that makes the longer of loading and computing shorter.
void leave_what_is_far(Prompt& prompt, uint32_t check_layer, uint32_t n_layers, double prefill_s,
                       double bytes_per_s, double ratio) {
  std::vector<std::pair<double, size_t>> far;  // seconds, segment
  for (size_t i = 0; i < prompt.segments.size(); ++i) {
    const PromptSegment& s = prompt.segments[i];
    const double remote_s = remote_seconds(s, check_layer);
    const bool dear =
        remote_s * static_cast<double>(prompt.n_rows()) > prefill_s * static_cast<double>(s.n_rows);
    if (dear && !s.exact && s.kind == SegmentKind::chunk) far.emplace_back(remote_s, i);
  }
  std::stable_sort(far.begin(), far.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  double load_s = load_seconds(prompt, check_layer, bytes_per_s);
  FuseShape shape = shape_of(prompt, check_layer, n_layers);
  for (const auto& [remote_s, i] : far) {
    PromptSegment& s = prompt.segments[i];
    FuseShape then = shape;
    const uint64_t n = std::min<uint64_t>({s.n_rows, then.n_reused, then.n_candidates});
    then.n_always += s.n_rows;
    then.n_reused -= n;
    then.n_candidates -= n;
    const double now_s = std::max(load_s, compute_seconds(shape, ratio, prefill_s));
    const double then_s = std::max(load_s - remote_s, compute_seconds(then, ratio, prefill_s));
    if (then_s >= now_s) continue;
    compute(s);
    shape = then;
    load_s -= remote_s;
  }
}

}  // namespace

FuseShape shape_of(const Prompt& prompt, uint32_t check_layer, uint32_t n_layers) {
  FuseShape shape;
  shape.n_rows = prompt.n_rows();
  shape.n_layers = n_layers;
  shape.n_check_layers = check_layer;
  for (const PromptSegment& s : prompt.segments) {
    if (!s.reused()) {
      shape.n_always += s.n_rows;
      continue;
    }
    if (s.kind == SegmentKind::chunk) shape.n_reused += s.n_rows;
    if (!s.exact) shape.n_candidates += s.n_rows;
    shape.load_bytes += stored_bytes(s, check_layer);
  }
  return shape;
}

double ratio_by_cost(Prompt& prompt, uint32_t check_layer, uint32_t n_layers,
                     const PrefillTimes& prefill, double bytes_per_s, double least) {
  const double prefill_s = prefill.seconds(prompt.n_rows());
  leave_what_is_far(prompt, check_layer, n_layers, prefill_s, bytes_per_s, least);
  FuseShape shape = shape_of(prompt, check_layer, n_layers);

  std::vector<size_t> chunks;  // segments that could be computed instead
  std::vector<uint64_t> n_tokens;
  uint64_t bytes = 0;
  for (size_t i = 0; i < prompt.segments.size(); ++i) {
    const PromptSegment& s = prompt.segments[i];
    if (s.exact || s.kind != SegmentKind::chunk || stored_bytes(s, check_layer) == 0) continue;
    if (remote_seconds(s, check_layer) > 0) continue;
    chunks.push_back(i);
    n_tokens.push_back(s.n_rows);
    bytes += stored_bytes(s, check_layer);
  }
  const std::vector<uint8_t> computed =
      choose_computed(n_tokens, shape, least, prefill_s, static_cast<double>(bytes) / bytes_per_s);
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (computed[i] != 0) compute(prompt.segments[chunks[i]]);
  }

  shape = shape_of(prompt, check_layer, n_layers);
  const double load_s = load_seconds(prompt, check_layer, bytes_per_s);
  return choose_ratio(least, hidden_ratio(shape, prefill_s, load_s));
}

void choose_by_cost(RateMeter* reads, uint32_t check_layer, uint32_t n_layers, Prompt& prompt,
                    RatioChoice& ratio) {
  if (ratio.times() == nullptr || reads == nullptr) return;
  if (reads->per_second() == 0.0) probe(prompt, check_layer, n_layers, *reads);
  double bytes_per_s = reads->per_second();
  const bool any_far =
      std::any_of(prompt.segments.begin(), prompt.segments.end(),
                  [&](const PromptSegment& s) { return remote_seconds(s, check_layer) > 0; });
  if (bytes_per_s == 0.0 && !any_far) return;
  // Nothing is loaded but over the network.
  if (bytes_per_s == 0.0) bytes_per_s = kNoTime;
  ratio.choose(
      ratio_by_cost(prompt, check_layer, n_layers, *ratio.times(), bytes_per_s, ratio.ratio()));
}

}  // namespace blend
