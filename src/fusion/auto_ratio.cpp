#include "fusion/auto_ratio.h"

#include <algorithm>

#include "fusion/clock.h"

namespace blend {
namespace {

uint64_t stored_bytes(const PromptSegment& s, uint32_t check_layer) {
  if (s.source != Source::store || !s.reused()) return 0;
  const ChunkShape& shape = s.chunk->meta().shape;
  const uint32_t skipped = s.exact ? 0 : std::min(check_layer, shape.n_layers);
  return shape.layer_bytes() * (shape.n_layers - skipped);
}

// Enough to time, little beside any prompt's whole load.
constexpr uint64_t kProbeBytes = 4ull << 20;

// Reads what the fuse will read again anyway, warmer then. Damage is found again by the fuse.
void probe(const Prompt& prompt, uint32_t check_layer, uint32_t n_layers, RateMeter& reads) {
  uint64_t bytes = 0;
  const Stopwatch clock;
  for (const PromptSegment& s : prompt.segments) {
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
  FuseShape shape = shape_of(prompt, check_layer, n_layers);
  const double prefill_s = prefill.seconds(shape.n_rows);

  std::vector<size_t> chunks;  // segments that could be computed instead
  std::vector<uint64_t> n_tokens;
  uint64_t bytes = 0;
  for (size_t i = 0; i < prompt.segments.size(); ++i) {
    const PromptSegment& s = prompt.segments[i];
    if (s.exact || s.kind != SegmentKind::chunk || stored_bytes(s, check_layer) == 0) continue;
    chunks.push_back(i);
    n_tokens.push_back(s.n_rows);
    bytes += stored_bytes(s, check_layer);
  }
  const std::vector<uint8_t> computed =
      choose_computed(n_tokens, shape, least, prefill_s, static_cast<double>(bytes) / bytes_per_s);
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (computed[i] == 0) continue;
    prompt.segments[chunks[i]].chunk.reset();
    prompt.segments[chunks[i]].source = Source::computed;
  }

  shape = shape_of(prompt, check_layer, n_layers);
  const double load_s = static_cast<double>(shape.load_bytes) / bytes_per_s;
  return choose_ratio(least, hidden_ratio(shape, prefill_s, load_s));
}

void choose_by_cost(RateMeter* reads, uint32_t check_layer, uint32_t n_layers, Prompt& prompt,
                    RatioChoice& ratio) {
  if (ratio.times() == nullptr || reads == nullptr) return;
  if (reads->per_second() == 0.0) probe(prompt, check_layer, n_layers, *reads);
  const double bytes_per_s = reads->per_second();
  if (bytes_per_s == 0.0) return;
  ratio.choose(
      ratio_by_cost(prompt, check_layer, n_layers, *ratio.times(), bytes_per_s, ratio.ratio()));
}

}  // namespace blend
