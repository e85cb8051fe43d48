#include "fusion/contexts/passages.h"

#include <algorithm>

#include "engine/chunk_shape.h"

namespace blend {

Result<std::unique_ptr<ChunkSource>> open_passage(const ModelDescription& model,
                                                  StoreSnapshot& snapshot, const PassageKey& key,
                                                  std::span<const int32_t> tokens,
                                                  RecordKind kind) {
  const Sha256 id = chunk_id(model.fingerprint(), key.dtype, key.head, key.tenant, tokens, kind);
  BLEND_ASSIGN(const bool there, snapshot.holds(id));
  if (!there) return std::unique_ptr<ChunkSource>();
  auto source = snapshot.open(id, tenant_tag(key.tenant));
  if (!source.is_ok()) return std::unique_ptr<ChunkSource>();  // damaged, or removed since
  const ChunkMeta& meta = (*source)->meta();
  const bool fits =
      has_layers_of(meta.shape, model.config()) &&
      std::equal(meta.tokens.begin(), meta.tokens.end(), tokens.begin(), tokens.end()) &&
      meta.contexts.empty() == (kind == RecordKind::plain);
  return fits ? std::move(*source) : std::unique_ptr<ChunkSource>();
}

Result<StoredPassages> StoredPassages::open(const ModelDescription& model, ChunkStore* store,
                                            const PassageKey& key,
                                            std::span<const std::span<const int32_t>> passages) {
  StoredPassages out;
  // Stored rows of passages would not be enough: the predecessor's depend on them.
  if (store != nullptr && !passages.empty() && key.predecessor.empty()) {
    BLEND_ASSIGN(out.snapshot_, store->snapshot());
  }
  const size_t taken = key.head.size() + key.predecessor.size() + key.chunk_tokens;
  std::vector<ContextPasses::Part> parts;
  size_t n_tokens = 0;
  const size_t wanted = passage_tokens(key.predecessor.size());
  for (const std::span<const int32_t> tokens : passages) {
    if (key.draft && enough_passages(parts.size(), n_tokens, 1)) break;
    if (wanted == 0) break;  // the predecessor is long enough
    if (!key.predecessor.empty() && parts.size() >= kPrecededPasses &&
        n_tokens >= kPrecededPasses * wanted) {
      break;
    }
    if (taken + tokens.size() > model.context_length()) continue;
    const Sha256 id = chunk_id(model.fingerprint(), key.dtype, key.head, key.tenant, tokens);
    out.ids_.push_back(id);
    parts.push_back({tokens, nullptr});
    n_tokens += tokens.size();
    if (out.snapshot_ == nullptr) continue;
    for (const RecordKind kind : {RecordKind::plain, RecordKind::contextual}) {
      if (key.draft && kind == RecordKind::contextual) continue;  // its only prefill reads none
      BLEND_ASSIGN(auto source, open_passage(model, *out.snapshot_, key, tokens, kind));
      if (source == nullptr) continue;
      (kind == RecordKind::plain ? parts.back().stored : parts.back().in_context) = source.get();
      out.sources_.push_back(std::move(source));
    }
  }
  const size_t room = model.context_length() - std::min<size_t>(taken, model.context_length());
  if (key.predecessor.empty()) {
    out.passes_ = ContextPasses::of(parts, room, key.draft ? 1 : parts.size());
  } else {
    out.passes_ = ContextPasses::of(parts, room, kPrecededPasses, wanted);
    out.passes_.end_with(key.predecessor);
  }
  return out;
}

}  // namespace blend
