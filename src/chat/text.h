// Text: UTF-8 bytes, each with its origin: the template, or one of the host's texts.
//
// Rendering keeps the origin through every operation, so that control tokens are recognized only in
// the template's own text, and a document can be found in the finished prompt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "chat/meter.h"

namespace blend::chat {

// Where bytes came from. Values from kDocument on are documents, by their index.
enum Origin : uint32_t {
  kTemplate = 0,  // trusted as far as the model is
  kStable = 1,    // the host's, the same in many prompts: system messages, roles, variables
  kMessage = 2,   // the host's: other messages
  kDocument = 3,
};

// A value type.
class Text {
 public:
  struct Run {
    size_t end;  // end of its bytes; it begins at the end of the run before it
    uint32_t origin;
    bool operator==(const Run&) const = default;
  };

  Text() = default;
  explicit Text(std::string_view bytes, uint32_t origin = kTemplate) { append(bytes, origin); }

  const std::string& bytes() const { return bytes_; }
  const std::vector<Run>& runs() const { return runs_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Roughly the memory that it needs.
  size_t weight() const { return bytes_.size() + runs_.size() * sizeof(Run); }

  void append(std::string_view bytes, uint32_t origin);
  void append(const Text& text) { append(text, 0, text.size()); }
  // Bytes [begin, end) of `text`, which may not be this one.
  void append(const Text& text, size_t begin, size_t end);
  Text part(size_t begin, size_t end) const;
  // Other bytes of the same number, with the same origins.
  Text with_bytes(std::string bytes) const;
  // Number of runs that the bytes [begin, end) touch.
  size_t runs_between(size_t begin, size_t end) const;
  // The origin of the byte at `at`, which must be inside the text.
  uint32_t origin(size_t at) const;

 private:
  std::string bytes_;
  std::vector<Run> runs_;
};

// The byte offset of each character, and at the end the text's size. Both functions use `meter`
// only to notice a cancel, and take no fuel.
Result<std::vector<size_t>> characters(std::string_view text, Meter& meter);
Result<size_t> count_characters(std::string_view text, Meter& meter);

}  // namespace blend::chat
