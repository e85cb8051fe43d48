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
      if (out->places_.emplace(id, out->texts_.size()).second) {
        out->texts_.push_back({id, *s.tokens});
      }
    }
  }
  return out;
}

Status SampleRecords::prefill_after(const std::vector<int32_t>& prefix, const Watch& watch) {
  if (prefill_.has_value() && prefix == prefix_) return Status::ok();
  prefill_.reset();
  cluster_of_.clear();
  prefix_ = prefix;
  prefill_.emplace(model_, prefix_);
  const size_t most =
      std::min(model_.context_length() - prefix_.size(), prefill_->most_in_sequences());
  auto clusters = clusters_of(texts_, index_, {0.0f, most}, {watch.cancel, {}});
  if (!clusters.is_ok()) {
    prefill_.reset();  // the next call tries again
    return clusters.status();
  }
  clusters_ = std::move(*clusters);
  for (size_t c = 0; c < clusters_.size(); ++c) {
    for (const size_t i : clusters_[c].chunks) cluster_of_[i] = c;
  }
  return Status::ok();
}

Status SampleRecords::put(const Sample& sample, const std::vector<int32_t>& prefix, DType kv_dtype,
                          MemoryStore& store, const Watch& watch) {
  if (n_contexts_ == 0) return Status::ok();
  std::vector<int32_t> before;
  for (const Segment& s : sample) {
    const bool exact = before == prefix;
    if (s.kind == SegmentKind::chunk && !s.tokens->empty() && !exact) {
      BLEND_ASSIGN(auto record, record_of(*s.tokens, before.size(), prefix, kv_dtype, watch));
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

Result<RecentRecords::Record> SampleRecords::make_cluster(const Cluster& cluster, size_t text,
                                                          DType kv_dtype, const Watch& watch) {
  std::vector<ChunkJob> jobs;
  const auto id_of = [&](size_t i) {
    return describe_chunk(model_, kv_dtype, prefix_, "", texts_[i].tokens).id;
  };
  const auto add = [&](size_t i) {
    jobs.push_back(
        {describe_chunk(model_, kv_dtype, prefix_, "", texts_[i].tokens, RecordKind::clustered),
         {}});
  };
  size_t place = 0;
  for (const size_t i : cluster.chunks) {
    if (i == text) place = jobs.size();
    add(i);
    BLEND_ASSIGN(const std::vector<size_t> nearest,
                 nearest_in(cluster, i, texts_, index_, kMostContexts));
    for (const size_t j : nearest) jobs.back().meta.contexts.push_back(id_of(j));
  }
  for (const size_t i : cluster.companions) add(i);
  BLEND_ASSIGN(
      const ChunkPrefill::Records made,
      prefill_->run_in_sequences(jobs, orders_of(jobs.size(), n_contexts_), {watch.cancel, {}}));
  for (size_t i = 0; i < cluster.chunks.size(); ++i) kept_.put(made[i]);
  return RecentRecords::Record(made[place]);
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
    const std::span<const int32_t> tokens = texts_[places_.at(other.id)].tokens;
    if (tokens.size() > out.room) continue;
    out.texts.push_back(tokens);
    n_tokens += tokens.size();
    out.ids.push_back(describe_chunk(model_, kv_dtype, prefix_, "", tokens).id);
  }
  return out;
}

Result<RecentRecords::Record> SampleRecords::clustered(std::span<const int32_t> chunk,
                                                       DType kv_dtype, const Watch& watch) {
  const auto text = places_.find(describe_chunk(model_, DType::f32, {}, "", chunk).id);
  if (text == places_.end() || !cluster_of_.contains(text->second)) return RecentRecords::Record();
  const Sha256 id = describe_chunk(model_, kv_dtype, prefix_, "", chunk, RecordKind::clustered).id;
  const RecentRecords::Record kept = kept_.find(id);
  if (kept != nullptr) return kept;
  return make_cluster(clusters_[cluster_of_.at(text->second)], text->second, kv_dtype, watch);
}

Result<std::shared_ptr<const ChunkRecord>> SampleRecords::record_of(
    std::span<const int32_t> chunk, size_t first_row, const std::vector<int32_t>& prefix,
    DType kv_dtype, const Watch& watch) {
  BLEND_RETURN_IF_ERROR(prefill_after(prefix, watch));
  if (fits_cluster(first_row, prefix_.size())) {
    BLEND_ASSIGN(const RecentRecords::Record record, clustered(chunk, kv_dtype, watch));
    if (record != nullptr) return record;
  }
  ChunkMeta meta = describe_chunk(model_, kv_dtype, prefix_, "", chunk, RecordKind::contextual);
  BLEND_ASSIGN(const Company company, company_of(chunk, kv_dtype, n_contexts_));
  if (company.texts.empty()) return RecentRecords::Record();
  BLEND_ASSIGN(const Records after_head, heads(company.texts, kv_dtype, watch));
  Records in_context;
  if (n_contexts_ > 1) {  // the first prefill reads none
    BLEND_ASSIGN(in_context, drafts(company.texts, kv_dtype, watch));
  }
  const Making making(std::move(meta), company, after_head, in_context, n_contexts_);
  ChunkJob job = making.job();
  BLEND_ASSIGN(ChunkPrefill::Records made, prefill_->run({&job, 1}, {watch.cancel, {}}));
  return RecentRecords::Record(std::move(made[0]));
}

}  // namespace blend
