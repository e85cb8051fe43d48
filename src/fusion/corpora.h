// Corpora: which chunks of a store are similar, for each head and tenant that was asked for.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "corpus/similar_chunks.h"
#include "engine/model_description.h"

namespace blend {

// What the chunks of one corpus have in common.
struct CorpusKey {
  DType dtype = DType::f16;
  std::vector<int32_t> head;
  std::string tenant;
};

// The chunks of each corpus that a store holds, as far as they were asked for: built once from the
// store, kept while the store is open. Thread-safe.
class Corpora {
 public:
  // Calls a function for every description in the store.
  using ForEach = std::function<Status(const std::function<void(const ChunkMeta&)>&)>;

  // The index of the head records of `key`. Failing to build it leaves nothing.
  Result<std::shared_ptr<SimilarChunks>> index_of(const ModelDescription& model,
                                                  const CorpusKey& key, const ForEach& for_each);

 private:
  static constexpr size_t kMost = 16;  // corpora kept; a store has few heads and tenants in use
  std::mutex mutex_;
  std::vector<std::pair<Sha256, std::shared_ptr<SimilarChunks>>> indices_;  // the latest last
};

}  // namespace blend
