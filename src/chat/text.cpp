#include "chat/text.h"

#include <algorithm>

#include "model/utf8.h"

namespace blend::chat {

void Text::append(std::string_view bytes, uint32_t origin) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (runs_.empty() || runs_.back().origin != origin) {
    runs_.push_back({bytes_.size(), origin});
  } else {
    runs_.back().end = bytes_.size();
  }
}

void Text::append(const Text& text, size_t begin, size_t end) {
  auto run = std::upper_bound(text.runs_.begin(), text.runs_.end(), begin,
                              [](size_t at, const Run& r) { return at < r.end; });
  for (; begin < end && run != text.runs_.end(); ++run) {
    const size_t stop = std::min(end, run->end);
    append(std::string_view(text.bytes_).substr(begin, stop - begin), run->origin);
    begin = stop;
  }
}

Text Text::part(size_t begin, size_t end) const {
  Text out;
  out.append(*this, begin, end);
  return out;
}

Text Text::with_bytes(std::string bytes) const {
  Text out;
  out.bytes_ = std::move(bytes);
  out.runs_ = runs_;
  return out;
}

size_t Text::runs_between(size_t begin, size_t end) const {
  if (runs_.size() < 2) return runs_.size();
  const auto run_of = [this](size_t at) {
    return std::upper_bound(runs_.begin(), runs_.end(), at,
                            [](size_t i, const Run& r) { return i < r.end; });
  };
  return begin < end ? static_cast<size_t>(run_of(end - 1) - run_of(begin)) + 1 : 0;
}

uint32_t Text::origin(size_t at) const {
  return std::upper_bound(runs_.begin(), runs_.end(), at,
                          [](size_t i, const Run& r) { return i < r.end; })
      ->origin;
}

Result<std::vector<size_t>> characters(std::string_view text, Meter& meter) {
  std::vector<size_t> out;
  out.reserve(text.size() + 1);
  Meter::Pause pause(meter);
  for (size_t at = 0; at < text.size();) {
    out.push_back(at);
    const size_t n = utf8_length(text.substr(at));
    BLEND_RETURN_IF_ERROR(pause.after(n));
    at += n;
  }
  out.push_back(text.size());
  return out;
}

Result<size_t> count_characters(std::string_view text, Meter& meter) {
  size_t count = 0;
  Meter::Pause pause(meter);
  for (size_t at = 0; at < text.size(); ++count) {
    const size_t n = utf8_length(text.substr(at));
    BLEND_RETURN_IF_ERROR(pause.after(n));
    at += n;
  }
  return count;
}

}  // namespace blend::chat
