#include "fusion/contexts/corpus_precompute.h"

#include <algorithm>

#include "engine/precompute.h"

namespace blend {
namespace {

Watch cancel_only(const Watch& watch) { return {watch.cancel, {}}; }

}  // namespace

struct CorpusPrecompute::Company {
  std::unique_ptr<StoreSnapshot> snapshot;
  std::vector<std::unique_ptr<ChunkSource>> sources;  // into the snapshot
  std::vector<ContextPassage> passages;
  std::vector<Sha256> ids;
};

ChunkMeta CorpusPrecompute::describe(const CorpusText& text, RecordKind kind) const {
  ChunkMeta meta = describe_chunk(model_, key_.dtype, key_.head, key_.tenant, text.tokens, kind);
  meta.name = text.name;
  return meta;
}

Result<ChunkPrefill*> CorpusPrecompute::prefill(size_t rows, const Watch& watch) {
  if (prefill_ == nullptr) {
    BLEND_ASSIGN(prefill_, ChunkPrefill::create(model_, key_.head, static_cast<uint32_t>(rows),
                                                cancel_only(watch)));
  }
  return prefill_.get();
}

Status CorpusPrecompute::store_heads(std::span<const CorpusText> texts, std::vector<bool>& made,
                                     const Watch& watch) {
  const uint64_t total = texts.size() * (options_.n_contexts > 0 ? 2 : 1);
  for (size_t i = 0; i < texts.size(); ++i) {
    BLEND_RETURN_IF_ERROR(watch.report(i, total));
    const std::string name = "chunk " + std::to_string(i);
    ChunkMeta meta = describe(texts[i], RecordKind::plain);
    BLEND_RETURN_IF_ERROR(index_.add(meta.id, texts[i].tokens).with_context(name));
    BLEND_ASSIGN(const bool stored, store_.contains(meta.id));
    if (stored) continue;
    BLEND_ASSIGN(ChunkPrefill* const prefill, this->prefill(texts[i].tokens.size(), watch));
    auto record = prefill->run({}, std::move(meta), cancel_only(watch));
    if (!record.is_ok()) return record.status().with_context(name);
    (*record)->codec = options_.codec;
    BLEND_RETURN_IF_ERROR(store_.put_async(std::move(*record)).with_context(name));
    made[i] = true;
  }
  return Status::ok();
}

Result<CorpusPrecompute::Company> CorpusPrecompute::company_of(const CorpusText& text) {
  SimilarQuery query;
  // Asks for more than are wanted: some may have left the store, or be too long for the context.
  query.n = 2 * size_t{options_.n_contexts} + 4;
  query.min_similarity = static_cast<float>(options_.min_similarity);
  BLEND_ASSIGN(const std::vector<SimilarChunk> similar, index_.similar_to(text.tokens, query));
  Company out;
  BLEND_ASSIGN(out.snapshot, store_.snapshot());
  const size_t room = model_.context_length() - key_.head.size() - text.tokens.size();
  for (const SimilarChunk& other : similar) {
    if (out.passages.size() == options_.n_contexts) break;
    BLEND_ASSIGN(const bool there, out.snapshot->holds(other.id));
    auto source = there ? out.snapshot->open(other.id, tenant_tag(key_.tenant))
                        : Result<std::unique_ptr<ChunkSource>>(Status{BLEND_E_NOT_FOUND, "gone"});
    if (!source.is_ok()) {
      index_.remove(other.id);  // evicted or removed since
      continue;
    }
    const std::vector<int32_t>& tokens = (*source)->meta().tokens;
    if (tokens.size() > room) continue;
    out.passages.push_back({tokens, source->get()});
    out.ids.push_back(other.id);
    out.sources.push_back(std::move(*source));
  }
  return out;
}

Result<bool> CorpusPrecompute::is_stored(const Sha256& id, const std::vector<Sha256>* contexts) {
  BLEND_ASSIGN(const bool there, store_.contains(id));
  if (!there || contexts == nullptr) return there;
  BLEND_ASSIGN(const auto snapshot, store_.snapshot());
  auto source = snapshot->open(id);
  return source.is_ok() && (*source)->meta().contexts == *contexts;
}

Result<CorpusRecord> CorpusPrecompute::store_contextual(const CorpusText& text,
                                                        const Watch& watch) {
  CorpusRecord out;
  ChunkMeta meta = describe(text, RecordKind::contextual);
  out.id = meta.id;
  if (!options_.refresh) {
    BLEND_ASSIGN(out.existed, is_stored(meta.id, nullptr));
    if (out.existed) {
      out.n_contexts = options_.n_contexts;
      return out;
    }
  }
  std::shared_ptr<ChunkRecord> record;
  {
    // The snapshot must end before the put: a put may wait for space, which snapshots keep in use.
    BLEND_ASSIGN(const Company company, company_of(text));
    out.n_contexts = static_cast<uint32_t>(company.passages.size());
    if (company.passages.empty()) {
      out.id = describe(text, RecordKind::plain).id;
      return out;
    }
    BLEND_ASSIGN(out.existed, is_stored(meta.id, &company.ids));
    if (out.existed) return out;
    meta.contexts = company.ids;
    size_t rows = 0;
    for (const ContextPassage& passage : company.passages) {
      rows = std::max(rows, passage.tokens.size());
    }
    BLEND_ASSIGN(ChunkPrefill* const prefill, this->prefill(rows + text.tokens.size(), watch));
    BLEND_ASSIGN(record, prefill->run(company.passages, std::move(meta), cancel_only(watch)));
  }
  record->codec = options_.codec;
  BLEND_RETURN_IF_ERROR(store_.put_async(std::move(record)));
  return out;
}

Status CorpusPrecompute::run(std::span<const CorpusText> texts, const Done& done,
                             const Watch& watch) {
  std::vector<bool> made(texts.size(), false);
  BLEND_RETURN_IF_ERROR(store_heads(texts, made, watch));
  const uint64_t total = texts.size() * (options_.n_contexts > 0 ? 2 : 1);
  for (size_t i = 0; i < texts.size(); ++i) {
    CorpusRecord record;
    record.id = describe(texts[i], RecordKind::plain).id;
    record.existed = true;
    if (options_.n_contexts > 0) {
      BLEND_RETURN_IF_ERROR(watch.report(texts.size() + i, total));
      auto contextual = store_contextual(texts[i], watch);
      if (!contextual.is_ok()) {
        return contextual.status().with_context("chunk " + std::to_string(i));
      }
      record = *contextual;
      if (record.n_contexts == 0) record.existed = true;
    }
    record.head_id = describe(texts[i], RecordKind::plain).id;
    record.head_existed = !made[i];
    record.own_existed = record.id == record.head_id ? record.head_existed : record.existed;
    record.existed = record.existed && !made[i];
    if (const int32_t rc = done ? done(i, record) : 0; rc != 0) {
      return {BLEND_E_CALLBACK, "the callback of a chunk asked to stop", rc};
    }
  }
  return watch.report(total, total);
}

}  // namespace blend
