// ContextPasses: which passages of context share a prefill of a chunk.
//
// What a chunk is prefilled after should be about as long as what stands before it in prompts:
// after one short passage its rows attend to that and to each other as they never do among twenty.
// So short passages stand one after the other in one prefill, until they have kContextTokens or so;
// long ones have a prefill each, over which the record is the mean (docs/fusion.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/chunk_prefill.h"

namespace blend {

inline constexpr size_t kContextTokens = 192;
// The same with a predecessor, which counts.
inline constexpr size_t kPrecededTokens = 192;

// Whether the record of a cluster (corpus/clusters.h) is nearer than one after passages, for a
// chunk at first_row of a prompt with a head of n_head tokens. In the prefills of short chunks'
// clusters 512 tokens stand between the head and a chunk on average, in those after passages
// kContextTokens.
inline constexpr size_t kClusterFrom = 512;
constexpr bool fits_cluster(size_t first_row, size_t n_head) {
  return first_row >= n_head + kClusterFrom;
}

// Prefills of a record whose passages stand before a predecessor (end_with()).
inline constexpr size_t kPrecededPasses = 2;
// Tokens of passages that such a prefill takes.
constexpr size_t passage_tokens(size_t n_predecessor) {
  return n_predecessor < kPrecededTokens ? kPrecededTokens - n_predecessor : 0;
}

// The passages of each prefill. n_tokens: of each passage, the most similar first. most: prefills.
// wanted: tokens of a prefill's passages.
std::vector<std::vector<size_t>> deal_passages(std::span<const size_t> n_tokens, size_t most,
                                               size_t wanted = kContextTokens);
// Whether `n` passages of so many tokens in all are enough for `passes` prefills.
bool enough_passages(size_t n, size_t n_tokens, size_t passes);

// The objects that passages point to must outlive it. Movable.
class ContextPasses {
 public:
  struct Part {
    std::span<const int32_t> tokens;
    ChunkSource* stored = nullptr;  // as it is after the head; null: its prefill computes its rows
    ChunkSource* in_context = nullptr;  // as it is among others; null: not known
  };
  // The most similar first: it comes next to the chunk. Every second prefill takes its passages as
  // they are in context. In a short prompt the rows before a chunk are nearly as after the head. In
  // a long one they have seen other passages. The mean over both kinds serves both. A part without
  // room among the others of its prefill is left out; room: tokens of a prefill before the chunk.
  // wanted: tokens of a prefill's passages.
  // most: prefills.
  static ContextPasses of(std::span<const Part> parts, size_t room, size_t most,
                          size_t wanted = kContextTokens);

  // Puts `tokens` at the end of every passage. If there is no passage, they become one. Stored rows
  // are no longer used: the prefills compute those of the passages too.
  void end_with(std::span<const int32_t> tokens);

  std::span<const ContextPassage> passages() const { return passages_; }

 private:
  std::vector<ContextPassage> passages_;
  std::vector<std::vector<int32_t>> joined_;  // texts that no part has as a whole
};

}  // namespace blend
