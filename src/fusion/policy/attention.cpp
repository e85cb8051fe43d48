// attention: the rows that the question attends to in the middle layers.
//
// First the question's rows go through the layers over the stored rows, up to the last asked layer
// (fusion/request/asked_layers.h). The score of a row is the attention probability that they put on
// it, mean over heads, rows and asked layers. Choosing by the question's attention is ProphetKV's
// idea (arXiv 2602.02579); asking the middle layers, over the stored rows and before layer 0, is
// ours. It needs no statistics of chunks.
//
// A few rows of every chunk are chosen even if the question looks elsewhere: how far they move says
// what the chunk's other rows lack (fusion/correct/chunk_shift.h).
#include <algorithm>
#include <numeric>

#include "fusion/policy/policy.h"

namespace blend {
namespace {

// Rows of every chunk, those with the largest scores; fewer where the budget has no room for as
// many of each.
constexpr size_t kLeastRows = 4;

// A chunk's rows among the candidates.
struct Part {
  size_t first = 0;
  size_t n = 0;
};

std::vector<Part> parts_of(const Prompt& prompt, std::span<const uint32_t> candidates) {
  std::vector<Part> parts;
  size_t at = 0;
  for (const PromptSegment& s : prompt.segments) {
    const size_t first = at;
    while (at < candidates.size() && candidates[at] < s.first_row + s.n_rows) ++at;
    if (at > first) parts.push_back({first, at - first});
  }
  return parts;
}

class Attention final : public SelectionPolicy {
 public:
  Needs needs() const override { return policy_entry(Policy::attention).needs; }

  Result<std::vector<uint32_t>> choose(const ChoicePoint& at, std::span<const uint32_t> candidates,
                                       size_t budget) const override {
    const size_t k = std::min(budget, candidates.size());
    std::vector<float> scores(candidates.size());
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = at.question_attention[candidates[i]];
    std::vector<uint32_t> picked = of_every_chunk(parts_of(at.prompt, candidates), k, scores);
    // Attention is 0 or more.
    for (const uint32_t index : picked) scores[index] = -1.0f;
    const auto n_picked = static_cast<ptrdiff_t>(picked.size());
    picked.resize(k);
    BLEND_RETURN_IF_ERROR(at.backend.fusion().top_k(scores, k - static_cast<size_t>(n_picked),
                                                    picked.data() + n_picked));
    std::inplace_merge(picked.begin(), picked.begin() + n_picked, picked.end());
    for (uint32_t& index : picked) index = candidates[index];
    return picked;
  }

 private:
  // Indices, ascending; ties go to the lower one.
  static std::vector<uint32_t> of_every_chunk(const std::vector<Part>& parts, size_t budget,
                                              std::span<const float> scores) {
    std::vector<uint32_t> picked, order;
    const size_t least = parts.empty() ? 0 : std::min(kLeastRows, budget / parts.size());
    for (const Part& part : parts) {
      order.resize(part.n);
      std::iota(order.begin(), order.end(), static_cast<uint32_t>(part.first));
      const auto n = static_cast<ptrdiff_t>(std::min(least, part.n));
      std::partial_sort(order.begin(), order.begin() + n, order.end(), [&](uint32_t a, uint32_t b) {
        return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
      });
      std::sort(order.begin(), order.begin() + n);
      picked.insert(picked.end(), order.begin(), order.begin() + n);
    }
    return picked;
  }
};

}  // namespace

std::unique_ptr<SelectionPolicy> make_attention(const PolicySettings&) {
  return std::make_unique<Attention>();
}

}  // namespace blend
