// Prompts: segments in their order.
#ifndef BLEND_CPP_PROMPT_HPP
#define BLEND_CPP_PROMPT_HPP

#include <utility>
#include <vector>

#include "blend/cpp/types.hpp"
#include "blend/fuse.h"

namespace blendpp {

// The segments of one prompt, in order. Owns the tokens. Not thread-safe.
class Prompt {
 public:
  Prompt& prefix(Tokens tokens) { return add(BLEND_SEGMENT_PREFIX, std::move(tokens)); }
  Prompt& chunk(Tokens tokens) { return add(BLEND_SEGMENT_CHUNK, std::move(tokens)); }
  Prompt& chunk(const ChunkId& id) {
    add(BLEND_SEGMENT_CHUNK, {});
    parts_.back().id = id;
    parts_.back().by_id = true;
    return *this;
  }
  Prompt& text(Tokens tokens) { return add(BLEND_SEGMENT_TEXT, std::move(tokens)); }
  Prompt& question(Tokens tokens) { return add(BLEND_SEGMENT_QUESTION, std::move(tokens)); }
  // kind: BLEND_SEGMENT_*.
  Prompt& add(uint32_t kind, Tokens tokens) {
    parts_.emplace_back();
    parts_.back().kind = kind;
    parts_.back().tokens = std::move(tokens);
    return *this;
  }

  size_t size() const noexcept { return parts_.size(); }
  // What stands before the first chunk: chunks are precomputed after it.
  Tokens head() const {
    Tokens out;
    for (const Part& part : parts_) {
      if (part.kind == BLEND_SEGMENT_CHUNK) return out;
      out.insert(out.end(), part.tokens.begin(), part.tokens.end());
    }
    return {};
  }
  // Counts the segments that were given as tokens.
  size_t n_tokens() const noexcept {
    size_t n = 0;
    for (const Part& part : parts_) n += part.tokens.size();
    return n;
  }
  // Valid until the prompt changes.
  std::vector<blend_segment> segments() const {
    std::vector<blend_segment> out(parts_.size());
    for (size_t i = 0; i < out.size(); ++i) {
      const Part& part = parts_[i];
      out[i].struct_size = sizeof out[i];
      out[i].kind = part.kind;
      out[i].tokens = part.by_id ? nullptr : part.tokens.data();
      out[i].n_tokens = part.tokens.size();
      out[i].id = part.by_id ? &part.id : nullptr;
    }
    return out;
  }

 private:
  struct Part {
    uint32_t kind = 0;
    bool by_id = false;
    Tokens tokens;
    ChunkId id;
  };
  std::vector<Part> parts_;
};

}  // namespace blendpp

#endif
