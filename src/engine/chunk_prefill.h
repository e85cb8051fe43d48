// ChunkPrefill: prefills chunks after one prompt head, which is computed once.
//
// A chunk that is prefilled alone makes a false attention sink of its first token, and lacks what
// any preceding text would have given. So it is prefilled after the head that prompts begin with,
// and after a passage of context that is not kept. Over several passages K and V are averaged
// in the backend's own precision before they are rounded to the stored type: the part that depends
// on one passage averages out, the part that any text gives stays. Such a record is closer to full
// prefill than a record after the head alone with 15 % of its rows recomputed (docs/quality.md).
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/forward.h"
#include "store/chunk/chunk.h"

namespace blend {

// Text that a chunk is prefilled after and that is not kept with it.
struct ContextPassage {
  std::span<const int32_t> tokens;
  // Its rows as they are after the head, where a store has them: then only the chunk's own rows are
  // computed. Null: they are computed too.
  ChunkSource* stored = nullptr;
};

// Used by one thread at a time. The model and `head` must outlive it.
class ChunkPrefill {
 public:
  // `rows`: of passage and chunk together, if known; reserve() adds more. The head is computed
  // here. CONTEXT_LENGTH when head and rows do not fit the model.
  static Result<std::unique_ptr<ChunkPrefill>> create(const Model& model,
                                                      std::span<const int32_t> head, uint32_t rows,
                                                      const Watch& watch);

  // The record of meta.tokens after the head and each of `passages` in turn; with none: after the
  // head alone. A passage must leave the chunk room in the model's context. K is kept without
  // position (AttentionStore 3.4.1), so the chunk may later stand anywhere. meta gives id, shape
  // and tokens; the rows' context impact is put beside them (context_impact.h). Progress counts
  // layers. CONTEXT_LENGTH when head and chunk do not fit; CORRUPT when a passage cannot be read;
  // NUMERIC when a value does not fit the stored type.
  Result<std::shared_ptr<ChunkRecord>> run(std::span<const ContextPassage> passages, ChunkMeta meta,
                                           const Watch& watch);

 private:
  struct Work;  // of one run
  ChunkPrefill(const Model& model, std::span<const int32_t> head) : model_(model), head_(head) {}

  // Makes room for this many rows after the head, which is computed again if there was less.
  Status reserve(uint32_t rows, const Watch& watch);
  // One prefill of the chunk; passage may be null.
  Status pass(const ContextPassage* passage, Work& work, const Watch& watch);
  // The rows of a stored passage into the cache.
  Status place(ChunkSource& stored, uint32_t layer, AlignedBuffer& space);
  // The chunk's fresh rows of a layer: rounded into the record, or summed up and then rounded.
  Status keep(uint32_t layer, Tensor kv, Work& work);

  const Model& model_;
  const std::span<const int32_t> head_;
  uint32_t rows_ = 0;  // capacity after the head
  std::unique_ptr<Forward> forward_;
  std::shared_ptr<const Ropes> ropes_;
  std::unique_ptr<KvCache> cache_;    // the head's rows first, for all layers
  std::vector<uint8_t> fresh_slots_;  // [capacity] zeros: scatter() leaves none out
};

}  // namespace blend
