#include "fusion/contexts/corpus_precompute.h"

#include <algorithm>
#include <set>
#include <string>

#include "engine/chunk_shape.h"
#include "engine/precompute.h"
#include "fusion/contexts/passages.h"

namespace blend {
struct CorpusPrecompute::Company {
  std::vector<std::unique_ptr<ChunkSource>> sources;  // into the snapshot
  ContextPasses passes;
  std::vector<Sha256> ids;
};

struct CorpusPrecompute::ClusterPlan {
  std::vector<ClusterText> texts;  // without a record of a cluster
  std::vector<size_t> places;      // of each, among all texts
};

struct CorpusPrecompute::Together {
  std::unique_ptr<StoreSnapshot> snapshot;  // of all companies
  std::vector<Company> companies;           // of the jobs' passages
  std::vector<ChunkJob> jobs;
  std::vector<std::string> names;
  std::set<Sha256> ids;
  size_t n_rows = 0;

  // A text may come twice.
  bool is_new(const Sha256& id) const { return !ids.contains(id); }
  uint32_t n_contexts_of(const Sha256& id) const {
    for (const ChunkJob& job : jobs) {
      if (job.meta.id == id) return static_cast<uint32_t>(job.meta.contexts.size());
    }
    return 0;
  }
  // Twice what idle work takes at once: decoded weights serve more rows, and no request has to wait
  // for the end of a layer. (Chunks of 50 tokens on a Zen 5 with AVX-512, of a long prompt's rate:
  // 0.96 with as many as idle work takes, 1.01 with these.)
  bool full() const { return n_rows >= 2 * ChunkPrefill::kFullRows; }
  void add(ChunkJob job) {
    ids.insert(job.meta.id);
    n_rows += job.n_rows();
    names.push_back(job.name);
    jobs.push_back(std::move(job));
  }
  void clear() {
    jobs.clear();
    companies.clear();
    snapshot.reset();
    names.clear();
    ids.clear();
    n_rows = 0;
  }
};

ChunkMeta CorpusPrecompute::describe(const CorpusText& text, RecordKind kind) const {
  ChunkMeta meta = describe_chunk(model_, key_.dtype, key_.head, key_.tenant, text.tokens, kind);
  meta.name = text.name;
  return meta;
}

Status CorpusPrecompute::store(Together& together, const Watch& watch) {
  if (together.jobs.empty()) {
    together.clear();
    return Status::ok();
  }
  const Watch cancel_only{watch.cancel, {}};
  BLEND_ASSIGN(ChunkPrefill::Records records, prefill_.run(together.jobs, cancel_only));
  return put(std::move(records), together);
}

Status CorpusPrecompute::put(ChunkPrefill::Records records, Together& together) {
  const std::vector<std::string> names = std::move(together.names);
  // The snapshot must end before the puts: a put may wait for space, which snapshots keep in use.
  together.clear();
  for (size_t i = 0; i < records.size(); ++i) {
    records[i]->codec = options_.codec;
    BLEND_RETURN_IF_ERROR(store_.put_async(std::move(records[i])).with_context(names[i]));
  }
  return Status::ok();
}

uint64_t CorpusPrecompute::n_steps(std::span<const CorpusText> texts) const {
  const int each =
      1 + (options_.n_contexts > 0 ? 1 : 0) + (has_drafts() ? 1 : 0) + (has_clusters() ? 1 : 0);
  return texts.size() * static_cast<uint64_t>(each);
}

Status CorpusPrecompute::store_heads(std::span<const CorpusText> texts, std::vector<bool>& made,
                                     const Watch& watch) {
  Together next;
  for (size_t i = 0; i < texts.size(); ++i) {
    BLEND_RETURN_IF_ERROR(watch.report(i, n_steps(texts)));
    const std::string name = "chunk " + std::to_string(i);
    ChunkMeta meta = describe(texts[i], RecordKind::plain);
    BLEND_RETURN_IF_ERROR(index_.add(meta.id, texts[i].tokens).with_context(name));
    BLEND_ASSIGN(const bool stored, store_.contains(meta.id));
    if (stored || !next.is_new(meta.id)) continue;
    made[i] = true;
    next.add({std::move(meta), {}, name});
    if (next.full()) BLEND_RETURN_IF_ERROR(store(next, watch));
  }
  return store(next, watch);
}

Status CorpusPrecompute::store_clusters(std::span<const CorpusText> texts, const Watch& watch) {
  std::set<Sha256> ids;
  ClusterPlan plan;
  for (size_t i = 0; i < texts.size(); ++i) {
    BLEND_RETURN_IF_ERROR(watch.check());
    const Sha256 id = describe(texts[i], RecordKind::clustered).id;
    if (!ids.insert(id).second) continue;  // the text comes twice
    BLEND_ASSIGN(const bool stored, store_.contains(id));
    if (stored && !options_.refresh) continue;
    plan.texts.push_back({describe(texts[i], RecordKind::plain).id, texts[i].tokens});
    plan.places.push_back(i);
  }
  const ClusterLimits limits{
      static_cast<float>(options_.min_similarity),
      std::min(model_.context_length() - key_.head.size(), prefill_.most_in_sequences())};
  BLEND_ASSIGN(const std::vector<Cluster> clusters,
               clusters_of(plan.texts, index_, limits, {watch.cancel, {}}));
  uint64_t n_made = 0;
  for (const Cluster& cluster : clusters) {
    BLEND_RETURN_IF_ERROR(watch.report(n_steps(texts) - 2 * texts.size() + n_made, n_steps(texts)));
    BLEND_RETURN_IF_ERROR(make_cluster(texts, plan, cluster, watch));
    n_made += cluster.chunks.size();
  }
  return Status::ok();
}

Status CorpusPrecompute::make_cluster(std::span<const CorpusText> texts, const ClusterPlan& plan,
                                      const Cluster& cluster, const Watch& watch) {
  Together next;
  const auto add = [&](size_t i, std::vector<Sha256> contexts) {
    const size_t text = plan.places[i];
    ChunkMeta meta = describe(texts[text], RecordKind::clustered);
    meta.contexts = std::move(contexts);
    next.add({std::move(meta), {}, "chunk " + std::to_string(text)});
  };
  bool same = true;
  for (const size_t i : cluster.chunks) {
    BLEND_ASSIGN(const std::vector<size_t> nearest,
                 nearest_in(cluster, i, plan.texts, index_, kMostContexts));
    std::vector<Sha256> contexts;
    contexts.reserve(nearest.size());
    for (const size_t j : nearest) contexts.push_back(plan.texts[j].id);
    const Sha256 id = describe(texts[plan.places[i]], RecordKind::clustered).id;
    BLEND_ASSIGN(const auto stored, contexts_of(id, next));
    // Other chunks of the corpus may change their order.
    same = same && stored.has_value() &&
           std::set(stored->begin(), stored->end()) == std::set(contexts.begin(), contexts.end());
    add(i, std::move(contexts));
  }
  if (same) return Status::ok();
  for (const size_t i : cluster.companions) add(i, {});
  const auto orders = orders_of(next.jobs.size(), options_.n_contexts);
  BLEND_ASSIGN(ChunkPrefill::Records records,
               prefill_.run_in_sequences(next.jobs, orders, {watch.cancel, {}}));
  records.resize(cluster.chunks.size());  // the companions have theirs
  for (const auto& record : records) made_in_clusters_.insert(record->meta.id);
  return put(std::move(records), next);
}

Status CorpusPrecompute::store_drafts(std::span<const CorpusText> texts, const Watch& watch) {
  std::vector<size_t> missing;
  for (size_t i = 0; i < texts.size(); ++i) {
    BLEND_RETURN_IF_ERROR(watch.report(texts.size(), n_steps(texts)));
    BLEND_ASSIGN(const bool there, store_.contains(describe(texts[i], RecordKind::contextual).id));
    if (!there) missing.push_back(i);
  }
  if (missing.size() < 2) return Status::ok();  // no other chunk would read the draft
  Together next;
  for (const size_t i : missing) {
    BLEND_RETURN_IF_ERROR(watch.report(texts.size() + i, n_steps(texts)));
    const std::string name = "chunk " + std::to_string(i);
    ChunkMeta meta = describe(texts[i], RecordKind::contextual);
    if (!next.is_new(meta.id)) continue;
    auto company = company_of(texts[i], true, next.snapshot);
    if (!company.is_ok()) return company.status().with_context(name);
    if (company->ids.empty()) continue;
    // Another may have finished it meanwhile: a draft must not replace it.
    BLEND_ASSIGN(const bool there, next.snapshot->holds(meta.id));
    if (there) continue;
    meta.contexts = company->ids;
    meta.draft = true;
    next.companies.push_back(std::move(*company));
    next.add({std::move(meta), next.companies.back().passes.passages(), name});
    if (next.full()) BLEND_RETURN_IF_ERROR(store(next, watch));
  }
  return store(next, watch);
}

Result<CorpusPrecompute::Company> CorpusPrecompute::company_of(
    const CorpusText& text, bool draft, std::unique_ptr<StoreSnapshot>& snapshot) {
  const uint32_t n_passes = draft ? 1 : options_.n_contexts;
  SimilarQuery query;
  // Asks for more than are wanted: some may have left the store, or be too long for the context.
  query.n = 2 * kMostContexts + 4;
  query.min_similarity = static_cast<float>(options_.min_similarity);
  BLEND_ASSIGN(const std::vector<SimilarChunk> similar, index_.similar_to(text.tokens, query));
  Company out;
  if (snapshot == nullptr) {
    BLEND_ASSIGN(snapshot, store_.snapshot());
  }
  const size_t room = model_.context_length() - key_.head.size() - text.tokens.size();
  const PassageKey key{key_.dtype, key_.head, key_.tenant, text.tokens.size()};
  std::vector<ContextPasses::Part> parts;
  size_t n_tokens = 0;
  for (const SimilarChunk& other : similar) {
    if (enough_passages(parts.size(), n_tokens, n_passes)) break;
    BLEND_ASSIGN(const bool there, snapshot->holds(other.id));
    auto source = there ? snapshot->open(other.id, tenant_tag(key_.tenant))
                        : Result<std::unique_ptr<ChunkSource>>(Status{BLEND_E_NOT_FOUND, "gone"});
    if (!source.is_ok() || !has_layers_of((*source)->meta().shape, model_.config())) {
      index_.remove(other.id);  // evicted or removed since, or forged
      continue;
    }
    const std::vector<int32_t>& tokens = (*source)->meta().tokens;
    if (tokens.size() > room) continue;
    parts.push_back({tokens, source->get()});
    if (!draft) {
      BLEND_ASSIGN(auto in_context,
                   open_passage(model_, *snapshot, key, tokens, RecordKind::contextual));
      parts.back().in_context = in_context.get();
      if (in_context != nullptr) out.sources.push_back(std::move(in_context));
    }
    n_tokens += tokens.size();
    out.ids.push_back(other.id);
    out.sources.push_back(std::move(*source));
  }
  if (!parts.empty()) out.passes = ContextPasses::of(parts, room, n_passes);
  return out;
}

Result<std::optional<std::vector<Sha256>>> CorpusPrecompute::contexts_of(const Sha256& id,
                                                                         Together& next) {
  using Contexts = std::optional<std::vector<Sha256>>;
  BLEND_ASSIGN(const bool there, store_.contains(id));
  if (!there) return Contexts();
  if (next.snapshot == nullptr) {
    BLEND_ASSIGN(next.snapshot, store_.snapshot());
  }
  auto source = next.snapshot->open(id);
  // It may be on its way to the store still, or damaged: then its passages are not known.
  if (!source.is_ok()) return Contexts(std::in_place);
  return (*source)->meta().draft ? Contexts() : Contexts((*source)->meta().contexts);
}

Result<CorpusRecord> CorpusPrecompute::plan_contextual(const CorpusText& text,
                                                       const std::string& name, Together& next) {
  CorpusRecord out;
  ChunkMeta meta = describe(text, RecordKind::contextual);
  out.id = meta.id;
  if (!next.is_new(meta.id)) {  // the text comes twice
    out.n_contexts = next.n_contexts_of(meta.id);
    out.existed = true;
    return out;
  }
  BLEND_ASSIGN(const auto stored, contexts_of(meta.id, next));
  if (stored.has_value() && !options_.refresh) {
    out.n_contexts = stored->empty() ? options_.n_contexts : static_cast<uint32_t>(stored->size());
    out.existed = true;
    return out;
  }
  BLEND_ASSIGN(Company company, company_of(text, false, next.snapshot));
  out.n_contexts = static_cast<uint32_t>(company.ids.size());
  if (company.ids.empty()) {
    out.id = describe(text, RecordKind::plain).id;
    out.existed = true;
    return out;
  }
  out.existed = stored == company.ids;
  if (out.existed) return out;
  meta.contexts = company.ids;
  next.companies.push_back(std::move(company));
  next.add({std::move(meta), next.companies.back().passes.passages(), name});
  return out;
}

Status CorpusPrecompute::run(std::span<const CorpusText> texts, const Done& done,
                             const Watch& watch) {
  std::vector<bool> made(texts.size(), false);
  BLEND_RETURN_IF_ERROR(store_heads(texts, made, watch));
  if (has_drafts()) BLEND_RETURN_IF_ERROR(store_drafts(texts, watch));
  if (has_clusters()) BLEND_RETURN_IF_ERROR(store_clusters(texts, watch));
  Together next;
  std::vector<CorpusRecord> records;  // of the texts whose `done` is to be called
  const auto finish = [&](size_t end) -> Status {
    BLEND_RETURN_IF_ERROR(store(next, watch));
    const size_t first = end - records.size();
    for (size_t i = 0; i < records.size(); ++i) {
      if (const int32_t rc = done ? done(first + i, records[i]) : 0; rc != 0) {
        return {BLEND_E_CALLBACK, "the callback of a chunk asked to stop", rc};
      }
    }
    records.clear();
    return Status::ok();
  };
  for (size_t i = 0; i < texts.size(); ++i) {
    CorpusRecord record;
    const Sha256 head_id = describe(texts[i], RecordKind::plain).id;
    record.id = head_id;
    record.existed = true;
    if (options_.n_contexts > 0) {
      BLEND_RETURN_IF_ERROR(watch.report(n_steps(texts) - texts.size() + i, n_steps(texts)));
      const std::string name = "chunk " + std::to_string(i);
      auto contextual = plan_contextual(texts[i], name, next);
      if (!contextual.is_ok()) return contextual.status().with_context(name);
      record = *contextual;
    }
    record.head_id = head_id;
    record.head_existed = !made[i];
    record.own_existed = record.id == head_id ? record.head_existed : record.existed;
    record.cluster_id = describe(texts[i], RecordKind::clustered).id;
    record.cluster_existed = !made_in_clusters_.contains(record.cluster_id);
    record.existed = record.existed && record.head_existed && record.cluster_existed;
    records.push_back(record);
    // Texts that are stored already wait for nobody.
    if (next.jobs.empty() || next.full()) BLEND_RETURN_IF_ERROR(finish(i + 1));
  }
  BLEND_RETURN_IF_ERROR(finish(texts.size()));
  return watch.report(n_steps(texts), n_steps(texts));
}

}  // namespace blend
