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

Status SampleRecords::put(const Sample& sample, const std::vector<int32_t>& prefix, DType kv_dtype,
                          MemoryStore& store, const Watch& watch) const {
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

Result<std::shared_ptr<ChunkRecord>> SampleRecords::record_of(std::span<const int32_t> chunk,
                                                              const std::vector<int32_t>& prefix,
                                                              DType kv_dtype,
                                                              const Watch& watch) const {
  SimilarQuery query;
  query.n = kMostContexts;
  BLEND_ASSIGN(const std::vector<SimilarChunk> similar, index_.similar_to(chunk, query));
  ChunkMeta meta = describe_chunk(model_, kv_dtype, prefix, "", chunk, RecordKind::contextual);
  std::vector<ContextPasses::Part> passages;
  const size_t room = model_.context_length() - prefix.size() - chunk.size();
  size_t n_tokens = 0;
  for (const SimilarChunk& other : similar) {
    if (enough_passages(passages.size(), n_tokens, n_contexts_)) break;
    const std::span<const int32_t> tokens = texts_.at(other.id);
    if (tokens.size() > room) continue;
    passages.push_back({tokens});
    n_tokens += tokens.size();
    meta.contexts.push_back(describe_chunk(model_, kv_dtype, prefix, "", tokens).id);
  }
  if (passages.empty()) return std::shared_ptr<ChunkRecord>();
  const ContextPasses passes = ContextPasses::of(passages, room, n_contexts_);
  return precompute_chunk(model_, prefix, std::move(meta), {watch.cancel, {}}, passes.passages());
}

}  // namespace blend
