// Corpora: finds similar chunks of a store, for each head and tenant that was asked for.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/threads/guarded.h"
#include "corpus/similar_chunks.h"
#include "engine/model_description.h"

namespace blend {

// The properties that the chunks of one corpus share.
struct CorpusKey {
  DType dtype = DType::f16;
  std::vector<int32_t> head;
  std::string tenant;
};

// An index of each corpus of a store that was asked for. It is built once from the store, and kept
// while the store is open. Thread-safe.
class Corpora {
 public:
  // Calls a function for every description in the store.
  using ForEach = std::function<Status(const std::function<void(const ChunkMeta&)>&)>;

  // The index of the head records of `key`. An index that could not be built is not kept.
  Result<std::shared_ptr<SimilarChunks>> index_of(const ModelDescription& model,
                                                  const CorpusKey& key, const ForEach& for_each);

 private:
  static constexpr size_t kMost = 16;  // corpora kept; a store has few heads and tenants in use
  Mutex mutex_;
  // The latest last.
  std::vector<std::pair<Sha256, std::shared_ptr<SimilarChunks>>> indices_ BLEND_GUARDED_BY(mutex_);
};

}  // namespace blend
