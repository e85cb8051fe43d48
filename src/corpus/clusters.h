// Clusters: chunks of a corpus that are prefilled together, because prompts will have them
// together.
//
// In a long prompt a row has seen much other text. So similar chunks are put one after the other
// and prefilled as one text, as many times as a record is the mean of, each time in another order:
// a chunk stands now early, now late, and after other neighbors. Every row is computed after the
// rows that precede it, so nothing is wrong in it but the order; and a prefill of some chunks costs
// no more than theirs one by one. Such a record serves places with much text before them. Near a
// prompt's beginning one after passages is better (docs/fusion.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "base/threads/cancel.h"
#include "corpus/similar_chunks.h"

namespace blend {

// A chunk to put into a cluster. The tokens must outlive it.
struct ClusterText {
  Sha256 id{};  // in the index
  std::span<const int32_t> tokens;
};

struct ClusterLimits {
  float min_similarity = 0.0f;  // 0: the chunks that are left over may be in one cluster too
  size_t most_tokens = 0;       // of a cluster; the constants below bound it too
};

// Prompts of short chunks are shorter: a cluster of chunks that are shorter than kLongChunk has
// kShortClusterTokens at most, of others kMostClusterTokens.
inline constexpr size_t kLongChunk = 128, kShortClusterTokens = 1024, kMostClusterTokens = 2048;
// Chunks of a cluster. One that stands first has seen nothing: with four chunks of 512 tokens
// records were worse than after passages.
inline constexpr size_t kLeastClusterChunks = 8;

// Indices of texts.
struct Cluster {
  std::vector<size_t> chunks;
  std::vector<size_t> companions;  // of other clusters, where its own are few
};
// `texts`, whose ids differ, each a chunk of at most one cluster. Those that are in none are too
// long for eight to fit, or have too few similar ones. Chunks that say the same are never in one
// cluster. Depends on nothing but the arguments.
Result<std::vector<Cluster>> clusters_of(std::span<const ClusterText> texts,
                                         const SimilarChunks& index, const ClusterLimits& limits,
                                         const Watch& watch);

// The others of the cluster that `text` is in, the most similar first, at most `most`.
Result<std::vector<size_t>> nearest_in(const Cluster& cluster, size_t text,
                                       std::span<const ClusterText> texts,
                                       const SimilarChunks& index, size_t most);

// The orders of n chunks in `passes` prefills.
std::vector<std::vector<size_t>> orders_of(size_t n, size_t passes);

}  // namespace blend
