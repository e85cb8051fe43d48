#include "store/chunk/chunk_filter.h"

#include <algorithm>

#include "base/utf8_stream.h"

namespace blend {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

size_t next_character(std::string_view text, size_t at) {
  for (++at; at < text.size() && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80;) ++at;
  return at;
}

}  // namespace

// Only the last `*` is ever retried: a text that an earlier one could match, a later one can too.
bool fits_pattern(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0;
  std::optional<std::pair<size_t, size_t>> star;  // the position after it, and where its text ends
  for (;;) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = {++p, t};
      continue;
    }
    if (p == pattern.size() && t == text.size()) return true;
    if (p < pattern.size() && t < text.size()) {
      if (pattern[p] == '?') {
        ++p;
        t = next_character(text, t);
        continue;
      }
      const size_t plain = pattern[p] == '\\' && p + 1 < pattern.size() ? p + 1 : p;
      if (pattern[plain] == text[t]) {
        p = plain + 1;
        ++t;
        continue;
      }
    }
    if (!star.has_value() || star->second == text.size()) return false;
    p = star->first;
    t = star->second = next_character(text, star->second);
  }
}

bool ChunkFilter::fits(const ChunkMeta& meta) const {
  if (meta.shape.n_tokens == 0) return says_nothing() && !tenant.has_value();
  if (tenant.has_value() && meta.tenant != *tenant) return false;
  const std::string name = meta.name.label.value_or("");
  if (unlabelled && !name.empty()) return false;
  if (!label.empty() && !fits_pattern(label, name)) {
    const size_t part = name.rfind('#');
    if (part == std::string::npos || !fits_pattern(label, name.substr(0, part))) return false;
  }
  if (!tags.empty()) {
    const std::vector<std::string> own = words_of(meta.name.tags.value_or(""));
    const bool all = std::all_of(tags.begin(), tags.end(), [&](const std::string& pattern) {
      return std::any_of(own.begin(), own.end(),
                         [&](const std::string& tag) { return fits_pattern(pattern, tag); });
    });
    if (!all) return false;
  }
  return model.empty() || to_hex(meta.fingerprint).compare(0, model.size(), model) == 0;
}

Result<ChunkFilter> read_chunk_filter(const char* tenant, const char* label, const char* tags,
                                      const char* model) {
  ChunkFilter filter;
  if (tenant != nullptr) filter.tenant = tenant_tag(tenant);
  if (label != nullptr) filter.label = label;
  if (tags != nullptr) filter.tags = words_of(tags);
  if (model != nullptr) filter.model = model;
  const size_t digits = filter.model.find_first_not_of("0123456789abcdef");
  if (digits != std::string::npos || filter.model.size() > 2 * sizeof(Sha256)) {
    return make_error(BLEND_E_INVALID_ARGUMENT,
                      "'%s' names no model: give the first of the 64 hexadecimal digits of its "
                      "fingerprint, in lower case",
                      valid_utf8(filter.model).c_str());
  }
  return filter;
}

}  // namespace blend
