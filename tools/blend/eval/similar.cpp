#include "eval/similar.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace blend_cli {
namespace {

constexpr double kNearCopy = 0.9;
constexpr size_t kShort = 10;

}  // namespace

SimilarChunks::SimilarChunks(const std::vector<blendpp::Tokens>& chunks) {
  std::set<blendpp::Tokens> seen;
  for (const blendpp::Tokens& chunk : chunks) {
    if (!seen.insert(chunk).second) continue;
    chunks_.push_back(chunk);
    for (const int32_t token : std::set<int32_t>(chunk.begin(), chunk.end())) ++in_chunks_[token];
  }
  for (size_t i = 0; i < chunks_.size(); ++i) {
    for (const auto& [token, weight] : weights(chunks_[i])) of_token_[token].push_back({i, weight});
  }
}

std::map<int32_t, double> SimilarChunks::weights(const blendpp::Tokens& chunk) const {
  std::map<int32_t, double> weights;
  for (const int32_t token : chunk) ++weights[token];
  const auto n = static_cast<double>(chunks_.size());
  double squares = 0;
  for (auto& [token, weight] : weights) {
    const auto df = in_chunks_.find(token);
    weight = df == in_chunks_.end()
                 ? 0
                 : (1 + std::log(weight)) * std::log(n / static_cast<double>(df->second));
    squares += weight * weight;
  }
  for (auto& [token, weight] : weights) weight /= std::max(std::sqrt(squares), 1e-9);
  return weights;
}

std::vector<const blendpp::Tokens*> SimilarChunks::most_similar(const blendpp::Tokens& chunk,
                                                                size_t n) const {
  std::vector<double> similarity(chunks_.size(), 0.0);
  for (const auto& [token, weight] : weights(chunk)) {
    const auto found = of_token_.find(token);
    if (found == of_token_.end()) continue;
    for (const Weight& other : found->second) similarity[other.chunk] += weight * other.weight;
  }
  std::vector<size_t> order;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const bool fit = similarity[i] < kNearCopy && chunks_[i].size() > kShort && chunks_[i] != chunk;
    if (fit) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return similarity[a] > similarity[b]; });
  std::vector<const blendpp::Tokens*> out;
  for (size_t i = 0; i < std::min(n, order.size()); ++i) out.push_back(&chunks_[order[i]]);
  return out;
}

}  // namespace blend_cli
