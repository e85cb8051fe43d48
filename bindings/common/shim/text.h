// Documents and a question, or a conversation, as text.
#ifndef BLEND_SHIM_TEXT_H
#define BLEND_SHIM_TEXT_H

#include <utility>
#include <vector>

#include "call.h"

namespace blend_shim {

// How they are put; see blend_text_options.
class TextOptions {
 public:
  TextOptions() noexcept;
  BLEND_TEXT_OPTIONS_FIELDS(BLEND_SHIM_DECLARE)
};

// What a prompt is made of. Texts are copied. Not thread-safe while it is built.
class Texts : public Builder {
 public:
  // title: "" for no title.
  void add_document(const std::string& document, const std::string& title) noexcept;
  void set_question(const std::string& question) noexcept;
  // Of a conversation, which has no question. members: as in Chat.
  void add_message(const std::string& role, const std::string& content,
                   const std::string& members) noexcept;
#ifndef SWIG
  std::vector<std::string> documents_;
  std::vector<std::string> titles_;
  std::vector<Turn> messages_;
  std::string question_;
#endif
};

}  // namespace blend_shim

#endif
