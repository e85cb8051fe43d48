#include "detail.h"

namespace blend_shim {

Prompt::Prompt() noexcept {
  keep([&] { prompt_ = std::make_shared<blendpp::Prompt>(); });
}

void Prompt::add(uint32_t kind, const int32_t* tokens, size_t n_tokens) noexcept {
  keep([&] {
    blendpp::Tokens copy(tokens, tokens + n_tokens);
    switch (kind) {
      case BLEND_SEGMENT_PREFIX:
        prompt_->prefix(std::move(copy));
        break;
      case BLEND_SEGMENT_CHUNK:
        prompt_->chunk(std::move(copy));
        break;
      case BLEND_SEGMENT_TEXT:
        prompt_->text(std::move(copy));
        break;
      case BLEND_SEGMENT_QUESTION:
        prompt_->question(std::move(copy));
        break;
      default:
        problem_ = "a segment of kind " + std::to_string(kind) +
                   ": there are PREFIX (1), CHUNK (2), TEXT (3) and QUESTION (4)";
    }
  });
}

void Prompt::add_chunk_id(const std::string& id) noexcept {
  keep([&] {
    try {
      prompt_->chunk(blendpp::ChunkId::from_hex(id));
    } catch (const blendpp::Error& error) {
      problem_ = error.what();
    }
  });
}

size_t Prompt::size() const noexcept { return prompt_ ? prompt_->size() : 0; }
size_t Prompt::n_tokens() const noexcept { return prompt_ ? prompt_->n_tokens() : 0; }

View Prompt::head(Outcome& out) const noexcept {
  return guarded(out, [&] { return owned(get().head()); });
}

uint32_t Prompt::kind(size_t segment) const noexcept {
  return prompt_ && segment < prompt_->size() ? prompt_->segments()[segment].kind : 0;
}

View Prompt::tokens(size_t segment, Outcome& out) const noexcept {
  return guarded(out, [&] {
    if (segment >= size()) invalid("there is no segment " + std::to_string(segment));
    const blend_segment s = prompt_->segments()[segment];
    return owned(blendpp::Tokens(s.tokens, s.tokens + s.n_tokens));
  });
}

std::string Prompt::chunk_id(size_t segment) const noexcept {
  if (!prompt_ || segment >= prompt_->size()) return {};
  const blend_segment s = prompt_->segments()[segment];
  return s.id == nullptr ? std::string() : blendpp::ChunkId(*s.id).hex();
}

ChatOptions::ChatOptions() noexcept { show(*this, blendpp::ChatOptions()); }

void Chat::add_message(const std::string& role, const std::string& content,
                       const std::string& members) noexcept {
  keep([&] { messages_.push_back({role, content, members}); });
}
void Chat::add_document(const std::string& content, const std::string& title) noexcept {
  keep([&] { documents_.push_back({content, title, {}}); });
}
void Chat::add_stored_document(const std::string& id) noexcept {
  keep([&] { documents_.push_back({{}, {}, id}); });
}

const blendpp::Prompt& Prompt::get() const {
  require_complete(*this);
  if (!problem_.empty()) invalid(problem_);
  return *prompt_;
}

void Samples::add(const Prompt& prompt) noexcept {
  keep([&] {
    require_complete(prompt);
    prompts_.push_back(prompt);
    prompts_.back().prompt_ = std::make_shared<blendpp::Prompt>(*prompt.prompt_);
  });
}

}  // namespace blend_shim
