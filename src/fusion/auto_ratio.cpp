#include "fusion/auto_ratio.h"

#include <algorithm>

#include "fusion/clock.h"

namespace blend {
namespace {

uint64_t stored_bytes(const PlannedSegment& s, uint32_t check_layer) {
  if (s.source != Source::store || !s.reused()) return 0;
  const ChunkShape& shape = s.chunk->meta().shape;
  const uint32_t skipped = s.exact ? 0 : std::min(check_layer, shape.n_layers);
  return shape.layer_bytes() * (shape.n_layers - skipped);
}

// Enough to time, little beside any prompt's whole load.
constexpr uint64_t kProbeBytes = 4ull << 20;

// Reads what the fuse will read again anyway, warmer then. Damage is found again by the fuse.
void probe(const Plan& plan, uint32_t check_layer, uint32_t n_layers, RateMeter& reads) {
  uint64_t bytes = 0;
  const Stopwatch clock;
  for (const PlannedSegment& s : plan.segments) {
    if (stored_bytes(s, check_layer) == 0) continue;
    auto buffer = AlignedBuffer::allocate(s.chunk->meta().shape.layer_bytes());
    if (!buffer.is_ok()) return;
    for (uint32_t layer = check_layer; layer < n_layers && bytes < kProbeBytes; ++layer) {
      if (!s.chunk->read_layer(layer, buffer->data()).is_ok()) return;
      bytes += s.chunk->meta().shape.layer_bytes();
    }
  }
  reads.add(bytes, clock.now_ns());
}

}  // namespace

FuseShape shape_of(const Plan& plan, uint32_t check_layer, uint32_t n_layers) {
  FuseShape shape;
  shape.n_rows = plan.n_rows();
  shape.n_layers = n_layers;
  shape.n_check_layers = check_layer;
  for (const PlannedSegment& s : plan.segments) {
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

double control(Plan& plan, uint32_t check_layer, uint32_t n_layers, const PrefillTimes& prefill,
               double bytes_per_s, double least) {
  FuseShape shape = shape_of(plan, check_layer, n_layers);
  const double prefill_s = prefill.seconds(shape.n_rows);

  std::vector<size_t> chunks;  // segments that could be computed instead
  std::vector<uint64_t> n_tokens;
  uint64_t bytes = 0;
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const PlannedSegment& s = plan.segments[i];
    if (s.exact || s.kind != SegmentKind::chunk || stored_bytes(s, check_layer) == 0) continue;
    chunks.push_back(i);
    n_tokens.push_back(s.n_rows);
    bytes += stored_bytes(s, check_layer);
  }
  const std::vector<uint8_t> computed =
      choose_computed(n_tokens, shape, least, prefill_s, static_cast<double>(bytes) / bytes_per_s);
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (computed[i] == 0) continue;
    plan.segments[chunks[i]].chunk.reset();
    plan.segments[chunks[i]].source = Source::computed;
  }

  shape = shape_of(plan, check_layer, n_layers);
  const double load_s = static_cast<double>(shape.load_bytes) / bytes_per_s;
  return choose_ratio(least, hidden_ratio(shape, prefill_s, load_s));
}

bool choose_by_cost(RateMeter* reads, const FuseOptions& options, uint32_t n_layers, Plan& plan,
                    Schedule& checks) {
  if (options.auto_ratio == nullptr || reads == nullptr || checks.empty()) return false;
  if (!options.check_layers.empty()) return false;
  Check& check = checks.front();
  if (reads->per_second() == 0.0) probe(plan, check.layer, n_layers, *reads);
  const double bytes_per_s = reads->per_second();
  if (bytes_per_s == 0.0) return false;
  check.ratio = control(plan, check.layer, n_layers, *options.auto_ratio, bytes_per_s, check.ratio);
  return true;
}

}  // namespace blend
