// TextBuilder: a Text whose growth takes fuel of the meter.
#pragma once

#include <string_view>

#include "chat/meter.h"
#include "chat/value.h"

namespace blend::chat {

class TextBuilder {
 public:
  explicit TextBuilder(Meter& meter) : meter_(meter) {}

  Status append(std::string_view bytes, uint32_t origin);
  Status append(const Text& text) { return append(text, 0, text.size()); }
  // Bytes [begin, end) of `text`.
  Status append(const Text& text, size_t begin, size_t end);

  Text take() { return std::move(text_); }
  Result<Value> value();

 private:
  Meter& meter_;
  Text text_;
};

// Bytes [begin, end) of `text` as a value.
Result<Value> part_of(const Text& text, size_t begin, size_t end, Meter& meter);

}  // namespace blend::chat
