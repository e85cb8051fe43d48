// Conversations, and documents with a question, as prompts.
#ifndef BLEND_CPP_CHAT_HPP
#define BLEND_CPP_CHAT_HPP

#include <string>
#include <utility>
#include <vector>

#include "blend/chat.h"
#include "blend/cpp/model.hpp"
#include "blend/cpp/prompt.hpp"
#include "blend/text.h"

namespace blendpp {

using ChatOptions = detail::Initialised<blend_chat_options, blend_chat_options_init>;

struct ChatMessage {
  std::string role;
  std::string content;
  std::string members = {};  // a JSON object of further members, such as tool_calls; "": none
};

// By its text, or a stored chunk by its id.
struct ChatDocument {
  ChatDocument() = default;
  ChatDocument(std::string text_, std::string title_ = {})  // NOLINT(google-explicit-constructor)
      : text(std::move(text_)), title(std::move(title_)) {}
  ChatDocument(const ChunkId& id_) : id(id_), by_id(true) {}  // NOLINT(google-explicit-constructor)
  std::string text;
  std::string title;
  ChunkId id;
  bool by_id = false;
};

// A conversation as the model's chat template puts it; see blend_chat_render.
struct Chat {
  Prompt prompt;
  std::string text;
};

namespace detail {

// Copies what was rendered, and closes it.
inline Chat taken_chat(blend_chat* raw) {
  const Handle<blend_chat, blend_chat_close> handle(raw, {nullptr});
  Outcome outcome;
  const blend_segment* segments = nullptr;
  const char* text = nullptr;
  size_t n = 0;
  Chat chat;
  outcome.check(blend_chat_get_segments(raw, &segments, &n, outcome.out()));
  for (size_t i = 0; i < n; ++i) {
    const blend_segment& s = segments[i];
    if (s.id != nullptr) {
      chat.prompt.chunk(ChunkId(*s.id));
    } else {
      chat.prompt.add(s.kind, Tokens(s.tokens, s.tokens + s.n_tokens));
    }
  }
  outcome.check(blend_chat_get_text(raw, &text, &n, outcome.out()));
  chat.text.assign(text, n);
  return chat;
}

// Messages as C has them; they must outlive what is made.
inline std::vector<blend_chat_message> c_messages(const std::vector<ChatMessage>& messages) {
  std::vector<blend_chat_message> turns(messages.size());
  for (size_t i = 0; i < turns.size(); ++i) {
    turns[i].struct_size = sizeof turns[i];
    turns[i].role = messages[i].role.c_str();
    turns[i].content = messages[i].content.data();
    turns[i].content_bytes = messages[i].content.size();
    turns[i].members = messages[i].members.c_str();
  }
  return turns;
}

}  // namespace detail

inline Chat render_chat(const Model& model, const std::vector<ChatMessage>& messages,
                        const std::vector<ChatDocument>& documents = {},
                        const ChatOptions& options = ChatOptions()) {
  const std::vector<blend_chat_message> turns = detail::c_messages(messages);
  std::vector<blend_chat_document> given(documents.size());
  for (size_t i = 0; i < given.size(); ++i) {
    const ChatDocument& document = documents[i];
    given[i].struct_size = sizeof given[i];
    given[i].title = document.title.c_str();
    given[i].text = document.by_id ? nullptr : document.text.data();
    given[i].text_bytes = document.by_id ? 0 : document.text.size();
    given[i].id = document.by_id ? &document.id : nullptr;
  }
  detail::Outcome outcome;
  blend_chat* raw = nullptr;
  outcome.check(blend_chat_render(&raw, model.get(), turns.data(), turns.size(), given.data(),
                                  given.size(), &options, outcome.out()));
  return detail::taken_chat(raw);
}

// Documents and a question as blend_fuse_texts puts them; see blend_chat_render_texts.
inline Chat render_texts(const Model& model, const std::vector<std::string>& documents,
                         const std::string& question, const TextOptions& options = TextOptions()) {
  const std::vector<const char*> list = detail::c_strings(documents);
  detail::Outcome outcome;
  blend_chat* raw = nullptr;
  outcome.check(blend_chat_render_texts(&raw, model.get(), list.data(), list.size(),
                                        detail::c_string(question, "the question"), &options,
                                        outcome.out()));
  return detail::taken_chat(raw);
}

}  // namespace blendpp

#endif
