// Prompts: segments in their order.
#ifndef BLEND_SHIM_PROMPT_H
#define BLEND_SHIM_PROMPT_H

#include <vector>

#include "call.h"

namespace blendpp {
class Prompt;
}

namespace blend_shim {

// The segments of one prompt. Tokens are copied. Not thread-safe while it is built.
class Prompt : public Builder {
 public:
  Prompt() noexcept;
  // kind: BLEND_SEGMENT_*.
  void add(uint32_t kind, const int32_t* tokens, size_t n_tokens) noexcept;
  // A stored chunk by its id. If that is not 64 hexadecimal digits, the call that takes the prompt
  // fails.
  void add_chunk_id(const std::string& id) noexcept;
  size_t size() const noexcept;
  size_t n_tokens() const noexcept;  // of the segments given as tokens
#ifndef SWIG
  // Throws what was wrong with a segment.
  const blendpp::Prompt& get() const;
  std::shared_ptr<blendpp::Prompt> prompt_;
  std::string problem_;
#endif
};

// Sample prompts for calibrate and verify. Not thread-safe while it is built.
class Samples : public Builder {
 public:
  void add(const Prompt& prompt) noexcept;
  size_t size() const noexcept { return prompts_.size(); }
#ifndef SWIG
  std::vector<Prompt> prompts_;
#endif
};

}  // namespace blend_shim

#endif
