#include "calibrate/sample_records.h"

#include <algorithm>

#include "engine/context_passes.h"
#include "engine/precompute.h"

namespace blend {

Result<std::unique_ptr<SampleRecords>> SampleRecords::create(const Model& model,
                                                             std::span<const Sample> samples,
                                                             uint32_t n_contexts) {
  std::unique_ptr<SampleRecords> out(new SampleRecords(model, n_contexts));
  if (n_contexts == 0) return out;
  for (const Sample& sample : samples) {
    for (const Segment& s : sample) {
      if (s.kind != SegmentKind::chunk || !s.tokens || s.tokens->empty()) continue;
      // Any id will do that belongs to the text alone.
      const Sha256 id = describe_chunk(model, DType::f32, {}, "", *s.tokens).id;
      BLEND_RETURN_IF_ERROR(out->index_.add(id, *s.tokens));
      out->texts_.emplace(id, *s.tokens);
    }
  }
  return out;
}

ChunkPrefill& SampleRecords::prefill_after(const std::vector<int32_t>& prefix) {
  if (!prefill_.has_value() || prefix != prefix_) {
    prefill_.reset();
    prefix_ = prefix;
    prefill_.emplace(model_, prefix_);
  }
  return *prefill_;
}

Status SampleRecords::put(const Sample& sample, const std::vector<int32_t>& prefix, DType kv_dtype,
                          MemoryStore& store, const Watch& watch) {
  if (n_contexts_ == 0) return Status::ok();
  std::vector<int32_t> before;
  for (const Segment& s : sample) {
    const bool exact = before == prefix;
    if (s.kind == SegmentKind::chunk && !s.tokens->empty() && !exact) {
      BLEND_ASSIGN(auto record, record_of(*s.tokens, prefix, kv_dtype, watch));
      if (record != nullptr) BLEND_RETURN_IF_ERROR(store.put_async(std::move(record)));
    }
    before.insert(before.end(), s.tokens->begin(), s.tokens->end());
  }
  return Status::ok();
}

Result<std::vector<RecentRecords::Record>> SampleRecords::passages(
    std::span<const std::span<const int32_t>> texts, DType kv_dtype, const Watch& watch) {
  std::vector<RecentRecords::Record> out;
  std::vector<ChunkJob> missing;
  std::vector<size_t> places;
  for (const std::span<const int32_t> text : texts) {
    ChunkMeta meta = describe_chunk(model_, kv_dtype, prefix_, "", text);
    out.push_back(kept_.find(meta.id));
    if (out.back() != nullptr) continue;
    places.push_back(out.size() - 1);
    missing.push_back({std::move(meta), {}});
  }
  if (missing.empty()) return out;
  BLEND_ASSIGN(const ChunkPrefill::Records made, prefill_->run(missing, {watch.cancel, {}}));
  for (size_t i = 0; i < made.size(); ++i) {
    out[places[i]] = made[i];
    kept_.put(made[i]);
  }
  return out;
}

Result<std::shared_ptr<ChunkRecord>> SampleRecords::record_of(std::span<const int32_t> chunk,
                                                              const std::vector<int32_t>& prefix,
                                                              DType kv_dtype, const Watch& watch) {
  SimilarQuery query;
  query.n = kMostContexts;
  BLEND_ASSIGN(const std::vector<SimilarChunk> similar, index_.similar_to(chunk, query));
  ChunkMeta meta = describe_chunk(model_, kv_dtype, prefix, "", chunk, RecordKind::contextual);
  std::vector<std::span<const int32_t>> texts;
  const size_t room = model_.context_length() - prefix.size() - chunk.size();
  size_t n_tokens = 0;
  for (const SimilarChunk& other : similar) {
    if (enough_passages(texts.size(), n_tokens, n_contexts_)) break;
    const std::span<const int32_t> tokens = texts_.at(other.id);
    if (tokens.size() > room) continue;
    texts.push_back(tokens);
    n_tokens += tokens.size();
    meta.contexts.push_back(describe_chunk(model_, kv_dtype, prefix, "", tokens).id);
  }
  if (texts.empty()) return std::shared_ptr<ChunkRecord>();
  ChunkPrefill& prefill = prefill_after(prefix);
  BLEND_ASSIGN(const auto records, passages(texts, kv_dtype, watch));
  std::vector<std::unique_ptr<ChunkSource>> sources;
  std::vector<ContextPasses::Part> parts;
  for (size_t i = 0; i < texts.size(); ++i) {
    sources.push_back(make_memory_source(records[i]));
    parts.push_back({texts[i], sources.back().get()});
  }
  const ContextPasses passes = ContextPasses::of(parts, room, n_contexts_);
  ChunkJob job{std::move(meta), passes.passages()};
  BLEND_ASSIGN(ChunkPrefill::Records made, prefill.run({&job, 1}, {watch.cancel, {}}));
  return std::move(made[0]);
}

}  // namespace blend
