// StoredPassages: the context passages of a chunk, with their rows where the store has them.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/context_passes.h"
#include "engine/model_description.h"
#include "store/chunk_store.h"

namespace blend {

// What passages and chunk have in common, and what else the prefills of the chunk depend on.
struct PassageKey {
  DType dtype = DType::f16;
  std::span<const int32_t> head;
  std::string_view tenant;
  size_t chunk_tokens = 0;
  bool draft = false;  // of the chunk: one prefill, after as many passages as that takes
  std::span<const int32_t> predecessor = {};  // ends the passages of every prefill
};

// The rows of a passage, as it is after the head or in context. Of this machine only: asking a
// remote tier would take longer than computing them. Null: it has none, or they are damaged.
Result<std::unique_ptr<ChunkSource>> open_passage(const ModelDescription& model,
                                                  StoreSnapshot& snapshot, const PassageKey& key,
                                                  std::span<const int32_t> tokens, RecordKind kind);

// Used by one thread; must not outlive the store. The passages' tokens must outlive it.
class StoredPassages {
 public:
  // Looks each up by open_passage(), as both kinds. A passage that is too long for the model's
  // context, together with chunk and predecessor, is left out. `store` may be null.
  static Result<StoredPassages> open(const ModelDescription& model, ChunkStore* store,
                                     const PassageKey& key,
                                     std::span<const std::span<const int32_t>> passages);

  // As the chunk's prefills take them.
  std::span<const ContextPassage> passages() const { return passes_.passages(); }
  // The ids, as plain records, of the passages that fit, in the order in which they were given.
  const std::vector<Sha256>& ids() const { return ids_; }

 private:
  std::unique_ptr<StoreSnapshot> snapshot_;
  std::vector<std::unique_ptr<ChunkSource>> sources_;  // into the snapshot
  ContextPasses passes_;
  std::vector<Sha256> ids_;
};

}  // namespace blend
