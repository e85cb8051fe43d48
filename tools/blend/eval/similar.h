// Similar: which chunks of a data set are most like a given one.
//
// Cosine of TF-IDF weights over token ids, (1 + ln tf) * ln(N / df). Near copies (from .9 on) and
// chunks of ten tokens or fewer are not used as context for another chunk.
#pragma once

#include <cstddef>
#include <map>
#include <unordered_map>
#include <vector>

#include "blend/blend.hpp"

namespace blend_cli {

// Immutable, thread-safe.
class SimilarChunks {
 public:
  SimilarChunks() = default;
  // Chunks that occur several times count once.
  explicit SimilarChunks(const std::vector<blendpp::Tokens>& chunks);

  // At most n, the most similar first; the earlier of two alike. Valid while this is.
  std::vector<const blendpp::Tokens*> most_similar(const blendpp::Tokens& chunk, size_t n) const;
  const std::vector<blendpp::Tokens>& chunks() const { return chunks_; }

 private:
  struct Weight {
    size_t chunk;
    double weight;  // of a vector of length 1
  };
  std::map<int32_t, double> weights(const blendpp::Tokens& chunk) const;

  std::vector<blendpp::Tokens> chunks_;            // each once, in their order
  std::unordered_map<int32_t, size_t> in_chunks_;  // df
  std::unordered_map<int32_t, std::vector<Weight>> of_token_;
};

}  // namespace blend_cli
