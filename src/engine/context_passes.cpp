#include "engine/context_passes.h"

#include <algorithm>
#include <numeric>

#include "store/chunk/chunk.h"

namespace blend {

bool enough_passages(size_t n, size_t n_tokens, size_t passes) {
  return n >= kMostContexts || (n >= passes && n_tokens >= passes * kContextTokens);
}

std::vector<std::vector<size_t>> deal_passages(std::span<const size_t> n_tokens, size_t most,
                                               size_t wanted) {
  const size_t all = std::accumulate(n_tokens.begin(), n_tokens.end(), size_t{0});
  const size_t enough_for = (all + wanted / 2) / std::max<size_t>(1, wanted);
  most = std::min(most, n_tokens.size());
  std::vector<std::vector<size_t>> passes(std::min(most, std::max<size_t>(1, enough_for)));
  std::vector<size_t> length(passes.size(), 0);
  for (size_t i = 0; i < n_tokens.size(); ++i) {
    const auto shortest = std::min_element(length.begin(), length.end()) - length.begin();
    passes[static_cast<size_t>(shortest)].push_back(i);
    length[static_cast<size_t>(shortest)] += n_tokens[i];
  }
  return passes;
}

ContextPasses ContextPasses::of(std::span<const Part> parts, size_t room, size_t most,
                                size_t wanted) {
  ContextPasses out;
  std::vector<size_t> n_tokens;
  for (const Part& part : parts) n_tokens.push_back(part.tokens.size());
  bool second = true;
  for (std::vector<size_t>& pass : deal_passages(n_tokens, most, wanted)) {
    second = !second;
    size_t length = 0;
    std::erase_if(pass, [&](size_t i) {
      const bool fits = n_tokens[i] <= room - length;
      if (fits) length += n_tokens[i];
      return !fits;
    });
    if (pass.empty()) continue;
    std::reverse(pass.begin(), pass.end());
    ContextPassage passage{parts[pass[0]].tokens};
    if (pass.size() > 1) {
      std::vector<int32_t>& text = out.joined_.emplace_back();
      for (const size_t i : pass) {
        text.insert(text.end(), parts[i].tokens.begin(), parts[i].tokens.end());
      }
      passage.tokens = text;
    }
    const auto rows_of = [&](size_t i) {
      return second && parts[i].in_context != nullptr ? parts[i].in_context : parts[i].stored;
    };
    if (std::all_of(pass.begin(), pass.end(), [&](size_t i) { return rows_of(i) != nullptr; })) {
      for (const size_t i : pass) passage.stored.push_back(rows_of(i));
    }
    out.passages_.push_back(std::move(passage));
  }
  return out;
}

void ContextPasses::end_with(std::span<const int32_t> tokens) {
  if (passages_.empty()) passages_.emplace_back();
  for (ContextPassage& passage : passages_) {
    std::vector<int32_t> text(passage.tokens.begin(), passage.tokens.end());
    text.insert(text.end(), tokens.begin(), tokens.end());
    passage = {joined_.emplace_back(std::move(text))};
  }
}

}  // namespace blend
