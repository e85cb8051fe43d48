#include "store/chunk/chunk_name.h"

#include <algorithm>
#include <set>

#include "base/utf8_stream.h"

namespace blend {
namespace {

Status check_line(const char* what, std::string_view text, size_t most) {
  if (text.size() > most) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "the %s has %zu bytes; at most %zu are kept", what,
                      text.size(), most);
  }
  if (valid_utf8(text) != text) {
    return make_error(BLEND_E_INVALID_ARGUMENT, "the %s '%s' is not UTF-8: encode it so", what,
                      valid_utf8(text).c_str());
  }
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::any_of(text.begin(), text.end(), is_control)) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "the %s has a control character in it: give one line of text", what);
  }
  return Status::ok();
}

std::string in_order(std::string_view tags) {
  std::set<std::string_view> words;
  while (!tags.empty()) {
    const size_t end = std::min(tags.find(' '), tags.size());
    if (end > 0) words.insert(tags.substr(0, end));
    tags.remove_prefix(std::min(end + 1, tags.size()));
  }
  std::string out;
  for (const std::string_view word : words) {
    if (!out.empty()) out += ' ';
    out += word;
  }
  return out;
}

}  // namespace

bool ChunkName::says_no_more_than(const ChunkName& now) const {
  return (!label.has_value() || *label == now.label.value_or("")) &&
         (!tags.has_value() || *tags == now.tags.value_or(""));
}

void ChunkName::complete_with(const ChunkName& before) {
  if (!label.has_value()) label = before.label;
  if (!tags.has_value()) tags = before.tags;
}

Result<ChunkName> read_chunk_name(const char* label, const char* tags) {
  ChunkName name;
  if (label != nullptr) {
    BLEND_RETURN_IF_ERROR(check_line("label", label, kMostLabelBytes));
    name.label = label;
  }
  if (tags != nullptr) {
    BLEND_RETURN_IF_ERROR(check_line("list of tags", tags, kMostTagsBytes));
    name.tags = in_order(tags);
  }
  return name;
}

bool is_sound(const ChunkName& name) {
  const std::string label = name.label.value_or("");
  const std::string tags = name.tags.value_or("");
  return check_line("label", label, kMostLabelBytes).is_ok() &&
         check_line("list of tags", tags, kMostTagsBytes).is_ok() && in_order(tags) == tags;
}

}  // namespace blend
