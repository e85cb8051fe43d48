// Recorder: puts a question's chunks into the store as each kind of record has them, and says how a
// fuse finds them again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "blend/blend.hpp"
#include "eval/records.h"
#include "eval/similar.h"
#include "question.h"

namespace blend_cli {

// Size of the chunks of a run with one codec.
struct CodecSize {
  uint64_t tokens = 0;
  uint64_t stored_bytes = 0;  // K and V
  uint64_t elements = 0;      // of K and V, and of what other layers keep

  double bytes_per_token() const;
  double bits_per_element() const;
};

// Used by one thread.
class Recorder {
 public:
  // `corpus`: the texts among which similar chunks are looked for. `profile` may be null.
  Recorder(const blendpp::Model& model, const blendpp::Store& store,
           const blendpp::Profile* profile, const std::vector<std::string>& corpus)
      : model_(model), store_(store), profile_(profile), corpus_(corpus) {}

  // From here on store() does this kind with this codec too; `records` as in EvalConfig.
  void add(const std::string& records, uint32_t codec);
  // All kinds, and what precedes the chunks.
  void store(const Question& question);
  // Removes what this run has stored, when the store has grown past `bytes` and the corpora.
  void trim(uint64_t bytes);

  // Tells a fuse what the chunks of `question` were prefilled after, and their tenant. Valid
  // until the next call.
  void find(const std::string& records, uint32_t codec, const Question& question,
            blendpp::FuseOptions& fuse);

  const std::map<uint32_t, CodecSize>& sizes() const { return sizes_; }

 private:
  const RecordKind& kind(const std::string& records);
  const blendpp::Tokens& chunk_prefix(const std::string& records, const Question& question);
  std::string tenant(const std::string& records, uint32_t codec, const Question& question);
  const SimilarChunks& similar();
  const std::string& corpus_mark();
  void put(const blendpp::Tokens& tokens, const blendpp::Tokens& prefix, const std::string& tenant,
           uint32_t codec, const std::vector<const blendpp::Tokens*>& contexts = {},
           const blendpp::Tokens& predecessor = {});
  // All chunks of the data in context of each other, once for each head.
  void store_corpus(const blendpp::Tokens& prefix, uint32_t n_contexts, const std::string& tenant,
                    uint32_t codec);
  blendpp::CodecStat codec_stat(uint32_t codec) const;
  // What was stored with a codec since `before`.
  void add_size(uint32_t codec, const blendpp::CodecStat& before, size_t n_tokens);
  // Of K and V of the chunk that was stored last.
  uint64_t element_bytes();
  // What chunk `i` is prefilled after, for a contextual kind.
  std::vector<const blendpp::Tokens*> passages(const RecordKind& kind, const Question& question,
                                               size_t i);
  // What chunk `i` may be prefilled after besides its predecessor, the most similar first.
  std::vector<const blendpp::Tokens*> others_before(const Question& question, size_t i);
  void store(const Question& question, const std::string& records, uint32_t codec);

  const blendpp::Model& model_;
  const blendpp::Store& store_;
  const blendpp::Profile* profile_;
  const std::vector<std::string>& corpus_;
  std::map<std::string, RecordKind> kinds_;       // by their names
  std::map<std::string, blendpp::Tokens> fixed_;  // chunk prefixes that no prompt changes
  std::set<std::pair<std::string, uint32_t>> wanted_;
  std::set<uint32_t> codecs_;
  std::optional<SimilarChunks> similar_;
  std::string tenant_;                    // of the fuse that is prepared
  blendpp::Tokens joined_;                // the passage that was put together last
  std::string corpus_mark_;               // tells two data sets apart
  std::map<uint32_t, CodecSize> sizes_;   // of codecs that were named
  std::vector<blendpp::ChunkId> stored_;  // by this run
  std::set<std::pair<std::string, blendpp::Tokens>> corpora_;  // stored: tenant and head
  uint64_t corpus_bytes_ = 0;                                  // of them, which stay
  uint64_t element_bytes_ = 0;  // of the store's chunks; 0: not known yet
};

}  // namespace blend_cli
