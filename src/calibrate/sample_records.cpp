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

Result<SampleRecords::Records> SampleRecords::heads(std::span<const std::span<const int32_t>> texts,
                                                    DType kv_dtype, const Watch& watch) {
  Records out;
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

struct SampleRecords::Making {
  // drafts: of the company, with nulls; may be empty.
  Making(ChunkMeta of, const Company& company, const Records& heads, const Records& drafts,
         uint32_t n_passes)
      : meta(std::move(of)) {
    meta.contexts = company.ids;
    const auto source_of = [&](RecentRecords::Record record) -> ChunkSource* {
      if (record == nullptr) return nullptr;
      sources.push_back(make_memory_source(std::move(record)));
      return sources.back().get();
    };
    std::vector<ContextPasses::Part> parts;
    for (size_t i = 0; i < heads.size(); ++i) {
      parts.push_back(
          {company.texts[i], source_of(heads[i]), drafts.empty() ? nullptr : source_of(drafts[i])});
    }
    passes = ContextPasses::of(parts, company.room, n_passes);
  }
  ChunkJob job() const { return {meta, passes.passages()}; }

  ChunkMeta meta;
  std::vector<std::unique_ptr<ChunkSource>> sources;
  ContextPasses passes;
};

Result<SampleRecords::Records> SampleRecords::drafts(
    std::span<const std::span<const int32_t>> texts, DType kv_dtype, const Watch& watch) {
  Records out;
  std::vector<Making> missing;
  std::vector<size_t> places;
  for (const std::span<const int32_t> text : texts) {
    ChunkMeta meta = describe_chunk(model_, kv_dtype, prefix_, "", text, RecordKind::contextual);
    meta.draft = true;
    out.push_back(kept_.find(meta.id));
    if (out.back() != nullptr) continue;
    BLEND_ASSIGN(const Company company, company_of(text, kv_dtype, 1));
    if (company.texts.empty()) continue;
    BLEND_ASSIGN(const Records records, heads(company.texts, kv_dtype, watch));
    places.push_back(out.size() - 1);
    missing.emplace_back(std::move(meta), company, records, Records(), 1);
  }
  std::vector<ChunkJob> jobs;
  jobs.reserve(missing.size());
  for (const Making& making : missing) jobs.push_back(making.job());
  BLEND_ASSIGN(const ChunkPrefill::Records made, prefill_->run(jobs, {watch.cancel, {}}));
  for (size_t i = 0; i < made.size(); ++i) {
    out[places[i]] = made[i];
    kept_.put(made[i]);
  }
  return out;
}

Result<SampleRecords::Company> SampleRecords::company_of(std::span<const int32_t> chunk,
                                                         DType kv_dtype, uint32_t n_passes) {
  SimilarQuery query;
  query.n = kMostContexts;
  BLEND_ASSIGN(const std::vector<SimilarChunk> similar, index_.similar_to(chunk, query));
  Company out;
  out.room = model_.context_length() - prefix_.size() - chunk.size();
  size_t n_tokens = 0;
  for (const SimilarChunk& other : similar) {
    if (enough_passages(out.texts.size(), n_tokens, n_passes)) break;
    const std::span<const int32_t> tokens = texts_.at(other.id);
    if (tokens.size() > out.room) continue;
    out.texts.push_back(tokens);
    n_tokens += tokens.size();
    out.ids.push_back(describe_chunk(model_, kv_dtype, prefix_, "", tokens).id);
  }
  return out;
}

Result<std::shared_ptr<ChunkRecord>> SampleRecords::record_of(std::span<const int32_t> chunk,
                                                              const std::vector<int32_t>& prefix,
                                                              DType kv_dtype, const Watch& watch) {
  ChunkPrefill& prefill = prefill_after(prefix);
  BLEND_ASSIGN(const Company company, company_of(chunk, kv_dtype, n_contexts_));
  if (company.texts.empty()) return std::shared_ptr<ChunkRecord>();
  BLEND_ASSIGN(const Records after_head, heads(company.texts, kv_dtype, watch));
  Records in_context;
  if (n_contexts_ > 1) {  // the first prefill reads none
    BLEND_ASSIGN(in_context, drafts(company.texts, kv_dtype, watch));
  }
  ChunkMeta meta = describe_chunk(model_, kv_dtype, prefix_, "", chunk, RecordKind::contextual);
  const Making making(std::move(meta), company, after_head, in_context, n_contexts_);
  ChunkJob job = making.job();
  BLEND_ASSIGN(ChunkPrefill::Records made, prefill.run({&job, 1}, {watch.cancel, {}}));
  return std::move(made[0]);
}

}  // namespace blend
