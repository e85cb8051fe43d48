// Prompts: segments in their order.
#ifndef BLEND_SHIM_PROMPT_H
#define BLEND_SHIM_PROMPT_H

#include <vector>

#include "call.h"
#include "view.h"

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
  // The tokens before the first chunk; none where there is no chunk.
  View head(Outcome& out) const noexcept;
  // A segment, which must exist: its kind; its tokens; its id ("" where it has tokens).
  uint32_t kind(size_t segment) const noexcept;
  View tokens(size_t segment, Outcome& out) const noexcept;
  std::string chunk_id(size_t segment) const noexcept;
#ifndef SWIG
  // Throws the error of a segment.
  const blendpp::Prompt& get() const;
  std::shared_ptr<blendpp::Prompt> prompt_;
  std::string problem_;
#endif
};

class ChatOptions {
 public:
  ChatOptions() noexcept;
  BLEND_CHAT_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
};

// Messages and documents for Model::chat. Texts are copied. Not thread-safe while it is built.
class Chat : public Builder {
 public:
  // members: a JSON object of what it has besides; "": nothing.
  void add_message(const std::string& role, const std::string& content,
                   const std::string& members) noexcept;
  void add_document(const std::string& content, const std::string& title) noexcept;
  // If it is not 64 hexadecimal digits, the call that takes the chat fails.
  void add_stored_document(const std::string& id) noexcept;
#ifndef SWIG
  std::vector<Turn> messages_;
  struct Document {
    std::string text;
    std::string title;
    std::string id;
  };
  std::vector<Document> documents_;
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
