// CorpusPrecompute: the chunks of a corpus as records that serve each other as context.
//
// Each chunk is stored twice after the prompt head: by itself (its head record, exact where it
// stands first in a prompt, and what others load as a passage), and as a contextual record, the
// mean over its most similar chunks (engine/chunk_prefill.h). Similar chunks are retrieved
// together, so they give a chunk much of what it will meet in a prompt. Passages are read from the
// head records, so a contextual record costs as many passes over its own rows as it has passages,
// and depends on nothing but the head and those texts.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/chunk_prefill.h"
#include "engine/model.h"
#include "fusion/corpora.h"
#include "store/chunk_store.h"

namespace blend {

struct CorpusText {
  std::span<const int32_t> tokens;
  ChunkName name;
};

struct CorpusOptions {
  uint32_t n_contexts = 0;  // similar chunks each, at most kMostContexts; 0: head records only
  double min_similarity = 0;
  bool refresh = false;  // contextual records whose similar chunks are others now are made again
  std::optional<Codec> codec;
};

// What became of a text.
struct CorpusRecord {
  Sha256
      id{};  // of the record that prompts take: contextual, or the head record where none is alike
  Sha256 head_id{};
  uint32_t n_contexts = 0;
  bool existed = false;       // nothing was computed for it
  bool head_existed = false;  // of the head record alone
  bool own_existed = false;   // of the record under `id`
};

// Used once, by one thread. What it is given must outlive it.
class CorpusPrecompute {
 public:
  CorpusPrecompute(const Model& model, ChunkStore& store, SimilarChunks& index, CorpusKey key,
                   const CorpusOptions& options)
      : model_(model), store_(store), index_(index), key_(std::move(key)), options_(options) {}

  // Stores what is missing of `texts`, whose tokens were checked. A run that was stopped goes on
  // where it ended. `done` is told of each text, in order; non-zero stops with CALLBACK. Progress
  // counts chunks, head and contextual records apart. The puts are in the background: flush.
  using Done = std::function<int32_t(size_t text, const CorpusRecord& record)>;
  Status run(std::span<const CorpusText> texts, const Done& done, const Watch& watch);

 private:
  struct Company;  // the passages of one chunk
  ChunkMeta describe(const CorpusText& text, RecordKind kind) const;
  Status store_heads(std::span<const CorpusText> texts, std::vector<bool>& made,
                     const Watch& watch);
  Result<Company> company_of(const CorpusText& text);
  Result<CorpusRecord> store_contextual(const CorpusText& text, const Watch& watch);
  Result<ChunkPrefill*> prefill(size_t rows, const Watch& watch);
  // Whether a record stands under `id`, with just these passages where that matters.
  Result<bool> is_stored(const Sha256& id, const std::vector<Sha256>* contexts);

  const Model& model_;
  ChunkStore& store_;
  SimilarChunks& index_;
  const CorpusKey key_;
  const CorpusOptions options_;
  std::unique_ptr<ChunkPrefill> prefill_;
};

}  // namespace blend
