// SimilarChunks: for a chunk, the most similar other chunks of a corpus.
//
// They serve as context passages: passages that a chunk is prefilled after and that are not stored
// with it. Similarity is the cosine of the weights (1 + ln tf) * ln(N / df) over token ids. tf: how
// often the chunk has the token; N: chunks of the corpus; df: those that have the token. A token
// that the corpus lacks counts with a df of 1. N and df are those at the time of the look-up.
//
// A look-up is in two steps, so that it takes milliseconds even among a million chunks:
// 1. It walks the lists of chunks that have a token of the chunk, the rarest tokens first, and sums
// up
//    rough similarities. It stops after max_postings entries. Common tokens, whose lists are long,
//    say little. The last list is cut: its oldest chunks count.
// 2. If at most 4 * max_candidates chunks were met, it computes the similarity of all in float64.
// If
//    not, that of the max_candidates roughly most similar ones, then of as many more while fewer
//    results than asked for have passed, up to 4 * max_candidates.
// So the result is exact while the lists are within max_postings and the chunks that share a token
// within 4 * max_candidates. With chunks of up to 256 tokens that is a corpus of 1024 chunks. Above
// that every similarity is still exact, but a chunk may be missed whose similarity is due to common
// tokens.
//
// Memory: about 7 bytes for each distinct token of each chunk, and 200 bytes a chunk. Chunks of 256
// tokens that follow Zipf's law take 1.3 kB each, a million of them 1.2 GiB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "base/threads/guarded.h"
#include "corpus/term_list.h"
#include "corpus/term_table.h"

namespace blend {

struct SimilarChunksOptions {
  uint32_t min_tokens = 11;  // shorter chunks count in N and df, but are never a result
  uint32_t max_postings = 1 << 18;
  uint32_t max_candidates = 256;
};

struct SimilarQuery {
  size_t n = 4;                 // results at most
  float min_similarity = 0.0f;  // less similar chunks are left out. 0: sharing a token is enough
  float max_similarity = 0.9f;  // chunks at least this similar are left out: they say the same
  // Chunks with the text of one of these are left out. Unknown ids are ignored.
  std::span<const Sha256> except = {};
};

struct SimilarChunk {
  Sha256 id{};
  float similarity = 0.0f;
};

// Thread-safe: one call at a time runs, the others wait for it. Results depend on nothing but the
// options, the look-up, and the chunks in the order of adding. (Above the exact range also on
// removed chunks, since their entries still count in max_postings until they are swept out.)
class SimilarChunks {
 public:
  explicit SimilarChunks(const SimilarChunksOptions& options = {}) : options_(options) {}
  SimilarChunks(const SimilarChunks&) = delete;
  SimilarChunks& operator=(const SimilarChunks&) = delete;

  // The id should identify the text rather than a record, so that a text counts once. The same id
  // again with the same tokens changes nothing; with others: INVALID_ARGUMENT. After an error the
  // corpus is as it was. Any token ids, also none; at most TermList::kMaxTokens.
  Status add(const Sha256& id, std::span<const int32_t> tokens);
  // False: no such chunk. Once the removed chunks are more than a quarter of those that stay, the
  // call also sweeps their entries out of the lists (a second or so for a million chunks).
  bool remove(const Sha256& id);

  // The most similar first, of equals the one that was added first. Never among them: the chunk
  // itself and others with equal tokens; and of several with equal tokens only the first.
  Result<std::vector<SimilarChunk>> similar_to(std::span<const int32_t> tokens,
                                               const SimilarQuery& query) const;
  // The same for a chunk of the corpus. NOT_FOUND: it is not there.
  Result<std::vector<SimilarChunk>> similar_to_stored(const Sha256& id,
                                                      const SimilarQuery& query) const;

  bool contains(const Sha256& id) const;
  size_t n_chunks() const;
  size_t bytes() const;  // an estimate of the heap memory

 private:
  using Slots = std::unordered_map<Sha256, uint32_t, Sha256Hash>;
  struct Chunk {
    TermList terms;
    Slots::value_type* entry = nullptr;  // the id and this slot; null: removed
    uint64_t text = 0;                   // checksum of the token ids
  };
  // A chunk that step 1 came upon, and one that step 2 computed.
  struct Scored {
    float similarity;
    uint32_t slot;
  };
  // A term of the chunk that is looked up.
  struct Wanted {
    uint32_t index;
    uint32_t n_postings;
    double weight;
  };

  double norm_of(const TermList& terms) const BLEND_REQUIRES(mutex_);
  void refresh_scale(uint32_t slot) BLEND_REQUIRES(mutex_);
  void refresh_some_scales() BLEND_REQUIRES(mutex_);
  void sweep() BLEND_REQUIRES(mutex_);
  Result<std::vector<SimilarChunk>> look_up(const TermList& terms, uint64_t text,
                                            const SimilarQuery& query) const BLEND_REQUIRES(mutex_);
  size_t want(const TermList& terms) const BLEND_REQUIRES(mutex_);
  void sum_up(size_t n_postings) const BLEND_REQUIRES(mutex_);
  float similarity(const TermList& terms, double query_norm) const BLEND_REQUIRES(mutex_);

  const SimilarChunksOptions options_;
  mutable Mutex mutex_;
  mutable TermTable terms_ BLEND_GUARDED_BY(mutex_);  // mutable: Term::weight
  Slots slots_ BLEND_GUARDED_BY(mutex_);
  std::vector<Chunk> chunks_ BLEND_GUARDED_BY(mutex_);  // by slot: in the order of adding
  // 1 / norm by slot for step 1, which may be of an earlier N and df: every call of add() and
  // remove() computes two of them again, so that all are newer than half the corpus. 0: never a
  // result.
  std::vector<float> scales_ BLEND_GUARDED_BY(mutex_);
  uint32_t next_scale_ BLEND_GUARDED_BY(mutex_) = 0;
  double ln_n_ BLEND_GUARDED_BY(mutex_) = 0.0;            // ln of slots_.size()
  size_t list_bytes_ BLEND_GUARDED_BY(mutex_) = 0;        // of all TermLists
  std::vector<uint32_t> added_ BLEND_GUARDED_BY(mutex_);  // terms of the chunk that is being added

  // Scratch of one look-up, kept so that the next one need not allocate.
  mutable std::vector<float> sums_ BLEND_GUARDED_BY(mutex_);  // by slot; 0 between look-ups
  mutable std::vector<Wanted> wanted_ BLEND_GUARDED_BY(mutex_);
  mutable std::vector<uint32_t> touched_ BLEND_GUARDED_BY(mutex_);
  mutable std::vector<Scored> candidates_ BLEND_GUARDED_BY(mutex_);
  mutable std::vector<Scored> passed_ BLEND_GUARDED_BY(mutex_);
};

}  // namespace blend
