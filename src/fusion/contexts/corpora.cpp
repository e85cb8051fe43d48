#include "fusion/contexts/corpora.h"

#include <algorithm>

namespace blend {
namespace {

Sha256 corpus_id(const ModelDescription& model, const CorpusKey& key) {
  return chunk_id(model.fingerprint(), key.dtype, key.head, key.tenant, {});
}

}  // namespace

Result<std::shared_ptr<SimilarChunks>> Corpora::index_of(const ModelDescription& model,
                                                         const CorpusKey& key,
                                                         const ForEach& for_each) {
  const Sha256 id = corpus_id(model, key);
  const MutexLock lock(mutex_);
  for (auto& entry : indices_) {
    if (entry.first != id) continue;
    std::rotate(&entry, &entry + 1, indices_.data() + indices_.size());
    return indices_.back().second;
  }
  auto index = std::make_shared<SimilarChunks>();
  const TenantTag tenant = tenant_tag(key.tenant);
  Status failed;
  BLEND_RETURN_IF_ERROR(for_each([&](const ChunkMeta& meta) {
    const bool plain = meta.fingerprint == model.fingerprint() && meta.tenant == tenant &&
                       meta.shape.dtype == key.dtype && meta.contexts.empty() &&
                       meta.n_prefix_tokens == key.head.size();
    if (!plain || !failed.is_ok()) return;
    const Sha256 own =
        chunk_id(meta.fingerprint, meta.shape.dtype, key.head, key.tenant, meta.tokens);
    if (own == meta.id) failed = index->add(own, meta.tokens);
  }));
  BLEND_RETURN_IF_ERROR(failed);
  if (indices_.size() == kMost) indices_.erase(indices_.begin());
  indices_.emplace_back(id, index);
  return index;
}

}  // namespace blend
