#include "engine/stop_texts.h"

#include <algorithm>
#include <utility>

namespace blend {

Result<StopTexts> StopTexts::create(const std::vector<std::string>& texts) {
  StopTexts stops;
  for (size_t i = 0; i < texts.size(); ++i) {
    const std::string& bytes = texts[i];
    if (bytes.empty() || bytes.size() > UINT32_MAX / 2) {
      return make_error(BLEND_E_INVALID_ARGUMENT,
                        "stop text %zu has %zu bytes: leave it out, or give it some", i,
                        bytes.size());
    }
    Text text;
    text.bytes = bytes;
    text.fall_back.assign(bytes.size() + 1, 0);
    for (size_t end = 2; end <= bytes.size(); ++end) {
      uint32_t n = text.fall_back[end - 1];
      while (n > 0 && bytes[n] != bytes[end - 1]) n = text.fall_back[n];
      text.fall_back[end] = bytes[n] == bytes[end - 1] ? n + 1 : 0;
    }
    stops.texts_.push_back(std::move(text));
  }
  return stops;
}

// Called while the text is not complete.
void StopTexts::add(Text& text, char byte) {
  while (text.n > 0 && text.bytes[text.n] != byte) text.n = text.fall_back[text.n];
  if (text.bytes[text.n] == byte) ++text.n;
}

std::string StopTexts::push(std::string_view bytes) {
  size_t longest = 0;  // longest part of any text that the stream ends with
  for (const char byte : bytes) {
    held_.push_back(byte);
    longest = 0;
    size_t whole = 0;
    for (Text& text : texts_) {
      add(text, byte);
      longest = std::max<size_t>(longest, text.n);
      if (text.n == text.bytes.size()) whole = std::max<size_t>(whole, text.n);
    }
    if (whole == 0) continue;
    matched_ = true;
    std::string before = held_.substr(0, held_.size() - whole);
    held_.clear();
    return before;
  }
  if (bytes.empty()) return {};
  std::string decided = held_.substr(0, held_.size() - longest);
  held_.erase(0, decided.size());
  return decided;
}

std::string StopTexts::finish() { return std::exchange(held_, {}); }

}  // namespace blend
