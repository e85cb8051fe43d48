#include "fusion/prompt/passages.h"

#include <algorithm>

#include "engine/chunk_shape.h"

namespace blend {

Result<StoredPassages> StoredPassages::open(const ModelDescription& model, ChunkStore* store,
                                            const PassageKey& key,
                                            std::span<const std::span<const int32_t>> passages) {
  StoredPassages out;
  if (store != nullptr && !passages.empty()) {
    BLEND_ASSIGN(out.snapshot_, store->snapshot());
  }
  const ModelConfig& c = model.config();
  const size_t taken = key.head.size() + key.chunk_tokens;
  std::vector<ContextPasses::Part> parts;
  for (const std::span<const int32_t> tokens : passages) {
    if (taken + tokens.size() > model.context_length()) continue;
    const Sha256 id = chunk_id(model.fingerprint(), key.dtype, key.head, key.tenant, tokens);
    out.ids_.push_back(id);
    parts.push_back({tokens, nullptr});
    if (out.snapshot_ == nullptr) continue;
    BLEND_ASSIGN(const bool there, out.snapshot_->holds(id));
    if (!there) continue;
    auto source = out.snapshot_->open(id, tenant_tag(key.tenant));
    if (!source.is_ok()) continue;  // damaged or removed: its rows are computed
    const ChunkMeta& meta = (*source)->meta();
    const bool fits =
        has_layers_of(meta.shape, c) &&
        std::equal(meta.tokens.begin(), meta.tokens.end(), tokens.begin(), tokens.end()) &&
        meta.contexts.empty();
    if (!fits) continue;
    out.sources_.push_back(std::move(*source));
    parts.back().stored = out.sources_.back().get();
  }
  if (!parts.empty())
    out.passes_ = ContextPasses::of(parts, model.context_length() - taken, parts.size());
  return out;
}

}  // namespace blend
