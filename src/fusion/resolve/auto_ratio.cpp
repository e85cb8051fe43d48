#include "fusion/resolve/auto_ratio.h"

#include <algorithm>

#include "fusion/request/clock.h"

namespace blend {
namespace {

// Each tier is probed for at least one layer and until the time budget, or these bytes, are spent.
constexpr uint64_t kProbeBytes = 4ull << 20;
constexpr uint64_t kProbeNs = 20'000'000;

double mean_layer_bytes(const ChunkShape& shape) {
  return static_cast<double>(shape.total_bytes()) / shape.n_layers;
}

uint32_t first_layer(const PromptSegment& s, const PassRules& rules) {
  return s.exact ? 0 : std::min(rules.first_stored_layer, s.chunk->meta().shape.n_layers);
}

bool lies_on_disk(const PromptSegment& s) {
  return s.reused() && s.source == Source::store && s.chunk->origin() == Origin::disk;
}

// Reads layers that the fuse reads again, from the page cache then. Damage is ignored here, because
// the fuse finds it again. A remote tier knows its own rate, and its chunks are downloaded only
// after they were chosen.
void probe(const Prompt& prompt, const PassRules& rules, ReadRates& reads) {
  for (const PromptSegment& s : prompt.segments) {
    if (!lies_on_disk(s)) continue;
    const ChunkMeta& meta = s.chunk->meta();
    if (reads.per_second(Origin::disk, meta.codec) > 0) continue;
    auto buffer = AlignedBuffer::allocate(meta.shape.most_layer_bytes());
    if (!buffer.is_ok()) return;
    const Stopwatch clock;
    uint64_t bytes = 0;
    for (uint32_t layer = first_layer(s, rules); layer < meta.shape.n_layers; ++layer) {
      if (!s.chunk->read_layer(layer, buffer->data()).is_ok()) break;
      bytes += meta.shape.layer_bytes(layer);
      if (bytes >= kProbeBytes || clock.now_ns() > kProbeNs) break;
    }
    const uint64_t ns = clock.now_ns();
    reads.add(s.chunk->origin(), meta.codec, bytes, ns);
    reads.add_all(bytes, ns);
  }
}

// Sets the loading time of the segment, if it is known.
void price(const PromptSegment& s, const PassRules& rules, const ReadRates& reads,
           StoredPart& out) {
  if (s.source != Source::store) return;  // prefilled a moment ago, in memory
  const ChunkMeta& meta = s.chunk->meta();
  if (s.chunk->origin() != Origin::remote) {
    const double rate = reads.per_second(s.chunk->origin(), meta.codec);
    out.known = rate > 0;
    if (out.known) out.layer_s = kReadsBeside * mean_layer_bytes(meta.shape) / rate;
    return;
  }
  // No rate: nothing was downloaded yet, or the chunk is being downloaded already.
  const ChunkSource::RemoteCost cost = s.chunk->remote_cost();
  out.known = cost.bytes_per_s > 0;
  if (!out.known) return;
  // All its layers are downloaded, encoded.
  const uint32_t n_layers = std::max(1u, meta.shape.n_layers - first_layer(s, rules));
  out.layer_s = kReadsBeside * static_cast<double>(meta.stored_bytes) / cost.bytes_per_s / n_layers;
  out.latency_s = cost.latency_s;
}

PassQuestion question_of(const KnownCosts& known, const PassRules& rules, const Prompt& prompt) {
  PassQuestion q;
  q.config = known.config;
  q.machine = known.machine;
  q.rules = rules;
  q.n_rows = prompt.n_rows();
  q.spent_s = known.spent_s;
  for (size_t i = 0; i < prompt.segments.size(); ++i) {
    const PromptSegment& s = prompt.segments[i];
    if (!s.reused()) {
      q.n_always += s.n_rows;
      continue;
    }
    StoredPart& part = q.parts.emplace_back();
    part.id = i;
    part.n_rows = s.n_rows;
    part.exact = s.exact;
    part.counts = s.kind == SegmentKind::chunk;
    price(s, rules, *known.reads, part);
  }
  return q;
}

}  // namespace

std::optional<RatioChoice> choose_by_cost(const KnownCosts& known, const PassRules& rules,
                                          double least, double target_s, Prompt& prompt) {
  if (known.machine.prefill == nullptr || known.reads == nullptr) return std::nullopt;
  probe(prompt, rules, *known.reads);
  PassQuestion question = question_of(known, rules, prompt);
  const std::optional<RatioChoice> choice = choose_pass(question, least, target_s);
  for (const StoredPart& part : question.parts) {
    if (part.loaded) continue;
    PromptSegment& segment = prompt.segments[part.id];
    segment.chunk.reset();
    segment.source = Source::computed;
    segment.exact = false;
  }
  return choice;
}

}  // namespace blend
